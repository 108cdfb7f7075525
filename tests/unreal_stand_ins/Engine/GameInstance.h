// A stand-in: see README.md.
#pragma once
#include "Subsystems/GameInstanceSubsystem.h"

class UGameInstance : public UObject {
  public:
    template <typename T> T* GetSubsystem() const { return static_cast<T*>(Subsystem); }
    UGameInstanceSubsystem* Subsystem = nullptr; // the tests'
};
