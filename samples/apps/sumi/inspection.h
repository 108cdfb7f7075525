// What sumi inspect finds out about a path, without printing it: inspect.c prints it as text, inspect_json.c as JSON.
#ifndef INSPECTION_H
#define INSPECTION_H
#include "expected.h"
#include "parameters.h"
#include "picture.h"

typedef struct inspection {
    const char* path;
    const char* model; // that an adapter, a control net or a prompt is tried with, or NULL
    bool lists_tensors, is_json;
    sumi_heap heap;
    sumi_checkpoint checkpoint;
    const sumi_recipe* recipe; // of the family; NULL: this library does not run the family
    const sumi_variant* variant;
    sumi_sigma_rule sigmas;
    bool is_prompt; // the file is an encoded prompt
    bool has_faults;
    bool has_text_layers; // the adapter changes text encoders
    char file[4096];      // the adapter's file, if the path is a folder
} inspection;

// Types of a range of tensors.
typedef struct tensor_totals {
    size_t count;
    uint64_t values, bytes;
    size_t type_counts[SUMI_DTYPE_COUNT];
    uint64_t type_bytes[SUMI_DTYPE_COUNT];
} tensor_totals;

tensor_totals inspection_set_totals(const sumi_tensor_set* set);
tensor_totals inspection_part_totals(const sumi_component* part);

// The network of the transformer, or without a transformer the family of the pipeline's class name.
const char* inspection_family(const sumi_checkpoint* checkpoint);
// Fills recipe, variant and sigmas of an opened checkpoint.
void inspection_find_recipe(inspection* in);
// Whether a model of this family has such a component at all.
bool inspection_uses(const inspection* in, sumi_component_kind kind);

// Whether a component could be opened with its model.
typedef enum part_state {
    PART_UNKNOWN,    // of a family without tables
    PART_COMPLETE,   // nothing is missing
    PART_INCOMPLETE, // `missing` names tensors
    PART_NOT_USABLE  // `reason` says why
} part_state;
typedef struct part_check {
    part_state state;
    missing_list missing;
    char reason[1024];
} part_check;
void inspection_check(inspection* in, sumi_component_kind kind, part_check* check); // also sets has_faults

// Opens the tokenizer of a text encoder (0 or 1) to count its ids. Returns false and sets has_faults when it is broken.
bool inspection_count_ids(inspection* in, int32_t encoder, size_t* ids, sumi_error* error);
const char* inspection_tokenizer_form(const sumi_checkpoint_tokenizer* files);
// Reads the schedule of the files, or takes the released model's. Returns false and sets has_faults when it is broken.
bool inspection_read_schedule(inspection* in, sumi_error* error);

#define ADAPTER_MAX_RANKS 8
// What a file changes, as the library reads it.
typedef struct adapter_summary {
    size_t kinds[SUMI_ADAPTER_DIFF + 1];          // layers, by kind
    size_t layers;                                // all whose matrix changes
    size_t doras, norms, biases;                  // layers with magnitudes; norms and biases that change
    size_t whole_factors, product_factors;        // first factors of LoKr
    size_t text_layers, unknown;                  // of text encoders; tensors that are part of no change
    const char *first, *text_name, *unknown_name; // names of tensors, or NULL
    const char* naming;                           // whose names it has
    // of LoRA and LoHa; the last entry counts all further ranks
    long long ranks[ADAPTER_MAX_RANKS];
    size_t rank_counts[ADAPTER_MAX_RANKS];
    const char* alpha; // where it is, in a phrase
    char fault[1024];  // why it cannot be applied to any model; ""
} adapter_summary;
// Returns false when the tensors are no adapter's. Sets has_faults when the adapter cannot be applied.
bool inspection_read_adapter(inspection* in, const sumi_tensor_set* set, adapter_summary* adapter);
// The name of a kind.
const char* inspection_kind_name(sumi_adapter_kind kind);
// If the path is a folder in which PEFT or diffusers saved an adapter, replaces it by the file of the adapter.
void inspection_enter_adapter_folder(inspection* in);

// inspect_json.c: print one object to stdout.
void inspect_checkpoint_json(inspection* in);
void inspect_loose_file_json(const inspection* in, const sumi_tensor_set* set,
                             const adapter_summary* adapter); // adapter: NULL if it is none
void inspect_picture_json(const inspection* in, const picture_file* image, const parameters* settings);
#endif
