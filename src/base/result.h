// How a failure travels: a result code upward through SUMI_TRY, and beside it one text with the details (which file,
// which tensor, which number, and what to do). The text lives in a sumi_error that the entry point owns, so there is no
// "last error" global and two engines never meet.
#ifndef SUMI_BASE_RESULT_H
#define SUMI_BASE_RESULT_H
#include <sumi.h>

#define SUMI_ERROR_TEXT_BYTES 512

typedef struct sumi_error {
    sumi_result result;               // SUMI_OK until the first failure
    char text[SUMI_ERROR_TEXT_BYTES]; // UTF-8, always terminated; cut at the end when too long
} sumi_error;

// its own printf knows no %zu; __USE_MINGW_ANSI_STDIO, which the build sets, brings the standard's
#if defined(__MINGW32__) && !defined(__clang__)
#define SUMI_PRINTF(format_index, first_index) __attribute__((format(gnu_printf, format_index, first_index)))
#elif defined(__GNUC__) || defined(__clang__)
#define SUMI_PRINTF(format_index, first_index) __attribute__((format(printf, format_index, first_index)))
#else
#define SUMI_PRINTF(format_index, first_index)
#endif

// Writes result and text into error (which may be NULL) and returns result, so that a failure is one line:
//     return sumi_fail(error, SUMI_FILE_TRUNCATED, "%s: tensor %s needs %llu bytes, the file has %llu", ...);
// The first failure stays: a later call on the same error keeps the older text.
sumi_result sumi_fail(sumi_error* error, sumi_result result, const char* format, ...) SUMI_PRINTF(3, 4);

// Returns the first failure to the caller.
#define SUMI_TRY(expression)                                                                                           \
    do {                                                                                                               \
        sumi_result sumi_try_result = (expression);                                                                    \
        if (sumi_try_result != SUMI_OK) { return sumi_try_result; }                                                    \
    } while (0)

// Our own bugs are assertions (base/assert.h) and, where a release build must not go on, results too: sumi_fail(error,
// SUMI_INTERNAL, ...). A release build never ends the process.
#endif
