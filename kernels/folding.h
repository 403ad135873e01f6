// Columns of patches folded back into images: each element of an image is the sum of the
// elements of columns that were taken from it.
#pragma once

#include "windows.h"

namespace eg {

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
