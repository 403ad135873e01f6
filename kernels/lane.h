// What a row algorithm is written against: a lane goes over the elements of one row.
//
// On the host a lane is one thread, which goes over all of them; on CUDA it is a warp or
// a block, whose threads share them and meet in sums and maxima.  The order of a sum
// depends on the row's length alone, so that a result never changes between runs.
//
// The threads do not wait for each other in `each`, but element i is always the same
// one's: what f(i) has written, f(i) may read, and no other.
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

  // f(i) for one element, if there is such a one.
  template <class F> inline void at(Index i, Index n, F f) const {
    if (0 <= i && i < n) f(i);
  }

  // f(i) for each of them that `holds`, in order; within f the lane may share again.
  template <class P, class F> inline void each_where(Index n, P holds, F f) const {
    for (Index i = 0; i < n; ++i)
      if (holds(i)) f(i);
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

  // The sum of f, and that of f times g.
  template <class T, class F, class G>
  inline void sums(Index n, F f, G g, T& total, T& dot) const {
    n < WIDTH ? sums_in_parts<SHORT>(n, f, g, total, dot)
              : sums_in_parts<WIDTH>(n, f, g, total, dot);
  }

  template <int PARTS, class T, class F, class G>
  inline void sums_in_parts(Index n, F f, G g, T& total, T& dot) const {
    T part[PARTS] = {}, product[PARTS] = {};
    const auto add = [&](int k, Index i) {
      const T x = f(i);
      part[k] += x;
      product[k] = multiply_add(x, T(g(i)), product[k]);
    };
    Index i = 0;
    for (; i + PARTS <= n; i += PARTS)
      for (int k = 0; k < PARTS; ++k) add(k, i + k);
    for (int k = 0; i < n; ++i, ++k) add(k, i);
    for (int half = PARTS / 2; half; half /= 2)
      for (int k = 0; k < half; ++k) {
        part[k] += part[k + half];
        product[k] += product[k + half];
      }
    total = part[0];
    dot = product[0];
  }

  // The largest, or nan if there is one; -inf of none.
  template <class T, class F> inline T max(Index n, F f) const {
    return fold(n, -T(INFINITY), f, [](T a, T b) { return maximum(a, b); });
  }

  // The same of f(i, j) for m pieces of n elements each.
  template <class F> inline void each_of(Index m, Index n, F f) const {
    if (n == 1) return each(m, [&](Index i) { f(i, 0); });
    for (Index i = 0; i < m; ++i) each(n, [&](Index j) { f(i, j); });
  }
  template <class T, class F> inline T sum_of(Index m, Index n, F f) const {
    if (n == 1) return sum<T>(m, [&](Index i) { return f(i, 0); });
    T total = 0;
    for (Index i = 0; i < m; ++i) total += sum<T>(n, [&](Index j) { return f(i, j); });
    return total;
  }
  template <class T, class F> inline T max_of(Index m, Index n, F f) const {
    T top = -T(INFINITY);
    for (Index i = 0; i < m; ++i)
      top = maximum(top, max<T>(n, [&](Index j) { return f(i, j); }));
    return top;
  }
};

#endif

// Whether results may be read again: they are memory of the wide type, as on the host.
template <class Lane> constexpr bool READS_RESULTS = false;

// A lane's sum of f, and that of f times g.
template <class T, class Lane, class F, class G>
EG_FN void sums(const Lane& lane, Index n, F f, G g, T& total, T& dot) {
  total = lane.template sum<T>(n, f);
  dot = lane.template sum<T>(n, [&](Index i) { return T(f(i)) * T(g(i)); });
}

#ifndef __CUDACC__
template <> constexpr bool READS_RESULTS<HostLane> = true;

template <class T, class F, class G>  // both in one pass
EG_FN void sums(const HostLane& lane, Index n, F f, G g, T& total, T& dot) {
  lane.sums(n, f, g, total, dot);
}
#endif

}  // namespace eg
