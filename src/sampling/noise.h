// Gaussian noise with the bits of PyTorch: torch.randn on the CPU generator (MT19937 and the Box-Muller transform of
// the AVX2 build; float32, bit for bit) and on a CUDA generator (Philox4x32-10 and cuRAND's Box-Muller transform,
// within 1.2e-6). The algorithms are in tests/golden/common/rng/README.md.
#ifndef SUMI_SAMPLING_NOISE_H
#define SUMI_SAMPLING_NOISE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sumi_torch_cpu_generator {
    uint32_t state[624];
    int32_t next;    // words of state already used; 624: the next draw makes new words
    bool has_cached; // `cached` is the second value of a pair drawn by a call of fewer than 16 values
    double cached;
    // How many values are computed at once: 16 by AVX-512, 8 by AVX2, 1 by portable code, with the same bits. The seed
    // asks the CPU, once for all draws: on a virtual machine the answer takes 25 us.
    int32_t lanes;
} sumi_torch_cpu_generator;
// Only the low 32 bits of the seed are used, as in PyTorch.
void sumi_torch_cpu_seed(sumi_torch_cpu_generator* generator, uint64_t seed);
// Draws what one call of torch.randn(count) draws. A count that is a multiple of 16 may be split into several calls
// whose counts are multiples of 16.
void sumi_torch_cpu_randn(sumi_torch_cpu_generator* generator, float* into, size_t count);
// The same for bfloat16, as torch 2.13 and newer draw it.
void sumi_torch_cpu_randn_bf16(sumi_torch_cpu_generator* generator, uint16_t* into, size_t count);

// offset: the number of values that each thread has drawn, a multiple of 4. sumi_torch_cuda_skip advances it, so that
// the next draw continues as PyTorch's does.
typedef struct sumi_torch_cuda_generator {
    uint64_t seed, offset;
    int32_t multiprocessors, threads_per_multiprocessor;
} sumi_torch_cuda_generator;
// The noise depends on the size of the GPU: 132 x 2048 for H100 / H200, 108 x 2048 for A100, 128 x 1536 for RTX 4090,
// 170 x 1536 for RTX 5090. Fewer threads than one block of 256 count as one block.
void sumi_torch_cuda_seed(sumi_torch_cuda_generator* generator, uint64_t seed, int32_t multiprocessors,
                          int32_t threads_per_multiprocessor);
// Values [first, first + range_count) that torch.randn(count) draws; the values of a bfloat16 draw are these values,
// rounded. The generator does not advance; after all ranges, sumi_torch_cuda_skip(count) advances it as the draw does.
void sumi_torch_cuda_randn_range(const sumi_torch_cuda_generator* generator, float* into, size_t count, size_t first,
                                 size_t range_count);
void sumi_torch_cuda_skip(sumi_torch_cuda_generator* generator, size_t count);
#endif
