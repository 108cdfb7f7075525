// The key of a plan: the bytes of a request, as tables describe it. Requests with equal keys get the same plan.
//
//   request --table--> members in order --sumi_plan_key_write--> bytes
//                        numbers   as they are in memory
//                        objects   their serial, which never repeats
//                        lists     whether there is one, the number of its elements, each of them
//
// Each struct that is part of a request has a table in plan_key.c. A struct with a member that is missing in its table
// does not compile: these structs have no gaps (a member called `unused` fills what would be a gap), so the sizes of
// the members in the table must add up to the size of the struct. The test uses the same tables.
#ifndef SUMI_JOBS_PLAN_KEY_H
#define SUMI_JOBS_PLAN_KEY_H
#include "jobs/buffers.h"
#include "models/pipeline.h"
#include "plan/plan.h"

#define SUMI_MAX_LORAS 16

// What a job requests, in addition to what pipeline.h needs to know. The struct has no gaps.
typedef struct sumi_plan_request {
    sumi_pipeline_request pipeline; // without adapters and tiles, which the cache adds
    sumi_model* model;
    const sumi_lora* const* loras;
    const float *lora_scales, *lora_text_scales; // 0: no effect on the denoiser, or on the text encoders
    const sumi_control* const* controls;         // those of pipeline.controls
    // The following members are filled in by sumi_plan_complete.
    uint64_t memory_limit;              // sumi_engine_memory_limit
    sumi_weight_options weight_options; // passed to the backend
    uint32_t slice_us;                  // the longest predicted time of a slice; 0: no limit
    int32_t lora_count, control_count;
    bool whole_ops; // slices are whole ops, for profiles
    bool unused[3];
} sumi_plan_request;

typedef enum sumi_key_kind {
    SUMI_KEY_NUMBER,  // a number, several numbers, or an address
    SUMI_KEY_MODEL,   // a sumi_model*
    SUMI_KEY_LORA,    // a const sumi_lora*
    SUMI_KEY_CONTROL, // a const sumi_control*
    SUMI_KEY_STRUCT,  // a struct that has a table
    SUMI_KEY_LIST,    // a pointer to elements, or NULL
    SUMI_KEY_UNUSED
} sumi_key_kind;

struct sumi_key_table;
typedef struct sumi_key_member {
    const char* name;
    sumi_key_kind kind;
    size_t offset, size;
    const struct sumi_key_table* table; // for STRUCT, and for LIST of structs
    // For LIST: the kind and size of an element, and the offset of the element count, an int32 of the same struct.
    sumi_key_kind element;
    size_t element_size, count_offset;
} sumi_key_member;

typedef struct sumi_key_table {
    const sumi_key_member* members;
    int32_t count;
} sumi_key_table;

extern const sumi_key_table sumi_plan_request_table;

// Appends the key of a request. If key->base is NULL it only measures.
void sumi_plan_key_write(sumi_packer* key, const sumi_plan_request* request);
#endif
