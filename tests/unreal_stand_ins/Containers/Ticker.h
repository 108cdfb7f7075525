// A stand-in: see README.md.
#pragma once
#include "CoreMinimal.h"
#include <map>

class FTickerDelegate {
  public:
    template <typename T> static FTickerDelegate CreateUObject(T* Object, bool (T::*Method)(float))
    {
        FTickerDelegate Made;
        const TWeakObjectPtr<T> Weak(Object);
        Made.Call = [Weak, Method](float Seconds) {
            T* Live = Weak.Get();
            return Live && (Live->*Method)(Seconds);
        };
        return Made;
    }
    std::function<bool(float)> Call;
};

class ENGINE_API FTSTicker {
  public:
    struct FDelegateHandle {
        uint64 Number = 0;
    };
    static FTSTicker& GetCoreTicker();
    FDelegateHandle AddTicker(const FTickerDelegate& Delegate, float Delay = 0.0f);
    void RemoveTicker(FDelegateHandle Handle);
    void Tick(float Seconds);

  private:
    std::map<uint64, FTickerDelegate> Delegates;
    uint64 Last = 0;
};
