// Runs a folder of golden data against the library and prints every tensor's error beside its tolerance.
//
//     golden_run DIR
//
// DIR is a family's folder (cases/*.json), the common folder (tokenizers, rng, files, numerics, images), or a folder of such folders. Nothing knows a case by name: family
// and kind choose what is done, and every size comes from the files. The exit status is 1 when a tensor is over its tolerance, or when a case of a family that
// the library has was not run.
#include "golden_support.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

static int compare_names(const void* a, const void* b) { return strcmp(*(char* const*)a, *(char* const*)b); }

// Names in a folder, sorted; free each and the list.
static char** list_folder(const char* folder, int* out_count)
{
    char** names = NULL;
    *out_count = 0;
    DIR* dir = opendir(folder);
    for (struct dirent* entry = dir != NULL ? readdir(dir) : NULL; entry != NULL; entry = readdir(dir)) {
        if (entry->d_name[0] == '.') continue;
        names = realloc(names, (size_t)(*out_count + 1) * sizeof *names);
        names[(*out_count)++] = strcpy(malloc(strlen(entry->d_name) + 1), entry->d_name);
    }
    if (dir != NULL) closedir(dir);
    if (names != NULL) qsort(names, (size_t)*out_count, sizeof *names, compare_names);
    return names;
}

static void free_names(char** names, int count)
{
    for (int i = 0; i < count; i++) free(names[i]);
    free(names);
}

static void run_case(golden* g, const char* folder, const char* file)
{
    char path[2600], message[SUMI_ERROR_TEXT_BYTES];
    golden_case c = {.g = g};
    snprintf(c.folder, sizeof c.folder, "%s", folder);
    snprintf(c.name, sizeof c.name, "%.*s", (int)(strlen(file) - strlen(".json")), file);
    snprintf(path, sizeof path, "%s/%s", folder, file);
    g->case_failed = 0;
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
    } else if (strcmp(family, "z-image") != 0) {
        printf("  not run: the family %s is not in this library\n", family);
    } else {
        snprintf(path, sizeof path, "%s/%s.safetensors", folder, c.name);
        sumi_tensor_set_init(&c.set, &g->heap, NULL);
        sumi_error error = {0};
        if (sumi_file_exists(NULL, path) && sumi_tensor_set_open(&c.set, path, &error) != SUMI_OK) case_fails(&c, "%s", error.text);
        c.seen = calloc(c.set.count + 1, sizeof *c.seen);
        int before = g->passed + g->failed;
        if (!run_z_image_case(&c)) {
            printf("  not run: cases of kind %s are not known to this program\n", c.kind);
            g->not_run++;
        } else {
            if (before == g->passed + g->failed && g->case_failed == 0) case_fails(&c, "nothing was compared");
            finish_case(&c);
            g->cases++;
            g->failed += g->case_failed > 0 && before == g->passed + g->failed; // a failure without any number
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
    static const char* const parts[] = {"tokenizers", "rng", "files", "numerics", "images"};
    char path[2048];
    bool found = false;
    int count;
    snprintf(path, sizeof path, "%s/cases", folder);
    if (sumi_path_is_folder(path)) {
        char** names = list_folder(path, &count);
        for (int i = 0; i < count; i++) {
            size_t length = strlen(names[i]);
            if (length > 5 && strcmp(names[i] + length - 5, ".json") == 0) run_case(g, path, names[i]);
        }
        free_names(names, count);
        found = true;
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, parts[i]);
        if (sumi_path_is_folder(path)) {
            run_common(g, path, parts[i]);
            found = true;
        }
    }
    if (found || depth >= s_depth_limit) return found;
    char** names = list_folder(folder, &count);
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (sumi_path_is_folder(path)) found = run_folder(g, path, depth + 1) || found;
    }
    free_names(names, count);
    return found;
}

int main(int argc, char** argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: golden_run DIR\n");
        return 2;
    }
    golden* g = calloc(1, sizeof *g);
    sumi_error error = {0};
    sumi_heap_init(&g->heap, NULL);
    if (sumi_workers_create(&g->heap, NULL, 0, &error, &g->workers) != SUMI_OK
        || sumi_cpu_create(&g->heap, g->workers, SUMI_CPU_AUTO, &error, &g->runner) != SUMI_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 2;
    }
    bool found = run_folder(g, argv[1], 0);
    if (!found) printf("%s holds no golden data (cases/, or tokenizers, rng, files, numerics, images)\n", argv[1]);
    printf("golden_run: %d passed, %d failed, %d skipped (%d cases; %d of a known family not run)\n", g->passed, g->failed, g->not_checked, g->cases,
           g->not_run);
    bool good = found && g->failed == 0 && g->not_run == 0;
    sumi_network_close(g->network);
    g->runner->functions->destroy(g->runner);
    sumi_workers_destroy(g->workers);
    if (atomic_load(&g->heap.held) != 0)
        printf("golden_run: the library still holds %llu bytes\n", (unsigned long long)atomic_load(&g->heap.held)), good = false;
    free(g);
    return good ? 0 : 1;
}
