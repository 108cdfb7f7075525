#include "SumiSession.h"
#include <algorithm>
#include <utility>

namespace sumi {
void Session::WriteLog(sumi_log_level Level, sumi_result, const char* Text, void* UserData)
{
    Session* Of = static_cast<Session*>(UserData);
    if (Of->Log) Of->Log(Level, Text);
    if (Level != SUMI_LOG_ERROR) return;
    const std::lock_guard<std::mutex> Guard(Of->LogLock);
    Of->LastError = Text;
}

std::string Session::TakeLastError()
{
    const std::lock_guard<std::mutex> Guard(LogLock);
    std::string Taken;
    Taken.swap(LastError);
    return Taken;
}

std::string CheckVersion()
{
    if (sumi_check_version(SUMI_VERSION_NUMBER) == SUMI_OK) return "";
    return std::string("the library is sumi ") + sumi_version() + ", and this plug-in was compiled with the header of "
         + std::to_string(SUMI_VERSION_MAJOR) + "." + std::to_string(SUMI_VERSION_MINOR)
         + ": put header and library of one version into Source/ThirdParty/Sumi";
}

std::unique_ptr<Session> Session::Open(const std::string& ModelPath,
                                       const std::function<void(sumi_engine_desc& Engine)>& Adjust,
                                       const ModelOptions& Options)
{
    std::unique_ptr<Session> Made(new Session());
    Made->Sentence = CheckVersion();
    if (!Made->Sentence.empty()) return Made;
    sumi_engine_desc Desc = sumi_engine_defaults();
    Desc.cpu_thread_count = 0; // without a GPU: every core, by threads of low priority
    if (Adjust) Adjust(Desc);
    Made->Log = Options.Log;
    if (!Desc.log.write) Desc.log = {WriteLog, Made.get()};
    sumi_model_desc ModelDesc = sumi_model_defaults();
    ModelDesc.path = ModelPath.c_str();
    if (!Options.Variant.empty()) ModelDesc.variant = Options.Variant.c_str();
    ModelDesc.weights = Options.Weights;
    ModelDesc.attention = Options.Attention;
    sumi_result Result = sumi_engine_create(&Desc, &Made->Engine);
    if (Result == SUMI_OK) Result = sumi_submit_model(Made->Engine, &ModelDesc, &Made->Loading);
    if (Result == SUMI_OK) return Made;
    Made->Sentence = Made->TakeLastError();
    if (Made->Sentence.empty()) Made->Sentence = sumi_result_text(Result);
    return Made;
}

Attachment::~Attachment() = default;

Session::~Session()
{
    bClosing = true;
    const std::vector<std::weak_ptr<Attachment>> Attached = std::move(Attachments); // who is called may attach more
    for (const std::weak_ptr<Attachment>& Each : Attached)
        if (const std::shared_ptr<Attachment> Held = Each.lock()) Held->Release();
    if (Engine) sumi_engine_destroy(Engine); // takes model, nets and jobs with it
    Engine = nullptr;
    Model = nullptr;
    Nets.clear();
    // Out of the session before anybody is told, for who is told may call it.
    std::deque<Entry> Left = std::move(Waiting);
    Waiting.clear();
    if (Running.Number) Left.push_front(std::move(Running));
    Running = Entry();
    for (Entry& Each : Left) Fail(Each, SUMI_CANCELLED, "the session was closed");
}

sumi_model_info Session::GetModelInfo() const
{
    if (Model) return sumi_model_get_info(Model);
    sumi_model_info None = {}; // not the library's, which may be of another version
    None.family = None.variant = None.negative_text = "";
    return None;
}

sumi_engine_info Session::GetEngineInfo() const
{
    if (Engine) return sumi_engine_get_info(Engine);
    sumi_engine_info None = {};
    None.backend = None.device = "";
    return None;
}

uint64_t Session::Generate(const Request& Wish, Listener Told)
{
    if (bClosing) return 0;
    Entry Taken;
    Taken.Number = ++LastNumber;
    Taken.Wish = Wish;
    Taken.Told = std::move(Told);
    Waiting.push_back(std::move(Taken));
    return LastNumber;
}

void Session::Cancel(uint64_t Number)
{
    if (Running.Number == Number && Number) sumi_job_cancel(Engine, Job); // its end is told by a tick
    for (auto At = Waiting.begin(); At != Waiting.end(); ++At) {
        if (At->Number != Number) continue;
        Entry Taken = std::move(*At);
        Waiting.erase(At); // before anybody is told: who is told may ask for more
        Fail(Taken, SUMI_CANCELLED, "cancelled before it began");
        return;
    }
}

void Session::Drop(const void* Owner)
{
    if (Running.Number && Running.Wish.Owner == Owner) {
        Running.bDropped = true;
        sumi_job_cancel(Engine, Job);
    }
    std::deque<Entry> Kept, Dropped; // the dropped ones are destroyed last, for what their listeners hold may call here
    for (Entry& Each : Waiting) (Each.Wish.Owner == Owner ? Dropped : Kept).push_back(std::move(Each));
    Waiting = std::move(Kept);
}

void Session::Attach(const std::weak_ptr<Attachment>& What)
{
    const auto bGone = [](const std::weak_ptr<Attachment>& Each) { return Each.expired(); };
    Attachments.erase(std::remove_if(Attachments.begin(), Attachments.end(), bGone), Attachments.end());
    Attachments.push_back(What);
}

void Session::Fail(Entry& Which, sumi_result Result, const char* Message)
{
    Which.Number = 0;
    if (Which.Told.Failed && !Which.bDropped)
        Which.Told.Failed(Message && *Message ? Message : sumi_result_text(Result));
}

void Session::Tick(uint32_t BudgetMicroseconds)
{
    if (bClosing || bTicking) return;
    bTicking = true;
    if (Sentence.empty()) sumi_engine_update(Engine, BudgetMicroseconds);
    if (Loading.id) FinishLoading();
    if (Running.Number) LookAtRunning();
    if (!Running.Number) BeginNext();
    bTicking = false;
}

void Session::FinishLoading()
{
    const sumi_job_status Status = sumi_job_poll(Engine, Loading);
    if (Status.state < SUMI_JOB_DONE) return;
    const std::string Message = Status.message; // fetch ends the job and its texts
    const sumi_result Result = sumi_fetch_model(Engine, Loading, &Model);
    Loading = {0};
    if (Result != SUMI_OK) Sentence = Message.empty() ? sumi_result_text(Result) : Message;
}

static bool ToPixels(const Picture& From, sumi_pixels& To)
{
    To = {From.Rgba.data(), From.Width, From.Height, 0, 4};
    return From.Width > 0 && From.Height > 0
        && From.Rgba.size() == static_cast<size_t>(From.Width) * static_cast<size_t>(From.Height) * 4;
}

static bool ToDepth(const DepthBuffer& From, sumi_depth& To)
{
    To = sumi_depth_defaults();
    To.data = From.Values.data();
    To.width = From.Width, To.height = From.Height;
    To.kind = From.Kind;
    To.near_plane = From.NearPlane, To.far_plane = From.FarPlane;
    To.low = From.Low, To.high = From.High;
    return From.Width > 0 && From.Height > 0
        && From.Values.size() == static_cast<size_t>(From.Width) * static_cast<size_t>(From.Height);
}

// Points what the net follows to Pixels or Depth. "", or a sentence.
static const char* ToControl(const ControlUse& From, sumi_pixels& Pixels, sumi_depth& Depth, sumi_control_picture& To)
{
    if (From.Depth.Values.empty()) {
        To.picture = &Pixels;
        return ToPixels(From.Control, Pixels) ? "" : "a control picture has Width * Height * 4 bytes of Rgba";
    }
    To.depth = &Depth;
    return ToDepth(From.Depth, Depth) ? "" : "a depth buffer has Width * Height numbers in Values";
}

sumi_result Session::Submit(const Request& Wish, bool bPreviews, std::string& Message)
{
    sumi_image_item Item = {};
    Item.text = Wish.Prompt.c_str();
    Item.negative_text = Wish.Negative.empty() ? nullptr : Wish.Negative.c_str();
    Item.seed = Wish.Seed;
    std::vector<sumi_pixels> References;
    for (const Picture& Each : Wish.References) {
        References.emplace_back();
        if (ToPixels(Each, References.back())) continue;
        Message = "a reference has Width * Height * 4 bytes of Rgba";
        return SUMI_INVALID_ARGUMENT;
    }
    const size_t ControlCount = Wish.Controls.size();
    std::vector<sumi_pixels> ControlPixels(ControlCount);
    std::vector<sumi_depth> ControlDepths(ControlCount);
    std::vector<sumi_control_picture> ControlPictures(ControlCount);
    std::vector<sumi_control_use> Controls(ControlCount);
    for (size_t i = 0; i < ControlCount; i++) {
        const ControlUse& Each = Wish.Controls[i];
        Message = ToControl(Each, ControlPixels[i], ControlDepths[i], ControlPictures[i]);
        if (!Message.empty()) return SUMI_INVALID_ARGUMENT;
        Controls[i] = sumi_control_use_defaults(Nets[Each.Net]);
        Controls[i].pictures = &ControlPictures[i];
        Controls[i].picture_count = 1;
        if (Each.Strength < 0.0f || Each.Strength > 0.0f) Controls[i].strength = Each.Strength;
        Controls[i].start = Each.Start;
        Controls[i].end = Each.End;
    }
    sumi_image_desc Desc = sumi_image_defaults(Model, Wish.Preset);
    Desc.items = &Item; // all of it is copied by submit
    Desc.item_count = 1;
    Desc.references = References.empty() ? nullptr : References.data();
    Desc.reference_count = static_cast<int32_t>(References.size());
    Desc.controls = Controls.empty() ? nullptr : Controls.data();
    Desc.control_count = static_cast<int32_t>(ControlCount);
    if (Wish.Width > 0) Desc.width = Wish.Width;
    if (Wish.Height > 0) Desc.height = Wish.Height;
    if (Wish.Steps > 0) Desc.step_count = Wish.Steps;
    if (Wish.Guidance >= 0.0f) Desc.guidance.scale = Wish.Guidance;
    Desc.guidance.rule = Wish.GuidanceRule;
    Desc.step_cache = Wish.StepCache;
    Desc.step_cache_db = Wish.StepCacheDb;
    Desc.step_cache_every = Wish.StepCacheEvery;
    Desc.preview_every = Wish.bPreviews && bPreviews ? 1 : 0;
    sumi_target Target = {};
    if (Wish.Target) Target = Wish.Target();
    if (Wish.Target) Desc.targets = &Target;
    sumi_size Size; // of 0 x 0 too
    const sumi_result Result = sumi_image_size(&Desc, &Size);
    if (Result != SUMI_OK) return Result;
    Preview.Width = Size.width / 8;
    Preview.Height = Size.height / 8;
    Preview.Rgba.resize(static_cast<size_t>(Preview.Width) * static_cast<size_t>(Preview.Height) * 4);
    SeenPreview = 0;
    return sumi_submit_images(Engine, &Desc, &Job);
}

// Reads the first net that is not open yet, or begins the picture.
sumi_result Session::BeginRunning(std::string& Message)
{
    for (const ControlUse& Each : Running.Wish.Controls) {
        if (Nets.count(Each.Net)) continue;
        sumi_control_desc Desc = sumi_control_defaults(Model);
        Desc.path = Each.Net.c_str();
        const sumi_result Result = sumi_submit_control(Engine, &Desc, &Job);
        if (Result == SUMI_OK) ReadingNet = Each.Net;
        return Result;
    }
    return Submit(Running.Wish, Running.Told.Preview != nullptr, Message);
}

void Session::FailRunning(sumi_result Result, const std::string& Message)
{
    Entry Taken = std::move(Running);
    Running = Entry();
    Fail(Taken, Result, Message.empty() ? TakeLastError().c_str() : Message.c_str());
}

void Session::FinishReadingNet()
{
    const sumi_job_status Status = sumi_job_poll(Engine, Job);
    if (Status.state < SUMI_JOB_DONE) return;
    std::string Message = Status.message;
    sumi_control* Net = nullptr;
    sumi_result Result = sumi_fetch_control(Engine, Job, &Net);
    Job = {0};
    const std::string Path = std::move(ReadingNet);
    ReadingNet.clear();
    if (Result == SUMI_OK) {
        Nets[Path] = Net;
        Message.clear();
        TakeLastError();
        Result = Running.bDropped ? SUMI_CANCELLED : BeginRunning(Message);
    }
    if (Result != SUMI_OK) FailRunning(Result, Message);
}

void Session::BeginNext()
{
    if (!Model && Sentence.empty()) return;
    // At most what waits now: a listener that asks again when its request has failed is told so in the next tick.
    for (size_t Count = Waiting.size(); Count > 0 && !Waiting.empty(); Count--) {
        Running = std::move(Waiting.front());
        Waiting.pop_front();
        if (!Model) {
            FailRunning(SUMI_WRONG_STATE, Sentence);
            continue;
        }
        TakeLastError();
        std::string Message;
        const sumi_result Result = BeginRunning(Message);
        if (Result == SUMI_OK) return;
        FailRunning(Result, Message);
    }
}

void Session::TellPreview()
{
    sumi_image Image;
    if (sumi_job_preview(Engine, Job, 0, Preview.Rgba.data(), Preview.Rgba.size(), &Image) == SUMI_OK
        && Running.Told.Preview && !Running.bDropped)
        Running.Told.Preview(Preview);
}

void Session::LookAtRunning()
{
    if (!ReadingNet.empty()) {
        FinishReadingNet();
        return;
    }
    const sumi_job_status Status = sumi_job_poll(Engine, Job);
    if (Status.preview_version != SeenPreview) {
        SeenPreview = Status.preview_version;
        TellPreview();
    }
    if (Status.state < SUMI_JOB_DONE) {
        if (Running.Told.Progress && !Running.bDropped) Running.Told.Progress(Status.progress, Status.seconds_left);
        return;
    }
    const std::string Message = Status.message;
    sumi_image Image;
    const sumi_result Result = sumi_fetch_images(Engine, Job, &Image, 1);
    Entry Taken = std::move(Running);
    Running = Entry();
    if (Result != SUMI_OK) sumi_job_discard(Engine, Job); // a fetch whose copy into a target fails leaves the job there
    Job = {0};
    if (Result != SUMI_OK) {
        Fail(Taken, Result, Message.c_str());
        return;
    }
    Picture Made;
    Made.Width = Image.width;
    Made.Height = Image.height;
    Made.EvaluationCount = Image.evaluation_count;
    Made.ReusedCount = Image.reused_count;
    Made.PredictedDb = Image.predicted_db;
    Made.HasAlpha = Image.has_alpha;
    const uint8_t* Pixels = static_cast<const uint8_t*>(Image.pixels);
    // our own memory: rows without gaps
    if (Pixels && !Taken.Wish.Target)
        Made.Rgba.assign(Pixels, Pixels + static_cast<size_t>(Image.row_bytes) * static_cast<size_t>(Image.height));
    sumi_images_release(Engine, &Image, 1);
    if (Taken.Told.Done && !Taken.bDropped) Taken.Told.Done(Made);
}

bool SharedSession::Has(const void* User) const { return std::find(Users.begin(), Users.end(), User) != Users.end(); }

void SharedSession::Join(const void* User)
{
    if (!Has(User)) Users.push_back(User);
}

void SharedSession::Leave(const void* User)
{
    Users.erase(std::remove(Users.begin(), Users.end(), User), Users.end());
    if (Held) Held->Drop(User);
    if (Users.empty() && !bTicking) Held.reset();
}

Session* SharedSession::Get(const void* User, const std::function<std::unique_ptr<Session>()>& Open)
{
    if (!Has(User)) return nullptr;
    if (!Held) Held = Open();
    return Held.get();
}

void SharedSession::Tick(const void* User, uint32_t BudgetMicroseconds)
{
    if (!Held || bTicking || Users.empty() || Users.front() != User) return;
    bTicking = true;
    Held->Tick(BudgetMicroseconds);
    bTicking = false;
    if (Users.empty()) Held.reset();
}
} // namespace sumi
