// CUDA's threads as fibers of the host, so that device.cuh runs where no GPU is.
//
// Blocks run one after the other; the threads of one take turns, each until it has to
// wait for others. So a run is always the same, and threads that wait for one that has
// gone another way, or has ended, are found out.
#pragma once

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include <ucontext.h>

#define __device__
#define __global__
#define __shared__ static
#define __grid_constant__
#define __launch_bounds__(threads)

struct Index3 {
  unsigned x;
};
inline Index3 gridDim, blockDim, blockIdx, threadIdx;

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};

inline int __ffs(unsigned x) { return __builtin_ffs(int(x)); }

// The lower half of two words that are shifted to the right together.
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned by) {
  const unsigned long long both = (unsigned long long)high << 32 | low;
  return unsigned(both >> (by < 32 ? by : 32));
}

namespace emulator {

// Threads that wait for each other: those of a warp that a mask names, or all.
struct Meeting {
  unsigned expected, arrived = 0, round = 0;
  unsigned char given[32][8], taken[32][8];
};

constexpr std::size_t STACK = 1 << 17;
inline ucontext_t scheduler;
inline std::vector<ucontext_t> threads;
inline std::vector<char> stacks, ended;
inline std::map<std::pair<unsigned, unsigned>, Meeting> meetings;
inline const std::function<void()>* body;
inline unsigned turns;  // since a thread last went on
inline unsigned first_block;  // those before it are passed over

inline void wait(Meeting& meeting) {
  const unsigned round = meeting.round;
  if (++meeting.arrived == meeting.expected) {
    meeting.arrived = 0;
    ++meeting.round;
    std::memcpy(meeting.taken, meeting.given, sizeof meeting.given);
  }
  while (meeting.round == round) swapcontext(&threads[threadIdx.x], &scheduler);
  turns = 0;
}

inline Meeting& of_warp(unsigned mask) {
  const unsigned own = threadIdx.x % 32;
  if (!(mask >> own & 1)) std::abort();  // a thread that is not in its own mask
  const auto key = std::make_pair(threadIdx.x / 32, mask);
  return meetings.try_emplace(key, Meeting{unsigned(__builtin_popcount(mask))})
      .first->second;
}

// What a thread of the warp gives, for the others to take.
template <class T> T exchanged(unsigned mask, T x, unsigned from) {
  Meeting& meeting = of_warp(mask);
  if (!(mask >> from & 1)) std::abort();  // from a thread that is not there
  std::memcpy(meeting.given[threadIdx.x % 32], &x, sizeof x);
  wait(meeting);
  std::memcpy(&x, meeting.taken[from], sizeof x);
  return x;
}

inline void thread() {
  (*body)();
  ended[threadIdx.x] = 1;
  turns = 0;
  swapcontext(&threads[threadIdx.x], &scheduler);
}

inline void block(unsigned count) {
  meetings.clear();
  ended.assign(count, 0);
  threads.resize(count);
  stacks.resize(count * STACK);
  for (unsigned t = 0; t < count; ++t) {
    getcontext(&threads[t]);
    threads[t].uc_stack.ss_sp = &stacks[t * STACK];
    threads[t].uc_stack.ss_size = STACK;
    makecontext(&threads[t], thread, 0);
  }
  unsigned left = count;
  for (unsigned t = 0; left; t = (t + 1) % count) {
    if (ended[t]) continue;
    threadIdx.x = t;
    if (++turns > 2 * count) {
      std::fprintf(stderr, "threads wait for others that do not come\n");
      std::abort();
    }
    swapcontext(&scheduler, &threads[t]);
    left -= ended[t];
  }
}

}  // namespace emulator

inline void __syncthreads() {
  using namespace emulator;
  wait(meetings.try_emplace({~0u, 0}, Meeting{blockDim.x}).first->second);
}

template <class T> T __shfl_xor_sync(unsigned mask, T x, int distance) {
  return emulator::exchanged(mask, x, threadIdx.x % 32 ^ distance);
}

inline unsigned __ballot_sync(unsigned mask, bool x) {
  unsigned found = 0;
  emulator::Meeting& meeting = emulator::of_warp(mask);
  meeting.given[threadIdx.x % 32][0] = x;
  emulator::wait(meeting);
  for (unsigned k = 0; k < 32; ++k)
    if (mask >> k & 1) found |= unsigned(meeting.taken[k][0]) << k;
  return found;
}

inline void run(unsigned blocks, unsigned threads, const std::function<void()>& kernel) {
  gridDim.x = blocks;
  blockDim.x = threads;
  emulator::body = &kernel;
  for (unsigned b = emulator::first_block; b < blocks; ++b) {
    blockIdx.x = b;
    emulator::block(threads);
  }
}
