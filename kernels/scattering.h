// Sums by index: rows that are added up where their index says.
#pragma once

#include "lane.h"

namespace eg {

// y[ids[i]] += x[i] from zeros, in the order of i: each part has a share of the rows of
// y, and looks through all indices for them.  sizes is (rows of y, parts).
struct scatter_add {
  static constexpr char OPERANDS[] = "ajj>a";
  template <class T, class Team, class X, class P, class Y>
  EG_FN void operator()(const Team& team, X x, P ids, P sizes, Y y) const {
    const Index rows = Index(sizes[0]), parts = Index(sizes[1]);
    const Index n = x.count / ids.count;
    team.template parts<T>(parts, 0, [&](auto lane, Index part, T*) {
      const Index first = part * rows / parts, last = (part + 1) * rows / parts;
      lane.each((last - first) * n, [&](Index j) { y[first * n + j] = T(0); });
      for (Index i = 0; i < ids.count; ++i) {
        const Index id = Index(ids[i]);
        if (id < first || id >= last) continue;
        const auto from = x.at + i * n;
        const auto to = y.at + id * n;
        lane.each(n, [&](Index j) { to[j] += from[j]; });
      }
    });
  }
};

}  // namespace eg
