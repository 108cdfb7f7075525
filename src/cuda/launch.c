// Functions that launchers use (launch.h).
#include "cuda/launch.h"
#include "base/assert.h"
#include "cuda/arrange.h"
#include "cuda/driver.h"
#include "cuda/modules.h"
#include "cuda/state.h"
#include "device/choose_forms.h"
#include "device/form.h"
#include "device/residency.h"
#include "device/streaming.h"
#include "device/weight_forms.h"

static const sumi_value_info* info_of(const sumi_cuda_run* run, sumi_value value)
{
    return sumi_plan_info(run->plan, value);
}

CUdeviceptr sumi_cuda_value(const sumi_cuda_run* run, sumi_value value)
{
    return value.id == 0 ? 0 : run->arena + info_of(run, value)->offset;
}
int32_t sumi_cuda_cols(const sumi_cuda_run* run, sumi_value value) { return info_of(run, value)->cols; }
int32_t sumi_cuda_rows(const sumi_cuda_run* run, sumi_value value) { return info_of(run, value)->rows; }
int32_t sumi_cuda_pitch(const sumi_cuda_run* run, sumi_value value) { return info_of(run, value)->pitch; }
sumi_element sumi_cuda_element(const sumi_cuda_run* run, sumi_value value) { return info_of(run, value)->element; }

static bool has_mark(const sumi_cuda_run* run, sumi_value value, uint8_t mark)
{
    return value.id > 0 && (info_of(run, value)->marks & mark) != 0;
}
sumi_cuda_operands sumi_cuda_operands_of(const sumi_cuda_run* run, sumi_value value)
{
    return has_mark(run, value, SUMI_DEVICE_VALUE_QUANTISED)
             ? sumi_device_quantised_operands(run->plan, sumi_device_writer(run->plan, value))
             : SUMI_CUDA_BF16;
}
bool sumi_cuda_is_gated(const sumi_cuda_run* run, sumi_value value)
{
    return has_mark(run, value, SUMI_DEVICE_VALUE_GATED);
}
bool sumi_cuda_is_balanced(const sumi_cuda_run* run, sumi_value value)
{
    return has_mark(run, value, SUMI_DEVICE_VALUE_BALANCED);
}

bool sumi_cuda_is_qk_e4m3(const sumi_cuda_run* run, sumi_value value)
{
    return has_mark(run, value, SUMI_CUDA_VALUE_QK_E4M3);
}
bool sumi_cuda_is_kept_e4m3(const sumi_cuda_run* run, sumi_value value)
{
    return has_mark(run, value, SUMI_CUDA_VALUE_KEPT_E4M3);
}

CUdeviceptr sumi_cuda_quantised_scales(const sumi_cuda_run* run, sumi_value value)
{
    const sumi_value_info* info = info_of(run, value);
    const int32_t pitch = sumi_device_quantised_pitch(sumi_cuda_operands_of(run, value), info->cols);
    return sumi_cuda_value(run, value) + ((uint64_t)info->rows * (uint64_t)pitch + 15) / 16 * 16;
}

// ---- Weights --------------------------------------------------------------------------------------------------------

sumi_device_form sumi_cuda_weight_form(const sumi_cuda_run* run, const sumi_weight* weight)
{
    const sumi_weight* op_weight = NULL;
    sumi_device_form form = SUMI_DEVICE_FORM_VECTOR;
    for (int32_t i = 0; sumi_device_op_weight(run->plan, run->op_index, i, &op_weight, &form); i++) {
        if (op_weight == weight) return form;
    }
    return SUMI_DEVICE_FORM_VECTOR;
}

sumi_device_weight sumi_cuda_find_weight(const sumi_cuda_run* run, const sumi_weight* weight)
{
    const sumi_device_resident* resident =
        weight != NULL ? sumi_device_weights_find(&run->cuda->stock.weights, weight, sumi_cuda_weight_form(run, weight))
                       : NULL;
    sumi_device_weight streamed;
    if (resident != NULL
        && sumi_device_streaming_find_weight(&run->cuda->stock, &run->cuda->current->held, run->op_index, resident,
                                             &streamed))
        return streamed;
    return resident != NULL ? resident->on_device : (sumi_device_weight){.data = 0};
}

// ---- Launching ------------------------------------------------------------------------------------------------------

sumi_step sumi_cuda_step_of(const sumi_cuda_run* run, sumi_step_row row)
{
    if (row.table.id == 0) return (sumi_step){0, 0, 0, 0, 0};
    const sumi_value_info* info = info_of(run, row.table);
    return (sumi_step){run->arena + info->offset, row.per_step ? info->cols : 0, row.column,
                       info->element == SUMI_ELEMENT_FLOAT, 0};
}

sumi_cuda_range sumi_cuda_rows_of(const sumi_cuda_run* run)
{
    SUMI_ASSERT(run->range_begin >= 0 && run->range_begin <= run->range_end && run->range_end <= run->op->range_count);
    const sumi_op* op = run->op;
    const int64_t begin = (int64_t)run->range_begin * op->range_rows, end = (int64_t)run->range_end * op->range_rows;
    return (sumi_cuda_range){begin < op->rows ? (int32_t)begin : op->rows, end < op->rows ? (int32_t)end : op->rows};
}

void sumi_cuda_share(const sumi_cuda_run* run, int32_t units, int32_t* unit_begin, int32_t* unit_end)
{
    SUMI_ASSERT(run->range_begin >= 0 && run->range_begin <= run->range_end && run->range_end <= run->op->range_count);
    SUMI_ASSERT(units >= 0);
    *unit_begin = (int32_t)((int64_t)units * run->range_begin / run->op->range_count);
    *unit_end = (int32_t)((int64_t)units * run->range_end / run->op->range_count);
}

sumi_result sumi_cuda_launch(const sumi_cuda_run* run, const char* kernel, sumi_cuda_grid grid, void** params)
{
    return sumi_cuda_launch_clusters(run, kernel, grid, 0, params);
}

sumi_result sumi_cuda_launch_clusters(const sumi_cuda_run* run, const char* kernel, sumi_cuda_grid grid,
                                      uint32_t cluster, void** params)
{
    SUMI_ASSERT(cluster == 0 || grid.x % cluster == 0);
    SUMI_ASSERT(grid.block >= 1 && grid.block <= 1024 && params != NULL);
    SUMI_ASSERT(grid.y <= 65535 && grid.z <= 65535);
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return SUMI_OK; // the slice's share has no unit
    CUfunction function = NULL;
    SUMI_TRY(sumi_cuda_kernel(run->modules, kernel, grid.shared_bytes, &function, run->error));
    const sumi_cuda_driver* driver = &run->device->driver;
    CUresult result;
    if (run->cuda->is_dry_run) {
        result = CUDA_SUCCESS; // the kernel is loaded, and the slice can be captured
    } else if (cluster != 0) {
        if (driver->cuLaunchKernelEx == NULL)
            return sumi_fail(
                run->error, SUMI_DRIVER_TOO_OLD,
                "the NVIDIA driver does not support thread block clusters: install one for CUDA 12.0 or newer");
        CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                       .value.clusterDim = {cluster, 1, 1}};
        const CUlaunchConfig config = {.gridDimX = grid.x,
                                       .gridDimY = grid.y,
                                       .gridDimZ = grid.z,
                                       .blockDimX = grid.block,
                                       .blockDimY = 1,
                                       .blockDimZ = 1,
                                       .sharedMemBytes = grid.shared_bytes,
                                       .hStream = run->stream,
                                       .attrs = &attribute,
                                       .numAttrs = 1};
        result = driver->cuLaunchKernelEx(&config, function, params, NULL);
    } else {
        result = driver->cuLaunchKernel(function, grid.x, grid.y, grid.z, grid.block, 1, 1, grid.shared_bytes,
                                        run->stream, params, NULL);
    }
    return result == CUDA_SUCCESS ? SUMI_OK : sumi_cuda_failure(driver, result, kernel, run->error);
}

sumi_result sumi_cuda_tensor_map(const sumi_cuda_run* run, const sumi_cuda_tensor* tensor, CUtensorMap* out_map)
{
    const uint32_t rank = tensor->rank;
    SUMI_ASSERT(rank >= 2 && rank <= 5);
    SUMI_ASSERT(tensor->address % 16 == 0); // required by TMA, like the multiples and the limit of the box
    const sumi_cuda_driver* driver = &run->device->driver;
    if (driver->cuTensorMapEncodeTiled == NULL)
        return sumi_fail(run->error, SUMI_DRIVER_TOO_OLD,
                         "the NVIDIA driver does not support tensor maps: install one for CUDA 12.0 or newer");
    cuuint64_t dims[5], strides[5];
    cuuint32_t box[5], ones[5] = {1, 1, 1, 1, 1};
    for (uint32_t i = 0; i < rank && i < 5; i++) {
        dims[i] = tensor->dims[i];
        box[i] = tensor->box[i];
        SUMI_ASSERT(dims[i] >= 1 && box[i] >= 1 && box[i] <= 256);
        if (i + 1 < rank) strides[i] = tensor->strides[i];
        SUMI_ASSERT(i + 1 >= rank || strides[i] % 16 == 0);
    }
    CUresult result =
        driver->cuTensorMapEncodeTiled(out_map, tensor->type, rank, (void*)(uintptr_t)tensor->address, dims, strides,
                                       box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, tensor->swizzle,
                                       CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS ? SUMI_OK : sumi_cuda_failure(driver, result, "encoding a tensor map", run->error);
}
