// Words become a picture while the scene runs: type, press the button, watch. The scene has this beside a SumiGenerator with the demo model, which Tools/sumi/Copy Demo Model puts to StreamingAssets.
using Sumi;
using UnityEngine;

public sealed class SumiDemo : MonoBehaviour
{
    [Tooltip("Makes the pictures.")]
    public SumiGenerator generator;

    private string prompt = "a red house on the grass", told = "";
    private ulong seed = 7;
    private Texture2D shown;

    private void OnEnable()
    {
        generator.Previewed += Show;
        generator.Done += Show;
        generator.Failed += Explain;
        generator.Progressed += Count;
    }

    private void OnDisable()
    {
        generator.Previewed -= Show;
        generator.Done -= Show;
        generator.Failed -= Explain;
        generator.Progressed -= Count;
    }

    private void Show(Texture2D texture)
    {
        shown = texture;
        told = "";
    }

    private void Explain(string sentence) { told = sentence; }
    private void Count(float share, float secondsLeft) { told = (int)(100 * share) + " %"; }

    private void OnGUI()
    {
        prompt = GUI.TextField(new Rect(10, 10, 500, 24), prompt);
        if (GUI.Button(new Rect(520, 10, 100, 24), generator.IsBusy ? "wait" : "draw") && !generator.IsBusy) generator.Generate(prompt, seed++);
        GUI.Label(new Rect(10, 40, 610, 60), told);
        if (shown != null) GUI.DrawTexture(new Rect(10, 100, 512, 512), shown);
    }
}
