// The public functions that need no engine and no desc: the version, and what results mean.
#include "base/result_text.h"
#include <sumi.h>

const char* sumi_result_text(sumi_result result) { return sumi_result_sentence(result); }

#define DIGITS_OF(number) #number
#define DIGITS(number) DIGITS_OF(number)
const char* sumi_version(void)
{
    return DIGITS(SUMI_VERSION_MAJOR) "." DIGITS(SUMI_VERSION_MINOR) "." DIGITS(SUMI_VERSION_PATCH);
}

sumi_result sumi_check_version(uint32_t header_version)
{
    return header_version / 1000u == SUMI_VERSION_NUMBER / 1000u ? SUMI_OK : SUMI_VERSION_MISMATCH;
}
