// Runs a folder of golden data against the library and prints every tensor's error beside its tolerance.
//
//     golden_run [--skip-other-families] [--as-engine]
//                [--backend cpu|cuda] [--portable] [--no-graphs] [--fp8 | --int8 | --int4 | --as-stored] [--list-kernels]
//                [--as CARD] DIR
//
// --backend cuda runs the networks on the GPU, against one and a half times the references' own error in bfloat16;
// --portable without Hopper's kernels, --no-graphs without CUDA graphs, --fp8, --int8 and --int4 with weights in 8 or 4 bits, which have bounds that only a broken
// path exceeds, --as-stored with block types and fp8 as their files have them, which has the bounds of bfloat16.
// Tokenizers, schedules, pictures and single operations are the CPU's in any case. --list-kernels prints every kernel
// that the device has and how often it was used: tests/check_kernels.sh adds such lists up. --as 8.9 takes the kernels
// that are for such a card, on whatever GPU there is (tests/pretend_cuda).
//
// Every plan runs twice. First as the engine runs it: the same fused ops, the same memory, slices of the same length,
// graphs; what a host would get is compared. Then op by op with every value kept, for the values inside. On the CPU
// both must give the same bits. --as-engine leaves the second run out, for networks so large that not every
// value can be kept (samples/instruments/bench/compare_torch.py --accuracy); values inside count as not checked then.
//
// DIR is a family's folder (cases/*.json), the common folder (tokenizers, rng, files, numerics, images), or a folder of
// such folders. Nothing knows a case by name: family and kind choose what is done, and every size comes from the files.
//
// Cases of families that the library does not have are named and count as skipped. The exit status is 1 when a tensor
// is over its tolerance, when a case of a family that the library has was not run, and when nothing was compared; with
// --skip-other-families nothing need be compared in a folder whose cases are all of other families.
#include "cuda/cuda.h"
#include "golden_control.h"
#include "golden_support.h"
#include "plan_runner.h"
#include "pretend.h"
#include "system.h"
#include <stdlib.h>
#include <string.h>

typedef struct case_runner {
    const char* family;
    bool (*run)(golden_case* c); // false: the kind is not known
} case_runner;

static const case_runner* find_runner(const char* family)
{
#define GOLDEN_RUNNER(name, folder) {folder, run_##name##_case},
    static const case_runner s_runners[] = {GOLDEN_FAMILIES(GOLDEN_RUNNER){"flux2-klein-kv", run_flux2_klein_case},
                                            {"controlnet", run_control_case}};
#undef GOLDEN_RUNNER
    for (size_t i = 0; i < sizeof s_runners / sizeof *s_runners; i++)
        if (strcmp(s_runners[i].family, family) == 0) return &s_runners[i];
    return NULL;
}

static void run_case(golden* g, const char* folder, const char* file)
{
    char path[2600], message[SUMI_ERROR_TEXT_BYTES];
    golden_case c = {.g = g};
    snprintf(c.folder, sizeof c.folder, "%s", folder);
    snprintf(c.name, sizeof c.name, "%.*s", (int)(strlen(file) - strlen(".json")), file);
    snprintf(path, sizeof path, "%s/%s", folder, file);
    g->case_failed = 0;
    const case_runner* runner = NULL;
    node* json = json_read(path, message, sizeof message);
    if (json == NULL) {
        printf("%s\n", c.name);
        case_fails(&c, "%s", message);
        g->not_run++;
        return;
    }
    c.json = json;
    const char* family = json_text(json, "family");
    c.kind = json_text(json, "kind");
    printf("%s: %s, %s\n", c.name, family != NULL ? family : "no family", c.kind != NULL ? c.kind : "no kind");
    if (family == NULL || c.kind == NULL) {
        printf("  not run: the json names no family or no kind\n");
        g->not_run++;
    } else if (strcmp(c.kind, "report") == 0) {
        printf("  not run: a report, nothing to compare\n");
    } else if ((runner = find_runner(family)) == NULL) {
        printf("  skipped: the family %s is not in this library\n", family);
        g->other_families++;
    } else {
        snprintf(path, sizeof path, "%s/%s.safetensors", folder, c.name);
        sumi_tensor_set_init(&c.set, &g->heap, NULL);
        sumi_error error = {0};
        if (sumi_file_exists(NULL, path) && sumi_tensor_set_open(&c.set, path, &error) != SUMI_OK)
            case_fails(&c, "%s", error.text);
        c.seen = calloc(c.set.count + 1, sizeof *c.seen);
        int before = g->passed + g->failed;
        bool is_known = runner->run(&c);
        c.by_op = is_known && c.plans > 0 && !g->as_engine;
        if (c.by_op) runner->run(&c);
        c.by_op = false;
        if (!is_known) {
            printf("  not run: cases of kind %s are not known to this program\n", c.kind);
            g->not_run++;
        } else {
            if (!g->as_engine && c.kept_next != c.kept_count)
                case_fails(&c, "%d results were made one way only", (int)(c.kept_count - c.kept_next));
            if (before == g->passed + g->failed && g->case_failed == 0) case_fails(&c, "nothing was compared");
            finish_case(&c);
            g->cases++;
        }
        free(c.seen);
        sumi_tensor_set_close(&c.set);
    }
    if (g->case_failed > 0) printf("  -> %s FAILED\n", c.name);
    json_free(json);
}

static int s_depth_limit = 3;

static bool run_folder(golden* g, const char* folder, int depth)
{
    static const char* const s_parts[] = {"tokenizers", "rng", "files", "numerics", "images"};
    char path[2048];
    bool found = false;
    int count;
    snprintf(path, sizeof path, "%s/cases", folder);
    if (sumi_path_is_folder(path)) {
        char** names = system_list(path, &count);
        for (int i = 0; i < count; i++) {
            size_t length = strlen(names[i]);
            if (length > 5 && strcmp(names[i] + length - 5, ".json") == 0) run_case(g, path, names[i]);
        }
        system_free_list(names, count);
        found = true;
    }
    for (size_t i = 0; i < sizeof s_parts / sizeof *s_parts; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, s_parts[i]);
        if (sumi_path_is_folder(path)) {
            run_common(g, path, s_parts[i]);
            found = true;
        }
    }
    if (found || depth >= s_depth_limit) return found;
    char** names = system_list(folder, &count);
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (sumi_path_is_folder(path)) found = run_folder(g, path, depth + 1) || found;
    }
    system_free_list(names, count);
    return found;
}

static bool open_runner(golden* g, bool is_gpu, const sumi_cuda_options* options, sumi_error* error)
{
    sumi_heap_init(&g->heap, NULL);
    if (sumi_workers_create(&g->heap, NULL, 0, error, &g->workers) != SUMI_OK
        || sumi_cpu_create(&g->heap, g->workers, SUMI_CPU_AUTO, error, &g->cpu) != SUMI_OK)
        return false;
    g->runner = g->cpu;
    g->is_gpu = is_gpu;
    if (!is_gpu) return true;
    sumi_engine_desc desc = sumi_engine_defaults();
    desc.backend = SUMI_BACKEND_CUDA;
    return sumi_cuda_create(&g->heap, g->workers, &desc, options, error, &g->runner) == SUMI_OK
        && runner_load(g->runner, error) == SUMI_OK;
}

int main(int argc, char** argv)
{
    const int argument_count = argc;
    if (!pretend_take_argument(&argc, argv)) return 2;
    const bool pretends = argc != argument_count;
    golden* g = calloc(1, sizeof *g);
    sumi_cuda_options options = {0};
    sumi_error error = {0};
    const char* folder = NULL;
    bool is_gpu = false, is_good = true, lists_kernels = false, may_be_other = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--portable") == 0) options.without_hopper = true;
        else if (strcmp(argv[i], "--no-graphs") == 0) options.without_graphs = true;
        else if (strcmp(argv[i], "--fp8") == 0) g->weights = SUMI_WEIGHTS_FP8;
        else if (strcmp(argv[i], "--int8") == 0) g->weights = SUMI_WEIGHTS_INT8;
        else if (strcmp(argv[i], "--int4") == 0) g->weights = SUMI_WEIGHTS_INT4;
        else if (strcmp(argv[i], "--as-stored") == 0) g->weights = SUMI_WEIGHTS_AS_STORED;
        else if (strcmp(argv[i], "--8bit-attention") == 0) g->attention = SUMI_ATTENTION_8BIT;
        else if (strcmp(argv[i], "--text") == 0) g->has_text_weights = true;
        else if (strcmp(argv[i], "--as-engine") == 0) g->as_engine = true;
        else if (strcmp(argv[i], "--list-kernels") == 0) lists_kernels = true;
        else if (strcmp(argv[i], "--skip-other-families") == 0) may_be_other = true;
        else if (strcmp(argv[i], "--backend") == 0 && i + 1 < argc) {
            is_gpu = strcmp(argv[++i], "cuda") == 0;
            is_good = is_good && (is_gpu || strcmp(argv[i], "cpu") == 0);
        } else if (argv[i][0] != '-' && folder == NULL) folder = argv[i];
        else is_good = false;
    }
    if (g->weights == SUMI_WEIGHTS_AS_STORED) g->has_text_weights = true; // as the engine
    const bool wants_gpu = g->weights != SUMI_WEIGHTS_AUTO || options.without_hopper || options.without_graphs
                        || lists_kernels || pretends || g->attention != SUMI_ATTENTION_AUTO;
    if (!is_good || folder == NULL || (!is_gpu && wants_gpu)) {
        fprintf(stderr,
                "usage: golden_run [--skip-other-families] [--as-engine] [--backend cpu|cuda] [--portable] "
                "[--no-graphs] [--fp8 | --int8 | --int4 | --as-stored] [--text] [--8bit-attention] "
                "[--list-kernels] [--as CARD] DIR\n"
                "  the last seven are for --backend cuda; --text: text encoders have this format of weights too\n");
        free(g);
        return 2;
    }
    if (!open_runner(g, is_gpu, &options, &error)) {
        fprintf(stderr, "%s\n", error.text);
        return 2;
    }
    if (is_gpu) printf("%s\n", g->runner->functions->device(g->runner));
    bool found = run_folder(g, folder, 0);
    if (!found) printf("%s holds no golden data (cases/, or tokenizers, rng, files, numerics, images)\n", folder);
    const bool has_compared = g->passed + g->failed > 0;
    bool good = found && g->failed == 0 && g->not_run == 0 && (has_compared || (may_be_other && g->other_families > 0));
    if (found && !has_compared) printf("%s: nothing was compared\n", folder);
    close_network(g);
    if (lists_kernels) print_kernels(g->runner);
    printf("golden_run: %d passed, %d failed, %d skipped (%d cases; %d of families that are not in this library, %d of "
           "a known family not run)\n",
           g->passed, g->failed, g->not_checked + g->other_families, g->cases, g->other_families, g->not_run);
    if (is_gpu) g->runner->functions->destroy(g->runner);
    g->cpu->functions->destroy(g->cpu);
    sumi_workers_destroy(g->workers);
    if (atomic_load(&g->heap.allocated_bytes) != 0)
        printf("golden_run: the library still holds %llu bytes\n",
               (unsigned long long)atomic_load(&g->heap.allocated_bytes)),
            good = false;
    free(g);
    return good ? 0 : 1;
}
