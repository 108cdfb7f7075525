// Ends all engines before their scripts go: when the editor reloads scripts or ends, and when a player ends. The end of an application domain, which needs no Unity, is in Sumi.cs.
using UnityEngine;
#if UNITY_EDITOR
using UnityEditor;
#endif

namespace Sumi
{
    internal static class SumiLifetime
    {
#if UNITY_EDITOR
        // Application.quitting comes in the editor whenever play mode is left, when engines of its tools go on.
        [InitializeOnLoadMethod]
        private static void Listen()
        {
            AssemblyReloadEvents.beforeAssemblyReload += OpenEngines.EndAll;
            EditorApplication.quitting += OpenEngines.EndAll;
        }
#else
        [RuntimeInitializeOnLoadMethod(RuntimeInitializeLoadType.SubsystemRegistration)]
        private static void Listen() { Application.quitting += OpenEngines.EndAll; }
#endif
    }
}
