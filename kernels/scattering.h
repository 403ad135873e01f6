// Sums by index: rows that are added up where their index says.
#pragma once

#include "lane.h"

namespace eg {

// y[ids[i]] += x[i] from zeros, in the order of i: each part has a share of the rows of
// y, and looks through all indices for them.  sizes is (rows of y, parts).  Indices
// count from the end if they are negative, and go round beyond it, as CuPy's do.
struct scatter_add {
  static constexpr char OPERANDS[] = "ajj>a";
  template <class T, class Team, class X, class P, class Y>
  EG_FN void operator()(const Team& team, X x, P ids, P sizes, Y y) const {
    const Index rows = Index(sizes[0]), parts = Index(sizes[1]);
    const Index n = x.count / ids.count;
    const auto row = [&](Index i) {
      Index id = Index(ids[i]);
      if (id < 0 || id >= rows) id %= rows;
      return id < 0 ? id + rows : id;
    };
    team.parts(parts, [&](const auto& lane, Index part) {
      const Index first = part * rows / parts, last = (part + 1) * rows / parts;
      for (Index i = first; i < last; ++i)
        lane.each(n, [&](Index j) { y[i * n + j] = T(0); });
      const auto mine = [&](Index i) { return row(i) >= first && row(i) < last; };
      lane.each_where(ids.count, mine, [&](Index i) {
        const auto from = x.at + i * n;
        const auto to = y.at + row(i) * n;
        lane.each(n, [&](Index j) { to[j] = T(to[j]) + T(from[j]); });
      });
    });
  }
};

}  // namespace eg
