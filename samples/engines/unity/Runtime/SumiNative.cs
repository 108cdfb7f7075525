// sumi.h and sumi_xml.h for P/Invoke: the same names, the same layouts, nothing more. Sumi.cs is what a game uses.
//
// Structs hold only what has the same bytes on both sides (blittable): they are passed and returned by value, and are never copied by a marshaller. So a bool is a byte, an array is written out,
// a function or text is an IntPtr. tests/test_unity.sh compares every size, offset and enum value here with the stored table of the header's version.
using System;
using System.Runtime.InteropServices;

namespace Sumi
{
    public enum Result
    {
        Ok = 0,
        InvalidArgument = 1, DescNotInitialized = 2, StaleHandle = 3, WrongState = 4, QueueFull = 5, NotSupported = 6, VersionMismatch = 7, Busy = 8,
        OutOfHostMemory = 10, OutOfDeviceMemory = 11, BudgetTooSmall = 12,
        FileNotFound = 20, FileReadFailed = 21, FileTruncated = 22, FileMalformed = 23,
        ModelUnknown = 30, TensorMissing = 31, TensorMismatch = 32, LoraNoMatch = 33, TextInvalid = 34,
        NoDevice = 40, DriverTooOld = 41, DeviceUnsupported = 42, DeviceLost = 43,
        Cancelled = 50, Timeout = 51, NotFinite = 52,
        Internal = 90
    }

    public enum LogLevel { Error = 0, Warning = 1, Info = 2, Debug = 3 }
    public enum Stage { Wait = 0, Load = 1, Prepare = 2, Text = 3, Image = 4, Denoise = 5, Decode = 6, Transfer = 7, Compile = 8 }
    public enum Backend { Auto = 0, Cpu = 1, Cuda = 2 }
    public enum Pump { Update = 0, Thread = 1 }
    public enum JobState { None = 0, Queued = 1, Running = 2, Done = 3, Failed = 4, Cancelled = 5 }
    public enum WeightFormat { Auto = 0, Bf16 = 1, Fp8 = 2, AsStored = 3, Int8 = 4, Int4 = 5 }
    public enum AttentionFormat { Auto = 0, Bf16 = 1, EightBit = 2 }
    public enum Preset { Model = 0, Preview = 1, Standard = 2, Quality = 3, Fast = 4, Lean = 5 }
    public enum Solver { Euler = 0, Heun = 1, Midpoint = 2, Dpmpp_2m = 3, HeunFull = 4, Rk4 = 5, ResMultistep = 6 }
    public enum GuidanceFormula { FromPositive = 0, FromNegative = 1 }
    public enum GuidanceRule { Model = 0, Plain = 1, NormLimit = 2, NormRescale = 3 }
    public enum NoiseSource { TorchCpu = 0, TorchCuda = 1, Given = 2 }
    public enum DepthFormat { F32 = 0, U16 = 1 }
    public enum DepthKind { Standard = 0, Reversed = 1, OpenGL = 2, Distance = 3 }
    public enum Posterior { Sample = 0, Mode = 1 }
    public enum PromptFormat { F32 = 0, Bf16 = 1, Int8 = 2 }
    public enum ExternalKind
    {
        None = 0, GlTexture = 1, GlBuffer = 2, VulkanMemory = 3, D3d12Resource = 4, D3d12Heap = 5, D3d11Resource = 6, D3d11Texture = 7,
        VulkanTimeline = 20, VulkanSemaphore = 21, D3d12Fence = 22, D3d11Fence = 23, D3d11KeyedMutex = 24
    }
    public enum Format { Rgba8 = 0, Rgb8 = 1, Rgb32f = 2, Bgra8 = 3, Rgba16f = 4 }

    internal static class Native
    {
        // libsumi.so, sumi.dll. On a platform that links plug-ins into the program it would be "__Internal".
        private const string Library = "sumi";
        private const CallingConvention Convention = CallingConvention.Cdecl;

        public const uint HeaderVersion = 2000; // SUMI_VERSION_NUMBER of the header that is bound here: 0.2.0
        public const uint Forever = uint.MaxValue;

#pragma warning disable 0649 // members that only C writes
        public struct sumi_job { public ulong id; }
        public struct sumi_allocator { public IntPtr allocate, release, user_data; }
        public struct sumi_device_allocator { public IntPtr allocate, release, user_data; }
        public struct sumi_files { public IntPtr open, read, map, close, user_data; }
        public struct sumi_tasks { public int worker_count; public IntPtr begin, finish, user_data; }
        public struct sumi_log { public IntPtr write, user_data; }
        public struct sumi_tracer { public IntPtr span, user_data; }
        public struct sumi_completion { public IntPtr ended, user_data; }
        public struct sumi_trace_span { public IntPtr name; public int track; public Stage stage; public int step; public ulong job, begin_ns, end_ns; }

        public struct sumi_engine_desc__cuda { public int ordinal; public IntPtr uuid, luid, context, stream; } // has no name of its own in C

        public struct sumi_engine_desc
        {
            public uint cookie;
            public Backend backend;
            public sumi_engine_desc__cuda cuda;
            public sumi_log log;
            public IntPtr allocator, device_allocator, files, tasks, completion, tracer;
            public Pump pump;
            public int job_capacity;
            public uint max_slice_us;
            public ulong memory_budget_bytes;
            public int cpu_thread_count;
        }

        public struct sumi_engine_info
        {
            public IntPtr backend, device;
            public int compute_capability, driver_version;
            public ulong device_bytes;
            public ulong held_bytes_0, held_bytes_1, held_bytes_2, held_bytes_3;
            public ulong host_bytes, host_peak_bytes, allocation_count;
            public int job_count;
            public ulong uncounted_bytes;
            public byte device_uuid_0, device_uuid_1, device_uuid_2, device_uuid_3, device_uuid_4, device_uuid_5, device_uuid_6, device_uuid_7;
            public byte device_uuid_8, device_uuid_9, device_uuid_10, device_uuid_11, device_uuid_12, device_uuid_13, device_uuid_14, device_uuid_15;
            public byte device_luid_0, device_luid_1, device_luid_2, device_luid_3, device_luid_4, device_luid_5, device_luid_6, device_luid_7;
        }

        public struct sumi_job_status
        {
            public JobState state;
            public Stage stage;
            public int step, step_count;
            public float progress, seconds_left;
            public uint preview_version;
            public Result result;
            public IntPtr message;
            public float stage_seconds_0, stage_seconds_1, stage_seconds_2, stage_seconds_3, stage_seconds_4, stage_seconds_5, stage_seconds_6, stage_seconds_7, stage_seconds_8;
            public double device_seconds;
            public float pending_us;
            public int jobs_ahead;
            public ulong held_bytes_0, held_bytes_1, held_bytes_2, held_bytes_3;
            public int cut_tokens;
            public IntPtr user_data;
            public byte paused;
        }

        public struct sumi_model_desc
        {
            public uint cookie;
            public IntPtr path, transformer_path, text_encoder_path, tokenizer_path, vae_path;
            public WeightFormat weights;
            public byte without_text_encoder, without_vae_encoder;
            public int priority;
            public IntPtr user_data;
            public IntPtr text_encoder_2_path, tokenizer_2_path, vision_path, processor_path, variant;
            public WeightFormat text_weights;
            public AttentionFormat attention;
        }

        public struct sumi_size { public int width, height; }
        public struct sumi_model_info
        {
            public IntPtr family, variant;
            public byte takes_references, uses_guidance, has_text_encoder, has_vae_encoder, has_alpha;
            public float guidance, guidance_off;
            public GuidanceFormula guidance_formula;
            public GuidanceRule guidance_rule;
            public byte ignores_guidance;
            public IntPtr negative_text;
            public int size_multiple, max_size, native_size;
            public IntPtr sizes;
            public int size_count, latent_channels, latent_factor, max_prompt_tokens;
            public ulong weight_bytes;
            public int min_references, max_references;
            public WeightFormat weights, text_weights;
            public AttentionFormat attention;
        }

        public struct sumi_pixels { public IntPtr data; public int width, height, row_bytes, channel_count; }
        public struct sumi_prompt_desc { public uint cookie; public IntPtr model, text, references; public int reference_count, priority; public IntPtr user_data, loras; public int lora_count; }
        public struct sumi_prompt_encoder { public int token_count, width; public IntPtr features; }
        public struct sumi_prompt_info { public int encoder_count; public sumi_prompt_encoder encoders_0, encoders_1, encoders_2, encoders_3; public int reference_count; public IntPtr adapters; }
        public struct sumi_xml_character { public IntPtr name, gender, appearance, clothing, body_type, expression, action, interaction, position; }
        public struct sumi_xml_tags { public IntPtr count, artists, style, background, environment, perspective, atmosphere, lighting, resolution, quality, objects, other, extra_tags; }
        public struct sumi_xml_prompt_desc
        {
            public uint cookie;
            public int indent;
            public IntPtr characters;
            public int character_count;
            public sumi_xml_tags tags;
            public IntPtr caption;
            public sumi_log log;
        }
        public struct sumi_lora_desc { public uint cookie; public IntPtr model, path; public int priority; public IntPtr user_data; }
        public struct sumi_lora_use { public IntPtr lora; public float scale, text_scale; public byte without_text; }
        public struct sumi_control_desc { public uint cookie; public IntPtr model, path; public int priority; public IntPtr user_data; }
        public struct sumi_control_info { public IntPtr kind; public float strength; public byte takes_picture, takes_inpainting; public ulong weight_bytes; }
        public struct sumi_control_picture { public IntPtr picture, inpaint, mask, depth; }
        public struct sumi_control_use { public IntPtr control, pictures; public int picture_count; public float strength, start, end; }
        public struct sumi_control_view { public int control, item; public IntPtr into; public UIntPtr capacity; }
        public struct sumi_sync { public IntPtr semaphore; public ulong value; }
        public struct sumi_depth
        {
            public IntPtr data;
            public DepthFormat format;
            public int width, height, row_bytes;
            public byte bottom_up;
            public DepthKind kind;
            public float near_plane, far_plane, low, high;
            public IntPtr external;
            public sumi_sync wait, signal;
        }
        public struct sumi_target { public Format format; public IntPtr host_memory; public int row_bytes; public ulong device_address; public IntPtr @event, external; public byte bottom_up; public sumi_sync wait, signal; }
        public struct sumi_import_desc
        {
            public uint cookie;
            public ExternalKind kind;
            public int fd;
            public IntPtr handle;
            public uint gl_name, gl_target;
            public IntPtr device_uuid, device_luid;
            public int width, height;
            public Format format;
            public byte is_image, is_color_attachment;
            public int level_count, row_bytes;
            public ulong memory_bytes, offset;
            public byte is_dedicated, takes_previews, is_depth;
        }
        public struct sumi_image_item { public IntPtr text, prompt, negative_text, negative_prompt; public ulong seed; }

        public struct sumi_guidance { public float scale, begin, end; public GuidanceRule rule; public float norm_limit; }
        public struct sumi_noise { public NoiseSource source; public int multiprocessors, threads_per_multiprocessor; public IntPtr values; }
        public struct sumi_image_start { public IntPtr image, latents; public float strength; public Posterior posterior; public IntPtr noise_values, mask; public int mask_feather; }

        public struct sumi_image_desc
        {
            public uint cookie;
            public IntPtr model, items;
            public int item_count, width, height, step_count;
            public Solver solver;
            public sumi_guidance guidance;
            public float shift;
            public IntPtr sigmas;
            public sumi_noise noise;
            public sumi_image_start start;
            public IntPtr references;
            public int reference_count;
            public IntPtr loras;
            public int lora_count;
            public IntPtr targets;
            public int preview_every;
            public uint deadline_ms;
            public float step_cache;
            public byte profile;
            public int priority;
            public IntPtr user_data, controls;
            public int control_count;
            public float step_cache_db;
            public int step_cache_every;
        }

        public struct sumi_memory
        {
            public ulong weights, arena, staging, images, host;
            public byte tiles_vae;
            public ulong streamed, uncounted, needed;
        }
        public struct sumi_image { public IntPtr pixels; public int width, height, row_bytes; public Format format; public ulong seed; public int step_count, evaluation_count, reused_count; public float predicted_db; public byte has_alpha; public ulong handle; }
        public struct sumi_encode_desc
        {
            public uint cookie;
            public IntPtr model, image;
            public int width, height;
            public Posterior posterior;
            public ulong seed;
            public IntPtr noise_values;
            public int priority;
            public IntPtr user_data;
        }
#pragma warning restore 0649

        [UnmanagedFunctionPointer(Convention)] public delegate void WriteLog(LogLevel level, Result result, IntPtr text, IntPtr user_data);

        [DllImport(Library, CallingConvention = Convention)] public static extern IntPtr sumi_version();
        [DllImport(Library, CallingConvention = Convention)] public static extern Result sumi_check_version(uint header_version);
        [DllImport(Library, CallingConvention = Convention)] public static extern IntPtr sumi_result_text(Result result);

        [DllImport(Library, CallingConvention = Convention)] public static extern sumi_engine_desc sumi_engine_defaults();
        [DllImport(Library, CallingConvention = Convention)] public static extern Result sumi_engine_create(ref sumi_engine_desc desc, out IntPtr out_engine);
        [DllImport(Library, CallingConvention = Convention)] public static extern void sumi_engine_destroy(IntPtr engine);
        [DllImport(Library, CallingConvention = Convention)] public static extern void sumi_engine_update(EngineHandle engine, uint budget_us);
        [DllImport(Library, CallingConvention = Convention)] public static extern Result sumi_engine_set_memory_budget(EngineHandle engine, ulong bytes);
        [DllImport(Library, CallingConvention = Convention)] public static extern sumi_engine_info sumi_engine_get_info(EngineHandle engine);
        [DllImport(Library, CallingConvention = Convention)] public static extern Result sumi_engine_last_error(EngineHandle engine, byte[] into, UIntPtr capacity);

        [DllImport(Library, CallingConvention = Convention)] public static extern sumi_job_status sumi_job_poll(EngineHandle engine, sumi_job job);
        [DllImport(Library, CallingConvention = Convention)] public static extern void sumi_job_cancel(EngineHandle engine, sumi_job job);
        [DllImport(Library, CallingConvention = Convention)] public static extern Result sumi_job_set_priority(EngineHandle engine, sumi_job job, int priority);
        [DllImport(Library, CallingConvention = Convention)] public static extern Result sumi_job_pause(EngineHandle engine, sumi_job job, byte paused);
        [DllImport(Library, CallingConvention = Convention)] public static extern int sumi_job_list(EngineHandle engine, [Out] sumi_job[] into, int capacity);
        [DllImport(Library, CallingConvention = Convention)] public static extern Result sumi_job_wait(EngineHandle engine, sumi_job job, uint timeout_ms);
        [DllImport(Library, CallingConvention = Convention)] public static extern void sumi_job_discard(EngineHandle engine, sumi_job job);

        [DllImport(Library, CallingConvention = Convention)] public static extern sumi_model_desc sumi_model_defaults();
        [DllImport(Library, CallingConvention = Convention)] public static extern Result sumi_submit_model(EngineHandle engine, ref sumi_model_desc desc, out sumi_job out_job);
        [DllImport(Library, CallingConvention = Convention)] public static extern Result sumi_fetch_model(EngineHandle engine, sumi_job job, out IntPtr out_model);
        [DllImport(Library, CallingConvention = Convention)] public static extern sumi_model_info sumi_model_get_info(IntPtr model);
        [DllImport(Library, CallingConvention = Convention)] public static extern void sumi_model_close(IntPtr model);

        [DllImport(Library, CallingConvention = Convention)] public static extern sumi_prompt_desc sumi_prompt_defaults(IntPtr model);
        [DllImport(Library, CallingConvention = Convention)] public static extern Result sumi_submit_prompt(EngineHandle engine, ref sumi_prompt_desc desc, out sumi_job out_job);
        [DllImport(Library, CallingConvention = Convention)] public static extern Result sumi_fetch_prompt(EngineHandle engine, sumi_job job, out IntPtr out_prompt);
        [DllImport(Library, CallingConvention = Convention)] public static extern sumi_prompt_info sumi_prompt_get_info(IntPtr prompt);
        [DllImport(Library, CallingConvention = Convention)] public static extern UIntPtr sumi_prompt_save(IntPtr prompt, byte[] into, UIntPtr capacity);
        [DllImport(Library, CallingConvention = Convention)] public static extern UIntPtr sumi_prompt_save_as(IntPtr prompt, PromptFormat format, byte[] into, UIntPtr capacity);
        [DllImport(Library, CallingConvention = Convention)] public static extern Result sumi_prompt_load(IntPtr model, byte[] data, UIntPtr bytes, out IntPtr out_prompt);
        [DllImport(Library, CallingConvention = Convention)] public static extern void sumi_prompt_release(IntPtr prompt);

        [DllImport(Library, CallingConvention = Convention)] public static extern sumi_xml_prompt_desc sumi_xml_prompt_defaults();
        [DllImport(Library, CallingConvention = Convention)]
        public static extern Result sumi_xml_prompt_write(ref sumi_xml_prompt_desc desc, byte[] into, UIntPtr capacity, out UIntPtr out_bytes);

        [DllImport(Library, CallingConvention = Convention)] public static extern sumi_lora_desc sumi_lora_defaults(IntPtr model);
        [DllImport(Library, CallingConvention = Convention)] public static extern Result sumi_submit_lora(EngineHandle engine, ref sumi_lora_desc desc, out sumi_job out_job);
        [DllImport(Library, CallingConvention = Convention)] public static extern Result sumi_fetch_lora(EngineHandle engine, sumi_job job, out IntPtr out_lora);
        [DllImport(Library, CallingConvention = Convention)] public static extern void sumi_lora_release(IntPtr lora);

        [DllImport(Library, CallingConvention = Convention)] public static extern sumi_control_desc sumi_control_defaults(IntPtr model);
        [DllImport(Library, CallingConvention = Convention)] public static extern Result sumi_submit_control(EngineHandle engine, ref sumi_control_desc desc, out sumi_job out_job);
        [DllImport(Library, CallingConvention = Convention)] public static extern Result sumi_fetch_control(EngineHandle engine, sumi_job job, out IntPtr out_control);
        [DllImport(Library, CallingConvention = Convention)] public static extern void sumi_control_release(IntPtr control);
        [DllImport(Library, CallingConvention = Convention)] public static extern sumi_control_info sumi_control_get_info(IntPtr control);
        [DllImport(Library, CallingConvention = Convention)] public static extern sumi_control_use sumi_control_use_defaults(IntPtr control);
        [DllImport(Library, CallingConvention = Convention)] public static extern sumi_depth sumi_depth_defaults();
        [DllImport(Library, CallingConvention = Convention)] public static extern Result sumi_job_control_picture(EngineHandle engine, sumi_job job, ref sumi_control_view view);

        [DllImport(Library, CallingConvention = Convention)] public static extern sumi_image_desc sumi_image_defaults(IntPtr model, Preset preset);
        [DllImport(Library, CallingConvention = Convention)] public static extern Result sumi_image_size(ref sumi_image_desc desc, out sumi_size out_size);
        [DllImport(Library, CallingConvention = Convention)] public static extern Result sumi_image_memory(EngineHandle engine, ref sumi_image_desc desc, out sumi_memory out_memory);
        [DllImport(Library, CallingConvention = Convention)] public static extern Result sumi_submit_images(EngineHandle engine, ref sumi_image_desc desc, out sumi_job out_job);
        [DllImport(Library, CallingConvention = Convention)] public static extern Result sumi_fetch_images(EngineHandle engine, sumi_job job, [Out] sumi_image[] out_images, int capacity);
        [DllImport(Library, CallingConvention = Convention)] public static extern void sumi_images_release(EngineHandle engine, [In, Out] sumi_image[] images, int count);
        [DllImport(Library, CallingConvention = Convention)]
        public static extern Result sumi_job_preview(EngineHandle engine, sumi_job job, int item, IntPtr into, UIntPtr capacity, out sumi_image out_image);

        [DllImport(Library, CallingConvention = Convention)] public static extern sumi_encode_desc sumi_encode_defaults(IntPtr model);
        [DllImport(Library, CallingConvention = Convention)] public static extern Result sumi_submit_encode(EngineHandle engine, ref sumi_encode_desc desc, out sumi_job out_job);
        [DllImport(Library, CallingConvention = Convention)] public static extern Result sumi_fetch_latents(EngineHandle engine, sumi_job job, [Out] float[] into, UIntPtr capacity);
        [DllImport(Library, CallingConvention = Convention)]
        public static extern Result sumi_job_latents(EngineHandle engine, sumi_job job, int item, [Out] float[] into, UIntPtr capacity);
        [DllImport(Library, CallingConvention = Convention)] public static extern sumi_import_desc sumi_import_defaults();
        // The caller is on the thread that its graphics API asks for; samples/engines/unity/Native~ does that.
        [DllImport(Library, CallingConvention = Convention)] public static extern Result sumi_import(EngineHandle engine, ref sumi_import_desc desc, out IntPtr out_external);
        [DllImport(Library, CallingConvention = Convention)] public static extern void sumi_external_release(IntPtr external);
        [DllImport(Library, CallingConvention = Convention)]
        public static extern Result sumi_job_show_preview(EngineHandle engine, sumi_job job, int item, ref sumi_target target);
        // Not bound: sumi_open_model, sumi_generate (Job.Wait does the same), sumi_job_profile (experimental).
    }
}
