// A buffer of Direct3D 12 that sumi writes pictures into on the GPU, and from which a command list copies them into a
// texture. Plain C++17 without Unreal's headers; SumiRHITexture.h records the copy into Unreal's command lists. Windows
// only.
//
//   sumi        -- picture n --> buffer, then signals `ready` n
//   the RHI     looks at `ready`, copies buffer --> texture, then signals `drawn` n
//   sumi        waits for `drawn` n before it writes picture n + 1
#pragma once
#include "SumiSession.h"
#include <atomic>

struct ID3D12Device;
struct ID3D12DeviceChild;
struct ID3D12Fence;
struct ID3D12GraphicsCommandList;
struct ID3D12Resource;

namespace sumi {
class SUMIUNREAL_API Shared12 : public Attachment {
  public:
    // Made on the session's thread. Device is the one of the session's GPU; another one is refused. nullptr: Result
    // says why, and the engine's log has a sentence. The session may end before, which ends the imports.
    static std::shared_ptr<Shared12> Make(Session& Of, ID3D12Device* Device, int32_t Width, int32_t Height,
                                          bool bPreviews, sumi_result& Result);
    // On any thread, when no command list names the buffer any more.
    ~Shared12() override;
    Shared12(const Shared12&) = delete;
    Shared12& operator=(const Shared12&) = delete;

    // The target of the next picture, for Request::Target or sumi_job_show_preview. After SUMI_OK of the fetch or of
    // sumi_job_show_preview, call Written. On the session's thread.
    sumi_target NextTarget() const;
    void Written() { WrittenValue++; }

    // On the thread that records: whether there is a picture that was not copied yet.
    bool HasNew() const;
    // Records the copy. Texture is in the state COPY_DEST, R8G8B8A8 and of this size. Returns the value that the queue
    // must signal on GetDrawn() after this command list.
    uint64_t RecordCopy(ID3D12GraphicsCommandList* List, ID3D12Resource* Texture);
    ID3D12Fence* GetDrawn() const { return Drawn; }

    // Ends the imports, on the session's thread. No picture is written any more. Without it they end with the session,
    // which calls this first: the engine would wait for ever for a copy that the renderer no longer makes.
    void Release() override;

  private:
    Shared12() = default;
    sumi_result Import(sumi_engine* Engine, ID3D12Device* Device, sumi_import_desc Desc, ID3D12DeviceChild* Child,
                       sumi_external** Out) const;
    sumi_result Open(sumi_engine* Engine, ID3D12Device* Device, bool bPreviews);

    int32_t Width = 0, Height = 0;
    uint32_t RowBytes = 0;
    ID3D12Resource* Buffer = nullptr;
    ID3D12Fence *Ready = nullptr, *Drawn = nullptr;
    sumi_external *External = nullptr, *ReadyImport = nullptr, *DrawnImport = nullptr;
    std::atomic<uint64_t> WrittenValue{0}; // pictures that sumi was told to write
    std::atomic<uint64_t> SeenValue{0};    // the newest one that was copied: of the render thread and of the RHI's
};
} // namespace sumi
