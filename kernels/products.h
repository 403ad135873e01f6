// Products of small matrices, for which a library's costs more to call than to make.
//
// OPERANDS are as in columns.h; p is a matrix (m, k), q one (k, n), and t one (m, n).
// They come without gaps, with `scratch` for a row.  One lane makes all of a result.
#pragma once

#include <type_traits>

#include "activations.h"
#include "lane.h"

namespace eg {

// f(tile, j) for the columns j ... j + tile - 1, in pieces of which the compiler knows
// the length: what is added up in one stays in registers.
template <int TILE = 16, class F> EG_FN void tiles(Index n, F f) {
  Index j = 0;
  for (; j + TILE <= n; j += TILE) f(std::integral_constant<int, TILE>(), j);
  if constexpr (TILE > 1) tiles<TILE / 2>(n - j, [&](auto tile, Index k) { f(tile, j + k); });
}

// The sum of N numbers, in pairs.
template <int N, class T> EG_FN T total(const T* x) {
  if constexpr (N == 1) {
    return x[0];
  } else {
    T half[N / 2];
    for (int v = 0; v < N / 2; ++v) half[v] = x[v] + x[v + N / 2];
    return total<N / 2>(half);
  }
}

// act(x w + b)
struct dense {
  static constexpr char OPERANDS[] = "pqni>t";
  template <class T, class Lane>
  EG_FN void operator()(const Lane&, Index m, Index k, Index n, T*, const T* x,
                        const T* w, const T* b, long long activation,
                        T* __restrict__ y) const {
    activated<T>(activation, [&](auto act) {
      for (Index i = 0; i < m; ++i, x += k, y += n)
        tiles(n, [&](auto tile, Index j) {
          T z[tile] = {};
          for (Index l = 0; l < k; ++l)
            for (int v = 0; v < tile; ++v)
              z[v] = multiply_add(x[l], w[l * n + j + v], z[v]);
          for (int v = 0; v < tile; ++v) y[j + v] = act(z[v] + b[j + v]);
        });
    });
  }
};

// The gradients of x, w and b.
struct dense_vjp {
  static constexpr char OPERANDS[] = "pqtti>pqn";
  template <class T, class Lane>
  EG_FN void operator()(const Lane&, Index m, Index k, Index n, T*, const T* x,
                        const T* w, const T* g, const T* y, long long activation,
                        T* __restrict__ dx, T* __restrict__ dw,
                        T* __restrict__ db) const {
    for (Index l = 0; l < m * k; ++l) dx[l] = T(0);
    for (Index l = 0; l < k * n; ++l) dw[l] = T(0);
    for (Index j = 0; j < n; ++j) db[j] = T(0);
    sloped<T>(activation, [&](auto slope) {
      for (Index i = 0; i < m; ++i, x += k, dx += k, g += n, y += n)
        tiles(n, [&](auto tile, Index j) {
          T dz[tile];
          for (int v = 0; v < tile; ++v) {
            dz[v] = slope(g[j + v], y[j + v]);
            db[j + v] += dz[v];
          }
          for (Index l = 0; l < k; ++l) {
            const T* row = w + l * n + j;
            T* to = dw + l * n + j;
            T part[tile];
            for (int v = 0; v < tile; ++v) {
              to[v] = multiply_add(x[l], dz[v], to[v]);
              part[v] = dz[v] * row[v];
            }
            dx[l] += total<tile>(part);
          }
        });
    });
  }
};

}  // namespace eg
