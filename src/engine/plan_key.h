// The key of a plan: a request, byte by byte, as tables describe it. Requests with the same key get the same plan.
//
//   request --table--> members in order --sumi_plan_key_write--> bytes
//                        numbers   as they are in memory
//                        objects   their serial, which never repeats
//                        lists     whether there is one, the number of its elements, each of them
//
// Each struct that is part of a request has a table in plan_key.c. A struct with a member that is not in its table does
// not compile: these structs have no gaps (what would be one is a member called `unused`), so the sizes of the members
// that the table has must add up to the struct's. The test goes by the same tables.
#ifndef SUMI_ENGINE_PLAN_KEY_H
#define SUMI_ENGINE_PLAN_KEY_H
#include "engine/buffers.h"
#include "models/pipeline.h"
#include "plan/runner.h"

#define SUMI_MAX_LORAS 16

// What a job asks for, beside what pipeline.h needs to know. No gaps, as there.
typedef struct sumi_plan_request {
    sumi_pipeline_request pipeline; // no adapters, no tiles: the cache finds them
    sumi_model* model;
    const sumi_lora* const* loras;
    const float* lora_scales;
    // The engine's part, as it is now: sumi_plan_complete fills it in.
    uint64_t budget;                    // sumi_engine_budget
    sumi_weight_options weight_options; // to the backend
    uint32_t slice_us;                  // the most that a slice may take; 0: no limit
    int32_t lora_count;
    bool whole_ops; // slices are whole ops, for profiles
    bool unused[3];
} sumi_plan_request;

typedef enum sumi_key_kind {
    SUMI_KEY_NUMBER, // or several, or an address
    SUMI_KEY_MODEL,  // a sumi_model*
    SUMI_KEY_LORA,   // a const sumi_lora*
    SUMI_KEY_STRUCT, // one that has a table
    SUMI_KEY_LIST,   // a pointer to elements, or NULL
    SUMI_KEY_UNUSED
} sumi_key_kind;

struct sumi_key_table;
typedef struct sumi_key_member {
    const char* name;
    sumi_key_kind kind;
    size_t offset, size;
    const struct sumi_key_table* table; // STRUCT; LIST of structs
    // LIST: what its elements are, how large, and where in the same struct their number is, an int32
    sumi_key_kind element;
    size_t element_size, count_offset;
} sumi_key_member;

typedef struct sumi_key_table {
    const sumi_key_member* members;
    int32_t count;
} sumi_key_table;

extern const sumi_key_table sumi_plan_request_table;

// Appends the key of a request; with key->base NULL it only measures.
void sumi_plan_key_write(sumi_packer* key, const sumi_plan_request* request);
#endif
