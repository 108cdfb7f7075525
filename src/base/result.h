// A failure is a result code, passed upward by SUMI_TRY, and one text with the details: which file, which tensor, which
// number, and what to do. The text is in a sumi_error that the entry point owns. Nothing is kept globally, so engines
// do not affect each other.
#ifndef SUMI_BASE_RESULT_H
#define SUMI_BASE_RESULT_H
#include <sumi.h>

#define SUMI_ERROR_TEXT_BYTES 512

typedef struct sumi_error {
    sumi_result result; // SUMI_OK until the first failure
    // UTF-8 without control characters (sumi_utf8_show), always terminated; truncated if too long
    char text[SUMI_ERROR_TEXT_BYTES];
    const char* file; // the call of sumi_fail, for the log; NULL until then
    int line;
} sumi_error;

// MinGW's own printf does not know %zu; the build sets __USE_MINGW_ANSI_STDIO, which selects the standard one
#if defined(__MINGW32__) && !defined(__clang__)
#define SUMI_PRINTF(format_index, first_index) __attribute__((format(gnu_printf, format_index, first_index)))
#elif defined(__GNUC__) || defined(__clang__)
#define SUMI_PRINTF(format_index, first_index) __attribute__((format(printf, format_index, first_index)))
#else
#define SUMI_PRINTF(format_index, first_index)
#endif

// Writes result and text into error (which may be NULL) and returns result, so that reporting a failure is one line:
//     return sumi_fail(error, SUMI_FILE_TRUNCATED, "%s: tensor %s needs %llu bytes, the file has %llu", ...);
// The first failure is kept: a later call on the same error does not change it.
// The error also keeps the file and line of this call, which the engine writes to its log as a debug message.
#define sumi_fail(error, result, ...) sumi_fail_at(__FILE__, __LINE__, error, result, __VA_ARGS__)
sumi_result sumi_fail_at(const char* file, int line, sumi_error* error, sumi_result result, const char* format, ...)
    SUMI_PRINTF(5, 6);

// Reports a failure that was kept in `from`, such as another thread's, with its file and line. Returns its result.
sumi_result sumi_fail_with(sumi_error* error, const sumi_error* from);

// Evaluates the expression and returns its result from the calling function unless it is SUMI_OK.
#define SUMI_TRY(expression)                                                                                           \
    do {                                                                                                               \
        sumi_result sumi_try_result = (expression);                                                                    \
        if (sumi_try_result != SUMI_OK) { return sumi_try_result; }                                                    \
    } while (0)

// sumi's own bugs are assertions (base/assert.h). If a release build must not continue after one, it also returns
// sumi_fail(error, SUMI_INTERNAL, ...). A release build never ends the process.
#endif
