// The licence of a checkpoint, as its author names it: in the model card (the lines between "---" at the beginning of
// README.md) or in the metadata of its files; where neither names one, that of the released model with the same sizes.
#ifndef LICENCE_H
#define LICENCE_H
#include "inside.h"

typedef struct licence {
    char id[128];   // "apache-2.0", "other"
    char name[128]; // license_name, of licences that have no id of their own; "" if there is none
    char link[512]; // license_link
    char source
        [1024]; // the path of the card, or the file and its metadata key, or what was compared; "": none was found
} licence;

// Looks in `path`, a folder, or beside it, a file; then in the metadata of the components' files; then `recipe` tells,
// unless it is NULL.
void licence_find(const char* path, const sumi_checkpoint* checkpoint, const sumi_recipe* recipe, licence* out);
#endif
