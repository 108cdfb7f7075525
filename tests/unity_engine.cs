// As much of UnityEngine as the components use, so that tests can compile it and drive its frames. A texture checks what Unity's would.
using System;
using System.Reflection;
using System.Runtime.InteropServices;

namespace UnityEngine
{
    public sealed class TooltipAttribute : Attribute { public TooltipAttribute(string text) { } }

    public class Object
    {
        public static int Destroyed;
        public static void Destroy(Object what) { Destroyed++; }
    }

    public class MonoBehaviour : Object
    {
        // Unity finds these by name.
        public void Tell(string message)
        {
            MethodInfo method = GetType().GetMethod(message, BindingFlags.Instance | BindingFlags.NonPublic | BindingFlags.DeclaredOnly, null, Type.EmptyTypes, null);
            method.Invoke(this, null);
        }
    }

    public struct Color32 { public byte r, g, b, a; }

    public enum TextureFormat { RGBA32 = 4 }
    public enum TextureWrapMode { Repeat = 0, Clamp = 1 }

    public class Texture2D : Object
    {
        public readonly int width, height;
        public TextureWrapMode wrapMode { get; set; }
        public byte[] Shown; // what the GPU would have
        private byte[] loaded;

        public Texture2D(int width, int height, TextureFormat format, bool mipChain)
        {
            this.width = width;
            this.height = height;
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
        public IntPtr GetNativeTexturePtr() { return Native; }
    }

    public class Material : Object { public Texture2D mainTexture { get; set; } }
    public class Renderer : Object
    {
        private readonly Material its = new Material();
        public Material material { get { return its; } }
    }

    namespace Rendering
    {
        public sealed class CommandBuffer
        {
            [UnmanagedFunctionPointer(CallingConvention.Cdecl)] private delegate void Event(int id, IntPtr data);
            private IntPtr function, data;
            public void Clear() { function = IntPtr.Zero; }
            public void IssuePluginEventAndData(IntPtr callback, int eventId, IntPtr what)
            {
                function = callback;
                data = what;
            }
            internal void Run() { if (function != IntPtr.Zero) ((Event)Marshal.GetDelegateForFunctionPointer(function, typeof(Event)))(0, data); }
        }
    }

    public static class Graphics
    {
        // Unity's thread that renders would do it later.
        public static void ExecuteCommandBuffer(Rendering.CommandBuffer commands) { commands.Run(); }
    }

    public static class Application { public static string streamingAssetsPath; }
    public static class Mathf { public static float Max(float a, float b) { return a > b ? a : b; } }
    public static class Debug
    {
        public static int Warnings;
        public static void LogWarning(object message, Object context) { Warnings++; }
    }
}
