// Loss scaling: whether gradients are finite, and the scale that follows.
#pragma once

#include "lane.h"

namespace eg {

// For each of as many parts of x as there are results: 1 if a nan or an infinity is
// among them, else 0.
struct non_finite {
  static constexpr char OPERANDS[] = "a>a";
  template <class T, class Team, class X, class Y>
  EG_FN void operator()(const Team& team, X x, Y y) const {
    team.parts(y.count, [&](const auto& lane, Index part) {
      const Index first = x.count * part / y.count;
      const Index n = x.count * (part + 1) / y.count - first;
      const auto at = x.at + first;
      const T top = lane.template max<T>(n, [&](Index i) { return abs(T(at[i])); });
      y[part] = top < T(INFINITY) ? T(0) : T(1);
    });
  }
};

// The state of a loss scale after a step: scale, steps since it changed, whether this
// one is made, and what gradients are multiplied by.  As eagergrad/loss_scale.py has it.
struct loss_scale {
  static constexpr char OPERANDS[] = "aasss>a";
  template <class T, class Team, class X, class Y>
  EG_FN void operator()(const Team& team, X flags, X state, T growth, T backoff,
                        T interval, Y next) const {
    team.parts(1, [&](const auto& lane, Index) {
      const T worst = lane.template max<T>(flags.count, [&](Index i) {
        return T(flags[i]);
      });
      lane.each(1, [&](Index) {
        const T scale = T(state[0]), good = T(state[1]) + T(1);
        const T larger = scale * growth;
        const T smaller = maximum(scale * backoff, minimum(scale, T(1)));
        const bool made = worst == T(0), grows = good >= interval;
        const bool fits = larger < T(INFINITY);
        next[0] = !made ? smaller : grows && fits ? larger : scale;
        next[1] = made && !grows ? good : T(0);
        next[2] = T(made);
        next[3] = T(1) / scale;
      });
    });
  }
};

}  // namespace eg
