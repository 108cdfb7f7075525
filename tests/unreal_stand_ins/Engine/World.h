// A stand-in: see README.md.
#pragma once
#include "CoreMinimal.h"

class UGameInstance;
class UWorld : public UObject {
  public:
    UGameInstance* GetGameInstance() const { return Game; }
    UGameInstance* Game = nullptr; // the tests'
};
