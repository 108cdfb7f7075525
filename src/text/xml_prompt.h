// Prompts in XML: layout, order and escapes of sumi_xml_prompt_desc, which sumi_xml.h describes.
#ifndef SUMI_TEXT_XML_PROMPT_H
#define SUMI_TEXT_XML_PROMPT_H
#include "base/result.h"
#include <sumi_xml.h>

#define SUMI_XML_MAX_CHARACTERS 64
#define SUMI_XML_MAX_INDENT 16

// Checks all of the desc except its cookie, and writes the text as sumi_xml_prompt_write() promises.
sumi_result sumi_xml_write(const sumi_xml_prompt_desc* desc, char* into, size_t capacity, size_t* out_bytes,
                           sumi_error* error);
#endif
