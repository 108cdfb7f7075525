// SUMI_ASSERT says what a function relies on: preconditions between functions of ours, indices, states of jobs and
// slots, units of arguments. Checked builds (debug, asan, tsan: they define SUMI_CHECKED) test it. What a host or a
// file may get wrong is a result in every build, and never an assertion.
#ifndef SUMI_BASE_ASSERT_H
#define SUMI_BASE_ASSERT_H

#if defined(_MSC_VER) && !defined(__clang__)
#define SUMI_NORETURN __declspec(noreturn)
#define SUMI_ONLY_ASSERTED
#else
#define SUMI_NORETURN __attribute__((noreturn))
#define SUMI_ONLY_ASSERTED __attribute__((unused)) // of a static function that only assertions call
#endif

// Prints the condition and where it stands, and stops the program there, for a debugger and for the sanitizers'
// reports.
// Defined in checked builds only.
SUMI_NORETURN void sumi_assert_failed(const char* condition, const char* file, int line);

#if defined(SUMI_CHECKED)
#define SUMI_ASSERT(condition) ((condition) ? (void)0 : sumi_assert_failed(#condition, __FILE__, __LINE__))
#else
#define SUMI_ASSERT(condition) ((void)sizeof((condition) ? 1 : 0)) // never evaluated, but what it names counts as used
#endif
#endif
