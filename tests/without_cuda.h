// The rest of a test program of the CUDA backend in a build that has none: one test, which says so.
#include "test.h"

TEST(the_cuda_backend) { SKIP("this build has no CUDA backend"); }

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(the_cuda_backend);
    TEST_END();
}
