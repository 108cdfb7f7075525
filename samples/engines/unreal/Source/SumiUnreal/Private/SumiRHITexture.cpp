#include "SumiRHITexture.h"

#if PLATFORM_WINDOWS
#include "ID3D12DynamicRHI.h"
#include "Misc/EngineVersionComparison.h"
#include "RenderingThread.h"

bool SumiCanShare() { return GDynamicRHI && GDynamicRHI->GetInterfaceType() == ERHIInterfaceType::D3D12; }

std::shared_ptr<sumi::Shared12> SumiMakeShared(sumi::Session& Session, int32 Width, int32 Height, bool bPreviews)
{
    if (!SumiCanShare()) return nullptr;
    sumi_result Result = SUMI_OK;
    return sumi::Shared12::Make(Session, GetID3D12DynamicRHI()->RHIGetDevice(0), Width, Height, bPreviews, Result);
}

void SumiCopyIntoTexture(const std::shared_ptr<sumi::Shared12>& Shared, FTextureRHIRef Texture)
{
    ENQUEUE_RENDER_COMMAND(SumiCopy)
    ([Shared, Texture](FRHICommandListImmediate& List) {
        if (!Shared->HasNew()) return;
        // On the thread that translates commands: there the native command list is open.
        List.EnqueueLambda([Shared, Texture](FRHICommandListImmediate& Executing) {
            ID3D12DynamicRHI* RHI = GetID3D12DynamicRHI();
            RHI->RHITransitionResource(Executing, Texture, D3D12_RESOURCE_STATE_COPY_DEST, 0);
#if UE_VERSION_OLDER_THAN(5, 5, 0)
            ID3D12GraphicsCommandList* Native = RHI->RHIGetGraphicsCommandList(0);
#else
            ID3D12GraphicsCommandList* Native = RHI->RHIGetGraphicsCommandList(Executing, 0);
#endif
            const uint64 Value = Shared->RecordCopy(Native, RHI->RHIGetResource(Texture));
#if UE_VERSION_OLDER_THAN(5, 5, 0)
            RHI->RHIFinishExternalComputeWork(0, Native);
#else
            RHI->RHIFinishExternalComputeWork(Executing, 0, Native);
#endif
            RHI->RHISignalManualFence(Executing, Shared->GetDrawn(), Value);
        });
    });
}
#endif
