// One engine, one model and a queue of requests, for a host that calls Tick once per frame from one thread. Plain C++17
// without exceptions and without Unreal's headers, so that it can be built and tested anywhere; SumiSubsystem.h gives
// it game instances and a ticker.
//
// Other modules link this module alone, which has the only copy of the C library: nothing that is inline here calls it.
// Of sumi.h they use the types.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <sumi.h>
#include <vector>

#if !defined(SUMIUNREAL_API)
#define SUMIUNREAL_API // Unreal's build tool defines it: what other modules may link
#endif

namespace sumi {
// "", or a sentence when the library is of another version than the header that this was compiled with. Structs of
// another version have other sizes: nothing else may be called before this.
SUMIUNREAL_API std::string CheckVersion();

struct Picture {
    int32_t Width = 0, Height = 0;
    std::vector<uint8_t> Rgba; // rows from the top, straight alpha
    bool HasAlpha = false;     // of finished pictures: some pixels may be transparent; false: alpha is 255
    // Of finished pictures: evaluations of the transformer, how many of them were reused (Request::StepCacheDb), and the
    // PSNR in dB that the picture is predicted to keep then; 0: not known, or without a step cache.
    int32_t EvaluationCount = 0, ReusedCount = 0;
    float PredictedDb = 0.0f;
};

// What a camera sees, of which sumi makes a control picture: "Depth buffers" in sumi.h.
struct DepthBuffer {
    int32_t Width = 0, Height = 0;
    std::vector<float> Values; // rows from the top
    sumi_depth_kind Kind = SUMI_DEPTH_DISTANCE;
    float NearPlane = 0.0f, FarPlane = 0.0f; // of distances FarPlane alone, from which on all is sky; 0: nothing is
    // The distances that become white and black, once per shot: then greys do not flicker. Both 0: from this buffer.
    float Low = 0.0f, High = 0.0f;
};

// A control net, and the picture that an image follows: white edges on black, depth with white near.
struct ControlUse {
    std::string Net; // a file or a folder
    Picture Control;
    float Strength = 0.0f;          // 0: the net's usual one
    float Start = 0.0f, End = 1.0f; // the part of the steps in which it is on
    DepthBuffer Depth = {};         // in place of Control
};

struct Request {
    std::string Prompt;            // UTF-8
    std::string Negative;          // counts with guidance only; "": the model's own (sumi_model_info.negative_text)
    int32_t Width = 0, Height = 0; // 0: the preset's; of edit models the references', or the native size
    int32_t Steps = 0;             // 0: the preset's
    float Guidance = -1.0f;        // the number of the model's card; negative: the preset's
    sumi_preset Preset = SUMI_PRESET_MODEL;
    sumi_guidance_rule GuidanceRule = SUMI_GUIDANCE_MODEL;
    // For 20 steps or more, one of the three; 0: off. The PSNR in dB that the picture is to keep while evaluations are
    // reused, such as 40; a fixed schedule, which computes the first two, every n-th after them and the last; the
    // largest change over which evaluations are reused, such as 0.08.
    float StepCacheDb = 0.0f;
    int32_t StepCacheEvery = 0;
    float StepCache = 0.0f;
    uint64_t Seed = 0;
    bool bPreviews = true;
    std::vector<Picture> References; // of edit models: what the prompt speaks of, in this order
    // A net is read by the first request that names it, and stays open as long as the session.
    std::vector<ControlUse> Controls;
    // Where the picture goes instead of Picture::Rgba, such as Shared12::NextTarget(); called when the request begins.
    // What it names lives until the request has ended.
    std::function<sumi_target()> Target;
    const void* Owner = nullptr; // for Session::Drop
};

// Called on the thread that calls the session: by Tick, Cancel and ~Session. Every request ends in exactly one call of
// Done or Failed, also when it is cancelled or the session goes, unless it was dropped. A listener may call the
// session, with two exceptions: Tick does nothing there, and a listener must not destroy the session.
struct Listener {
    std::function<void(float Progress, float SecondsLeft)> Progress; // seconds: negative when not known yet
    std::function<void(const Picture&)> Preview;                     // an eighth of the size
    std::function<void(const Picture&)> Done;
    std::function<void(const std::string& Sentence)> Failed;
};

// How a model is opened.
struct ModelOptions {
    // Which model of its family it is ("2512"), for files that do not say so; "": by the files.
    std::string Variant;
    // On a GPU: the forms of the transformer's weights and of its attention.
    sumi_weight_format Weights = SUMI_WEIGHTS_AUTO;
    sumi_attention_format Attention = SUMI_ATTENTION_AUTO;
    // The engine's messages, unless Adjust gives it a log. Several threads may call it at once, and it must not call
    // the session.
    std::function<void(sumi_log_level Level, const char* Text)> Log = nullptr;
};

// Something that needs the session's engine to end, such as a Shared12.
class SUMIUNREAL_API Attachment {
  public:
    virtual ~Attachment();
    // Called when the session closes, while its engine still works, on the thread that closes it.
    virtual void Release() = 0;
};

class SUMIUNREAL_API Session {
  public:
    // Begins to load the model; requests may be given at once. Adjust may change services and budgets of the engine;
    // the log, if it gives none, is kept for sentences. Nothing of the library is called, Adjust neither, when its
    // version is not that of the header that this was compiled with. Never NULL: what went wrong is told to every
    // request.
    static std::unique_ptr<Session> Open(const std::string& ModelPath,
                                         const std::function<void(sumi_engine_desc& Engine)>& Adjust = {},
                                         const ModelOptions& Options = {});
    // Requests that are left fail. Their listeners may still call the session, which takes no requests any more. (They
    // do not find it through a std::unique_ptr, which is empty as soon as it is reset.)
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    // Returns the request's number. 0 while the session is closing: the request is refused, and no listener called.
    uint64_t Generate(const Request& Wish, Listener Told);
    void Cancel(uint64_t Number);
    // Cancels all requests of this owner, and calls their listeners no more: for an owner that ends.
    void Drop(const void* Owner);
    // What is attached is released before the engine ends. The session does not keep it alive.
    void Attach(const std::weak_ptr<Attachment>& What);
    void Tick(uint32_t BudgetMicroseconds); // once per frame; 0 is a pause
    bool IsReady() const { return Model != nullptr; }
    sumi_model_info GetModelInfo() const;                   // zero, with empty texts, until it is ready
    const std::string& Trouble() const { return Sentence; } // "" while all is well
    bool IsIdle() const { return Waiting.empty() && Running.Number == 0; }
    sumi_engine* GetEngine() const { return Engine; } // nullptr where there is none
    sumi_engine_info GetEngineInfo() const;           // zero, with empty texts, where there is none

  private:
    struct Entry {
        uint64_t Number = 0;
        Request Wish;
        Listener Told;
        // Told is called no more. It is destroyed with the entry only, for one of its calls may be running.
        bool bDropped = false;
    };
    Session() = default;
    void FinishLoading();
    sumi_result Submit(const Request& Wish, bool bPreviews, std::string& Message);
    void BeginNext();
    sumi_result BeginRunning(std::string& Message);
    void FailRunning(sumi_result Result, const std::string& Message);
    void FinishReadingNet();
    void LookAtRunning();
    void TellPreview();
    void Fail(Entry& Which, sumi_result Result, const char* Message);
    std::string TakeLastError();
    static void WriteLog(sumi_log_level Level, sumi_result Result, const char* Text, void* UserData);

    sumi_engine* Engine = nullptr;
    sumi_model* Model = nullptr;
    sumi_job Loading = {0}, Job = {0};
    std::map<std::string, sumi_control*> Nets; // by their paths
    std::string ReadingNet;                    // its path while Job reads a net for Running
    bool bClosing = false, bTicking = false;
    std::deque<Entry> Waiting;
    Entry Running;
    std::vector<std::weak_ptr<Attachment>> Attachments;
    uint64_t LastNumber = 0;
    uint32_t SeenPreview = 0;
    Picture Preview;
    std::string Sentence;
    std::function<void(sumi_log_level, const char*)> Log;
    std::mutex LogLock; // around LastError, which the engine's threads write
    std::string LastError;
};

// One session for several users, such as the game instances of a process: one model in memory, and one budget per
// frame.
class SUMIUNREAL_API SharedSession {
  public:
    SharedSession() = default;
    SharedSession(const SharedSession&) = delete;
    SharedSession& operator=(const SharedSession&) = delete;
    void Join(const void* User);
    // The user's requests are dropped (Request::Owner). When the last user leaves, the session is closed; inside Tick,
    // such as by a listener, as soon as that returns.
    void Leave(const void* User);
    // Opens the session when it is not open yet. nullptr for who has not joined.
    Session* Get(const void* User, const std::function<std::unique_ptr<Session>()>& Open);
    // Called by every user once per frame; the calls of the first one work.
    void Tick(const void* User, uint32_t BudgetMicroseconds);

  private:
    bool Has(const void* User) const;

    std::vector<const void*> Users; // the first one's ticks work
    std::unique_ptr<Session> Held;
    bool bTicking = false;
};
} // namespace sumi
