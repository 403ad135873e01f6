// Algorithms on the rows of a matrix, with sums down its columns.
//
// OPERANDS are as in rows.h, but n is a row that all share; t is a row of the matrix, m
// a number for each row, in the type that is computed in.  The last results may be c:
// each begins with zeros, and every row adds to it.
#pragma once

#include "activations.h"
#include "lane.h"

namespace eg {

struct column_sum {
  static constexpr char OPERANDS[] = "t>c";
  template <class T, class Lane, class X, class Y>
  EG_FN void operator()(const Lane& lane, Index n, X x, Y sum) const {
    lane.each(n, [&](Index j) { sum[j] += T(x[j]); });
  }
};

// The gradients of x, gamma and beta, by what layer_norm kept.
struct layer_norm_vjp {
  static constexpr char OPERANDS[] = "ttnmmmw>tcc";
  template <class T, class Lane, class X, class D, class S>
  EG_FN void operator()(const Lane& lane, Index n, X g, X x, X gamma, T centre, T shift,
                        T inverse, T centred, D dx, S d_gamma, S d_beta) const {
    const auto slope = [&](Index j) { return T(g[j]) * T(gamma[j]); };
    const auto y = [&](Index j) { return ((T(x[j]) - centre) - shift) * inverse; };
    T total, dot;
    sums(lane, n, slope, y, total, dot);
    dot /= T(n);
    const T mean = centred != T(0) ? total / T(n) : T(0);
    lane.each(n, [&](Index j) {
      const T own = T(g[j]), away = y(j);
      dx[j] = (multiply_add(-away, dot, slope(j)) - mean) * inverse;
      d_gamma[j] = multiply_add(own, away, d_gamma[j]);
      d_beta[j] += own;
    });
  }
};

// What a dense layer does after its product: act(z + b).
struct activation {
  static constexpr char OPERANDS[] = "tni>t";
  template <class T, class Lane, class X, class Y>
  EG_FN void operator()(const Lane& lane, Index n, X z, X b, long long number,
                        Y y) const {
    activated<T>(number, [&](auto act) {
      lane.each(n, [&](Index j) { y[j] = act(T(z[j]) + T(b[j])); });
    });
  }
};

// The gradients of z and b, by the output.
struct activation_vjp {
  static constexpr char OPERANDS[] = "tti>tc";
  template <class T, class Lane, class X, class D, class S>
  EG_FN void operator()(const Lane& lane, Index n, X g, X y, long long number, D dz,
                        S db) const {
    sloped<T>(number, [&](auto slope) {
      lane.each(n, [&](Index j) {
        const T own = slope(T(g[j]), T(y[j]));
        dz[j] = own;
        db[j] += own;
      });
    });
  }
};

}  // namespace eg
