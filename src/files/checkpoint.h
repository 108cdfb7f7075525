// A model's files: where its components are and what is in them, told by content. Knows tensors, not networks: what the
// tensors of a network look like is said by the caller's table of signatures, and names stay as the files have them.
//
//     diffusers folder                  one file                                   components given one by one
//       model_index.json                  model.diffusion_model.*  \                 component_paths[],
//       transformer/ text_encoder/        text_encoders.X.transformer.*  components   tokenizer_paths[], processor_path:
//       text_encoder_2/ vae/              vae.*                    /                  each a folder or a file
//       tokenizer/ tokenizer_2/
//       processor/ scheduler/
//
// A component is looked for where it was asked for (its own path, else its folder below `path`), then in every other
// file that was opened: a transformer file that also holds the VAE serves both, and a vision tower is found inside the
// files of its text encoder. What is not there is not an error: component.present is false and the model decides what
// it needs.
//
//     sumi_checkpoint c = {0};
//     r = sumi_checkpoint_begin(&c, heap, files, &desc, error);
//     for (bool done = false; r == SUMI_OK && !done;) r = sumi_checkpoint_step(&c, &done, error);   // each step opens one file
//     ... sumi_checkpoint_close(&c);                                                                // at any time, also half-way
#ifndef SUMI_FILES_CHECKPOINT_H
#define SUMI_FILES_CHECKPOINT_H
#include "files/tensors.h"

typedef enum sumi_component_kind {
    SUMI_COMPONENT_TRANSFORMER,
    SUMI_COMPONENT_TEXT_ENCODER,
    SUMI_COMPONENT_TEXT_ENCODER_2,
    SUMI_COMPONENT_VISION,
    SUMI_COMPONENT_VAE,
    SUMI_COMPONENT_COUNT
} sumi_component_kind;

#define SUMI_CHECKPOINT_ENCODERS 2 // text encoders, each with a tokenizer of its own
#define SUMI_SIGNATURE_TENSORS 4

// How a network is told by its files. A table of these comes from the caller and outlives the checkpoint. In a file the
// signature with the most usual prefix wins; of those with the same prefix the one that stands first in the table.
typedef struct sumi_signature {
    sumi_component_kind component;
    const char* network; // what it is, for the caller and for messages: one word per architecture
    // What may stand in front of the tensor names, ended by NULL, the most usual one first; '*' is one word without a
    // dot. NULL: nothing may.
    const char* const* prefixes;
    // All of them must be there, behind one prefix. The one that the fewest other networks have should come first.
    const char* tensors[SUMI_SIGNATURE_TENSORS];
    struct {
        int32_t rank;          // 0: any
        int32_t axis, minimum; // the size along the axis lies between these two; 0 and 0: any
        int32_t maximum;
    } shape; // of tensors[0]
    // In place of tensors: "_class_name" of the component's config.json, or the first of its "architectures". Asked only
    // for a component that lies in its own folder and whose tensors no signature knows.
    const char* class_name;
    // NULL: welcome. Otherwise why it cannot be used, the end of a sentence that begins with the path and a colon. The
    // checkpoint opens all the same; the caller refuses.
    const char* refusal;
} sumi_signature;

typedef struct sumi_component {
    bool present;
    const sumi_signature* signature; // NULL when only its place says what it is, or when it is not present
    const sumi_tensor_set* set;      // may serve several components
    char* prefix;                    // in front of the component's tensor names in the set; "" for none
    // the folder or file it came from; where it was looked for when it is not present, NULL when nowhere
    const char* path;
    sumi_file config; // config.json; config.data is NULL when there is none. Well-formed JSON when there is
} sumi_component;

typedef enum sumi_tokenizer_form {
    SUMI_TOKENIZER_ABSENT,
    SUMI_TOKENIZER_JSON,         // tokenizer.json, which says everything
    SUMI_TOKENIZER_VOCABULARY,   // vocab.json and merges.txt
    SUMI_TOKENIZER_SENTENCEPIECE // a .model file, or the same bytes in a tensor "spiece_model" beside the encoder's
} sumi_tokenizer_form;

// The files of one text encoder's tokenizer; src/text makes a tokenizer of them. Those that are not there, or that the
// form has no use for, have no data. Their content is not looked at here.
typedef struct sumi_checkpoint_tokenizer {
    sumi_tokenizer_form form;
    const void* data; // tokenizer.json, vocab.json or the SentencePiece model
    size_t bytes;
    const char* path;  // of `data`, for messages
    char* folder;      // that the files are in; NULL without one
    sumi_file file;    // holds `data` where it is a file
    sumi_file merges;  // merges.txt
    sumi_file config;  // tokenizer_config.json
    sumi_file added;   // added_tokens.json
    sumi_file special; // special_tokens_map.json
    char* looked_in;   // "a/tokenizer, a/text_encoder": for messages; NULL when nowhere
} sumi_checkpoint_tokenizer;

typedef struct sumi_checkpoint_desc {
    const char* path; // a diffusers folder, a component's folder or a file; may be NULL
    // override or complete what `path` holds; NULL: from path
    const char* component_paths[SUMI_COMPONENT_COUNT];
    // by text encoder: a tokenizer.json, a SentencePiece .model, or the folder that the tokenizer's files are in
    const char* tokenizer_paths[SUMI_CHECKPOINT_ENCODERS];
    const char* processor_path; // a preprocessor_config.json or the folder it is in
    // neither text encoders, vision tower, tokenizers nor processor are looked for
    bool without_text_encoder;
    const sumi_signature* signatures; // the networks that are known
    size_t signature_count;
    // By component: words, ended by NULL, of which one stands in the "_class_name" of its config.json. NULL: a list of
    // "architectures" or a "model_type" tells it.
    const char* const* const* class_words;
} sumi_checkpoint_desc;

typedef struct sumi_checkpoint {
    sumi_component components[SUMI_COMPONENT_COUNT];
    char class_name[64]; // "_class_name" of model_index.json, "" without one
    sumi_checkpoint_tokenizer tokenizers[SUMI_CHECKPOINT_ENCODERS];
    sumi_file processor; // preprocessor_config.json, well-formed; data is NULL when there is none
    sumi_file scheduler; // scheduler_config.json, well-formed; data is NULL when there is none
    // from here on: how far the opening is
    sumi_heap* heap;
    const sumi_files* files;
    const sumi_signature* signatures;
    size_t signature_count;
    const char* const* const* class_words;
    struct sumi_source* sources;
    int32_t source_count; // one per path that was given or found
    char *path, *tokenizer_paths[SUMI_CHECKPOINT_ENCODERS], *processor_path;
    bool path_is_folder, without_text_encoder;
    int32_t stage, current;
    size_t file_count, opened_count;
} sumi_checkpoint;

// checkpoint must be zeroed. files, heap and signatures must outlive it; the desc's texts are copied.
sumi_result sumi_checkpoint_begin(sumi_checkpoint* checkpoint, sumi_heap* heap, const sumi_files* files,
                                  const sumi_checkpoint_desc* desc, sumi_error* error);
// One file per call: 0.2 ms for a header of 500 tensors. After a failure only close is left. SUMI_TIMEOUT, of a
// sumi_file_cache's files: nothing was done, and a file has to be read before the next call.
sumi_result sumi_checkpoint_step(sumi_checkpoint* checkpoint, bool* out_done, sumi_error* error);
// 0..1, by files, never falls. read: how much of the next file has been read, 0..1
float sumi_checkpoint_progress(const sumi_checkpoint* checkpoint, float read);
// begin and all steps.
sumi_result sumi_checkpoint_open(sumi_checkpoint* checkpoint, sumi_heap* heap, const sumi_files* files,
                                 const sumi_checkpoint_desc* desc, sumi_error* error);
// A tokenizer without a model, as tokenizers[0]: a file of one, or the folder that its files are in, by themselves or
// below "tokenizer". checkpoint must be zeroed, and is closed as usual.
sumi_result sumi_checkpoint_open_tokenizer(sumi_checkpoint* checkpoint, sumi_heap* heap, const sumi_files* files,
                                           const char* path, sumi_error* error);
void sumi_checkpoint_close(sumi_checkpoint* checkpoint); // accepts a zeroed or half-open one

// SUMI_FILE_NOT_FOUND with a sentence that says what text encoder number `encoder`, at `needed_by`, lacks and where it
// was looked for.
sumi_result sumi_checkpoint_tokenizer_missing(const sumi_checkpoint_tokenizer* tokenizer, int32_t encoder,
                                              const char* needed_by, sumi_error* error);
// What the component is by its signature, "" when no signature says.
const char* sumi_component_network(const sumi_component* component);
// The tensor called prefix + name, NULL when the component is not present or has no such tensor.
const sumi_tensor* sumi_component_find(const sumi_component* component, const char* name);
// The name without the component's prefix, NULL when the tensor is not of this component. For walking over
// component->set->tensors.
const char* sumi_component_tensor_name(const sumi_component* component, const sumi_tensor* tensor);
// "transformer", "text_encoder", "text_encoder_2", "vision", "vae"
const char* sumi_component_kind_name(sumi_component_kind kind);
#endif
