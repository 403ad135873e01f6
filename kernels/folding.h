// Images unfolded into columns of patches, where each element is one of an image or 0;
// and columns folded back: each element of an image is the sum of those taken from it.
#pragma once

#include "windows.h"

namespace eg {

// Columns (channels, places in the window, samples, windows) of planes (samples,
// channels).  How many samples there are stands behind the sizes: with 1, each plane is
// a channel.
struct unfold {
  static constexpr char OPERANDS[] = "aj>a";
  template <class T, class Team, class X, class Y>
  EG_FN void operator()(const Team& team, X x, Windows::Sizes sizes, Y columns) const {
    const Windows windows(sizes);
    const Windows::Axis &u = windows.axes[0], &v = windows.axes[1],
                        &w = windows.axes[2];
    const Index samples = Index(sizes[Windows::NUMBERS]);
    const Index channels = divided(windows.planes, samples);
    const auto runs = [&](Index rest, auto run) {
      const auto last = [&](Index n) {
        const Index all = rest;
        rest = divided(all, n);
        return all - rest * n;
      };
      const Index b = last(v.outputs), a = last(u.outputs), sample = last(samples);
      const Index r = last(w.kernel), q = last(v.kernel), p = last(u.kernel);
      const Index i = u.at(a, p), j = v.at(b, q);
      if (!u.holds(i) || !v.holds(j)) return;
      const Index first = w.first(r), plane = sample * channels + rest;
      const auto from =
          x.at + plane * windows.inputs() + (i * v.size + j) * w.size + w.at(first, r);
      run(first, 1, w.stop(r) - first,
          [=](Index l, T& y) { y = T(from[l * w.stride]); });
    };
    const T zero[] = {T(0)};
    const Index lines = windows.planes * windows.places() * u.outputs * v.outputs;
    team.lines(lines, w.outputs, zero, runs, [&](Index e, T y) { columns[e] = y; });
  }
};

// For each plane columns has an element for each place in the window and each window.
struct fold {
  static constexpr char OPERANDS[] = "aj>a";
  template <class T, class Team, class X, class Y>
  EG_FN void operator()(const Team& team, X columns, Windows::Sizes sizes, Y x) const {
    const Windows windows(sizes);
    const Index n = windows.outputs(), others = windows.places() - 1;
    // of the plane's windows before, and of the places before in this one's
    windows.scatter<T>(team, x, [=](Index plane, Index k, Index o) {
      return T(columns[o + (plane * others + k) * n]);
    });
  }
};

}  // namespace eg
