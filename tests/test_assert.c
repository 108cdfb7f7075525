// SUMI_ASSERT: a checked build stops where an assertion fails and says which; a release build does not even evaluate
// the condition.
#include "base/assert.h"
#include "base/dtype.h"
#include "base/platform.h"
#include "test.h"
#include <sys/wait.h>
#include <unistd.h>

static int32_t s_evaluations;

static bool evaluate(bool value)
{
    s_evaluations++;
    return value;
}

#if defined(SUMI_CHECKED)
static void fail_plainly(void) { SUMI_ASSERT(1 + 1 == 3); }
static void break_a_promise(void) { (void)sumi_dtype_bytes(SUMI_DTYPE_Q4_0, 33); } // its blocks hold 32

static void lock_twice(void)
{
    sumi_mutex mutex;
    (void)sumi_mutex_init(&mutex);
    sumi_mutex_lock(&mutex);
    sumi_mutex_lock(&mutex);
}

static void keep_every_promise(void) { SUMI_ASSERT(evaluate(true)); }

// Runs the function in a process of its own. Returns whether that ended well; `said` is what it wrote to stderr.
static bool ends_well(void (*function)(void), char* said, size_t said_bytes)
{
    int ends[2], status = 0;
    said[0] = '\0';
    fflush(stdout);
    if (pipe(ends) != 0) return false;
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        function();
        _exit(0);
    }
    close(ends[1]);
    size_t used = 0;
    char rest[256];
    for (ssize_t bytes = 1; bytes > 0;) {
        const bool has_room = used + 1 < said_bytes;
        bytes = read(ends[0], has_room ? said + used : rest, has_room ? said_bytes - 1 - used : sizeof rest);
        if (bytes > 0 && has_room) used += (size_t)bytes;
    }
    said[used] = '\0';
    close(ends[0]);
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
#endif

TEST(assert_stops_the_program_and_says_why)
{
#if defined(SUMI_CHECKED)
    char said[4096];
    CHECK(!ends_well(fail_plainly, said, sizeof said));
    CHECK(strstr(said, "test_assert.c:") != NULL && strstr(said, "assertion failed: 1 + 1 == 3") != NULL);
    CHECK(ends_well(keep_every_promise, said, sizeof said));
    CHECK_TEXT(said, "");
#else
    SKIP("a release build has no assertions");
#endif
}

TEST(assert_stops_a_broken_promise_inside_the_library)
{
#if defined(SUMI_CHECKED)
    char said[4096];
    CHECK(!ends_well(break_a_promise, said, sizeof said));
    CHECK(strstr(said, "dtype.c:") != NULL && strstr(said, "assertion failed: ") != NULL);
    CHECK(!ends_well(lock_twice, said, sizeof said));
    CHECK(strstr(said, "platform.c:") != NULL && strstr(said, "sumi_mutex_is_held") != NULL);
#else
    SKIP("a release build has no assertions");
#endif
}

TEST(assert_evaluates_nothing_in_a_release_build)
{
#if defined(SUMI_CHECKED)
    const int32_t wanted = 1;
#else
    const int32_t wanted = 0;
#endif
    s_evaluations = 0;
    SUMI_ASSERT(evaluate(true));
    CHECK_NUMBER(s_evaluations, wanted);
    CHECK(evaluate(true)); // or a release build had no use for the function
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(assert_stops_the_program_and_says_why);
    RUN(assert_stops_a_broken_promise_inside_the_library);
    RUN(assert_evaluates_nothing_in_a_release_build);
    TEST_END();
}
