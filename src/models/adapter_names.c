#include "models/adapter_names.h"
#include <string.h>

static bool begins_with(const char* text, size_t bytes, const char* start)
{
    const size_t length = strlen(start);
    return bytes >= length && memcmp(text, start, length) == 0;
}

// ---- Parts ----------------------------------------------------------------------------------------------------------

// What may follow a part's mark.
typedef enum tail {
    TAIL_NONE,
    TAIL_NAMED // [.NAME] [.weight], or [.NAME] .bias
} tail;

static const struct {
    const char* mark;
    tail tail;
    sumi_adapter_part part;
} s_marks[] = {{".lora_A", TAIL_NAMED, SUMI_PART_DOWN},
               {".lora_B", TAIL_NAMED, SUMI_PART_UP},
               {".lora_down", TAIL_NAMED, SUMI_PART_DOWN},
               {".lora_up", TAIL_NAMED, SUMI_PART_UP},
               {".lora.down", TAIL_NAMED, SUMI_PART_DOWN},
               {".lora.up", TAIL_NAMED, SUMI_PART_UP},
               {".lora_linear_layer.down", TAIL_NAMED, SUMI_PART_DOWN},
               {".lora_linear_layer.up", TAIL_NAMED, SUMI_PART_UP},
               {".hada_w1_a", TAIL_NAMED, SUMI_PART_LOHA_1_UP},
               {".hada_w1_b", TAIL_NAMED, SUMI_PART_LOHA_1_DOWN},
               {".hada_w2_a", TAIL_NAMED, SUMI_PART_LOHA_2_UP},
               {".hada_w2_b", TAIL_NAMED, SUMI_PART_LOHA_2_DOWN},
               {".lokr_w1", TAIL_NAMED, SUMI_PART_LOKR_1},
               {".lokr_w1_a", TAIL_NAMED, SUMI_PART_LOKR_1_UP},
               {".lokr_w1_b", TAIL_NAMED, SUMI_PART_LOKR_1_DOWN},
               {".lokr_w2", TAIL_NAMED, SUMI_PART_LOKR_2},
               {".lokr_w2_a", TAIL_NAMED, SUMI_PART_LOKR_2_UP},
               {".lokr_w2_b", TAIL_NAMED, SUMI_PART_LOKR_2_DOWN},
               {".lora_magnitude_vector", TAIL_NAMED, SUMI_PART_MAGNITUDE},
               {".lora_magnitude", TAIL_NAMED, SUMI_PART_MAGNITUDE},
               {".dora_scale", TAIL_NAMED, SUMI_PART_MAGNITUDE},
               {".magnitude", TAIL_NAMED, SUMI_PART_MAGNITUDE},
               {".diff", TAIL_NONE, SUMI_PART_DIFF},
               {".diff_b", TAIL_NONE, SUMI_PART_BIAS_DIFF},
               {".w_norm", TAIL_NONE, SUMI_PART_NORM},
               {".b_norm", TAIL_NONE, SUMI_PART_NORM_BIAS},
               {".alpha", TAIL_NONE, SUMI_PART_ALPHA}};

// Kinds of changes that are not supported, by what only their names have.
static const struct {
    const char *mark, *kind;
    bool is_end; // the name ends so
} s_refused[] = {{".lora_mid", "a LoRA of a convolution (lora_mid)", false},
                 {".hada_t", "a LoHa of a convolution (hada_t1, hada_t2)", false},
                 {".lokr_t", "a LoKr of a convolution (lokr_t2)", false},
                 {".lora_embedding_", "a LoRA of an embedding", false},
                 {".glora", "a GLoRA", false},
                 {".a1.weight", "a GLoRA", true},
                 {".a2.weight", "a GLoRA", true},
                 {".b1.weight", "a GLoRA", true},
                 {".b2.weight", "a GLoRA", true},
                 {".boft_", "a BOFT", false},
                 {".oft_", "an OFT", false},
                 {".rescale", "an OFT", true},
                 {".ia3_", "an IA3", false},
                 {".on_input", "an IA3", true},
                 {".vera_", "a VeRA", false},
                 {".set_weight", "a weight that replaces the model's (.set_weight)", true},
                 {".reshape_weight", "a weight of another shape (.reshape_weight)", true},
                 {"bundle_emb.", "an embedding for a text encoder (textual inversion, bundle_emb)", false}};

// Reads what follows a mark. False: it is something else.
static bool read_tail(const char* text, bool* out_is_bias)
{
    *out_is_bias = false;
    if (*text == '\0') return true;
    if (*text != '.') return false;
    const char* last = strrchr(text, '.');
    *out_is_bias = strcmp(last, ".bias") == 0;
    const bool is_single = last == text, ends_well = *out_is_bias || strcmp(last, ".weight") == 0;
    // ".NAME", or ".NAME.weight" with one dot between
    return last[1] != '\0' && (is_single || (ends_well && strchr(text + 1, '.') == last && last > text + 1));
}

sumi_adapter_name sumi_adapter_read_name(const char* name)
{
    const size_t bytes = strlen(name);
    for (size_t i = 0; i < sizeof s_refused / sizeof *s_refused; i++) {
        const char* found = strstr(name, s_refused[i].mark);
        const size_t length = strlen(s_refused[i].mark);
        if (s_refused[i].is_end) found = bytes > length ? name + bytes - length : NULL;
        if (found != NULL && strncmp(found, s_refused[i].mark, length) == 0)
            return (sumi_adapter_name){SUMI_PART_REFUSED, (size_t)(found - name), s_refused[i].kind};
    }
    for (size_t i = 0; i < sizeof s_marks / sizeof *s_marks; i++) {
        const char* found = NULL; // the last place
        const size_t length = strlen(s_marks[i].mark);
        for (const char* at = strstr(name, s_marks[i].mark); at != NULL; at = strstr(at + 1, s_marks[i].mark))
            found = at;
        if (found == NULL || found == name) continue;
        const size_t module_bytes = (size_t)(found - name);
        bool is_bias = false;
        if (s_marks[i].tail == TAIL_NONE ? found[length] != '\0' : !read_tail(found + length, &is_bias)) continue;
        if (!is_bias) return (sumi_adapter_name){s_marks[i].part, module_bytes, NULL};
        if (s_marks[i].part == SUMI_PART_UP) return (sumi_adapter_name){SUMI_PART_UP_BIAS, module_bytes, NULL};
    }
    return (sumi_adapter_name){SUMI_PART_UNKNOWN, bytes, NULL};
}

const char* sumi_adapter_part_text(sumi_adapter_part part)
{
    switch (part) {
    case SUMI_PART_DOWN: return ".lora_A or .lora_down";
    case SUMI_PART_UP: return ".lora_B or .lora_up";
    default:
        for (size_t i = 0; i < sizeof s_marks / sizeof *s_marks; i++) {
            if (s_marks[i].part == part) return s_marks[i].mark;
        }
        return "";
    }
}

// ---- Prefixes -------------------------------------------------------------------------------------------------------

// Bytes of the prefix that says that a module is of a text encoder, and of which one. 0: it is of the denoiser.
static size_t text_prefix_bytes(const char* module, size_t bytes, int32_t* out_encoder)
{
    static const struct {
        const char* prefix;
        int32_t encoder;
    } s_prefixes[] = {{"text_encoder.", 1},
                      {"text_encoder_2.", 2},
                      {"text_encoder_3.", 3},
                      {"pipe.text_encoder.", 1},
                      {"pipe.text_encoder_2.", 2},
                      {"lora_text_encoder_2_", 2},
                      {"lora_text_encoder_", 1},
                      {"lora_te1_", 1},
                      {"lora_te2_", 2},
                      {"lora_te3_", 3},
                      {"lora_te_", 1},
                      {"te.", 1},
                      {"te1.", 1},
                      {"te2.", 2},
                      {"te3.", 3}};
    static const char s_wrapper[] = "base_model.model.", s_comfy[] = "text_encoders.", s_inner[] = "transformer.",
                      s_tower[] = "text_model.";
    const size_t wrapped = begins_with(module, bytes, s_wrapper) ? sizeof s_wrapper - 1 : 0;
    module += wrapped;
    bytes -= wrapped;
    *out_encoder = 0;
    for (size_t i = 0; i < sizeof s_prefixes / sizeof *s_prefixes; i++) {
        if (!begins_with(module, bytes, s_prefixes[i].prefix)) continue;
        *out_encoder = s_prefixes[i].encoder;
        return wrapped + strlen(s_prefixes[i].prefix);
    }
    if (begins_with(module, bytes, s_tower)) { // the tower's own name, of which the prefix is a part
        *out_encoder = SUMI_ADAPTER_ANY_ENCODER;
        return wrapped;
    }
    if (!begins_with(module, bytes, s_comfy)) return 0;
    size_t at = sizeof s_comfy - 1; // text_encoders.NAME.[transformer.]
    while (at < bytes && module[at] != '.') at++;
    at += at < bytes;
    *out_encoder = SUMI_ADAPTER_ANY_ENCODER;
    return wrapped + at + (begins_with(module + at, bytes - at, s_inner) ? sizeof s_inner - 1 : 0);
}

int32_t sumi_adapter_encoder(const char* module, size_t bytes)
{
    int32_t encoder;
    (void)text_prefix_bytes(module, bytes, &encoder);
    return encoder;
}

size_t sumi_adapter_prefix_bytes(const char* module, size_t bytes)
{
    int32_t encoder;
    const size_t text_bytes = text_prefix_bytes(module, bytes, &encoder);
    if (encoder != 0) {
        static const char s_wrapper[] = "base_model.model.";
        return text_bytes
             + (begins_with(module + text_bytes, bytes - text_bytes, s_wrapper) ? sizeof s_wrapper - 1 : 0);
    }
    // A prefix that begins with another one comes first.
    static const char* const s_prefixes[] = {
        "base_model.model.", "transformer.", "model.diffusion_model.", "diffusion_model.", "pipe.dit.", "dit.", "unet.",
        "lora_unet__",       "lora_unet_",   "lora_transformer_",      "lycoris_"};
    size_t skipped = 0;
    for (bool is_stripped = true; is_stripped;) {
        is_stripped = false;
        for (size_t i = 0; i < sizeof s_prefixes / sizeof *s_prefixes; i++) {
            const size_t length = strlen(s_prefixes[i]);
            if (bytes - skipped <= length || !begins_with(module + skipped, bytes - skipped, s_prefixes[i])) continue;
            skipped += length;
            is_stripped = true;
        }
    }
    return skipped;
}
