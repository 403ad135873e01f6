// Products of small matrices, for which a library's costs more to call than to make.
//
// OPERANDS are as in columns.h; p is a matrix (m, k), q one (k, n), and t one (m, n).
// They come without gaps, with `scratch` for a row.  One lane makes all of a result.
#pragma once

#include "activations.h"
#include "lane.h"

namespace eg {

// act(x w + b)
struct dense {
  static constexpr char OPERANDS[] = "pqni>t";
  template <class T, class Lane>
  EG_FN void operator()(const Lane& lane, Index m, Index k, Index n, T*, const T* x,
                        const T* w, const T* b, long long activation, T* y) const {
    activated<T>(activation, [&](auto act) {
      for (Index i = 0; i < m; ++i, x += k, y += n) {
        lane.each(n, [&](Index j) { y[j] = T(0); });
        for (Index l = 0; l < k; ++l) {
          const T* row = w + l * n;
          lane.each(n, [&](Index j) { y[j] = multiply_add(x[l], row[j], y[j]); });
        }
        lane.each(n, [&](Index j) { y[j] = act(y[j] + b[j]); });
      }
    });
  }
};

// The gradients of x, w and b.
struct dense_vjp {
  static constexpr char OPERANDS[] = "pqtti>pqn";
  template <class T, class Lane>
  EG_FN void operator()(const Lane& lane, Index m, Index k, Index n, T* dz, const T* x,
                        const T* w, const T* g, const T* y, long long activation, T* dx,
                        T* dw, T* db) const {
    lane.each(k * n, [&](Index i) { dw[i] = T(0); });
    lane.each(n, [&](Index j) { db[j] = T(0); });
    sloped<T>(activation, [&](auto slope) {
      for (Index i = 0; i < m; ++i, x += k, dx += k, g += n, y += n) {
        lane.each(n, [&](Index j) {
          dz[j] = slope(g[j], y[j]);
          db[j] += dz[j];
        });
        for (Index l = 0; l < k; ++l) {
          const T* row = w + l * n;
          T* to = dw + l * n;
          lane.each(n, [&](Index j) { to[j] = multiply_add(x[l], dz[j], to[j]); });
          dx[l] = lane.template sum<T>(n, [&](Index j) { return dz[j] * row[j]; });
        }
      }
    });
  }
};

}  // namespace eg
