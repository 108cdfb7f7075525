// The parts of a transformer with two streams, as the network itself (two_stream.c) and its control nets
// (two_stream_nets.c) write them.
#ifndef SUMI_MODELS_TWO_STREAM_BLOCKS_H
#define SUMI_MODELS_TWO_STREAM_BLOCKS_H
#include "models/joint_rows.h"
#include "models/two_stream.h"

#define SUMI_TWO_STREAM_EPS 1e-6f // epsilon of every norm, a constant of the reference and not of its config

// ---- Weights --------------------------------------------------------------------------------------------------------

// Sets all sizes. They follow from the shapes of the tensors, and the config must agree with them.
void sumi_two_stream_bind_sizes(sumi_two_stream* model, sumi_binder* binder, const sumi_module_config* config);
// Binds the linear layers through which latents, text and time come in.
void sumi_two_stream_bind_inputs(sumi_two_stream* model, sumi_binder* binder);
// Binds model->block_count blocks, whose names begin with "prefix.0", "prefix.1" and so on. The text side of the last
// one may lack the weights after attention.
void sumi_two_stream_bind_blocks(sumi_two_stream* model, sumi_binder* binder, const char* prefix);

// ---- What all evaluations share -------------------------------------------------------------------------------------

typedef struct sumi_two_stream_state {
    sumi_value captions; // [all prompts, dim], the input of the first block
    int32_t caption_begin[SUMI_MAX_PROMPTS];
    sumi_value condition; // SiLU of the embedded times [evaluations, dim]; with has_zero followed by a row for time 0
    bool has_zero;
    bool has_tables, has_float_tables;
    // has_tables: the output of the modulation layers for every row of the condition. has_float_tables: as floats
    // that ops can read.
    sumi_value tables[SUMI_TWO_STREAM_MAX_BLOCKS][2], final_table;
    // With has_zero: [1, 6 * dim], finished.
    sumi_value zero[SUMI_TWO_STREAM_MAX_BLOCKS];
    sumi_value rope[2]; // for each slot, for the rows of the joint matrix
} sumi_two_stream_state;

void sumi_two_stream_write_captions(const sumi_two_stream* model, sumi_plan* plan, const sumi_denoising* job,
                                    sumi_two_stream_state* state);
void sumi_two_stream_write_condition(const sumi_two_stream* model, sumi_plan* plan, const sumi_denoising* job,
                                     sumi_two_stream_state* state);
// The tables of the blocks, from the condition, and whether there are any.
void sumi_two_stream_write_tables(const sumi_two_stream* model, sumi_plan* plan, const sumi_denoising* job,
                                  sumi_two_stream_state* state);
// Rows of the condition, from layer.x_row on, through a modulation layer, as a table of this element.
sumi_value sumi_two_stream_write_layer(sumi_plan* plan, sumi_element element, sumi_plan_linear_args layer);

// The position of the first text token, the same on all axes: after the largest position of all pictures.
int32_t sumi_two_stream_text_position(const sumi_denoising* job);
// The rotary table for the joint rows of a list of evaluations.
sumi_value sumi_two_stream_write_rope(const sumi_two_stream* model, sumi_plan* plan, const sumi_denoising* job,
                                      const sumi_evaluation_list* list, int32_t text_position);

// ---- One evaluation -------------------------------------------------------------------------------------------------

// Rows that are neighbours both in their stream and in the joint matrix.
typedef struct sumi_two_stream_run {
    int32_t row, joint_row, rows;
} sumi_two_stream_run;

typedef struct sumi_two_stream_names sumi_two_stream_names; // of the ops of a stream

// Rows that go through the same weights with the same modulation.
typedef struct sumi_two_stream_rows {
    const sumi_two_stream_names* names;
    sumi_two_stream_side side;
    bool is_at_zero; // modulated by time 0
    sumi_value x;    // [rows, dim]
    int32_t rows;
    sumi_two_stream_run runs[SUMI_MAX_JOINT_EVALUATIONS];
    int32_t run_count;
    sumi_value views[SUMI_MAX_JOINT_EVALUATIONS]; // views of x: the rows of each run
    // Number of leading rows of x, the targets: the last block updates only these. 0: none.
    int32_t last_block_rows;
    sumi_value last_view;
} sumi_two_stream_rows;

typedef struct sumi_two_stream_evaluation {
    const sumi_two_stream* model;
    sumi_plan* plan;
    const sumi_denoising* job;
    const sumi_two_stream_state* state;
    const sumi_evaluation_list* list;
    sumi_joint_rows layout;
    sumi_value latents;              // of the job, [items * channels, h * w]
    sumi_value rope;                 // for the joint rows
    sumi_value condition;            // without tables: the row of this evaluation
    sumi_two_stream_rows streams[3]; // image or targets, text, references
    int32_t stream_count;
    sumi_sequence sequences[SUMI_MAX_JOINT_EVALUATIONS];
} sumi_two_stream_evaluation;

// Makes the streams, without values, from the other members. With has_zero of the state references are a stream, which
// is modulated by time 0; otherwise they follow the targets in the image's.
void sumi_two_stream_begin(sumi_two_stream_evaluation* e);
// The rows of the targets, a view of the image's stream.
sumi_value sumi_two_stream_targets(const sumi_two_stream_evaluation* e);
// Copies the captions of the list's prompts to the text stream.
void sumi_two_stream_write_texts(sumi_two_stream_evaluation* e, const sumi_two_stream_state* captions);
// Writes one block on the streams, in place. is_last: nothing reads any rows but the targets.
void sumi_two_stream_write_block(sumi_two_stream_evaluation* e, int32_t index, bool is_last);

// The modulation of this evaluation: its row of a finished table, or a row of floats that is computed here, from its
// table or from the condition.
sumi_step_row sumi_two_stream_write_modulation(const sumi_two_stream_evaluation* e, sumi_plan_modulation_args* args,
                                               const sumi_weight* weight, const sumi_weight* bias);
sumi_step_row sumi_two_stream_vector(sumi_step_row row, int32_t vector, int32_t vector_cols);
#endif
