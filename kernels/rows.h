// Algorithms on rows: what a lane does with the last axis of its operands.
//
// OPERANDS says what they are, inputs before ">": n is a row, s a number, w a number in
// the type that is computed in, i an integer.  A row is read as x[j] and written as
// y[j], in that type too; a number is read as it is and written by assignment.
#pragma once

#include "lane.h"

namespace eg {

// exp(x) / sum(exp(x))
struct softmax {
  static constexpr char OPERANDS[] = "n>n";
  template <class T, class Lane, class X, class Y>
  EG_FN void operator()(const Lane& lane, Index n, X x, Y y) const {
    const T top = lane.template max<T>(n, [&](Index j) { return T(x[j]); });
    const T total =
        lane.template sum<T>(n, [&](Index j) { return exp(T(x[j]) - top); });
    lane.each(n, [&](Index j) { y[j] = exp(T(x[j]) - top) / total; });
  }
};

struct softmax_vjp {
  static constexpr char OPERANDS[] = "nn>n";
  template <class T, class Lane, class G, class Y, class D>
  EG_FN void operator()(const Lane& lane, Index n, G g, Y y, D dx) const {
    const T dot = lane.template sum<T>(n, [&](Index j) { return T(g[j]) * T(y[j]); });
    lane.each(n, [&](Index j) { dx[j] = T(y[j]) * (T(g[j]) - dot); });
  }
};

// x - log(sum(exp(x)))
struct log_softmax {
  static constexpr char OPERANDS[] = "n>n";
  template <class T, class Lane, class X, class Y>
  EG_FN void operator()(const Lane& lane, Index n, X x, Y y) const {
    const T top = lane.template max<T>(n, [&](Index j) { return T(x[j]); });
    const T total =
        lane.template sum<T>(n, [&](Index j) { return exp(T(x[j]) - top); });
    const T rest = log(total);
    lane.each(n, [&](Index j) { y[j] = (T(x[j]) - top) - rest; });
  }
};

struct log_softmax_vjp {
  static constexpr char OPERANDS[] = "nn>n";
  template <class T, class Lane, class G, class Y, class D>
  EG_FN void operator()(const Lane& lane, Index n, G g, Y y, D dx) const {
    const T total = lane.template sum<T>(n, [&](Index j) { return T(g[j]); });
    lane.each(n, [&](Index j) { dx[j] = T(g[j]) - exp(T(y[j])) * total; });
  }
};

// -log(softmax(x)[label]); keeps the row's maximum and the logarithm of the sum of
// exp(x - maximum), from which the gradient makes softmax again.
struct integer_cross_entropy {
  static constexpr char OPERANDS[] = "ni>sss";
  template <class T, class Lane, class X, class S>
  EG_FN void operator()(const Lane& lane, Index n, X x, long long label, S& loss, S& top,
                        S& rest) const {
    top = lane.template max<T>(n, [&](Index j) { return T(x[j]); });
    const T most = top;
    rest = log(lane.template sum<T>(n, [&](Index j) { return exp(T(x[j]) - most); }));
    loss = T(rest) - (T(x[Index(label)]) - most);
  }
};

struct integer_cross_entropy_vjp {
  static constexpr char OPERANDS[] = "sniss>n";
  template <class T, class Lane, class X, class D>
  EG_FN void operator()(const Lane& lane, Index n, T g, X x, long long label, T top,
                        T rest, D dx) const {
    lane.each(n, [&](Index j) {
      const T p = exp((T(x[j]) - top) - rest);
      dx[j] = g * (j == Index(label) ? p - T(1) : p);
    });
  }
};

// (x - mean) / sqrt(var + eps) gamma + beta, of which mean is 0 if not centred.  Keeps
// the mean in two parts, and the factor: the second part is the mean of what the first
// left, its rounding, which a small deviation beside a large mean would feel.
struct layer_norm {
  static constexpr char OPERANDS[] = "nnnww>nwww";
  template <class T, class Lane, class X, class Y>
  EG_FN void operator()(const Lane& lane, Index n, X x, X gamma, X beta, T eps,
                        T centred, Y y, T& centre, T& shift, T& inverse) const {
    const T count = T(n);
    T c = 0, s = 0;
    if (centred != T(0)) {
      // of shares, since the sum may be beyond the range
      const T share = T(1) / count;
      c = lane.template sum<T>(n, [&](Index j) { return T(x[j]) * share; });
      s = lane.template sum<T>(n, [&](Index j) { return T(x[j]) - c; }) / count;
    }
    const auto away = [&](Index j) { return (T(x[j]) - c) - s; };
    T unit = 1;
    T square = lane.template sum<T>(n, [&](Index j) { return away(j) * away(j); });
    if (!(square < T(INFINITY))) {  // squares beyond the range are of scaled values
      unit = lane.template max<T>(n, [&](Index j) { return fabs(away(j)); });
      square = lane.template sum<T>(n, [&](Index j) {
        return (away(j) / unit) * (away(j) / unit);
      });
    }
    const T factor = T(1) / sqrt(square / count + eps / unit / unit) / unit;
    lane.each(n, [&](Index j) { y[j] = away(j) * factor * T(gamma[j]) + T(beta[j]); });
    centre = c;
    shift = s;
    inverse = factor;
  }
};

}  // namespace eg
