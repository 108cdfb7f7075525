// Records the copy of a sumi::Shared12 into a texture of Unreal's, with the Direct3D 12 RHI. The tests compile it with
// stand-ins for Unreal's headers alone.
//
// The picture is written by sumi on the GPU. Once a frame, on the game thread, call SumiCopyIntoTexture: it does
// nothing when there is no new picture.
#pragma once
#include "CoreMinimal.h"
#include "RHI.h"
#include "SumiShared12.h"

#if PLATFORM_WINDOWS
// Whether the RHI is Direct3D 12.
SUMIUNREAL_API bool SumiCanShare();
// A buffer for pictures of this size; nullptr where the session's GPU is not the RHI's. On the game thread.
SUMIUNREAL_API std::shared_ptr<sumi::Shared12> SumiMakeShared(sumi::Session& Session, int32 Width, int32 Height,
                                                              bool bPreviews);
// Texture is PF_R8G8B8A8, without mips, of the buffer's size.
SUMIUNREAL_API void SumiCopyIntoTexture(const std::shared_ptr<sumi::Shared12>& Shared, FTextureRHIRef Texture);
#endif
