// SPDX-License-Identifier: Apache-2.0
// What the GPU probe runs on each device: every thread mixes its number with what its neighbours left in shared memory.
// gpu_kernel.cc computes the same on the host, and tests/support/nogpu/fake_libcuda.c for the stand-in driver.
extern "C" __global__ void inductorfs_probe(unsigned seed, unsigned* out) {
  __shared__ unsigned shared[256];
  const unsigned thread = threadIdx.x;
  unsigned value = seed + blockIdx.x * 256u + thread;
  for (unsigned round = 0; round < 16; ++round) {
    value = value * 1664525u + 1013904223u;
    value ^= value >> 15;
    shared[thread] = value;
    __syncthreads();
    value += shared[(thread * 5u + round * 7u + 1u) & 255u];
    __syncthreads();
  }
  out[blockIdx.x * 256u + thread] = value;
}
