// A stand-in: see README.md.
#pragma once
#include "CoreMinimal.h"

class FDefaultModuleImpl {};
#define IMPLEMENT_MODULE(Class, Name)                                                                                  \
    extern "C" ENGINE_API void* InitializeModule();                                                                    \
    extern "C" void* InitializeModule()                                                                                \
    {                                                                                                                  \
        static Class Module;                                                                                           \
        return &Module;                                                                                                \
    }
