// A component that makes pictures across frames. Generate() queues a prompt; Update() works for a few milliseconds; the picture arrives in Texture, on `target` if there is one, and by events.
// SumiPictureEditor.cs edits pictures with it.
//
//     generator.Generate("a red house on the grass", 7);                           // and its events
//     Texture2D picture = await generator.GenerateAsync("a red house on the grass", 7);
//
// The engine is created on another thread, which takes up to some seconds with a GPU; requests wait for it. Who is told of an event may do anything: ask for more, switch the component off.
using System;
using System.Collections.Generic;
using System.IO;
using System.Threading;
using System.Threading.Tasks;
using UnityEngine;

namespace Sumi
{
    public sealed class SumiGenerator : MonoBehaviour
    {
        [Tooltip("A checkpoint: a folder under StreamingAssets, or an absolute path.")]
        public string modelPath = "demo_model";
        [Tooltip("Which model of its family it is, as 2512; empty: by the files.")]
        public string variant = "";
        public Backend backend = Backend.Auto;
        [Tooltip("Size, steps and guidance. Fast: for a model that was distilled to few steps.")]
        public Preset preset = Preset.Model;
        [Tooltip("Work per frame. 0 is a pause.")]
        public float budgetMilliseconds = 3;
        [Tooltip("Show a preview after every denoising step.")]
        public bool previews = true;
        [Tooltip("Pixels along the sides; 0: the model's own.")]
        public int width, height;
        [Tooltip("Denoising steps; 0: the model's own.")]
        public int steps;
        [Tooltip("The guidance number; negative: the model's own. Some small models have a number on their card.")]
        public float guidance = -1;
        [Tooltip("An adapter (LoRA, LoKr): a file under StreamingAssets, or an absolute path; empty: none.")]
        public string adapterPath = "";
        [Tooltip("How much of the adapter; 1: as trained.")]
        public float adapterScale = 1;
        [Tooltip("A control net, which makes pictures follow `depth` or ControlPicture: a file or folder under StreamingAssets, or an absolute path; empty: none.")]
        public string controlPath = "";
        [Tooltip("How closely; 0: the net's usual number. Useful is 0.6 to 1.")]
        public float controlStrength;
        [Tooltip("The part of the steps in which the net is on: 0 .. 1. An earlier end leaves details to the prompt.")]
        public float controlStart, controlEnd = 1;
        [Tooltip("Pictures follow what its camera sees when they begin. Empty: they follow ControlPicture, or nothing.")]
        public SumiDepth depth;
        [Tooltip("Saves time where there are 20 steps or more: steps reuse most of an earlier one as long as the picture is predicted to keep so many dB. 0: off; 45 can hardly be seen, 40 changes details, 35 also small things.")]
        public float stepCacheDb;
        [Tooltip("Instead: steps that change less than this reuse most of an earlier one. 0: off; 0.05 to 0.12 are usual, larger numbers change the picture more.")]
        public float stepCache;
        [Tooltip("The form of the transformer's weights on the GPU. 8 bits: less memory, most of the quality.")]
        public WeightFormat weights = WeightFormat.Auto;
        [Tooltip("The form of the transformer's attention on the GPU. 8 bits: faster, most of the quality.")]
        public AttentionFormat attention = AttentionFormat.Auto;
        [Tooltip("Its material shows previews and pictures. May be empty.")]
        public Renderer target;

        public event Action<Texture2D> Previewed, Done; // textures of this component's: the next picture overwrites them
        public event Action<float, float> Progressed;   // 0..1; seconds left, negative: not known yet
        public event Action<string> Failed;             // a sentence that says what to do

        public Texture2D Texture { get; private set; } // the last picture, whole
        public Model Model { get; private set; }       // null until it is loaded
        public string Trouble { get; private set; }    // why there is no model, adapter or net and will be none; "" otherwise
        public Picture ControlPicture { get; set; }    // of the net, where there is no `depth`: white edges on black, or what else it was trained with
        public bool IsBusy { get { return wishes.Count > 0 || job != null || capturing != null; } }

        private struct Wish
        {
            public string Prompt;
            public ulong Seed;
            public Picture[] References;
            public TaskCompletionSource<Texture2D> Task; // null: events tell
        }

        private readonly Queue<Wish> wishes = new Queue<Wish>();
        private Wish current; // of `job`, or of `capturing`
        private bool isClosing;
        private int session; // each time that the component is switched on or off: what began in another one is over
        private Task<Engine> opening;
        private CancellationTokenSource unwanted; // of `opening`
        private readonly List<string> warnings = new List<string>(); // of the engine, from any thread
        private Engine engine;
        private ModelJob loading;
        private LoraJob loadingAdapter;
        private Lora adapter;
        private ControlJob loadingNet;
        private Control net;
        private Task<Depth> capturing;
        private ImageRequest prepared; // waits for `capturing`
        private ImageJob job;
        private Texture2D preview;
        private byte[] pixels = new byte[0], previewPixels = new byte[0];
        private uint seenPreview;

        // Edit models take references: the pictures that the prompt speaks of. The size then follows from them, unless width and height are set.
        public void Generate(string prompt, ulong seed, params Picture[] references)
        {
            Ask(new Wish { Prompt = prompt, Seed = seed, References = references });
        }

        // The same for `await`: gives Texture, or throws SumiException with the sentence that Failed would tell. Cancelled by Cancel, and when the component is switched off.
        public Task<Texture2D> GenerateAsync(string prompt, ulong seed, params Picture[] references)
        {
            var task = new TaskCompletionSource<Texture2D>(TaskCreationOptions.RunContinuationsAsynchronously); // never inside Update
            Ask(new Wish { Prompt = prompt, Seed = seed, References = references, Task = task });
            return task.Task;
        }

        private void Ask(Wish wish)
        {
            if (!isClosing) wishes.Enqueue(wish);
            else if (wish.Task != null) wish.Task.TrySetCanceled();
        }

        // What a texture shows, for a reference. The texture must be readable: "Read/Write" in its import settings.
        public static Picture PictureOf(Texture2D texture)
        {
            if (!texture.isReadable) throw new ArgumentException("the texture cannot be read: switch on Read/Write in its import settings");
            int wide = texture.width, high = texture.height;
            Color32[] colours = texture.GetPixels32(); // begins with the last row
            var picture = new Picture { Width = wide, Height = high, Pixels = new byte[4 * wide * high] };
            for (int y = 0, at = 0; y < high; y++)
                for (int x = 0; x < wide; x++, at += 4)
                {
                    Color32 colour = colours[(high - 1 - y) * wide + x];
                    picture.Pixels[at] = colour.r;
                    picture.Pixels[at + 1] = colour.g;
                    picture.Pixels[at + 2] = colour.b;
                    picture.Pixels[at + 3] = colour.a;
                }
            return picture;
        }

        // Shows a picture as if it had been made here: in Texture and on `target`.
        public void Show(Picture picture)
        {
            var rgba = (byte[])picture.Pixels.Clone();
            Flip(rgba, 4 * picture.Width);
            Texture = Fill(Texture, rgba, picture.Width, picture.Height);
        }

        // Ends the picture that is being made, within a slice, and forgets those that wait.
        public void Cancel()
        {
            Forget();
            if (job != null) job.Cancel();
            if (capturing == null) return;
            capturing = null;
            Wish wish = current;
            current = new Wish();
            if (wish.Task != null) wish.Task.TrySetCanceled();
        }

        private void Forget()
        {
            for (int left = wishes.Count; left > 0 && wishes.Count > 0; left--)
            {
                Wish wish = wishes.Dequeue();
                if (wish.Task != null) wish.Task.TrySetCanceled();
            }
        }

        private void OnEnable()
        {
            session++;
            Trouble = "";
            unwanted = new CancellationTokenSource();
            opening = Engine.CreateAsync(new EngineOptions { Backend = backend, Log = Note }, unwanted.Token);
        }

        // Errors are told by Failed.
        private void Note(LogLevel level, string text)
        {
            if (level == LogLevel.Warning) lock (warnings) warnings.Add(text);
        }

        private void WriteWarnings()
        {
            string[] all;
            lock (warnings)
            {
                if (warnings.Count == 0) return;
                all = warnings.ToArray();
                warnings.Clear();
            }
            foreach (string each in all) Debug.LogWarning("sumi: " + each, this);
        }

        private static string FullPath(string path)
        {
            return Path.IsPathRooted(path) ? path : Path.Combine(Application.streamingAssetsPath, path);
        }

        // Also before the editor reloads scripts: nothing of the library is left running. Requests that are made meanwhile are dropped.
        private void OnDisable()
        {
            session++;
            isClosing = true;
            Forget();
            if (current.Task != null) current.Task.TrySetCanceled();
            if (opening != null)
            {
                unwanted.Cancel();
                if (opening.Status == TaskStatus.RanToCompletion) opening.Result.Dispose();
            }
            if (engine != null) engine.Dispose(); // takes model and jobs with it
            WriteWarnings();
            opening = null;
            engine = null;
            loading = null;
            loadingAdapter = null;
            adapter = null;
            loadingNet = null;
            net = null;
            capturing = null;
            prepared = null;
            job = null;
            current = new Wish();
            Model = null;
            isClosing = false;
        }

        private void OnDestroy()
        {
            if (Texture != null) Destroy(Texture);
            if (preview != null) Destroy(preview);
        }

        // Whoever is told of something may switch the component off: then nothing more is done in this frame.
        private void Update()
        {
            int mine = session, asked = wishes.Count; // a request that is made from here on begins in the next frame
            if (opening != null) FinishOpening();
            if (engine != null) engine.Update((uint)(Mathf.Max(0, budgetMilliseconds) * 1000));
            WriteWarnings();
            if (loading != null) FinishLoading();
            if (loadingAdapter != null) FinishAdapter();
            if (loadingNet != null) FinishNet();
            if (capturing != null) LookAtCapture();
            if (job != null) LookAtJob();
            bool isReady = Model != null && loadingAdapter == null && loadingNet == null;
            while (session == mine && job == null && capturing == null && asked-- > 0 && wishes.Count > 0 && (Trouble != "" || isReady)) Begin(wishes.Dequeue());
        }

        private void FinishOpening()
        {
            if (!opening.IsCompleted) return;
            Task<Engine> ended = opening;
            opening = null;
            try
            {
                engine = ended.GetAwaiter().GetResult();
                EngineInfo info = engine.Info;
                Debug.Log("sumi " + Engine.Version + ": " + info.Backend + ", " + info.Device, this);
                loading = engine.LoadModel(FullPath(modelPath), weights, variant: variant != "" ? variant : null, attention: attention);
            }
            catch (SumiException trouble) { Trouble = trouble.Message; }
        }

        private void FinishLoading()
        {
            if (!loading.Poll().IsFinal) return;
            ModelJob ended = loading;
            loading = null;
            try
            {
                Model = ended.Fetch();
                if (adapterPath != "") loadingAdapter = Model.LoadLora(FullPath(adapterPath));
                if (controlPath != "") loadingNet = Model.LoadControl(FullPath(controlPath));
            }
            catch (SumiException trouble) { Trouble = trouble.Message; }
        }

        private void FinishAdapter()
        {
            if (!loadingAdapter.Poll().IsFinal) return;
            LoraJob ended = loadingAdapter;
            loadingAdapter = null;
            try { adapter = ended.Fetch(); }
            catch (SumiException trouble) { Trouble = trouble.Message; }
        }

        private void FinishNet()
        {
            if (!loadingNet.Poll().IsFinal) return;
            ControlJob ended = loadingNet;
            loadingNet = null;
            try { net = ended.Fetch(); }
            catch (SumiException trouble) { Trouble = trouble.Message; }
        }

        private void Begin(Wish wish)
        {
            if (Trouble != "")
            {
                Fail(wish, Result.WrongState, Trouble);
                return;
            }
            try
            {
                var request = new ImageRequest(Model, preset) { Prompt = wish.Prompt, Seed = wish.Seed, PreviewEvery = previews ? 1 : 0, StepCache = stepCache, StepCacheDb = stepCacheDb };
                request.References.AddRange(wish.References);
                if (width > 0) request.Width = width;
                if (height > 0) request.Height = height;
                if (steps > 0) request.Steps = steps;
                if (guidance >= 0) request.Guidance = guidance;
                if (adapter != null) request.Loras.Add(new LoraUse { Lora = adapter, Scale = adapterScale });
                if (net != null && (depth != null || ControlPicture != null)) Follow(request);
                current = wish;
                if (net != null && depth != null)
                {
                    prepared = request;
                    capturing = depth.CaptureAsync(request.Width, request.Height);
                }
                else Submit(request);
            }
            catch (SumiException trouble) { FailCurrent(wish, trouble.Result, trouble.Message); }
            catch (ArgumentException trouble) { FailCurrent(wish, Result.InvalidArgument, trouble.Message); }
        }

        private void Follow(ImageRequest request)
        {
            var use = new ControlUse(net, depth == null ? ControlPicture : null) { Start = controlStart, End = controlEnd };
            if (controlStrength != 0) use.Strength = controlStrength;
            request.Controls.Add(use);
        }

        private void Submit(ImageRequest request)
        {
            job = Model.Generate(request);
            seenPreview = 0;
        }

        private void FailCurrent(Wish wish, Result result, string sentence)
        {
            current = new Wish(); // before anybody is told
            Fail(wish, result, sentence);
        }

        private void LookAtCapture()
        {
            if (!capturing.IsCompleted) return;
            Task<Depth> ended = capturing;
            Wish wish = current;
            capturing = null;
            try
            {
                prepared.Controls[0].Depth = ended.GetAwaiter().GetResult();
                Submit(prepared);
            }
            catch (SumiException trouble) { FailCurrent(wish, trouble.Result, trouble.Message); }
            catch (ArgumentException trouble) { FailCurrent(wish, Result.InvalidArgument, trouble.Message); }
            catch (OperationCanceledException) { FailCurrent(wish, Result.Cancelled, "the component SumiDepth was switched off while it read the depth for this picture"); }
        }

        private void LookAtJob()
        {
            int mine = session;
            JobStatus status = job.Poll();
            if (status.PreviewVersion != seenPreview)
            {
                seenPreview = status.PreviewVersion;
                ShowPreview();
                if (session != mine) return;
            }
            if (!status.IsFinal)
            {
                if (Progressed != null) Progressed(status.Progress, status.SecondsLeft);
                return;
            }
            ImageJob ended = job;
            Wish wish = current;
            job = null; // before anybody is told, who may ask for more
            current = new Wish();
            try
            {
                Grow(ref pixels, ended.Width * ended.Height * 4);
                ended.Fetch(pixels, true);
            }
            catch (SumiException trouble)
            {
                Fail(wish, trouble.Result, trouble.Message);
                return;
            }
            Texture = Fill(Texture, pixels, ended.Width, ended.Height);
            if (wish.Task != null) wish.Task.TrySetResult(Texture);
            if (Done != null) Done(Texture);
        }

        private void ShowPreview()
        {
            int row = job.PreviewWidth * 4;
            Grow(ref previewPixels, row * job.PreviewHeight);
            if (!job.TryPreview(previewPixels)) return;
            Flip(previewPixels, row);
            preview = Fill(preview, previewPixels, job.PreviewWidth, job.PreviewHeight);
            if (Previewed != null) Previewed(preview);
        }

        // Textures begin with the last row.
        private static void Flip(byte[] rgba, int row)
        {
            for (int top = 0, bottom = rgba.Length - row; top < bottom; top += row, bottom -= row)
                for (int i = 0; i < row; i++)
                {
                    byte swap = rgba[top + i];
                    rgba[top + i] = rgba[bottom + i];
                    rgba[bottom + i] = swap;
                }
        }

        private static void Grow(ref byte[] array, int bytes)
        {
            if (array.Length != bytes) array = new byte[bytes]; // a texture takes no more and no less
        }

        private Texture2D Fill(Texture2D texture, byte[] rgba, int wide, int high)
        {
            if (texture == null || texture.width != wide || texture.height != high)
            {
                if (texture != null) Destroy(texture);
                texture = new Texture2D(wide, high, TextureFormat.RGBA32, false) { wrapMode = TextureWrapMode.Clamp };
            }
            texture.LoadRawTextureData(rgba);
            texture.Apply(false);
            if (target != null) target.material.mainTexture = texture;
            return texture;
        }

        private void Fail(Wish wish, Result result, string sentence)
        {
            if (wish.Task != null && result == Result.Cancelled) wish.Task.TrySetCanceled();
            else if (wish.Task != null) wish.Task.TrySetException(new SumiException(result, sentence));
            else if (Failed != null) Failed(sentence);
            else Debug.LogWarning("sumi: " + sentence, this);
        }
    }
}
