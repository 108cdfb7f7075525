// sumi info: what this build can compute with, on this machine.
#include "commands.h"
#include "inside.h"
#include <stdio.h>
#include <string.h>

static void keep_text(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    (void)result;
    if (level == SUMI_LOG_ERROR) snprintf(user_data, 512, "%s", text);
}

static void print_backend(sumi_backend backend, const char* name, int32_t thread_count)
{
    char detail[512] = "";
    sumi_engine_desc desc = sumi_engine_defaults();
    desc.backend = backend;
    desc.cpu_thread_count = thread_count;
    desc.log.write = keep_text;
    desc.log.user_data = detail;
    sumi_engine* engine;
    sumi_result result = sumi_engine_create(&desc, &engine);
    if (result != SUMI_OK) {
        printf("%-10s not available: %s\n", name, detail[0] ? detail : sumi_result_text(result));
        return;
    }
    sumi_engine_info info = sumi_engine_get_info(engine);
    printf("%-10s %s", name, info.device);
    if (info.compute_capability)
        printf(", compute capability %d.%d, driver %d", info.compute_capability / 10, info.compute_capability % 10,
               info.driver_version);
    if (info.device_bytes) printf(", %.1f GB", (double)info.device_bytes * 1e-9);
    printf("\n");
    if (info.device_bytes) {
        printf("%-10s %.1f MB of them are the driver's and other programs', which no --memory-budget counts\n", "",
               1e-6 * (double)info.uncounted_bytes);
    }
    sumi_engine_destroy(engine);
}

static void print_processor(void)
{
    sumi_cpu_features features = sumi_cpu_detect();
    printf("%-10s %d logical processors,%s%s%s%s%s\n", "processor", sumi_cpu_count(),
           features.avx2_fma_f16c ? " AVX2 FMA F16C" : "", features.avx512 ? " AVX-512" : "",
           features.avx512_bf16 ? " BF16" : "", features.neon ? " NEON" : "",
           features.avx2_fma_f16c || features.avx512 || features.neon ? "" : " no vector units that sumi uses");
}

int info_main(int argc, char** argv)
{
    const cli_command command = {
        .name = "info",
        .about =
            "Prints the backends of this build and what they run on, the processor, and how the program was built.",
        .examples = "  sumi info\n",
    };
    args_result parsed = args_parse(&command, argc, argv);
    if (parsed != ARGS_RUN) return parsed == ARGS_HELP ? EXIT_OK : EXIT_USAGE;
    printf("%-10s %s\n", "sumi", sumi_version());
    print_backend(SUMI_BACKEND_CPU, "cpu", 0);
    print_backend(SUMI_BACKEND_CUDA, "cuda", 1);
    print_processor();
#if defined(NDEBUG)
    const char* kind = "release";
#else
    const char* kind = "checked";
#endif
#if defined(__clang__)
    printf("%-10s %s, %s\n", "build", kind, __VERSION__);
#else
    printf("%-10s %s, GCC %s\n", "build", kind, __VERSION__);
#endif
    return EXIT_OK;
}
