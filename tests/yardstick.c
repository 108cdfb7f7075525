// A fixed piece of work, and how many CPU seconds it took: the only line that it prints. tests/run.sh runs it
// between the tests, on as many cores as the tests have, and so learns how much slower than the machine of list.txt's
// times this one is, busy neighbours included. It does what the tests do, each for about a third of the time:
//
//   products of floats     with the widest vectors that the CPU has, as the library does on the CPU
//   jumps in 16 MiB        what parsers, allocators and the sanitizers' shadow memory do: caches that others share
//   a sort of integers     branches that cannot be predicted: scripts and compilers
//
// It uses nothing of the library, which may become faster. Who changes the work measures all times of list.txt again.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SIDE 192
#define PLACES (4u << 20)
#define JUMPS (1u << 20)
#define SORTED (3u << 19)

#if defined(__x86_64__) && defined(__gnu_linux__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
static void
multiply(float* out, const float* a, const float* b)
{
    for (int i = 0; i < SIDE; i++) {
        for (int k = 0; k < SIDE; k++) {
            for (int j = 0; j < SIDE; j++) out[i * SIDE + j] += a[i * SIDE + k] * b[k * SIDE + j];
        }
    }
}

static uint32_t next_random(uint32_t* state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static int compare(const void* a, const void* b)
{
    uint32_t x = *(const uint32_t*)a, y = *(const uint32_t*)b;
    return (x > y) - (x < y);
}

int main(void)
{
    static float s_a[SIDE * SIDE], s_b[SIDE * SIDE], s_out[SIDE * SIDE];
    static uint32_t s_places[PLACES], s_numbers[SORTED];

    uint32_t state = 1, at = 0, sum = 0;
    for (int i = 0; i < SIDE * SIDE; i++) {
        s_a[i] = (float)(next_random(&state) % 100) / 100.0f;
        s_b[i] = (float)(next_random(&state) % 100) / 100.0f;
    }
    for (int i = 0; i < 60; i++) multiply(s_out, s_a, s_b);

    for (uint32_t i = 0; i < PLACES; i++) s_places[i] = next_random(&state);
    for (uint32_t i = 0; i < JUMPS; i++) {
        at = (s_places[at] + i) % PLACES;
        sum += at;
    }

    for (uint32_t i = 0; i < SORTED; i++) s_numbers[i] = next_random(&state);
    qsort(s_numbers, SORTED, sizeof s_numbers[0], compare);

    // The results decide over the exit code, so that no compiler leaves the work out.
    printf("%.3f\n", (double)clock() / CLOCKS_PER_SEC);
    return sum == 0 && s_out[0] == 0.0f && s_numbers[0] > s_numbers[1];
}
