// A stand-in: see README.md.
#pragma once
#include "CoreMinimal.h"

class UBlueprintFunctionLibrary : public UObject {};
