// Pooling: what windows make of a plane, and where it goes back to.  Each plane is one of
// (n, c, *sizes).
#pragma once

#include "windows.h"

namespace eg {

// Without a branch, which would go either way at random.
template <class T> EG_FN T selected(bool second, T a, T b) {
#ifdef __CUDACC__
  return second ? b : a;
#else
  const T both[] = {a, b};
  return both[second];
#endif
}

// The largest of each window, nan if there is one, and which element that is.
struct max_pool {
  static constexpr char OPERANDS[] = "aj>ab";
  template <class T, class Team, class X, class Y, class B>
  EG_FN void operator()(const Team& team, X x, Windows::Sizes sizes, Y y,
                        B winner) const {
    const T start[] = {-T(INFINITY), T(0)};
    const auto choose = [](Index k, Index, T value, T& top, T& which) {
      const bool better = (value > top) | (value != value);
      top = selected(better, top, value);
      which = selected(better, which, T(k));
    };
    Windows(sizes).gather(team, x, start, choose, [&](Index o, T top, T which) {
      y[o] = top;
      winner[o] = (signed char)which;
    });
  }
};

struct pool_scatter {
  static constexpr char OPERANDS[] = "abj>a";
  template <class T, class Team, class X, class B, class Y>
  EG_FN void operator()(const Team& team, X g, B winner, Windows::Sizes sizes,
                        Y x) const {
    Windows(sizes).template scatter<T>(team, x, [&](Index, Index k, Index o) {
      return selected(Index(winner[o]) == k, T(0), T(g[o]));
    });
  }
};

struct pool_gather {
  static constexpr char OPERANDS[] = "abj>a";
  template <class T, class Team, class X, class B, class Y>
  EG_FN void operator()(const Team& team, X x, B winner, Windows::Sizes sizes,
                        Y y) const {
    const T start[] = {T(0)};
    const auto choose = [&](Index k, Index o, T value, T& chosen) {
      chosen = Index(winner[o]) == k ? value : chosen;
    };
    Windows(sizes).gather(team, x, start, choose,
                          [&](Index o, T chosen) { y[o] = chosen; });
  }
};

struct avg_pool {
  static constexpr char OPERANDS[] = "aj>a";
  template <class T, class Team, class X, class Y>
  EG_FN void operator()(const Team& team, X x, Windows::Sizes sizes,
                        Y y) const {
    const Windows windows(sizes);
    const T share = windows.share<T>(), start[] = {T(0)};
    // the sum itself may be beyond the range
    const auto add = [=](Index, Index, T value, T& sum) { sum += value * share; };
    windows.gather(team, x, start, add, [&](Index o, T sum) { y[o] = sum; });
  }
};

struct avg_spread {
  static constexpr char OPERANDS[] = "aj>a";
  template <class T, class Team, class X, class Y>
  EG_FN void operator()(const Team& team, X y, Windows::Sizes sizes,
                        Y x) const {
    const Windows windows(sizes);
    const T share = windows.share<T>();
    windows.scatter<T>(team, x, [=](Index, Index, Index o) { return T(y[o]) * share; });
  }
};

}  // namespace eg
