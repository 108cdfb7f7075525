// The ops: the verbs of image diffusion, about 25 of them. One line here, a CPU version (src/cpu), a CUDA version (src/cuda), a test against golden numbers.
//
// Conventions for every op
//   value      a matrix [rows, cols], row-major, float32 on the CPU backend, bfloat16 or float32 on a GPU. A picture is rows = height * width, cols = channels (NHWC).
//              A latent is one row per channel plane: [items * channels, height * width] (NCHW, as PyTorch's noise is laid out), always float32.
//   parts      an op's work is cut into `part_count` independent parts (ranges of rows, heads x query blocks, groups ...). Running the parts in any order, split or together, on any
//              number of threads gives the same bits: no part sums across parts. Slices are ranges of parts.
//   step       ops inside a repeated section read per-step numbers from tables at row `counter`, the section's iteration + its first counter.
#ifndef SUMI_PLAN_OPS_H
#define SUMI_PLAN_OPS_H
#include <stdbool.h>
#include <stdint.h>

typedef enum sumi_op_kind {
    SUMI_OP_EMBED_ROWS,      // y[r] = table[ids[r]] * scale
    SUMI_OP_FILL_ROWS,       // y[rows of the spans] = one row (learned pad tokens); in place
    SUMI_OP_COPY_ROWS,       // y[to .. ] = x[from .. ]; in place on y
    SUMI_OP_LINEAR,          // y = act(x W^T + b), or y += scale * (x W^T), or y = residual + gate * (x W^T + b)
    SUMI_OP_ACTIVATE,        // y = act(x)
    SUMI_OP_GATED,           // y[:, j] = act(x[:, j]) * x[:, cols + j]   (SwiGLU, GeGLU)
    SUMI_OP_NORM_MODULATE,   // y = norm(x) * w * scale + shift           (RMS or layer norm; w, scale, shift optional)
    SUMI_OP_NORM_GATE_ADD,   // x += gate * (rms(b) * w)                  (Z-Image's sandwich); in place on x
    SUMI_OP_QK_NORM_ROPE,    // per head of q and k: RMS norm * w, then rotary; in place on the qkv matrix
    SUMI_OP_ATTENTION,       // softmax(q k^T * scale + mask) v per head, over sequences made of row spans
    SUMI_OP_ROPE_TABLE,      // positions [rows, axes] -> [rows, pairs * 2] (cos, sin)
    SUMI_OP_TIME_EMBED,      // times [n, 1] -> sinusoids [n, width]
    SUMI_OP_FINISH_MODULATION, // columns in quarters / halves: 1 + s, tanh(g); in place on a modulation table
    SUMI_OP_PATCHIFY,        // latents -> rows of 2x2 patches
    SUMI_OP_UNPATCHIFY,      // rows of 2x2 patches -> latents, times a sign
    SUMI_OP_ADD_NOISE,       // x = sigma * noise + (1 - sigma) * clean, sigma from a table row
    SUMI_OP_GUIDE,           // v = pos + s (pos - neg), norm limits
    SUMI_OP_SOLVE,           // one row of the solver table on x, y, h; inpainting blend
    SUMI_OP_PREVIEW,         // x0 = x - sigma v -> linear RGB at latent size
    SUMI_OP_PIXELS_IN,       // 8-bit RGB -> picture in [-1, 1]
    SUMI_OP_POSTERIOR,       // VAE moments -> latent (mean + exp(logvar / 2) * eps, then (z - shift) * scale)
    SUMI_OP_LATENT_IN,       // latent tile -> picture of latent channels, z / scale + shift
    SUMI_OP_CONV,            // 3x3 or 1x1, stride 1 or 2, upsample folded in, bias, residual
    SUMI_OP_GROUP_SUMS,      // mean and squared deviation per block of rows and group of channels
    SUMI_OP_GROUP_NORM,      // (x - mean) * rstd * w + b, SiLU optional
    SUMI_OP_TILE_BLEND,      // the seam of one decoded tile with its upper and left neighbours; in place
    SUMI_OP_TILE_PLACE,      // the kept part of a tile into the whole picture
    SUMI_OP_PIXELS_OUT,      // picture in [-1, 1] -> 8-bit, and counts what is not finite
    SUMI_OP_KIND_COUNT
} sumi_op_kind;
const char* sumi_op_name(sumi_op_kind kind); // "linear", for tables and messages

typedef enum sumi_activation { SUMI_ACT_NONE, SUMI_ACT_SILU, SUMI_ACT_GELU_TANH, SUMI_ACT_GELU_ERF, SUMI_ACT_QUICK_GELU, SUMI_ACT_TANH } sumi_activation;
typedef enum sumi_norm { SUMI_NORM_RMS, SUMI_NORM_LAYER } sumi_norm;
typedef enum sumi_rotary {
    SUMI_ROTARY_NONE,
    SUMI_ROTARY_INTERLEAVED, // pairs (2k, 2k + 1): the diffusion transformers
    SUMI_ROTARY_HALVES       // pairs (k, k + dim / 2): the Qwen and Gemma language models
} sumi_rotary;

typedef struct sumi_span { int32_t begin, count; } sumi_span; // a range of rows

// One attention sequence: up to two row ranges read as one (image rows, then caption rows). The queries are the first query_spans of them.
typedef struct sumi_sequence { sumi_span span[2]; int32_t span_count, query_spans; } sumi_sequence;
#endif
