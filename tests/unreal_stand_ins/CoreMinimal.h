// A stand-in: see README.md.
#pragma once
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#if !defined(PLATFORM_WINDOWS)
#define PLATFORM_WINDOWS 0
#endif
#if !defined(ENGINE_MINOR_VERSION)
#define ENGINE_MINOR_VERSION 5
#endif
#define ENGINE_API __attribute__((visibility("default")))
#define THIRD_PARTY_INCLUDES_START
#define THIRD_PARTY_INCLUDES_END

using uint8 = std::uint8_t;
using uint16 = std::uint16_t;
using int32 = std::int32_t;
using uint32 = std::uint32_t;
using int64 = std::int64_t;   // `long long` in Unreal
using uint64 = std::uint64_t; // `unsigned long long` in Unreal
using TCHAR = char16_t;
#define TEXT(Text) u##Text

ENGINE_API std::u16string StandInWide(const char* Text);
ENGINE_API std::string StandInNarrow(const TCHAR* Text);

class FString {
  public:
    FString() = default;
    FString(const TCHAR* From) : Text(From) {}
    const TCHAR* operator*() const { return Text.c_str(); }
    bool IsEmpty() const { return Text.empty(); }
    FString& operator+=(const FString& More) { return Text += More.Text, *this; }
    bool operator==(const FString& Other) const { return Text == Other.Text; }
    bool Contains(const TCHAR* Part) const { return Text.find(Part) != std::u16string::npos; }
    // Unreal checks the types of what follows; here only %s is filled in.
    template <typename... FArguments> static FString Printf(const TCHAR* Format, FArguments... Arguments)
    {
        FString Made(Format);
        (Made.FillIn(Arguments), ...);
        return Made;
    }

  private:
    void FillIn(const TCHAR* Argument)
    {
        const size_t At = Text.find(u"%s");
        if (At != std::u16string::npos) Text.replace(At, 2, Argument);
    }
    void FillIn(int32) {}
    std::u16string Text;
};

class FName {
  public:
    FName(const TCHAR*) {}
};

#define TCHAR_TO_UTF8(Text) StandInNarrow(Text).c_str()
#define UTF8_TO_TCHAR(Text) StandInWide(Text).c_str()

template <typename T> class TArray {
  public:
    T* begin() { return Held.data(); }
    T* end() { return Held.data() + Held.size(); }
    const T* begin() const { return Held.data(); }
    const T* end() const { return Held.data() + Held.size(); }
    int32 Num() const { return static_cast<int32>(Held.size()); }
    T& operator[](int32 Index) { return Held[static_cast<size_t>(Index)]; }
    void Add(const T& More) { Held.push_back(More); }

  private:
    std::vector<T> Held;
};

struct FMath {
    template <typename T> static T Max(T A, T B) { return A > B ? A : B; }
    template <typename T> static T Clamp(T Value, T Least, T Most)
    {
        return Value < Least ? Least : Value > Most ? Most : Value;
    }
};
struct FMemory {
    static void* Memcpy(void* To, const void* From, size_t Bytes) { return std::memcpy(To, From, Bytes); }
};
template <typename T> void Swap(T& A, T& B) { std::swap(A, B); }
template <typename T> std::remove_reference_t<T>&& MoveTemp(T&& From)
{
    return static_cast<std::remove_reference_t<T>&&>(From);
}
template <typename T> using TFunction = std::function<T>;

ENGINE_API void StandInLog(const char* Verbosity, const TCHAR* Format);
template <typename... FArguments> void StandInLog(const char* Verbosity, const TCHAR* Format, FArguments... Arguments)
{
    StandInLog(Verbosity, *FString::Printf(Format, Arguments...));
}
#define UE_LOG(Category, Verbosity, ...) (static_cast<void>(Category), StandInLog(#Verbosity, __VA_ARGS__))
struct FLogCategory {};
constexpr FLogCategory LogTemp;
#define DEFINE_LOG_CATEGORY_STATIC(Name, Default, Compiled) static const FLogCategory Name

// ---- Objects --------------------------------------------------------------------------------------------------------
#define UCLASS(...)
#define USTRUCT(...)
#define UENUM(...)
#define UPROPERTY(...)
#define UFUNCTION(...)
#define UMETA(...)
#define GENERATED_BODY()

class ENGINE_API UObject {
  public:
    UObject();
    virtual ~UObject();
    FString GetName() const { return TEXT("StandIn"); }
    const uint64 Serial; // of this object alone, ever
    bool bMade = false;  // by NewObject
};
ENGINE_API UObject* StandInFind(uint64 Serial);

template <typename T> T* NewObject()
{
    T* Made = new T();
    Made->bMade = true;
    return Made;
}
template <typename T> ENGINE_API const T* GetDefault() // exported: one object for all modules
{
    static T Default;
    return &Default;
}
template <typename T> T* GetMutableDefault() { return const_cast<T*>(GetDefault<T>()); }

template <typename T> class TObjectPtr {
  public:
    TObjectPtr(T* From = nullptr) : Object(From) {}
    operator T*() const { return Object; }
    T* operator->() const { return Object; }

  private:
    T* Object;
};

template <typename T> class TWeakObjectPtr {
  public:
    TWeakObjectPtr() = default;
    TWeakObjectPtr(T* Of) : Serial(Of ? Of->Serial : 0) {}
    T* Get() const { return static_cast<T*>(StandInFind(Serial)); }
    bool IsValid() const { return Get() != nullptr; }

  private:
    uint64 Serial = 0;
};

template <typename... FArguments> class TMulticastDelegate {
  public:
    void Broadcast(FArguments... Arguments)
    {
        const auto Copied = Listeners;
        for (const auto& Each : Copied) Each(Arguments...);
    }
    std::vector<std::function<void(FArguments...)>> Listeners; // the tests'; Unreal has AddDynamic
};
#define DECLARE_DYNAMIC_MULTICAST_DELEGATE_ThreeParams(Name, A, AName, B, BName, C, CName)                             \
    class Name : public TMulticastDelegate<A, B, C> {}
