// What the tests do to the stand-ins. The plug-in does not include this.
#pragma once
#include "CoreMinimal.h"

namespace StandIn {
struct FLine {
    std::string Verbosity;
    FString Text; // the format
};

ENGINE_API void Destroy(UObject* Object);
ENGINE_API void DestroyAll();       // what NewObject made
ENGINE_API int RunRenderCommands(); // how many there were
ENGINE_API std::vector<FLine>& GetLog();
} // namespace StandIn
