// Reads the normalizer, the pre-tokenizer and the post processor of a tokenizer.json. Members of an object come in any
// order, "type" included, so each object is first collected and then interpreted; a Sequence adds its steps while it is
// read.
//
// The file determines the pipeline. A part that sumi does not implement (another normalizer, an unknown regex) is
// refused by name, so that no text is split differently from the model's training.
#include "text/tokenizer_loading.h"
#include "text/word_split.h"

// ---- Normalizer -----------------------------------------------------------------------------------------------------

// Reads {"String": "..."} or {"Regex": "..."}.
static void read_pattern(sumi_loader* load, sumi_json_text* out, bool* out_regex)
{
    sumi_json_text key;
    if (sumi_json_object(load->j)) {
        while (sumi_json_key(load->j, &key)) {
            *out_regex = sumi_json_is(&key, "Regex");
            if (!*out_regex && !sumi_json_is(&key, "String"))
                sumi_json_refuse(load->j, "a pattern that is neither String nor Regex");
            sumi_json_string(load->j, out);
        }
    }
}

// Parses the only regex that released normalizers use: a run "x{n,}" of one ordinary character x.
static bool parse_run_regex(sumi_short_text* pattern, size_t* out_min_run)
{
    if (pattern->bytes == 0 || memchr("\\^$.|?*+()[]{}", pattern->data[0], 14) != NULL) return false;
    size_t length = sumi_utf8_length(pattern->data), at = length, run = 0;
    if (at >= pattern->bytes || pattern->data[at++] != '{') return false;
    while (at < pattern->bytes && pattern->data[at] >= '0' && pattern->data[at] <= '9' && run < 1000000)
        run = run * 10 + (size_t)(pattern->data[at++] - '0');
    if (run == 0 || pattern->bytes - at != 2 || memcmp(pattern->data + at, ",}", 2) != 0) return false;
    pattern->bytes = length;
    *out_min_run = run;
    return true;
}

static sumi_result read_normalizer_list(sumi_loader* load, int32_t depth)
{
    if (sumi_json_array(load->j)) {
        while (sumi_json_item(load->j)) SUMI_TRY(sumi_load_normalizer(load, depth + 1));
    }
    return sumi_load_result(load->j);
}

sumi_result sumi_load_normalizer(sumi_loader* load, int32_t depth)
{
    sumi_tokenizer* t = load->t;
    sumi_json* j = load->j;
    if (sumi_json_null(j)) return SUMI_OK;
    sumi_json_text key, type = {0}, pattern = {0}, content = {0}, charsmap = {0};
    bool is_regex = false, has_list = false;
    sumi_normalize_step step = {.strip_left = true, .strip_right = true};
    if (depth > SUMI_TOKENIZER_MAX_STEPS) return sumi_load_refuse(load, "normalizers nested too deep");
    if (sumi_json_object(j)) {
        while (sumi_json_key(j, &key)) {
            if (sumi_json_is(&key, "type")) {
                sumi_json_string(j, &type);
            } else if (sumi_json_is(&key, "normalizers")) {
                has_list = true;
                SUMI_TRY(read_normalizer_list(load, depth));
            } else if (sumi_json_is(&key, "pattern")) {
                read_pattern(load, &pattern, &is_regex);
            } else if (sumi_json_is(&key, "content")) {
                sumi_json_string(j, &content);
            } else if (sumi_json_is(&key, "precompiled_charsmap")) {
                sumi_load_string_or_null(load, &charsmap);
            } else if (sumi_json_is(&key, "strip_left")) {
                step.strip_left = sumi_load_bool(load, true);
            } else if (sumi_json_is(&key, "strip_right")) {
                step.strip_right = sumi_load_bool(load, true);
            } else {
                sumi_json_skip(j);
            }
        }
    }
    SUMI_TRY(sumi_load_result(j));
    if (!sumi_load_has(&type)) return sumi_load_refuse(load, "a normalizer without type");
    if (sumi_json_is(&type, "Sequence") != has_list)
        return sumi_load_refuse(load, "a normalizer with a list must be a Sequence");
    if (has_list) return SUMI_OK;
    if (sumi_json_is(&type, "NFC")) {
        step.kind = SUMI_NORMALIZE_NFC;
    } else if (sumi_json_is(&type, "Strip")) {
        step.kind = SUMI_NORMALIZE_STRIP;
    } else if (sumi_json_is(&type, "Replace")) {
        step.kind = SUMI_NORMALIZE_REPLACE;
        if (!sumi_load_has(&pattern) || !sumi_load_has(&content))
            return sumi_load_refuse(load, "a Replace normalizer without pattern or content");
        SUMI_TRY(sumi_load_short_text(load, &pattern, "normalizer.pattern", &step.pattern));
        SUMI_TRY(sumi_load_short_text(load, &content, "normalizer.content", &step.content));
        if (is_regex && !parse_run_regex(&step.pattern, &step.min_run))
            return sumi_load_unsupported(load, "the normalizer's regex", &pattern);
        if (step.pattern.bytes == 0) return sumi_load_refuse(load, "a Replace normalizer with an empty pattern");
    } else if (sumi_json_is(&type, "Precompiled")) {
        step.kind = SUMI_NORMALIZE_CHARSMAP;
        const char* text;
        size_t bytes;
        if (!sumi_load_has(&charsmap) || t->charsmap.blob != NULL)
            return sumi_load_refuse(load, "a Precompiled normalizer without precompiled_charsmap, or a second one");
        load->l->text.bytes = 0;
        SUMI_TRY(sumi_load_text(load, &charsmap, &text, &bytes));
        SUMI_TRY(sumi_charsmap_begin(&t->charsmap, t->heap, text, bytes, t->path, load->error));
    } else {
        return sumi_load_unsupported(load, "the normalizer", &type);
    }
    if (t->normalize_count == SUMI_TOKENIZER_MAX_STEPS) {
        return sumi_fail(
            load->error, SUMI_NOT_SUPPORTED,
            "%s: the normalizer has more than %d steps; use the tokenizer that was released with the model", t->path,
            SUMI_TOKENIZER_MAX_STEPS);
    }
    t->normalize[t->normalize_count++] = step;
    return SUMI_OK;
}

// ---- Pre-tokenizer --------------------------------------------------------------------------------------------------

static sumi_result read_pre_tokenizer_list(sumi_loader* load, int32_t depth)
{
    if (sumi_json_array(load->j)) {
        while (sumi_json_item(load->j)) SUMI_TRY(sumi_load_pre_tokenizer(load, depth + 1));
    }
    return sumi_load_result(load->j);
}

typedef struct pre_tokenizer_fields {
    sumi_json_text type, pattern, behavior, replacement, prepend_scheme;
    bool is_regex, has_list, invert, add_prefix_space, has_add_prefix_space, use_regex, split;
} pre_tokenizer_fields;

static sumi_result finish_split(sumi_loader* load, const pre_tokenizer_fields* fields, sumi_split_step* step)
{
    static const struct {
        const char* name;
        sumi_split_behavior behavior;
    } s_behaviors[] = {
        {"Isolated", SUMI_SPLIT_ISOLATED},
        {"Removed", SUMI_SPLIT_REMOVED},
        {"MergedWithPrevious", SUMI_SPLIT_MERGED_PREVIOUS},
        {"MergedWithNext", SUMI_SPLIT_MERGED_NEXT},
        {"Contiguous", SUMI_SPLIT_CONTIGUOUS},
    };
    if (!sumi_load_has(&fields->pattern) || !sumi_load_has(&fields->behavior))
        return sumi_load_refuse(load, "a Split pre-tokenizer without pattern or behavior");
    size_t i = 0;
    while (i < sizeof s_behaviors / sizeof *s_behaviors && !sumi_json_is(&fields->behavior, s_behaviors[i].name)) i++;
    if (i == sizeof s_behaviors / sizeof *s_behaviors)
        return sumi_load_unsupported(load, "the pre-tokenizer's behavior", &fields->behavior);
    step->behavior = s_behaviors[i].behavior;
    if (fields->is_regex) {
        step->kind = SUMI_SPLIT_QWEN;
        // matches cover every text, so there is nothing between them; any other behavior would join or drop words
        bool is_known = sumi_json_is(&fields->pattern, SUMI_WORD_SPLIT_QWEN) && step->behavior == SUMI_SPLIT_ISOLATED;
        return is_known
                 ? SUMI_OK
                 : sumi_load_unsupported(load, "the pre-tokenizer's regex (with this behavior)", &fields->pattern);
    }
    step->kind = SUMI_SPLIT_LITERAL;
    SUMI_TRY(sumi_load_short_text(load, &fields->pattern, "pre_tokenizer.pattern", &step->pattern));
    if (step->pattern.bytes == 0 || fields->invert)
        return sumi_load_unsupported(load, "the pre-tokenizer's pattern (empty, or inverted)", &fields->pattern);
    return SUMI_OK;
}

static sumi_result finish_metaspace(sumi_loader* load, const pre_tokenizer_fields* fields, sumi_split_step* step)
{
    step->kind = SUMI_SPLIT_METASPACE;
    step->split = fields->split;
    for (size_t i = 0; i < load->t->split_count; i++) {
        if (load->t->split[i].kind == SUMI_SPLIT_METASPACE) { // two would share one buffer
            return sumi_load_unsupported(load, "a second pre-tokenizer", &fields->type);
        }
    }
    if (!sumi_load_has(&fields->replacement))
        return sumi_load_refuse(load, "a Metaspace pre-tokenizer without replacement");
    SUMI_TRY(sumi_load_short_text(load, &fields->replacement, "pre_tokenizer.replacement", &step->pattern));
    if (step->pattern.bytes == 0 || sumi_utf8_length(step->pattern.data) != step->pattern.bytes)
        return sumi_load_refuse(load, "a Metaspace replacement that is not one character");
    // files have the newer prepend_scheme, the older add_prefix_space, or both
    step->prepend =
        fields->has_add_prefix_space && !fields->add_prefix_space ? SUMI_PREPEND_NEVER : SUMI_PREPEND_ALWAYS;
    if (sumi_load_has(&fields->prepend_scheme)) {
        if (sumi_json_is(&fields->prepend_scheme, "always")) {
            step->prepend = SUMI_PREPEND_ALWAYS;
        } else if (sumi_json_is(&fields->prepend_scheme, "first")) {
            step->prepend = SUMI_PREPEND_FIRST;
        } else if (sumi_json_is(&fields->prepend_scheme, "never")) {
            step->prepend = SUMI_PREPEND_NEVER;
        } else {
            return sumi_load_unsupported(load, "the prepend_scheme", &fields->prepend_scheme);
        }
    }
    return SUMI_OK;
}

sumi_result sumi_load_pre_tokenizer(sumi_loader* load, int32_t depth)
{
    sumi_tokenizer* t = load->t;
    sumi_json* j = load->j;
    if (sumi_json_null(j)) return SUMI_OK;
    sumi_json_text key;
    pre_tokenizer_fields fields = {.use_regex = true, .split = true};
    sumi_split_step step = {0};
    if (depth > SUMI_TOKENIZER_MAX_STEPS) return sumi_load_refuse(load, "pre-tokenizers nested too deep");
    if (sumi_json_object(j)) {
        while (sumi_json_key(j, &key)) {
            if (sumi_json_is(&key, "type")) {
                sumi_json_string(j, &fields.type);
            } else if (sumi_json_is(&key, "pretokenizers")) {
                fields.has_list = true;
                SUMI_TRY(read_pre_tokenizer_list(load, depth));
            } else if (sumi_json_is(&key, "pattern")) {
                read_pattern(load, &fields.pattern, &fields.is_regex);
            } else if (sumi_json_is(&key, "behavior")) {
                sumi_json_string(j, &fields.behavior);
            } else if (sumi_json_is(&key, "invert")) {
                fields.invert = sumi_load_bool(load, false);
            } else if (sumi_json_is(&key, "replacement")) {
                sumi_json_string(j, &fields.replacement);
            } else if (sumi_json_is(&key, "prepend_scheme")) {
                sumi_load_string_or_null(load, &fields.prepend_scheme);
            } else if (sumi_json_is(&key, "add_prefix_space")) {
                fields.has_add_prefix_space = true;
                fields.add_prefix_space = sumi_load_bool(load, true);
            } else if (sumi_json_is(&key, "use_regex")) {
                fields.use_regex = sumi_load_bool(load, true);
            } else if (sumi_json_is(&key, "split")) {
                fields.split = sumi_load_bool(load, true);
            } else {
                sumi_json_skip(j);
            }
        }
    }
    SUMI_TRY(sumi_load_result(j));
    if (!sumi_load_has(&fields.type)) return sumi_load_refuse(load, "a pre-tokenizer without type");
    if (sumi_json_is(&fields.type, "Sequence") != fields.has_list)
        return sumi_load_refuse(load, "a pre-tokenizer with a list must be a Sequence");
    if (fields.has_list) return SUMI_OK;
    if (t->byte_level || t->split_count == SUMI_TOKENIZER_MAX_STEPS) {
        return sumi_fail(load->error, SUMI_NOT_SUPPORTED,
                         "%s: the pre-tokenizer has steps after ByteLevel, or more than %d; use the tokenizer that was "
                         "released with the model",
                         t->path, SUMI_TOKENIZER_MAX_STEPS);
    }
    if (sumi_json_is(&fields.type, "ByteLevel")) {
        if (fields.add_prefix_space || fields.use_regex)
            return sumi_load_unsupported(load, "with add_prefix_space or use_regex the pre-tokenizer", &fields.type);
        t->byte_level = true;
        return SUMI_OK;
    }
    if (sumi_json_is(&fields.type, "Split")) {
        SUMI_TRY(finish_split(load, &fields, &step));
    } else if (sumi_json_is(&fields.type, "Metaspace")) {
        SUMI_TRY(finish_metaspace(load, &fields, &step));
    } else if (sumi_json_is(&fields.type, "WhitespaceSplit")) {
        step.kind = SUMI_SPLIT_WHITESPACE;
    } else {
        return sumi_load_unsupported(load, "the pre-tokenizer", &fields.type);
    }
    t->split[t->split_count++] = step;
    return SUMI_OK;
}

// ---- Post processor -------------------------------------------------------------------------------------------------

static sumi_result put_end(sumi_loader* load, bool after_text, uint64_t id)
{
    sumi_tokenizer* t = load->t;
    size_t* count = after_text ? &t->after_count : &t->before_count;
    if (*count == SUMI_TOKENIZER_MAX_ENDS) {
        return sumi_fail(load->error, SUMI_NOT_SUPPORTED,
                         "%s: the post_processor adds more than %d tokens at an end; use the tokenizer that was "
                         "released with the model",
                         t->path, SUMI_TOKENIZER_MAX_ENDS);
    }
    if (id > SUMI_VOCABULARY_MAX_COUNT) return sumi_load_refuse(load, "a post_processor whose id is too large");
    (after_text ? t->after : t->before)[(*count)++] = (uint32_t)id;
    return SUMI_OK;
}

static sumi_result compare_texts(sumi_loader* load, const sumi_json_text* a, const sumi_json_text* b, bool* out_equal)
{
    sumi_text_buffer* buffer = &load->l->text;
    const char *a_text, *b_text;
    size_t a_bytes, b_bytes;
    buffer->bytes = 0;
    // reserve once, so that appending the second text does not move the first
    SUMI_TRY(sumi_text_reserve(load->t->heap, buffer, a->bytes + b->bytes, load->error));
    SUMI_TRY(sumi_load_text(load, a, &a_text, &a_bytes));
    SUMI_TRY(sumi_load_text(load, b, &b_text, &b_bytes));
    *out_equal = a_bytes == b_bytes && memcmp(a_text, b_text, a_bytes) == 0;
    return SUMI_OK;
}

// Adds the ids of one special token of a template: {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}, ...}. `tokens`
// is a copy of the reader's state at that object.
static sumi_result put_special(sumi_loader* load, sumi_json tokens, const sumi_json_text* name, bool after_text)
{
    sumi_json_text key, field;
    bool found = false;
    if (sumi_json_object(&tokens)) {
        while (sumi_json_key(&tokens, &key)) {
            bool is_equal;
            SUMI_TRY(compare_texts(load, name, &key, &is_equal));
            if (!is_equal) {
                sumi_json_skip(&tokens);
                continue;
            }
            found = true;
            if (sumi_json_object(&tokens)) {
                while (sumi_json_key(&tokens, &field)) {
                    if (!sumi_json_is(&field, "ids")) {
                        sumi_json_skip(&tokens);
                    } else if (sumi_json_array(&tokens)) {
                        while (sumi_json_item(&tokens)) {
                            uint64_t id = sumi_json_unsigned(&tokens);
                            SUMI_TRY(sumi_load_result(&tokens));
                            SUMI_TRY(put_end(load, after_text, id));
                        }
                    }
                }
            }
        }
    }
    SUMI_TRY(sumi_load_result(&tokens));
    return found ? SUMI_OK : sumi_load_refuse(load, "a template names a special token that it does not define");
}

// Reads {"SpecialToken": {"id": "<s>", "type_id": 0}} or {"Sequence": {"id": "A", "type_id": 0}}.
static sumi_result read_template_item(sumi_loader* load, sumi_json* j, const sumi_json* tokens, bool* after_text)
{
    sumi_json_text kind, key, id = {0};
    if (!sumi_json_object(j) || !sumi_json_key(j, &kind)) {
        sumi_json_refuse(j, "an empty template item");
        return sumi_load_result(j);
    }
    bool is_sequence = sumi_json_is(&kind, "Sequence");
    if (!is_sequence && !sumi_json_is(&kind, "SpecialToken"))
        sumi_json_refuse(j, "a template item that is neither Sequence nor SpecialToken");
    if (sumi_json_object(j)) {
        while (sumi_json_key(j, &key)) {
            if (sumi_json_is(&key, "id")) {
                sumi_json_string(j, &id);
            } else {
                sumi_json_skip(j);
            }
        }
    }
    if (!j->failed && (!sumi_load_has(&id) || sumi_json_key(j, &key)))
        sumi_json_refuse(j, "a template item without id, or with two kinds");
    SUMI_TRY(sumi_load_result(j));
    if (!is_sequence) return put_special(load, *tokens, &id, *after_text);
    if (*after_text || !sumi_json_is(&id, "A"))
        sumi_json_refuse(j, "a template for one text that does not have that text once");
    *after_text = true;
    return sumi_load_result(j);
}

static sumi_result finish_template(sumi_loader* load, sumi_json single, const sumi_json* tokens)
{
    bool after_text = false;
    if (sumi_json_array(&single)) {
        while (sumi_json_item(&single)) SUMI_TRY(read_template_item(load, &single, tokens, &after_text));
    }
    SUMI_TRY(sumi_load_result(&single));
    return after_text ? SUMI_OK : sumi_load_refuse(load, "a template for one text that does not have that text once");
}

// Reads ["</s>", 2] of the Bert and Roberta processors.
static sumi_result read_end_pair(sumi_loader* load, uint64_t* out_id)
{
    sumi_json_text text;
    if (sumi_json_array(load->j)) {
        if (sumi_json_item(load->j)) sumi_json_string(load->j, &text);
        if (sumi_json_item(load->j)) *out_id = sumi_json_unsigned(load->j);
        if (!load->j->failed && sumi_json_item(load->j)) sumi_json_refuse(load->j, "expected a token and its id");
    }
    return sumi_load_result(load->j);
}

static sumi_result read_post_processor_list(sumi_loader* load, int32_t depth)
{
    if (sumi_json_array(load->j)) {
        while (sumi_json_item(load->j)) SUMI_TRY(sumi_load_post_processor(load, depth + 1));
    }
    return sumi_load_result(load->j);
}

sumi_result sumi_load_post_processor(sumi_loader* load, int32_t depth)
{
    sumi_tokenizer* t = load->t;
    sumi_json *j = load->j, single = {0}, tokens = {0};
    if (sumi_json_null(j)) return SUMI_OK;
    sumi_json_text key, type = {0};
    uint64_t sep = UINT64_MAX, cls = UINT64_MAX;
    bool has_list = false;
    if (depth > SUMI_TOKENIZER_MAX_STEPS) return sumi_load_refuse(load, "post processors nested too deep");
    if (sumi_json_object(j)) {
        while (sumi_json_key(j, &key)) {
            if (sumi_json_is(&key, "type")) {
                sumi_json_string(j, &type);
            } else if (sumi_json_is(&key, "processors")) {
                has_list = true;
                SUMI_TRY(read_post_processor_list(load, depth));
                // the template's tokens may be defined after it: keep the reader's state
            } else if (sumi_json_is(&key, "single")) {
                single = *j;
                sumi_json_skip(j);
            } else if (sumi_json_is(&key, "special_tokens")) {
                tokens = *j;
                sumi_json_skip(j);
            } else if (sumi_json_is(&key, "sep")) {
                SUMI_TRY(read_end_pair(load, &sep));
            } else if (sumi_json_is(&key, "cls")) {
                SUMI_TRY(read_end_pair(load, &cls));
            } else {
                sumi_json_skip(j);
            }
        }
    }
    SUMI_TRY(sumi_load_result(j));
    if (!sumi_load_has(&type)) return sumi_load_refuse(load, "a post processor without type");
    if (sumi_json_is(&type, "Sequence") != has_list)
        return sumi_load_refuse(load, "a post processor with a list must be a Sequence");
    if (has_list || sumi_json_is(&type, "ByteLevel")) return SUMI_OK;
    if (t->has_template) {
        return sumi_fail(load->error, SUMI_NOT_SUPPORTED,
                         "%s: two post processors add tokens; use the tokenizer that was released with the model",
                         t->path);
    }
    t->has_template = true;
    if (sumi_json_is(&type, "TemplateProcessing")) {
        if (single.begin == NULL || tokens.begin == NULL)
            return sumi_load_refuse(load, "a template without single or special_tokens");
        return finish_template(load, single, &tokens);
    }
    if (sumi_json_is(&type, "RobertaProcessing") || sumi_json_is(&type, "BertProcessing")) {
        if (sep == UINT64_MAX || cls == UINT64_MAX)
            return sumi_load_refuse(load, "a post processor without sep or cls");
        SUMI_TRY(put_end(load, false, cls));
        return put_end(load, true, sep);
    }
    return sumi_load_unsupported(load, "the post_processor", &type);
}
