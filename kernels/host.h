// Kernels as loops of NumPy's universal functions.
//
// NumPy broadcasts, allocates and calls; a loop gets pointers, counts and strides.  This
// needs no header of Python's or NumPy's: eagergrad/host_kernels.py compiles one kernel
// into one shared library, EG_ELEMENTWISE(name, arity), and registers its loops.
#pragma once

#include <cfenv>
#include <cstdint>
#include <cstring>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "core.h"
#include "math.h"

namespace eg {

using Index = std::intptr_t;
using Loop = void (*)(char**, const Index*, const Index*, void*);

// A kernel computes what it then does not choose, so the flags it leaves behind mean
// nothing; NumPy would read them as overflow in the result.
inline void forget_flags() {
#if defined(__SSE__)
  _mm_setcsr(_mm_getcsr() & ~0x3fu);
#else
  std::feclearexcept(FE_ALL_EXCEPT);
#endif
}

constexpr Index BLOCK = 1024;          // elements at a time, in cache
constexpr Index PARALLEL = 1 << 16;    // elements from which threads pay

// n elements of one operand as contiguous numbers of the wide type: as they lie, or
// gathered into a buffer.
template <class T>
inline const wide<T>* gathered(const char* from, Index step, Index n, wide<T>* buffer) {
  if constexpr (sizeof(T) == sizeof(wide<T>)) {
    if (step == sizeof(T)) return reinterpret_cast<const T*>(from);
  } else if (step == sizeof(T)) {
    const T* x = reinterpret_cast<const T*>(from);
    for (Index i = 0; i < n; ++i) buffer[i] = wide<T>(x[i]);
    return buffer;
  }
  if (step == 0) {
    const wide<T> x = wide<T>(*reinterpret_cast<const T*>(from));
    for (Index i = 0; i < n; ++i) buffer[i] = x;
    return buffer;
  }
  for (Index i = 0; i < n; ++i)
    buffer[i] = wide<T>(*reinterpret_cast<const T*>(from + i * step));
  return buffer;
}

template <class F, class T, int N>
inline void block(char* const* a, const Index* step, Index start, Index n) {
  using W = wide<T>;
  alignas(64) W buffers[N][BLOCK];
  alignas(64) W result[BLOCK];
  const W* x[N];
  for (int k = 0; k < N; ++k)
    x[k] = gathered<T>(a[k] + start * step[k], step[k], n, buffers[k]);
  char* to = a[N] + start * step[N];
  const bool direct = sizeof(T) == sizeof(W) && step[N] == sizeof(T);
  W* __restrict__ y = direct ? reinterpret_cast<W*>(to) : result;
  const F f;
#pragma GCC ivdep
  for (Index i = 0; i < n; ++i) {
    if constexpr (N == 1) y[i] = f(x[0][i]);
    if constexpr (N == 2) y[i] = f(x[0][i], x[1][i]);
    if constexpr (N == 3) y[i] = f(x[0][i], x[1][i], x[2][i]);
    if constexpr (N == 4) y[i] = f(x[0][i], x[1][i], x[2][i], x[3][i]);
  }
  if (direct) return;
  for (Index i = 0; i < n; ++i)
    *reinterpret_cast<T*>(to + i * step[N]) = T(result[i]);
}

template <class F, class T, int N>
void elementwise(char** a, const Index* count, const Index* step, void*) {
  const Index n = count[0];
#pragma omp parallel for schedule(static) if (n >= PARALLEL)
  for (Index start = 0; start < n; start += BLOCK)
    block<F, T, N>(a, step, start, n - start < BLOCK ? n - start : BLOCK);
  forget_flags();
}

}  // namespace eg

// The loops of a kernel, in the order of host_kernels.DTYPES.
#define EG_ELEMENTWISE(name, arity)                                          \
  template <class T>                                                         \
  constexpr eg::Loop loop = eg::elementwise<eg::name, T, arity>;             \
  extern "C" __attribute__((visibility("default"))) const eg::Loop eg_loops[]; \
  const eg::Loop eg_loops[] = {loop<eg::half>, loop<float>, loop<double>};
