// A stand-in: see README.md.
#pragma once
#include "RHI.h"

ENGINE_API void StandInRender(std::function<void(FRHICommandListImmediate&)> Command);
#define ENQUEUE_RENDER_COMMAND(Type) StandInRender
