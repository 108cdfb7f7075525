// The one list of the families of models: every test that looks the same for all of them loops over it, and a row is
// all that a new family needs to take part. test_families.c and test_family_jobs.c draw with every row; other tests
// take the checkpoints from here. A row says what such a test cannot ask the model; test_families.c compares it with
// what the model says of itself.
//
// A family has several rows where references, guidance or prompts of its variants differ. No row has a tolerance: what
// these tests compare are bits. Numbers with tolerances are cases of golden_run.
#ifndef SUMI_FAMILIES_H
#define SUMI_FAMILIES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The folders of tests/golden, each with the functions of golden_run that run its cases (run_z_image_case).
#define GOLDEN_FAMILIES(X)                                                                                             \
    X(z_image, "z-image")                                                                                              \
    X(qwen_image, "qwen-image")                                                                                        \
    X(qwen_image_21, "qwen-image-21")                                                                                  \
    X(newbie, "newbie")                                                                                                \
    X(flux2_klein, "flux2-klein")

// Members of sumi_model_desc. All but `path` may be NULL.
typedef struct family_files {
    const char *path, *transformer_path, *text_encoder_path, *vae_path, *tokenizer_path, *processor_path;
} family_files;

#define FAMILY_FOLDER(folder) "tests/golden/" folder "/"
#define FAMILY_IN(folder)                                                                                              \
    {                                                                                                                  \
        .path = FAMILY_FOLDER(folder) "model"                                                                          \
    }
// A pipeline whose networks lie in the folder of another one.
#define FAMILY_BESIDE(folder, pipeline)                                                                                \
    {                                                                                                                  \
        .path = FAMILY_FOLDER(folder) pipeline, .transformer_path = FAMILY_FOLDER(folder) "model/transformer",         \
        .text_encoder_path = FAMILY_FOLDER(folder) "model/text_encoder",                                               \
        .vae_path = FAMILY_FOLDER(folder) "model/vae", .tokenizer_path = FAMILY_FOLDER(folder) "model/tokenizer",      \
        .processor_path = FAMILY_FOLDER(folder) "model-edit/processor"                                                 \
    }

typedef struct family_row {
    const char* name;             // of the row: `test_families NAME` runs its tests alone
    const char *family, *variant; // as in sumi_model_info
    bool names_variant;           // the files do not tell it: the caller does (sumi_model_desc.variant)
    family_files tiny,
        wide; // the checkpoints of tests/golden: of a single head, and of several. The second may be {NULL}
    // Of test_cuda_cards, which computes with every network and with an edit: its checkpoint of the released sizes, as
    // synthetic_find names it. NULL: the test leaves the row out.
    const char* released;
    const char* adapters[8]; // of the tiny checkpoint, in every dialect; the first one changes its transformer
    int32_t text_encoder_count;
    int32_t min_references, max_references;
    // Area in pixels to which references are resized here, for published areas cost a tiny model seconds. 0: the rule
    // of the family resizes nothing that is as small as the pictures of the tests.
    int32_t reference_area;
    int32_t side;                 // of its pictures in tests, if FAMILY_SIDE is not possible
    bool prompts_read_references; // an encoded prompt belongs to the references that it was encoded with
    bool ignores_guidance;        // the authors distilled it: neither guidance nor a negative text changes a picture
    // The row before this one has the same networks and files. Tests on which guidance and settings of the network have
    // no influence leave it out.
    bool is_variant;
    // With is_variant: references are computed once per job, so that tests of jobs that have some take part all the same.
    bool keeps_references;
} family_row;

// Of the small pictures. Products of fewer than 8 rows add in another order on CPUs with AVX2 and without it, and a
// batch then differs from single pictures in the last bits (promises.md, section 6). These are 3 x 3 tokens.
enum { FAMILY_SIDE = 48, FAMILY_LARGEST_SIDE = 64 };

#define QWEN_IMAGE_ADAPTER(name) FAMILY_FOLDER("qwen-image") "lora/" name ".safetensors"
#define QWEN_IMAGE_21_ADAPTER(name) FAMILY_FOLDER("qwen-image-21") "lora/" name ".safetensors"
#define KLEIN_ADAPTER(name) FAMILY_FOLDER("flux2-klein") "lora/" name ".safetensors"
static const family_row s_families[] = {
    {.name = "z-image",
     .family = "z-image",
     .variant = "turbo",
     .tiny = FAMILY_IN("z-image"),
     .wide = FAMILY_IN("z-image-wide"),
     .released = "z-image",
     .adapters = {FAMILY_FOLDER("z-image") "lora/lora_peft.safetensors"},
     .text_encoder_count = 1},
    {.name = "qwen-image",
     .family = "qwen-image",
     .variant = "first",
     .tiny = FAMILY_IN("qwen-image"),
     .wide = FAMILY_IN("qwen-image-wide"),
     .released = "qwen-image",
     .adapters = {QWEN_IMAGE_ADAPTER("lightning-4steps-bf16"), QWEN_IMAGE_ADAPTER("peft"), QWEN_IMAGE_ADAPTER("kohya"),
                  QWEN_IMAGE_ADAPTER("peft-metadata"), QWEN_IMAGE_ADAPTER("peft-adapter-name"),
                  QWEN_IMAGE_ADAPTER("comfyui")},
     .text_encoder_count = 1},
    {.name = "qwen-image-edit",
     .family = "qwen-image-edit",
     .variant = "edit",
     .tiny = FAMILY_BESIDE("qwen-image", "model-edit"),
     .wide = FAMILY_BESIDE("qwen-image-wide", "model-edit"),
     .released = "qwen-image",
     .adapters = {QWEN_IMAGE_ADAPTER("lightning-4steps-bf16")},
     .text_encoder_count = 1,
     .min_references = 1,
     .max_references = 1,
     .reference_area = 64 * 64,
     .prompts_read_references = true},
    {.name = "qwen-image-edit-2509",
     .family = "qwen-image-edit-plus",
     .variant = "edit-2509",
     .tiny = FAMILY_BESIDE("qwen-image", "model-edit-2509"),
     .wide = FAMILY_BESIDE("qwen-image-wide", "model-edit-2509"),
     .adapters = {QWEN_IMAGE_ADAPTER("lightning-4steps-bf16")},
     .text_encoder_count = 1,
     .max_references = 3,
     .reference_area = 64 * 64,
     .prompts_read_references = true},
    {.name = "qwen-image-edit-2511",
     .family = "qwen-image-edit-plus",
     .variant = "edit-2511",
     .names_variant = true,
     .is_variant = true,
     .tiny = FAMILY_BESIDE("qwen-image", "model-edit-2509"),
     .wide = FAMILY_BESIDE("qwen-image-wide", "model-edit-2509"),
     .adapters = {QWEN_IMAGE_ADAPTER("lightning-4steps-bf16")},
     .text_encoder_count = 1,
     .max_references = 3,
     .reference_area = 64 * 64,
     .prompts_read_references = true},
    {.name = "qwen-image-2.1",
     .family = "qwen-image-2.1",
     .variant = "base",
     .tiny = FAMILY_IN("qwen-image-21"),
     .wide = FAMILY_IN("qwen-image-21-wide"),
     .released = "qwen-image-21",
     .adapters = {QWEN_IMAGE_21_ADAPTER("peft"), QWEN_IMAGE_21_ADAPTER("peft-metadata"),
                  QWEN_IMAGE_21_ADAPTER("peft-adapter-name"), QWEN_IMAGE_21_ADAPTER("comfyui"),
                  QWEN_IMAGE_21_ADAPTER("kohya")},
     .text_encoder_count = 1,
     .max_references = 10,
     .reference_area = 64 * 64,
     .side = FAMILY_LARGEST_SIDE,
     .prompts_read_references = true},
    {.name = "newbie",
     .family = "newbie-image",
     .variant = "exp0.1",
     .tiny = FAMILY_IN("newbie"),
     .wide = FAMILY_IN("newbie-wide"),
     .released = "newbie",
     .adapters = {FAMILY_FOLDER("newbie") "adapters/lora_peft", FAMILY_FOLDER("newbie") "adapters/lokr_low"},
     .text_encoder_count = 2},
    {.name = "flux2-klein",
     .family = "flux2-klein",
     .variant = "distilled",
     .tiny = FAMILY_IN("flux2-klein"),
     .wide = FAMILY_IN("flux2-klein-wide"),
     .released = "klein",
     .adapters = {KLEIN_ADAPTER("lora_peft"), KLEIN_ADAPTER("lora_kohya"), KLEIN_ADAPTER("lora_original"),
                  KLEIN_ADAPTER("lora_comfy"), KLEIN_ADAPTER("lora_expanded"), KLEIN_ADAPTER("lokr_original")},
     .text_encoder_count = 1,
     .max_references = 10,
     .ignores_guidance = true},
    {.name = "flux2-klein-base",
     .family = "flux2-klein",
     .variant = "base",
     .names_variant = true,
     .is_variant = true,
     .tiny = FAMILY_IN("flux2-klein"),
     .wide = FAMILY_IN("flux2-klein-wide"),
     .adapters = {KLEIN_ADAPTER("lora_peft")},
     .text_encoder_count = 1,
     .max_references = 10},
    {.name = "flux2-klein-kv",
     .family = "flux2-klein",
     .variant = "kv",
     .names_variant = true,
     .is_variant = true,
     .keeps_references = true,
     .tiny = FAMILY_IN("flux2-klein"),
     .wide = FAMILY_IN("flux2-klein-wide"),
     .adapters = {KLEIN_ADAPTER("lora_peft")},
     .text_encoder_count = 1,
     .max_references = 10,
     .ignores_guidance = true},
};
enum { FAMILY_COUNT = sizeof s_families / sizeof *s_families };

// The next row whose networks no row before it has: variants and edit models draw with those of others. `row` NULL: the
// first one. NULL: there is none left.
static inline const family_row* next_network(const family_row* row)
{
    row = row == NULL ? s_families : row + 1;
    while (row < s_families + FAMILY_COUNT && (row->is_variant || row->tiny.transformer_path != NULL)) row++;
    return row < s_families + FAMILY_COUNT ? row : NULL;
}
#endif
