// The public functions of prompts in XML (text/xml_prompt.h). They take no engine, so the desc contains a log.
#include "base/result.h"
#include "engine/calls.h"
#include "text/xml_prompt.h"
#include <stdio.h>

sumi_result sumi_xml_prompt_write(const sumi_xml_prompt_desc* desc, char* into, size_t capacity, size_t* out_bytes)
{
    size_t bytes = 0;
    if (out_bytes != NULL) *out_bytes = 0;
    if (into != NULL && capacity != 0) into[0] = '\0';
    if (desc == NULL) return SUMI_INVALID_ARGUMENT;
    sumi_error error = {0};
    // The log in a desc that was not initialised may be any address.
    SUMI_TRY(sumi_check_cookie(desc->cookie, SUMI_COOKIE_XML_PROMPT, "sumi_xml_prompt_desc", "sumi_xml_prompt_defaults",
                               &error));
    const sumi_result result = sumi_xml_write(desc, into, capacity, &bytes, &error);
    if (out_bytes != NULL) *out_bytes = bytes;
    if (result != SUMI_OK && desc->log.write != NULL) {
        char text[SUMI_ERROR_TEXT_BYTES + 32];
        snprintf(text, sizeof text, "sumi_xml_prompt_write: %s", error.text);
        desc->log.write(SUMI_LOG_ERROR, result, text, desc->log.user_data);
    }
    return result;
}
