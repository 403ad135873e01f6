// Normalization of channels over the samples of a batch, and over what they are sized.
//
// Arrays are (n, c, s), and sizes says so; each channel is one part.
#pragma once

#include "lane.h"

namespace eg {

// (x - mean) / sqrt(var + eps) gamma + beta; 1 and 0 where those are empty.  Keeps what
// layer_norm does of rows, and is as careful (rows.h).
struct batch_norm {
  static constexpr char OPERANDS[] = "aaasj>aaaa";
  template <class T, class Team, class X, class P, class Y>
  EG_FN void operator()(const Team& team, X x, X gamma, X beta, T eps, P sizes, Y y,
                        Y centre, Y shift, Y inverse) const {
    const Index n = Index(sizes[0]), c = Index(sizes[1]), s = Index(sizes[2]);
    team.parts(c, [&](const auto& lane, Index k) {
      const auto place = [=](Index i, Index j) { return (i * c + k) * s + j; };
      const auto at = [=](Index i, Index j) { return T(x[place(i, j)]); };
      const T count = T(n * s), share = T(1) / count;
      // of shares, since the sum may be beyond the range
      const T mean = lane.template sum_of<T>(
          n, s, [&](Index i, Index j) { return at(i, j) * share; });
      const T rest = lane.template sum_of<T>(
                         n, s, [&](Index i, Index j) { return at(i, j) - mean; }) /
                     count;
      const auto away = [=](Index i, Index j) { return (at(i, j) - mean) - rest; };
      T unit = 1;
      T square = lane.template sum_of<T>(
          n, s, [&](Index i, Index j) { return away(i, j) * away(i, j); });
      if (!(square < T(INFINITY))) {  // squares beyond the range are of scaled values
        unit = lane.template max_of<T>(
            n, s, [&](Index i, Index j) { return fabs(away(i, j)); });
        square = lane.template sum_of<T>(n, s, [&](Index i, Index j) {
          return (away(i, j) / unit) * (away(i, j) / unit);
        });
      }
      const T factor = T(1) / sqrt(square / count + eps / unit / unit) / unit;
      const T slope = gamma.count ? T(gamma[k]) : T(1);
      const T offset = beta.count ? T(beta[k]) : T(0);
      lane.each_of(n, s, [&](Index i, Index j) {
        y[place(i, j)] = away(i, j) * factor * slope + offset;
      });
      centre[k] = mean;
      shift[k] = rest;
      inverse[k] = factor;
    });
  }
};

// The gradients of x, gamma and beta, by what batch_norm kept.
struct batch_norm_vjp {
  static constexpr char OPERANDS[] = "aaaaaaj>aaa";
  template <class T, class Team, class X, class P, class Y>
  EG_FN void operator()(const Team& team, X g, X x, X gamma, X centre, X shift,
                        X inverse, P sizes, Y dx, Y d_gamma, Y d_beta) const {
    const Index n = Index(sizes[0]), c = Index(sizes[1]), s = Index(sizes[2]);
    team.parts(c, [&](const auto& lane, Index k) {
      const auto place = [=](Index i, Index j) { return (i * c + k) * s + j; };
      const auto own = [=](Index i, Index j) { return T(g[place(i, j)]); };
      const T mean = T(centre[k]), rest = T(shift[k]), factor = T(inverse[k]);
      const auto away = [=](Index i, Index j) {
        return ((T(x[place(i, j)]) - mean) - rest) * factor;
      };
      const T count = T(n * s), slope = gamma.count ? T(gamma[k]) : T(1);
      const T total = lane.template sum_of<T>(n, s, own);
      const T dot = lane.template sum_of<T>(
          n, s, [&](Index i, Index j) { return own(i, j) * away(i, j); });
      const T along = dot * slope / count, level = total * slope / count;
      lane.each_of(n, s, [&](Index i, Index j) {
        dx[place(i, j)] = ((own(i, j) * slope - away(i, j) * along) - level) * factor;
      });
      d_gamma[k] = dot;
      d_beta[k] = total;
    });
  }
};

}  // namespace eg
