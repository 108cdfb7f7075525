// The blocks of the toy device that are alive.
#include "toy_device.h"
#include <stdio.h>
#include <stdlib.h>

typedef struct toy_block {
    struct toy_block* next;
    uint64_t address, bytes;
    bool is_host; // pinned or page-locked
    void* memory; // NULL: page-locked
} toy_block;

void toy_violate(toy_device* toy, const char* what)
{
    if (toy->violations++ < 4) printf("  toy device: %s\n", what);
}

bool toy_is_live(const toy_device* toy, uint64_t address, uint64_t bytes, bool is_host)
{
    for (const toy_block* b = toy->memory; b != NULL; b = b->next) {
        if (b->is_host == is_host && address >= b->address && address + bytes <= b->address + b->bytes) return true;
    }
    return false;
}

void toy_add_block(toy_device* toy, uint64_t address, uint64_t bytes, bool is_host, void* memory)
{
    toy_block* b = malloc(sizeof *b);
    *b = (toy_block){toy->memory, address, bytes, is_host, memory};
    toy->memory = b;
    toy->blocks++;
}

void toy_remove_block(toy_device* toy, uint64_t address)
{
    for (toy_block** at = &toy->memory; *at != NULL; at = &(*at)->next) {
        toy_block* b = *at;
        if (b->address != address) continue;
        *at = b->next;
        free(b->memory);
        free(b);
        toy->blocks--;
        return;
    }
    toy_violate(toy, "memory is released that is not held");
}
