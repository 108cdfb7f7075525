// A stand-in: see README.md.
#pragma once
#include "CoreMinimal.h"

class UBlueprintAsyncActionBase : public UObject {
  public:
    virtual void Activate() {}
    void RegisterWithGameInstance(UObject*) { bRegistered = true; }
    void SetReadyToDestroy() { bRegistered = false; }
    bool bRegistered = false; // the tests': what is not, is garbage
};
