// A stand-in: see README.md.
#pragma once
#include "CoreMinimal.h"

class FSubsystemCollectionBase {};

class UGameInstanceSubsystem : public UObject {
  public:
    typedef UGameInstanceSubsystem Super; // of classes below it, whose own comes out of GENERATED_BODY
    virtual void Initialize(FSubsystemCollectionBase&) {}
    virtual void Deinitialize() {}
};
