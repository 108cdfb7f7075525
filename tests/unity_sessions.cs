// Play sessions as Unity's: textures that a thread renders to a frame later, engines that go while something is under way, and script reloads (domains that are loaded and unloaded).
// tests/test_unity.sh runs each session in a process of its own, several times, with freed memory filled; one that hangs is ended by a time-out and has failed.
// OpenGL and the GPU are none (tests/unity_plugin_host.c).
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Reflection;
using System.Runtime.InteropServices;
using System.Threading;
using System.Threading.Tasks;
using Sumi;
using UnityEngine;

internal static class UnitySessions
{
    [DllImport("unity_plugin_host", CallingConvention = CallingConvention.Cdecl)] private static extern void host_begin(int renderer);
    [DllImport("unity_plugin_host", CallingConvention = CallingConvention.Cdecl)] private static extern int host_texture(int width, int height);
    [DllImport("unity_plugin_host", CallingConvention = CallingConvention.Cdecl)] private static extern int host_pixel(int texture, int index);
    [DllImport("unity_plugin_host", CallingConvention = CallingConvention.Cdecl)] private static extern int host_held();
    [DllImport("unity_plugin_host", CallingConvention = CallingConvention.Cdecl)] private static extern void host_device_event(int type);

    private const string Text = "a red house on the grass";
    private const int Side = 256, Small = 32, OpenGlCore = 17, Vulkan = 21;
    private static readonly Dictionary<string, Action<string>> sessions = new Dictionary<string, Action<string>>
    {
        { "plug-in", TexturesAreWrittenByThePlugin },
        { "two-textures", TexturesAreMadeInOneFrame },
        { "formats", TexturesHaveAFormat },
        { "device-reset", TheDeviceIsReset },
        { "devices", EnginesHaveADevice },
        { "leave-play", EnginesGoBeforeTheirEvents },
        { "collected", EnginesAreCollectedBeforeTheirEvents },
        { "dispose-texture", TexturesGoBeforeTheirEvents },
        { "any-order", EverythingEndsInAnyOrder },
        { "reload", ScriptsAreReloaded },
        { "lifetime", UnityTellsTheEnd },
        { "dispose-beside-wait", DisposeEndsTheWaitsOfOthers },
        { "ask-again", FailureHandlersAskAgain },
        { "switched-off", ComponentsAreSwitchedOffByTheirListeners },
        { "await", PicturesAreAwaited },
        { "told", ComponentsTellWhatIsWrong },
        { "menu", TheMenuChecksAndCopies }
    };

    public static void Play(string name, string model) { sessions[name](model); }

    private static void Check(bool isTrue, string what) { UnityBindings.Check(isTrue, what); }
    private static Texture2D TextureOf(int name, int side) { return new Texture2D(side, side, TextureFormat.RGBA32, false) { Native = new IntPtr(name) }; }
    private static Engine CudaEngine() { return new Engine(new EngineOptions { Backend = Backend.Cuda }); }

    // Frames until it is done.
    private static bool Ready(SumiTexture texture)
    {
        while (!texture.IsReady) Thread.Sleep(1);
        return true;
    }

    private static void NothingIsLeft(params Texture2D[] textures)
    {
        foreach (Texture2D texture in textures) UnityEngine.Object.Destroy(texture);
        int held = host_held();
        Check(held == 0, "nothing is left of the driver's, and no rule was broken: " + held);
    }

    // Pictures and previews, as a game makes them.
    private static void TexturesAreWrittenByThePlugin(string path)
    {
        host_begin(Vulkan);
        Check(!SumiTexture.IsSupported && SumiTexture.Trouble.Contains("Vulkan"), "Vulkan is not supported: " + SumiTexture.Trouble);
        host_begin(OpenGlCore);
        Check(SumiTexture.IsSupported && SumiTexture.Trouble == "", "OpenGL is supported");
        int picture = host_texture(Side, Side), preview = host_texture(Small, Small);
        Texture2D pictureTexture = TextureOf(picture, Side), previewTexture = TextureOf(preview, Small);
        using (Engine engine = CudaEngine())
        {
            Model model = engine.LoadModel(path).Wait();
            Renders.host_context(0);
            var lost = new SumiTexture(engine, pictureTexture, false);
            string told = UnityBindings.Throws<SumiException>(() => Ready(lost), "without a context the import fails");
            Check(told.Contains("make the OpenGL context current"), "and says why: " + told);
            lost.Dispose();
            Renders.host_context(1);
            var shown = new SumiTexture(engine, pictureTexture, false);
            var previews = new SumiTexture(engine, previewTexture, true);
            var early = new ImageRequest(model) { Prompt = Text, Seed = 7, Texture = shown };
            Renders.host_hold(1);
            var late = new SumiTexture(engine, pictureTexture, false);
            early.Texture = late;
            UnityBindings.Throws<InvalidOperationException>(() => model.Generate(early), "a target that is not ready");
            Renders.host_hold(0);
            late.Dispose();
            using (Engine other = CudaEngine())
            using (Model there = other.LoadModel(path).Wait())
                UnityBindings.Throws<ArgumentException>(() => there.Generate(early), "a target of another engine");
            Check(Ready(shown) && Ready(previews), "textures are imported");
            for (int round = 1; round <= 2; round++)
            {
                var request = new ImageRequest(model) { Prompt = Text, Seed = 7, PreviewEvery = 1, Texture = shown };
                ImageJob job = model.Generate(request);
                uint seen = 0, count = 0;
                while (!job.Poll().IsFinal)
                {
                    engine.Update(4000);
                    uint version = job.Poll().PreviewVersion;
                    if (version == seen || job.Poll().IsFinal) continue;
                    seen = version;
                    previews.Preview(job);
                    count += Ready(previews) ? 1u : 0;
                }
                Check(job.Poll().State == JobState.Done && count > 0, "previews are shown: " + count);
                Check(host_pixel(preview, 3) == 255, "the preview is in its texture");
                Check(host_pixel(picture, 0) == round - 1, "the picture comes with the fetch");
                shown.Fetch(job);
                Check(Ready(shown) && job.Poll().State == JobState.None, "the fetch ends the job");
                Check(host_pixel(picture, 0) == round && host_pixel(picture, Side * Side * 4 - 1) == round, "the picture is in its texture");
                shown.Update();
            }
            ImageJob wrong = model.Generate(new ImageRequest(model) { Prompt = Text, Seed = 7 });
            previews.Fetch(wrong); // it runs still
            UnityBindings.Throws<SumiException>(() => Ready(previews), "a job that runs is not fetched");
            Check(wrong.Poll().State != JobState.None, "and goes on");
            wrong.Dispose();
            shown.Dispose();
            shown.Dispose();
            engine.Dispose();
            previews.Dispose(); // after its engine
        }
        NothingIsLeft(pictureTexture, previewTexture);
    }

    // The second one asks the renderer for its pointer while the event of the first one waits.
    private static void TexturesAreMadeInOneFrame(string path)
    {
        host_begin(OpenGlCore);
        var textures = new Texture2D[4];
        for (int i = 0; i < textures.Length; i++) textures[i] = TextureOf(host_texture(Side, Side), Side);
        using (Engine engine = CudaEngine())
        {
            SumiTexture[] shown = textures.Select(texture => new SumiTexture(engine, texture, false)).ToArray();
            Check(shown.All(Ready), "four textures of one frame");
            foreach (SumiTexture each in shown) each.Dispose();
        }
        NothingIsLeft(textures);
    }

    private static void TexturesHaveAFormat(string path)
    {
        host_begin(OpenGlCore);
        int name = host_texture(Side, Side);
        Func<bool, bool, Texture2D> make = (mipChain, linear) => new Texture2D(Side, Side, TextureFormat.RGBA32, mipChain, linear) { Native = new IntPtr(name) };
        using (Engine engine = CudaEngine())
        {
            UnityBindings.Throws<ArgumentException>(() => new SumiTexture(engine, make(true, true), false), "mip levels");
            using (var gamma = new SumiTexture(engine, make(false, false), false)) Check(!gamma.NeedsDecoding && Ready(gamma), "a gamma project shows the values as they are");
            QualitySettings.activeColorSpace = ColorSpace.Linear;
            string told = UnityBindings.Throws<ArgumentException>(() => new SumiTexture(engine, make(false, false), false), "sRGB with OpenGL");
            Check(told.Contains("linear: true"), "and what to do: " + told);
            using (var linear = new SumiTexture(engine, make(false, true), false)) Check(linear.NeedsDecoding && Ready(linear), "in a linear project the shader decodes");
        }
        NothingIsLeft(make(false, true));
    }

    private static void TheDeviceIsReset(string path)
    {
        const int beforeReset = 2, afterReset = 3;
        host_begin(OpenGlCore);
        Texture2D texture = TextureOf(host_texture(Side, Side), Side), next = TextureOf(host_texture(Side, Side), Side);
        using (Engine engine = CudaEngine())
        {
            Model model = engine.LoadModel(path).Wait();
            var shown = new SumiTexture(engine, texture, false);
            Check(Ready(shown), "imported");
            ImageJob job = model.Generate(new ImageRequest(model) { Prompt = Text, Seed = 7, Texture = shown });
            while (job.Poll().State == JobState.Queued) engine.Update(1);
            Renders.host_hold(1);
            shown.Preview(job);
            host_device_event(beforeReset);
            shown.Update();
            UnityEngine.Object.Destroy(texture); // a texture that CUDA still knows would be a broken rule
            Renders.host_hold(0);
            Renders.host_flush();
            UnityBindings.Throws<SumiException>(() => Ready(shown), "a preview into a texture of a device that is gone");
            string told = UnityBindings.Throws<SumiException>(() => shown.Preview(job), "a texture of a device that is gone");
            Check(told.Contains("reset"), "and why: " + told);
            UnityBindings.Throws<SumiException>(() => model.Generate(new ImageRequest(model) { Prompt = Text, Texture = shown }), "as a target");
            while (!job.Poll().IsFinal) engine.Update(1000);
            Check(job.Poll().State == JobState.Cancelled, "the job for it is cancelled");
            host_device_event(afterReset);
            shown.Dispose();
            var again = new SumiTexture(engine, next, false);
            Check(Ready(again), "a new one");
        }
        NothingIsLeft(next);
    }

    // The GPU that Unity draws with, unless another one is asked for. (The fake one's uuid is 0, 1, 2 ...)
    private static void EnginesHaveADevice(string path)
    {
        host_begin(OpenGlCore);
        byte[] right = Enumerable.Range(0, 16).Select(i => (byte)i).ToArray(), wrong = new byte[16], drawing = null;
        var lines = new List<string>();
        Func<EngineOptions, string> backend = options =>
        {
            options.Log = (level, text) => { if (level <= LogLevel.Warning) lines.Add(text); };
            using (var engine = new Engine(options)) return engine.Info.Backend;
        };
        Check(backend(new EngineOptions { Backend = Backend.Cuda, Uuid = right }) == "cuda", "the GPU of this uuid");
        string sentence;
        Check(UnityBindings.Refused(() => backend(new EngineOptions { Backend = Backend.Cuda, Uuid = wrong }), out sentence) == Result.NoDevice, "no GPU of that uuid: " + sentence);
        Check(UnityBindings.Refused(() => backend(new EngineOptions { Backend = Backend.Cuda, Ordinal = 3 }), out sentence) == Result.NoDevice, "no fourth GPU: " + sentence);
        UnityBindings.Throws<ArgumentException>(() => backend(new EngineOptions { Luid = right }), "a LUID of 16 bytes");
        int asked = 0;
        RenderingPlugin.DrawingDevice = () => { asked++; return drawing; };
        Check(backend(new EngineOptions { Backend = Backend.Cuda }) == "cuda" && asked == 1, "without a known device any will do");
        lines.Clear();
        drawing = new byte[] { 9, 9, 9, 9, 9, 9, 9, 9 };
        Check(backend(new EngineOptions { Backend = Backend.Cuda }) == "cuda" && asked == 2 && lines.Last().Contains("this program draws with"), "Unity draws with a GPU that cannot be used: " + string.Join("; ", lines.ToArray()));
        Check(backend(new EngineOptions()) == "cuda" && asked == 3, "the same with Auto");
        drawing = new byte[] { 1, 2, 3, 4, 5, 6, 7, 8 }; // the fake one's
        lines.Clear();
        Check(backend(new EngineOptions { Backend = Backend.Cuda }) == "cuda" && asked == 4 && lines.Count == 0, "Unity draws with the only one: " + string.Join("; ", lines.ToArray()));
        backend(new EngineOptions { Backend = Backend.Cpu });
        backend(new EngineOptions { Backend = Backend.Cuda, Ordinal = 0 });
        Check(asked == 4, "it is asked for only where it matters");
        NothingIsLeft();
    }

    // Play mode is left while events are under way: for an import, a preview, a picture, and frames that pass.
    private static void EnginesGoBeforeTheirEvents(string path)
    {
        for (int round = 0; round < 4; round++)
        {
            host_begin(OpenGlCore);
            Texture2D pictureTexture = TextureOf(host_texture(Side, Side), Side), previewTexture = TextureOf(host_texture(Small, Small), Small);
            Engine engine = CudaEngine();
            Model model = engine.LoadModel(path).Wait();
            var shown = new SumiTexture(engine, pictureTexture, false);
            if (round == 0) Renders.host_hold(1); // the import waits
            var previews = round > 0 ? new SumiTexture(engine, previewTexture, true) : shown;
            if (round > 0)
            {
                Check(Ready(shown) && Ready(previews), "textures are imported");
                ImageJob job = model.Generate(new ImageRequest(model) { Prompt = Text, Seed = 7, PreviewEvery = 1, Texture = shown });
                while (round == 3 ? !job.Poll().IsFinal : job.Poll().PreviewVersion == 0) engine.Update(1);
                Renders.host_hold(1);
                if (round != 3) previews.Preview(job);
                else shown.Fetch(job);
            }
            for (int frame = 0; frame < 3; frame++) shown.Update();
            engine.Dispose();
            Renders.host_hold(0);
            shown.Update(); // a frame of a component that did not hear of it
            UnityBindings.Throws<ObjectDisposedException>(() => shown.IsReady.ToString(), "IsReady, of an engine that is gone");
            UnityBindings.Throws<ObjectDisposedException>(() => { while (true) { Renders.host_flush(); previews.Preview(null); } }, "Preview, of an engine that is gone");
            Renders.host_flush();
            if (round % 2 == 0) shown.Dispose(); // the others are left to the collector
            NothingIsLeft(pictureTexture, previewTexture);
        }
    }

    // Engine and texture are left to the collector, with the import's event under way.
    private static void EnginesAreCollectedBeforeTheirEvents(string path)
    {
        host_begin(OpenGlCore);
        Texture2D texture = TextureOf(host_texture(Side, Side), Side);
        Renders.host_hold(1);
        var scripts = new Thread(() => new SumiTexture(CudaEngine(), texture, false)); // its stack ends with it, and what may lie there
        scripts.Start();
        scripts.Join();
        UnityBindings.CollectAll();
        Renders.host_hold(0);
        NothingIsLeft(texture);
    }

    // Dispose, with events behind it and before it.
    private static void TexturesGoBeforeTheirEvents(string path)
    {
        host_begin(OpenGlCore);
        var textures = new List<Texture2D>();
        using (Engine engine = CudaEngine())
            for (int round = 0; round < 4; round++)
            {
                Texture2D texture = TextureOf(host_texture(Side, Side), Side);
                textures.Add(texture);
                var shown = new SumiTexture(engine, texture, false);
                if (round % 2 == 0) Check(Ready(shown), "imported");
                for (int frame = 0; frame < 8; frame++) shown.Update();
                shown.Dispose();
                shown.Update();
                Renders.host_flush();
                UnityBindings.Throws<ObjectDisposedException>(() => shown.IsReady.ToString(), "IsReady after Dispose");
                UnityBindings.Throws<ObjectDisposedException>(() => shown.Preview(null), "Preview after Dispose");
            }
        NothingIsLeft(textures.ToArray());
    }

    // What a game does with two engines and their textures, in an order that the seed says: SUMI_SEED, which is another one in every run.
    private static void EverythingEndsInAnyOrder(string path)
    {
        int seed = int.Parse(Environment.GetEnvironmentVariable("SUMI_SEED") ?? "1");
        var random = new System.Random(seed);
        host_begin(OpenGlCore);
        var textures = new Texture2D[4];
        for (int i = 0; i < textures.Length; i++) textures[i] = i % 2 == 0 ? TextureOf(host_texture(Side, Side), Side) : TextureOf(host_texture(Small, Small), Small);
        var engines = new Engine[2];
        var models = new Model[2];
        var shown = new SumiTexture[4]; // of engine i / 2: one for pictures, one for previews
        var jobs = new ImageJob[2];
        int done = 0, refused = 0;
        for (int turn = 0; turn < 400; turn++)
        {
            int e = random.Next(2), t = 2 * e + random.Next(2);
            if (engines[e] == null)
            {
                engines[e] = new Engine(new EngineOptions { Backend = Backend.Cuda, Pump = random.Next(2) == 0 ? Pump.Update : Pump.Thread });
                models[e] = engines[e].LoadModel(path).Wait();
            }
            int action = random.Next(24);
            try
            {
                if (action < 6) engines[e].Update((uint)random.Next(300));
                else if (action < 9 && shown[t] == null) shown[t] = new SumiTexture(engines[e], textures[t], t % 2 == 1);
                else if (action == 9 && jobs[e] == null && shown[2 * e] != null) jobs[e] = models[e].Generate(new ImageRequest(models[e]) { Prompt = Text, Seed = 7, Steps = 2, PreviewEvery = 1, Texture = shown[2 * e] });
                else if (action == 10 && jobs[e] == null) jobs[e] = models[e].Generate(new ImageRequest(models[e]) { Prompt = Text, Seed = 7, Steps = 2 });
                else if (action < 14 && jobs[e] != null && shown[2 * e + 1] != null && shown[2 * e + 1].IsReady) shown[2 * e + 1].Preview(jobs[e]);
                else if (action < 17 && jobs[e] != null && jobs[e].Poll().IsFinal && shown[2 * e] != null && shown[2 * e].IsReady)
                {
                    shown[2 * e].Fetch(jobs[e]);
                    jobs[e] = null;
                }
                else if (action == 17 && jobs[e] != null) jobs[e].Dispose();
                else if (action == 18 && shown[t] != null) shown[t].Dispose();
                else if (action == 19) shown[t] = null; // left to the collector
                else if (action == 20) jobs[e] = null;
                else if (action == 21 && random.Next(3) == 0)
                {
                    engines[e].Dispose();
                    engines[e] = null;
                    models[e] = null;
                    if (random.Next(2) == 0) jobs[e] = null;
                }
                else if (action == 22) Renders.host_hold(random.Next(2));
                else if (action == 23 && random.Next(4) == 0) UnityBindings.CollectAll();
                foreach (SumiTexture each in shown) if (each != null && random.Next(4) == 0) each.Update();
                done++;
            }
            catch (SumiException) { refused++; }
            catch (ArgumentException) { shown[t] = shown[2 * e] = null; } // of the engine before
            catch (InvalidOperationException trouble) // ObjectDisposedException is one
            {
                refused++;
                if (trouble is ObjectDisposedException) shown[t] = null;
            }
        }
        Renders.host_hold(0);
        foreach (Engine each in engines) if (each != null) each.Dispose();
        Check(done > 100 && refused > 0, "seed " + seed + ": " + done + " done, " + refused + " refused");
        NothingIsLeft(textures);
    }

    // ---- Script reloads -------------------------------------------------------------------------------------------------------------------------
    private static void ScriptsAreReloaded(string path)
    {
        host_begin(OpenGlCore);
        int picture = host_texture(Side, Side);
        string file = typeof(UnitySessions).Assembly.Location;
        for (int round = 0; round < 9; round++)
        {
            AppDomain scripts = AppDomain.CreateDomain("scripts");
            scripts.SetData("path", path);
            scripts.SetData("picture", picture);
            scripts.SetData("pump", (int)(round % 2 == 0 ? Pump.Thread : Pump.Update));
            scripts.SetData("backend", (int)(round < 4 ? Backend.Cuda : Backend.Cpu));
            scripts.SetData("failed", "");
            scripts.DoCallBack(round < 6 ? (CrossAppDomainDelegate)WorkUntilReload : round < 8 ? (CrossAppDomainDelegate)OpenUntilReload : DrawUntilReload);
            string failure = (string)scripts.GetData("failed");
            AppDomain.Unload(scripts); // with jobs under way, and events
            Check(failure == "", "scripts of round " + round + ": " + failure);
        }
        NothingIsLeft(TextureOf(picture, Side));
        Check(file.Length > 0, "the scripts are loaded from a file");
    }

    private static readonly List<object> alive = new List<object>(); // of a domain of scripts: what its components hold

    private static void WorkUntilReload()
    {
        AppDomain here = AppDomain.CurrentDomain;
        try
        {
            var path = (string)here.GetData("path");
            var backend = (Backend)(int)here.GetData("backend");
            int logged = 0;
            var engine = new Engine(new EngineOptions { Backend = backend, Pump = (Pump)(int)here.GetData("pump"), Log = (level, text) => Interlocked.Increment(ref logged) });
            alive.Add(engine);
            ModelJob wrong = engine.LoadModel("no/such/model"); // its failure is logged by the thread that works
            while (!wrong.Poll().IsFinal) engine.Update(1000);
            if (logged == 0) throw new Exception("nothing was logged");
            Model model = engine.LoadModel(path).Wait();
            alive.Add(model);
            if (backend == Backend.Cuda)
            {
                var shown = new SumiTexture(engine, TextureOf((int)here.GetData("picture"), Side), false);
                alive.Add(shown);
                Ready(shown);
                for (int frame = 0; frame < 4; frame++) shown.Update();
            }
            ImageJob job = model.Generate(new ImageRequest(model) { Prompt = Text, Seed = 7, Steps = 1000, PreviewEvery = 1 });
            alive.Add(job);
            while (job.Poll().State == JobState.Queued) engine.Update(1);
            var waiter = new Thread(() => { try { job.Wait(); } catch (ObjectDisposedException) { } catch (SumiException) { } });
            waiter.Start();
            here.DomainUnload += (sender, arguments) => waiter.Join(); // after the engine's end, with which the wait ends
        }
        catch (Exception trouble) { here.SetData("failed", trouble.ToString()); }
    }

    // A component whose engine is being created.
    private static void OpenUntilReload()
    {
        var component = new SumiGenerator { modelPath = (string)AppDomain.CurrentDomain.GetData("path"), backend = Backend.Cuda };
        alive.Add(component);
        component.Tell("OnEnable");
    }

    private static void DrawUntilReload()
    {
        OpenUntilReload();
        var component = (SumiGenerator)alive[0];
        bool isAtWork = false;
        component.Progressed += (share, left) => isAtWork = true;
        component.budgetMilliseconds = 0.001f;
        component.Generate(Text, 7);
        while (!isAtWork) component.Tell("Update");
    }

    // What Unity tells before scripts go: the editor, or with the other build of these scripts a player.
    private static void UnityTellsTheEnd(string path)
    {
        typeof(Engine).Assembly.GetType("Sumi.SumiLifetime").GetMethod("Listen", BindingFlags.Static | BindingFlags.NonPublic).Invoke(null, null);
#if UNITY_EDITOR
        Action[] ends = { UnityEditor.AssemblyReloadEvents.Tell, UnityEditor.EditorApplication.Quit };
#else
        Action[] ends = { Application.Quit };
#endif
        foreach (Action end in ends)
        {
            Engine[] engines = { new Engine(new EngineOptions { Backend = Backend.Cpu, Pump = Pump.Thread }), new Engine(new EngineOptions { Backend = Backend.Cpu }) };
            ModelJob loading = engines[0].LoadModel(path);
            end();
            foreach (Engine engine in engines) UnityBindings.Throws<ObjectDisposedException>(() => engine.Update(0), "an engine after its end");
            UnityBindings.Throws<ObjectDisposedException>(() => loading.Poll(), "a job after its engine's end");
            using (Engine next = new Engine(new EngineOptions { Backend = Backend.Cpu })) Check(next.Info.Backend == "cpu", "the same scripts may go on");
        }
    }

    // ---- Components -----------------------------------------------------------------------------------------------------------------------------
    private static void FailureHandlersAskAgain(string path)
    {
        const int enough = 1000; // a handler that is called as often in one frame would be called for ever
        int failures = 0;
        Application.streamingAssetsPath = "here";
        var component = new SumiGenerator { modelPath = "no_such_model", backend = Backend.Cpu, budgetMilliseconds = 1000 };
        component.Failed += told => { if (++failures < enough) component.Generate(Text, (ulong)failures); };
        component.Tell("OnEnable");
        component.Generate(Text, 7);
        while (failures == 0) component.Tell("Update");
        for (int frame = 0; frame < 3; frame++)
        {
            int before = failures;
            component.Tell("Update");
            Check(failures == before + 1, "one request, one failure in a frame: " + (failures - before));
        }
        component.Generate(Text, 7);
        component.Tell("OnDisable");
        Check(!component.IsBusy, "nothing is left of a component that is off");

        // While it closes: it is switched off by who is told of the failure, and asked again.
        component = new SumiGenerator { modelPath = "no_such_model", backend = Backend.Cpu, budgetMilliseconds = 1000 };
        failures = 0;
        component.Failed += told =>
        {
            failures++;
            component.enabled = false;
            component.Generate(Text, 7);
            component.enabled = true;
            component.Generate(Text, 8);
        };
        component.Tell("OnEnable");
        component.Generate(Text, 7);
        for (int wanted = 1; wanted < 4; wanted++)
        {
            while (failures < wanted) component.Tell("Update");
            Check(failures == wanted && component.IsBusy, "one failure, and the next request waits");
        }
        component.Tell("OnDisable");
    }

    private static SumiGenerator Generator(string path)
    {
        return new SumiGenerator { modelPath = path, backend = Backend.Cpu, budgetMilliseconds = 0.001f, width = 64, height = 64, steps = 4 };
    }

    private static void ComponentsAreSwitchedOffByTheirListeners(string path)
    {
        foreach (string told in new[] { "Previewed", "Progressed", "Done", "Failed" })
        {
            SumiGenerator component = Generator(path);
            int calls = 0, dones = 0;
            Action off = () => { if (calls++ == 0) component.enabled = false; };
            if (told == "Previewed") component.Previewed += texture => off();
            if (told == "Progressed") component.Progressed += (share, left) => off();
            if (told == "Done") component.Done += texture => off();
            if (told == "Failed") component.Failed += sentence => off();
            component.Done += texture => dones++;
            component.Tell("OnEnable");
            if (told == "Failed") component.width = 100; // is refused
            component.Generate(Text, 7);
            component.Generate(Text, 8);
            while (component.enabled) component.Tell("Update");
            Check(calls == 1 && !component.IsBusy && component.Model == null && dones == (told == "Done" ? 1 : 0), "switched off by " + told + ": " + calls + " calls, " + dones + " pictures");
            component.width = 64;
            component.enabled = true;
            component.Generate(Text, 7);
            while (component.IsBusy) component.Tell("Update");
            Check(component.Texture != null && component.Trouble == "" && dones == (told == "Done" ? 2 : 1), "and on again");
            component.enabled = false;
        }
    }

    private static void PicturesAreAwaited(string path)
    {
        SumiGenerator component = Generator(path);
        int failures = 0;
        component.Failed += told => failures++;
        component.Tell("OnEnable");
        Action run = () => { while (component.IsBusy) component.Tell("Update"); };
        Task<Texture2D> first = component.GenerateAsync(Text, 7), second = component.GenerateAsync(Text, 8);
        run();
        Check(first.Result == second.Result && second.Result == component.Texture, "two pictures");
        component.width = 100;
        first = component.GenerateAsync(Text, 7);
        run();
        Check(first.IsFaulted && first.Exception.InnerException is SumiException && first.Exception.InnerException.Message.Contains("100"), "a failure is thrown");
        component.width = 64;
        first = component.GenerateAsync("a\0b", 7);
        run();
        Check(first.IsFaulted && first.Exception.InnerException.Message.Contains("zero"), "so is a text with a zero in it");
        first = component.GenerateAsync(Text, 7);
        second = component.GenerateAsync(Text, 8);
        for (int frame = 0; frame < 3; frame++) component.Tell("Update");
        component.Cancel();
        run();
        Check(first.IsCanceled && second.IsCanceled && failures == 0, "cancelled, and Failed is for the others");
        first = component.GenerateAsync(Text, 7);
        second = component.GenerateAsync(Text, 8);
        for (int frame = 0; frame < 3; frame++) component.Tell("Update");
        component.Tell("OnDisable");
        Check(first.IsCanceled && second.IsCanceled, "switched off");
        component.Tell("OnEnable");
        first = component.GenerateAsync(Text, 7);
        component.Tell("OnDisable"); // while the engine is created
        Check(first.IsCanceled, "switched off at once");
    }

    private static void ComponentsTellWhatIsWrong(string path)
    {
        SumiGenerator component = Generator(path);
        component.Tell("OnEnable");
        component.Generate(Text, 7);
        while (component.IsBusy) component.Tell("Update");
        Check(Debug.Lines.Count(line => line.Contains("cpu, CPU")) == 1, "the device is said once: " + string.Join("; ", Debug.Lines.ToArray()));
        component.Generate(string.Join(" ", Enumerable.Repeat("house", 5000).ToArray()), 7);
        while (component.IsBusy) component.Tell("Update");
        Check(Debug.Lines.Count(line => line.StartsWith("sumi: ") && line.Contains("cut off")) == 1, "warnings of the engine are in the console: " + string.Join("; ", Debug.Lines.ToArray()));
        component.Tell("OnDisable");

        // An editor of pictures without a generator.
        var editor = new SumiPictureEditor();
        editor.Tell("OnEnable");
        Check(!editor.enabled && Debug.Lines.Last().Contains("SumiGenerator"), "an editor without a generator says so: " + Debug.Lines.Last());
        editor.Edit("the hat");
        editor.Undo();
        editor.Undo();
        editor.Beside = new MonoBehaviour[] { component };
        editor.enabled = true;
        Check(editor.generator == component, "the generator beside it");
        UnityEngine.Object.Destroy(component);
        editor.Edit("the hat");
        editor.Tell("Update");
        Check(!editor.IsBusy, "without its generator it does nothing");
        editor.Undo();
        editor.enabled = false;
    }

    // ---- The editor's menu, and the demo ----------------------------------------------------------------------------------------------------------
    private static void TheMenuChecksAndCopies(string path)
    {
        string folder = Path.Combine(Path.GetTempPath(), "sumi-menu-" + Guid.NewGuid());
        Application.streamingAssetsPath = Path.Combine(folder, "StreamingAssets");
        Type menu = typeof(SumiDemo).Assembly.GetType("Sumi.SumiMenu");
        Action<string> choose = item => menu.GetMethod(item, BindingFlags.Static | BindingFlags.NonPublic).Invoke(null, null);
        try
        {
            host_begin(Vulkan);
            choose("CheckOnce");
            Check(Debug.Lines.Count == 0, "with its library nothing is said at the start: " + string.Join("; ", Debug.Lines.ToArray()));
            choose("Check");
            string told = UnityEditor.EditorUtility.Shown;
            Check(told.Contains("sumi " + Engine.Version) && told.Contains("Vulkan") && told.Contains("driver 13.0") && told.Contains("not in StreamingAssets"), "library, plug-in, device and model: " + told);
            UnityEditor.EditorUtility.Chosen = "";
            choose("CopyModel");
            Check(!Directory.Exists(Application.streamingAssetsPath), "nothing is chosen, nothing is copied");
            UnityEditor.EditorUtility.Chosen = Path.GetTempPath();
            choose("CopyModel");
            Check(UnityEditor.EditorUtility.Shown.Contains("is no model"), "a folder that is no model: " + UnityEditor.EditorUtility.Shown);
            UnityEditor.PackageManager.PackageInfo.Path = Path.Combine(Path.GetDirectoryName(path), "engines", "unity"); // the sources, with the model among the samples
            choose("CopyModel");
            string copied = Path.Combine(Application.streamingAssetsPath, "demo_model");
            Check(Directory.Exists(copied) && !Directory.Exists(Path.Combine(copied, "train")), "the model is copied, and not what trained it");
            choose("Check");
            Check(UnityEditor.EditorUtility.Shown.Contains("in StreamingAssets."), "and found: " + UnityEditor.EditorUtility.Shown);

            // The demo's scene: its first picture.
            SumiGenerator generator = Generator("demo_model");
            var demo = new SumiDemo { generator = generator };
            generator.Tell("OnEnable");
            demo.Tell("OnEnable");
            while (generator.Texture == null && generator.Trouble == "")
            {
                demo.Tell("OnGUI");
                generator.Tell("Update");
            }
            Check(generator.Trouble == "", "the demo draws with it: " + generator.Trouble);
            demo.Tell("OnDisable");
            generator.Tell("OnDisable");
        }
        finally { if (Directory.Exists(folder)) Directory.Delete(folder, true); }
    }

    // Another thread waits for a long job. Dispose cancels it first.
    private static void DisposeEndsTheWaitsOfOthers(string path)
    {
        foreach (Pump pump in new[] { Pump.Update, Pump.Thread })
        {
            var engine = new Engine(new EngineOptions { Backend = Backend.Cpu, Pump = pump });
            Model model = engine.LoadModel(path).Wait();
            ImageJob job = model.Generate(new ImageRequest(model) { Prompt = Text, Seed = 7, Width = 64, Height = 64, Steps = 1000 });
            Exception ended = null;
            Picture made = null;
            var waiter = new Thread(() => { try { made = job.Wait(); } catch (Exception trouble) { ended = trouble; } });
            waiter.Start();
            while (job.Poll().State == JobState.Queued) Thread.Sleep(0);
            for (int i = 0; i < 3; i++) engine.Update(0); // comes between
            Check(made == null, "the main thread's calls come between");
            engine.Dispose();
            waiter.Join();
            Check(made == null && (ended is ObjectDisposedException || ended is SumiException && ((SumiException)ended).Result == Result.Cancelled), "the wait ends with its engine: " + (made != null ? "a picture" : "" + ended));
        }
    }
}
