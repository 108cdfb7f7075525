// Memory and semaphores that graphics APIs share. A file descriptor is known by the file that it is of, so that copies of
// a descriptor are the same thing, as for the real driver.
#include "fake_state.h"
#include "fake_system.h"
#include <cudaTypedefs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENTER(name)                                                                                                    \
    do {                                                                                                               \
        const CUresult refused_ = fake_enter_library(name);                                                            \
        if (refused_ != CUDA_SUCCESS) return leave(refused_);                                                          \
    } while (0)
#define NEED(condition, ...)                                                                                           \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fake_violation(__VA_ARGS__);                                                                               \
            return leave(CUDA_ERROR_INVALID_VALUE);                                                                    \
        }                                                                                                              \
    } while (0)

static CUresult leave(CUresult result)
{
    fake_log_result(result);
    fake_unlock();
    return result;
}

// ---- The host program's side ----------------------------------------------------------------------------------------

static int make_shared(int type, uint64_t bytes, bool is_dedicated)
{
    for (int i = 0; i < FAKE_MOST_SHARED; i++) {
        if (fake.shared[i].is_used) continue;
        fake.shared[i] =
            (fake_shared){.is_used = true, .type = type, .bytes = (size_t)bytes, .is_dedicated = is_dedicated};
        if (bytes > 0) fake.shared[i].memory = calloc(1, (size_t)bytes);
        return i + 1;
    }
    abort();
}

int fake_shared_memory(int type, uint64_t bytes, bool is_dedicated) { return make_shared(type, bytes, is_dedicated); }
int fake_shared_semaphore(int type) { return make_shared(type, 0, false); }

int fake_shared_descriptor(int number)
{
    fake_shared* shared = &fake.shared[number - 1];
    if (shared->file == 0) { // it stays open, so that no other file gets its number
        shared->descriptor = fake_system_file_begin();
        shared->file = fake_system_file_of(shared->descriptor);
    }
    return fake_system_file_copy(shared->descriptor);
}

void* fake_shared_handle(int number)
{
    fake_shared* shared = &fake.shared[number - 1];
    if (shared->handle == NULL) shared->handle = fake_system_handle_begin();
    return shared->handle;
}

const unsigned char* fake_shared_bytes(int shared) { return fake.shared[shared - 1].memory; }
uint64_t fake_shared_value(int shared) { return fake.shared[shared - 1].value; }
int fake_shared_imports(int shared) { return fake.shared[shared - 1].imports; }
bool fake_shared_is_attachment(int shared) { return fake.shared[shared - 1].is_attachment; }

void fake_shared_signal(int shared, uint64_t value)
{
    fake_lock();
    fake.shared[shared - 1].value = value;
    if (fake.complete_after == 0) fake_drain_all();
    fake_unlock();
}

void fake_shared_release(int shared)
{
    fake_lock();
    if (fake.shared[shared - 1].imports > 0) fake_violation("shared memory or a semaphore goes that CUDA has");
    free(fake.shared[shared - 1].memory);
    if (fake.shared[shared - 1].file != 0) fake_system_file_close(fake.shared[shared - 1].descriptor);
    void* handle = fake.shared[shared - 1].handle;
    if (handle != NULL && !fake_system_handle_end(handle)) fake_violation("a handle of the host program was closed");
    fake.shared[shared - 1] = (fake_shared){.is_used = false};
    fake_unlock();
}

// ---- CUDA's side ----------------------------------------------------------------------------------------------------

static fake_shared* find_shared(bool has_descriptor, int descriptor, const void* handle)
{
    const unsigned long long file = has_descriptor ? fake_system_file_of(descriptor) : 0;
    for (int i = 0; i < FAKE_MOST_SHARED; i++) {
        fake_shared* shared = &fake.shared[i];
        if (!shared->is_used) continue;
        if (has_descriptor ? file != 0 && shared->file == file : handle != NULL && shared->handle == handle)
            return shared;
    }
    return NULL;
}

CUresult CUDAAPI cuImportExternalMemory(CUexternalMemory* out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* desc)
{
    ENTER("cuImportExternalMemory");
    const bool has_descriptor = desc->type == CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
    const bool is_resource = desc->type == CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_RESOURCE
                          || desc->type == CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D11_RESOURCE;
    NEED(desc->flags == 0 || desc->flags == CUDA_EXTERNAL_MEMORY_DEDICATED, "cuImportExternalMemory: flags");
    NEED(!is_resource || desc->flags == CUDA_EXTERNAL_MEMORY_DEDICATED,
         "cuImportExternalMemory: a resource of Direct3D is dedicated");
    NEED(has_descriptor || desc->handle.win32.name == NULL, "cuImportExternalMemory: a name");
    fake_shared* shared = find_shared(has_descriptor, desc->handle.fd, desc->handle.win32.handle);
    fake_log_add(" type %d of %llu bytes, flags %u", (int)desc->type, (unsigned long long)desc->size, desc->flags);
    if (shared == NULL) return leave(CUDA_ERROR_UNKNOWN); // as the real driver says of invalid handles
    fake_log_add(", shared %d", (int)(shared - fake.shared) + 1);
    if (shared->type != (int)desc->type || shared->memory == NULL) return leave(CUDA_ERROR_INVALID_HANDLE);
    if (shared->bytes != desc->size
        || (!is_resource && shared->is_dedicated != (desc->flags == CUDA_EXTERNAL_MEMORY_DEDICATED)))
        return leave(CUDA_ERROR_INVALID_VALUE);
    if (has_descriptor) fake_system_file_close(desc->handle.fd);
    fake_import* import = fake_make(sizeof *import, FAKE_EXTERNAL_MEMORY);
    import->shared = shared;
    import->is_dedicated = desc->flags == CUDA_EXTERNAL_MEMORY_DEDICATED;
    shared->imports++;
    *out = (CUexternalMemory)import;
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDestroyExternalMemory(CUexternalMemory handle)
{
    ENTER("cuDestroyExternalMemory");
    NEED(fake_is_alive(handle, FAKE_EXTERNAL_MEMORY), "cuDestroyExternalMemory: a dead handle");
    fake_import* import = (fake_import*)handle;
    NEED(import->children == 0 && (import->shared->imports > 1 || fake_find_block(import->shared->memory, 1) == NULL),
         "cuDestroyExternalMemory: it is still mapped");
    import->shared->imports--;
    fake_unmake(import);
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuExternalMemoryGetMappedBuffer(CUdeviceptr* address, CUexternalMemory handle,
                                                 const CUDA_EXTERNAL_MEMORY_BUFFER_DESC* part)
{
    ENTER("cuExternalMemoryGetMappedBuffer");
    NEED(fake_is_alive(handle, FAKE_EXTERNAL_MEMORY), "cuExternalMemoryGetMappedBuffer: a dead handle");
    fake_import* import = (fake_import*)handle;
    NEED(part->flags == 0 && part->offset + part->size <= import->shared->bytes,
         "cuExternalMemoryGetMappedBuffer: outside of the memory");
    // as strict as a driver may be: memory of one resource has no other parts
    if (import->is_dedicated && part->offset != 0) return leave(CUDA_ERROR_INVALID_VALUE);
    unsigned char* memory = import->shared->memory + part->offset;
    fake_make_block(FAKE_MAPPED_BLOCK, memory, (size_t)part->size);
    *address = (CUdeviceptr)(uintptr_t)memory;
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuExternalMemoryGetMappedMipmappedArray(CUmipmappedArray* out, CUexternalMemory handle,
                                                         const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC* image)
{
    ENTER("cuExternalMemoryGetMappedMipmappedArray");
    NEED(fake_is_alive(handle, FAKE_EXTERNAL_MEMORY), "cuExternalMemoryGetMappedMipmappedArray: a dead handle");
    fake_import* import = (fake_import*)handle;
    const CUDA_ARRAY3D_DESCRIPTOR* array = &image->arrayDesc;
    const bool is_half = array->Format == CU_AD_FORMAT_HALF, is_depth = array->Format == CU_AD_FORMAT_FLOAT;
    NEED(array->NumChannels == (is_depth ? 1u : 4u) && array->Depth == 0
             && (is_half || is_depth || array->Format == CU_AD_FORMAT_UNSIGNED_INT8)
             && (array->Flags & ~(unsigned)CUDA_ARRAY3D_COLOR_ATTACHMENT) == 0 && image->numLevels >= 1,
         "cuExternalMemoryGetMappedMipmappedArray: not an image of sumi's formats");
    fake_import* levels = fake_make(sizeof *levels, FAKE_LEVELS);
    *levels = (fake_import){.object = levels->object,
                            .shared = import->shared,
                            .offset = (size_t)image->offset,
                            .width = (int)array->Width,
                            .height = (int)array->Height,
                            .pixel_bytes = is_half ? 8 : 4,
                            .parent = import};
    NEED(levels->offset + array->Width * array->Height * (size_t)levels->pixel_bytes <= import->shared->bytes,
         "cuExternalMemoryGetMappedMipmappedArray: outside of the memory");
    if (array->Flags != 0) import->shared->is_attachment = true;
    import->children++;
    *out = (CUmipmappedArray)levels;
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMipmappedArrayGetLevel(CUarray* out, CUmipmappedArray handle, unsigned level)
{
    ENTER("cuMipmappedArrayGetLevel");
    NEED(fake_is_alive(handle, FAKE_LEVELS) && level == 0, "cuMipmappedArrayGetLevel: a dead handle, or no such level");
    fake_import* levels = (fake_import*)handle;
    fake_import* array = fake_make(sizeof *array, FAKE_ARRAY);
    const fake_object object = array->object;
    *array = *levels;
    array->object = object;
    array->parent = levels;
    levels->children++;
    *out = (CUarray)array;
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMipmappedArrayDestroy(CUmipmappedArray handle)
{
    ENTER("cuMipmappedArrayDestroy");
    NEED(fake_is_alive(handle, FAKE_LEVELS), "cuMipmappedArrayDestroy: a dead handle");
    for (fake_object *object = fake.alive, *next; object != NULL; object = next) { // its levels go with it
        next = object->next;
        if (object->kind == FAKE_ARRAY && ((fake_import*)object)->parent == (fake_import*)handle) fake_unmake(object);
    }
    ((fake_import*)handle)->parent->children--;
    fake_unmake(handle);
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuImportExternalSemaphore(CUexternalSemaphore* out, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC* desc)
{
    ENTER("cuImportExternalSemaphore");
    const bool has_descriptor = desc->type == CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD
                             || desc->type == CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD;
    NEED(desc->flags == 0, "cuImportExternalSemaphore: flags");
    fake_shared* shared = find_shared(has_descriptor, desc->handle.fd, desc->handle.win32.handle);
    fake_log_add(" type %d", (int)desc->type);
    if (shared == NULL) return leave(CUDA_ERROR_UNKNOWN);
    fake_log_add(", shared %d", (int)(shared - fake.shared) + 1);
    if (shared->type != (int)desc->type || shared->memory != NULL) return leave(CUDA_ERROR_INVALID_HANDLE);
    if (has_descriptor) fake_system_file_close(desc->handle.fd);
    fake_import* import = fake_make(sizeof *import, FAKE_SEMAPHORE);
    import->shared = shared;
    shared->imports++;
    *out = (CUexternalSemaphore)import;
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDestroyExternalSemaphore(CUexternalSemaphore handle)
{
    ENTER("cuDestroyExternalSemaphore");
    NEED(fake_is_alive(handle, FAKE_SEMAPHORE), "cuDestroyExternalSemaphore: a dead handle");
    for (const fake_object* object = fake.alive; object != NULL; object = object->next) {
        if (object->kind != FAKE_STREAM) continue;
        for (const fake_node* node = ((const fake_stream*)object)->queue.first; node != NULL; node = node->next)
            NEED(node->shared != ((fake_import*)handle)->shared, "cuDestroyExternalSemaphore: it is in flight");
    }
    ((fake_import*)handle)->shared->imports--;
    fake_unmake(handle);
    return leave(CUDA_SUCCESS);
}

static CUresult submit(fake_node_kind kind, const CUexternalSemaphore* handles, unsigned count, uint64_t value,
                       uint64_t key, unsigned flags, CUstream stream, const char* name)
{
    NEED(count == 1 && flags == 0 && fake_is_alive(handles[0], FAKE_SEMAPHORE), "%s: a dead handle, or flags", name);
    NEED(stream != NULL && fake_is_alive(stream, FAKE_STREAM), "%s: no stream", name);
    fake_node* node = fake_new_node(kind);
    node->shared = ((fake_import*)handles[0])->shared;
    node->has_key = node->shared->type == CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D11_KEYED_MUTEX;
    const bool is_binary = node->shared->type == CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD
                        || node->shared->type == CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_WIN32;
    NEED(node->has_key ? value == 0 : key == 0, "%s: a value of another kind of semaphore", name);
    NEED(!is_binary || value == 0, "%s: a binary semaphore has no value", name);
    node->ticket = is_binary ? 1 : node->has_key ? key : value;
    fake_submit((fake_stream*)stream, node);
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuSignalExternalSemaphoresAsync(const CUexternalSemaphore* handles,
                                                 const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS* params, unsigned count,
                                                 CUstream stream)
{
    ENTER("cuSignalExternalSemaphoresAsync");
    return submit(FAKE_SIGNAL_SHARED, handles, count, params->params.fence.value, params->params.keyedMutex.key,
                  params->flags, stream, "cuSignalExternalSemaphoresAsync");
}

CUresult CUDAAPI cuWaitExternalSemaphoresAsync(const CUexternalSemaphore* handles,
                                               const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS* params, unsigned count,
                                               CUstream stream)
{
    ENTER("cuWaitExternalSemaphoresAsync");
    if (fake_is_alive(handles[0], FAKE_SEMAPHORE)
        && ((fake_import*)handles[0])->shared->type == CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D11_KEYED_MUTEX)
        NEED(params->params.keyedMutex.timeoutMs == UINT32_MAX, "cuWaitExternalSemaphoresAsync: a timeout");
    return submit(FAKE_WAIT_SHARED, handles, count, params->params.fence.value, params->params.keyedMutex.key,
                  params->flags, stream, "cuWaitExternalSemaphoresAsync");
}
