#include "base/file.h"
#include "base/numbers.h"
#include "base/workers.h"
#include "test.h"

static sumi_heap s_heap;

TEST(heap_counts_and_aligns)
{
    sumi_heap heap;
    sumi_heap_init(&heap, NULL);
    unsigned char* a = sumi_alloc(&heap, 1);
    unsigned char* b = sumi_alloc_zero(&heap, 1000);
    CHECK(a != NULL && b != NULL && (uintptr_t)a % SUMI_ALIGNMENT == 0 && (uintptr_t)b % SUMI_ALIGNMENT == 0);
    CHECK(b[0] == 0 && b[999] == 0);
    CHECK_NUMBER(heap.count, 2);
    CHECK(heap.allocated_bytes >= 1001 && heap.peak == heap.allocated_bytes);
    sumi_free(&heap, a);
    sumi_free(&heap, b);
    sumi_free(&heap, NULL);
    CHECK_NUMBER(heap.allocated_bytes, 0);
    CHECK(sumi_alloc(&heap, SIZE_MAX - 3) == NULL);
    CHECK(sumi_alloc_array(&heap, SIZE_MAX / 2, 4) == NULL);
}

TEST(grow_keeps_contents_and_reports_overflow)
{
    int* list = NULL;
    size_t capacity = 0;
    for (int i = 0; i < 1000; i++) {
        CHECK_NUMBER(sumi_grow(&s_heap, (void**)&list, &capacity, (size_t)i + 1, sizeof *list, NULL), SUMI_OK);
        list[i] = i;
    }
    CHECK(list[0] == 0 && list[999] == 999);
    sumi_error error = {0};
    CHECK_NUMBER(sumi_grow(&s_heap, (void**)&list, &capacity, SIZE_MAX / 2, sizeof *list, &error),
                 SUMI_OUT_OF_HOST_MEMORY);
    CHECK(error.text[0] != 0 && list[999] == 999);
    sumi_free(&s_heap, list);
}

TEST(error_keeps_the_first_text_and_cuts_long_ones)
{
    sumi_error error = {0};
    CHECK_NUMBER(sumi_fail(&error, SUMI_FILE_MALFORMED, "%0600d", 7), SUMI_FILE_MALFORMED);
    CHECK_NUMBER(sumi_fail(&error, SUMI_INTERNAL, "later"), SUMI_INTERNAL);
    CHECK_NUMBER(error.result, SUMI_FILE_MALFORMED);
    CHECK_NUMBER(strlen(error.text), SUMI_ERROR_TEXT_BYTES - 1);
    CHECK_NUMBER(sumi_fail(NULL, SUMI_INTERNAL, "nowhere to write"), SUMI_INTERNAL);
}

// ---- Workers --------------------------------------------------------------------------------------------------------

typedef struct loop {
    int32_t* seen;
    int32_t workers;
    atomic_int bad;
} loop;

static void mark(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    loop* state = context;
    if (worker_index < 0 || worker_index >= state->workers || begin >= end) atomic_fetch_add(&state->bad, 1);
    for (int32_t i = begin; i < end; i++) state->seen[i]++;
}

static void check_loops(sumi_workers* workers)
{
    static int32_t s_seen[5000];
    for (int32_t count = 0; count <= 5000; count += count < 20 ? 1 : 977) {
        for (int32_t min_range = 0; min_range < 100; min_range += 33) {
            loop state = {s_seen, sumi_workers_count(workers), 0};
            memset(s_seen, 0, sizeof s_seen);
            sumi_parallel(workers, count, min_range, mark, &state);
            int wrong = 0;
            for (int32_t i = 0; i < 5000; i++) wrong += s_seen[i] != (i < count);
            CHECK_NUMBER(wrong + state.bad, 0);
        }
    }
}

TEST(workers_cover_every_item_once)
{
    for (int32_t threads = 1; threads <= 5; threads++) {
        sumi_workers* workers;
        CHECK_NUMBER(sumi_workers_create(&s_heap, NULL, threads, NULL, &workers), SUMI_OK);
        CHECK_NUMBER(sumi_workers_count(workers), threads);
        check_loops(workers);
        sumi_workers_destroy(workers);
    }
}

static void* host_begin(sumi_task* task, int32_t item_count, int32_t min_range, void* task_context, void* user_data)
{
    (void)user_data;
    for (int32_t i = 0; i < item_count; i += min_range)
        task(i, item_count - i < min_range ? item_count : i + min_range, i % 3, task_context);
    return NULL;
}

static void host_finish(void* handle, void* user_data)
{
    (void)handle;
    (void)user_data;
}

TEST(workers_use_the_hosts_tasks)
{
    sumi_tasks tasks = {3, host_begin, host_finish, NULL};
    sumi_workers* workers;
    CHECK_NUMBER(sumi_workers_create(&s_heap, &tasks, 1, NULL, &workers), SUMI_OK);
    CHECK_NUMBER(sumi_workers_count(workers), 3);
    check_loops(workers);
    sumi_workers_destroy(workers);
}

#if defined(__linux__)
static void read_name(void* context)
{
    FILE* file = fopen("/proc/thread-self/comm", "r");
    if (file == NULL) return;
    if (fgets(context, 32, file) == NULL) ((char*)context)[0] = 0;
    fclose(file);
}
#endif

TEST(a_thread_has_the_name_it_was_begun_with)
{
#if defined(__linux__)
    char name[32] = "";
    sumi_thread thread;
    const sumi_thread_start start = {.function = read_name, .context = name, .name = "fifteen letters"};
    CHECK(sumi_thread_begin(&thread, &start));
    sumi_thread_join(&thread);
    CHECK_TEXT(name, "fifteen letters\n");
#else
    SKIP("the names of threads are read from /proc, which Linux has");
#endif
}

TEST(workers_end_cleanly_without_work)
{
    for (int i = 0; i < 50; i++) {
        sumi_workers* workers;
        CHECK_NUMBER(sumi_workers_create(&s_heap, NULL, 4, NULL, &workers), SUMI_OK);
        sumi_workers_destroy(workers);
    }
    sumi_workers_destroy(NULL);
}

// ---- Files and the clock --------------------------------------------------------------------------------------------

TEST(file_maps_content_and_names_missing_paths)
{
    sumi_file file;
    sumi_error error = {0};
    CHECK_NUMBER(sumi_file_open(&file, &s_heap, NULL, "tests/test_base.c", &error), SUMI_OK);
    CHECK(file.bytes > 1000 && memcmp(file.data, "#include", 8) == 0);
    sumi_file_close(&file);
    sumi_file_close(&file);
    CHECK_NUMBER(sumi_file_open(&file, &s_heap, NULL, "tests/no such file", &error), SUMI_FILE_NOT_FOUND);
    CHECK(strstr(error.text, "no such file") != NULL);
    CHECK(file.data == NULL);
    CHECK_NUMBER(sumi_file_open(&file, &s_heap, NULL, "tests", NULL), SUMI_FILE_READ_FAILED);
    CHECK(sumi_path_is_folder("tests") && !sumi_path_is_folder("tests/test.h") && sumi_path_is_file("tests/test.h"));
}

typedef struct host_file {
    bool maps, fails;
    int open;
} host_file;
static const char s_content[] = "content";

static void* host_open(const char* path, uint64_t* out_bytes, void* user_data)
{
    if (strcmp(path, "there") != 0) return NULL;
    *out_bytes = sizeof s_content;
    ((host_file*)user_data)->open++;
    return user_data;
}
static bool host_read(void* file, uint64_t offset, void* into, size_t bytes, void* user_data)
{
    (void)file;
    memcpy(into, s_content + offset, bytes);
    return !((host_file*)user_data)->fails;
}
static const void* host_map(void* file, void* user_data)
{
    (void)file;
    return ((host_file*)user_data)->maps ? s_content : NULL;
}
static void host_close(void* file, void* user_data)
{
    (void)file;
    ((host_file*)user_data)->open--;
}

TEST(file_reads_through_the_host)
{
    host_file state = {false, false, 0};
    sumi_files files = {host_open, host_read, host_map, host_close, &state};
    sumi_file file;
    for (int i = 0; i < 2; i++) {
        state.maps = i == 1;
        CHECK_NUMBER(sumi_file_open(&file, &s_heap, &files, "there", NULL), SUMI_OK);
        CHECK(file.bytes == sizeof s_content && memcmp(file.data, s_content, sizeof s_content) == 0);
        CHECK((file.data == (const unsigned char*)s_content) == state.maps);
        sumi_file_close(&file);
    }
    state.maps = false;
    state.fails = true;
    CHECK_NUMBER(sumi_file_open(&file, &s_heap, &files, "there", NULL), SUMI_FILE_READ_FAILED);
    CHECK_NUMBER(sumi_file_open(&file, &s_heap, &files, "elsewhere", NULL), SUMI_FILE_NOT_FOUND);
    CHECK(sumi_file_exists(&files, "there") && !sumi_file_exists(&files, "elsewhere"));
    CHECK_NUMBER(state.open, 0);
}

TEST(clock_moves_forward_and_waits_time_out)
{
    uint64_t begin = sumi_clock_ns();
    sumi_mutex mutex;
    sumi_condition condition;
    CHECK(sumi_mutex_init(&mutex) && sumi_condition_init(&condition));
    sumi_mutex_lock(&mutex);
    int woken = 0;
    // a system may wake whom nobody woke
    while (sumi_condition_wait_us(&condition, &mutex, 2000) && woken < 100) woken++;
    sumi_mutex_unlock(&mutex);
    CHECK(woken < 100);
    CHECK(sumi_clock_ns() - begin >= 1900000);
    sumi_condition_destroy(&condition);
    sumi_mutex_destroy(&mutex);
    CHECK(sumi_cpu_count() >= 1);
}

// Against the C library's, where that is right. Half of the numbers are near each other, so that sums cancel and land
// on boundaries; all kinds of bits occur.
TEST(fused_multiply_add_rounds_once)
{
    uint64_t state = 1;
    int wrong = 0;
#if defined(__MINGW32__)
    const int count = 0;
#else
    const int count = 2000000;
#endif
    for (int i = 0; i < count && wrong < 3; i++) {
        uint32_t bits[3];
        float v[3];
        for (int k = 0; k < 3; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            bits[k] = (uint32_t)(state >> 32);
            // from 0.5 to 2, with trailing zeros cut out of the middle
            if (i % 2 == 0) bits[k] = (bits[k] & 0x80ff0fffu) | 0x3f000000u;
            memcpy(&v[k], &bits[k], sizeof v[k]);
        }
        const float got = sumi_fmaf_by_double(v[0], v[1], v[2]);
        const float want = fmaf(v[0], v[1], v[2]);
        if (memcmp(&got, &want, sizeof got) != 0 && !(isnan(got) && isnan(want))) {
            wrong++;
            printf("  %a * %a + %a is %a, want %a\n", (double)v[0], (double)v[1], (double)v[2], (double)got,
                   (double)want);
        }
    }
    CHECK_NUMBER(wrong, 0);
    // (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24: half way between two floats, and the third number says which
    float (*const both[])(float, float, float) = {sumi_fmaf, sumi_fmaf_by_double};
    for (int i = 0; i < 2; i++) {
        const float above = 1.0f + 0x1p-11f + 0x1p-23f, below = 1.0f + 0x1p-11f, x = 1.0f + 0x1p-12f;
        CHECK(both[i](x, x, 0x1p-70f) == above && both[i](-x, x, -0x1p-70f) == -above);
        CHECK(both[i](x, x, -0x1p-70f) == below && both[i](-x, x, 0x1p-70f) == -below);
        CHECK(both[i](x, x, 0.0f) == below);
        // 1 + 2^-10 + 2^-23 + 2^-24: here the even one is above
        CHECK(both[i](x, 1.0f + 0x3p-12f, -0x1p-70f) == 1.0f + 0x1p-10f + 0x1p-23f
              && both[i](x, 1.0f + 0x3p-12f, 0.0f) == 1.0f + 0x1p-10f + 0x1p-22f);
        CHECK(both[i](x, 1.0f - 0x1p-12f, -1.0f) == -0x1p-24f);
    }
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&s_heap, NULL);
    RUN(heap_counts_and_aligns);
    RUN(grow_keeps_contents_and_reports_overflow);
    RUN(error_keeps_the_first_text_and_cuts_long_ones);
    RUN(workers_cover_every_item_once);
    RUN(workers_use_the_hosts_tasks);
    RUN(a_thread_has_the_name_it_was_begun_with);
    RUN(workers_end_cleanly_without_work);
    RUN(file_maps_content_and_names_missing_paths);
    RUN(file_reads_through_the_host);
    RUN(fused_multiply_add_rounds_once);
    RUN(clock_moves_forward_and_waits_time_out);
    CHECK_NUMBER(s_heap.allocated_bytes, 0);
    TEST_END();
}
