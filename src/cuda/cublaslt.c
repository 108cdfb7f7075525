// cuBLASLt stores matrices by columns, sumi by rows. Its D[n, m] = (W[k, n])^T X[k, m], each by columns, is y[m, n] =
// x[m, k] w[n, k]^T by rows, and sumi's pitches are its leading dimensions.
#include "cuda/cublaslt.h"
#include "base/platform.h"
#include "cuda/arrange.h"
#include "cuda/device.h"
#include "cuda/driver.h"
#include "cuda/linear.h"
#include <string.h>

// ---- Its interface --------------------------------------------------------------------------------------------------
// Declared here, because cublasLt.h does not come with nvcc. Numbers, layouts and signatures are the same in CUDA 12
// and 13: docs.nvidia.com/cuda/cublas, "Using the cuBLASLt API".
typedef int lt_status;
// cublasStatus_t
enum { LT_SUCCESS = 0, LT_ALLOC_FAILED = 3, LT_INVALID_VALUE = 7, LT_ARCH_MISMATCH = 8, LT_NOT_SUPPORTED = 15 };
// cudaDataType_t: CUDA_R_32F, CUDA_R_16BF
enum { LT_TYPE_FLOAT = 0, LT_TYPE_BF16 = 14 };
// CUBLAS_COMPUTE_32F, CUBLAS_OP_T
enum { LT_COMPUTE_FLOAT = 68, LT_TRANSPOSED = 1 };
// cublasLtMatmulDescAttributes_t
enum { LT_DESC_TRANSA = 3, LT_DESC_EPILOGUE = 7, LT_DESC_BIAS_POINTER = 8 };
// cublasLtEpilogue_t
enum { LT_EPILOGUE_BIAS = 4 };
// cublasLtMatmulPreferenceAttributes_t; 6, 7: B, C
enum { LT_PREF_WORKSPACE = 1, LT_PREF_REDUCTIONS = 3, LT_PREF_ALIGNMENT_A = 5, LT_PREF_ALIGNMENT_D = 8 };
// CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
enum { LT_REDUCTION_IN_FLOAT = 2 };

typedef struct lt_algo {
    uint64_t data[8];
} lt_algo;
// cublasLtMatmulHeuristicResult_t
typedef struct lt_result {
    lt_algo algo;
    size_t workspace_bytes;
    lt_status state;
    float waves;
    int reserved[4];
} lt_result;
typedef void* lt_object;

// X(member, symbol, parameters)
#define LT_ENTRIES(X)                                                                                                  \
    X(create, cublasLtCreate, (lt_object * out_handle))                                                                \
    X(destroy, cublasLtDestroy, (lt_object handle))                                                                    \
    X(desc_create, cublasLtMatmulDescCreate, (lt_object * out_desc, int compute_type, int scale_type))                 \
    X(desc_set, cublasLtMatmulDescSetAttribute, (lt_object desc, int attribute, const void* value, size_t bytes))      \
    X(desc_destroy, cublasLtMatmulDescDestroy, (lt_object desc))                                                       \
    X(layout_create, cublasLtMatrixLayoutCreate,                                                                       \
      (lt_object * out_layout, int type, uint64_t rows, uint64_t cols, int64_t leading))                               \
    X(layout_destroy, cublasLtMatrixLayoutDestroy, (lt_object layout))                                                 \
    X(preference_create, cublasLtMatmulPreferenceCreate, (lt_object * out_preference))                                 \
    X(preference_set, cublasLtMatmulPreferenceSetAttribute,                                                            \
      (lt_object preference, int attribute, const void* value, size_t bytes))                                          \
    X(preference_destroy, cublasLtMatmulPreferenceDestroy, (lt_object preference))                                     \
    X(heuristics, cublasLtMatmulAlgoGetHeuristic,                                                                      \
      (lt_object handle, lt_object desc, lt_object a, lt_object b, lt_object c, lt_object d, lt_object preference,     \
       int max_results, lt_result* results, int* out_count))                                                           \
    X(matmul, cublasLtMatmul,                                                                                          \
      (lt_object handle, lt_object desc, const void* alpha, const void* a, lt_object a_layout, const void* b,          \
       lt_object b_layout, const void* beta, const void* c, lt_object c_layout, void* d, lt_object d_layout,           \
       const lt_algo* algo, void* workspace, size_t workspace_bytes, CUstream stream))

typedef struct lt_entries {
#define MEMBER(member, symbol, parameters) lt_status(*member) parameters;
    LT_ENTRIES(MEMBER)
#undef MEMBER
} lt_entries;

// ---- Opening --------------------------------------------------------------------------------------------------------
// What calls of one size need, made once.
typedef struct recipe {
    sumi_cuda_cublaslt_call of; // of its addresses only matters whether bias and residual are there
    lt_object desc, w, x, y;
    lt_algo algo;
    bool is_refused, is_loaded;
} recipe;

struct sumi_cuda_cublaslt {
    sumi_heap* heap;
    const sumi_cuda_device* device;
    lt_entries library;
    lt_object handle, preference;
    int32_t least_rows;
    recipe* recipes;
    size_t recipe_count, recipe_capacity;
};

// Rows: from LEAST_ROWS on with AUTO; more than GEMV_ROWS with ALWAYS, because up to there a product only reads its
// weights.
enum { LEAST_ROWS = 512, GEMV_ROWS = 16 };

#if defined(_WIN32)
#define LIBRARY_13 "cublasLt64_13.dll"
#define LIBRARY_12 "cublasLt64_12.dll"
#else
#define LIBRARY_13 "libcublasLt.so.13"
#define LIBRARY_12 "libcublasLt.so.12"
#endif

// Whether the tensor cores have instructions that the portable kernels do not use: capability 9 has warpgroup
// instructions, 10 and 11 have those with tensor memory. 8 and 12 have none.
static bool has_more(const sumi_cuda_device* device) { return device->capability >= 90 && device->capability < 120; }

static bool find_entries(lt_entries* entries, const char* name)
{
    void* library = sumi_library_find(name);
    if (library == NULL) return false;
    bool has_all = true;
    sumi_library_function* function;
#define FIND(member, symbol, parameters)                                                                               \
    function = sumi_library_symbol(library, #symbol);                                                                  \
    has_all = has_all && function != NULL;                                                                             \
    memcpy(&entries->member, &function, sizeof function);
    LT_ENTRIES(FIND)
#undef FIND
    return has_all;
}

static bool set_preference(const sumi_cuda_cublaslt* lt)
{
    const lt_entries* library = &lt->library;
    const uint64_t workspace = SUMI_CUDA_CUBLASLT_WORKSPACE;
    // the least alignment that any call has, so that addresses do not influence the choice
    const uint32_t reductions = LT_REDUCTION_IN_FLOAT, alignment = 16;
    bool is_set =
        library->preference_set(lt->preference, LT_PREF_WORKSPACE, &workspace, sizeof workspace) == LT_SUCCESS
        && library->preference_set(lt->preference, LT_PREF_REDUCTIONS, &reductions, sizeof reductions) == LT_SUCCESS;
    for (int operand = LT_PREF_ALIGNMENT_A; operand <= LT_PREF_ALIGNMENT_D; operand++)
        is_set = is_set && library->preference_set(lt->preference, operand, &alignment, sizeof alignment) == LT_SUCCESS;
    return is_set;
}

static bool start(sumi_cuda_cublaslt* lt)
{
    // The library of CUDA 13 does not start on an older driver.
    if (!(lt->device->driver.version >= 13000 && find_entries(&lt->library, LIBRARY_13))
        && !find_entries(&lt->library, LIBRARY_12))
        return false;
    if (lt->library.create(&lt->handle) != LT_SUCCESS) lt->handle = NULL;
    else if (lt->library.preference_create(&lt->preference) != LT_SUCCESS) lt->preference = NULL;
    return lt->preference != NULL && set_preference(lt);
}

sumi_result sumi_cuda_cublaslt_open(sumi_heap* heap, const sumi_cuda_device* device, sumi_cublaslt setting,
                                    sumi_cuda_cublaslt** out_lt, sumi_error* error)
{
    *out_lt = NULL;
    // On 9.0 sumi's kernels use all instructions.
    if (setting == SUMI_CUBLASLT_NEVER
        || (setting == SUMI_CUBLASLT_AUTO && (!has_more(device) || device->capability == 90)))
        return SUMI_OK;
    sumi_cuda_cublaslt* lt = sumi_alloc_zero(heap, sizeof *lt);
    if (lt == NULL) return sumi_out_of_memory(error, sizeof *lt, "cuBLASLt");
    lt->heap = heap;
    lt->device = device;
    lt->least_rows = setting == SUMI_CUBLASLT_AUTO ? LEAST_ROWS : GEMV_ROWS + 1;
    if (start(lt)) *out_lt = lt;
    else sumi_cuda_cublaslt_close(lt);
    return SUMI_OK;
}

static void free_recipe(const lt_entries* library, recipe* r)
{
    if (r->desc != NULL) library->desc_destroy(r->desc);
    lt_object layouts[3] = {r->w, r->x, r->y};
    for (int i = 0; i < 3; i++) {
        if (layouts[i] != NULL) library->layout_destroy(layouts[i]);
    }
    r->desc = r->w = r->x = r->y = NULL;
}

void sumi_cuda_cublaslt_close(sumi_cuda_cublaslt* lt)
{
    if (lt == NULL) return;
    for (size_t i = 0; i < lt->recipe_count; i++) free_recipe(&lt->library, &lt->recipes[i]);
    if (lt->preference != NULL) lt->library.preference_destroy(lt->preference);
    if (lt->handle != NULL) lt->library.destroy(lt->handle);
    sumi_free(lt->heap, lt->recipes);
    sumi_free(lt->heap, lt);
}

// ---- Choosing -------------------------------------------------------------------------------------------------------

bool sumi_cuda_cublaslt_supports(const sumi_cuda_cublaslt* lt, const sumi_cuda_shape* s)
{
    if (lt == NULL || s->operands != SUMI_CUDA_BF16 || !s->reads_aligned) return false;
    switch (s->epilogue) {
    case SUMI_CUDA_EPILOGUE_plain:
    case SUMI_CUDA_EPILOGUE_bias:
    case SUMI_CUDA_EPILOGUE_resid:
    case SUMI_CUDA_EPILOGUE_resid_bias: return true;
    case SUMI_CUDA_EPILOGUE_swiglu: return has_more(lt->device); // the gating is another launch, which must pay
    default: return false;
    }
}

bool sumi_cuda_cublaslt_is_preferred(const sumi_cuda_cublaslt* lt, const sumi_cuda_shape* s)
{
    return sumi_cuda_cublaslt_supports(lt, s) && s->m >= lt->least_rows;
}

// A unit is about half a millisecond of work at 1.5 GHz, because slices must not be longer than a frame allows. There
// are as few units as possible, of about equal size.
int32_t sumi_cuda_cublaslt_unit_rows(const sumi_cuda_device* device, const sumi_cuda_shape* s)
{
    const double flops = 0.7 * 750e3 * device->multiprocessors * sumi_cuda_flops_per_clock(device),
                 rows = flops / (2.0 * s->n * s->k);
    if (rows >= s->m) return s->m;
    const int32_t max_rows = rows < 512.0 ? 512 : (int32_t)rows, unit_count = (s->m + max_rows - 1) / max_rows,
                  unit_rows = (s->m + unit_count - 1) / unit_count;
    return (unit_rows + 255) / 256 * 256;
}

// ---- Calls ----------------------------------------------------------------------------------------------------------

static sumi_result failure(const sumi_cuda_cublaslt* lt, lt_status status, const sumi_cuda_cublaslt_call* call,
                           sumi_error* error)
{
    const sumi_cuda_driver* driver = &lt->device->driver;
    const CUresult state = driver->cuStreamQuery(lt->device->copy); // cuBLASLt has no status for a lost device
    if (state != CUDA_SUCCESS && state != CUDA_ERROR_NOT_READY)
        return sumi_cuda_failure(driver, state, "a product by cuBLASLt", error);
    if (status == LT_ALLOC_FAILED)
        return sumi_fail(
            error, SUMI_OUT_OF_DEVICE_MEMORY,
            "cuBLASLt has no memory for a product; free memory, or give cuda.cublaslt SUMI_CUBLASLT_NEVER");
    return sumi_fail(
        error, SUMI_INTERNAL,
        "cuBLASLt refuses a product of %d x %d x %d with status %d; give cuda.cublaslt SUMI_CUBLASLT_NEVER",
        (int)call->m, (int)call->n, (int)call->k, (int)status);
}

static recipe* find_recipe(const sumi_cuda_cublaslt* lt, const sumi_cuda_cublaslt_call* c)
{
    for (size_t i = 0; i < lt->recipe_count; i++) {
        const sumi_cuda_cublaslt_call* of = &lt->recipes[i].of;
        if (of->m == c->m && of->n == c->n && of->k == c->k && of->ldx == c->ldx && of->ldw == c->ldw
            && of->ldy == c->ldy && (of->bias != 0) == (c->bias != 0) && (of->residual != 0) == (c->residual != 0))
            return &lt->recipes[i];
    }
    return NULL;
}

static lt_status set_bias(const lt_entries* library, lt_object desc, CUdeviceptr bias)
{
    const void* pointer = (const void*)(uintptr_t)bias;
    return library->desc_set(desc, LT_DESC_BIAS_POINTER, &pointer, sizeof pointer);
}

static lt_status describe_product(const lt_entries* library, const sumi_cuda_cublaslt_call* c, recipe* r)
{
    const int32_t transposed = LT_TRANSPOSED;
    const uint32_t with_bias = LT_EPILOGUE_BIAS;
    lt_status status = library->desc_create(&r->desc, LT_COMPUTE_FLOAT, LT_TYPE_FLOAT);
    if (status == LT_SUCCESS) status = library->desc_set(r->desc, LT_DESC_TRANSA, &transposed, sizeof transposed);
    if (status == LT_SUCCESS && c->bias != 0)
        status = library->desc_set(r->desc, LT_DESC_EPILOGUE, &with_bias, sizeof with_bias);
    // the heuristics look at its alignment, and the launcher's bias is always aligned alike
    if (status == LT_SUCCESS && c->bias != 0) status = set_bias(library, r->desc, c->bias);
    if (status == LT_SUCCESS)
        status = library->layout_create(&r->w, LT_TYPE_BF16, (uint64_t)c->k, (uint64_t)c->n, c->ldw);
    if (status == LT_SUCCESS)
        status = library->layout_create(&r->x, LT_TYPE_BF16, (uint64_t)c->k, (uint64_t)c->m, c->ldx);
    if (status == LT_SUCCESS)
        status = library->layout_create(&r->y, LT_TYPE_BF16, (uint64_t)c->n, (uint64_t)c->m, c->ldy);
    return status;
}

// Whether the status means that this product is not supported, and not a failure that may pass.
static bool is_product_refused(lt_status status)
{
    return status == LT_NOT_SUPPORTED || status == LT_INVALID_VALUE || status == LT_ARCH_MISMATCH;
}

static lt_status find_algorithm(const sumi_cuda_cublaslt* lt, recipe* r)
{
    lt_result result = {.state = LT_NOT_SUPPORTED};
    int count = 0;
    const lt_status status =
        lt->library.heuristics(lt->handle, r->desc, r->w, r->x, r->y, r->y, lt->preference, 1, &result, &count);
    r->algo = result.algo;
    if (status != LT_SUCCESS) return status;
    return count == 0 || result.workspace_bytes > SUMI_CUDA_CUBLASLT_WORKSPACE ? LT_NOT_SUPPORTED : result.state;
}

static sumi_result make_recipe(sumi_cuda_cublaslt* lt, const sumi_cuda_cublaslt_call* call, recipe** out_recipe,
                               sumi_error* error)
{
    SUMI_TRY(sumi_grow(lt->heap, (void**)&lt->recipes, &lt->recipe_capacity, lt->recipe_count + 1, sizeof *lt->recipes,
                       error));
    recipe made = {.of = *call};
    lt_status status = describe_product(&lt->library, call, &made);
    if (status == LT_SUCCESS) status = find_algorithm(lt, &made);
    if (status != LT_SUCCESS) free_recipe(&lt->library, &made);
    if (status != LT_SUCCESS && !is_product_refused(status)) return failure(lt, status, call, error);
    made.is_refused = status != LT_SUCCESS;
    *out_recipe = &lt->recipes[lt->recipe_count++];
    **out_recipe = made;
    return SUMI_OK;
}

static lt_status multiply(const sumi_cuda_cublaslt* lt, const recipe* r, const sumi_cuda_cublaslt_call* c,
                          CUstream stream)
{
    const float alpha = 1.0f, beta = c->residual != 0 ? 1.0f : 0.0f;
    const CUdeviceptr add = c->residual != 0 ? c->residual : c->y;
    lt_status status = c->bias != 0 ? set_bias(&lt->library, r->desc, c->bias) : LT_SUCCESS;
    if (status == LT_SUCCESS)
        status = lt->library.matmul(lt->handle, r->desc, &alpha, (const void*)(uintptr_t)c->w, r->w,
                                    (const void*)(uintptr_t)c->x, r->x, &beta, (const void*)(uintptr_t)add, r->y,
                                    (void*)(uintptr_t)c->y, r->y, &r->algo, (void*)(uintptr_t)c->workspace,
                                    SUMI_CUDA_CUBLASLT_WORKSPACE, stream);
    return status;
}

// Tries again if the first capture was broken by the loading itself.
static lt_status load_algorithm(const sumi_cuda_cublaslt* lt, const recipe* r, const sumi_cuda_cublaslt_call* call,
                                CUstream stream)
{
    const sumi_cuda_driver* driver = &lt->device->driver;
    lt_status status = LT_NOT_SUPPORTED;
    for (int attempt = 0; attempt < 2 && status != LT_SUCCESS; attempt++) {
        // without graphs nothing needs to be loaded ahead
        if (driver->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) != CUDA_SUCCESS) return LT_SUCCESS;
        status = multiply(lt, r, call, stream);
        CUgraph graph = NULL;
        driver->cuStreamEndCapture(stream, &graph);
        if (graph != NULL) driver->cuGraphDestroy(graph);
    }
    return status;
}

sumi_result sumi_cuda_cublaslt_prepare(sumi_cuda_cublaslt* lt, const sumi_cuda_cublaslt_call* call, CUstream stream,
                                       bool* out_takes, sumi_error* error)
{
    *out_takes = false;
    recipe* r = find_recipe(lt, call);
    if (r == NULL) SUMI_TRY(make_recipe(lt, call, &r, error));
    if (stream != NULL && !r->is_loaded && !r->is_refused) {
        const lt_status status = load_algorithm(lt, r, call, stream);
        if (status != LT_SUCCESS && !is_product_refused(status)) return failure(lt, status, call, error);
        r->is_refused = status != LT_SUCCESS;
        r->is_loaded = true;
    }
    *out_takes = !r->is_refused;
    return SUMI_OK;
}

sumi_result sumi_cuda_cublaslt_launch(sumi_cuda_cublaslt* lt, const sumi_cuda_cublaslt_call* call, CUstream stream,
                                      sumi_error* error)
{
    const recipe* r = find_recipe(lt, call);
    const lt_status status = r != NULL && !r->is_refused ? multiply(lt, r, call, stream) : LT_NOT_SUPPORTED;
    return status == LT_SUCCESS ? SUMI_OK : failure(lt, status, call, error);
}
