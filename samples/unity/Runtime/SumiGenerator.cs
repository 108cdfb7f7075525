// A component that makes pictures across frames. Generate() queues a prompt; Update() works for a few milliseconds; the picture arrives in Texture, on `target` if there is one, and by events.
// SumiPictureEditor.cs edits pictures with it.
using System;
using System.Collections.Generic;
using System.IO;
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
        [Tooltip("Saves time where there are 20 steps or more: steps that change little reuse most of an earlier one. 0: off; 0.05 to 0.12 are usual, larger numbers change the picture more.")]
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
        public string Trouble { get; private set; }    // why there is no model or adapter and will be none; "" otherwise
        public bool IsBusy { get { return wishes.Count > 0 || job != null; } }

        private struct Wish
        {
            public string Prompt;
            public ulong Seed;
            public Picture[] References;
        }

        private readonly Queue<Wish> wishes = new Queue<Wish>();
        private Engine engine;
        private ModelJob loading;
        private LoraJob loadingAdapter;
        private Lora adapter;
        private ImageJob job;
        private Texture2D preview;
        private byte[] pixels = new byte[0], previewPixels = new byte[0];
        private uint seenPreview;

        // Edit models take references: the pictures that the prompt speaks of. The size then follows from them, unless width and height are set.
        public void Generate(string prompt, ulong seed, params Picture[] references)
        {
            wishes.Enqueue(new Wish { Prompt = prompt, Seed = seed, References = references });
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
            wishes.Clear();
            if (job != null) job.Cancel();
        }

        private void OnEnable()
        {
            Trouble = "";
            try
            {
                engine = new Engine(new EngineOptions { Backend = backend });
                loading = engine.LoadModel(FullPath(modelPath), weights, variant: variant != "" ? variant : null, attention: attention);
            }
            catch (SumiException trouble) { Trouble = trouble.Message; }
            catch (DllNotFoundException trouble) { Trouble = "the native library is not in the package's Runtime/Plugins folder: " + trouble.Message; }
        }

        private static string FullPath(string path)
        {
            return Path.IsPathRooted(path) ? path : Path.Combine(Application.streamingAssetsPath, path);
        }

        // Also before the editor reloads scripts: nothing of the library is left running.
        private void OnDisable()
        {
            if (engine != null) engine.Dispose(); // takes model and jobs with it
            engine = null;
            loading = null;
            loadingAdapter = null;
            adapter = null;
            job = null;
            Model = null;
            wishes.Clear();
        }

        private void OnDestroy()
        {
            if (Texture != null) Destroy(Texture);
            if (preview != null) Destroy(preview);
        }

        private void Update()
        {
            if (engine != null) engine.Update((uint)(Mathf.Max(0, budgetMilliseconds) * 1000));
            if (loading != null) FinishLoading();
            if (loadingAdapter != null) FinishAdapter();
            if (job != null) LookAtJob();
            while (job == null && wishes.Count > 0 && (Trouble != "" || (Model != null && loadingAdapter == null))) Begin(wishes.Dequeue());
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

        private void Begin(Wish wish)
        {
            if (Trouble != "")
            {
                Fail(Trouble);
                return;
            }
            try
            {
                var request = new ImageRequest(Model, preset) { Prompt = wish.Prompt, Seed = wish.Seed, PreviewEvery = previews ? 1 : 0, StepCache = stepCache };
                request.References.AddRange(wish.References);
                if (width > 0) request.Width = width;
                if (height > 0) request.Height = height;
                if (steps > 0) request.Steps = steps;
                if (guidance >= 0) request.Guidance = guidance;
                if (adapter != null) request.Loras.Add(new LoraUse { Lora = adapter, Scale = adapterScale });
                job = Model.Generate(request);
                seenPreview = 0;
            }
            catch (SumiException trouble) { Fail(trouble.Message); }
        }

        private void LookAtJob()
        {
            JobStatus status = job.Poll();
            if (status.PreviewVersion != seenPreview)
            {
                seenPreview = status.PreviewVersion;
                ShowPreview();
            }
            if (!status.IsFinal)
            {
                if (Progressed != null) Progressed(status.Progress, status.SecondsLeft);
                return;
            }
            ImageJob ended = job;
            job = null; // before anybody is told, who may ask for more
            try
            {
                Grow(ref pixels, ended.Width * ended.Height * 4);
                ended.Fetch(pixels, true);
            }
            catch (SumiException trouble)
            {
                Fail(trouble.Message);
                return;
            }
            Texture = Fill(Texture, pixels, ended.Width, ended.Height);
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

        private void Fail(string sentence)
        {
            if (Failed != null) Failed(sentence);
            else Debug.LogWarning("sumi: " + sentence, this);
        }
    }
}
