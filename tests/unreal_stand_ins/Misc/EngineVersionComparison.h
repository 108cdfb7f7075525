// A stand-in: see README.md.
#pragma once
#include "CoreMinimal.h"

#define UE_VERSION_OLDER_THAN(Major, Minor, Patch) ((Major) > 5 || ((Major) == 5 && (Minor) > ENGINE_MINOR_VERSION))
