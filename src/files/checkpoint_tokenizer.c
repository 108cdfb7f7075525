#include "base/assert.h"
#include "files/checkpoint_files.h"
#include <stdio.h>
#include <string.h>

static const char* const s_sentencepiece_names[] = {"tokenizer.model", "sentencepiece.bpe.model", "spiece.model"};

void sumi_checkpoint_close_tokenizer(sumi_checkpoint* checkpoint, sumi_checkpoint_tokenizer* tokenizer)
{
    sumi_file_close(&tokenizer->file);
    sumi_file_close(&tokenizer->merges);
    sumi_file_close(&tokenizer->config);
    sumi_file_close(&tokenizer->added);
    sumi_file_close(&tokenizer->special);
    sumi_free(checkpoint->heap, tokenizer->folder);
    sumi_free(checkpoint->heap, tokenizer->searched_folders);
    memset(tokenizer, 0, sizeof *tokenizer);
}

// Appends a folder to the list of searched folders, which messages show.
static sumi_result add_searched_folder(sumi_checkpoint* checkpoint, sumi_checkpoint_tokenizer* tokenizer,
                                       const char* folder, sumi_error* error)
{
    const char* before = tokenizer->searched_folders != NULL ? tokenizer->searched_folders : "";
    const size_t bytes = strlen(before) + strlen(folder) + 3;
    char* list = sumi_alloc(checkpoint->heap, bytes);
    if (list == NULL) return sumi_out_of_memory(error, bytes, "a list of folders");
    snprintf(list, bytes, "%s%s%s", before, before[0] != '\0' ? ", " : "", folder);
    sumi_free(checkpoint->heap, tokenizer->searched_folders);
    tokenizer->searched_folders = list;
    return SUMI_OK;
}

// Fills in the tokenizer from its open main file and opens the other files that the form uses.
static sumi_result use_tokenizer(sumi_checkpoint* checkpoint, sumi_checkpoint_tokenizer* tokenizer,
                                 sumi_tokenizer_form form, sumi_error* error)
{
    SUMI_ASSERT(tokenizer->form == SUMI_TOKENIZER_ABSENT && tokenizer->file.heap != NULL && tokenizer->folder != NULL);
    tokenizer->form = form;
    tokenizer->data = tokenizer->file.data;
    tokenizer->bytes = (size_t)tokenizer->file.bytes;
    tokenizer->path = tokenizer->file.path;
    if (form == SUMI_TOKENIZER_JSON) return SUMI_OK;
    const char* folder = tokenizer->folder;
    if (form == SUMI_TOKENIZER_VOCABULARY)
        SUMI_TRY(sumi_checkpoint_open_optional(checkpoint, &tokenizer->merges, folder, "merges.txt", false, error));
    SUMI_TRY(
        sumi_checkpoint_open_optional(checkpoint, &tokenizer->config, folder, "tokenizer_config.json", false, error));
    SUMI_TRY(sumi_checkpoint_open_optional(checkpoint, &tokenizer->added, folder, "added_tokens.json", false, error));
    return sumi_checkpoint_open_optional(checkpoint, &tokenizer->special, folder, "special_tokens_map.json", false,
                                         error);
}

// Looks for a tokenizer in folder/name; name may be "".
static sumi_result try_tokenizer(sumi_checkpoint* checkpoint, sumi_checkpoint_tokenizer* tokenizer, const char* parent,
                                 const char* name, sumi_error* error)
{
    if (tokenizer->form != SUMI_TOKENIZER_ABSENT) return SUMI_OK;
    SUMI_ASSERT(tokenizer->folder == NULL && tokenizer->file.heap == NULL);
    SUMI_TRY(name[0] != '\0' ? sumi_checkpoint_join(checkpoint->heap, parent, name, error, &tokenizer->folder)
                             : sumi_checkpoint_copy_text(checkpoint->heap, parent, error, &tokenizer->folder));
    const char* folder = tokenizer->folder;
    SUMI_TRY(add_searched_folder(checkpoint, tokenizer, folder, error));
    SUMI_TRY(sumi_checkpoint_open_optional(checkpoint, &tokenizer->file, folder, "tokenizer.json", false, error));
    if (tokenizer->file.heap != NULL) return use_tokenizer(checkpoint, tokenizer, SUMI_TOKENIZER_JSON, error);
    SUMI_TRY(sumi_checkpoint_open_optional(checkpoint, &tokenizer->file, folder, "vocab.json", false, error));
    if (tokenizer->file.heap != NULL) return use_tokenizer(checkpoint, tokenizer, SUMI_TOKENIZER_VOCABULARY, error);
    for (size_t i = 0; i < sizeof s_sentencepiece_names / sizeof *s_sentencepiece_names; i++) {
        SUMI_TRY(sumi_checkpoint_open_optional(checkpoint, &tokenizer->file, folder, s_sentencepiece_names[i], false,
                                               error));
        if (tokenizer->file.heap != NULL)
            return use_tokenizer(checkpoint, tokenizer, SUMI_TOKENIZER_SENTENCEPIECE, error);
    }
    sumi_free(checkpoint->heap, tokenizer->folder);
    tokenizer->folder = NULL;
    return SUMI_OK;
}

static bool ends_with(const char* text, const char* end)
{
    const size_t bytes = strlen(text), end_bytes = strlen(end);
    return bytes >= end_bytes && strcmp(text + bytes - end_bytes, end) == 0;
}

// The form of a file that was given as the tokenizer: by its name, otherwise by whether it begins like JSON.
static sumi_tokenizer_form form_of(const sumi_file* file)
{
    if (ends_with(file->path, ".model")) return SUMI_TOKENIZER_SENTENCEPIECE;
    if (ends_with(file->path, "vocab.json")) return SUMI_TOKENIZER_VOCABULARY;
    const unsigned char* data = file->data;
    uint64_t at = 0;
    while (at < file->bytes && (data[at] == ' ' || data[at] == '\t' || data[at] == '\r' || data[at] == '\n')) at++;
    // the first field of a SentencePiece model, a piece, begins with byte 0x0A, which is also a line feed
    const bool is_pieces = file->bytes > 0 && data[0] == 0x0A && at < file->bytes && data[at] != '{';
    return is_pieces ? SUMI_TOKENIZER_SENTENCEPIECE : SUMI_TOKENIZER_JSON;
}

sumi_result sumi_checkpoint_open_tokenizer_path(sumi_checkpoint* checkpoint, sumi_checkpoint_tokenizer* tokenizer,
                                                const char* path, sumi_error* error)
{
    if (sumi_checkpoint_is_folder(checkpoint, path)) {
        SUMI_TRY(try_tokenizer(checkpoint, tokenizer, path, "", error));
        SUMI_TRY(try_tokenizer(checkpoint, tokenizer, path, "tokenizer", error));
        return tokenizer->form != SUMI_TOKENIZER_ABSENT
                 ? SUMI_OK
                 : sumi_fail(
                     error, SUMI_FILE_NOT_FOUND,
                     "%s: no such file, and no folder that holds tokenizer.json, vocab.json with merges.txt and "
                     "tokenizer_config.json, or a SentencePiece model (tokenizer.model, sentencepiece.bpe.model, "
                     "spiece.model)",
                     path);
    }
    SUMI_TRY(sumi_checkpoint_parent(checkpoint->heap, path, error, &tokenizer->folder));
    SUMI_TRY(sumi_file_open(&tokenizer->file, checkpoint->heap, checkpoint->files, path, error));
    return use_tokenizer(checkpoint, tokenizer, form_of(&tokenizer->file), error);
}

// Finds the SentencePiece model among an encoder's tensors. In a file of several components its name has the encoder's
// prefix or a shorter one: "text_encoders.X.transformer.", "text_encoders.X." or "text_encoders.". The last prefix is
// shared by all encoders, so a model after it is taken for the first encoder only.
static const sumi_tensor* find_pieces(const sumi_component* component, int32_t encoder)
{
    static const char s_name[] = "spiece_model";
    const sumi_tensor* pieces =
        component->present ? sumi_tensor_find_prefixed(component->set, component->prefix, s_name) : NULL;
    size_t bytes = component->present ? strlen(component->prefix) : 0;
    while (pieces == NULL && bytes > 0) {
        char name[256];
        bytes--; // skip the dot at the end
        while (bytes > 0 && component->prefix[bytes - 1] != '.') bytes--;
        const bool is_shared = bytes > 0 && memchr(component->prefix, '.', bytes - 1) == NULL;
        if (bytes == 0 || bytes + sizeof s_name > sizeof name || (is_shared && encoder > 0)) break;
        snprintf(name, sizeof name, "%.*s%s", (int)bytes, component->prefix, s_name);
        pieces = sumi_tensor_find(component->set, name);
    }
    return pieces;
}

// Takes the tokenizer in the metadata of the encoder's GGUF file.
static void use_metadata(sumi_checkpoint_tokenizer* tokenizer, const sumi_component* component)
{
    const sumi_metadata_array* texts =
        component->present ? &component->set->token_arrays[SUMI_TOKEN_ARRAY_TEXTS] : &(sumi_metadata_array){0};
    if (tokenizer->form != SUMI_TOKENIZER_ABSENT || texts->data == NULL || texts->bytes > SIZE_MAX) return;
    tokenizer->form = SUMI_TOKENIZER_GGUF;
    tokenizer->data = texts->data;
    tokenizer->bytes = (size_t)texts->bytes;
    tokenizer->set = component->set;
    tokenizer->path = component->path;
}

// Looks for a tokenizer at the text encoder's weights: as a tensor of their file, in their folder, in the folder beside
// it, and at last in the metadata of their file. Files beside a GGUF file say more about the pipeline than its metadata.
static sumi_result try_beside_weights(sumi_checkpoint* checkpoint, int32_t encoder, const char* name, sumi_error* error)
{
    sumi_checkpoint_tokenizer* tokenizer = &checkpoint->tokenizers[encoder];
    const sumi_component* component =
        &checkpoint->components[encoder == 0 ? SUMI_COMPONENT_TEXT_ENCODER : SUMI_COMPONENT_TEXT_ENCODER_2];
    const struct sumi_source* s = sumi_checkpoint_source_of(checkpoint, component);
    if (s == NULL || tokenizer->form != SUMI_TOKENIZER_ABSENT) return SUMI_OK;
    const sumi_tensor* pieces = find_pieces(component, encoder);
    if (pieces != NULL && pieces->bytes > 0 && pieces->bytes <= SIZE_MAX) {
        tokenizer->form = SUMI_TOKENIZER_SENTENCEPIECE;
        tokenizer->data = pieces->data;
        tokenizer->bytes = (size_t)pieces->bytes;
        tokenizer->path = component->path;
        return SUMI_OK;
    }
    char* folder;
    if (s->is_no_file) SUMI_TRY(try_tokenizer(checkpoint, tokenizer, s->path, "", error));
    SUMI_TRY(sumi_checkpoint_parent(checkpoint->heap, s->path, error, &folder));
    // a tokenizer beside single weight files is taken for the first encoder only
    sumi_result result =
        s->is_no_file || encoder > 0 ? SUMI_OK : try_tokenizer(checkpoint, tokenizer, folder, "", error);
    if (result == SUMI_OK) result = try_tokenizer(checkpoint, tokenizer, folder, name, error);
    sumi_free(checkpoint->heap, folder);
    if (result == SUMI_OK) use_metadata(tokenizer, component);
    return result;
}

sumi_result sumi_checkpoint_resolve_tokenizer(sumi_checkpoint* checkpoint, int32_t encoder, sumi_error* error)
{
    static const char* const s_folder_names[SUMI_CHECKPOINT_ENCODERS][4] = {
        {"tokenizer", "text_encoder", "processor", ""}, {"tokenizer_2", "text_encoder_2", "clip_model", NULL}};
    sumi_checkpoint_tokenizer* tokenizer = &checkpoint->tokenizers[encoder];
    if (checkpoint->tokenizer_paths[encoder] != NULL)
        return sumi_checkpoint_open_tokenizer_path(checkpoint, tokenizer, checkpoint->tokenizer_paths[encoder], error);
    for (int32_t i = 0; i < 4 && checkpoint->path_is_folder && s_folder_names[encoder][i] != NULL; i++)
        SUMI_TRY(try_tokenizer(checkpoint, tokenizer, checkpoint->path, s_folder_names[encoder][i], error));
    return try_beside_weights(checkpoint, encoder, s_folder_names[encoder][0], error);
}

sumi_result sumi_checkpoint_tokenizer_missing(const sumi_checkpoint_tokenizer* tokenizer, int32_t encoder,
                                              const char* needed_by, sumi_error* error)
{
    const char* folders = tokenizer->searched_folders;
    return sumi_fail(
        error, SUMI_FILE_NOT_FOUND,
        "%s: the %stext encoder needs its tokenizer; give tokenizer%s_path, or open the model without text "
        "encoders; looked for tokenizer.json, vocab.json with merges.txt and tokenizer_config.json, tokenizer.model, "
        "sentencepiece.bpe.model and spiece.model in %s",
        needed_by, encoder == 0 ? "" : "second ", encoder == 0 ? "" : "_2",
        folders != NULL ? folders : "no folder, as none was given");
}
