// The only header through which the command line includes internal headers of the library (module folders of src). Host
// programs never need them: inspect, tokenize and the reading of single tensors show more of a checkpoint than sumi.h
// does, generate --dump writes what a job has read and drawn, and info computes what cards that are not there would need. The command line is linked statically with the library of the same build, so header and library always match.
#ifndef INSIDE_H
#define INSIDE_H
#include "base/memory.h"
#include "base/platform.h"
#include "cuda/cuda.h"
#include "device/choose_forms.h"
#include "device/memory_share.h"
#include "engine/desc_checks.h"
#include "files/checkpoint.h"
#include "files/json.h"
#include "files/tensor_scaling.h"
#include "files/tensors.h"
#include "jobs/objects.h"
#include "models/adapter_layers.h"
#include "models/config.h"
#include "models/control.h"
#include "models/control_module.h"
#include "models/network_state.h"
#include "models/pipeline.h"
#include "models/prompt_reader.h"
#include "models/recipe.h"
#include "models/signatures.h"
#include "sampling/noise.h"
#include "sampling/schedule.h"
#include "text/tokenizer.h"
#if defined(SUMI_HAS_CUDA)
#include "cuda/arrange.h"
#include "cuda/state.h"
#endif
#endif
