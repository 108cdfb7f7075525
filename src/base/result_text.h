// A sentence for each result that says what to do.
#ifndef SUMI_BASE_RESULT_TEXT_H
#define SUMI_BASE_RESULT_TEXT_H
#include <sumi.h>

// As sumi_result_text of the public header.
const char* sumi_result_sentence(sumi_result result);
#endif
