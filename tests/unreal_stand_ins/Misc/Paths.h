// A stand-in: see README.md.
#pragma once
#include "CoreMinimal.h"

struct FPaths {
    static bool IsRelative(const FString& Path) { return **Path != u'/'; }
    static FString ProjectContentDir() { return TEXT(""); }
    static FString Combine(const FString& A, const FString& B)
    {
        FString Made = A;
        Made += B;
        return Made;
    }
    static FString ConvertRelativePathToFull(const FString& Path) { return Path; }
};
