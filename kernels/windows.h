// Windows over a plane: what lies in each, and in which ones a place lies.
//
// Three axes, of which the first may be of length 1; nothing is ever padded: of a
// window's elements those count that lie in the plane.  sizes is (planes, then for each
// axis size, outputs, kernel, stride, dilation, padding before).
#pragma once

#include "lane.h"

namespace eg {

struct Windows {
  using Sizes = Span<const long long>;
  static constexpr int NUMBERS = 1 + 3 * 6;  // in sizes

  struct Axis {
    Index size, outputs, kernel, stride, dilation, before;
    // where element k of window o lies
    EG_FN Index at(Index o, Index k) const {
      return o * stride + k * dilation - before;
    }
    EG_FN bool holds(Index i) const { return i >= 0 && i < size; }
    // the window whose element k lies there, or -1
    EG_FN Index over(Index i, Index k) const {
      const Index past = i - at(0, k), o = past < 0 ? -1 : divided(past, stride);
      return o < outputs && o * stride == past ? o : -1;
    }
    // the windows whose element k lies there: from first(k) up to stop(k)
    EG_FN Index first(Index k) const { return at(0, k) >= 0 ? 0 : reaching(k, 0); }
    EG_FN Index stop(Index k) const {
      return at(outputs - 1, k) < size ? outputs : reaching(k, size);
    }
    EG_FN Index reaching(Index k, Index i) const {
      const Index past = i - at(0, k) + stride - 1;
      if (past < 0) return 0;
      const Index o = divided(past, stride);
      return o < outputs ? o : outputs;
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

  // of a window
  EG_FN Index places() const {
    return axes[0].kernel * axes[1].kernel * axes[2].kernel;
  }
  template <class T> EG_FN T share() const { return T(1) / T(places()); }

  // For each window y[o] = start, then f(y[o], k, o, x[i]) for each of its elements;
  // end(o, y[o]...) gets what came of it.
  template <class T, int M, class Team, class X, class F, class E>
  EG_FN void gather(const Team& team, X x, const T (&start)[M], F f, E end) const {
    const Axis &u = axes[0], &v = axes[1], &w = axes[2];
    const auto runs = [&](Index line, auto run) {
      const Index above = divided(line, v.outputs), b = line - above * v.outputs;
      const Index plane = divided(above, u.outputs), a = above - plane * u.outputs;
      Index k = 0;
      for (Index p = 0; p < u.kernel; ++p)
        for (Index q = 0; q < v.kernel; ++q) {
          const Index i = u.at(a, p), j = v.at(b, q);
          if (!u.holds(i) || !v.holds(j)) {
            k += w.kernel;
            continue;
          }
          for (Index r = 0; r < w.kernel; ++r, ++k) {
            const Index first = w.first(r), count = w.stop(r) - first;
            const auto from =
                x.at + plane * inputs() + (i * v.size + j) * w.size + w.at(first, r);
            const Index o = line * w.outputs + first;
            if (w.stride == 1)  // apart, for compilers to vectorise
              run(first, 1, count,
                  [=](Index l, auto&... y) { f(k, o + l, T(from[l]), y...); });
            else
              run(first, 1, count, [=](Index l, auto&... y) {
                f(k, o + l, T(from[l * w.stride]), y...);
              });
          }
        }
    };
    team.lines(planes * u.outputs * v.outputs, w.outputs, start, runs, end);
  }

  // x[i] = the sum of f(k, o) over the windows o that it is element k of.
  template <class T, class Team, class X, class F>
  EG_FN void scatter(const Team& team, X x, F f) const {
    const Axis &u = axes[0], &v = axes[1], &w = axes[2];
    const auto runs = [&](Index line, auto run) {
      const Index above = divided(line, v.size), j = line - above * v.size;
      const Index plane = divided(above, u.size), i = above - plane * u.size;
      for (Index p = 0; p < u.kernel; ++p) {
        const Index a = u.over(i, p);
        for (Index q = 0; a >= 0 && q < v.kernel; ++q) {
          const Index b = v.over(j, q);
          if (b < 0) continue;
          for (Index r = 0; r < w.kernel; ++r) {
            const Index k = (p * v.kernel + q) * w.kernel + r;
            const Index first = w.first(r), count = w.stop(r) - first;
            const Index o =
                ((plane * u.outputs + a) * v.outputs + b) * w.outputs + first;
            run(w.at(first, r), w.stride, count,
                [=](Index l, T& sum) { sum += f(plane, k, o + l); });
          }
        }
      }
    };
    const T zero[] = {T(0)};
    team.lines(planes * u.size * v.size, w.size, zero, runs,
               [&](Index i, T sum) { x[i] = sum; });
  }
};

}  // namespace eg
