// What sumi inspect finds out about a path, without printing it: inspect.c prints it as text, inspect_json.c as JSON.
#ifndef INSPECTION_H
#define INSPECTION_H
#include "expected.h"
#include "parameters.h"
#include "picture.h"

typedef struct inspection {
    const char* path;
    bool lists_tensors, is_json;
    sumi_heap heap;
    sumi_checkpoint checkpoint;
    const sumi_recipe* recipe; // of the family; NULL: this library does not run the family
    const sumi_variant* variant;
    sumi_sigma_rule sigmas;
    bool has_faults;
    char file[4096]; // the adapter's file, if the path is a folder
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
typedef struct adapter_summary {
    bool is_kronecker;  // LoKr, else LoRA
    size_t layers;      // matrices that it changes
    const char* first;  // the name of its first tensor of a layer, or NULL
    const char* naming; // of LoRA: whose names it has
    // of LoRA; the last entry counts all further ranks
    long long ranks[ADAPTER_MAX_RANKS];
    size_t rank_counts[ADAPTER_MAX_RANKS];
    const char* alpha;                            // of LoRA: where it is, in a phrase
    size_t whole_factors, product_factors, norms; // of LoKr
} adapter_summary;
// Returns false when the tensors are no adapter's.
bool inspection_read_adapter(const sumi_tensor_set* set, adapter_summary* adapter);
// If the path is a folder in which PEFT or diffusers saved an adapter, replaces it by the file of the adapter.
void inspection_enter_adapter_folder(inspection* in);

// inspect_json.c: print one object to stdout.
void inspect_checkpoint_json(inspection* in);
void inspect_loose_file_json(const inspection* in, const sumi_tensor_set* set,
                             const adapter_summary* adapter); // adapter: NULL if unknown
void inspect_picture_json(const inspection* in, const picture_file* image, const parameters* settings);
#endif
