// Memory and semaphores of the host program's graphics API (OpenGL, Vulkan, Direct3D), as a backend imports them.
//
// A runner that can import has this table (sumi_runner.interop in plan/runner.h); the others have none. It has its own
// room because plans know nothing of graphics APIs, and because the engine should not include a backend to call it.
//
//   import | publish with the import, copy_to_import, is_copying .. | finish_import, release_import
#ifndef SUMI_INTEROP_INTEROP_H
#define SUMI_INTEROP_INTEROP_H
#include "base/result.h"
#include <stdbool.h>
#include <stdint.h>
#include <sumi.h>

typedef struct sumi_runner sumi_runner; // plan/runner.h

// Memory or a semaphore of a graphics API that was imported. The engine reads kind, format, width, height, address and
// staging, and writes previews to staging. All other members are the runner's.
typedef struct sumi_imported {
    // Linear device memory of sumi, in which the image for the external is written first. 0: a semaphore.
    uint64_t address;
    uint64_t bytes;
    uint64_t pitch;        // bytes from row to row in it
    int32_t width, height; // pixels
    sumi_format format;
    // Pixels are floats, which are read. `address` has the depth, then the state of depth.h (kernels); staging the
    // newest control picture made of it.
    bool is_depth;
    uint64_t staging, staging_bytes; // pinned host memory for previews or the control picture; 0: none
    bool staging_is_registered;
    void* stream;                  // copies into the external run here
    void* copied;                  // an event, recorded after each copy
    bool has_copied;               // it was recorded
    void* used;                    // is_depth: an event, recorded after the depth at `address` was read
    bool has_used;                 // it was recorded
    void* resource;                // of OpenGL, of D3D11_TEXTURE: mapped for each copy
    void *memory, *levels, *array; // of other APIs; `array` for images, `mapped` for rows
    uint64_t mapping;              // the address of the whole memory that the rows lie in
    uint64_t mapped, row_bytes;
    void* semaphore;
    sumi_external_kind kind;
} sumi_imported;

// A copy into an external. If the import is_depth, it goes the other way: from the external to to->address.
typedef struct sumi_import_copy {
    sumi_imported* to;
    // The image as it lies at to->staging, rows tightly packed: a preview. False: at to->address.
    bool from_staging;
    const sumi_imported *wait, *signal; // semaphores; NULL: none
    uint64_t wait_value, signal_value;
} sumi_import_copy;

// No member is NULL.
typedef struct sumi_interop_functions {
    // Imports memory or a semaphore as the desc says; the engine has checked its members. Allocates the memory in which
    // an image is written first. desc->fd is the runner's if it succeeds. No other function of the runner may run at
    // the same time; with OpenGL and ID3D11Texture2D, call it on the thread of the graphics API. May wait for the
    // device, because it allocates. Fails with SUMI_INVALID_ARGUMENT (the object is not what the desc says, or is of
    // another device), SUMI_NOT_SUPPORTED, SUMI_WRONG_STATE (no context of OpenGL is current), an out-of-memory result
    // or SUMI_DEVICE_LOST; then *out_import is zeroed.
    sumi_result (*import)(sumi_runner* runner, const sumi_import_desc* desc, sumi_imported* out_import,
                          sumi_error* error);
    // Blocks until the copies into the external have ended, and so until the host program has signalled the semaphores
    // that they wait for. Accepts semaphores, which have none. No other function of the runner may run at the same
    // time.
    void (*finish_import)(sumi_runner* runner, const sumi_imported* import);
    // Frees everything of the import, which is zeroed. Accepts a zeroed one. Nothing may be writing to its memory.
    // Blocks until the copies into it have ended. No other function of the runner may run at the same time.
    void (*release_import)(sumi_runner* runner, sumi_imported* import);
    // Whether a copy into the external has not ended. Does not block. May be called while any other function runs. A
    // failure counts as false.
    bool (*is_copying)(sumi_runner* runner, const sumi_imported* import);
    // Puts the copy between its wait and its signal into the external's stream. Does not block. May be called while any
    // other function runs, but not for the same import; with OpenGL and ID3D11Texture2D, call it on the thread of the
    // graphics API. Fails as `import` does; then the external may hold a part of the image or none.
    sumi_result (*copy_to_import)(sumi_runner* runner, const sumi_import_copy* copy, sumi_error* error);
} sumi_interop_functions;
#endif
