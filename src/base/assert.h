// SUMI_ASSERT checks what a function relies on: preconditions between sumi's own functions, indices, states of jobs and
// of job slots, units of arguments. Checked builds (debug, asan and tsan, which define SUMI_CHECKED) test the
// condition. A mistake of the host program or a defect of a file is a result code in every build, never an assertion.
#ifndef SUMI_BASE_ASSERT_H
#define SUMI_BASE_ASSERT_H

#if defined(_MSC_VER) && !defined(__clang__)
#define SUMI_NORETURN __declspec(noreturn)
#define SUMI_ONLY_ASSERTED
#else
#define SUMI_NORETURN __attribute__((noreturn))
#define SUMI_ONLY_ASSERTED __attribute__((unused)) // for a static function that only assertions call
#endif

// Prints the condition, file and line to stderr and traps there, so that a debugger or a sanitizer reports the place.
// Defined in checked builds only.
SUMI_NORETURN void sumi_assert_failed(const char* condition, const char* file, int line);

#if defined(SUMI_CHECKED)
#define SUMI_ASSERT(condition) ((condition) ? (void)0 : sumi_assert_failed(#condition, __FILE__, __LINE__))
#else
// sizeof: the condition is not evaluated, but the names in it count as used
#define SUMI_ASSERT(condition) ((void)sizeof((condition) ? 1 : 0))
#endif
#endif
