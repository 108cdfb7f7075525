// Gaussian noise with PyTorch's bits. torch.randn on the CPU generator (MT19937 + the AVX2 build's Box-Muller, float32
// bit for bit) and on a CUDA generator (Philox4x32-10, cuRAND's Box-Muller, within 1.2e-6). Algorithms:
// golden/common/rng/README.md.
#ifndef SUMI_SAMPLING_NOISE_H
#define SUMI_SAMPLING_NOISE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sumi_torch_cpu_generator {
    uint32_t state[624];
    int32_t next;    // words of state already used, 624: the next draw twists
    bool has_cached; // the second value of a pair drawn by a call of fewer than 16
    double cached;
    bool portable; // never use the AVX2 code. Same bits, only slower: for tests
} sumi_torch_cpu_generator;
// only the low 32 bits count, as in PyTorch
void sumi_torch_cpu_seed(sumi_torch_cpu_generator* generator, uint64_t seed);
// draws as one call of torch.randn(count); multiples of 16 may be drawn by several calls
void sumi_torch_cpu_randn(sumi_torch_cpu_generator* generator, float* into, size_t count);
// torch 2.13 and newer
void sumi_torch_cpu_randn_bf16(sumi_torch_cpu_generator* generator, uint16_t* into, size_t count);

// offset: values a thread has drawn, always a multiple of 4; randn moves it on, so that a second call continues as
// PyTorch's does.
typedef struct sumi_torch_cuda_generator {
    uint64_t seed, offset;
    int32_t multiprocessors, threads_per_multiprocessor;
} sumi_torch_cuda_generator;
// The card's size changes the picture: 132 x 2048 for H100 / H200, 108 x 2048 A100, 128 x 1536 RTX 4090, 170 x 1536 RTX
// 5090. Anything below one block of 256 threads counts as one block.
void sumi_torch_cuda_seed(sumi_torch_cuda_generator* generator, uint64_t seed, int32_t multiprocessors,
                          int32_t threads_per_multiprocessor);
// a bfloat16 draw is these values rounded
void sumi_torch_cuda_randn(sumi_torch_cuda_generator* generator, float* into, size_t count);
// Values [first, first + part) of what that call would draw; the generator stays where it is until
// sumi_torch_cuda_skip(count), which moves it as the call does.
void sumi_torch_cuda_randn_part(const sumi_torch_cuda_generator* generator, float* into, size_t count, size_t first,
                                size_t part);
void sumi_torch_cuda_skip(sumi_torch_cuda_generator* generator, size_t count);
#endif
