// Memory and semaphores of OpenGL, Vulkan and Direct3D: the functions of interop/interop.h. The context must be
// current.
#ifndef SUMI_CUDA_IMPORTS_H
#define SUMI_CUDA_IMPORTS_H
#include "cuda/state.h"
#include "interop/interop.h"

sumi_result sumi_cuda_import(sumi_cuda* cuda, const sumi_import_desc* desc, sumi_imported* out_import,
                             sumi_error* error);
void sumi_cuda_finish_import(const sumi_cuda* cuda, const sumi_imported* import);
void sumi_cuda_release_import(sumi_cuda* cuda, sumi_imported* import);
bool sumi_cuda_is_copying(const sumi_cuda* cuda, const sumi_imported* import);
sumi_result sumi_cuda_copy_to_import(const sumi_cuda* cuda, const sumi_import_copy* copy, sumi_error* error);
#endif
