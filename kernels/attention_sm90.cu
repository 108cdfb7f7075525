// softmax(q k^T * scale) v on Hopper: bf16, float sums, head dims 64, 80, 96 and 128, grouped-query heads, sequences of
// one or two spans, or causal with one span. attention.h has the shapes and launches, attention_forward_sm90.cuh the
// code.
//
// What made it fast, the largest gain first:
// - Three consumer warpgroups that are not ordered among each other: the tensor cores always find a warpgroup that is
// not computing its softmax, and a tile of K and V serves 192 queries.
// - Lazy rescaling: the sums and the output are rescaled only when a row maximum grew by more than a factor of 2^8.
// Both use the same older maximum until then, so nothing is approximated.
// - Persistent blocks: q and K of the block's next tile are loaded during the last products of the current one, and the
// output is stored from its own staging buffer while the next tile is computed.
//
// The keys are processed from the last tile to the first, so the mask for the incomplete last tile is in the first
// iteration, which is written separately. If the first span ends inside a tile of keys, that tile is masked in its
// iteration. Tiles of the same head have neighbouring numbers, so the resident blocks share K and V in L2. A sequence
// of 4224 tokens with 30 heads of 128 channels is 660 tiles: exactly 5 rounds of 132 multiprocessors.
//
// OVERLAP issues q k^T of the next tile before P v of the current tile. It is needed with two consumers, and for the
// short products of dim 64. POLYNOMIAL = n computes every n-th exponential on the FMA units. It was faster for dim 96
// only. Dim 80 has the settings of dim 96, unmeasured; with OVERLAP it runs out of registers (C7512). Tried and slower:
// consumers that take turns at the tensor cores (ping-pong), tiles of 80 .. 176 keys, q in registers, multicast in
// clusters.
//
// If the last round of tiles would leave at least half of the multiprocessors idle, the groups of 64 queries of its
// tiles are distributed over more blocks, one or two groups per block. Dividing the keys of these tiles among blocks is
// faster for some shapes, but then a result would depend on how an op is cut into slices.
//
// Pitfalls. Any C75xx warning of ptxas means that the wgmma are serialised: the build counts as failed. With OVERLAP, a
// barrier wait between q k^T and P v of one iteration gives C7520, so the loop waits for both tiles first. In a
// warpgroup without queries, the four warps must not follow the ring buffer independently: no wgmma keeps them
// together, and a late warp would miss a phase of a barrier.
#include "attention_forward_sm90.cuh"

#define ATTENTION_KERNEL(NAME, HEAD_DIM, CONSUMERS, STAGES, OVERLAP, POLYNOMIAL, CAUSAL)                               \
    extern "C" __global__ void __launch_bounds__(128 * (CONSUMERS + 1), 1)                                             \
        NAME(const __grid_constant__ sumi_attention_sm90_maps maps,                                                    \
             const __grid_constant__ sumi_attention_sm90_shape shape)                                                  \
    {                                                                                                                  \
        attention_sm90<SUMI_OPERANDS_BF16, HEAD_DIM, CONSUMERS, STAGES, OVERLAP, POLYNOMIAL, CAUSAL>::run(maps, shape, \
                                                                                                          nullptr);    \
    }
//               name, HEAD_DIM, CONSUMERS, STAGES, OVERLAP, POLYNOMIAL, CAUSAL
ATTENTION_KERNEL(sumi_attention_sm90_d128, 128, 3, 2, false, 0, false)
ATTENTION_KERNEL(sumi_attention_sm90_d128_c2, 128, 2, 2, true, 0, false)
ATTENTION_KERNEL(sumi_attention_sm90_d128_causal, 128, 3, 2, false, 0, true)
ATTENTION_KERNEL(sumi_attention_sm90_d96, 96, 3, 2, false, 8, false)
ATTENTION_KERNEL(sumi_attention_sm90_d96_causal, 96, 3, 2, false, 8, true)
ATTENTION_KERNEL(sumi_attention_sm90_d80, 80, 3, 4, false, 8, false)
ATTENTION_KERNEL(sumi_attention_sm90_d64, 64, 3, 4, true, 0, false)
ATTENTION_KERNEL(sumi_attention_sm90_d64_causal, 64, 3, 4, true, 0, true)
