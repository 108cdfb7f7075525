// A cuBLASLt in the fake driver's own library, for what src/cuda/cublaslt.c uses of it: products of bfloat16 by
// columns, A transposed. Numbers are those of cublasLt.h, which need not be there.
#include "fake_state.h"
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
enum { FLOAT = 0, BF16 = 14, COMPUTE_FLOAT = 68 };

// the algorithms whose kernels are loaded
typedef struct lt {
    fake_object object;
    uint64_t used[512];
    int used_count;
} lt;
typedef struct desc {
    fake_object object;
    int transposes_a;
    unsigned epilogue;
    const void* bias;
} desc;
typedef struct layout {
    fake_object object;
    uint64_t rows, cols;
    int64_t leading;
} layout;
typedef struct preference {
    fake_object object;
    uint64_t workspace;
    unsigned reductions, alignments[4];
} preference;
typedef struct algo {
    uint64_t data[8];
} algo;
typedef struct result {
    algo chosen;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} result;

static int leave(int status)
{
    fake_unlock();
    return status;
}
#define ENTER(name)                                                                                                    \
    do {                                                                                                               \
        const CUresult refused_ = fake_enter_library(name);                                                            \
        if (refused_ != CUDA_SUCCESS) return leave((int)refused_);                                                     \
    } while (0)
#define NEED(condition, ...)                                                                                           \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fake_violation(__VA_ARGS__);                                                                               \
            return leave(INVALID_VALUE);                                                                               \
        }                                                                                                              \
    } while (0)
#define NEED_ALIVE(handle, name)                                                                                       \
    NEED(fake_is_alive(handle, FAKE_CUBLASLT), "%s: an object that is dead or no object", name)

int cublasLtCreate(void** out);
int cublasLtDestroy(void* handle);
int cublasLtMatmulDescCreate(void** out, int compute, int scale);
int cublasLtMatmulDescSetAttribute(void* handle, int attribute, const void* value, size_t bytes);
int cublasLtMatmulDescDestroy(void* handle);
int cublasLtMatrixLayoutCreate(void** out, int type, uint64_t rows, uint64_t cols, int64_t leading);
int cublasLtMatrixLayoutDestroy(void* handle);
int cublasLtMatmulPreferenceCreate(void** out);
int cublasLtMatmulPreferenceSetAttribute(void* handle, int attribute, const void* value, size_t bytes);
int cublasLtMatmulPreferenceDestroy(void* handle);
int cublasLtMatmulAlgoGetHeuristic(void* handle, void* op, void* a, void* b, void* c, void* d, void* wishes, int wanted,
                                   result* results, int* count);
int cublasLtMatmul(void* handle, void* op, const void* alpha, const void* a, void* a_layout, const void* b,
                   void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
                   const algo* chosen, void* workspace, size_t workspace_bytes, CUstream stream);

static int destroy(void* handle, const char* name)
{
    NEED_ALIVE(handle, name);
    fake_unmake(handle);
    return leave(SUCCESS);
}

int cublasLtCreate(void** out)
{
    ENTER("cublasLtCreate");
    *out = fake_make(sizeof(lt), FAKE_CUBLASLT);
    return leave(SUCCESS);
}
int cublasLtDestroy(void* handle)
{
    ENTER("cublasLtDestroy");
    return destroy(handle, "cublasLtDestroy");
}

int cublasLtMatmulDescCreate(void** out, int compute, int scale)
{
    ENTER("cublasLtMatmulDescCreate");
    NEED(compute == COMPUTE_FLOAT && scale == FLOAT, "cublasLtMatmulDescCreate: only float is known here");
    desc* op = fake_make(sizeof *op, FAKE_CUBLASLT);
    op->epilogue = 1;
    *out = op;
    return leave(SUCCESS);
}
int cublasLtMatmulDescSetAttribute(void* handle, int attribute, const void* value, size_t bytes)
{
    ENTER("cublasLtMatmulDescSetAttribute");
    NEED_ALIVE(handle, "cublasLtMatmulDescSetAttribute");
    desc* op = handle;
    NEED((attribute == 3 && bytes == 4) || (attribute == 7 && bytes == 4) || (attribute == 8 && bytes == sizeof(void*)),
         "cublasLtMatmulDescSetAttribute: %d of %zu bytes", attribute, bytes);
    if (attribute == 3) memcpy(&op->transposes_a, value, bytes);
    if (attribute == 7) memcpy(&op->epilogue, value, bytes);
    if (attribute == 8) memcpy(&op->bias, value, bytes);
    return leave(SUCCESS);
}
int cublasLtMatmulDescDestroy(void* handle)
{
    ENTER("cublasLtMatmulDescDestroy");
    return destroy(handle, "cublasLtMatmulDescDestroy");
}

int cublasLtMatrixLayoutCreate(void** out, int type, uint64_t rows, uint64_t cols, int64_t leading)
{
    ENTER("cublasLtMatrixLayoutCreate");
    NEED(type == BF16 && rows > 0 && cols > 0 && leading >= (int64_t)rows,
         "cublasLtMatrixLayoutCreate: %d, %d x %d by %d", type, (int)rows, (int)cols, (int)leading);
    layout* of = fake_make(sizeof *of, FAKE_CUBLASLT);
    of->rows = rows, of->cols = cols, of->leading = leading;
    *out = of;
    return leave(SUCCESS);
}
int cublasLtMatrixLayoutDestroy(void* handle)
{
    ENTER("cublasLtMatrixLayoutDestroy");
    return destroy(handle, "cublasLtMatrixLayoutDestroy");
}

int cublasLtMatmulPreferenceCreate(void** out)
{
    ENTER("cublasLtMatmulPreferenceCreate");
    preference* wishes = fake_make(sizeof *wishes, FAKE_CUBLASLT);
    *out = wishes;
    return leave(SUCCESS);
}
int cublasLtMatmulPreferenceSetAttribute(void* handle, int attribute, const void* value, size_t bytes)
{
    ENTER("cublasLtMatmulPreferenceSetAttribute");
    NEED_ALIVE(handle, "cublasLtMatmulPreferenceSetAttribute");
    preference* wishes = handle;
    NEED((attribute == 1 && bytes == 8) || ((attribute == 3 || (attribute >= 5 && attribute <= 8)) && bytes == 4),
         "cublasLtMatmulPreferenceSetAttribute: %d of %zu bytes", attribute, bytes);
    if (attribute == 1) memcpy(&wishes->workspace, value, bytes);
    if (attribute == 3) memcpy(&wishes->reductions, value, bytes);
    if (attribute >= 5) memcpy(&wishes->alignments[attribute - 5], value, bytes);
    return leave(SUCCESS);
}
int cublasLtMatmulPreferenceDestroy(void* handle)
{
    ENTER("cublasLtMatmulPreferenceDestroy");
    return destroy(handle, "cublasLtMatmulPreferenceDestroy");
}

// A number for what a product is: an algorithm of one is not one of another.
static uint64_t number_of(const desc* op, const layout* a, const layout* b, const layout* d)
{
    const uint64_t parts[] = {op->epilogue, (uint64_t)op->transposes_a, a->rows, a->cols, (uint64_t)a->leading, b->rows,
                              b->cols,      (uint64_t)b->leading,       d->rows, d->cols, (uint64_t)d->leading};
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) hash = (hash ^ parts[i]) * 1099511628211u;
    return hash;
}

int cublasLtMatmulAlgoGetHeuristic(void* handle, void* op, void* a, void* b, void* c, void* d, void* wishes, int wanted,
                                   result* results, int* count)
{
    ENTER("cublasLtMatmulAlgoGetHeuristic");
    void* const all[] = {handle, op, a, b, c, d, wishes};
    for (int i = 0; i < 7; i++) NEED_ALIVE(all[i], "cublasLtMatmulAlgoGetHeuristic");
    const preference* p = wishes;
    NEED(wanted >= 1 && p->workspace > 0 && p->reductions == 2,
         "cublasLtMatmulAlgoGetHeuristic: what is allowed was not said");
    for (int i = 0; i < 4; i++)
        NEED(p->alignments[i] == 16, "cublasLtMatmulAlgoGetHeuristic: alignments were not said");
    const desc* of = op;
    NEED(of->epilogue != 4 || of->bias != NULL, "cublasLtMatmulAlgoGetHeuristic: a bias without an address");
    *count = 1;
    memset(results, 0, sizeof *results);
    results->chosen.data[0] = number_of(of, a, b, d);
    results->workspace = 4096;
    return leave(SUCCESS);
}

static float float_of(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
static uint16_t half_of(float value) // nearest even; no NaN here
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

void fake_multiply(const fake_product* p)
{
    for (int col = 0; col < p->cols; col++) {
        for (int row = 0; row < p->rows; row++) {
            float sum = 0.0f;
            for (int i = 0; i < p->depth; i++)
                sum += float_of(p->a[row * p->lda + i]) * float_of(p->b[col * p->ldb + i]);
            if (p->bias != NULL) sum += float_of(p->bias[row]);
            if (p->beta != 0.0f) sum += p->beta * float_of(p->c[col * p->ldc + row]);
            p->d[col * p->ldd + row] = half_of(sum);
        }
    }
}

static bool is_there(const void* memory, const layout* of)
{
    return fake_find_block(memory, ((size_t)(of->cols - 1) * (size_t)of->leading + (size_t)of->rows) * 2) != NULL
        && (uintptr_t)memory % 16 == 0;
}

int cublasLtMatmul(void* handle, void* op, const void* alpha, const void* a, void* a_layout, const void* b,
                   void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
                   const algo* chosen, void* workspace, size_t workspace_bytes, CUstream stream_handle)
{
    ENTER("cublasLtMatmul");
    if (fake.is_lost) return leave(EXECUTION_FAILED);
    void* const all[] = {handle, op, a_layout, b_layout, c_layout, d_layout};
    for (int i = 0; i < 6; i++) NEED_ALIVE(all[i], "cublasLtMatmul");
    NEED(stream_handle != NULL && fake_is_alive(stream_handle, FAKE_STREAM),
         "cublasLtMatmul: the NULL stream, or none");
    const desc* of = op;
    const layout *la = a_layout, *lb = b_layout, *lc = c_layout, *ld = d_layout;
    NEED(of->transposes_a == 1 && la->rows == lb->rows && la->cols == ld->rows && lb->cols == ld->cols
             && lc->rows == ld->rows && lc->cols == ld->cols,
         "cublasLtMatmul: sizes do not match");
    NEED(is_there(a, la) && is_there(b, lb) && is_there(c, lc) && is_there(d, ld),
         "cublasLtMatmul: not all of it is live memory, or it is not aligned");
    NEED(workspace_bytes >= 4096 && (uintptr_t)workspace % 256 == 0
             && fake_find_block(workspace, workspace_bytes) != NULL,
         "cublasLtMatmul: no such workspace");
    NEED(chosen->data[0] == number_of(of, la, lb, ld), "cublasLtMatmul: the algorithm of another product");
    NEED(of->epilogue == 1 || (of->epilogue == 4 && fake_find_block(of->bias, 2 * (size_t)ld->rows) != NULL),
         "cublasLtMatmul: epilogue %u, or its bias is not there", of->epilogue);
    float one, factor;
    memcpy(&one, alpha, sizeof one);
    memcpy(&factor, beta, sizeof factor);
    NEED(one == 1.0f && (factor == 0.0f || factor == 1.0f), "cublasLtMatmul: factors");

    fake_stream* stream = (fake_stream*)stream_handle;
    lt* self = handle;
    bool is_loaded = false;
    for (int i = 0; i < self->used_count && !is_loaded; i++) is_loaded = self->used[i] == chosen->data[0];
    if (!is_loaded && fake_captures_strictly(stream)) {
        fake_violation("cublasLtMatmul: first used in a capture");
        return leave(EXECUTION_FAILED);
    }
    if (!is_loaded && self->used_count < 512) self->used[self->used_count++] = chosen->data[0];

    fake_node* node = fake_new_node(FAKE_PRODUCT);
    const fake_product product = {a,
                                  b,
                                  c,
                                  of->epilogue == 4 ? of->bias : NULL,
                                  d,
                                  la->leading,
                                  lb->leading,
                                  lc->leading,
                                  ld->leading,
                                  (int)ld->rows,
                                  (int)ld->cols,
                                  (int)la->rows,
                                  factor};
    node->data_bytes = sizeof product;
    node->data = malloc(sizeof product);
    if (node->data == NULL) abort();
    memcpy(node->data, &product, sizeof product);
    fake_submit(stream, node);
    return leave(SUCCESS);
}
