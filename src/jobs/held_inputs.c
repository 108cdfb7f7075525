#include "jobs/held_inputs.h"

void sumi_held_inputs_begin(sumi_held_inputs* held, uint64_t plan_serial, uint64_t arena_serial)
{
    if (held->plan_serial == plan_serial && held->arena_serial == arena_serial) return;
    *held = (sumi_held_inputs){.plan_serial = plan_serial, .arena_serial = arena_serial};
}

void sumi_held_inputs_forget(sumi_held_inputs* held) { *held = (sumi_held_inputs){.plan_serial = 0}; }

bool sumi_held_inputs_has(uint64_t* member, uint64_t prompt_serial)
{
    if (prompt_serial != 0 && *member == prompt_serial) return true;
    *member = 0; // it will be half written for a while
    return false;
}

void sumi_held_inputs_note(const sumi_held_inputs* held, uint64_t* member, uint64_t prompt_serial)
{
    *member = held->arena_serial != 0 ? prompt_serial : 0;
}
