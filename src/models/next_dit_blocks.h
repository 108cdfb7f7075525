// The blocks of NextDiT and the rows that they work on, as the network itself (next_dit.c) and its control nets
// (next_dit_fun.c) write them.
#ifndef SUMI_MODELS_NEXT_DIT_BLOCKS_H
#define SUMI_MODELS_NEXT_DIT_BLOCKS_H
#include "models/next_dit.h"

#define SUMI_DIT_MAX_ENTRIES (2 * SUMI_MAX_ITEMS) // with guidance each item has two

// ---- Weights --------------------------------------------------------------------------------------------------------

// The alias number `which` of a tensor's canonical name (Z-Image's in diffusers), in files of the authors and in those
// of diffusers' Lumina 2. At most one replacement of each table is made.
sumi_alias_function sumi_dit_alias;

// Binds a block with the sizes of the model. table_index: of its modulation among the tables; -1: it is not modulated.
void sumi_dit_bind_block(const sumi_next_dit* model, sumi_binder* binder, sumi_next_dit_block* block,
                         const char* prefix, int32_t table_index);

// ---- Rows -----------------------------------------------------------------------------------------------------------

// The rows of a caption or an image, pads included.
int32_t sumi_dit_padded(const sumi_next_dit* model, int32_t tokens);

// Where the rows of a list of entries are in x: first image_rows for each entry, then the captions. Captions with their
// own condition come in reverse order: the last image and the first caption then have one prompt, and so one band of
// modulation where the two meet.
typedef struct sumi_dit_layout {
    const sumi_evaluation_list* list;
    int32_t height, width, tokens; // of an image, in patches
    int32_t image_rows;            // tokens and pads of an image
    int32_t caption_begin[SUMI_DIT_MAX_ENTRIES];
    int32_t rows; // in all
} sumi_dit_layout;
sumi_dit_layout sumi_dit_lay_out(const sumi_next_dit* model, const sumi_denoising* job,
                                 const sumi_evaluation_list* list);

// Rows with the bands in which their modulation differs. No bands: all rows have the same modulation, or none.
typedef struct sumi_dit_rows {
    int32_t count;
    const sumi_row_band* bands;
    int32_t band_count;
} sumi_dit_rows;

// One evaluation of a list of entries, while it is written. The members point to each other, so it is not copied.
typedef struct sumi_dit_evaluation {
    sumi_dit_layout layout;
    int32_t image_rows; // of all entries
    // The rows of the images in the stream, for control nets, which share one view: a plan lets no two views of the same
    // rows be written in turn. None without nets.
    sumi_value images_of_stream;
    // Attention among the rows of each image; among all rows of each entry; of the image's rows to all of the entry's.
    sumi_attention images, joint, last;
    sumi_dit_rows modulated_images, modulated_all;
    sumi_value rope;
    sumi_sequence sequences[3][SUMI_DIT_MAX_ENTRIES];
    sumi_row_band bands[2][2 * SUMI_DIT_MAX_ENTRIES];
} sumi_dit_evaluation;
void sumi_dit_begin_evaluation(const sumi_next_dit* model, const sumi_denoising* job, const sumi_evaluation_list* list,
                               sumi_dit_evaluation* out);

// ---- What is written ------------------------------------------------------------------------------------------------

// Latents that become rows: 2x2 patches of each picture through an embedder, at the beginning of x, each followed by the
// model's pad token in its pad rows.
typedef struct sumi_dit_embedding {
    const char* label;
    sumi_value latents; // [pictures of `channels` planes, h * w]
    int32_t channels;
    const int32_t* pictures; // which of them, in the order of x
    int32_t count;
    const sumi_weight *weight, *bias;
} sumi_dit_embedding;
void sumi_dit_embed(const sumi_next_dit* model, sumi_plan* plan, const sumi_dit_layout* layout,
                    const sumi_dit_embedding* embedding, sumi_value x);

// The table of a block's modulation, for every row of the condition (sumi_next_dit_state.condition).
sumi_value sumi_dit_write_table(const sumi_next_dit* model, sumi_plan* plan, const sumi_next_dit_block* block,
                                sumi_value condition);

// What a block works on. Attention reads the first in.count rows of x; only the first out.count rows are updated.
typedef struct sumi_dit_block_rows {
    sumi_value x;
    sumi_dit_rows in, out;
    const sumi_attention* attention;
    sumi_value rope, modulation;
} sumi_dit_block_rows;
// Writes one block on x, in place.
void sumi_dit_write_block(const sumi_next_dit* model, sumi_plan* plan, const sumi_next_dit_block* block,
                          const sumi_dit_block_rows* rows);

// A block in three parts, for a network that writes something between them. The last sum of a block and the first norm
// of the next one are one op on a GPU if they follow each other in the plan.
//   normed = first_norm(x);   x += attention(normed);   branch = feed_forward(x);   x += norm(branch)
sumi_value sumi_dit_write_first_norm(const sumi_next_dit* model, sumi_plan* plan, const sumi_next_dit_block* block,
                                     const sumi_dit_block_rows* rows);
sumi_value sumi_dit_write_branches(const sumi_next_dit* model, sumi_plan* plan, const sumi_next_dit_block* block,
                                   const sumi_dit_block_rows* rows, sumi_value normed);
void sumi_dit_write_last_sum(const sumi_next_dit* model, sumi_plan* plan, const sumi_next_dit_block* block,
                             const sumi_dit_block_rows* rows, sumi_value branch);
sumi_attention sumi_dit_attention(const sumi_next_dit* model, const sumi_sequence* sequences, int32_t count);
#endif
