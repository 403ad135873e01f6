// Scalar formulas, once, for CUDA and for the host.
//
// Each function comes with its derivative `name_d`, which multiplies a cotangent `g`
// and takes what the op's rule in eagergrad/ops/elementwise.py takes: x, or y = name(x).
// Literals are T(...), so that float stays float; selections are ?:, never products with
// a mask, so that 0 * inf cannot arise.
#pragma once

#include <cmath>

#ifdef __CUDACC__
#define EG_FN __host__ __device__ inline
#else
#define EG_FN inline
#endif

namespace eg {

// 1 / (1 + exp(-x)); exp of minus the absolute value neither overflows nor cancels.
template <class T> EG_FN T sigmoid(T x) {
  using namespace std;
  T e = exp(-fabs(x));
  return (x >= T(0) ? T(1) : e) / (T(1) + e);
}
template <class T> EG_FN T sigmoid_d(T g, T y) { return g * (y * (T(1) - y)); }

// log(1 + exp(x))
template <class T> EG_FN T softplus(T x) {
  using namespace std;
  T top = x > T(0) ? x : T(0);
  return x != x ? x : top + log1p(exp(-fabs(x)));
}
template <class T> EG_FN T softplus_d(T g, T x) { return g * sigmoid(x); }

// max(x, 0); nan stays nan
template <class T> EG_FN T relu(T x) { return x != x ? x : (x > T(0) ? x : T(0)); }
template <class T> EG_FN T relu_d(T g, T y) { return y > T(0) ? g : T(0); }

template <class T> EG_FN T tanh(T x) { return std::tanh(x); }
template <class T> EG_FN T tanh_d(T g, T y) { return g * (T(1) - y * y); }

}  // namespace eg
