// samples/engines/unity without Unity: the bindings by Mono, the component on the stand-in of unity_engine.cs.
//
//     unity_bindings.exe MODEL PICTURE.rgba TABLE VERSION EDIT_MODEL KLEIN NET_MODEL NET
//                                                   runs; PICTURE.rgba is the raw pixels of "a red house on the grass", seed 7, by the command line; TABLE is tests/abi_*.txt of
//                                                   the header, VERSION its SUMI_VERSION_NUMBER; EDIT_MODEL the tiny edit model of tests/golden/qwen-image, put together;
//                                                   KLEIN a tiny FLUX.2 [klein]; NET_MODEL a tiny model and NET a control net for it, which takes control pictures and inpainting
//     unity_bindings.exe refuses LIBRARY SCRIPTS    runs with a library of version LIBRARY (0.3.0) and scripts of another one (0.2)
//     unity_bindings.exe missing                    runs without the native libraries
//     unity_bindings.exe session NAME MODEL         runs one session of unity_sessions.cs
//
// The last line is "unity_bindings: N passed, N failed, 0 skipped".
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Reflection;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Text.RegularExpressions;
using System.Threading;
using System.Threading.Tasks;
using Sumi;
using UnityEngine;

internal static class UnityBindings
{
    private const string Text = "a red house on the grass";
    private static int passed, failed;
    private static string modelPath;
    private static byte[] wanted;
    private static string[] table;
    private static uint headerVersion;

    internal static void Check(bool isTrue, string what)
    {
        if (isTrue) passed++;
        else
        {
            failed++;
            Console.WriteLine("FAILED: " + what);
        }
    }

    // The exception of the kind that is expected, or a failure.
    internal static string Throws<T>(Action what, string name) where T : Exception
    {
        try { what(); }
        catch (T expected) { return expected.Message; }
        catch (Exception other) { Console.WriteLine("  " + other); }
        Check(false, name + ": no " + typeof(T).Name);
        return "";
    }

    internal static Result Refused(Action what, out string sentence)
    {
        sentence = "";
        try { what(); }
        catch (SumiException refused)
        {
            sentence = refused.Message;
            return refused.Result;
        }
        return Result.Ok;
    }

    // ---- Layout -----------------------------------------------------------------------------------------------------------------------------
    private static readonly Dictionary<Type, string> prefixes = new Dictionary<Type, string>
    {
        { typeof(Result), "" }, { typeof(LogLevel), "LOG_" }, { typeof(Stage), "STAGE_" }, { typeof(Backend), "BACKEND_" }, { typeof(Pump), "PUMP_" },
        { typeof(JobState), "JOB_" }, { typeof(WeightFormat), "WEIGHTS_" }, { typeof(Preset), "PRESET_" }, { typeof(Solver), "SOLVER_" }, { typeof(GuidanceFormula), "GUIDANCE_" }, { typeof(GuidanceRule), "GUIDANCE_" }, { typeof(NoiseSource), "NOISE_" },
        { typeof(Posterior), "POSTERIOR_" }, { typeof(PromptFormat), "PROMPT_" }, { typeof(Format), "FORMAT_" }, { typeof(AttentionFormat), "ATTENTION_" }, { typeof(ExternalKind), "EXTERNAL_" }
    };

    private static Type[] Structs() { return typeof(Native).GetNestedTypes().Where(type => type.IsValueType).ToArray(); }
    private static bool IsReal(Type type) { return type == typeof(float) || type == typeof(double); }
    private static int SizeOf(Type type) { return Marshal.SizeOf(type.IsEnum ? Enum.GetUnderlyingType(type) : type); }

    private static IEnumerable<MethodInfo> Imports()
    {
        return typeof(Native).GetMethods(BindingFlags.Static | BindingFlags.Public).Where(method => (method.Attributes & MethodAttributes.PinvokeImpl) != 0);
    }

    // The table's lines of structs and members as the bindings have them: arrays element by element, the members of an inner struct as a struct of their own.
    private static List<string> TableOfStructs()
    {
        var lines = new List<string>();
        var inner = new Dictionary<string, int>(); // offsets
        foreach (string[] word in table.Select(line => line.Split(' ')))
        {
            if (word[0] == "struct") lines.Add(word[1] + " " + word[2]);
            if (word[0] != "member") continue;
            string name = word[1], count = Regex.Match(name, @"\[([0-9]+)\]$").Groups[1].Value;
            int offset = int.Parse(word[2]), size = int.Parse(word[3]), elements = count != "" ? int.Parse(count) : 1;
            name = Regex.Replace(name, @"\[.*", "");
            int dot = name.LastIndexOf('.');
            string outer = name.Substring(0, dot);
            if (inner.ContainsKey(outer))
            {
                offset -= inner[outer];
                name = outer.Replace(".", "__") + name.Substring(dot);
            }
            if (word.Length == 6 && word[5] == "struct")
            {
                inner[name] = offset;
                lines.Add(name.Replace(".", "__") + " " + size);
            }
            for (int i = 0; i < elements; i++)
                lines.Add(string.Format("{0}{1} {2} {3} {4}", name, count != "" ? "_" + i : "", offset + i * (size / elements), size / elements, word[4]));
        }
        return lines;
    }

    private static void LayoutIsThatOfC()
    {
        var ours = new List<string>();
        foreach (Type type in Structs())
        {
            ours.Add(type.Name + " " + Marshal.SizeOf(type));
            foreach (FieldInfo field in type.GetFields())
                ours.Add(string.Format("{0}.{1} {2} {3} {4}", type.Name, field.Name, Marshal.OffsetOf(type, field.Name), SizeOf(field.FieldType), IsReal(field.FieldType) ? "real" : "whole"));
        }
        List<string> theirs = TableOfStructs().Where(line => !line.StartsWith("sumi_profile_row")).ToList(); // experimental
        foreach (string line in ours.Except(theirs)) Check(false, "the layout is not C's: " + line);
        foreach (string line in theirs.Except(ours)) Check(false, "this is not bound: " + line);
        Check(ours.Count > 200, "every struct and member is compared: " + ours.Count);

        var values = table.Where(line => line.StartsWith("value ")).Select(line => line.Substring(line.IndexOf('.') + 1)).ToList();
        var enums = table.Where(line => line.StartsWith("value ")).ToDictionary(line => line.Substring(line.IndexOf('.') + 1), line => line.Substring(6, line.IndexOf('.') - 6));
        foreach (var each in prefixes)
        {
            var bound = new List<string>();
            foreach (string name in Enum.GetNames(each.Key))
                bound.Add("SUMI_" + each.Value + Regex.Replace(name, "(?<!^)([A-Z])", "_$1").ToUpperInvariant().Replace("DPMPP_2_M", "DPMPP_2M").Replace("EIGHT_BIT", "8BIT") + " " + (int)Enum.Parse(each.Key, name));
            foreach (string line in bound.Except(values)) Check(false, "the value is not C's: " + line);
            string whole = bound.Where(enums.ContainsKey).Select(line => enums[line]).FirstOrDefault();
            foreach (string line in values.Where(line => enums[line] == whole).Except(bound)) Check(false, "this is not bound: " + line);
            Check(whole != null, "the enum of " + each.Key.Name);
        }
        foreach (MethodInfo method in Imports())
            Check(table.Any(line => line.StartsWith("function ") && line.Contains(" " + method.Name + "(")), method.Name + " is a function of the header");
        Check(Native.HeaderVersion == headerVersion, "the bindings are for the header's version");
        // Blittable: what the marshaller would have to convert is refused by a pinned handle.
        foreach (Type type in Structs())
        {
            try { GCHandle.Alloc(Activator.CreateInstance(type), GCHandleType.Pinned).Free(); passed++; }
            catch (ArgumentException) { Check(false, type.Name + " is not blittable"); }
        }
        Check(Imports().All(method => !method.GetParameters().Any(each => each.ParameterType == typeof(string) || each.ParameterType == typeof(bool))), "no texts, no bools in imports");
    }

    // With a library of another version: an engine is refused before anything else is called, with both versions in the sentence.
    private static void OtherVersionsAreRefused(string library, string scripts)
    {
        string sentence;
        Check(Refused(() => new Engine(), out sentence) == Result.VersionMismatch, "an engine of another version is refused: " + sentence);
        Check(sentence.Contains("sumi " + library + ",") && sentence.Contains(" " + scripts + ":"), "both versions are told: " + sentence);
        string again;
        Check(Refused(() => new XmlPrompt().Write(), out again) == Result.VersionMismatch && again == sentence, "so is a prompt in XML: " + again);
        var component = new SumiGenerator { modelPath = "any", backend = Backend.Cpu };
        string told = "";
        component.Failed += failure => told = failure;
        component.Tell("OnEnable");
        component.Generate(Text, 7);
        while (component.IsBusy) component.Tell("Update");
        Check(component.Trouble == sentence && told == sentence, "the component tells it: " + told);
        component.Tell("OnDisable");
    }

    private static void AMissingLibraryIsTold()
    {
        string sentence;
        Check(Refused(() => new Engine(), out sentence) == Result.NotSupported && sentence.Contains("Runtime/Plugins"), "no library: " + sentence);
        Check(!SumiTexture.IsSupported && SumiTexture.Trouble.Contains("sumi_unity"), "no plug-in: " + SumiTexture.Trouble);
        var component = new SumiGenerator { modelPath = "any" };
        string told = "";
        component.Failed += failure => told = failure;
        component.Tell("OnEnable");
        component.Generate(Text, 7);
        while (component.IsBusy) component.Tell("Update");
        Check(component.Trouble == sentence && told == sentence, "the component tells it: " + told);
        component.Tell("OnDisable");
    }

    // ---- Pictures -----------------------------------------------------------------------------------------------------------------------------
    // Every core works unless a host asks for less.
    private static void EveryCoreWorks()
    {
        Check(new EngineOptions().ThreadCount == 0, "every core is the default");
        using (var engine = new Engine(new EngineOptions { Backend = Backend.Cpu, ThreadCount = 2 }))
            Check(engine.Info.Device.Contains(", 2 threads"), "two threads: " + engine.Info.Device);
    }

    private static Engine MakeEngine(Action<LogLevel, string> log = null) { return new Engine(new EngineOptions { Backend = Backend.Cpu, Log = log }); }
    // The smallest budget is one slice of work in each call, however fast or busy the machine is: so no preview is missed, and nothing is over before a test has looked at it.
    private const uint OneSlice = 1;
    private static ImageRequest Small(Model model) { return new ImageRequest(model) { Prompt = Text, Seed = 7, Width = 64, Height = 64, Steps = 4 }; }

    private static void PicturesAreTheCommandLines()
    {
        using (Engine engine = MakeEngine())
        using (ModelJob loading = engine.LoadModel(modelPath))
        using (Model model = loading.Wait())
        {
            ModelInfo info = model.Info;
            Check(info.Family == "z-image" && info.Variant == "turbo" && info.NativeSize == 256 && info.HasTextEncoder && info.SizeMultiple == 16 && info.WeightBytes > 1000000, "the model's facts");
            Check(engine.Info.Backend == "cpu" && engine.Info.Device.Length > 5 && engine.Info.HostBytes > 0 && engine.Info.JobCount == 0, "the engine's facts");
            Check(Engine.Version == string.Format("{0}.{1}.{2}", headerVersion / 1000000, headerVersion / 1000 % 1000, headerVersion % 1000), "the version");
            Check(MappedModels() > 0, "a model's maps are seen by these tests");

            var request = new ImageRequest(model) { Prompt = Text, Seed = 7, PreviewEvery = 1 };
            Check(model.ArenaBytes(request) > 100000, "the memory is told");
            var shown = new List<byte[]>();
            using (ImageJob job = model.Generate(request))
            {
                var preview = new byte[4 * job.PreviewWidth * job.PreviewHeight];
                uint seen = 0;
                float progress = 0;
                bool falls = false, skips = false;
                Check(!job.TryPreview(preview), "no preview before the first step");
                while (!job.Poll().IsFinal)
                {
                    engine.Update(OneSlice);
                    JobStatus status = job.Poll();
                    falls |= status.Progress < progress;
                    progress = status.Progress;
                    if (status.PreviewVersion == seen) continue;
                    skips |= status.PreviewVersion != seen + 1;
                    seen = status.PreviewVersion;
                    if (job.TryPreview(preview) && preview[3] == 255 && preview.Distinct().Count() > 8) shown.Add((byte[])preview.Clone());
                }
                Check(shown.Count == 8 && !skips && progress == 1 && !falls, "eight previews, progress to the end: " + shown.Count);
                Check(shown.Skip(1).Zip(shown, (one, before) => !one.SequenceEqual(before)).All(differs => differs), "each preview is another one");
                Picture picture = job.Fetch();
                Check(picture.Width == 256 && picture.Height == 256 && picture.Seed == 7 && picture.StepCount == 8 && picture.Pixels.SequenceEqual(wanted), "the picture is the command line's");
                Check(job.Poll().State == JobState.None, "the fetch ends the job");
                string sentence;
                Check(Refused(() => job.Fetch(), out sentence) == Result.StaleHandle && sentence.Length > 10, "a second fetch is refused: " + sentence);
            }

            // All of the work in one call: of eight previews the last one is there.
            using (ImageJob job = model.Generate(request))
            {
                var preview = new byte[4 * job.PreviewWidth * job.PreviewHeight];
                engine.Update(uint.MaxValue);
                JobStatus status = job.Poll();
                Check(status.IsFinal && status.Progress == 1 && status.PreviewVersion == 8, "one call without a limit ends the picture");
                Check(job.TryPreview(preview) && preview.SequenceEqual(shown.Last()), "the newest preview is the one that is read");
            }

            // Encoded, saved and loaded, fetched bottom up into native memory.
            byte[] saved;
            using (PromptJob encoding = model.Encode(Text))
            using (Prompt prompt = encoding.Wait())
            {
                Check(prompt.TokenCount > 4, "a prompt has tokens");
                saved = prompt.Save();
                byte[] half = prompt.Save(PromptFormat.Bf16), quarter = prompt.Save(PromptFormat.Int8);
                Check(prompt.Save(PromptFormat.F32).SequenceEqual(saved) && half.Length < saved.Length && quarter.Length < half.Length && quarter.Length > 0, "smaller formats take fewer bytes");
                using (Prompt near = model.LoadPrompt(quarter)) Check(near.TokenCount == prompt.TokenCount, "a prompt in 8 bits is read");
            }
            using (Prompt prompt = model.LoadPrompt(saved))
            using (ImageJob job = model.Generate(new ImageRequest(model) { Prompt = null, EncodedPrompt = prompt, Seed = 7 }))
            {
                prompt.Dispose(); // the job has its copy
                IntPtr memory = Marshal.AllocHGlobal(wanted.Length);
                job.WaitFor(uint.MaxValue);
                job.Fetch(memory, true);
                var upside = new byte[wanted.Length];
                Marshal.Copy(memory, upside, 0, upside.Length);
                Marshal.FreeHGlobal(memory);
                Check(Flipped(upside, 256).SequenceEqual(wanted), "an encoded prompt gives the same picture, bottom up");
            }

            Picture plain, changed, again;
            using (ImageJob job = model.Generate(Small(model))) plain = job.Wait();
            using (LoraJob reading = model.LoadLora(modelPath + "/lora/blueprint.safetensors"))
            using (Lora lora = reading.Wait())
            {
                ImageRequest with = Small(model);
                with.Loras.Add(new LoraUse { Lora = lora, Scale = 1 });
                using (ImageJob job = model.Generate(with)) changed = job.Wait();
                with.Loras[0] = new LoraUse { Lora = lora, Scale = 0 };
                using (ImageJob job = model.Generate(with)) again = job.Wait();
            }
            Check(!changed.Pixels.SequenceEqual(plain.Pixels) && again.Pixels.SequenceEqual(plain.Pixels), "an adapter changes the picture, at scale 0 it does not");
            ImageRequest onwards = Small(model);
            onwards.StartImage = changed;
            onwards.Strength = 0.5f;
            onwards.Mask = new Picture { Width = 64, Height = 64, Pixels = new byte[4 * 64 * 64] };
            using (ImageJob job = model.Generate(onwards)) Check(!job.Wait().Pixels.SequenceEqual(plain.Pixels), "a start image and a mask");
            onwards.Mask.Width = 65;
            Check(Throws<ArgumentException>(() => model.Generate(onwards), "a picture with too few pixels").Contains("Pixels"), "a picture with too few pixels is refused here");
        }
    }

    private static byte[] Flipped(byte[] rgba, int width)
    {
        int row = 4 * width, rows = rgba.Length / row;
        return Enumerable.Range(0, rows).SelectMany(y => new ArraySegment<byte>(rgba, (rows - 1 - y) * row, row)).ToArray();
    }

    // ---- Options of a request -------------------------------------------------------------------------------------------------------------------
    private static void RequestsHaveOptions(string path)
    {
        using (Engine engine = MakeEngine())
        using (ModelJob loading = engine.LoadModel(path))
        using (Model model = loading.Wait())
        {
            Func<ImageRequest> one = () => new ImageRequest(model) { Prompt = "a red house", Seed = 7, Width = 64, Height = 64, Steps = 20, PreviewEvery = 0 };
            Picture whole = Draw(model, one()), changed;
            Check(whole.StepCount == 20 && whole.EvaluationCount == 20 && whole.ReusedCount == 0, "20 evaluations, none of them reused");
            ImageRequest asked = one();
            asked.StepCache = 10;
            changed = Draw(model, asked);
            Check(changed.EvaluationCount == 20 && changed.ReusedCount == 13 && !changed.Pixels.SequenceEqual(whole.Pixels), "a step cache: " + changed.ReusedCount + " reused");
            asked = one();
            asked.StepCacheEvery = 4;
            Picture scheduled = Draw(model, asked);
            Check(scheduled.Pixels.SequenceEqual(changed.Pixels) && scheduled.PredictedDb > 0 && whole.PredictedDb == 0, "a fixed schedule of the same evaluations");
            asked = one();
            asked.StepCacheDb = 99;
            Check(Draw(model, asked).PredictedDb == 99, "a step cache that keeps everything");
            asked = one();
            asked.Shift = 1;
            changed = Draw(model, asked);
            asked = one();
            asked.Sigmas = Enumerable.Range(0, 21).Select(i => (float)(20 - i) / 20).ToArray();
            Check(!changed.Pixels.SequenceEqual(whole.Pixels) && Draw(model, asked).Pixels.SequenceEqual(changed.Pixels), "a shift of 1 is a schedule of equal steps");
            asked = one();
            asked.Guidance = 3;
            Picture guided = Draw(model, asked);
            asked.GuidanceEnd = 0.3f;
            changed = Draw(model, asked);
            Check(!changed.Pixels.SequenceEqual(guided.Pixels) && !changed.Pixels.SequenceEqual(whole.Pixels), "guidance of a part of the schedule");
            asked = one();
            asked.Guidance = 3;
            asked.GuidanceRule = GuidanceRule.NormLimit;
            asked.GuidanceNormLimit = 0.5f;
            Check(!Draw(model, asked).Pixels.SequenceEqual(guided.Pixels), "a limit of the norm");
        }
        var component = new SumiGenerator { modelPath = Path.GetFullPath(path), backend = Backend.Cpu, budgetMilliseconds = 1000, steps = 20, width = 64, height = 64, previews = false, stepCache = 10 };
        Texture2D made = null;
        component.Done += texture => made = texture;
        component.Failed += told => Check(false, "the component: " + told);
        component.Tell("OnEnable");
        component.Generate("a red house", 7);
        while (component.IsBusy) component.Tell("Update");
        byte[] cached = made.Shown;
        component.stepCache = 0;
        component.stepCacheDb = 99;
        component.Generate("a red house", 7);
        while (component.IsBusy) component.Tell("Update");
        Check(cached.Length == made.Shown.Length && !cached.SequenceEqual(made.Shown), "the component takes a step cache");
        component.Tell("OnDisable");
    }

    // ---- Edit models --------------------------------------------------------------------------------------------------------------------------
    private static Picture Shades(int width, int height, int shade)
    {
        var pixels = new byte[4 * width * height];
        for (int i = 0; i < pixels.Length; i++) pixels[i] = (byte)(i % 4 == 3 ? 255 : shade + i / 4 % width);
        return new Picture { Width = width, Height = height, Pixels = pixels };
    }

    private static Picture Draw(Model model, ImageRequest request) { using (ImageJob job = model.Generate(request)) return job.Wait(); }

    private static void EditModelsTakeReferences(string path, string klein)
    {
        string sentence;
        using (Engine engine = MakeEngine())
        using (ModelJob loading = engine.LoadModel(path, variant: "edit-2511"))
        using (Model model = loading.Wait())
        {
            ModelInfo info = model.Info;
            Check(info.Variant == "edit-2511" && info.TakesReferences && info.MinReferences == 0 && info.MaxReferences == 3, "what an edit model takes");
            Check(info.Guidance == 4 && info.GuidanceOff == 1 && info.NegativeText == " " && info.GuidanceFormula == GuidanceFormula.FromNegative && info.GuidanceRule == GuidanceRule.NormRescale, "its guidance");
            var fast = new ImageRequest(model, Preset.Fast);
            Check(fast.Steps == 4 && fast.Guidance == info.GuidanceOff && fast.Width == 0 && fast.Height == 0, "the preset Fast, of the references' size");
            int width, height;
            model.SizeOf(fast, out width, out height);
            Check(info.NativeSize == 64 && width == 64 && height == 64, "without references the size is the model's native one: " + width + "x" + height);
            Picture wide = Shades(64, 32, 0), high = Shades(32, 64, 90);
            fast.References.Add(wide);
            fast.References.Add(high);
            model.SizeOf(fast, out width, out height);
            Check(width > 0 && height > width, "the size is the last one's: " + width + "x" + height);

            Func<ImageRequest> one = () => new ImageRequest(model) { Prompt = "the hat", Seed = 7, Width = 64, Height = 64, Steps = 1, References = { wide } };
            Picture first = Draw(model, one()), own, ruled;
            ImageRequest asked = one();
            asked.Negative = info.NegativeText;
            own = Draw(model, asked);
            Check(first.Width == 64 && first.Pixels.SequenceEqual(own.Pixels), "without a negative prompt it is the model's own");
            asked.GuidanceRule = GuidanceRule.Plain;
            ruled = Draw(model, asked);
            Check(!ruled.Pixels.SequenceEqual(own.Pixels), "a guidance rule");
            asked = one();
            asked.References[0] = high;
            Check(!Draw(model, asked).Pixels.SequenceEqual(own.Pixels), "another reference, another picture");
            Check(!info.IgnoresGuidance, "it takes guidance");
            using (Prompt prompt = model.Encode("the hat", wide).Wait())
            using (Prompt negative = model.Encode(" ", wide).Wait())
            {
                Check(prompt.ReferenceCount == 1, "a prompt keeps its references");
                var encoded = new ImageRequest(model) { EncodedPrompt = prompt, EncodedNegative = negative, Seed = 7, Width = 64, Height = 64, Steps = 1 };
                Check(Draw(model, encoded).Pixels.SequenceEqual(own.Pixels), "encoded prompts with their references give the same picture");
            }
            asked.References.AddRange(new[] { wide, wide, wide });
            Check(Refused(() => model.Generate(asked), out sentence) == Result.InvalidArgument && sentence.Contains("3"), "too many references: " + sentence);
            asked.References[1] = null;
            Check(Throws<ArgumentException>(() => model.Generate(asked), "no picture").Contains("Pixels"), "a reference that is none is refused here");
            using (ModelJob also = engine.LoadModel(klein))
            using (Model draws = also.Wait())
            {
                Check(draws.Info.MaxReferences == 10 && draws.Info.IgnoresGuidance && !draws.Info.UsesGuidance, "a model that takes ten, and no guidance");
                Func<Picture[], byte[]> of = pictures =>
                {
                    var several = new ImageRequest(draws) { Prompt = "the hat", Seed = 7, Width = 64, Height = 64, Steps = 1 };
                    several.References.AddRange(pictures);
                    return Draw(draws, several).Pixels;
                };
                wide = Shades(96, 64, 0); // it takes none below 64 pixels
                high = Shades(64, 96, 90);
                byte[] ordered = of(new[] { wide, high });
                Check(!ordered.SequenceEqual(of(new[] { high, wide })) && !ordered.SequenceEqual(of(new[] { wide })), "all of them count, and their order");
                Check(Refused(() => of(Enumerable.Repeat(wide, 11).ToArray()), out sentence) == Result.InvalidArgument && sentence.Contains("10"), "eleven are too many: " + sentence);
            }
            Check(Refused(() => { using (ModelJob wrong = engine.LoadModel(path, variant: "edit-1")) wrong.Wait(); }, out sentence) == Result.InvalidArgument && sentence.Contains("edit-2511"), "an unknown variant: " + sentence);
        }
        var component = new SumiGenerator { modelPath = path, backend = Backend.Cpu, variant = "edit-2511", preset = Preset.Fast, budgetMilliseconds = 1000, steps = 1, width = 64, height = 64 };
        Texture2D made = null;
        component.Done += texture => made = texture;
        component.Failed += told => Check(false, "the component: " + told);
        component.Tell("OnEnable");
        component.Generate("the hat", 7, Shades(64, 32, 0));
        while (component.IsBusy) component.Tell("Update");
        Check(made != null && made.width == 64 && component.Model.Info.Variant == "edit-2511", "the component takes references");
        byte[] plain = made.Shown;
        component.Generate("the hat", 7, Shades(64, 32, 0), Shades(32, 64, 90));
        while (component.IsBusy) component.Tell("Update");
        Check(!made.Shown.SequenceEqual(plain), "several of them, too");
        component.guidance = 2;
        component.Generate("the hat", 7, Shades(64, 32, 0));
        while (component.IsBusy) component.Tell("Update");
        Check(!made.Shown.SequenceEqual(plain), "the component takes a guidance number");
        component.Tell("OnDisable");
    }

    private static void ImagesFollowControlPictures(string path, string net)
    {
        using (Engine engine = MakeEngine())
        using (ModelJob loading = engine.LoadModel(path))
        using (Model model = loading.Wait())
        using (ControlJob reading = model.LoadControl(net))
        using (Control control = reading.Wait())
        {
            ControlInfo info = control.Info;
            Check(info.Kind == "z-fun-2.1" && info.TakesPicture && info.TakesInpainting && info.Strength > 0.5f && info.Strength <= 1 && info.WeightBytes > 0, "what a control net is");
            ImageRequest request = Small(model);
            request.Width = request.Height = 32;
            request.Steps = 2;
            Picture plain = Draw(model, request);
            var use = new ControlUse(control, Shades(64, 32, 0));
            request.Controls.Add(use);
            Picture usual = Draw(model, request);
            use.Strength = info.Strength;
            Picture same = Draw(model, request);
            use.Strength = 0;
            Picture none = Draw(model, request);
            Check(!usual.Pixels.SequenceEqual(plain.Pixels) && same.Pixels.SequenceEqual(usual.Pixels) && none.Pixels.SequenceEqual(plain.Pixels), "a control net changes the picture, with strength 0 it does not");
            use.Strength = null;
            use.End = 0.5f;
            Check(!Draw(model, request).Pixels.SequenceEqual(usual.Pixels), "the end of the range");
            use.Start = 0.5f;
            use.End = 1;
            Check(!Draw(model, request).Pixels.SequenceEqual(usual.Pixels), "the start of the range");
            use.Start = 0;
            use.Inpaint = Shades(32, 32, 90);
            string sentence;
            Check(Refused(() => Draw(model, request), out sentence) == Result.InvalidArgument && sentence.Contains("mask"), "an image without a mask: " + sentence);
            use.Mask = Shades(32, 32, 120);
            Check(!Draw(model, request).Pixels.SequenceEqual(usual.Pixels), "an image and its mask");
            request.Controls.Add(new ControlUse(control, Shades(32, 64, 90)));
            Check(Draw(model, request).Width == 32, "two nets");
            Check(Refused(() => { using (ControlJob wrong = model.LoadControl("/no/such")) wrong.Wait(); }, out sentence) == Result.FileNotFound && sentence.Contains("/no/such"), "a net that is not there: " + sentence);
            control.Dispose();
            Throws<ObjectDisposedException>(() => model.Generate(request), "a net that is disposed");
        }
    }

    // 32 x 32: distances of 1 to 218 units, and the picture that a net of this kind sees of them between 1 and 256
    private static float Away(float right, float up) { return up < 0.5f ? 1 + 7 * (int)(32 * right) : 1 + 3 * (int)(32 * up); }

    private static Picture Greys()
    {
        var picture = new Picture { Width = 32, Height = 32, Pixels = new byte[4 * 32 * 32] };
        for (int i = 0; i < picture.Pixels.Length; i++) picture.Pixels[i] = i % 4 == 3 ? (byte)255 : (byte)(256 - Away((i / 4 % 32 + 0.5f) / 32, (31 - i / 128 + 0.5f) / 32));
        return picture;
    }

    private static void ImagesFollowDepth(string path, string net)
    {
        using (Engine engine = MakeEngine())
        using (ModelJob loading = engine.LoadModel(path))
        using (Model model = loading.Wait())
        using (ControlJob reading = model.LoadControl(net))
        using (Control control = reading.Wait())
        {
            ImageRequest request = Small(model);
            request.Width = request.Height = 32;
            request.Steps = 1;
            var use = new ControlUse(control, Greys());
            request.Controls.Add(use);
            byte[] wanted = Draw(model, request).Pixels;
            use.Picture = null;
            Func<Depth, byte[]> draw = depth =>
            {
                use.Depth = depth;
                return Draw(model, request).Pixels;
            };
            var camera = new Camera { nearClipPlane = 0.5f, farClipPlane = 1000 };
            var seen = new SumiDepth { Beside = new Behaviour[] { camera }, low = 1, high = 256 };
            Camera.Scene = Away;
            for (int how = 0; how < 4; how++)
            {
                SystemInfo.usesReversedZBuffer = how % 2 == 1;
                camera.orthographic = how >= 2;
                Task<Depth> capture = seen.CaptureAsync(32, 32);
                Check(!capture.IsCompleted, "a capture takes a frame");
                UnityEngine.Rendering.AsyncGPUReadback.Complete();
                Check(capture.Result.Kind == (how >= 2 ? DepthKind.Distance : how == 1 ? DepthKind.Reversed : DepthKind.Standard) && draw(capture.Result).SequenceEqual(wanted), "what a camera sees, " + how);
            }
            Check(RenderTexture.Lent == 0 && Camera.Drawn == 4 && !camera.enabled, "textures are given back, and the camera is left alone");
            var ushorts = new Depth { Values16 = new ushort[32 * 32], Width = 32, Height = 32, Kind = DepthKind.Distance, FarPlane = 65535, Low = 1, High = 256 };
            for (int i = 0; i < ushorts.Values16.Length; i++) ushorts.Values16[i] = (ushort)Away((i % 32 + 0.5f) / 32, (31 - i / 32 + 0.5f) / 32);
            use.Depth = ushorts;
            using (ImageJob job = model.Generate(request))
            {
                while (!job.Poll().IsFinal) engine.Update(1000000);
                Check(job.ControlPicture().Pixels.SequenceEqual(Greys().Pixels), "what the net saw");
                Check(job.Fetch().Pixels.SequenceEqual(wanted), "a depth buffer of 16 bits");
            }
            string sentence;
            ushorts.Kind = DepthKind.Standard;
            Check(Refused(() => draw(ushorts), out sentence) == Result.InvalidArgument && sentence.Contains("near_plane"), "depth without a near plane: " + sentence);
            ushorts.Width = 31;
            Check(Throws<ArgumentException>(() => draw(ushorts), "depth of another size").Contains("Width * Height"), "depth of another size is told");
            Throws<InvalidOperationException>(ushorts.MakeDistances, "distances of 16 bits");

            Task<Depth> late = seen.CaptureAsync(0, 0);
            seen.Tell("OnDisable");
            UnityEngine.Rendering.AsyncGPUReadback.Complete();
            Check(late.IsCanceled, "a capture ends with its component");
            SystemInfo.supportsAsyncGPUReadback = false;
            Check(Refused(() => seen.CaptureAsync(0, 0).GetAwaiter().GetResult(), out sentence) == Result.NotSupported && sentence.Contains("graphics API"), "a renderer that reads nothing back: " + sentence);
            SystemInfo.supportsAsyncGPUReadback = true;
            TheComponentFollowsDepth(path, net, wanted, request);
            seen.Tell("OnDestroy");
            Check(Refused(() => new SumiDepth().CaptureAsync(0, 0).GetAwaiter().GetResult(), out sentence) == Result.NotSupported && sentence.Contains("no camera"), "no camera: " + sentence);
        }
    }

    private static void TheComponentFollowsDepth(string path, string net, byte[] wanted, ImageRequest same)
    {
        var seen = new SumiDepth { view = new Camera { nearClipPlane = 0.5f, farClipPlane = 1000 }, low = 1, high = 256 };
        var component = new SumiGenerator
        {
            modelPath = Path.GetFullPath(path), backend = Backend.Cpu, budgetMilliseconds = 1000, steps = 1, width = 32, height = 32, guidance = same.Guidance, previews = false, controlPath = Path.GetFullPath(net),
            depth = seen
        };
        string told = null;
        component.Failed += sentence => told = sentence;
        component.Tell("OnEnable");
        Action<bool> draw = reads =>
        {
            component.Generate(same.Prompt, same.Seed);
            for (int drawn = Camera.Drawn; component.IsBusy && (reads || Camera.Drawn == drawn);)
            {
                component.Tell("Update");
                if (reads) UnityEngine.Rendering.AsyncGPUReadback.Complete();
            }
        };
        draw(true);
        Check(told == null && SumiGenerator.PictureOf(component.Texture).Pixels.SequenceEqual(wanted), "the component follows what a camera sees: " + told);
        component.depth = null;
        component.ControlPicture = Greys();
        draw(true);
        Check(told == null && SumiGenerator.PictureOf(component.Texture).Pixels.SequenceEqual(wanted), "or a picture: " + told);
        component.controlStrength = 0.1f;
        draw(true);
        Check(!SumiGenerator.PictureOf(component.Texture).Pixels.SequenceEqual(wanted), "less closely");
        component.controlStrength = 0;
        component.controlStart = 1;
        draw(true);
        Check(!SumiGenerator.PictureOf(component.Texture).Pixels.SequenceEqual(wanted), "in no step");
        component.depth = seen;
        UnityEngine.Rendering.AsyncGPUReadback.Fails = true;
        draw(true);
        Check(told != null && told.Contains("read back"), "depth that is lost is told: " + told);
        UnityEngine.Rendering.AsyncGPUReadback.Fails = false;
        draw(false);
        component.Cancel();
        Check(!component.IsBusy, "who waits for depth can be cancelled");
        draw(false);
        component.Tell("OnDisable");
        UnityEngine.Rendering.AsyncGPUReadback.Complete();
        Check(!component.IsBusy && RenderTexture.Lent == 0, "and switched off");
        component = new SumiGenerator { modelPath = Path.GetFullPath(path), backend = Backend.Cpu, budgetMilliseconds = 1000, controlPath = "/no/such" };
        component.Failed += sentence => told = sentence;
        component.Tell("OnEnable");
        draw(true);
        Check(told.Contains("/no/such"), "a net that is not there is told: " + told);
        component.Tell("OnDisable");
    }

    private static void TheComponentTakesAnAdapter()
    {
        string path = Path.GetFullPath(modelPath);
        Picture bound;
        using (Engine engine = MakeEngine())
        using (ModelJob loading = engine.LoadModel(path))
        using (Model model = loading.Wait())
        using (LoraJob reading = model.LoadLora(path + "/lora/blueprint.safetensors"))
        using (Lora lora = reading.Wait())
        {
            var request = new ImageRequest(model) { Prompt = Text, Seed = 7, Width = 64, Height = 64, Steps = 2 };
            request.Loras.Add(new LoraUse { Lora = lora, Scale = 0.5f });
            bound = Draw(model, request);
        }
        string told = null;
        Application.streamingAssetsPath = Path.GetDirectoryName(path);
        var component = new SumiGenerator { modelPath = path, backend = Backend.Cpu, budgetMilliseconds = 1000, steps = 2, width = 64, height = 64, adapterScale = 0.5f };
        component.Failed += sentence => told = sentence;
        component.adapterPath = Path.GetFileName(path) + "/lora/blueprint.safetensors"; // under StreamingAssets
        component.Tell("OnEnable");
        component.Generate(Text, 7); // waits for the adapter
        while (component.IsBusy) component.Tell("Update");
        Check(told == null && SumiGenerator.PictureOf(component.Texture).Pixels.SequenceEqual(bound.Pixels), "the component takes an adapter: " + told);
        component.Tell("OnDisable");
        component.adapterPath = "no/such.safetensors";
        component.Tell("OnEnable");
        component.Generate(Text, 7);
        while (component.IsBusy) component.Tell("Update");
        Check(told != null && told.Contains("no/such.safetensors") && component.Trouble == told, "an adapter that is not there is told: " + told);
        component.Tell("OnDisable");
    }

    // ---- Edits by words -----------------------------------------------------------------------------------------------------------------------
    private static void ThePictureEditorEditsByWords(string path)
    {
        string told = null;
        var renderer = new Renderer();
        var generator = new SumiGenerator { modelPath = path, backend = Backend.Cpu, variant = "edit-2511", preset = Preset.Fast, budgetMilliseconds = 5, steps = 1, width = 64, height = 32, previews = false, target = renderer };
        int failures = 0;
        generator.Failed += sentence => told = sentence;
        generator.Failed += sentence => failures++;
        generator.Tell("OnEnable");
        Picture start = Shades(64, 32, 0);
        var texture = new Texture2D(64, 32, TextureFormat.RGBA32, false);
        texture.LoadRawTextureData(Flipped(start.Pixels, 64));
        Check(SumiGenerator.PictureOf(texture).Pixels.SequenceEqual(start.Pixels) && SumiGenerator.PictureOf(texture).Height == 32, "a texture as a picture");
        texture.isReadable = false;
        Check(Throws<ArgumentException>(() => SumiGenerator.PictureOf(texture), "no pixels").Contains("Read/Write"), "a texture that cannot be read is told");
        texture.isReadable = true;

        var editor = new SumiPictureEditor { generator = generator, picture = texture, history = 2 };
        Action frame = () => { generator.Tell("Update"); editor.Tell("Update"); };
        Action run = () => { while (editor.IsBusy) frame(); };
        editor.Tell("OnEnable");
        Check(editor.Current.Pixels.SequenceEqual(start.Pixels) && renderer.material.mainTexture.Shown.SequenceEqual(Flipped(start.Pixels, 64)) && !editor.CanUndo, "the first picture is shown");
        editor.Edit("the hat");
        editor.Edit("a fox"); // of what the first makes
        run();
        Picture second = editor.Current;
        Check(told == null && renderer.material.mainTexture.Shown.SequenceEqual(Flipped(second.Pixels, 64)), "two edits: " + told);
        editor.Undo();
        Picture first = editor.Current;
        Check(renderer.material.mainTexture.Shown.SequenceEqual(Flipped(first.Pixels, 64)) && !first.Pixels.SequenceEqual(second.Pixels), "undone, and shown");

        var request = new ImageRequest(generator.Model, Preset.Fast) { Prompt = "the hat", Seed = 7, Width = 64, Height = 32, Steps = 1, References = { start } };
        Check(Draw(generator.Model, request).Pixels.SequenceEqual(first.Pixels), "the first edit is of the first picture");
        request.Prompt = "a fox";
        request.References[0] = first;
        Check(Draw(generator.Model, request).Pixels.SequenceEqual(second.Pixels), "the second edit is of the first one's picture");
        editor.Edit("the hat of picture 2", second);
        run();
        request.Prompt = "the hat of picture 2";
        request.References.Add(second);
        Check(Draw(generator.Model, request).Pixels.SequenceEqual(editor.Current.Pixels), "an edit with another picture beside it");
        editor.Undo();
        request.Prompt = "a fox";

        editor.Edit("x");
        editor.Edit("y");
        generator.budgetMilliseconds = 0;
        for (int i = 0; i < 3; i++) frame(); // the first begins
        editor.Undo();                       // cancels both
        generator.budgetMilliseconds = 5;
        run();
        Check(told != null && editor.Current == first, "cancelled: " + told);
        told = null;
        generator.width = 100; // is refused
        editor.Edit("x");
        editor.Edit("y");
        run();
        Check(failures == 2 && told.Contains("100") && editor.Current == first && editor.CanUndo, "an edit that fails takes those behind it along: " + told);
        generator.width = 64;
        foreach (string what in new[] { "a", "b", "c" }) editor.Edit(what);
        run();
        int undone = 0;
        for (; editor.CanUndo; undone++) editor.Undo();
        Check(undone == 2, "the history is as long as it was asked for: " + undone);
        editor.Edit("x");
        generator.budgetMilliseconds = 0;
        for (int i = 0; i < 3; i++) frame();
        generator.budgetMilliseconds = 5;
        editor.Tell("OnDisable"); // in the middle
        while (generator.IsBusy) frame();
        Check(!editor.IsBusy, "disabled");

        told = null;
        editor = new SumiPictureEditor { generator = generator };
        editor.Tell("OnEnable");
        editor.Edit("a fox");
        run();
        request.References.Clear();
        Check(told == null && Draw(generator.Model, request).Pixels.SequenceEqual(editor.Current.Pixels), "without a picture the words draw one: " + told);
        editor.Tell("OnDisable");
        generator.Tell("OnDisable");
    }

    // ---- Failures -----------------------------------------------------------------------------------------------------------------------------
    private static void FailuresAreSentences()
    {
        var log = new List<string>();
        string sentence;
        using (Engine engine = MakeEngine((level, text) => { lock (log) log.Add(text); if (text.Contains("no/such")) throw new Exception("the host's own fault"); }))
        {
            const string odd = "no/such/модель/模型 🏠";
            using (ModelJob job = engine.LoadModel(odd))
            {
                Check(Refused(() => job.Wait(), out sentence) == Result.FileNotFound && sentence.Contains(odd), "a wrong path is told, letter by letter: " + sentence);
                Check(log.Any(text => text.Contains(odd)), "the log has it too, and survives what its host throws");
            }
            Check(Throws<ArgumentException>(() => engine.LoadModel("a\0b"), "a zero character").Contains("zero"), "a zero character is refused");
            using (ModelJob loading = engine.LoadModel(modelPath))
            using (Model model = loading.Wait())
            {
                ImageRequest request = Small(model);
                request.Width = 100;
                Check(Refused(() => model.Generate(request), out sentence) == Result.InvalidArgument && sentence.Contains("100"), "a wrong size is told with its number: " + sentence);
                request = Small(model);
                request.Prompt = null;
                Check(Refused(() => model.Generate(request), out sentence) == Result.InvalidArgument, "no prompt is refused: " + sentence);
                request.Prompt = "half a pair: \ud83c";
                using (ImageJob job = model.Generate(request)) Check(job.Wait().Width == 64, "half a surrogate pair is a character like others");

                ImageJob running = model.Generate(new ImageRequest(model) { Prompt = Text, Seed = 7, Steps = 1000 }); // more work than fits into a wait
                Check(Refused(() => running.Fetch(), out sentence) == Result.WrongState && running.Poll().State == JobState.Queued, "a fetch before the end is refused and ends nothing: " + sentence);
                Check(!running.WaitFor(1) && !running.Poll().IsFinal, "waiting has a limit");
                engine.Update(OneSlice);
                Check(running.Poll().State == JobState.Running, "the wait ended nothing");
                running.Cancel();
                while (!running.Poll().IsFinal) engine.Update(OneSlice);
                Check(running.Poll().State == JobState.Cancelled && Refused(() => running.Fetch(), out sentence) == Result.Cancelled && sentence.Length > 5, "a cancelled job says so: " + sentence);
                using (ImageJob job = model.Generate(Small(model))) Check(job.Wait().Pixels.Length == 4 * 64 * 64, "the engine goes on");

                using (Engine other = MakeEngine())
                using (ModelJob loadingThere = other.LoadModel(modelPath))
                using (Model there = loadingThere.Wait())
                using (PromptJob encoding = there.Encode(Text))
                {
                    request.EncodedPrompt = encoding.Wait();
                    Check(Throws<ArgumentException>(() => model.Generate(request), "another engine's prompt").Contains("engine"), "another engine's prompt is refused");
                }

                // In the wrong order, twice, and used afterwards.
                ImageJob left = model.Generate(Small(model));
                engine.Dispose();
                engine.Dispose();
                Throws<ObjectDisposedException>(() => engine.Update(1000), "Update after Dispose");
                Throws<ObjectDisposedException>(() => left.Poll(), "Poll after Dispose");
                Throws<ObjectDisposedException>(() => left.Fetch(), "Fetch after Dispose");
                Throws<ObjectDisposedException>(() => left.Cancel(), "Cancel after Dispose");
                Throws<ObjectDisposedException>(() => model.Info.ToString(), "Info after Dispose");
                left.Dispose();
                model.Dispose();
                Check(true, "everything may be disposed in any order");
            }
        }
        using (var engine = new Engine(new EngineOptions { Backend = Backend.Cpu, Pump = Pump.Thread }))
        using (ModelJob loading = engine.LoadModel(modelPath))
        using (Model model = loading.Wait())
        using (ImageJob job = model.Generate(Small(model)))
            Check(job.Wait().Width == 64, "a thread of the library's");
        Check(Refused(() => new Engine(new EngineOptions { JobCapacity = -1 }), out sentence) == Result.InvalidArgument && sentence.Contains("job_capacity"), "an engine that cannot be: " + sentence);
    }

    // ---- Prompts in XML -----------------------------------------------------------------------------------------------------------------------
    private static void PromptsInXml()
    {
        Check(new XmlPrompt().Write() == "", "nothing gives the empty text");
        string text = new XmlPrompt
        {
            Characters = { new XmlCharacter { Gender = "1girl", Appearance = ">_<" }, new XmlCharacter { Name = "初音ミク" } },
            Tags = { Style = "anime_style" },
            Caption = "A girl & 初音ミク."
        }.Write();
        Check(text == "<character_1>\n<n>$character_1$</n>\n<gender>1girl</gender>\n<appearance>&gt;_&lt;</appearance>\n</character_1>\n\n" +
                      "<character_2>\n<n>初音ミク</n>\n</character_2>\n\n<general_tags>\n<style>anime_style</style>\n</general_tags>\n\n" +
                      "<caption>A girl &amp; 初音ミク.</caption>", "a prompt in XML: " + text);

        // Every member by its own name: a value goes where its tag is.
        var all = new XmlPrompt { Indent = 1, Characters = { new XmlCharacter() } };
        foreach (object part in new object[] { all.Characters[0], all.Tags })
            foreach (FieldInfo field in part.GetType().GetFields()) field.SetValue(part, "is " + Regex.Replace(field.Name, "(?<!^)([A-Z])", "_$1").ToLowerInvariant());
        string[] lines = all.Write().Split('\n');
        int elements = 0;
        foreach (string line in lines)
        {
            Match match = Regex.Match(line, "^ <([a-z_]+)>is ([a-z_]+)</\\1>$");
            if (!match.Success) continue;
            elements++;
            Check(match.Groups[2].Value == match.Groups[1].Value || (match.Groups[1].Value == "n" && match.Groups[2].Value == "name"), "each value has its tag: " + line);
        }
        Check(elements == 9 + 13 && lines.Length == elements + 2 + 1 + 2, "every member is written: " + elements);

        string sentence;
        Check(Refused(() => new XmlPrompt { Indent = 17 }.Write(), out sentence) == Result.InvalidArgument && sentence.Contains("indent 17"), "a wrong indent: " + sentence);
        var crowd = new XmlPrompt();
        for (int i = 0; i < 65; i++) crowd.Characters.Add(new XmlCharacter());
        Check(Refused(() => crowd.Write(), out sentence) == Result.InvalidArgument && sentence.Contains("character_count 65"), "too many characters: " + sentence);
        Throws<ArgumentException>(() => new XmlPrompt { Caption = "a\0b" }.Write(), "a zero inside");

        using (Engine engine = MakeEngine())
        using (ModelJob loading = engine.LoadModel(modelPath))
        using (Model model = loading.Wait())
        {
            ImageRequest request = Small(model);
            request.Prompt = text;
            using (ImageJob job = model.Generate(request)) Check(job.Wait().Width == 64, "a prompt in XML is a prompt");
        }
    }

    // ---- Lifetimes ----------------------------------------------------------------------------------------------------------------------------
    private static int OpenFiles() { return Directory.GetFiles("/proc/self/fd").Length; }
    private static int MappedModels() { return File.ReadAllLines("/proc/self/maps").Count(line => line.Contains(".safetensors")); }

    internal static void CollectAll()
    {
        for (int i = 0; i < 4; i++)
        {
            GC.Collect();
            GC.WaitForPendingFinalizers();
        }
    }

    private static void EnginesLeaveNothing()
    {
        CollectAll();
        int files = OpenFiles(), maps = MappedModels();
        for (int i = 0; i < 200; i++)
            using (Engine engine = MakeEngine())
            {
                ModelJob loading = engine.LoadModel(modelPath);
                if (i % 4 == 0) engine.Update(100); // cut short
                if (i % 4 != 1) continue;
                Model model = loading.Wait();
                ImageJob job = model.Generate(Small(model));
                engine.Update(500);
                if (i % 8 == 1) job.Dispose();
            }
        Check(OpenFiles() <= files && MappedModels() == maps, "200 engines leave no file and no map: " + files + " and " + maps + ", then " + OpenFiles() + " and " + MappedModels());
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void Drop(int round)
    {
        Engine engine = MakeEngine();
        ModelJob loading = engine.LoadModel(modelPath);
        if (round % 5 == 0) return; // while it loads
        Model model = loading.Wait();
        if (round % 5 == 1) return;
        ImageJob job = model.Generate(Small(model));
        engine.Update(300);
        if (round % 5 == 2) return;
        PromptJob encoding = model.Encode(Text);
        if (round % 5 == 3) engine.Dispose(); // and the others are left
        else
        {
            encoding.Dispose();
            engine.Update(300);
        }
        GC.KeepAlive(job);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static ImageJob OnlyTheJob(Engine engine)
    {
        Model model = engine.LoadModel(modelPath).Wait();
        ImageRequest request = Small(model);
        request.Loras.Add(new LoraUse { Lora = model.LoadLora(modelPath + "/lora/blueprint.safetensors").Wait(), Scale = 1 });
        return model.Generate(request);
    }

    private static void TheCollectorMayComeAtAnyTime()
    {
        CollectAll();
        int files = OpenFiles();
        int over = 0;
        var storm = new Thread(() => { while (Thread.VolatileRead(ref over) == 0) { GC.Collect(); Thread.Sleep(1); } });
        storm.Start();
        Exception thrown = null;
        ThreadStart work = () =>
        {
            for (int i = 0; i < 50; i++) Drop(i);
            using (Engine engine = MakeEngine())
            {
                ImageJob job = OnlyTheJob(engine);
                CollectAll();
                Check(job.Wait().Pixels.Length == 4 * 64 * 64, "a job keeps its model and adapters");
                job = null;
            }
            using (Engine engine = MakeEngine())
                for (int i = 0; i < 100; i++) // more than there are slots: what is dropped must be freed in time
                {
                    engine.LoadModel(modelPath);
                    if (i % 8 == 7) CollectAll();
                    engine.Update(0);
                }
        };
        var worker = new Thread(() => { try { work(); } catch (Exception trouble) { thrown = trouble; } }); // its stack ends with it, and what may lie there
        worker.Start();
        worker.Join();
        Thread.VolatileWrite(ref over, 1);
        storm.Join();
        CollectAll();
        Check(thrown == null, "nothing is thrown: " + thrown);
        Check(OpenFiles() <= files && MappedModels() == 0, "what was dropped is freed: " + (OpenFiles() - files) + " files, " + MappedModels() + " maps left");
    }

    private static void OtherThreadsMayLook()
    {
        using (Engine engine = MakeEngine())
        using (ModelJob loading = engine.LoadModel(modelPath))
        using (Model model = loading.Wait())
        {
            const int enough = 20;
            int over = 0, errors = 0;
            var looks = new int[3]; // of each thread, beside the work
            ImageJob job = model.Generate(new ImageRequest(model) { Prompt = Text, Seed = 7, Width = 128, Height = 128, PreviewEvery = 1 });
            var watchers = Enumerable.Range(0, looks.Length).Select(index => new Thread(() =>
            {
                var preview = new byte[4 * 16 * 16];
                try
                {
                    while (Thread.VolatileRead(ref over) == 0)
                    {
                        Volatile.Read(ref job).Poll();
                        Volatile.Read(ref job).TryPreview(preview);
                        if (index == 0 && engine.Info.Backend != "cpu") Interlocked.Increment(ref errors);
                        if (index == 1 && looks[index] % 8 == 7) model.Info.ToString(); // waits for its turn
                        Interlocked.Increment(ref looks[index]);
                        Thread.Sleep(1);
                    }
                }
                catch (Exception trouble)
                {
                    Console.WriteLine(trouble);
                    Interlocked.Increment(ref errors);
                    Interlocked.Add(ref looks[index], enough); // it will not look again
                }
            })).ToArray();
            foreach (Thread watcher in watchers) watcher.Start();
            for (int i = 0; i < 3 || looks.Any(each => each < enough); i++) // however late the threads begin
            {
                while (!job.Poll().IsFinal)
                {
                    engine.Update(2000);
                    Thread.Sleep(0); // a host leaves the engine between frames
                }
                job.Fetch();
                Volatile.Write(ref job, model.Generate(Small(model)));
            }
            Thread.VolatileWrite(ref over, 1);
            foreach (Thread watcher in watchers) watcher.Join();
            Check(errors == 0, "other threads look on: " + string.Join(", ", looks) + " looks, " + errors + " errors");
        }
    }

    // ---- The component ------------------------------------------------------------------------------------------------------------------------
    private static void TheComponentFillsTextures()
    {
        Application.streamingAssetsPath = Path.GetDirectoryName(Path.GetFullPath(modelPath));
        var renderer = new Renderer();
        var component = new SumiGenerator { modelPath = Path.GetFileName(modelPath), backend = Backend.Cpu, target = renderer };
        const float oneSlice = OneSlice / 1000f, all = 3600000; // milliseconds: an hour's work in a frame is all there is
        byte[] newest = null;
        int dones = 0, previews = 0, reports = 0;
        var failures = new List<string>();
        component.Done += texture => dones++;
        component.Previewed += texture => newest = texture.Shown;
        component.Previewed += texture => previews += texture.width == 32 && texture.Shown != null && renderer.material.mainTexture == texture ? 1 : 0;
        component.Progressed += (share, left) => reports++;
        component.Failed += failures.Add;
        Action run = () => { for (int frame = 0; frame < 1000000 && component.IsBusy; frame++) component.Tell("Update"); };

        component.budgetMilliseconds = oneSlice;
        component.Tell("OnEnable");
        component.Generate(Text, 7); // before the model is there
        run();
        Check(dones == 1 && previews == 8 && reports > 8 && failures.Count == 0 && component.Model != null, "one picture, eight previews");
        Check(component.Texture.width == 256 && Flipped(component.Texture.Shown, 256).SequenceEqual(wanted) && renderer.material.mainTexture == component.Texture, "the texture is the command line's picture");

        byte[] eighth = newest;
        component.budgetMilliseconds = all;
        component.Generate(Text, 7);
        component.Tell("Update"); // begins it
        int before = reports;
        component.Tell("Update"); // makes all of it
        Check(dones == 2 && previews == 9 && reports == before && !component.IsBusy, "one frame for the picture: one preview, and no report of progress");
        Check(newest.SequenceEqual(eighth), "the preview of a long frame is the newest one");
        component.budgetMilliseconds = 20;

        component.width = component.height = 64;
        component.steps = 3;
        component.previews = false;
        component.Generate(Text, 7);
        component.Generate(Text, 8);
        component.Done += texture => { if (dones == 3) component.Generate(Text, 9); }; // who is told may ask for more
        run();
        Check(dones == 5 && previews == 9 && component.Texture.width == 64 && UnityEngine.Object.Destroyed == 1, "a queue, other sizes, one texture reused");

        component.budgetMilliseconds = oneSlice;
        component.Generate(Text, 10);
        for (int frame = 0; frame < 2; frame++) component.Tell("Update");
        component.Cancel();
        run();
        Check(failures.Count == 1 && dones == 5, "cancelled: " + string.Join("; ", failures.ToArray()));
        component.width = 100;
        component.Generate(Text, 7);
        run();
        Check(failures.Count == 2 && failures[1].Contains("100"), "a wrong size is told");
        component.width = 64;

        component.Generate(Text, 7);
        component.Tell("Update");
        Model old = component.Model;
        component.Tell("OnDisable"); // as before a reload of scripts
        Throws<ObjectDisposedException>(() => old.Info.ToString(), "the engine ends with the component");
        component.Tell("OnEnable");
        component.Generate(Text, 7);
        run();
        Check(dones == 6 && failures.Count == 2, "off and on again");
        component.Tell("OnDisable");
        component.Tell("OnDestroy");

        component = new SumiGenerator { modelPath = "no_such_model", backend = Backend.Cpu };
        component.Tell("OnEnable");
        component.Failed += failures.Add;
        component.Generate(Text, 7);
        run();
        Check(failures.Count == 3 && failures[2].Contains("no_such_model") && component.Trouble == failures[2], "a model that is not there is told");
        component.Tell("OnDisable");
    }

    private static void Run(string name, Action test)
    {
        var watch = System.Diagnostics.Stopwatch.StartNew();
        try { test(); }
        catch (Exception trouble) { Check(false, name + " threw " + trouble); }
        Console.WriteLine("{0} {1:0.0} s", name, watch.Elapsed.TotalSeconds);
    }

    private static int Main(string[] arguments)
    {
        if (arguments.Length == 3 && arguments[0] == "refuses")
        {
            Run("versions", () => OtherVersionsAreRefused(arguments[1], arguments[2]));
            Console.WriteLine("unity_bindings: {0} passed, {1} failed, 0 skipped", passed, failed);
            return failed > 0 ? 1 : 0;
        }
        if (arguments.Length == 1 && arguments[0] == "missing")
        {
            Run("missing", AMissingLibraryIsTold);
            Console.WriteLine("unity_bindings: {0} passed, {1} failed, 0 skipped", passed, failed);
            return failed > 0 ? 1 : 0;
        }
        if (arguments.Length == 3 && arguments[0] == "session")
        {
            Run(arguments[1], () => UnitySessions.Play(arguments[1], arguments[2]));
            Console.WriteLine("unity_bindings: {0} passed, {1} failed, 0 skipped", passed, failed);
            return failed > 0 ? 1 : 0;
        }
        if (arguments.Length != 8)
        {
            Console.WriteLine("usage: unity_bindings.exe refuses LIBRARY SCRIPTS | missing | session NAME MODEL | MODEL PICTURE.rgba TABLE VERSION EDIT_MODEL KLEIN NET_MODEL NET");
            return 2;
        }
        modelPath = arguments[0];
        wanted = File.ReadAllBytes(arguments[1]);
        table = File.ReadAllLines(arguments[2]);
        headerVersion = uint.Parse(arguments[3]);
        Resources.Folder = "samples/engines/unity/Runtime/Resources";
        Run("layout", LayoutIsThatOfC);
        Run("pictures", PicturesAreTheCommandLines);
        Run("options", () => RequestsHaveOptions(modelPath));
        Run("edit models", () => EditModelsTakeReferences(arguments[4], arguments[5]));
        Run("edits by words", () => ThePictureEditorEditsByWords(arguments[4]));
        Run("failures", FailuresAreSentences);
        Run("prompts in XML", PromptsInXml);
        Run("engines", EnginesLeaveNothing);
        Run("threads", EveryCoreWorks);
        Run("collector", TheCollectorMayComeAtAnyTime);
        Run("threads", OtherThreadsMayLook);
        Run("component", TheComponentFillsTextures);
        Run("an adapter", TheComponentTakesAnAdapter);
        Run("control nets", () => ImagesFollowControlPictures(arguments[6], arguments[7]));
        Run("depth buffers", () => ImagesFollowDepth(arguments[6], arguments[7]));
        Console.WriteLine("unity_bindings: {0} passed, {1} failed, 0 skipped", passed, failed);
        return failed > 0 ? 1 : 0;
    }
}
