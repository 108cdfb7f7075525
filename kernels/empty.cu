// A kernel that does nothing, in three places: the first launch, in which the driver initialises itself; the graphs by
// which the driver gets memory for those of images; and before a slice, where the time until it has run tells how long
// a block waits for a place on a multiprocessor, beside kernels of the host program.
//   grid 1    block 32    shared none
extern "C" __global__ void __launch_bounds__(32) sumi_empty() {}
