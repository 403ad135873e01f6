// CUDA's threads as threads of the host, so that device.cuh runs where no GPU is.
//
// Blocks run one after the other, their threads at once. A warp's exchange is the whole
// block's here, which is the same where all warps of a block make it, as in device.cuh.
#pragma once

#include <barrier>
#include <cmath>
#include <memory>
#include <thread>
#include <vector>

#define __device__
#define __global__
#define __shared__ static
#define __launch_bounds__(threads)

struct Index3 {
  unsigned x;
};
inline Index3 gridDim, blockDim;
inline thread_local Index3 blockIdx, threadIdx;
inline std::unique_ptr<std::barrier<>> meeting;

inline void __syncthreads() { meeting->arrive_and_wait(); }

template <class T> T __shfl_xor_sync(unsigned, T x, int distance) {
  static T given[1024];
  given[threadIdx.x] = x;
  __syncthreads();
  const T y = given[threadIdx.x ^ distance];
  __syncthreads();
  return y;
}

template <class Kernel> void run(unsigned blocks, unsigned threads, Kernel kernel) {
  gridDim.x = blocks;
  blockDim.x = threads;
  meeting = std::make_unique<std::barrier<>>(threads);
  std::vector<std::thread> block;
  for (unsigned t = 0; t < threads; ++t)
    block.emplace_back([=] {
      threadIdx.x = t;
      for (unsigned b = 0; b < blocks; ++b) {
        blockIdx.x = b;
        kernel();
        __syncthreads();
      }
    });
  for (std::thread& thread : block) thread.join();
}
