// The menu Tools/sumi: checks the installation, and copies the demo model to where players find it. The check of the library also runs once when the editor starts.
using System;
using System.Collections.Generic;
using System.IO;
using UnityEditor;
using UnityEngine;

namespace Sumi
{
    internal static class SumiMenu
    {
        private const string Model = "demo_model";
        private static string ModelTarget { get { return Path.Combine(Application.streamingAssetsPath, Model); } }

        [InitializeOnLoadMethod]
        private static void CheckOnce()
        {
            if (SessionState.GetBool("sumi.checked", false)) return;
            SessionState.SetBool("sumi.checked", true);
            string trouble = TroubleOfLibrary();
            if (trouble != "") Debug.LogWarning("sumi: " + trouble, null);
        }

        // "" or why the native library cannot be used.
        internal static string TroubleOfLibrary()
        {
            try
            {
                Engine.CheckVersion();
                return "";
            }
            catch (SumiException trouble) { return trouble.Message; }
        }

        [MenuItem("Tools/sumi/Check Installation")]
        private static void Check() { EditorUtility.DisplayDialog("sumi", string.Join("\n\n", Report().ToArray()), "OK"); }

        // Library, version, plug-in, device, model: a sentence for each. Creates an engine, which takes up to some seconds with a GPU.
        internal static List<string> Report()
        {
            var lines = new List<string>();
            string trouble = TroubleOfLibrary();
            lines.Add(trouble != "" ? "Library: " + trouble : "Library: sumi " + Engine.Version + ", of the version of these scripts.");
            lines.Add("Textures on the GPU: " + (SumiTexture.IsSupported ? "the rendering plug-in is there, and knows this renderer." : SumiTexture.Trouble + "."));
            if (trouble == "") lines.Add("Device: " + Device());
            lines.Add(Directory.Exists(ModelTarget) ? "Demo model: in StreamingAssets." : "Demo model: not in StreamingAssets; Tools/sumi/Copy Demo Model puts it there.");
            return lines;
        }

        private static string Device()
        {
            try
            {
                using (var engine = new Engine(new EngineOptions()))
                    return engine.Info.Device + (engine.Info.Backend == "cpu" ? " (no GPU that can be used was found)." : ".");
            }
            catch (SumiException refused) { return refused.Message; }
        }

        [MenuItem("Tools/sumi/Copy Demo Model")]
        private static void CopyModel()
        {
            string from = FindModel();
            if (from == "") from = EditorUtility.OpenFolderPanel("The demo model: the folder samples/demo_model of sumi", "", "");
            if (string.IsNullOrEmpty(from)) return;
            try
            {
                CopyModelFrom(from);
                AssetDatabase.Refresh();
                EditorUtility.DisplayDialog("sumi", "The demo model is in " + ModelTarget + ". A SumiGenerator whose modelPath is \"" + Model + "\" uses it.", "OK");
            }
            catch (IOException trouble) { EditorUtility.DisplayDialog("sumi", trouble.Message, "OK"); }
            catch (UnauthorizedAccessException trouble) { EditorUtility.DisplayDialog("sumi", trouble.Message, "OK"); }
        }

        // In the package, which Native~/pack.sh makes, or in sumi's samples, where the package is used from its sources. "": in neither.
        private static string FindModel()
        {
            UnityEditor.PackageManager.PackageInfo package = UnityEditor.PackageManager.PackageInfo.FindForAssembly(typeof(SumiMenu).Assembly);
            if (package == null) return "";
            foreach (string each in new[] { Path.Combine(package.resolvedPath, "Model~", Model), Path.Combine(package.resolvedPath, "..", "..", Model) })
                if (IsModel(each)) return each;
            return "";
        }

        private static bool IsModel(string folder) { return File.Exists(Path.Combine(folder, "model_index.json")); }

        // Without what trained it.
        internal static void CopyModelFrom(string folder)
        {
            if (!IsModel(folder)) throw new IOException(folder + " is no model: there is no model_index.json in it");
            foreach (string file in Directory.GetFiles(folder, "*", SearchOption.AllDirectories))
            {
                string name = file.Substring(folder.Length).TrimStart('/', '\\').Replace('\\', '/');
                if (name.StartsWith("train/") || name.EndsWith(".png") || name.EndsWith(".meta")) continue;
                string target = Path.Combine(ModelTarget, name);
                Directory.CreateDirectory(Path.GetDirectoryName(target));
                File.Copy(file, target, true);
            }
        }
    }
}
