// What a camera sees, as a depth buffer for a control net: SumiGenerator.depth, or for scripts of your own
//
//     Depth seen = await depth.CaptureAsync(512, 512);           // some frames later
//     request.Controls.Add(new ControlUse(net) { Depth = seen });
//
// A second, hidden camera draws the scene once more for each capture, into a depth texture of the image's size, and a blit copies that to floats (SumiDepth.shader), which AsyncGPUReadback brings to memory. Nothing is drawn
// between captures. So it needs no depth texture of the camera's, works in the built-in and in the universal pipeline, and has neither jitter nor antialiasing nor another aspect than the image. What writes no depth
// (transparent objects) is not in it.
using System;
using System.Threading.Tasks;
using UnityEngine;
using UnityEngine.Rendering;

namespace Sumi
{
    public sealed class SumiDepth : MonoBehaviour
    {
        [Tooltip("Empty: the camera beside this component.")]
        public Camera view;
        [Tooltip("Distances that become white and black, in units of the scene, once per shot: then greys do not flicker from frame to frame. Both 0: from each depth buffer.")]
        public float low, high;
        [Tooltip("Switch it on if control pictures are upside down.")]
        public bool flipped;

        private Camera eye; // the hidden one
        private Material copies;
        private int session; // each time that the component is switched off: captures that began before are over

        // Width and height of the image; 0: of what the camera draws into. Throws SumiException with a sentence where that cannot be, and is cancelled when the component is switched off. Not inside a camera's
        // drawing (OnPostRender and the like).
        public Task<Depth> CaptureAsync(int width, int height)
        {
            var task = new TaskCompletionSource<Depth>();
            Camera from = view != null ? view : GetComponent<Camera>();
            string trouble = Trouble(from);
            if (trouble != "")
            {
                task.SetException(new SumiException(Result.NotSupported, trouble));
                return task.Task;
            }
            if (width <= 0 || height <= 0)
            {
                width = from.pixelWidth;
                height = from.pixelHeight;
            }
            bool isLinear = from.orthographic;
            var depth = new Depth
            {
                Width = width, Height = height, BottomUp = !flipped, // textures begin with the last row
                Kind = SystemInfo.usesReversedZBuffer ? DepthKind.Reversed : DepthKind.Standard,
                NearPlane = from.nearClipPlane, FarPlane = from.farClipPlane, Low = low, High = high
            };
            int mine = session;
            RenderTexture drawn = null, floats = null;
            try
            {
                drawn = RenderTexture.GetTemporary(width, height, 32, RenderTextureFormat.Depth, RenderTextureReadWrite.Linear);
                floats = RenderTexture.GetTemporary(width, height, 0, RenderTextureFormat.RFloat, RenderTextureReadWrite.Linear);
                Draw(from, drawn);
                Graphics.Blit(drawn, floats, copies);
                RenderTexture read = floats; // until it was read
                AsyncGPUReadback.Request(read, 0, TextureFormat.RFloat, request =>
                {
                    RenderTexture.ReleaseTemporary(read);
                    if (session != mine) task.TrySetCanceled();
                    else if (request.hasError) task.TrySetException(new SumiException(Result.DeviceLost, "the depth buffer could not be read back from the GPU: ask for it again"));
                    else
                    {
                        depth.Values = request.GetData<float>().ToArray();
                        if (isLinear) depth.MakeDistances();
                        task.TrySetResult(depth);
                    }
                });
                floats = null;
            }
            finally
            {
                if (drawn != null) RenderTexture.ReleaseTemporary(drawn);
                if (floats != null) RenderTexture.ReleaseTemporary(floats);
            }
            return task.Task;
        }

        private string Trouble(Camera from)
        {
            if (from == null) return "the component SumiDepth has no camera: set its member view, or put it beside a camera";
            if (!SystemInfo.supportsAsyncGPUReadback) return "this renderer cannot read textures back (SystemInfo.supportsAsyncGPUReadback): choose another graphics API, or give a control picture in place of depth";
            if (!SystemInfo.SupportsRenderTextureFormat(RenderTextureFormat.Depth) || !SystemInfo.SupportsRenderTextureFormat(RenderTextureFormat.RFloat))
                return "this renderer has no depth textures or no textures of floats: choose another graphics API, or give a control picture in place of depth";
            if (copies != null) return "";
            var shader = Resources.Load<Shader>("SumiDepth");
            if (shader == null) return "the shader SumiDepth is not in the package's folder Runtime/Resources: install the package again";
            copies = new Material(shader);
            return "";
        }

        private void Draw(Camera from, RenderTexture into)
        {
            if (eye == null)
            {
                eye = new GameObject("sumi depth") { hideFlags = HideFlags.HideAndDontSave }.AddComponent<Camera>();
                eye.enabled = false; // draws when it is told
            }
            eye.CopyFrom(from); // its place, too
            eye.enabled = false;
            eye.rect = new Rect(0, 0, 1, 1);
            eye.clearFlags = CameraClearFlags.SolidColor; // clears depth in any case; what nothing was drawn on is sky
            eye.targetTexture = into;
            eye.ResetAspect(); // of the texture
            eye.ResetProjectionMatrix(); // without the jitter of an antialiasing camera
            eye.Render();
            eye.targetTexture = null;
        }

        private void OnDisable() { session++; }

        private void OnDestroy()
        {
            if (eye != null) Destroy(eye.gameObject);
            if (copies != null) Destroy(copies);
        }
    }
}
