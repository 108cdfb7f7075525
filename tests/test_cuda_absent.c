// A machine without an NVIDIA driver: the backend says so and nothing else happens.
#include "base/platform.h"
#include "cuda/cuda.h"
#include "test.h"

#if defined(_WIN32)
#define DRIVER "nvcuda.dll"
#define SOME_LIBRARY "kernel32.dll"
#define SOME_FUNCTION "GetTickCount"
#else
#define DRIVER "libcuda.so.1"
#define SOME_LIBRARY "libm.so.6"
#define SOME_FUNCTION "cosf"
#endif

TEST(no_driver_is_a_result)
{
#if defined(SUMI_HAS_CUDA)
    if (sumi_library_open(DRIVER) != NULL) SKIP("there is an NVIDIA driver here");
#endif
    sumi_heap heap;
    sumi_heap_init(&heap, NULL);
    sumi_engine_desc desc = {.cuda = {.ordinal = -1}};
    sumi_error error = {0};
    sumi_runner* runner = (sumi_runner*)&heap;
    sumi_result result = sumi_cuda_create(&heap, NULL, &desc, NULL, &error, &runner);
#if defined(SUMI_HAS_CUDA)
    CHECK_NUMBER(result, SUMI_NO_DEVICE);
    CHECK(strstr(error.text, DRIVER) != NULL);
#else
    CHECK_NUMBER(result, SUMI_NOT_SUPPORTED);
#endif
    CHECK(strstr(error.text, "CPU backend") != NULL);
    CHECK_NUMBER(error.result, result);
    CHECK(runner == NULL);
    CHECK_NUMBER(atomic_load(&heap.allocated_bytes), 0);
}

TEST(a_library_that_is_not_there_is_null)
{
    CHECK(sumi_library_open("libsumi-no-such-library.so.1") == NULL);
    void* library = sumi_library_open(SOME_LIBRARY);
    if (library == NULL) SKIP("no " SOME_LIBRARY " here");
    CHECK(sumi_library_symbol(library, SOME_FUNCTION) != NULL);
    CHECK(sumi_library_symbol(library, "sumi_no_such_function") == NULL);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(no_driver_is_a_result);
    RUN(a_library_that_is_not_there_is_null);
    TEST_END();
}
