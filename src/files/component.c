// What is asked of a component that was found (checkpoint.h).
#include "files/checkpoint.h"
#include <string.h>

const char* sumi_component_network(const sumi_component* component)
{
    return component->signature != NULL ? component->signature->network : "";
}

const sumi_tensor* sumi_component_find(const sumi_component* component, const char* name)
{
    return component->present ? sumi_tensor_find_prefixed(component->set, component->prefix, name) : NULL;
}

const char* sumi_component_tensor_name(const sumi_component* component, const sumi_tensor* tensor)
{
    if (!component->present) return NULL;
    const size_t bytes = strlen(component->prefix);
    return strncmp(tensor->name, component->prefix, bytes) == 0 ? tensor->name + bytes : NULL;
}
