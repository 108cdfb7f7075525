// A component that edits a picture by words: "make the house blue", "remove the boat". Each edit begins with the picture that the one before it left; Undo() goes back.
// The work is a SumiGenerator's with an edit model: it shows the pictures, and tells progress and failures by its events.
//
//     editor.Edit("make the house blue");
//     editor.Edit("turn it into night"); // follows when the first is done
//     editor.Edit("the cat wears the hat of picture 2", SumiGenerator.PictureOf(hat)); // with models that take several pictures
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
        public bool IsBusy { get { return wishes.Count > 0 || isWorking; } }

        private struct Wish
        {
            public string Words;
            public Picture[] Others;
        }

        private readonly List<Picture> pictures = new List<Picture>();
        private readonly Queue<Wish> wishes = new Queue<Wish>();
        private bool isWorking;

        // Queues an edit. If one fails or is cancelled, those behind it are dropped, for they were meant for its picture.
        public void Edit(string what)
        {
            Edit(what, new Picture[0]);
        }

        // The same with others that the words speak of. The picture to edit is picture 1 and they are picture 2 and so on; without a picture to edit they begin with 1. ModelInfo.MaxReferences says how many a model takes.
        public void Edit(string what, params Picture[] others)
        {
            wishes.Enqueue(new Wish { Words = what, Others = others ?? new Picture[0] });
        }

        // Cancels the edits that are under way; without any, goes back to the picture before the last edit.
        public void Undo()
        {
            if (IsBusy)
            {
                wishes.Clear();
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
            wishes.Clear();
            isWorking = false;
        }

        private void Update()
        {
            if (generator != null && generator.IsBusy) return;
            if (isWorking || generator == null) wishes.Clear(); // it ended without a picture, and the generator told why; or it is destroyed
            isWorking = wishes.Count > 0;
            if (!isWorking) return;
            Wish wish = wishes.Dequeue();
            var references = new List<Picture>();
            if (Current != null) references.Add(Current);
            references.AddRange(wish.Others);
            generator.Generate(wish.Words, (ulong)seed, references.ToArray());
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
