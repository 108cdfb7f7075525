// One block of memory that is seen at many addresses, one behind the other: a checkpoint of twenty gigabytes of random
// numbers then takes those of one block. POSIX: a memory file that is mapped again and again; Windows: views of a section
// that lies in the page file.
#ifndef VIEWS_H
#define VIEWS_H
#include <stdbool.h>
#include <stdint.h>

typedef struct view_block {
    intptr_t handle;
    uint64_t bytes;
} view_block;

uint64_t views_unit(void); // addresses and sizes of blocks and private parts are multiples of it

// Makes a block of `bytes` and maps it at *out_memory to be filled; views_filled() ends that. Returns false, and makes
// nothing, when there is no memory.
bool views_make(uint64_t bytes, view_block* out_block, void** out_memory);
void views_filled(const view_block* block, void* memory);
void views_close(const view_block* block); // views of it stay

// Takes addresses for `bytes`, of which the first private_bytes are memory of their own, zeroed. NULL: there are none.
// The rest is seen through views_map() alone, whose parts follow each other without a gap.
void* views_reserve(uint64_t bytes, uint64_t private_bytes);
// Shows the first `bytes` of the block at this address. Returns false when the system refuses it.
bool views_map(void* at, uint64_t bytes, const view_block* block);
// Gives back what views_reserve() returned, with all that is mapped there. mapped_bytes: where the last part that could
// be mapped ends; behind it the addresses may be somebody else's by now.
void views_release(void* memory, uint64_t bytes, uint64_t mapped_bytes);
#endif
