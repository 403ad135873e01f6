// Algorithms on rows: what a lane does with the last axis of its operands.
//
// OPERANDS says what they are, inputs before ">": n is a row, s a number, w a number in
// the type that is computed in, i an integer.  A row is read as x[j] and written as
// y[j], in that type too; a number is read as it is and written by assignment.
#pragma once

#include "lane.h"

namespace eg {

// The largest that is no nan, in half of the time of one that heeds them: the sum of
// exponentials that follows is nan where there is one.
template <class T, class Lane, class X>
EG_FN T largest(const Lane& lane, Index n, X x) {
  return lane.template fold<T>(
      n, -T(INFINITY), [&](Index j) { return T(x[j]); },
      [](T a, T b) { return b > a ? b : a; });
}

template <class T, class Lane, class X, class Y>
EG_FN void softmax_of(const Lane& lane, Index n, X x, Y y) {
  const T top = largest<T>(lane, n, x);
  const auto e = [&](Index j) { return exp_share(T(x[j]) - top); };
  if constexpr (READS_RESULTS<Lane>) {
    const T total = lane.template sum<T>(n, [&](Index j) { return y[j] = e(j); });
    const T share = T(1) / total;
    lane.each(n, [&](Index j) { y[j] *= share; });
  } else {
    const T share = T(1) / lane.template sum<T>(n, e);
    lane.each(n, [&](Index j) { y[j] = e(j) * share; });
  }
}

template <class T, class Lane, class G, class Y, class D>
EG_FN void softmax_vjp_of(const Lane& lane, Index n, G g, Y y, D dx) {
  const T dot = lane.template sum<T>(n, [&](Index j) { return T(g[j]) * T(y[j]); });
  lane.each(n, [&](Index j) { dx[j] = T(y[j]) * (T(g[j]) - dot); });
}

// exp(x) / sum(exp(x))
struct softmax {
  static constexpr char OPERANDS[] = "n>n";
  template <class T, class Lane, class X, class Y>
  EG_FN void operator()(const Lane& lane, Index n, X x, Y y) const {
    softmax_of<T>(lane, n, x, y);
  }
};

struct softmax_vjp {
  static constexpr char OPERANDS[] = "nn>n";
  template <class T, class Lane, class G, class Y, class D>
  EG_FN void operator()(const Lane& lane, Index n, G g, Y y, D dx) const {
    softmax_vjp_of<T>(lane, n, g, y, dx);
  }
};

// The same of a row's first elements, `seen` of them; 0 beyond.
struct softmax_seen {
  static constexpr char OPERANDS[] = "ni>n";
  template <class T, class Lane, class X, class Y>
  EG_FN void operator()(const Lane& lane, Index n, X x, long long seen, Y y) const {
    softmax_of<T>(lane, Index(seen), x, y);
    lane.each(n, [&](Index j) {
      if (j >= Index(seen)) y[j] = T(0);
    });
  }
};

struct softmax_seen_vjp {
  static constexpr char OPERANDS[] = "nni>n";
  template <class T, class Lane, class G, class Y, class D>
  EG_FN void operator()(const Lane& lane, Index n, G g, Y y, long long seen,
                        D dx) const {
    softmax_vjp_of<T>(lane, Index(seen), g, y, dx);
    lane.each(n, [&](Index j) {
      if (j >= Index(seen)) dx[j] = T(0);
    });
  }
};

// x - log(sum(exp(x)))
struct log_softmax {
  static constexpr char OPERANDS[] = "n>n";
  template <class T, class Lane, class X, class Y>
  EG_FN void operator()(const Lane& lane, Index n, X x, Y y) const {
    const T top = largest<T>(lane, n, x);
    const T total =
        lane.template sum<T>(n, [&](Index j) { return exp_share(T(x[j]) - top); });
    const T rest = log(total);
    lane.each(n, [&](Index j) { y[j] = (T(x[j]) - top) - rest; });
  }
};

struct log_softmax_vjp {
  static constexpr char OPERANDS[] = "nn>n";
  template <class T, class Lane, class G, class Y, class D>
  EG_FN void operator()(const Lane& lane, Index n, G g, Y y, D dx) const {
    const T total = lane.template sum<T>(n, [&](Index j) { return T(g[j]); });
    lane.each(n, [&](Index j) { dx[j] = T(g[j]) - exp_share(T(y[j])) * total; });
  }
};

// -log(softmax(x)[label]); keeps the row's maximum and the logarithm of the sum of
// exp(x - maximum), from which the gradient makes softmax again.
struct integer_cross_entropy {
  static constexpr char OPERANDS[] = "ni>sss";
  template <class T, class Lane, class X, class S>
  EG_FN void operator()(const Lane& lane, Index n, X x, long long label, S& loss, S& top,
                        S& rest) const {
    top = largest<T>(lane, n, x);
    const T most = top;
    rest = log(
        lane.template sum<T>(n, [&](Index j) { return exp_share(T(x[j]) - most); }));
    loss = T(rest) - (T(x[Index(label)]) - most);
  }
};

// Of g / count, for the mean of so many losses.
struct integer_cross_entropy_vjp {
  static constexpr char OPERANDS[] = "sniiss>n";
  template <class T, class Lane, class X, class D>
  EG_FN void operator()(const Lane& lane, Index n, T g, X x, long long label,
                        long long count, T top, T rest, D dx) const {
    const T share = g / T(count);
    const auto p = [&](Index j) { return exp_share((T(x[j]) - top) - rest); };
    lane.each(n, [&](Index j) { dx[j] = share * p(j); });
    lane.at(Index(label), n, [&](Index j) { dx[j] = share * (p(j) - T(1)); });
  }
};

struct mean {
  static constexpr char OPERANDS[] = "n>s";
  template <class T, class Lane, class X, class S>
  EG_FN void operator()(const Lane& lane, Index n, X x, S& y) const {
    y = lane.template sum<T>(n, [&](Index i) { return T(x[i]); }) / T(n);
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
    T c = 0, s = 0, unit = 1, square;
    const auto away = [&](Index j) { return (T(x[j]) - c) - s; };
    const auto squares = [&] {
      return lane.template sum<T>(n, [&](Index j) { return away(j) * away(j); });
    };
    if (centred != T(0)) {
      // of shares, since the sum may be beyond the range
      const T share = T(1) / count;
      c = lane.template sum<T>(n, [&](Index j) { return T(x[j]) * share; });
      T total;
      sums(lane, n, away, away, total, square);
      s = total / count;
      // the same sum about c + s, where s is a rounding of c beside the deviation; else
      // it would cancel
      square = total * s < T(0x1p-10) * square ? square - total * s : squares();
    } else {
      square = squares();
    }
    if (!(square < T(INFINITY))) {  // squares beyond the range are of scaled values
      unit = lane.template max<T>(n, [&](Index j) { return fabs(away(j)); });
      square = lane.template sum<T>(n, [&](Index j) {
        return (away(j) / unit) * (away(j) / unit);
      });
    }
    const T factor = T(1) / sqrt(square / count + eps / unit / unit) / unit;
    lane.each(n, [&](Index j) {
      y[j] = multiply_add(away(j) * factor, T(gamma[j]), T(beta[j]));
    });
    centre = c;
    shift = s;
    inverse = factor;
  }
};

}  // namespace eg
