// sumi for C#: engine, model, prompt, adapter and job as objects. It and SumiNative.cs need no Unity: the package for .NET (packaging/nuget) is made of these two files. In Unity SumiTexture.cs adds
// textures that stay on the GPU, and SumiGenerator.cs and SumiPictureEditor.cs are the components.
//
//     using (var engine = new Engine())
//     using (var loading = engine.LoadModel("path/to/model"))
//     {
//         Model model = loading.Wait();
//         using (var job = model.Generate(new ImageRequest(model) { Prompt = "a red house on the grass", Seed = 7 }))
//         {
//             while (!job.Poll().IsFinal) engine.Update(4000); // a game: once per frame
//             Picture picture = job.Fetch();                   // or an exception with a sentence that says what to do
//         }
//     }
//
// Who frees what. Everything may be disposed in any order, twice, or be left to the garbage collector. The native engine is freed by Engine.Dispose, with all that belongs to it, or
// when nothing of it can be reached any more. Models, prompts, adapters and jobs that the collector finds are only noted down, and freed in the engine's next call: the native engine takes one
// call at a time, and the finaliser's thread must not be one of two. A job keeps the model and adapters it works with. Engines that are left are ended with their application domain.
//
// Threads. Calls wait for one another, but for Job.Poll, Job.Cancel, Job.TryPreview and Engine.Info, which may run beside any other. None waits long: Job.Wait lets the others in.
using System;
using System.Collections.Generic;
using System.Runtime.InteropServices;
using System.Text;
using System.Threading;
using System.Threading.Tasks;
#if UNITY_5_3_OR_NEWER
using AOT;
#endif

namespace Sumi
{
#if !UNITY_5_3_OR_NEWER
    [AttributeUsage(AttributeTargets.Method)]
    internal sealed class MonoPInvokeCallbackAttribute : Attribute { public MonoPInvokeCallbackAttribute(Type type) { } }
#endif

    // What the library answered, and a sentence that says what to do.
    public sealed class SumiException : Exception
    {
        public readonly Result Result;
        public SumiException(Result result, string message) : base(message) { Result = result; }
    }

    public struct JobStatus
    {
        public JobState State;
        public Stage Stage;
        public int Step, StepCount;
        public float Progress, SecondsLeft; // 0..1; negative: not known yet
        public uint PreviewVersion;
        public Result Result;
        public string Message; // details of a failure, "" otherwise
        public bool Paused;    // it waits to be resumed, or is about to
        public bool IsFinal { get { return State >= JobState.Done || State == JobState.None; } }
    }

    public struct EngineInfo
    {
        public string Backend, Device;
        public ulong DeviceBytes, HostBytes;
        public ulong UncountedBytes; // of the device: the driver's and other programs', which no memory budget counts
        public int JobCount;
    }

    public struct ModelInfo
    {
        public string Family, Variant;
        public bool TakesReferences, UsesGuidance, HasTextEncoder, HasVaeEncoder;
        public bool IgnoresGuidance; // distilled to run without: ImageRequest.Guidance and Negative are not used
        public bool HasAlpha; // its pictures may be transparent, and it reads the alpha of those that it is given
        public int MinReferences, MaxReferences; // of a picture; both 0: the model takes none
        public WeightFormat Weights, TextWeights; // as asked for; of Auto on a GPU what it stands for there
        public AttentionFormat Attention; // likewise
        public int SizeMultiple, MaxSize, NativeSize, LatentFactor, MaxPromptTokens;
        public float Guidance, GuidanceOff; // the authors' number, and the one that means none
        public GuidanceFormula GuidanceFormula;
        public GuidanceRule GuidanceRule;   // the model's own: what GuidanceRule.Model stands for
        public string NegativeText;         // the authors' negative prompt, which requests have that name none, or ""
        public ulong WeightBytes;
    }

    // RGBA8, rows from the top, without gaps.
    public sealed class Picture
    {
        public int Width, Height, StepCount;
        public int EvaluationCount, ReusedCount; // of the transformer, and how many of them were reused (ImageRequest.StepCacheDb)
        public float PredictedDb;                // that the picture is predicted to keep then; 0: not known, or without a step cache
        public ulong Seed;
        public bool HasAlpha; // some pixels may be transparent, with straight alpha; false: alpha is 255, as in every preview
        public byte[] Pixels;
    }

    // ---- Texts ------------------------------------------------------------------------------------------------------------------------------
    // UTF-8 by hand: Marshal.PtrToStringUTF8 is not there in Unity's older profiles.
    internal static class Utf8
    {
        public static string From(IntPtr text)
        {
            if (text == IntPtr.Zero) return "";
            int count = 0;
            while (Marshal.ReadByte(text, count) != 0) count++;
            var bytes = new byte[count];
            Marshal.Copy(text, bytes, 0, count);
            return Encoding.UTF8.GetString(bytes);
        }
    }

    // What a desc points to, until submit has copied it.
    internal sealed class Scratch : IDisposable
    {
        private readonly List<IntPtr> memory = new List<IntPtr>();
        private readonly List<GCHandle> pins = new List<GCHandle>();

        public IntPtr Take(int bytes)
        {
            IntPtr taken = Marshal.AllocHGlobal(bytes);
            memory.Add(taken);
            return taken;
        }

        public IntPtr Text(string text)
        {
            if (text == null) return IntPtr.Zero;
            if (text.IndexOf('\0') >= 0) throw new ArgumentException("a text may not hold a zero character: it would end there");
            byte[] bytes = Encoding.UTF8.GetBytes(text);
            IntPtr copy = Take(bytes.Length + 1);
            Marshal.Copy(bytes, 0, copy, bytes.Length);
            Marshal.WriteByte(copy, bytes.Length, 0);
            return copy;
        }

        public IntPtr Pin(Array array)
        {
            if (array == null) return IntPtr.Zero;
            GCHandle pin = GCHandle.Alloc(array, GCHandleType.Pinned);
            pins.Add(pin);
            return pin.AddrOfPinnedObject();
        }

        public IntPtr Pixels(Picture picture)
        {
            return picture == null ? IntPtr.Zero : Pin(new[] { Of(picture) });
        }

        private Native.sumi_pixels Of(Picture picture)
        {
            if (picture == null || picture.Pixels == null || picture.Width <= 0 || picture.Height <= 0 || picture.Pixels.LongLength != 4L * picture.Width * picture.Height)
                throw new ArgumentException("a picture has Width * Height * 4 bytes of Pixels");
            return new Native.sumi_pixels { data = Pin(picture.Pixels), width = picture.Width, height = picture.Height, channel_count = 4 };
        }

        public IntPtr Pixels(IList<Picture> pictures)
        {
            if (pictures == null || pictures.Count == 0) return IntPtr.Zero;
            var all = new Native.sumi_pixels[pictures.Count];
            for (int i = 0; i < all.Length; i++) all[i] = Of(pictures[i]);
            return Pin(all);
        }

        public void Dispose()
        {
            foreach (IntPtr each in memory) Marshal.FreeHGlobal(each);
            foreach (GCHandle pin in pins) pin.Free();
            memory.Clear();
            pins.Clear();
        }
    }

    // What Unity's rendering plug-in adds to engines. SumiTexture.cs has it; in a program without that file there is none.
    internal abstract partial class RenderingPlugin
    {
        public static readonly RenderingPlugin Found = Look(); // null: there is none
        static partial void Find(ref RenderingPlugin found);   // without SumiTexture.cs nobody calls it
        private static RenderingPlugin Look()
        {
            RenderingPlugin found = null;
            Find(ref found);
            return found;
        }

        // The GPU that the host draws with (8 bytes); null where it is not known. A test may set it.
        internal static Func<byte[]> DrawingDevice = () => Found != null ? Found.Luid() : null;

        public abstract void Lock(); // keeps its events out of engines
        public abstract bool TryLock();
        public abstract void Unlock();
        public abstract void Forget(IntPtr engine); // inside the lock, as the next one: events that are on their way find nothing of it
        public abstract void DisposeTexture(ulong id);
        public abstract void DisposeAll(EngineHandle engine); // the engine's textures; waits for the renderer
        // Keeps the log from C# on the thread that renders, which would keep the scripts' domain from being unloaded. `own` is freed after the engine.
        public abstract Native.sumi_log RouteLog(Native.sumi_log log, out IntPtr own);
        public abstract byte[] Luid();
    }

    // ---- The native engine --------------------------------------------------------------------------------------------------------------------
    // Takes what the library logs; the engine knows it by a weak handle, so that it keeps nothing alive.
    internal sealed class LogSink
    {
        public Action<LogLevel, string> Write; // the host's
        private readonly object gate = new object();
        private string lastError;

        public string TakeError()
        {
            lock (gate)
            {
                string taken = lastError;
                lastError = null;
                return taken;
            }
        }

        public static readonly Native.WriteLog Callback = Receive; // native code holds its address for good

        [MonoPInvokeCallback(typeof(Native.WriteLog))]
        private static void Receive(LogLevel level, Result result, IntPtr text, IntPtr user_data)
        {
            try // no exception may travel through native code
            {
                var sink = GCHandle.FromIntPtr(user_data).Target as LogSink;
                if (sink == null) return;
                string message = Utf8.From(text);
                if (level == LogLevel.Error) lock (sink.gate) sink.lastError = message;
                if (sink.Write != null) sink.Write(level, message);
            }
            catch (Exception) { }
        }
    }

    internal enum Kind { Model, Prompt, Lora, Control, Job, Texture }

    internal sealed class EngineHandle : SafeHandle
    {
        private readonly object gate = new object(); // one call at a time
        private int depth;                           // of turns of the thread that has the gate
        private int waiting, turns;                  // threads that wait for the gate; turns that were taken
        private volatile bool isClosing;
        public readonly LogSink Sink;
        private readonly object list = new object();
        private List<KeyValuePair<Kind, ulong>> left = new List<KeyValuePair<Kind, ulong>>(), taken = new List<KeyValuePair<Kind, ulong>>();
        private GCHandle self;
        private readonly IntPtr route; // of the log

        public EngineHandle(IntPtr engine, LogSink sink, GCHandle sinkHandle, IntPtr logRoute) : base(IntPtr.Zero, true)
        {
            Sink = sink;
            self = sinkHandle;
            route = logRoute;
            SetHandle(engine);
        }

        public override bool IsInvalid { get { return handle == IntPtr.Zero; } }

        // By End, by the finaliser, or by the last of other threads' free calls.
        protected override bool ReleaseHandle()
        {
            RenderingPlugin plugin = RenderingPlugin.Found;
            bool locks = plugin != null && !Monitor.IsEntered(gate);
            if (locks) plugin.Lock();
            if (plugin != null) plugin.Forget(handle);
            Native.sumi_engine_destroy(handle); // takes models, prompts, adapters and jobs with it
            if (locks) plugin.Unlock();
            self.Free();
            Marshal.FreeHGlobal(route);
            OpenEngines.Remove(this);
            return true;
        }

        // Other threads' calls are refused from now on.
        public void End()
        {
            if (IsClosed) return;
            isClosing = true; // another thread's WaitFor ends with its piece, which is shorter without the jobs
            CancelJobs();
            if (RenderingPlugin.Found != null) RenderingPlugin.Found.DisposeAll(this); // waits for the renderer, so before the lock
            using (Enter()) Dispose();
        }

        private void CancelJobs()
        {
            try
            {
                var jobs = new Native.sumi_job[Native.sumi_job_list(this, null, 0)];
                int count = Math.Min(jobs.Length, Native.sumi_job_list(this, jobs, jobs.Length));
                for (int i = 0; i < count; i++) Native.sumi_job_cancel(this, jobs[i]);
            }
            catch (ObjectDisposedException) { } // two threads at once
        }

        // Any thread, the finaliser's too.
        public void Leave(Kind kind, ulong what)
        {
            lock (list) left.Add(new KeyValuePair<Kind, ulong>(kind, what));
        }

        // One call at a time: `using (handle.Enter())` around calls. With the rendering plug-in its events keep out, too.
        public struct Turn : IDisposable
        {
            internal EngineHandle Of;
            public void Dispose()
            {
                if (--Of.depth == 0 && RenderingPlugin.Found != null) RenderingPlugin.Found.Unlock();
                Monitor.Exit(Of.gate);
            }
        }

        public Turn Enter()
        {
            Interlocked.Increment(ref waiting);
            Monitor.Enter(gate);
            Interlocked.Decrement(ref waiting);
            Interlocked.Increment(ref turns);
            if (depth++ == 0 && RenderingPlugin.Found != null) RenderingPlugin.Found.Lock();
            return new Turn { Of = this };
        }

        // Between two turns: a thread that comes back at once would take the gate before those that wait are awake.
        public void LetOthersIn()
        {
            int seen = Volatile.Read(ref turns);
            while (Volatile.Read(ref waiting) > 0 && Volatile.Read(ref turns) == seen) Thread.Sleep(0);
        }

        public void ThrowIfClosed()
        {
            if (IsClosed || isClosing) throw new ObjectDisposedException("Engine");
        }

        // Inside Enter, before a call.
        public void Ready()
        {
            ThrowIfClosed();
            Sink.TakeError();
            lock (list)
            {
                if (left.Count == 0) return;
                var swap = taken;
                taken = left;
                left = swap;
            }
            foreach (var each in taken)
            {
                var pointer = new IntPtr((long)each.Value);
                if (each.Key == Kind.Job) Native.sumi_job_discard(this, new Native.sumi_job { id = each.Value });
                else if (each.Key == Kind.Model) Native.sumi_model_close(pointer);
                else if (each.Key == Kind.Prompt) Native.sumi_prompt_release(pointer);
                else if (each.Key == Kind.Texture) RenderingPlugin.Found.DisposeTexture(each.Value);
                else if (each.Key == Kind.Control) Native.sumi_control_release(pointer);
                else Native.sumi_lora_release(pointer);
            }
            taken.Clear();
        }

        // After something was disposed: frees it now, unless another thread is in the engine, whose next call does.
        public void FreeWhatWasLeft()
        {
            if (!Monitor.TryEnter(gate)) return;
            try
            {
                RenderingPlugin plugin = depth == 0 ? RenderingPlugin.Found : null;
                if (plugin != null && !plugin.TryLock()) return;
                try { if (!IsClosed && !isClosing) Ready(); }
                finally { if (plugin != null) plugin.Unlock(); }
            }
            finally { Monitor.Exit(gate); }
        }

        // Inside Enter, after a call.
        public void Check(Result result)
        {
            if (result != Result.Ok) throw new SumiException(result, Sink.TakeError() ?? Utf8.From(Native.sumi_result_text(result)));
        }
    }

    // The engines of this application domain. A thread of the library's that has called the log belongs to the domain from then on, and Mono waits for it before it unloads the domain: for ever,
    // unless the engine is ended first. So all of them are ended when the domain goes; SumiLifetime.cs does it earlier where Unity tells.
    internal static class OpenEngines
    {
        private static readonly object gate = new object();
        private static readonly List<WeakReference> engines = new List<WeakReference>(); // of EngineHandle, also while its finaliser waits for its turn
        private static int opening;                                                       // by threads that are inside sumi_engine_create
        private static readonly List<Thread> threads = new List<Thread>();                // of Run
        private static bool isOver;

        static OpenEngines()
        {
            AppDomain.CurrentDomain.DomainUnload += (sender, arguments) => EndForGood();
            AppDomain.CurrentDomain.ProcessExit += (sender, arguments) => EndForGood();
        }

        // What creates an engine, on a thread of its own. A thread that lives when its domain is unloaded is aborted, which Mono does not always survive, so EndAll waits for its end; for a
        // thread of the pool it could not.
        public static void Run(ThreadStart work)
        {
            var thread = new Thread(work) { IsBackground = true, Name = "sumi engine" };
            lock (gate)
            {
                ThrowIfOver();
                threads.RemoveAll(each => !each.IsAlive);
                thread.Start();
                threads.Add(thread);
            }
        }

        private static void ThrowIfOver()
        {
            if (isOver) throw new ObjectDisposedException("Engine", "scripts are being unloaded: no engine can be created any more");
        }

        // Around sumi_engine_create.
        public static void Begin()
        {
            lock (gate)
            {
                ThrowIfOver();
                opening++;
            }
        }

        // null: it could not be created.
        public static void Finish(EngineHandle made)
        {
            lock (gate)
            {
                opening--;
                if (made != null) engines.Add(new WeakReference(made, true));
                Monitor.PulseAll(gate);
            }
        }

        public static void Remove(EngineHandle ended)
        {
            lock (gate) engines.RemoveAll(each => each.Target == null || each.Target == ended);
        }

        // Waits for those that are being created, within seconds, and for each engine's running slice.
        public static void EndAll()
        {
            var all = new List<EngineHandle>();
            Thread[] running;
            lock (gate) running = threads.ToArray();
            foreach (Thread each in running) each.Join();
            lock (gate)
            {
                while (opening > 0) Monitor.Wait(gate);
                foreach (WeakReference each in engines) all.Add(each.Target as EngineHandle);
            }
            foreach (EngineHandle each in all) if (each != null) each.End();
        }

        private static void EndForGood()
        {
            lock (gate) isOver = true;
            EndAll();
        }
    }

    // A model, prompt or adapter: freed by its engine.
    public abstract class OwnedHandle : SafeHandle
    {
        internal readonly EngineHandle Owner;
        private readonly Kind kind;

        internal OwnedHandle(EngineHandle owner, Kind kind, IntPtr value) : base(IntPtr.Zero, true)
        {
            Owner = owner;
            this.kind = kind;
            SetHandle(value);
        }

        public override bool IsInvalid { get { return handle == IntPtr.Zero; } }

        // Inside Owner.Enter, behind Ready: nothing is freed before the turn ends.
        internal IntPtr Pointer
        {
            get
            {
                if (IsClosed) throw new ObjectDisposedException(GetType().Name);
                return handle;
            }
        }

        internal IntPtr PointerFor(EngineHandle engine)
        {
            if (engine != Owner) throw new ArgumentException("a " + GetType().Name + " works with the engine it was made with");
            return Pointer;
        }

        protected override bool ReleaseHandle()
        {
            Owner.Leave(kind, (ulong)handle.ToInt64());
            return true;
        }

        protected override void Dispose(bool disposing)
        {
            base.Dispose(disposing);
            if (disposing) Owner.FreeWhatWasLeft();
        }
    }

    // ---- Engine -------------------------------------------------------------------------------------------------------------------------------
    public sealed class EngineOptions
    {
        public Backend Backend = Backend.Auto;
        public Pump Pump = Pump.Update;           // Thread: a thread of the library's works, and Update does nothing
        public int JobCapacity = 16, ThreadCount; // ThreadCount: of the processor backend; 0: every core, 1: no thread of the library's own
        public uint MaxSliceMicroseconds = 2000;  // no piece of work is longer: a frame is missed by no more than that
        public ulong MemoryBudgetBytes;           // 0: no limit
        public int Ordinal = -1;                  // of the GPU; -1: the one that Unity draws with, where the rendering plug-in knows it (Direct3D), or the first one
        public byte[] Uuid, Luid;                 // the same by its 16 or 8 bytes; null: any
        public Action<LogLevel, string> Log;      // called inside calls of the engine, on any thread that makes them; must not call the engine, and not wait for the renderer
    }

    public sealed class Engine : IDisposable
    {
        private readonly EngineHandle handle;
        internal EngineHandle Handle { get { return handle; } }

        public static string Version { get { return Utf8.From(Native.sumi_version()); } } // of the native library

        // Throws why the native library cannot be used: it is not there, does not fit, or is of another version. Structs of another version have other sizes, so Engine calls this first.
        public static void CheckVersion()
        {
            Result result;
            try { result = Native.sumi_check_version(Native.HeaderVersion); }
            catch (EntryPointNotFoundException) { result = Result.VersionMismatch; } // older than 0.2
            catch (DllNotFoundException trouble) { throw Unusable("is not where this program looks for it, " + Place + ": ", trouble); }
            catch (BadImageFormatException trouble) { throw Unusable("is damaged, or for another processor than this program: ", trouble); }
            if (result == Result.Ok) return;
            throw new SumiException(result, string.Format("the native library is sumi {0}, and this code is for {1}.{2}: copy the library of that version to its place, {3}",
                Version, Native.HeaderVersion / 1000000, Native.HeaderVersion / 1000 % 1000, Place));
        }

        private const string Place = "in Unity the package's Runtime/Plugins folder, elsewhere the program's own";
        private static SumiException Unusable(string what, Exception trouble) { return new SumiException(Result.NotSupported, "the native library " + what + trouble.Message); }

        public Engine(EngineOptions options = null)
        {
            CheckVersion();
            options = options ?? new EngineOptions();
            OpenEngines.Begin();
            try { handle = Create(options); }
            finally { OpenEngines.Finish(handle); }
        }

        // On another thread: with a GPU it takes up to some seconds. An engine that nobody wants any more is disposed.
        public static Task<Engine> CreateAsync(EngineOptions options = null, CancellationToken cancellation = default(CancellationToken))
        {
            var task = new TaskCompletionSource<Engine>(TaskCreationOptions.RunContinuationsAsynchronously);
            OpenEngines.Run(() =>
            {
                try
                {
                    var made = new Engine(options);
                    task.TrySetResult(made);
                    if (cancellation.IsCancellationRequested) made.Dispose(); // who cancels looks at the task afterwards
                }
                catch (Exception trouble) { task.TrySetException(trouble); }
            });
            return task.Task;
        }

        private static EngineHandle Create(EngineOptions options)
        {
            bool isOurs = options.Ordinal < 0 && options.Uuid == null && options.Luid == null && options.Backend != Backend.Cpu;
            byte[] luid = isOurs ? RenderingPlugin.DrawingDevice() : options.Luid;
            if (luid == null || !isOurs) return Create(options, luid);
            try { return Create(options, luid); }
            catch (SumiException refused)
            {
                if (refused.Result != Result.NoDevice && refused.Result != Result.NotSupported && refused.Result != Result.DeviceUnsupported) throw;
            }
            if (options.Log != null) options.Log(LogLevel.Warning, "the GPU that this program draws with cannot be used: another one, or the processor, works");
            return Create(options, null);
        }

        private static EngineHandle Create(EngineOptions options, byte[] luid)
        {
            if ((options.Uuid != null && options.Uuid.Length != 16) || (luid != null && luid.Length != 8)) throw new ArgumentException("a Uuid has 16 bytes, a Luid 8");
            var sink = new LogSink { Write = options.Log };
            GCHandle self = GCHandle.Alloc(sink, GCHandleType.Weak);
            IntPtr made, route = IntPtr.Zero;
            Result result;
            using (var scratch = new Scratch())
            {
                Native.sumi_engine_desc desc = Native.sumi_engine_defaults();
                desc.backend = options.Backend;
                desc.pump = options.Pump;
                desc.job_capacity = options.JobCapacity;
                desc.cpu_thread_count = options.ThreadCount;
                desc.max_slice_us = options.MaxSliceMicroseconds;
                desc.memory_budget_bytes = options.MemoryBudgetBytes;
                desc.cuda.ordinal = options.Ordinal;
                desc.cuda.uuid = scratch.Pin(options.Uuid);
                desc.cuda.luid = scratch.Pin(luid);
                desc.log.write = Marshal.GetFunctionPointerForDelegate(LogSink.Callback);
                desc.log.user_data = GCHandle.ToIntPtr(self);
                if (RenderingPlugin.Found != null) desc.log = RenderingPlugin.Found.RouteLog(desc.log, out route);
                result = Native.sumi_engine_create(ref desc, out made);
            }
            if (result != Result.Ok)
            {
                Marshal.FreeHGlobal(route);
                self.Free();
                throw new SumiException(result, sink.TakeError() ?? Utf8.From(Native.sumi_result_text(result)));
            }
            var created = new EngineHandle(made, sink, self, route);
            GC.KeepAlive(sink);
            return created;
        }

        public EngineInfo Info
        {
            get
            {
                bool held = false;
                try
                {
                    handle.DangerousAddRef(ref held); // for the texts in the answer
                    Native.sumi_engine_info info = Native.sumi_engine_get_info(handle);
                    return new EngineInfo
                    {
                        Backend = Utf8.From(info.backend), Device = Utf8.From(info.device),
                        DeviceBytes = info.device_bytes, UncountedBytes = info.uncounted_bytes,
                        HostBytes = info.host_bytes, JobCount = info.job_count
                    };
                }
                finally { if (held) handle.DangerousRelease(); }
            }
        }

        // Works for about that long, or puts that much work on its way to the GPU. 0: a pause. uint.MaxValue: until nothing is left to do.
        public void Update(uint budgetMicroseconds)
        {
            using (handle.Enter())
            {
                handle.Ready();
                Native.sumi_engine_update(handle, budgetMicroseconds);
            }
        }

        public void SetMemoryBudget(ulong bytes)
        {
            using (handle.Enter())
            {
                handle.Ready();
                handle.Check(Native.sumi_engine_set_memory_budget(handle, bytes));
            }
        }

        // withTextEncoder false: for games that ship encoded prompts. variant: which model of its family it is ("2512"), for files that do not say so.
        public ModelJob LoadModel(string path, WeightFormat weights = WeightFormat.Auto, bool withTextEncoder = true, bool withVaeEncoder = true, string variant = null, WeightFormat textWeights = WeightFormat.Auto, AttentionFormat attention = AttentionFormat.Auto)
        {
            using (var scratch = new Scratch())
                using (handle.Enter())
                {
                    handle.Ready();
                    Native.sumi_model_desc desc = Native.sumi_model_defaults();
                    desc.path = scratch.Text(path);
                    desc.weights = weights;
                    desc.text_weights = textWeights;
                    desc.attention = attention;
                    desc.variant = scratch.Text(variant);
                    desc.without_text_encoder = (byte)(withTextEncoder ? 0 : 1);
                    desc.without_vae_encoder = (byte)(withVaeEncoder ? 0 : 1);
                    Native.sumi_job job;
                    handle.Check(Native.sumi_submit_model(handle, ref desc, out job));
                    return new ModelJob(handle, job);
                }
        }

        // Ends all jobs, within a slice.
        public void Dispose()
        {
            handle.End();
        }
    }

    // ---- Jobs ---------------------------------------------------------------------------------------------------------------------------------
    public abstract class Job : IDisposable
    {
        internal readonly EngineHandle Owner;
        internal readonly Native.sumi_job Id;
        private readonly object ending = new object(); // the text of a status lives until the job is ended
        private bool ended;

        internal Job(EngineHandle owner, Native.sumi_job id)
        {
            Owner = owner;
            Id = id;
        }

        ~Job() { if (!ended) Owner.Leave(Kind.Job, Id.id); }

        // How far it is. No allocation before it has failed. Of an ended job: JobState.None.
        public JobStatus Poll()
        {
            bool held = false;
            lock (ending)
                try
                {
                    Owner.DangerousAddRef(ref held);
                    Native.sumi_job_status status = Native.sumi_job_poll(Owner, Id);
                    return new JobStatus
                    {
                        State = status.state, Stage = status.stage, Step = status.step, StepCount = status.step_count, Progress = status.progress, SecondsLeft = status.seconds_left,
                        PreviewVersion = status.preview_version, Result = status.result, Paused = status.paused != 0, Message = status.state >= JobState.Failed ? Utf8.From(status.message) : ""
                    };
                }
                finally { if (held) Owner.DangerousRelease(); }
        }

        // Takes effect within a slice; Fetch then throws with Result.Cancelled.
        public void Cancel() { Native.sumi_job_cancel(Owner, Id); }

        // Higher first. False: it has begun or is over, and nothing changes.
        public bool SetPriority(int priority) { return Native.sumi_job_set_priority(Owner, Id, priority) == Result.Ok; }

        // Others go first until it is resumed; an image job that runs goes on later where it was. False: it is over, or loads.
        public bool Pause() { return Native.sumi_job_pause(Owner, Id, 1) == Result.Ok; }
        public bool Resume() { return Native.sumi_job_pause(Owner, Id, 0) == Result.Ok; }

        // Blocks, for tools; a game polls. False: the time is over. Other threads' calls come between: it waits in pieces, and throws when the engine is disposed.
        public bool WaitFor(uint milliseconds)
        {
            const uint piece = 4;
            var watch = System.Diagnostics.Stopwatch.StartNew();
            for (;;)
            {
                long left = milliseconds - watch.ElapsedMilliseconds;
                using (Owner.Enter())
                {
                    Owner.Ready();
                    Result result = Native.sumi_job_wait(Owner, Id, milliseconds == Native.Forever ? piece : (uint)Math.Max(0, Math.Min(piece, left)));
                    if (result != Result.Timeout)
                    {
                        Owner.Check(result);
                        return true;
                    }
                }
                if (milliseconds != Native.Forever && left <= piece) return false;
                Owner.LetOthersIn();
            }
        }

        // Ends the job: takes what it made, or throws why not.
        internal void End(Func<Result> fetch, string message = "")
        {
            if (message == "") message = Poll().Message;
            using (Owner.Enter())
            {
                Owner.Ready();
                lock (ending)
                {
                    Result result = fetch();
                    ended = Native.sumi_job_poll(Owner, Id).state == JobState.None; // one that runs is refused, and goes on
                    if (ended) GC.SuppressFinalize(this);
                    if (result != Result.Ok) throw new SumiException(result, message != "" ? message : Owner.Sink.TakeError() ?? Utf8.From(Native.sumi_result_text(result)));
                }
            }
        }

        public void Dispose()
        {
            lock (ending)
            {
                if (ended) return;
                ended = true;
            }
            GC.SuppressFinalize(this);
            Owner.Leave(Kind.Job, Id.id);
            Owner.FreeWhatWasLeft();
        }
    }

    public abstract class Job<T> : Job
    {
        internal Job(EngineHandle owner, Native.sumi_job id) : base(owner, id) { }

        public abstract T Fetch();

        public T Wait()
        {
            WaitFor(Native.Forever);
            return Fetch();
        }
    }

    public sealed class ModelJob : Job<Model>
    {
        internal ModelJob(EngineHandle owner, Native.sumi_job id) : base(owner, id) { }

        public override Model Fetch()
        {
            IntPtr made = IntPtr.Zero;
            End(() => Native.sumi_fetch_model(Owner, Id, out made));
            return new Model(Owner, made);
        }
    }

    public sealed class PromptJob : Job<Prompt>
    {
        private readonly Model model;
        private readonly List<LoraUse> loras; // closing an adapter cancels: they stay until the job has ended

        internal PromptJob(Model model, Native.sumi_job id, List<LoraUse> loras) : base(model.Owner, id)
        {
            this.model = model;
            this.loras = loras;
        }

        public override Prompt Fetch()
        {
            IntPtr made = IntPtr.Zero;
            End(() => Native.sumi_fetch_prompt(Owner, Id, out made));
            GC.KeepAlive(model);
            GC.KeepAlive(loras);
            return new Prompt(Owner, made);
        }
    }

    public sealed class LoraJob : Job<Lora>
    {
        private readonly Model model;
        internal LoraJob(Model model, Native.sumi_job id) : base(model.Owner, id) { this.model = model; }

        public override Lora Fetch()
        {
            IntPtr made = IntPtr.Zero;
            End(() => Native.sumi_fetch_lora(Owner, Id, out made));
            return new Lora(model, made);
        }
    }

    public sealed class ControlJob : Job<Control>
    {
        private readonly Model model;
        internal ControlJob(Model model, Native.sumi_job id) : base(model.Owner, id) { this.model = model; }

        public override Control Fetch()
        {
            IntPtr made = IntPtr.Zero;
            End(() => Native.sumi_fetch_control(Owner, Id, out made));
            return new Control(model, made);
        }
    }

    public sealed class ImageJob : Job<Picture>
    {
        public readonly int Width, Height, PreviewWidth, PreviewHeight;
        private readonly Model model;
        private readonly List<LoraUse> loras; // closing a model, an adapter or a net cancels: they stay until the job has ended
        private readonly List<ControlUse> controls;

        internal ImageJob(Model model, Native.sumi_job id, Native.sumi_size size, ImageRequest request) : base(model.Owner, id)
        {
            this.model = model;
            loras = new List<LoraUse>(request.Loras);
            controls = new List<ControlUse>(request.Controls);
            Width = size.width;
            Height = size.height;
            PreviewWidth = size.width / 8;
            PreviewHeight = size.height / 8;
        }

        public override Picture Fetch()
        {
            var picture = new Picture { Pixels = new byte[4 * Width * Height] };
            Fetch(picture.Pixels, false, picture);
            return picture;
        }

        // Into memory of the caller's, 4 * Width * Height bytes. bottomUp: the last row first, as textures of Unity have them.
        public void Fetch(byte[] into, bool bottomUp)
        {
            Fetch(into, bottomUp, new Picture());
        }

        private void Fetch(byte[] into, bool bottomUp, Picture about)
        {
            if (into.Length < 4 * Width * Height) throw new ArgumentException("the array is too small: 4 * Width * Height bytes");
            GCHandle pin = GCHandle.Alloc(into, GCHandleType.Pinned);
            try { Fetch(pin.AddrOfPinnedObject(), bottomUp, about); }
            finally { pin.Free(); }
        }

        // The same for native memory, such as a NativeArray's: NativeArrayUnsafeUtility.GetUnsafePtr.
        public void Fetch(IntPtr into, bool bottomUp)
        {
            Fetch(into, bottomUp, new Picture());
        }

        private unsafe void Fetch(IntPtr into, bool bottomUp, Picture about)
        {
            var images = new Native.sumi_image[1];
            End(() =>
            {
                Result result = Native.sumi_fetch_images(Owner, Id, images, 1);
                if (result != Result.Ok) return result;
                int row = 4 * Width;
                for (int y = 0; y < Height; y++)
                    Buffer.MemoryCopy((byte*)images[0].pixels + (long)y * images[0].row_bytes, (byte*)into + (long)(bottomUp ? Height - 1 - y : y) * row, row, row);
                about.Width = images[0].width;
                about.Height = images[0].height;
                about.StepCount = images[0].step_count;
                about.EvaluationCount = images[0].evaluation_count;
                about.ReusedCount = images[0].reused_count;
                about.PredictedDb = images[0].predicted_db;
                about.Seed = images[0].seed;
                about.HasAlpha = images[0].has_alpha != 0;
                Native.sumi_images_release(Owner, images, 1);
                return Result.Ok;
            });
            GC.KeepAlive(model);
            GC.KeepAlive(loras);
            GC.KeepAlive(controls);
        }

        // For SumiTexture, whose plug-in has fetched it.
        internal void WasFetched(Result result, string message)
        {
            End(() => result, message);
        }

        // The newest preview, RGBA8, rows from the top: 4 * PreviewWidth * PreviewHeight bytes. False: there is none yet. Never waits.
        public bool TryPreview(byte[] into)
        {
            GCHandle pin = GCHandle.Alloc(into, GCHandleType.Pinned);
            try { return TryPreview(pin.AddrOfPinnedObject(), into.Length); }
            finally { pin.Free(); }
        }

        public bool TryPreview(IntPtr into, int capacity)
        {
            Native.sumi_image image;
            return Native.sumi_job_preview(Owner, Id, 0, into, (UIntPtr)(uint)capacity, out image) == Result.Ok;
        }

        // What a net saw, when the job is done and before it is fetched: shows how a depth buffer became a picture.
        public Picture ControlPicture(int control = 0)
        {
            var seen = new byte[3 * Width * Height];
            using (var scratch = new Scratch())
            using (Owner.Enter())
            {
                Owner.Ready();
                var view = new Native.sumi_control_view { control = control, into = scratch.Pin(seen), capacity = (UIntPtr)(uint)seen.Length };
                Owner.Check(Native.sumi_job_control_picture(Owner, Id, ref view));
            }
            var picture = new Picture { Width = Width, Height = Height, Pixels = new byte[4 * Width * Height] };
            for (int i = 0; i < Width * Height; i++)
            {
                for (int c = 0; c < 3; c++) picture.Pixels[4 * i + c] = seen[3 * i + c];
                picture.Pixels[4 * i + 3] = 255;
            }
            return picture;
        }
    }

    // ---- Models, prompts, adapters, control nets ------------------------------------------------------------------------------------------------
    public sealed class Model : OwnedHandle
    {
        internal Model(EngineHandle owner, IntPtr value) : base(owner, Kind.Model, value) { }

        public ModelInfo Info
        {
            get
            {
                using (Owner.Enter())
                {
                    Owner.Ready();
                    Native.sumi_model_info info = Native.sumi_model_get_info(Pointer);
                    return new ModelInfo
                    {
                        Family = Utf8.From(info.family), Variant = Utf8.From(info.variant), TakesReferences = info.takes_references != 0,
                        MinReferences = info.min_references, MaxReferences = info.max_references, Weights = info.weights, TextWeights = info.text_weights, Attention = info.attention, UsesGuidance = info.uses_guidance != 0,
                        HasTextEncoder = info.has_text_encoder != 0, HasVaeEncoder = info.has_vae_encoder != 0, SizeMultiple = info.size_multiple, MaxSize = info.max_size,
                        NativeSize = info.native_size, LatentFactor = info.latent_factor, MaxPromptTokens = info.max_prompt_tokens, WeightBytes = info.weight_bytes,
                        Guidance = info.guidance, GuidanceOff = info.guidance_off, GuidanceFormula = info.guidance_formula,
                        GuidanceRule = info.guidance_rule, IgnoresGuidance = info.ignores_guidance != 0, HasAlpha = info.has_alpha != 0, NegativeText = Utf8.From(info.negative_text)
                    };
                }
            }
        }

        internal Native.sumi_image_desc Defaults(Preset preset)
        {
            using (Owner.Enter())
            {
                Owner.Ready();
                return Native.sumi_image_defaults(Pointer, preset);
            }
        }

        // Encodes a text once, for many pictures; of edit models with the pictures that it speaks of, which the prompt keeps.
        public PromptJob Encode(string text, params Picture[] references)
        {
            return Encode(text, new LoraUse[0], references);
        }

        // The same with adapters whose layers of text encoders change the prompt.
        public PromptJob Encode(string text, IList<LoraUse> loras, params Picture[] references)
        {
            using (var scratch = new Scratch())
                using (Owner.Enter())
                {
                    Owner.Ready();
                    Native.sumi_prompt_desc desc = Native.sumi_prompt_defaults(Pointer);
                    desc.text = scratch.Text(text);
                    desc.references = scratch.Pixels(references);
                    desc.reference_count = references.Length;
                    desc.loras = LoraUse.Pin(loras, Owner, scratch);
                    desc.lora_count = loras.Count;
                    Native.sumi_job job;
                    Owner.Check(Native.sumi_submit_prompt(Owner, ref desc, out job));
                    return new PromptJob(this, job, new List<LoraUse>(loras));
                }
        }

        // What Prompt.Save gave, on any machine.
        public Prompt LoadPrompt(byte[] saved)
        {
            using (Owner.Enter())
            {
                Owner.Ready();
                IntPtr made;
                Owner.Check(Native.sumi_prompt_load(Pointer, saved, (UIntPtr)(uint)saved.Length, out made));
                return new Prompt(Owner, made);
            }
        }

        public LoraJob LoadLora(string path)
        {
            using (var scratch = new Scratch())
                using (Owner.Enter())
                {
                    Owner.Ready();
                    Native.sumi_lora_desc desc = Native.sumi_lora_defaults(Pointer);
                    desc.path = scratch.Text(path);
                    Native.sumi_job job;
                    Owner.Check(Native.sumi_submit_lora(Owner, ref desc, out job));
                    return new LoraJob(this, job);
                }
        }

        // A safetensors file, or a diffusers folder.
        public ControlJob LoadControl(string path)
        {
            using (var scratch = new Scratch())
                using (Owner.Enter())
                {
                    Owner.Ready();
                    Native.sumi_control_desc desc = Native.sumi_control_defaults(Pointer);
                    desc.path = scratch.Text(path);
                    Native.sumi_job job;
                    Owner.Check(Native.sumi_submit_control(Owner, ref desc, out job));
                    return new ControlJob(this, job);
                }
        }

        // Starts a picture and returns at once.
        public ImageJob Generate(ImageRequest request)
        {
            using (var scratch = new Scratch())
                using (Owner.Enter())
                {
                    Owner.Ready();
                    Native.sumi_image_desc desc = request.Write(this, scratch);
                    Native.sumi_size size;
                    Owner.Check(Native.sumi_image_size(ref desc, out size));
                    Native.sumi_job job;
                    Owner.Check(Native.sumi_submit_images(Owner, ref desc, out job));
                    return new ImageJob(this, job, size, request);
                }
        }

        // The size that such a picture gets: the request's own, or with 0 x 0 what that stands for.
        public void SizeOf(ImageRequest request, out int width, out int height)
        {
            using (var scratch = new Scratch())
                using (Owner.Enter())
                {
                    Owner.Ready();
                    Native.sumi_image_desc desc = request.Write(this, scratch);
                    Native.sumi_size size;
                    Owner.Check(Native.sumi_image_size(ref desc, out size));
                    width = size.width;
                    height = size.height;
                }
        }

        // Most bytes of intermediate values that such a picture takes, before anything of it is allocated.
        public ulong ArenaBytes(ImageRequest request)
        {
            using (var scratch = new Scratch())
                using (Owner.Enter())
                {
                    Owner.Ready();
                    Native.sumi_image_desc desc = request.Write(this, scratch);
                    Native.sumi_memory memory;
                    Owner.Check(Native.sumi_image_memory(Owner, ref desc, out memory));
                    return memory.arena;
                }
        }
    }

    public sealed class Prompt : OwnedHandle
    {
        internal Prompt(EngineHandle owner, IntPtr value) : base(owner, Kind.Prompt, value) { }

        public int TokenCount // of the first text encoder
        {
            get
            {
                using (Owner.Enter())
                {
                    Owner.Ready();
                    return Native.sumi_prompt_get_info(Pointer).encoders_0.token_count;
                }
            }
        }

        public int ReferenceCount // pictures that it was encoded with, and keeps
        {
            get
            {
                using (Owner.Enter())
                {
                    Owner.Ready();
                    return Native.sumi_prompt_get_info(Pointer).reference_count;
                }
            }
        }

        // Bytes to ship with a game, which then needs no text encoder. Bf16 takes half the bytes of F32, Int8 about a quarter.
        public byte[] Save(PromptFormat format = PromptFormat.F32)
        {
            if (!Enum.IsDefined(typeof(PromptFormat), format)) throw new ArgumentOutOfRangeException("format");
            using (Owner.Enter())
            {
                Owner.Ready();
                var bytes = new byte[(long)Native.sumi_prompt_save_as(Pointer, format, null, UIntPtr.Zero)];
                Native.sumi_prompt_save_as(Pointer, format, bytes, (UIntPtr)(uint)bytes.Length);
                return bytes;
            }
        }
    }

    public sealed class Lora : OwnedHandle
    {
        private readonly Model model; // the one it was read for, and works with
        internal Lora(Model model, IntPtr value) : base(model.Owner, Kind.Lora, value) { this.model = model; }
        public Model Model { get { return model; } }
    }

    public struct LoraUse
    {
        public Lora Lora;
        public float Scale; // 1: as trained
        public float TextScale; // of its layers of text encoders; 0: as Scale
        public bool WithoutText; // leaves these layers out

        internal static IntPtr Pin(IList<LoraUse> loras, EngineHandle owner, Scratch scratch)
        {
            if (loras.Count == 0) return IntPtr.Zero;
            var uses = new Native.sumi_lora_use[loras.Count];
            for (int i = 0; i < uses.Length; i++)
            {
                uses[i] = new Native.sumi_lora_use
                {
                    lora = loras[i].Lora.PointerFor(owner),
                    scale = loras[i].Scale,
                    text_scale = loras[i].TextScale,
                    without_text = (byte)(loras[i].WithoutText ? 1 : 0)
                };
            }
            return scratch.Pin(uses);
        }
    }

    public sealed class ControlInfo
    {
        public string Kind; // "z-fun-2.1"
        public float Strength; // the usual one
        public bool TakesPicture, TakesInpainting;
        public ulong WeightBytes;
    }

    public sealed class Control : OwnedHandle
    {
        private readonly Model model; // the one it was read for, and works with
        internal Control(Model model, IntPtr value) : base(model.Owner, Kind.Control, value) { this.model = model; }
        public Model Model { get { return model; } }

        public ControlInfo Info
        {
            get
            {
                using (Owner.Enter())
                {
                    Owner.Ready();
                    Native.sumi_control_info info = Native.sumi_control_get_info(Pointer);
                    return new ControlInfo
                    {
                        Kind = Utf8.From(info.kind), Strength = info.strength, TakesPicture = info.takes_picture != 0,
                        TakesInpainting = info.takes_inpainting != 0, WeightBytes = info.weight_bytes
                    };
                }
            }
        }
    }

    // A depth buffer, of which a control picture is made: see "Depth buffers" in sumi.h. Of Width * Height values, rows without gaps; any size, but the image's shape avoids distortion.
    public sealed class Depth
    {
        public float[] Values;     // or:
        public ushort[] Values16;  // 65535 stands for 1, with DepthKind.Distance for FarPlane
        public int Width, Height;
        public bool BottomUp;      // the first row is the lowest, as in Unity's textures
        public DepthKind Kind;
        public float NearPlane, FarPlane; // of the camera; Distance reads FarPlane alone, where 0 is infinity
        public float Low, High;    // the distances that become white and black, once per shot: then greys do not flicker. Both 0: from this buffer

        // The depth of an orthographic camera is linear between its planes, so sumi wants distances: replaces Values and Kind. What lies before its plane (a near plane below 0) counts as nearest.
        public void MakeDistances()
        {
            if (Values == null || (Kind != DepthKind.Standard && Kind != DepthKind.Reversed)) throw new InvalidOperationException("only floats of a standard or reversed camera can become distances");
            bool isReversed = Kind == DepthKind.Reversed;
            for (int i = 0; i < Values.Length; i++)
            {
                float share = isReversed ? 1 - Values[i] : Values[i];
                Values[i] = share >= 1 ? FarPlane : NearPlane + (FarPlane - NearPlane) * share; // exactly at the far plane: sky
            }
            Kind = DepthKind.Distance;
        }

        internal IntPtr Pin(Scratch scratch)
        {
            Array values = Values != null ? (Array)Values : Values16;
            if (values == null || (Values != null && Values16 != null) || Width <= 0 || Height <= 0 || values.LongLength != (long)Width * Height)
                throw new ArgumentException("a depth buffer has Width * Height numbers in Values or in Values16");
            Native.sumi_depth depth = Native.sumi_depth_defaults();
            depth.data = scratch.Pin(values);
            depth.format = Values != null ? DepthFormat.F32 : DepthFormat.U16;
            depth.width = Width;
            depth.height = Height;
            depth.bottom_up = (byte)(BottomUp ? 1 : 0);
            depth.kind = Kind;
            depth.near_plane = NearPlane;
            depth.far_plane = FarPlane;
            depth.low = Low;
            depth.high = High;
            return scratch.Pin(new[] { depth });
        }
    }

    // A net, and the control picture that an image follows: white edges on black, depth with white near.
    public sealed class ControlUse
    {
        public Control Control;
        public Picture Picture;
        public Depth Depth;        // in place of Picture
        public float? Strength;    // null: the net's usual one
        public float Start, End;   // the part of the steps in which it is on: 0 .. 1
        public Picture Inpaint, Mask; // of nets that take inpainting: the image, and white where it is to be painted again

        public ControlUse(Control control, Picture picture = null)
        {
            Control = control;
            Picture = picture;
            End = 1;
        }

        internal static IntPtr Pin(IList<ControlUse> controls, EngineHandle owner, Scratch scratch)
        {
            if (controls.Count == 0) return IntPtr.Zero;
            var uses = new Native.sumi_control_use[controls.Count];
            for (int i = 0; i < uses.Length; i++)
            {
                ControlUse from = controls[i];
                Native.sumi_control_use use = Native.sumi_control_use_defaults(from.Control.PointerFor(owner));
                var picture = new Native.sumi_control_picture { picture = scratch.Pixels(from.Picture), inpaint = scratch.Pixels(from.Inpaint), mask = scratch.Pixels(from.Mask) };
                if (from.Depth != null) picture.depth = from.Depth.Pin(scratch);
                use.pictures = scratch.Pin(new[] { picture });
                use.picture_count = 1;
                if (from.Strength.HasValue) use.strength = from.Strength.Value;
                use.start = from.Start;
                use.end = from.End;
                uses[i] = use;
            }
            return scratch.Pin(uses);
        }
    }

    // A picture that is wished for; begins with what the model's authors say.
    // ---- Prompts in XML -----------------------------------------------------------------------------------------------------------------------
    // For models that were trained on captions in XML; include/sumi_xml.h says how the text looks. Lists of tags with commas between them. What is null or empty is left out.
    //
    //     string text = new XmlPrompt
    //     {
    //         Characters = { new XmlCharacter { Gender = "1girl", Appearance = "silver_hair, green_eyes" } },
    //         Tags = { Style = "anime_style", Background = "city_street, rain" },
    //         Caption = "A girl in the rain."
    //     }.Write(); // an ImageRequest's Prompt, a text for Model.Encode or SumiGenerator.Generate; any other text is a prompt as well
    public sealed class XmlCharacter
    {
        public string Name; // null: $character_1$, $character_2$ ...
        public string Gender, Appearance, Clothing, BodyType, Expression, Action, Interaction, Position;
    }

    public sealed class XmlTags
    {
        public string Count, Artists, Style, Background, Environment, Perspective, Atmosphere, Lighting, Resolution, Quality, Objects, Other, ExtraTags;
    }

    public sealed class XmlPrompt
    {
        public readonly List<XmlCharacter> Characters = new List<XmlCharacter>();
        public readonly XmlTags Tags = new XmlTags();
        public string Caption; // prose, behind the tags
        public int Indent;     // spaces before every line

        // The text, or an exception with a sentence. Needs no engine. Any thread.
        public string Write()
        {
            Engine.CheckVersion();
            var sink = new LogSink();
            GCHandle self = GCHandle.Alloc(sink);
            try
            {
                using (var scratch = new Scratch())
                {
                    Native.sumi_xml_prompt_desc desc = Native.sumi_xml_prompt_defaults();
                    var characters = new Native.sumi_xml_character[Characters.Count];
                    for (int i = 0; i < characters.Length; i++) characters[i] = Of(Characters[i], scratch);
                    desc.characters = scratch.Pin(characters);
                    desc.character_count = characters.Length;
                    desc.tags = Of(Tags, scratch);
                    desc.caption = scratch.Text(Caption);
                    desc.indent = Indent;
                    desc.log.write = Marshal.GetFunctionPointerForDelegate(LogSink.Callback);
                    desc.log.user_data = GCHandle.ToIntPtr(self);
                    UIntPtr bytes;
                    Check(Native.sumi_xml_prompt_write(ref desc, null, UIntPtr.Zero, out bytes), sink);
                    var text = new byte[(int)bytes.ToUInt64()];
                    Check(Native.sumi_xml_prompt_write(ref desc, text, bytes, out bytes), sink);
                    return Encoding.UTF8.GetString(text, 0, text.Length - 1); // without the zero
                }
            }
            finally { self.Free(); }
        }

        private static void Check(Result result, LogSink sink)
        {
            if (result != Result.Ok) throw new SumiException(result, sink.TakeError() ?? Utf8.From(Native.sumi_result_text(result)));
        }

        private static Native.sumi_xml_character Of(XmlCharacter from, Scratch scratch)
        {
            return new Native.sumi_xml_character
            {
                name = scratch.Text(from.Name), gender = scratch.Text(from.Gender), appearance = scratch.Text(from.Appearance),
                clothing = scratch.Text(from.Clothing), body_type = scratch.Text(from.BodyType), expression = scratch.Text(from.Expression),
                action = scratch.Text(from.Action), interaction = scratch.Text(from.Interaction), position = scratch.Text(from.Position)
            };
        }

        private static Native.sumi_xml_tags Of(XmlTags from, Scratch scratch)
        {
            return new Native.sumi_xml_tags
            {
                count = scratch.Text(from.Count), artists = scratch.Text(from.Artists), style = scratch.Text(from.Style),
                background = scratch.Text(from.Background), environment = scratch.Text(from.Environment), perspective = scratch.Text(from.Perspective),
                atmosphere = scratch.Text(from.Atmosphere), lighting = scratch.Text(from.Lighting), resolution = scratch.Text(from.Resolution),
                quality = scratch.Text(from.Quality), objects = scratch.Text(from.Objects), other = scratch.Text(from.Other),
                extra_tags = scratch.Text(from.ExtraTags)
            };
        }
    }

    public sealed partial class ImageRequest
    {
        // With guidance: Negative null, and no EncodedNegative, is the model's own negative text (ModelInfo.NegativeText).
        public string Prompt = "", Negative;              // or encoded before:
        public Prompt EncodedPrompt, EncodedNegative;
        public ulong Seed;
        public int Width, Height, Steps;                  // 0 x 0, of edit models: the size that follows from the references, or without any the model's native one
        public float Guidance, Strength;                  // the number of the model's card: ModelInfo.GuidanceOff is none
        public float GuidanceBegin, GuidanceEnd;          // the part of the schedule in which guidance is on: 0 .. 1
        public float GuidanceNormLimit;                   // where GuidanceRule is a norm limit: times the norm of the positive prediction; 0: no limit
        public GuidanceRule GuidanceRule;
        public Solver Solver;
        public float Shift;                               // of the schedule; 0: the model's own
        public float[] Sigmas;                            // null: the model's own schedule, or that of Shift. Else Steps + 1 numbers in 0 .. 1, each below the one before
        public Picture StartImage, Mask;                  // image to image; inpainting: white is repainted
        public int MaskFeather;                           // pixels inside the mask's edge over which the new picture comes in; -1: nothing of StartImage is put back
        public List<Picture> References = new List<Picture>(); // of edit models: what the prompt speaks of, in this order
        public List<LoraUse> Loras = new List<LoraUse>();
        public List<ControlUse> Controls = new List<ControlUse>(); // nets that make the picture follow control pictures
        public uint DeadlineMilliseconds;                 // 0: none. Steps are left out, as many as needed
        public float StepCacheDb;                         // 0: off. With many steps: the PSNR in dB to keep, such as 40; evaluations are reused as far as that allows
        public int StepCacheEvery;                        // instead, 0: off. A fixed schedule: the first two evaluations are computed, every n-th after them and the last
        public float StepCache;                           // instead, 0: off. With many steps: the largest change over which evaluations are reused, such as 0.08
        public int PreviewEvery, Priority;                // a preview after every n-th step; 0: none
        private readonly Preset preset;

        public ImageRequest(Model model, Preset preset = Preset.Model)
        {
            this.preset = preset;
            Native.sumi_image_desc desc = model.Defaults(preset);
            Width = desc.width;
            Height = desc.height;
            Steps = desc.step_count;
            Guidance = desc.guidance.scale;
            GuidanceBegin = desc.guidance.begin;
            GuidanceEnd = desc.guidance.end;
            GuidanceNormLimit = desc.guidance.norm_limit;
            GuidanceRule = desc.guidance.rule;
            Shift = desc.shift;
            Strength = desc.start.strength;
            Solver = desc.solver;
            PreviewEvery = desc.preview_every;
            Priority = desc.priority;
        }

        // Where the picture goes instead of memory: SumiTexture.cs.
        partial void FindTarget(EngineHandle engine, ref Native.sumi_target[] targets);

        internal Native.sumi_image_desc Write(Model model, Scratch scratch)
        {
            var item = new Native.sumi_image_item { seed = Seed };
            if (EncodedPrompt != null) item.prompt = EncodedPrompt.PointerFor(model.Owner);
            else item.text = scratch.Text(Prompt);
            if (EncodedNegative != null) item.negative_prompt = EncodedNegative.PointerFor(model.Owner);
            else item.negative_text = scratch.Text(Negative);
            Native.sumi_image_desc desc = Native.sumi_image_defaults(model.Pointer, preset);
            desc.items = scratch.Pin(new[] { item });
            desc.item_count = 1;
            Native.sumi_target[] targets = null;
            FindTarget(model.Owner, ref targets);
            desc.targets = scratch.Pin(targets);
            desc.width = Width;
            desc.height = Height;
            desc.step_count = Steps;
            desc.guidance.scale = Guidance;
            desc.guidance.begin = GuidanceBegin;
            desc.guidance.end = GuidanceEnd;
            desc.guidance.norm_limit = GuidanceNormLimit;
            desc.guidance.rule = GuidanceRule;
            desc.shift = Shift;
            desc.sigmas = scratch.Pin(Sigmas);
            desc.start.strength = Strength;
            desc.solver = Solver;
            desc.start.image = scratch.Pixels(StartImage);
            desc.start.mask = scratch.Pixels(Mask);
            desc.start.mask_feather = MaskFeather;
            desc.references = scratch.Pixels(References);
            desc.reference_count = References.Count;
            desc.deadline_ms = DeadlineMilliseconds;
            desc.step_cache = StepCache;
            desc.step_cache_db = StepCacheDb;
            desc.step_cache_every = StepCacheEvery;
            desc.preview_every = PreviewEvery;
            desc.priority = Priority;
            desc.loras = LoraUse.Pin(Loras, model.Owner, scratch);
            desc.lora_count = Loras.Count;
            desc.controls = ControlUse.Pin(Controls, model.Owner, scratch);
            desc.control_count = Controls.Count;
            return desc;
        }
    }
}
