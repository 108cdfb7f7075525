// The Unreal sample's session without Unreal, as a game's module uses it: of the C library it uses types alone.
// usage: unreal_session MODEL PICTURE.rgba EDIT_MODEL KLEIN NET_MODEL NET
// PICTURE.rgba: the raw pixels of "a red house on the grass", seed 7, to hold the session's picture against. The last
// line is "unreal_session: N passed, N failed, N skipped".
#include "SumiSession.h"
#include "SumiXmlPrompt.h"
#include <cstdio>
#include <cstring>

static int Passed, Failed;

static void Check(bool bTrue, const char* What)
{
    if (bTrue) Passed++;
    else Failed++, std::printf("FAILED: %s\n", What);
}

struct Ending {
    int Dones = 0, Failures = 0, Previews = 0, Reports = 0;
    float Progress = 0.0f;
    bool bFalls = false;
    std::string Sentence;
    sumi::Picture Picture, Newest; // the newest preview
};

static sumi::Listener Listen(Ending& End)
{
    sumi::Listener Told;
    Told.Progress = [&End](float Share, float) {
        End.bFalls = End.bFalls || Share < End.Progress;
        End.Progress = Share;
        End.Reports++;
    };
    Told.Preview = [&End](const sumi::Picture& Preview) {
        End.Previews += Preview.Width == 32 && Preview.Rgba.size() == 32 * 32 * 4;
        End.Newest = Preview;
    };
    Told.Done = [&End](const sumi::Picture& Made) {
        End.Dones++;
        End.Picture = Made;
    };
    Told.Failed = [&End](const std::string& Why) {
        End.Failures++;
        End.Sentence = Why;
    };
    return Told;
}

static void Processor(sumi_engine_desc& Engine) { Engine.backend = SUMI_BACKEND_CPU; }

// The smallest budget is one slice of work in each tick, however fast or busy the machine is: no preview is missed, and
// nothing is over before a test has looked at it.
constexpr uint32_t OneSlice = 1;

// Ticks until something is so. A test whose model cannot be loaded ends, too.
template <typename F> static void TickUntil(sumi::Session& Session, const F& IsSo)
{
    int Frame = 0;
    while (Frame < 1000000 && Session.Trouble().empty() && !IsSo()) Session.Tick(OneSlice), Frame++;
    Check(IsSo(), "what a test waits for comes");
}

static void RunUntilIdle(sumi::Session& Session, uint32_t BudgetMicroseconds = OneSlice)
{
    for (int Frame = 0; Frame < 1000000 && !Session.IsIdle(); Frame++) Session.Tick(BudgetMicroseconds);
    Check(Session.IsIdle(), "everything ends");
}

static Ending Ask(sumi::Session& Session, const sumi::Request& Wish)
{
    Ending End;
    Session.Generate(Wish, Listen(End));
    RunUntilIdle(Session, SUMI_FOREVER);
    return End;
}

// Compiled with a header of another version than the library's: nothing is called, and every request is told why.
static void RefusesOtherVersions(const char* Header, const char* Library)
{
    bool bAdjusted = false;
    auto Session = sumi::Session::Open("any", [&bAdjusted](sumi_engine_desc&) { bAdjusted = true; });
    Ending End;
    Session->Generate({}, Listen(End));
    RunUntilIdle(*Session);
    const std::string Sentence = Session->Trouble();
    Check(!bAdjusted && Session->GetEngine() == nullptr && !*Session->GetEngineInfo().backend
              && !*Session->GetModelInfo().family,
          "nothing is called");
    Check(End.Failures == 1 && End.Sentence == Sentence, "requests are told");
    Check(Sentence.find(std::string("sumi ") + Library + ",") != std::string::npos
              && Sentence.find(std::string(" ") + Header + ":") != std::string::npos,
          "both versions are told");
    std::string Text = "before", Trouble;
    Check(!sumi::XmlPrompt().Write(Text, Trouble) && Trouble == Sentence && Text.empty(),
          "a prompt in XML is told too");
}

static void PromptsInXml()
{
    sumi::XmlPrompt Prompt;
    std::string Text = "before", Trouble = "before";
    Check(Prompt.Write(Text, Trouble) && Text.empty() && Trouble.empty(), "nothing gives the empty text");
    Prompt.Characters.resize(2);
    Prompt.Characters[1] = {"A", "B", "C", "D", "E", "F", "G", "H", "I>"};
    Prompt.Tags = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m"};
    Prompt.Caption = "A girl & a boy.";
    Prompt.Indent = 1;
    const char* Wanted =
        " <character_1>\n <n>$character_1$</n>\n </character_1>\n\n"
        " <character_2>\n <n>A</n>\n <gender>B</gender>\n <appearance>C</appearance>\n <clothing>D</clothing>\n"
        " <body_type>E</body_type>\n <expression>F</expression>\n <action>G</action>\n"
        " <interaction>H</interaction>\n <position>I&gt;</position>\n </character_2>\n\n"
        " <general_tags>\n <count>a</count>\n <artists>b</artists>\n <style>c</style>\n"
        " <background>d</background>\n <environment>e</environment>\n <perspective>f</perspective>\n"
        " <atmosphere>g</atmosphere>\n <lighting>h</lighting>\n <resolution>i</resolution>\n <quality>j</quality>\n"
        " <objects>k</objects>\n <other>l</other>\n <extra_tags>m</extra_tags>\n </general_tags>\n\n"
        " <caption>A girl &amp; a boy.</caption>";
    Check(Prompt.Write(Text, Trouble) && Text == Wanted && Trouble.empty(), "every member has its tag");
    Prompt.Characters[1].Action = "\xFF";
    Check(!Prompt.Write(Text, Trouble) && Text.empty() && Trouble.find("characters[1].action") != std::string::npos,
          "a text that is not UTF-8 is told");
    Prompt.Characters[1].Action.clear();
    Prompt.Indent = 17;
    Check(!Prompt.Write(Text, Trouble) && Trouble.find("indent 17") != std::string::npos, "a wrong indent is told");
}

static sumi::Picture Shades(int32_t Width, int32_t Height, int Shade)
{
    sumi::Picture Made;
    Made.Width = Width, Made.Height = Height;
    for (int32_t i = 0; i < Width * Height; i++)
        for (int c = 0; c < 4; c++) Made.Rgba.push_back(static_cast<uint8_t>(c == 3 ? 255 : Shade + i % Width));
    return Made;
}

static void StepsAreReused(const char* Model)
{
    int32_t Threads = -1;
    auto Session = sumi::Session::Open(Model, [&Threads](sumi_engine_desc& Engine) {
        Processor(Engine);
        Threads = Engine.cpu_thread_count;
    });
    Check(Threads == 0, "every core works unless the host asks for less");
    sumi::Request Wish;
    Wish.Prompt = "a red house";
    Wish.Width = Wish.Height = 64, Wish.Steps = 20, Wish.bPreviews = false;
    const Ending Whole = Ask(*Session, Wish);
    Wish.StepCache = 10.0f;
    const Ending Cached = Ask(*Session, Wish);
    Check(Whole.Dones == 1 && Whole.Picture.EvaluationCount == 20 && Whole.Picture.ReusedCount == 0,
          "20 evaluations, none of them reused");
    Check(Cached.Dones == 1 && Cached.Picture.EvaluationCount == 20 && Cached.Picture.ReusedCount == 13
              && Cached.Picture.Rgba != Whole.Picture.Rgba,
          "a step cache");
    Wish.StepCache = 0.0f, Wish.StepCacheEvery = 4;
    const Ending Scheduled = Ask(*Session, Wish);
    Check(Scheduled.Dones == 1 && Scheduled.Picture.Rgba == Cached.Picture.Rgba && Scheduled.Picture.PredictedDb > 0.0f,
          "a fixed schedule of the same evaluations");
    Wish.StepCacheEvery = 0, Wish.StepCacheDb = 99.0f;
    const Ending Kept = Ask(*Session, Wish);
    Check(Kept.Dones == 1 && Kept.Picture.Rgba == Whole.Picture.Rgba && Kept.Picture.PredictedDb == 99.0f,
          "a step cache that keeps everything");
    Wish.StepCacheDb = 0.0f;
    auto Fast = sumi::Session::Open(Model, Processor, {"", SUMI_WEIGHTS_AUTO, SUMI_ATTENTION_8BIT});
    const Ending None = Ask(*Fast, Wish);
    Check(None.Failures == 1 && None.Sentence.find("attention") != std::string::npos,
          "attention in 8 bits needs a GPU");
}

static void EditModelsTakeReferences(const char* Model)
{
    auto Session = sumi::Session::Open(Model, Processor, {"edit-2511"});
    sumi::Request Wish;
    Wish.Prompt = "the hat";
    Wish.Seed = 7;
    Wish.Preset = SUMI_PRESET_FAST;
    Wish.Steps = 1;
    Wish.bPreviews = false;
    Wish.Width = Wish.Height = 64;
    const Ending None = Ask(*Session, Wish);
    Check(Session->IsReady() && std::strcmp(Session->GetModelInfo().variant, "edit-2511") == 0
              && Session->GetModelInfo().max_references == 3,
          "the variant is opened");
    Check(None.Dones == 1 && None.Picture.Width == 64, "an edit model draws from the text alone");
    Wish.References = {Shades(64, 32, 0)};
    const Ending One = Ask(*Session, Wish);
    Wish.References[0] = Shades(32, 64, 90);
    const Ending Other = Ask(*Session, Wish);
    Check(One.Dones == 1 && Other.Dones == 1 && One.Picture.Width == 64 && One.Picture.Rgba != Other.Picture.Rgba
              && One.Picture.Rgba != None.Picture.Rgba,
          "another reference, another picture");
    Wish.Guidance = 4.0f;
    const Ending Own = Ask(*Session, Wish);
    Wish.Negative = Session->GetModelInfo().negative_text;
    const Ending Said = Ask(*Session, Wish);
    Wish.GuidanceRule = SUMI_GUIDANCE_PLAIN;
    const Ending Plain = Ask(*Session, Wish);
    Check(Own.Dones == 1 && Own.Picture.Rgba == Said.Picture.Rgba && Own.Picture.Rgba != Other.Picture.Rgba,
          "without a negative prompt it is the model's own");
    Check(Plain.Dones == 1 && Plain.Picture.Rgba != Own.Picture.Rgba, "a guidance rule");
    Wish.References.push_back(sumi::Picture());
    const Ending Broken = Ask(*Session, Wish);
    Check(Broken.Failures == 1 && Broken.Sentence.find("Width * Height") != std::string::npos,
          "a reference without pixels is refused");
}

static void SeveralReferencesKeepTheirOrder(const char* Model)
{
    auto Session = sumi::Session::Open(Model, Processor);
    const sumi::Picture Wide = Shades(96, 64, 0), High = Shades(64, 96, 90);
    sumi::Request Wish;
    Wish.Prompt = "the hat of picture 1 on the cat of picture 2";
    Wish.Steps = 1;
    Wish.bPreviews = false;
    Wish.Width = Wish.Height = 64;
    Wish.References = {Wide, High};
    const Ending Both = Ask(*Session, Wish);
    Check(Session->GetModelInfo().max_references == 10 && Session->GetModelInfo().ignores_guidance,
          "what the model takes");
    Wish.References = {High, Wide};
    const Ending Turned = Ask(*Session, Wish);
    Wish.References = {Wide};
    const Ending One = Ask(*Session, Wish);
    Check(Both.Dones == 1 && Turned.Dones == 1 && Both.Picture.Rgba != Turned.Picture.Rgba
              && Both.Picture.Rgba != One.Picture.Rgba,
          "all of them count, and their order");
    Wish.References.assign(11, Wide);
    const Ending Many = Ask(*Session, Wish);
    Check(Many.Failures == 1 && Many.Sentence.find("10") != std::string::npos, "more than it takes are a sentence");
}

static void ImagesFollowControlPictures(const char* Model, const char* Net)
{
    auto Session = sumi::Session::Open(Model, Processor);
    sumi::Request Wish;
    Wish.Prompt = "the hat";
    Wish.Width = Wish.Height = 32, Wish.Steps = 2, Wish.bPreviews = false;
    const Ending Plain = Ask(*Session, Wish);
    Wish.Controls = {{Net, Shades(64, 32, 0)}};
    const Ending Usual = Ask(*Session, Wish), Again = Ask(*Session, Wish);
    Check(Usual.Dones == 1 && Plain.Dones == 1 && Usual.Picture.Rgba != Plain.Picture.Rgba
              && Again.Picture.Rgba == Usual.Picture.Rgba,
          "a control net changes the picture");
    Wish.Controls[0].Strength = 0.3f;
    const Ending Weak = Ask(*Session, Wish);
    Wish.Controls[0].Strength = 0.0f, Wish.Controls[0].End = 0.5f;
    const Ending Early = Ask(*Session, Wish);
    Wish.Controls[0].Start = 0.5f, Wish.Controls[0].End = 1.0f;
    const Ending Late = Ask(*Session, Wish);
    Check(Weak.Dones == 1 && Weak.Picture.Rgba != Usual.Picture.Rgba, "by its strength");
    Check(Early.Picture.Rgba != Late.Picture.Rgba && Early.Picture.Rgba != Usual.Picture.Rgba, "in its steps");
    Wish.Controls.push_back({"no/such/net", Shades(32, 32, 90)});
    const Ending None = Ask(*Session, Wish);
    Check(None.Failures == 1 && None.Sentence.find("no/such/net") != std::string::npos, "a net that is not there");
    Wish.Controls.pop_back();
    Wish.Controls[0].Control = sumi::Picture();
    const Ending Broken = Ask(*Session, Wish);
    Check(Broken.Failures == 1 && Broken.Sentence.find("control picture") != std::string::npos, "no control picture");
    // Distances from 1 to 218, and what the net sees of them between 1 and 256.
    Wish.Steps = 1;
    sumi::Picture& Greys = Wish.Controls[0].Control = Shades(32, 32, 0);
    sumi::DepthBuffer Depth;
    Depth.Width = Depth.Height = 32, Depth.FarPlane = 1000.0f, Depth.Low = 1.0f, Depth.High = 256.0f;
    for (size_t i = 0; i < 32 * 32; i++) {
        const size_t Away = i < 512 ? 1 + 7 * (i % 32) : 1 + 3 * (i / 32);
        Depth.Values.push_back(static_cast<float>(Away));
        for (size_t c = 0; c < 3; c++) Greys.Rgba[4 * i + c] = static_cast<uint8_t>(256 - Away);
    }
    Wish.Controls[0].Start = 0.0f;
    const Ending Grey = Ask(*Session, Wish);
    Wish.Controls[0].Control = sumi::Picture();
    Wish.Controls[0].Depth = Depth;
    const Ending Deep = Ask(*Session, Wish);
    Check(Grey.Dones == 1 && Deep.Dones == 1 && Deep.Picture.Rgba == Grey.Picture.Rgba, "a depth buffer");
    Wish.Controls[0].Depth.Width = 31;
    Check(Ask(*Session, Wish).Sentence.find("depth buffer") != std::string::npos, "a depth buffer of another size");
    Wish.Controls[0].Depth = sumi::DepthBuffer();
    // While the net is read.
    Session = sumi::Session::Open(Model, Processor);
    TickUntil(*Session, [&] { return Session->IsReady(); });
    Wish.Controls[0].Control = Shades(32, 32, 0);
    Ending Cut, Dropped;
    int Owner = 0;
    const uint64_t Number = Session->Generate(Wish, Listen(Cut));
    Session->Tick(OneSlice);
    Session->Cancel(Number);
    RunUntilIdle(*Session);
    Check(Cut.Failures == 1 && Cut.Dones == 0, "a request is cancelled while its net is read");
    Wish.Owner = &Owner;
    Session->Generate(Wish, Listen(Dropped));
    Session->Tick(OneSlice);
    Session->Drop(&Owner);
    RunUntilIdle(*Session);
    Check(Dropped.Failures + Dropped.Dones == 0, "and dropped");
    Session->Generate(Wish, Listen(Dropped));
    Session->Tick(OneSlice);
    Session.reset();
    Check(Dropped.Failures == 1, "and ends with the session");
}

// Listeners that ask again and call everything else while the session closes, with one request running and many
// waiting.
static void ClosingRefuses(const char* Model)
{
    auto Session = sumi::Session::Open(Model, Processor);
    sumi::Session* Closing = Session.get();
    int Failures = 0, Taken = 0, Running = 0;
    sumi::Listener Again;
    Again.Progress = [&](float, float) { Running++; };
    Again.Failed = [&](const std::string&) {
        Failures++;
        for (int i = 0; i < 20; i++) Taken += Closing->Generate({}, Again) != 0;
        for (uint64_t i = 0; i < 50; i++) Closing->Cancel(i);
        Closing->Drop(nullptr);
        Closing->Tick(OneSlice);
        Check(!Closing->IsReady() && Closing->IsIdle() && !Closing->GetEngine() && !*Closing->GetModelInfo().family,
              "a closing session has nothing");
    };
    sumi::Request Wish;
    Wish.Prompt = "a red house";
    for (int i = 0; i < 40; i++) Session->Generate(Wish, Again);
    TickUntil(*Session, [&] { return Running > 0; });
    Session.reset();
    Check(Failures == 40 && Taken == 0, "every request fails once, and none is taken");
}

static void FailingListenersAskAgain()
{
    auto Session = sumi::Session::Open("no/such/model", Processor);
    sumi::Session* Asked = Session.get(); // also while it closes
    int Failures = 0;
    sumi::Listener Again;
    Again.Failed = [&](const std::string&) {
        if (++Failures < 100000) Asked->Generate({}, Again);
    };
    for (int i = 0; i < 3; i++) Session->Generate({}, Again);
    for (int Frame = 0; Frame < 1000000 && Failures == 0; Frame++) Session->Tick(OneSlice);
    Check(Failures == 3, "a tick ends what waited when it began");
    Session->Tick(OneSlice);
    Check(Failures == 6 && !Session->IsIdle(), "and the next tick what was asked for meanwhile");
    Session.reset(); // its listeners name what ends here
}

static void DroppedRequestsAreNotTold(const char* Model)
{
    auto Session = sumi::Session::Open(Model, Processor);
    sumi::Request Wish;
    Wish.Prompt = "a red house";
    Wish.Width = Wish.Height = 64, Wish.Steps = 8;
    int Owner = 0;
    Ending Waits, Other;
    int Calls = 0, After = 0;
    sumi::Listener Drops;
    const std::string Held(1000, 'x'); // freed with the listener, which must not be while it runs
    Drops.Progress = [&, Held](float, float) {
        Calls++;
        Session->Drop(&Owner);
        After += Held[999] == 'x';
    };
    Drops.Preview = Drops.Done = [&](const sumi::Picture&) { Calls++; };
    Drops.Failed = [&](const std::string&) { Calls++; };
    Wish.bPreviews = false;
    Wish.Owner = &Owner;
    Session->Generate(Wish, Drops);
    Session->Generate(Wish, Listen(Waits));
    Wish.Owner = nullptr;
    Session->Generate(Wish, Listen(Other));
    RunUntilIdle(*Session);
    Check(Calls == 1 && After == 1, "a request that is dropped by its own listener is told no more");
    Check(Waits.Dones + Waits.Failures + Waits.Reports == 0, "nor is one that waits");
    Check(Other.Dones == 1, "requests of others go on");
}

struct Attached : sumi::Attachment {
    void Release() override
    {
        Releases++;
        bHadEngine = Of->GetEngine() && Of->IsReady();
        bFirst = !Told->Failures;
        bTaken = Of->Generate({}, {}) != 0;
    }
    sumi::Session* Of = nullptr;
    const Ending* Told = nullptr;
    int Releases = 0;
    bool bHadEngine = false, bFirst = false, bTaken = true;
};

static void AttachmentsEndFirst(const char* Model)
{
    Ending Waits;
    auto Session = sumi::Session::Open(Model, Processor);
    TickUntil(*Session, [&] { return Session->IsReady(); });
    Session->Generate({}, Listen(Waits));
    const auto Kept = std::make_shared<Attached>();
    for (int i = 0; i < 3; i++) Session->Attach(std::make_shared<Attached>());
    Kept->Of = Session.get(), Kept->Told = &Waits;
    Session->Attach(Kept);
    Session.reset();
    Check(Kept->Releases == 1 && Kept->bHadEngine && Kept->bFirst && !Kept->bTaken && Waits.Failures == 1,
          "what is attached is released once, while there is an engine");
}

static void MessagesReachTheLog()
{
    int Errors = 0, Own = 0;
    sumi::ModelOptions Options;
    Options.Log = [&](sumi_log_level Level, const char* Text) {
        Errors += Level == SUMI_LOG_ERROR && std::strstr(Text, "no/such/model");
    };
    auto Session = sumi::Session::Open("no/such/model", Processor, Options);
    const Ending None = Ask(*Session, {});
    Check(Errors > 0 && None.Failures == 1, "an error of the engine reaches the log");
    const int Before = Errors;
    Session = sumi::Session::Open(
        "no/such/model",
        [&Own](sumi_engine_desc& Engine) {
            Processor(Engine);
            Engine.log = {[](sumi_log_level, sumi_result, const char*, void* Count) { ++*static_cast<int*>(Count); },
                          &Own};
        },
        Options);
    Ask(*Session, {});
    Check(Own > 0 && Errors == Before, "a log that Adjust gives is the only one");
}

static void ListenersMayTick(const char* Model)
{
    auto Session = sumi::Session::Open(Model, Processor);
    Ending Inner;
    int Dones = 0, Reports = 0, Within = 0;
    sumi::Listener Told;
    Told.Progress = [&](float, float) {
        Session->Tick(SUMI_FOREVER);
        Reports++, Within += Dones;
    };
    Told.Done = [&](const sumi::Picture&) {
        Dones++;
        Session->Generate({}, Listen(Inner));
        Session->Tick(SUMI_FOREVER);
    };
    sumi::Request Wish;
    Wish.Width = Wish.Height = 64;
    Session->Generate(Wish, Told);
    TickUntil(*Session, [&] { return Dones > 0; });
    Check(Dones == 1 && Reports > 0 && Within == 0 && Inner.Dones + Inner.Failures == 0 && !Session->IsIdle(),
          "a tick inside a tick does nothing");
    Session.reset();
}

extern "C" __attribute__((visibility("default"))) int RunGame(int Count, char** Arguments)
{
    if (Count == 4 && std::strcmp(Arguments[1], "refuses") == 0) {
        RefusesOtherVersions(Arguments[2], Arguments[3]);
        std::printf("unreal_session: %d passed, %d failed, 0 skipped\n", Passed, Failed);
        return Failed > 0;
    }
    if (Count != 7)
        return std::printf("usage: unreal_session MODEL PICTURE.rgba EDIT_MODEL KLEIN NET_MODEL NET | refuses HEADER "
                           "LIBRARY\n"),
               2;
    PromptsInXml();
    sumi::Request Wish;
    Wish.Prompt = "a red house on the grass";
    Wish.Seed = 7;
    {
        auto Session = sumi::Session::Open(Arguments[1], Processor);
        Ending First, Second, Third;
        const uint64_t One = Session->Generate(Wish, Listen(First)); // before the model is there
        sumi::Request Small = Wish;
        Small.Width = Small.Height = 128, Small.Steps = 4, Small.bPreviews = false;
        const uint64_t Two = Session->Generate(Small, Listen(Second)), Three = Session->Generate(Small, Listen(Third));
        Check(One != 0 && Two != One && Three != Two && !Session->IsReady(), "requests are taken at once");
        for (int Frame = 0; Frame < 20; Frame++) Session->Tick(0);
        Check(!Session->IsReady() && First.Reports == 0, "a budget of 0 is a pause");
        Session->Cancel(Two);
        Check(Second.Failures == 1 && Second.Sentence == "cancelled before it began",
              "a request that waits is cancelled at once");
        RunUntilIdle(*Session);
        Check(Session->IsReady() && Session->Trouble().empty(), "the model is loaded");
        Check(std::strcmp(Session->GetEngineInfo().backend, "cpu") == 0, "the engine tells what it is");
        Check(First.Dones == 1 && First.Failures == 0 && First.Reports > 3 && !First.bFalls && First.Previews == 8,
              "progress, previews, and one end");
        Check(Third.Dones == 1 && Third.Previews == 0 && Third.Picture.Width == 128 && Third.Picture.Height == 128,
              "sizes and steps are honoured");
        std::FILE* File = std::fopen(Arguments[2], "rb");
        std::vector<uint8_t> Wanted(256 * 256 * 4);
        const bool bRead = File && std::fread(Wanted.data(), 1, Wanted.size(), File) == Wanted.size();
        if (File) std::fclose(File);
        Check(bRead && First.Picture.Rgba == Wanted, "the picture is the command line's");

        Ending Whole;
        Session->Generate(Wish, Listen(Whole));
        Session->Tick(SUMI_FOREVER); // begins it
        Session->Tick(SUMI_FOREVER); // makes all of it
        Check(Whole.Dones == 1 && Whole.Previews == 1 && Whole.Reports == 0 && Session->IsIdle(),
              "one tick for the picture: one preview, and no report of progress");
        Check(Whole.Newest.Rgba == First.Newest.Rgba, "the preview of a long tick is the newest one");

        // Into memory of the host's: Done says that it is there.
        Ending Aimed;
        std::vector<uint8_t> Memory(static_cast<size_t>(128 * 128 * 4));
        sumi::Request There = Small;
        There.Target = [&Memory] {
            sumi_target Target = {};
            Target.host_memory = Memory.data();
            return Target;
        };
        Session->Generate(There, Listen(Aimed));
        RunUntilIdle(*Session);
        Check(Aimed.Dones == 1 && Aimed.Picture.Rgba.empty() && Aimed.Picture.Width == 128
                  && Memory == Third.Picture.Rgba,
              "a picture goes where the request says");

        Ending Cut;
        const uint64_t Number = Session->Generate(Wish, Listen(Cut));
        TickUntil(*Session, [&] { return Cut.Reports >= 4 || Cut.Dones > 0; });
        Session->Cancel(Number);
        Session->Cancel(12345);
        RunUntilIdle(*Session);
        Check(Cut.Failures == 1 && Cut.Dones == 0, "a running request is cancelled");

        Ending Wrong;
        sumi::Request Odd = Wish;
        Odd.Width = 100;
        Session->Generate(Odd, Listen(Wrong));
        RunUntilIdle(*Session);
        Check(Wrong.Failures == 1 && Wrong.Sentence.find("100") != std::string::npos,
              "a wrong size is told with its number");

        Ending Left, Waits;
        Session->Generate(Wish, Listen(Left));
        Session->Generate(Wish, Listen(Waits));
        for (int Frame = 0; Frame < 3; Frame++) Session->Tick(OneSlice);
        Session.reset();
        Check(Left.Failures == 1 && Waits.Failures == 1 && Left.Dones + Waits.Dones == 0, "closing ends what is left");
    }
    {
        auto Session = sumi::Session::Open("no/such/model", Processor);
        Ending End;
        Session->Generate(Wish, Listen(End));
        RunUntilIdle(*Session);
        Check(End.Failures == 1 && End.Sentence.find("no/such/model") != std::string::npos
                  && Session->Trouble() == End.Sentence,
              "a model that is not there is told");
    }
    ClosingRefuses(Arguments[1]);
    FailingListenersAskAgain();
    DroppedRequestsAreNotTold(Arguments[1]);
    ListenersMayTick(Arguments[1]);
    MessagesReachTheLog();
    AttachmentsEndFirst(Arguments[1]);
    StepsAreReused(Arguments[1]);
    EditModelsTakeReferences(Arguments[3]);
    SeveralReferencesKeepTheirOrder(Arguments[4]);
    ImagesFollowControlPictures(Arguments[5], Arguments[6]);
    std::printf("unreal_session: %d passed, %d failed, 0 skipped\n", Passed, Failed);
    return Failed > 0;
}
