#if !defined(_WIN32) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#include "pretend.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__linux__)
#include <dlfcn.h>
#include <unistd.h>

// The loader knows a library by its soname: whoever asks for libcuda.so.1 from now on gets this one.
static bool open_stand_in(void)
{
    static const char* const s_places[] = {"pretend", "../pretend"}; // where programs were collected, or built
    char folder[3800], path[3900];
    const ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
    if (length <= 0) return false;
    folder[length] = 0;
    *strrchr(folder, '/') = 0;
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s/libcuda.so.1", folder, s_places[i]);
        if (access(path, F_OK) == 0) return dlopen(path, RTLD_NOW) != NULL;
    }
    return false;
}

static bool pretend(const char* card) { return setenv("SUMI_PRETEND", card, 1) == 0 && open_stand_in(); }
#else
static bool pretend(const char* card)
{
    (void)card;
    return false;
}
#endif

bool pretend_take_argument(int* argc, char** argv)
{
    for (int i = 1; i + 1 < *argc; i++) {
        if (strcmp(argv[i], "--as") != 0) continue;
        if (!pretend(argv[i + 1])) {
            fprintf(stderr,
                    "--as %s: there is no stand-in for the driver, pretend/libcuda.so.1, beside this program: build "
                    "pretend_cuda, with CUDA and on Linux\n",
                    argv[i + 1]);
            return false;
        }
        for (int k = i; k + 2 <= *argc; k++) argv[k] = argv[k + 2]; // the closing NULL, too
        *argc -= 2;
        return true;
    }
    return true;
}
