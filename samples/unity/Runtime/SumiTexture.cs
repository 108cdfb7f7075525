// A texture of Unity's that pictures and previews are written to on the GPU, by the rendering plug-in of Native~. Optional: without the plug-in, or with a renderer that it does not know,
// IsSupported is false, and pictures are fetched into memory as always.
//
//     var shown = new SumiTexture(engine, texture, false);          // RGBA32, linear, without mip levels; of the picture's size
//     ... frames later, when shown.IsReady:
//     request.Texture = shown;
//     job = model.Generate(request);
//     ... frames later, when job.Poll().State == JobState.Done:
//     shown.Fetch(job);
//     ... frames later, when shown.IsReady: the picture is on its way into the texture, in the order of Unity's own commands (Direct3D 12: some frames later, after Update() of each)
//
// A texture is asked for one thing at a time. What was asked for is done by the thread that renders, in the next event; IsReady says that it was done, or throws why not.
// Previews go to a texture of their own, of job.PreviewWidth x PreviewHeight, made with takesPreviews.
using System;
using System.Runtime.InteropServices;
using UnityEngine;
using UnityEngine.Rendering;

namespace Sumi
{
    public sealed class SumiTexture : IDisposable
    {
        private const string Plugin = "sumi_unity";
        private const CallingConvention Convention = CallingConvention.Cdecl;
        [DllImport(Plugin, CallingConvention = Convention)] private static extern void sumi_unity_lock();
        [DllImport(Plugin, CallingConvention = Convention)] private static extern int sumi_unity_try_lock();
        [DllImport(Plugin, CallingConvention = Convention)] private static extern void sumi_unity_unlock();
        [DllImport(Plugin, CallingConvention = Convention)] private static extern int sumi_unity_can_share();
        [DllImport(Plugin, CallingConvention = Convention)] private static extern IntPtr sumi_unity_create(EngineHandle engine, IntPtr native, int width, int height, int takes_previews);
        [DllImport(Plugin, CallingConvention = Convention)] private static extern void sumi_unity_free(IntPtr texture);
        [DllImport(Plugin, CallingConvention = Convention)] private static extern void sumi_unity_wish(IntPtr texture, int wish, ulong job);
        [DllImport(Plugin, CallingConvention = Convention)] private static extern int sumi_unity_result(IntPtr texture);
        [DllImport(Plugin, CallingConvention = Convention)] private static extern void sumi_unity_target(IntPtr texture, out Native.sumi_target target);
        [DllImport(Plugin, CallingConvention = Convention)] private static extern IntPtr sumi_unity_event();

        private enum Wish { None = 0, Import = 1, Preview = 2, Fetch = 3, Release = 4 }

        // Whether the plug-in is there. It is looked for once.
        internal static readonly bool HasPlugin = FindPlugin();
        internal static void Lock() { sumi_unity_lock(); }
        internal static bool TryLock() { return sumi_unity_try_lock() != 0; }
        internal static void Unlock() { sumi_unity_unlock(); }

        private static bool FindPlugin()
        {
            try
            {
                sumi_unity_can_share();
                return true;
            }
            catch (DllNotFoundException) { return false; }
            catch (EntryPointNotFoundException) { return false; }
        }

        // Whether the plug-in knows this renderer: OpenGL core, Direct3D 11 and 12.
        public static bool IsSupported { get { return HasPlugin && sumi_unity_can_share() != 0; } }

        private readonly EngineHandle owner;
        private readonly CommandBuffer commands = new CommandBuffer();
        private IntPtr texture;
        private Wish wish;
        private ImageJob job;

        // The texture must live as long as this. GetNativeTexturePtr waits for the thread that renders: make it while nothing moves.
        public SumiTexture(Engine engine, Texture2D shown, bool takesPreviews)
        {
            if (!IsSupported) throw new SumiException(Result.NotSupported, "the plug-in sumi_unity is not there, or does not know this renderer: fetch pictures into memory");
            owner = engine.Handle;
            using (owner.Enter())
            {
                owner.Ready();
                texture = sumi_unity_create(owner, shown.GetNativeTexturePtr(), shown.width, shown.height, takesPreviews ? 1 : 0);
            }
            if (texture == IntPtr.Zero) throw new OutOfMemoryException();
            Ask(Wish.Import, null);
        }

        // Whether what was asked for is done. Throws once why it failed. A preview that was dropped is no failure.
        public bool IsReady
        {
            get
            {
                if (wish == Wish.None) return true;
                int result;
                using (owner.Enter()) result = sumi_unity_result(texture);
                if (result < 0) return false;
                Wish granted = wish;
                ImageJob ended = job;
                wish = Wish.None;
                job = null;
                if (granted == Wish.Fetch) ended.WasFetched((Result)result);
                else if (result != 0 && (Result)result != Result.Busy)
                    throw new SumiException((Result)result, owner.Sink.TakeError() ?? Utf8.From(Native.sumi_result_text((Result)result)));
                return true;
            }
        }

        // Writes the job's newest preview into the texture, unless the one before it is not drawn yet.
        public void Preview(ImageJob of) { Ask(Wish.Preview, of); }

        // Ends a job whose request named this texture, and writes its picture.
        public void Fetch(ImageJob of) { Ask(Wish.Fetch, of); }

        // Once a frame: with Direct3D 12 pictures are copied here, and wishes wait for that.
        public void Update() { Issue(); }

        internal Native.sumi_target Target
        {
            get
            {
                Native.sumi_target target;
                sumi_unity_target(texture, out target); // the caller is inside Enter
                return target;
            }
        }

        private void Ask(Wish wished, ImageJob of)
        {
            if (wish != Wish.None) throw new InvalidOperationException("the texture was asked for something that is not done yet: see IsReady");
            wish = wished;
            job = of;
            using (owner.Enter()) sumi_unity_wish(texture, (int)wished, of != null ? of.Id.id : 0);
            Issue();
        }

        private void Issue()
        {
            commands.Clear();
            commands.IssuePluginEventAndData(sumi_unity_event(), 0, texture);
            Graphics.ExecuteCommandBuffer(commands);
        }

        // Waits for the thread that renders to end the import, a second at most; an engine that was disposed before has ended it already.
        public void Dispose()
        {
            if (texture == IntPtr.Zero) return;
            if (!owner.IsClosed)
            {
                using (owner.Enter()) sumi_unity_wish(texture, (int)Wish.Release, 0);
                int result = -1;
                for (int i = 0; result < 0 && i < 1000; i++)
                {
                    Issue();
                    using (owner.Enter()) result = sumi_unity_result(texture);
                    if (result < 0) System.Threading.Thread.Sleep(1);
                }
                if (result < 0) return; // it is leaked rather than used after it was freed
            }
            sumi_unity_free(texture);
            texture = IntPtr.Zero;
        }
    }
}
