// Norms of whole arrays.
#pragma once

#include "lane.h"

namespace eg {

// The 2-norm of each of as many parts of x as there are results.  The sum of squares
// is made again, of what the largest leaves, where it is beyond the range.
struct two_norm {
  static constexpr char OPERANDS[] = "a>a";
  template <class T, class Team, class X, class Y>
  EG_FN void operator()(const Team& team, X x, Y y) const {
    constexpr T TINY = sizeof(T) == 4 ? T(1e-24) : T(1e-280);
    team.parts(y.count, [&](const auto& lane, Index part) {
      const Index first = x.count * part / y.count;
      const Index n = x.count * (part + 1) / y.count - first;
      const auto at = x.at + first;
      const T total =
          lane.template sum<T>(n, [&](Index i) { return T(at[i]) * T(at[i]); });
      if (total > TINY && total < T(INFINITY)) {
        y[part] = sqrt(total);
      } else {
        const T top = lane.template max<T>(n, [&](Index i) { return abs(T(at[i])); });
        const T unit = top > 0 && top < T(INFINITY) ? top : T(1);
        y[part] = unit * sqrt(lane.template sum<T>(n, [&](Index i) {
          const T u = T(at[i]) / unit;
          return u * u;
        }));
      }
    });
  }
};

}  // namespace eg
