// A component that edits a picture by words: "make the house blue", "remove the boat". Each edit begins with the picture that the one before it left; Undo() goes back.
// The work is a SumiGenerator's with an edit model: it shows the pictures, and tells progress and failures by its events.
//
//     editor.Edit("make the house blue");
//     editor.Edit("turn it into night"); // follows when the first is done
using System.Collections.Generic;
using UnityEngine;

namespace Sumi
{
    public sealed class SumiPictureEditor : MonoBehaviour
    {
        [Tooltip("Makes the pictures, with an edit model such as Qwen-Image-Edit. Nothing else may give it work. Empty: the one beside this component.")]
        public SumiGenerator generator;
        [Tooltip("What the first edit begins with; Read/Write is on in its import settings. Empty: the first words draw a picture.")]
        public Texture2D picture;
        [Tooltip("The same words with another seed: another picture.")]
        public int seed = 7;
        [Tooltip("Pictures that are kept for Undo, at least 1.")]
        public int history = 20;

        public Picture Current { get { return pictures.Count > 0 ? pictures[pictures.Count - 1] : null; } } // what the next edit begins with
        public bool CanUndo { get { return pictures.Count > 1; } }
        public bool IsBusy { get { return words.Count > 0 || isWorking; } }

        private readonly List<Picture> pictures = new List<Picture>();
        private readonly Queue<string> words = new Queue<string>();
        private bool isWorking;

        // Queues an edit. If one fails or is cancelled, those behind it are dropped, for they were meant for its picture.
        public void Edit(string what)
        {
            words.Enqueue(what);
        }

        // Cancels the edits that are under way; without any, goes back to the picture before the last edit.
        public void Undo()
        {
            if (IsBusy)
            {
                words.Clear();
                if (isWorking && generator != null) generator.Cancel();
                return;
            }
            if (!CanUndo || generator == null) return;
            pictures.RemoveAt(pictures.Count - 1);
            generator.Show(Current);
        }

        private void OnEnable()
        {
            if (generator == null) generator = GetComponent<SumiGenerator>();
            if (generator == null)
            {
                Debug.LogError("sumi: the picture editor has no generator: add a SumiGenerator to the same object, or set its field", this);
                enabled = false;
                return;
            }
            generator.Done += Take;
            if (pictures.Count > 0 || picture == null) return;
            pictures.Add(SumiGenerator.PictureOf(picture));
            generator.Show(Current);
        }

        private void OnDisable()
        {
            if (generator != null)
            {
                generator.Done -= Take;
                if (isWorking) generator.Cancel();
            }
            words.Clear();
            isWorking = false;
        }

        private void Update()
        {
            if (generator != null && generator.IsBusy) return;
            if (isWorking || generator == null) words.Clear(); // it ended without a picture, and the generator told why; or it is destroyed
            isWorking = words.Count > 0;
            if (!isWorking) return;
            if (Current != null) generator.Generate(words.Dequeue(), (ulong)seed, Current);
            else generator.Generate(words.Dequeue(), (ulong)seed);
        }

        private void Take(Texture2D made)
        {
            if (!isWorking) return;
            if (CanUndo && pictures.Count > history) pictures.RemoveAt(0);
            pictures.Add(SumiGenerator.PictureOf(made));
            isWorking = false;
        }
    }
}
