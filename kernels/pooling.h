// Pooling: what windows make of a plane, and where it goes back to.
//
// Each of the planes of (n, c, *sizes) is one part.  Three axes, of which the first may
// be of length 1; nothing is ever padded: of a window's elements those count that lie
// in the plane.  sizes is (planes, then for each axis size, outputs, kernel, stride,
// dilation, padding before).
#pragma once

#include "lane.h"

namespace eg {

struct Windows {
  using Sizes = Span<const long long>;

  struct Axis {
    Index size, outputs, kernel, stride, dilation, before;
    // where element k of window o lies
    EG_FN Index at(Index o, Index k) const {
      return o * stride + k * dilation - before;
    }
    EG_FN bool holds(Index i) const { return i >= 0 && i < size; }
    // the windows whose element k lies there: from first(k) up to stop(k)
    EG_FN Index first(Index k) const { return at(0, k) >= 0 ? 0 : reaching(k, 0); }
    EG_FN Index stop(Index k) const {
      return at(outputs - 1, k) < size ? outputs : reaching(k, size);
    }
    EG_FN Index reaching(Index k, Index i) const {
      const Index o = (i - at(0, k) + stride - 1) / stride;
      return o < 0 ? 0 : o < outputs ? o : outputs;
    }
  };

  Index planes;
  Axis axes[3];

  EG_FN explicit Windows(Sizes sizes) : planes(Index(sizes[0])) {
    for (int i = 0; i < 3; ++i) {
      const long long* n = sizes.at + 1 + 6 * i;
      axes[i] = {Index(n[0]), Index(n[1]), Index(n[2]),
                 Index(n[3]), Index(n[4]), Index(n[5])};
    }
  }

  EG_FN Index inputs() const { return axes[0].size * axes[1].size * axes[2].size; }
  EG_FN Index outputs() const {
    return axes[0].outputs * axes[1].outputs * axes[2].outputs;
  }

  template <class T> EG_FN T share() const {
    return T(1) / T(axes[0].kernel * axes[1].kernel * axes[2].kernel);
  }

  // f(k, o, i) for element k of each window: o counts windows, i is its place.
  template <class Lane, class F> EG_FN void each(const Lane& lane, F f) const {
    const Axis &x = axes[0], &y = axes[1], &z = axes[2];
    for (Index a = 0; a < x.outputs; ++a)
      for (Index b = 0; b < y.outputs; ++b) {
        Index k = 0;
        for (Index p = 0; p < x.kernel; ++p)
          for (Index q = 0; q < y.kernel; ++q) {
            const Index i = x.at(a, p), j = y.at(b, q);
            if (!x.holds(i) || !y.holds(j)) {
              k += z.kernel;
              continue;
            }
            for (Index r = 0; r < z.kernel; ++r, ++k) {
              const Index first = z.first(r), count = z.stop(r) - first;
              const Index o = (a * y.outputs + b) * z.outputs + first;
              const Index start = (i * y.size + j) * z.size + z.at(first, r);
              if (z.stride == 1)  // apart, for compilers to vectorise
                lane.each(count, [&](Index l) { f(k, o + l, start + l); });
              else
                lane.each(count, [&](Index l) { f(k, o + l, start + l * z.stride); });
            }
          }
      }
  }

  // y[o] = start, then f(y[o], k, o, x[i]) for each of its elements.
  template <class T, class Team, class X, class Y, class F>
  EG_FN void gather(const Team& team, X x, Y y, F f) const {
    const Index n = outputs();
    team.template parts<T>(planes, n, [&](auto lane, Index part, T* sum) {
      const auto from = x.at + part * inputs();
      const auto to = y.at + part * n;
      lane.each(n, [&](Index o) { sum[o] = T(0); });
      each(lane, [&](Index k, Index o, Index i) {
        sum[o] = f(sum[o], k, part * n + o, T(from[i]));
      });
      lane.each(n, [&](Index o) { to[o] = sum[o]; });
    });
  }

  // x[i] = the sum of f(k, o) over the windows o that it is element k of.
  template <class T, class Team, class X, class F>
  EG_FN void scatter(const Team& team, X x, F f) const {
    const Index n = inputs();
    team.template parts<T>(planes, n, [&](auto lane, Index part, T* sum) {
      const auto to = x.at + part * n;
      lane.each(n, [&](Index i) { sum[i] = T(0); });
      each(lane, [&](Index k, Index o, Index i) {
        sum[i] += f(k, part * outputs() + o);
      });
      lane.each(n, [&](Index i) { to[i] = sum[i]; });
    });
  }
};

// The largest of each window, nan if there is one, and which element that is.
struct max_pool {
  static constexpr char OPERANDS[] = "aj>ab";
  template <class T, class Team, class X, class Y, class B>
  EG_FN void operator()(const Team& team, X x, Windows::Sizes sizes, Y y,
                        B winner) const {
    const Windows windows(sizes);
    const Index n = windows.outputs();
    team.template parts<T>(windows.planes, 2 * n, [&](auto lane, Index part, T* top) {
      const auto from = x.at + part * windows.inputs();
      T* which = top + n;
      lane.each(n, [&](Index o) {
        top[o] = -T(INFINITY);
        which[o] = T(0);
      });
      windows.each(lane, [&](Index k, Index o, Index i) {
        const T values[] = {top[o], T(from[i])}, places[] = {which[o], T(k)};
        const bool better = (values[1] > values[0]) | (values[1] != values[1]);
        top[o] = values[better];  // a branch would go either way at random
        which[o] = places[better];
      });
      lane.each(n, [&](Index o) {
        y[part * n + o] = top[o];
        winner[part * n + o] = (signed char)which[o];
      });
    });
  }
};

struct pool_scatter {
  static constexpr char OPERANDS[] = "abj>a";
  template <class T, class Team, class X, class B, class Y>
  EG_FN void operator()(const Team& team, X g, B winner, Windows::Sizes sizes,
                        Y x) const {
    Windows(sizes).template scatter<T>(team, x, [&](Index k, Index o) {
      const T choice[] = {T(0), T(g[o])};  // a branch would go either way at random
      return choice[Index(winner[o]) == k];
    });
  }
};

struct pool_gather {
  static constexpr char OPERANDS[] = "abj>a";
  template <class T, class Team, class X, class B, class Y>
  EG_FN void operator()(const Team& team, X x, B winner, Windows::Sizes sizes,
                        Y y) const {
    const auto chosen = [&](T sum, Index k, Index o, T value) {
      return Index(winner[o]) == k ? value : sum;
    };
    Windows(sizes).template gather<T>(team, x, y, chosen);
  }
};

struct avg_pool {
  static constexpr char OPERANDS[] = "aj>a";
  template <class T, class Team, class X, class Y>
  EG_FN void operator()(const Team& team, X x, Windows::Sizes sizes,
                        Y y) const {
    const Windows windows(sizes);
    const T share = windows.share<T>();
    // the sum itself may be beyond the range
    windows.gather<T>(team, x, y, [&](T sum, Index, Index, T value) {
      return sum + value * share;
    });
  }
};

struct avg_spread {
  static constexpr char OPERANDS[] = "aj>a";
  template <class T, class Team, class X, class Y>
  EG_FN void operator()(const Team& team, X y, Windows::Sizes sizes,
                        Y x) const {
    const Windows windows(sizes);
    const T share = windows.share<T>();
    windows.scatter<T>(team, x, [&](Index, Index o) { return T(y[o]) * share; });
  }
};

}  // namespace eg
