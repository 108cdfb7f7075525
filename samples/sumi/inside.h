// The one door to the library's rooms behind sumi.h. A host never needs them: inspect, tokenize and the reading of
// single tensors look into checkpoints more closely than a game would, and the command line is linked statically with
// the library it is built with, so these headers cannot differ from it.
#ifndef INSIDE_H
#define INSIDE_H
#include "base/memory.h"
#include "base/platform.h"
#include "files/checkpoint.h"
#include "files/json.h"
#include "files/safetensors_write.h"
#include "models/recipe.h"
#include "models/scheduler.h"
#include "models/signatures.h"
#include "text/tokenizer.h"
#endif
