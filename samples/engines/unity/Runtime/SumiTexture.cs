// A texture of Unity's that pictures and previews are written to on the GPU, by the rendering plug-in of Native~. Optional: without the plug-in, or with a renderer that it does not know,
// IsSupported is false (Trouble says why), and pictures are fetched into memory as always.
//
//     var shown = new SumiTexture(engine, texture, false);          // RGBA32 without mip levels, of the picture's size; with OpenGL made with linear: true
//     ... frames later, when shown.IsReady:
//     request.Texture = shown;
//     job = model.Generate(request);
//     ... frames later, when job.Poll().State == JobState.Done:
//     shown.Fetch(job);
//     ... frames later, when shown.IsReady: the picture is on its way into the texture, in the order of Unity's own commands (Direct3D 12: some frames later, after Update() of each)
//
// A texture is asked for one thing at a time. What was asked for is done by the thread that renders, in the next event; IsReady says that it was done, or throws why not.
// Previews go to a texture of their own, of job.PreviewWidth x PreviewHeight, made with takesPreviews.
//
// It, or its engine, may be disposed at any time, events under way or not. With OpenGL do not leave both to the collector: only the thread that renders can end the import, and a finaliser cannot ask it.
using System;
using System.Runtime.InteropServices;
using UnityEngine;
using UnityEngine.Experimental.Rendering;
using UnityEngine.Rendering;

namespace Sumi
{
    internal abstract partial class RenderingPlugin
    {
        static partial void Find(ref RenderingPlugin found)
        {
            if (SumiTexture.HasPlugin) found = new SumiTexture.ForEngines();
        }
    }

    public sealed partial class ImageRequest
    {
        // Where the picture goes instead of memory; null: memory. Of the request's size, and imported: SumiTexture.IsReady.
        public SumiTexture Texture;

        partial void FindTarget(EngineHandle engine, ref Native.sumi_target[] targets)
        {
            if (Texture != null) targets = new[] { Texture.TargetFor(engine) };
        }
    }

    public sealed class SumiTexture : IDisposable
    {
        private const string Plugin = "sumi_unity";
        private const CallingConvention Convention = CallingConvention.Cdecl;
        [DllImport(Plugin, CallingConvention = Convention)] private static extern void sumi_unity_lock();
        [DllImport(Plugin, CallingConvention = Convention)] private static extern int sumi_unity_try_lock();
        [DllImport(Plugin, CallingConvention = Convention)] private static extern void sumi_unity_unlock();
        [DllImport(Plugin, CallingConvention = Convention)] private static extern IntPtr sumi_unity_trouble();
        [DllImport(Plugin, CallingConvention = Convention)] private static extern int sumi_unity_luid([Out] byte[] luid);
        [DllImport(Plugin, CallingConvention = Convention)] private static extern ulong sumi_unity_create(EngineHandle engine, IntPtr native, int width, int height, int takes_previews);
        [DllImport(Plugin, CallingConvention = Convention)] private static extern int sumi_unity_wish(ulong id, int wish, ulong job);
        [DllImport(Plugin, CallingConvention = Convention)] private static extern int sumi_unity_result(ulong id);
        [DllImport(Plugin, CallingConvention = Convention)] private static extern IntPtr sumi_unity_message(ulong id);
        [DllImport(Plugin, CallingConvention = Convention)] private static extern int sumi_unity_target(ulong id, out Native.sumi_target target);
        [DllImport(Plugin, CallingConvention = Convention)] private static extern void sumi_unity_dispose(ulong id);
        [DllImport(Plugin, CallingConvention = Convention)] private static extern int sumi_unity_dispose_all(EngineHandle engine);
        [DllImport(Plugin, CallingConvention = Convention)] private static extern void sumi_unity_forget(IntPtr engine);
        [DllImport(Plugin, CallingConvention = Convention)] private static extern IntPtr sumi_unity_event();
        [DllImport(Plugin, CallingConvention = Convention)] private static extern IntPtr sumi_unity_log();

        private enum Wish { None = 0, Import = 1, Preview = 2, Fetch = 3 }

        // Whether the plug-in is there, and why not. It is looked for once.
        private static string missing;
        internal static readonly bool HasPlugin = FindPlugin();

        // For engines, which know nothing of Unity.
        internal sealed class ForEngines : RenderingPlugin
        {
            public override void Lock() { sumi_unity_lock(); }
            public override bool TryLock() { return sumi_unity_try_lock() != 0; }
            public override void Unlock() { sumi_unity_unlock(); }
            public override void Forget(IntPtr engine) { sumi_unity_forget(engine); }
            public override void DisposeTexture(ulong id) { sumi_unity_dispose(id); }
            public override void DisposeAll(EngineHandle engine) { DisposeTexturesOf(engine); }
            public override Native.sumi_log RouteLog(Native.sumi_log log, out IntPtr own)
            {
                own = Marshal.AllocHGlobal(Marshal.SizeOf(typeof(Native.sumi_log)));
                Marshal.StructureToPtr(log, own, false);
                return new Native.sumi_log { write = sumi_unity_log(), user_data = own };
            }

            public override byte[] Luid()
            {
                var luid = new byte[8];
                return sumi_unity_luid(luid) != 0 ? luid : null;
            }
        }

        private static bool FindPlugin()
        {
            try
            {
                sumi_unity_trouble();
                return true;
            }
            catch (DllNotFoundException) { missing = "the plug-in sumi_unity is not in the package's Runtime/Plugins folder: build it as the README says, or fetch pictures into memory"; }
            catch (EntryPointNotFoundException) { missing = "the plug-in sumi_unity is of another version than these scripts: build it again"; }
            catch (BadImageFormatException) { missing = "the plug-in sumi_unity is damaged, or for another processor than this program: build it again"; }
            return false;
        }

        // Whether pictures can be written to Unity's textures: with OpenGL core, Direct3D 11 and 12.
        public static bool IsSupported { get { return Trouble == ""; } }

        // Why IsSupported is false, in a sentence that says what to do; "" where it is true.
        public static string Trouble { get { return HasPlugin ? Utf8.From(sumi_unity_trouble()) : missing; } }

        private static System.Threading.Thread scriptsThread; // the one that textures were made on: no other may speak with the renderer

        private static CommandBuffer commands; // made where it is needed first: not every thread may

        private readonly EngineHandle owner;
        private ulong id; // of the plug-in, which ignores what it does not know; 0: disposed
        private Wish wish;
        private ImageJob job;

        // True where the project is linear and the texture is not sRGB: a shader that shows it has to decode its values (GammaToLinearSpace of UnityCG.cginc), or pictures look too bright.
        public readonly bool NeedsDecoding;

        // The texture must live as long as this. It waits for the thread that renders: make it while nothing moves. The thread of the scripts, as for everything here.
        public SumiTexture(Engine engine, Texture2D shown, bool takesPreviews)
        {
            if (!IsSupported) throw new SumiException(Result.NotSupported, Trouble);
            CheckFormat(shown);
            NeedsDecoding = QualitySettings.activeColorSpace == ColorSpace.Linear && shown.graphicsFormat != GraphicsFormat.R8G8B8A8_SRGB;
            owner = engine.Handle;
            IntPtr native = shown.GetNativeTexturePtr(); // waits for events, which wait for the lock: so before Enter
            scriptsThread = System.Threading.Thread.CurrentThread;
            using (owner.Enter())
            {
                owner.Ready();
                id = sumi_unity_create(owner, native, shown.width, shown.height, takesPreviews ? 1 : 0);
            }
            if (id == 0) throw new OutOfMemoryException();
            Ask(Wish.Import, null);
        }

        private static void CheckFormat(Texture2D shown)
        {
            bool isSrgb = shown.graphicsFormat == GraphicsFormat.R8G8B8A8_SRGB;
            if (shown.mipmapCount != 1 || (!isSrgb && shown.graphicsFormat != GraphicsFormat.R8G8B8A8_UNorm))
                throw new ArgumentException("the texture is " + shown.graphicsFormat + " with " + shown.mipmapCount + " mip levels: make it with TextureFormat.RGBA32 and without mip levels");
            if (isSrgb && SystemInfo.graphicsDeviceType == GraphicsDeviceType.OpenGLCore)
                throw new ArgumentException("with OpenGL an sRGB texture cannot be shared: make it with linear: true, and decode it in the shader (see NeedsDecoding)");
        }

        // The import is then ended by the next event of any texture, or with the engine.
        ~SumiTexture() { if (id != 0) owner.Leave(Kind.Texture, id); }

        // Whether what was asked for is done. Throws once why it failed. A preview that was dropped is no failure.
        public bool IsReady
        {
            get
            {
                ThrowIfDisposed();
                if (wish == Wish.None) return true;
                int result;
                string message;
                using (owner.Enter())
                {
                    result = sumi_unity_result(id);
                    message = result > 0 ? Utf8.From(sumi_unity_message(id)) : "";
                }
                if (result < 0) return false;
                Wish granted = wish;
                ImageJob ended = job;
                wish = Wish.None;
                job = null;
                if (granted == Wish.Fetch) ended.WasFetched((Result)result, message);
                else if ((Result)result == Result.StaleHandle && message == "") throw Gone();
                else if (result != 0 && (Result)result != Result.Busy)
                    throw new SumiException((Result)result, message != "" ? message : Utf8.From(Native.sumi_result_text((Result)result)));
                return true;
            }
        }

        private static SumiException Gone()
        {
            return new SumiException(Result.StaleHandle, "the device that draws was reset, and the texture with it: make the texture and its SumiTexture again");
        }

        private void ThrowIfDisposed()
        {
            if (id == 0) throw new ObjectDisposedException("SumiTexture");
            owner.ThrowIfClosed();
        }

        // Writes the job's newest preview into the texture, unless the one before it is not drawn yet.
        public void Preview(ImageJob of) { Ask(Wish.Preview, of); }

        // Ends a job whose request named this texture, and writes its picture.
        public void Fetch(ImageJob of) { Ask(Wish.Fetch, of); }

        // Once a frame: with Direct3D 12 pictures are copied here, and wishes wait for that.
        public void Update() { Issue(id); }

        // The caller is inside Enter.
        internal Native.sumi_target TargetFor(EngineHandle engine)
        {
            if (engine != owner) throw new ArgumentException("a SumiTexture works with the engine it was made with");
            ThrowIfDisposed();
            Native.sumi_target target;
            var result = (Result)sumi_unity_target(id, out target);
            if (result == Result.StaleHandle) throw Gone();
            if (result != Result.Ok) throw new InvalidOperationException("the texture is not imported yet, so the picture would not come into it: ask when IsReady says so");
            return target;
        }

        private void Ask(Wish wished, ImageJob of)
        {
            ThrowIfDisposed();
            if (wish != Wish.None) throw new InvalidOperationException("the texture was asked for something that is not done yet: see IsReady");
            int result;
            using (owner.Enter()) result = sumi_unity_wish(id, (int)wished, of != null ? of.Id.id : 0);
            if (result != 0) throw Gone();
            wish = wished;
            job = of;
            Issue(id);
        }

        private static void Issue(ulong data)
        {
            if (commands == null) commands = new CommandBuffer();
            commands.Clear();
            commands.IssuePluginEventAndData(sumi_unity_event(), 0, new IntPtr((long)data));
            Graphics.ExecuteCommandBuffer(commands);
        }

        // Waits for nothing: the thread that renders ends the import, before it destroys the texture if that is asked for later.
        public void Dispose()
        {
            if (id == 0) return;
            using (owner.Enter()) sumi_unity_dispose(id);
            id = 0;
            GC.SuppressFinalize(this);
            if (System.Threading.Thread.CurrentThread == scriptsThread) Issue(0); // else the next event of any texture does it
        }

        // Of an engine that will be destroyed. The thread that renders ends the imports, for with OpenGL no other thread can.
        private static void DisposeTexturesOf(EngineHandle engine)
        {
            if (engine.IsClosed) return;
            int imports;
            using (engine.Enter()) imports = engine.IsClosed ? 0 : sumi_unity_dispose_all(engine);
            if (imports == 0 || System.Threading.Thread.CurrentThread != scriptsThread) return;
            Issue(0);
            Texture2D.whiteTexture.GetNativeTexturePtr(); // waits for it
        }
    }
}
