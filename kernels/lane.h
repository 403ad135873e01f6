// What a row algorithm is written against: a lane goes over the elements of one row.
//
// On the host a lane is one thread, which goes over all of them; on CUDA it is a warp or
// a block, whose threads share them and meet in sums and maxima.  The order of a sum
// depends on the row's length alone, so that a result never changes between runs.
#pragma once

#include "core.h"
#include "functions.h"

namespace eg {

#ifndef __CUDACC__

struct HostLane {
  // Partial results that a compiler keeps in vector registers; and of short rows.
  static constexpr int WIDTH = 64, SHORT = 8;

  // f(i) for each element.
  template <class F> inline void each(Index n, F f) const {
#pragma GCC ivdep
    for (Index i = 0; i < n; ++i) f(i);
  }

  // combine(... combine(start, f(0)) ..., f(n - 1)), in interleaved parts.
  template <class T, class F, class C>
  inline T fold(Index n, T start, F f, C combine) const {
    return n < WIDTH ? in_parts<SHORT>(n, start, f, combine)
                     : in_parts<WIDTH>(n, start, f, combine);
  }

  template <int PARTS, class T, class F, class C>
  inline T in_parts(Index n, T start, F f, C combine) const {
    T part[PARTS];
    for (int k = 0; k < PARTS; ++k) part[k] = start;
    Index i = 0;
    for (; i + PARTS <= n; i += PARTS)
      for (int k = 0; k < PARTS; ++k) part[k] = combine(part[k], T(f(i + k)));
    for (int k = 0; i < n; ++i, ++k) part[k] = combine(part[k], T(f(i)));
    for (int half = PARTS / 2; half; half /= 2)
      for (int k = 0; k < half; ++k) part[k] = combine(part[k], part[k + half]);
    return part[0];
  }

  template <class T, class F> inline T sum(Index n, F f) const {
    return fold(n, T(0), f, [](T a, T b) { return a + b; });
  }

  // The largest, or nan if there is one; -inf of none.
  template <class T, class F> inline T max(Index n, F f) const {
    return fold(n, -T(INFINITY), f, [](T a, T b) { return maximum(a, b); });
  }
};

#endif

}  // namespace eg
