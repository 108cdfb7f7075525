// Any bytes as a picture file (PNG, JPEG, WebP), and as the text about how a picture was made.
// Seeds: tests/picture_files tests/golden/common/images
#include "parameters.h"
#include "picture.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes);

static void read_text(const char* text)
{
    parameters settings;
    char* strings = parameters_read(text, &settings);
    char again[512];
    if (strings) parameters_write(&settings, again, sizeof again);
    free(strings);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes)
{
    picture_file image;
    char message[PICTURE_MESSAGE_BYTES];
    // Sizes that a small file may promise and that would take seconds each are for the tests.
    const bool is_read = picture_read_memory(data, bytes, "input", bytes % 2 ? 0 : 3, &image, message);
    if (is_read != (image.pixels != NULL) || is_read != (message[0] == '\0')) abort();
    if (image.parameters) read_text(image.parameters);
    picture_free(&image);
    char* text = malloc(bytes + 1);
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    read_text(text);
    free(text);
    return 0;
}
