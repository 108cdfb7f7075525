// A stand-in: see README.md.
#pragma once
#include "CoreMinimal.h"

class UWorld;
enum class EGetWorldErrorMode { ReturnNull, LogAndReturnNull, Assert };
class UEngine : public UObject {
  public:
    UWorld* GetWorldFromContextObject(const UObject* Context, EGetWorldErrorMode) const
    {
        return Context ? World : nullptr;
    }
    UWorld* World = nullptr; // the tests'
};
extern ENGINE_API UEngine* GEngine;
