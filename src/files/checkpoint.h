// Finds the components of a model in its files by their content. This code knows tensors, not networks: the caller's
// table of signatures says which tensors identify a network, and tensors keep the names that they have in the files.
//
//     diffusers folder                  one file                                   components given one by one
//       model_index.json                model.diffusion_model.*  \                 component_paths[],
//       transformer/ text_encoder/      text_encoders.X.transformer.*  components   tokenizer_paths[], processor_path:
//       text_encoder_2/ vae/            vae.*                    /                  each a folder or a file
//       tokenizer/ tokenizer_2/
//       processor/ scheduler/
//
// A component is searched for first at its own path or, without one, in its folder below `path`, then in every other
// file that was opened: a transformer file that also holds the VAE provides both, and a vision tower is found in the
// files of its text encoder. A missing component is not an error: component.present is false, and the model decides
// what it needs.
//
//     sumi_checkpoint c = {0};
//     r = sumi_checkpoint_begin(&c, heap, files, &desc, error);
//     for (bool done = false; r == SUMI_OK && !done;) r = sumi_checkpoint_step(&c, &done, error); // opens one file
//     ... sumi_checkpoint_close(&c);                                       // allowed at any time, also half-way
#ifndef SUMI_FILES_CHECKPOINT_H
#define SUMI_FILES_CHECKPOINT_H
#include "files/quantisation.h"
#include "files/tensors.h"

typedef enum sumi_component_kind {
    SUMI_COMPONENT_TRANSFORMER,
    SUMI_COMPONENT_TEXT_ENCODER,
    SUMI_COMPONENT_TEXT_ENCODER_2,
    SUMI_COMPONENT_VISION,
    SUMI_COMPONENT_VAE,
    SUMI_COMPONENT_COUNT
} sumi_component_kind;

#define SUMI_CHECKPOINT_ENCODERS 2 // text encoders, each with its own tokenizer
#define SUMI_SIGNATURE_TENSORS 4

// How to recognise a network by its tensors. The caller provides a table of signatures, which must outlive the
// checkpoint. If several signatures match a file, the one whose prefix comes earliest in its list of prefixes wins;
// among equals, the one that comes first in the table.
typedef struct sumi_signature {
    sumi_component_kind component;
    const char* network; // name of the network, for the caller and for messages: one word per architecture
    // Prefixes that tensor names may have, ended by NULL, the most usual first. '*' stands for one word without a dot.
    // NULL: names have no prefix.
    const char* const* prefixes;
    // All of these must exist after the same prefix. Put the one that the fewest other networks have first.
    const char* tensors[SUMI_SIGNATURE_TENSORS];
    struct {
        int32_t rank;          // 0: any
        int32_t axis, minimum; // the extent along axis is from minimum to maximum; maximum 0: any
        int32_t maximum;
    } shape; // shape of tensors[0]
    // Alternative to tensors: "_class_name" of the component's config.json, or the first of its "architectures". Used
    // only for a component in its own folder whose tensors match no signature.
    const char* class_name;
    // NULL: the network can be used. Otherwise the reason why it cannot, as the end of a sentence that begins with the
    // path and a colon. The checkpoint opens nevertheless; the caller refuses.
    const char* refusal;
} sumi_signature;

#define SUMI_METHOD_ENDS 3

// A method by which other programs quantise weights, known here only to be refused by its name. It is recognised by the
// ends of tensor names: a tensor whose name ends with ends[0], and beside it, after the same beginning, one with
// each of the other ends. The caller provides a table, in which several rows may have one name; the first row that
// matches counts.
typedef struct sumi_foreign_method {
    const char* name;                   // of the method, for messages: "GPTQ"
    const char* ends[SUMI_METHOD_ENDS]; // NULL after the last one
    bool is_packed;                     // the tensors beside the first one have the type U8
} sumi_foreign_method;
// The first method of a table that tensors of the set with this prefix have, and the tensor that shows it. NULL: none.
const sumi_foreign_method* sumi_foreign_method_find(const sumi_foreign_method* methods, size_t method_count,
                                                    const sumi_tensor_set* set, const char* prefix,
                                                    const sumi_tensor** out_tensor);

typedef struct sumi_component {
    bool present;
    const sumi_signature* signature; // NULL if not present, or if only the folder identifies the component
    const sumi_tensor_set* set;      // may serve several components
    char* prefix;                    // precedes the component's tensor names in the set; "" for none
    // folder or file that holds the component; if not present, where it was looked for, or NULL
    const char* path;
    sumi_file config; // config.json, well-formed; config.data is NULL if there is none
    // of the files that hold the tensors; a quantisation that is not known is refused when the checkpoint is opened
    sumi_quantisation quantisation;
    bool knows_neighbours;             // of quantised weights (tensor_scaling.h)
    const sumi_foreign_method* method; // NULL: its weights are not quantised by a method that is refused
    const sumi_tensor* method_tensor;  // that shows it
} sumi_component;

typedef enum sumi_tokenizer_form {
    SUMI_TOKENIZER_ABSENT,
    SUMI_TOKENIZER_JSON,          // tokenizer.json, which is complete by itself
    SUMI_TOKENIZER_VOCABULARY,    // vocab.json and merges.txt
    SUMI_TOKENIZER_SENTENCEPIECE, // a .model file, or its bytes as the tensor "spiece_model" among the encoder's tensors
    SUMI_TOKENIZER_GGUF           // the metadata of the encoder's GGUF file
} sumi_tokenizer_form;

// The files of one text encoder's tokenizer; src/text builds the tokenizer from them. Files that are missing or that
// the form does not use have no data. The files' content is not checked here.
typedef struct sumi_checkpoint_tokenizer {
    sumi_tokenizer_form form;
    const void* data; // tokenizer.json, vocab.json, the SentencePiece model, or the texts of a GGUF file's tokens
    size_t bytes;
    const sumi_tensor_set* set; // GGUF: the set of the file
    const char* path;           // path of `data`, for messages
    char* folder;               // folder of the files; NULL if there is none
    sumi_file file;             // owns `data` if that is a file
    sumi_file merges;           // merges.txt
    sumi_file config;           // tokenizer_config.json
    sumi_file added;            // added_tokens.json
    sumi_file special;          // special_tokens_map.json
    char* searched_folders; // folders that were searched, as "a/tokenizer, a/text_encoder", for messages; NULL: none
} sumi_checkpoint_tokenizer;

// What the checkpoint's author says about making images, in the member "sumi" of model_index.json:
//     "sumi": {"steps": 20, "guidance": 2}
// Unknown members are ignored. The range of the numbers is not checked here. NaN: the member is not a number.
typedef struct sumi_author_values {
    bool has_steps, has_guidance;
    bool is_no_object; // "sumi" is something else
    double steps, guidance;
} sumi_author_values;

// "sample_sigmas" of model_index.json: the noise levels that the model was made for, where they follow no rule. Their
// range is not checked here.
#define SUMI_CHECKPOINT_SIGMAS 64
typedef struct sumi_author_sigmas {
    float levels[SUMI_CHECKPOINT_SIGMAS];
    int32_t count;   // 0: the member is absent, null, or empty
    bool is_no_list; // it is something else than up to SUMI_CHECKPOINT_SIGMAS numbers
} sumi_author_sigmas;

typedef struct sumi_checkpoint_desc {
    const char* path; // a diffusers folder, the folder of one component, or a file; may be NULL
    // paths that override or complete what `path` holds; NULL: look below `path`
    const char* component_paths[SUMI_COMPONENT_COUNT];
    // per text encoder: a tokenizer.json, a SentencePiece .model, or the folder of the tokenizer's files
    const char* tokenizer_paths[SUMI_CHECKPOINT_ENCODERS];
    const char* processor_path; // a preprocessor_config.json or its folder
    // true: text encoders, vision tower, tokenizers and processor are not looked for
    bool without_text_encoder;
    const sumi_signature* signatures; // the known networks
    size_t signature_count;
    const sumi_foreign_method* methods; // that are refused
    size_t method_count;
    // For each component a list of words, ended by NULL. A config.json describes the component if its "_class_name"
    // contains one of them. NULL: only "architectures" or "model_type" identifies a config.json.
    const char* const* const* class_words;
    const char* transformer_name; // what messages call a file in the transformer's place; NULL: "transformer"
} sumi_checkpoint_desc;

typedef struct sumi_checkpoint {
    sumi_component components[SUMI_COMPONENT_COUNT];
    char class_name[64]; // "_class_name" of model_index.json; "" if there is none
    bool has_model_index;
    bool is_distilled; // "is_distilled" of model_index.json is true
    sumi_author_values author;
    sumi_author_sigmas sigmas;
    sumi_checkpoint_tokenizer tokenizers[SUMI_CHECKPOINT_ENCODERS];
    sumi_file processor; // preprocessor_config.json, well-formed; data is NULL if there is none
    sumi_file scheduler; // scheduler_config.json, well-formed; data is NULL if there is none
    // state of the opening
    sumi_heap* heap;
    const sumi_files* files;
    const sumi_signature* signatures;
    const char* transformer_name;
    size_t signature_count;
    const sumi_foreign_method* methods;
    size_t method_count;
    const char* const* const* class_words;
    struct sumi_source* sources;
    int32_t source_count; // one per path that was given or derived
    char *path, *tokenizer_paths[SUMI_CHECKPOINT_ENCODERS], *processor_path;
    bool path_is_folder, without_text_encoder;
    int32_t stage, current;
    size_t file_count, opened_count;
} sumi_checkpoint;

// checkpoint must be zeroed. heap, files and signatures must outlive it; the desc's texts are copied.
sumi_result sumi_checkpoint_begin(sumi_checkpoint* checkpoint, sumi_heap* heap, const sumi_files* files,
                                  const sumi_checkpoint_desc* desc, sumi_error* error);
// Opens one file per call; takes 0.2 ms for a header of 500 tensors. After a failure the checkpoint can only be closed.
// SUMI_TIMEOUT occurs only with the files of a sumi_file_cache: the call had no effect, and a file has to be read
// before the next call.
sumi_result sumi_checkpoint_step(sumi_checkpoint* checkpoint, bool* out_done, sumi_error* error);
// 0..1 by number of files; never decreases. read: fraction of the next file that has been read, 0..1.
float sumi_checkpoint_progress(const sumi_checkpoint* checkpoint, float read);
// Begins and runs all steps in one call. Blocks until the files are open.
sumi_result sumi_checkpoint_open(sumi_checkpoint* checkpoint, sumi_heap* heap, const sumi_files* files,
                                 const sumi_checkpoint_desc* desc, sumi_error* error);
// Opens a tokenizer without a model as tokenizers[0]. path is a tokenizer's file, or the folder with its files or with
// a folder "tokenizer" that has them. checkpoint must be zeroed and is closed with sumi_checkpoint_close.
sumi_result sumi_checkpoint_open_tokenizer(sumi_checkpoint* checkpoint, sumi_heap* heap, const sumi_files* files,
                                           const char* path, sumi_error* error);
void sumi_checkpoint_close(sumi_checkpoint* checkpoint); // accepts a zeroed or half-open checkpoint

// Whether the component can be recognised but not used, by its signature or by the method that quantised it. The checkpoint
// opens nevertheless; the caller refuses. `text` is then the reason, as the end of a sentence that begins with the path
// and a colon.
bool sumi_component_is_refused(const sumi_component* component, char* text, size_t capacity);
// Fails if a component that is not present has a folder below `path` which has the component's settings without its
// weights, or weights in a file of PyTorch.
sumi_result sumi_checkpoint_check_absent(const sumi_checkpoint* checkpoint, sumi_component_kind kind,
                                         sumi_error* error);
// Returns SUMI_FILE_NOT_FOUND with a text that says which tokenizer text encoder number `encoder` of `needed_by` lacks
// and where it was looked for.
sumi_result sumi_checkpoint_tokenizer_missing(const sumi_checkpoint_tokenizer* tokenizer, int32_t encoder,
                                              const char* needed_by, sumi_error* error);
// The network's name from the component's signature; "" if it has none.
const char* sumi_component_network(const sumi_component* component);
// The tensor named prefix + name. NULL if the component is not present or has no such tensor.
const sumi_tensor* sumi_component_find(const sumi_component* component, const char* name);
// The tensor's name without the component's prefix. NULL if the name does not begin with the prefix. For loops over
// component->set->tensors.
const char* sumi_component_tensor_name(const sumi_component* component, const sumi_tensor* tensor);
// "transformer", "text_encoder", "text_encoder_2", "vision", "vae"
const char* sumi_component_kind_name(sumi_component_kind kind);
#endif
