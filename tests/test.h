// The whole test framework: named functions, checks that print what they saw, a filter on the command line, and counts
// at the end.
//
//     TEST(schedule_ends_at_zero) { CHECK(sigmas[n] == 0.0f); }
//     int main(int argc, char** argv) { TEST_BEGIN(argc, argv); RUN(schedule_ends_at_zero); TEST_END(); }
//
// The filter is a text: only tests whose names hold it run. Texts that begin with - leave out the tests whose names hold
// the rest: "-after_every_slice -nth_allocation". --list in the filter's place prints the names.
// Last line of every program: "<name>: N passed, N failed, N skipped". A skip always says why. A program that ran
// nothing, or a text that no test's name holds, counts as a failure.
// A test that takes 5 seconds or more prints how long it took.
#ifndef SUMI_TEST_H
#define SUMI_TEST_H
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// The counters. A program of several files defines TEST_STATE before it includes this: as nothing in the file with
// main, as extern in the others.
#ifndef TEST_STATE
#define TEST_STATE static
#endif
TEST_STATE int t_passed, t_failed, t_skipped, t_errors, t_matching;
TEST_STATE bool t_skip_now, t_lists;
// t_wanted: the filter of the command line, which a program may lay aside for a while
TEST_STATE const char *t_filter, *t_wanted, *t_program;
// texts with their -, and which of them a test's name has held
TEST_STATE char** t_left_out;
TEST_STATE int t_left_out_count;
TEST_STATE uint64_t t_left_out_found;

static inline double t_seconds(void)
{
#if defined(_WIN32) // whose C library may lack timespec_get, and whose clock() tells the time that has passed
    return (double)clock() / CLOCKS_PER_SEC;
#else
    struct timespec now;
    (void)timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
#endif
}

static inline bool t_leaves_out(const char* name)
{
    uint64_t found = 0;
    for (int i = 0; i < t_left_out_count && i < 64; i++) {
        if (strstr(name, t_left_out[i] + 1) != NULL) found |= (uint64_t)1 << i;
    }
    t_left_out_found |= found;
    return found != 0;
}
static inline void t_begin(int argc, char** argv)
{
    t_program = argv[0];
    t_lists = argc > 1 && strcmp(argv[1], "--list") == 0;
    if (argc > 1 && argv[1][0] == '-' && !t_lists) t_left_out = argv + 1, t_left_out_count = argc - 1;
    else t_filter = t_wanted = argc > 1 ? argv[1] : NULL;
}
// Fails for texts that no test's name holds.
static inline void t_check_texts(void)
{
    if (t_wanted != NULL && t_matching == 0) t_failed++, printf("FAILED: no test's name holds \"%s\"\n", t_wanted);
    for (int i = 0; i < t_left_out_count; i++) {
        if (i < 64 && (t_left_out_found >> i & 1) == 1 && t_left_out[i][0] == '-' && t_left_out[i][1] != '\0') continue;
        t_failed++;
        printf("FAILED: no test's name holds what \"%s\" leaves out\n", t_left_out[i]);
    }
}

#define TEST(name) static void test_##name(void)
#define TEST_BEGIN(argc, argv) t_begin(argc, argv)
#define RUN(name) RUN_AS(#name, test_##name())
// A test under another name, for a test that runs several times.
#define RUN_AS(name_of_test, call)                                                                                     \
    do {                                                                                                               \
        const char* t_name = (name_of_test);                                                                           \
        if (t_lists) printf("%s\n", t_name);                                                                           \
        t_matching += t_wanted && strstr(t_name, t_wanted);                                                            \
        if (t_lists || (t_filter && !strstr(t_name, t_filter)) || t_leaves_out(t_name)) break;                         \
        t_errors = 0;                                                                                                  \
        t_skip_now = false;                                                                                            \
        const double t_began = t_seconds();                                                                            \
        call;                                                                                                          \
        const double t_taken = t_seconds() - t_began;                                                                  \
        if (t_taken >= 5.0) printf("%s took %.0f s\n", t_name, t_taken);                                               \
        if (t_skip_now && !t_errors) t_skipped++;                                                                      \
        else if (t_errors) t_failed++, printf("FAILED: %s\n", t_name);                                                 \
        else t_passed++;                                                                                               \
    } while (0)
#define TEST_END()                                                                                                     \
    do {                                                                                                               \
        if (t_lists) return 0;                                                                                         \
        t_check_texts();                                                                                               \
        if (t_passed + t_failed + t_skipped == 0) t_failed++, printf("FAILED: no test was run\n");                     \
        return printf("%s: %d passed, %d failed, %d skipped\n", t_program, t_passed, t_failed, t_skipped),             \
               t_failed > 0;                                                                                           \
    } while (0)
#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition) && t_errors++ < 8) printf("  %s:%d: not true: %s\n", __FILE__, __LINE__, #condition);         \
    } while (0)
#define CHECK_TEXT(got, want)                                                                                          \
    do {                                                                                                               \
        const char *t_got = (got), *t_want = (want);                                                                   \
        if (strcmp(t_got, t_want) != 0 && t_errors++ < 8)                                                              \
            printf("  %s:%d: got \"%s\", want \"%s\"\n", __FILE__, __LINE__, t_got, t_want);                           \
    } while (0)
#define CHECK_NUMBER(got, want)                                                                                        \
    do {                                                                                                               \
        long long t_got = (long long)(got), t_want = (long long)(want);                                                \
        if (t_got != t_want && t_errors++ < 8)                                                                         \
            printf("  %s:%d: %s is %lld, want %lld\n", __FILE__, __LINE__, #got, t_got, t_want);                       \
    } while (0)
// |got - want| <= absolute + relative * |want|
#define CHECK_NEAR(got, want, absolute, relative)                                                                      \
    do {                                                                                                               \
        double t_got = (got), t_want = (want);                                                                         \
        if (!(fabs(t_got - t_want) <= (absolute) + (relative)*fabs(t_want)) && t_errors++ < 8)                         \
            printf("  %s:%d: %s is %.9g, want %.9g\n", __FILE__, __LINE__, #got, t_got, t_want);                       \
    } while (0)
// A copy in a block of exactly its size, so that the address sanitizer sees a read of one byte too many. The caller
// frees it.
static inline void* exact_copy(const void* data, size_t bytes)
{
    unsigned char* copy = (unsigned char*)malloc(bytes > 0 ? bytes : 1); // also compiled as C++
    if (bytes > 0) memcpy(copy, data, bytes);
    return copy;
}
#define SKIP(why)                                                                                                      \
    do {                                                                                                               \
        printf("skip: %s: %s\n", __func__, why);                                                                       \
        t_skip_now = true;                                                                                             \
        return;                                                                                                        \
    } while (0)
#endif
