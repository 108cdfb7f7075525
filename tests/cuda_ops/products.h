#ifndef TEST_CUDA_OPS_PRODUCTS_H
#define TEST_CUDA_OPS_PRODUCTS_H
// Computes each product by every kernel that can, on the first machine, and compares with the CPU. Nothing without CUDA.
void check_products(void);
// Converts pictures to every format on every machine, and compares bytes.
void check_publications(void);
#endif
