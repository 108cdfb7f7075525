#include "SumiRHITexture.h"

#if PLATFORM_WINDOWS
#include "ID3D12DynamicRHI.h"
#include "RenderingThread.h"

bool SumiCanShare() { return GDynamicRHI && GDynamicRHI->GetInterfaceType() == ERHIInterfaceType::D3D12; }

TSharedPtr<sumi::Shared12> SumiMakeShared(sumi_engine* Engine, int32 Width, int32 Height, bool bPreviews)
{
    if (!SumiCanShare()) return nullptr;
    sumi_result Result = SUMI_OK;
    std::unique_ptr<sumi::Shared12> Made =
        sumi::Shared12::Make(Engine, GetID3D12DynamicRHI()->RHIGetDevice(0), Width, Height, bPreviews, Result);
    return Made ? MakeShareable(Made.release()) : nullptr;
}

void SumiCopyIntoTexture(const TSharedPtr<sumi::Shared12>& Shared, FTextureRHIRef Texture)
{
    ENQUEUE_RENDER_COMMAND(SumiCopy)
    ([Shared, Texture](FRHICommandListImmediate& List) {
        if (!Shared->HasNew()) return;
        // On the thread that translates commands: there the native command list is open.
        List.EnqueueLambda([Shared, Texture](FRHICommandListImmediate& Executing) {
            ID3D12DynamicRHI* RHI = GetID3D12DynamicRHI();
            RHI->RHITransitionResource(Executing, Texture, D3D12_RESOURCE_STATE_COPY_DEST, 0);
            ID3D12GraphicsCommandList* Native = RHI->RHIGetGraphicsCommandList(Executing, 0);
            const uint64 Value = Shared->RecordCopy(Native, RHI->RHIGetResource(Texture));
            RHI->RHIFinishExternalComputeWork(Executing, 0, Native);
            RHI->RHISignalManualFence(Executing, Shared->GetDrawn(), Value);
        });
    });
}
#endif
