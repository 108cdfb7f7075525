// As much of UnityEngine as the components use, so that tests can compile it and drive its frames. A texture checks what Unity's would.
using System;
using System.Reflection;
using System.Runtime.InteropServices;

namespace UnityEngine
{
    public sealed class TooltipAttribute : Attribute { public TooltipAttribute(string text) { } }

    // A destroyed object equals null, and what is of the renderer's goes in the order of its queue.
    public class Object
    {
        public static int Destroyed;
        private bool isDestroyed;

        public static void Destroy(Object what)
        {
            Destroyed++;
            what.isDestroyed = true;
            what.Destroying();
        }

        protected virtual void Destroying() { }
        public static bool operator ==(Object one, Object other) { return ReferenceEquals(Living(one), Living(other)); }
        public static bool operator !=(Object one, Object other) { return !(one == other); }
        public override bool Equals(object other) { return this == other as Object; }
        public override int GetHashCode() { return 0; }
        private static Object Living(Object of) { return ReferenceEquals(of, null) || of.isDestroyed ? null : of; }
    }

    public class Behaviour : Object
    {
        public GameObject gameObject { get; internal set; }
        public virtual bool enabled { get; set; }
    }

    public class MonoBehaviour : Behaviour
    {
        public Behaviour[] Beside = new Behaviour[0]; // the object's components, set by a test
        private bool isEnabled = true;

        public T GetComponent<T>() where T : class { return Array.Find(Beside, each => each is T) as T; }

        public override bool enabled
        {
            get { return isEnabled; }
            set
            {
                if (isEnabled == value) return;
                isEnabled = value;
                Tell(value ? "OnEnable" : "OnDisable");
            }
        }

        // Unity finds these by name.
        public void Tell(string message)
        {
            MethodInfo method = GetType().GetMethod(message, BindingFlags.Instance | BindingFlags.NonPublic | BindingFlags.DeclaredOnly, null, Type.EmptyTypes, null);
            method.Invoke(this, null);
        }
    }

    public struct Color32 { public byte r, g, b, a; }

    [Flags] public enum HideFlags { None = 0, HideAndDontSave = 61 }

    public sealed class GameObject : Object
    {
        public readonly string name;
        public HideFlags hideFlags { get; set; }
        public GameObject(string name) { this.name = name; }
        public T AddComponent<T>() where T : Behaviour, new() { return new T { gameObject = this, enabled = true }; }
    }

    public enum CameraClearFlags { Skybox = 1, SolidColor = 2 }

    // Draws the planes that a test names: as depth of its own, reversed or not, at the lowest row first.
    public sealed class Camera : Behaviour
    {
        public static Func<float, float, float> Scene; // the distance at a place of the view: 0 .. 1 to the right, 0 .. 1 upwards
        public static int Drawn;
        public float nearClipPlane { get; set; }
        public float farClipPlane { get; set; }
        public bool orthographic { get; set; }
        public int pixelWidth { get { return 16; } }
        public int pixelHeight { get { return 48; } }
        public Rect rect { get; set; }
        public CameraClearFlags clearFlags { get; set; }
        public RenderTexture targetTexture { get; set; }
        public void ResetAspect() { }
        public void ResetProjectionMatrix() { }

        public void CopyFrom(Camera other)
        {
            nearClipPlane = other.nearClipPlane;
            farClipPlane = other.farClipPlane;
            orthographic = other.orthographic;
            clearFlags = other.clearFlags;
            enabled = other.enabled;
        }

        public void Render()
        {
            if (targetTexture.format != RenderTextureFormat.Depth || enabled || clearFlags != CameraClearFlags.SolidColor) throw new InvalidOperationException("this camera draws depth, when it is told");
            Drawn++;
            float near = nearClipPlane, far = farClipPlane;
            for (int y = 0; y < targetTexture.height; y++)
                for (int x = 0; x < targetTexture.width; x++)
                {
                    double away = Scene((x + 0.5f) / targetTexture.width, (y + 0.5f) / targetTexture.height);
                    double share = away >= far ? 1 : orthographic ? (away - near) / (far - near) : far * (away - near) / (away * (far - near));
                    targetTexture.Values[y * targetTexture.width + x] = (float)(SystemInfo.usesReversedZBuffer ? 1 - share : share);
                }
        }
    }

    public enum RenderTextureFormat { Depth = 1, RFloat = 14 }
    public enum RenderTextureReadWrite { Linear = 1 }

    public sealed class RenderTexture : Object
    {
        public static int Lent;
        public int width, height;
        public RenderTextureFormat format;
        public float[] Values;

        public static RenderTexture GetTemporary(int width, int height, int depthBuffer, RenderTextureFormat format, RenderTextureReadWrite readWrite)
        {
            if ((format == RenderTextureFormat.Depth) != (depthBuffer > 0)) throw new ArgumentException("a depth texture, and no other, has bits of depth");
            Lent++;
            return new RenderTexture { width = width, height = height, format = format, Values = new float[width * height] };
        }

        public static void ReleaseTemporary(RenderTexture texture)
        {
            Lent--;
            texture.Values = null;
        }
    }

    public sealed class Shader : Object { }

    public static class Resources
    {
        public static string Folder; // of the package, set by a test
        public static T Load<T>(string path) where T : Object, new() { return System.IO.File.Exists(Folder + "/" + path + ".shader") ? new T() : null; }
    }

    public enum TextureFormat { RGBA32 = 4, RFloat = 18 }
    public enum TextureWrapMode { Repeat = 0, Clamp = 1 }

    namespace Experimental.Rendering
    {
        public enum GraphicsFormat { None = 0, R8G8B8A8_SRGB = 4, R8G8B8A8_UNorm = 8 }
    }

    public enum ColorSpace { Gamma = 0, Linear = 1 }
    public static class QualitySettings { public static ColorSpace activeColorSpace = ColorSpace.Gamma; }
    public static class SystemInfo
    {
        public static Rendering.GraphicsDeviceType graphicsDeviceType = Rendering.GraphicsDeviceType.OpenGLCore;
        public static bool usesReversedZBuffer, supportsAsyncGPUReadback = true;
        public static bool SupportsRenderTextureFormat(RenderTextureFormat format) { return true; }
    }

    public class Texture2D : Object
    {
        public readonly int width, height;
        public readonly int mipmapCount;
        public readonly Experimental.Rendering.GraphicsFormat graphicsFormat;
        public TextureWrapMode wrapMode { get; set; }
        public byte[] Shown; // what the GPU would have
        private byte[] loaded;

        // Without `linear` it is sRGB, where the project is linear.
        public Texture2D(int width, int height, TextureFormat format, bool mipChain, bool linear = false)
        {
            this.width = width;
            this.height = height;
            mipmapCount = mipChain ? 8 : 1;
            graphicsFormat = linear || QualitySettings.activeColorSpace == ColorSpace.Gamma ? Experimental.Rendering.GraphicsFormat.R8G8B8A8_UNorm : Experimental.Rendering.GraphicsFormat.R8G8B8A8_SRGB;
        }

        public void LoadRawTextureData(byte[] data)
        {
            if (data.Length != width * height * 4) throw new ArgumentException("LoadRawTextureData: wrong size");
            loaded = (byte[])data.Clone();
        }

        public void Apply(bool updateMipmaps) { Shown = loaded; }
        public bool isReadable = true;
        public Color32[] GetPixels32()
        {
            var colours = new Color32[width * height];
            for (int i = 0; i < colours.Length; i++) colours[i] = new Color32 { r = loaded[4 * i], g = loaded[4 * i + 1], b = loaded[4 * i + 2], a = loaded[4 * i + 3] };
            return colours;
        }
        public IntPtr Native; // the name of an OpenGL texture, set by a test
        private static readonly Texture2D white = new Texture2D(4, 4, TextureFormat.RGBA32, false);
        public static Texture2D whiteTexture { get { return white; } }

        // Waits until the thread that renders has done everything.
        public IntPtr GetNativeTexturePtr()
        {
            if (this == null) throw new NullReferenceException("the texture is destroyed");
            Renders.host_flush();
            return Native;
        }

        protected override void Destroying() { if (Native != IntPtr.Zero) Renders.host_release((int)Native); }
    }

    // The thread that renders, and its queue: tests/unity_plugin_host.c.
    public static class Renders
    {
        [DllImport("unity_plugin_host", CallingConvention = CallingConvention.Cdecl)] public static extern void host_execute(IntPtr function, IntPtr data);
        [DllImport("unity_plugin_host", CallingConvention = CallingConvention.Cdecl)] public static extern void host_flush();
        [DllImport("unity_plugin_host", CallingConvention = CallingConvention.Cdecl)] public static extern void host_hold(int is_held);
        [DllImport("unity_plugin_host", CallingConvention = CallingConvention.Cdecl)] public static extern void host_release(int texture);
        [DllImport("unity_plugin_host", CallingConvention = CallingConvention.Cdecl)] public static extern void host_context(int is_current);
    }

    public class Material : Object
    {
        public Material() { }
        public Material(Shader shader) { if (shader == null) throw new ArgumentNullException("shader"); }
        public Texture2D mainTexture { get; set; }
    }
    public class Renderer : Object
    {
        private readonly Material its = new Material();
        public Material material { get { return its; } }
    }

    namespace Rendering
    {
        public struct AsyncGPUReadbackRequest
        {
            internal float[] Values;
            public bool hasError { get { return Values == null; } }
            public Unity.Collections.NativeArray<T> GetData<T>(int layer = 0) where T : struct { return new Unity.Collections.NativeArray<T> { Values = (T[])(object)Values }; }
        }

        // Calls back in a later frame: Complete.
        public static class AsyncGPUReadback
        {
            public static bool Fails;
            private static Action asked;
            public static void Request(RenderTexture from, int mip, TextureFormat format, Action<AsyncGPUReadbackRequest> callback)
            {
                if (from.format != RenderTextureFormat.RFloat || format != TextureFormat.RFloat) throw new ArgumentException("floats are read as floats");
                float[] values = Fails ? null : (float[])from.Values.Clone();
                asked += () => callback(new AsyncGPUReadbackRequest { Values = values });
            }

            public static void Complete()
            {
                Action all = asked;
                asked = null;
                if (all != null) all();
            }
        }

        public enum GraphicsDeviceType { Direct3D11 = 2, OpenGLCore = 17, Direct3D12 = 18, Vulkan = 21 }

        public sealed class CommandBuffer
        {
            internal IntPtr Function, Data;
            public void Clear() { Function = IntPtr.Zero; }
            public void IssuePluginEventAndData(IntPtr callback, int eventId, IntPtr data)
            {
                Function = callback;
                Data = data;
            }
        }
    }

    public static class Graphics
    {
        public static void Blit(RenderTexture source, RenderTexture dest, Material mat)
        {
            if (source.width != dest.width || source.height != dest.height || mat == null) throw new ArgumentException("a copy of the same size by a material");
            source.Values.CopyTo(dest.Values, 0);
        }

        // Copies the commands into the queue of the thread that renders, which comes to them a frame later.
        public static void ExecuteCommandBuffer(Rendering.CommandBuffer commands)
        {
            if (commands.Function != IntPtr.Zero) Renders.host_execute(commands.Function, commands.Data);
        }
    }

    public enum RuntimeInitializeLoadType { SubsystemRegistration = 4 }
    public sealed class RuntimeInitializeOnLoadMethodAttribute : Attribute { public RuntimeInitializeOnLoadMethodAttribute(RuntimeInitializeLoadType when) { } }

    public struct Rect { public Rect(float x, float y, float width, float height) { } }

    public static class GUI
    {
        public static string TextField(Rect position, string text) { return text; }
        public static bool Button(Rect position, string text) { return true; } // is pressed in every frame
        public static void Label(Rect position, string text) { }
        public static void DrawTexture(Rect position, Texture2D image) { }
    }

    public static class Application
    {
        public static string streamingAssetsPath;
        public static event Action quitting;
        public static void Quit() { if (quitting != null) quitting(); }
    }
    public static class Mathf { public static float Max(float a, float b) { return a > b ? a : b; } }
    public static class Debug
    {
        public static int Warnings;
        public static readonly System.Collections.Generic.List<string> Lines = new System.Collections.Generic.List<string>(); // of all levels
        public static void Log(object message, Object context) { Lines.Add(message.ToString()); }
        public static void LogError(object message, Object context) { Lines.Add(message.ToString()); }
        public static void LogWarning(object message, Object context)
        {
            Warnings++;
            Lines.Add(message.ToString());
        }
    }
}

namespace Unity.Collections
{
    public struct NativeArray<T> where T : struct
    {
        internal T[] Values;
        public T[] ToArray() { return (T[])Values.Clone(); }
    }
}

namespace UnityEditor
{
    public sealed class InitializeOnLoadMethodAttribute : Attribute { }

    public static class AssemblyReloadEvents
    {
        public delegate void AssemblyReloadCallback();
        public static event AssemblyReloadCallback beforeAssemblyReload;
        public static void Tell() { if (beforeAssemblyReload != null) beforeAssemblyReload(); }
    }

    public static class EditorApplication
    {
        public static event System.Action quitting;
        public static void Quit() { if (quitting != null) quitting(); }
    }

    public sealed class MenuItemAttribute : Attribute { public MenuItemAttribute(string path) { } }
    public static class AssetDatabase { public static void Refresh() { } }

    public static class SessionState
    {
        private static readonly System.Collections.Generic.Dictionary<string, bool> values = new System.Collections.Generic.Dictionary<string, bool>();
        public static bool GetBool(string key, bool without) { return values.ContainsKey(key) ? values[key] : without; }
        public static void SetBool(string key, bool value) { values[key] = value; }
    }

    public static class EditorUtility
    {
        public static string Shown = "", Chosen = "";
        public static bool DisplayDialog(string title, string message, string ok)
        {
            Shown = message;
            return true;
        }
        public static string OpenFolderPanel(string title, string folder, string defaultName) { return Chosen; }
    }

    namespace PackageManager
    {
        public sealed class PackageInfo
        {
            public static string Path; // set by a test; null: the assembly is of no package
            public string resolvedPath { get { return Path; } }
            public static PackageInfo FindForAssembly(System.Reflection.Assembly assembly) { return Path != null ? new PackageInfo() : null; }
        }
    }
}
