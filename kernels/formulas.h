// Printed by print_formulas.py from the rules in eagergrad/ops: edit those.
//
// NAME is the value of an op; NAME_dARGUMENT is its rule for one argument, of the
// cotangent and of what the rule reads; NAME_with_slope is the value, and what that
// rule multiplies the cotangent by.
#pragma once

#include "functions.h"

namespace eg {

struct quotient {
  template <class T> EG_FN T operator()(T a, T b) const {
    const bool t0 = a == T(0.0);
    const T t1 = a / b;
    const T t2 = t0 ? T(0.0) : t1;
    return t2;
  }
};

struct quotient_da {
  template <class T> EG_FN T operator()(T g, T b) const {
    const bool t0 = g == T(0.0);
    const T t1 = g / b;
    const T t2 = t0 ? T(0.0) : t1;
    return t2;
  }
};

struct quotient_db {
  template <class T> EG_FN T operator()(T g, T b, T y) const {
    const bool t0 = y == T(0.0);
    const T t1 = y * g;
    const T t2 = t0 ? T(0.0) : t1;
    const T t3 = -t2;
    const bool t4 = t3 == T(0.0);
    const T t5 = t3 / b;
    const T t6 = t4 ? T(0.0) : t5;
    return t6;
  }
};

struct product_da {
  template <class T> EG_FN T operator()(T g, T b) const {
    const bool t0 = g == T(0.0);
    const T t1 = g * b;
    const T t2 = t0 ? T(0.0) : t1;
    return t2;
  }
};

struct product_db {
  template <class T> EG_FN T operator()(T g, T a) const {
    const bool t0 = g == T(0.0);
    const T t1 = g * a;
    const T t2 = t0 ? T(0.0) : t1;
    return t2;
  }
};

struct divide_da {
  template <class T> EG_FN T operator()(T g, T b) const {
    const bool t0 = g == T(0.0);
    const T t1 = g / b;
    const T t2 = t0 ? T(0.0) : t1;
    return t2;
  }
};

struct divide_db {
  template <class T> EG_FN T operator()(T g, T a, T b) const {
    const bool t0 = g == T(0.0);
    const T t1 = g / b;
    const T t2 = t0 ? T(0.0) : t1;
    const T t3 = -t2;
    const T t4 = t3 * a;
    const bool t5 = t4 == T(0.0);
    const T t6 = t4 / b;
    const T t7 = t5 ? T(0.0) : t6;
    return t7;
  }
};

struct reciprocal_dx {
  template <class T> EG_FN T operator()(T g, T x) const {
    const bool t0 = g == T(0.0);
    const T t1 = g / x;
    const T t2 = t0 ? T(0.0) : t1;
    const bool t3 = t2 == T(0.0);
    const T t4 = t2 / x;
    const T t5 = t3 ? T(0.0) : t4;
    const T t6 = -t5;
    return t6;
  }
};

struct power_da {
  template <class T> EG_FN T operator()(T g, T a, T b) const {
    const bool t0 = b == T(0.0);
    const T t1 = t0 ? T(0.0) : g;
    const T t2 = b - T(1.0);
    const T t3 = t0 ? T(1.0) : t2;
    const T t4 = pow(a, t3);
    const T t5 = b * t4;
    const bool t6 = t1 == T(0.0);
    const T t7 = t1 * t5;
    const T t8 = t6 ? T(0.0) : t7;
    return t8;
  }
};

struct square_dx {
  template <class T> EG_FN T operator()(T g, T x) const {
    const T t0 = T(2.0) * x;
    const T t1 = g * t0;
    return t1;
  }
};

struct sqrt_dx {
  template <class T> EG_FN T operator()(T g, T y) const {
    const T t0 = T(0.5) * g;
    const bool t1 = t0 == T(0.0);
    const T t2 = t0 / y;
    const T t3 = t1 ? T(0.0) : t2;
    return t3;
  }
};

struct expm1_dx {
  template <class T> EG_FN T operator()(T g, T y) const {
    const T t0 = y + T(1.0);
    const T t1 = g * t0;
    return t1;
  }
};

struct log_dx {
  template <class T> EG_FN T operator()(T g, T x) const {
    const bool t0 = g == T(0.0);
    const T t1 = g / x;
    const T t2 = t0 ? T(0.0) : t1;
    return t2;
  }
};

struct log1p_dx {
  template <class T> EG_FN T operator()(T g, T x) const {
    const T t0 = T(1.0) + x;
    const bool t1 = g == T(0.0);
    const T t2 = g / t0;
    const T t3 = t1 ? T(0.0) : t2;
    return t3;
  }
};

struct sin_dx {
  template <class T> EG_FN T operator()(T g, T x) const {
    const T t0 = cos(x);
    const T t1 = g * t0;
    return t1;
  }
};

struct cos_dx {
  template <class T> EG_FN T operator()(T g, T x) const {
    const T t0 = -g;
    const T t1 = sin(x);
    const T t2 = t0 * t1;
    return t2;
  }
};

struct tanh_dx {
  template <class T> EG_FN T operator()(T g, T y) const {
    const T t0 = y * y;
    const T t1 = T(1.0) - t0;
    const T t2 = g * t1;
    return t2;
  }
};

struct sigmoid_slope {
  template <class T> EG_FN T operator()(T x) const {
    const T t0 = abs(x);
    const T t1 = -t0;
    const T t2 = exp_share(t1);
    const T t3 = T(1.0) + t2;
    const T t4 = T(1.0) / t3;
    const T t5 = t2 * t4;
    const T t6 = t5 * t4;
    return t6;
  }
};

struct sigmoid_slope_dx {
  template <class T> EG_FN T operator()(T g, T x, T y) const {
    const T t0 = -g;
    const T t1 = T(0.5) * x;
    const T t2 = tanh(t1);
    const T t3 = y * t2;
    const T t4 = t0 * t3;
    return t4;
  }
};

struct sigmoid {
  template <class T> EG_FN T operator()(T x) const {
    const T t0 = abs(x);
    const T t1 = -t0;
    const T t2 = exp_share(t1);
    const T t3 = T(1.0) + t2;
    const T t4 = T(1.0) / t3;
    const bool t5 = x >= T(0.0);
    const T t6 = t2 * t4;
    const T t7 = t5 ? t4 : t6;
    return t7;
  }
};

struct sigmoid_dx {
  template <class T> EG_FN T operator()(T g, T x) const {
    const T t0 = abs(x);
    const T t1 = -t0;
    const T t2 = exp_share(t1);
    const T t3 = T(1.0) + t2;
    const T t4 = T(1.0) / t3;
    const T t5 = t2 * t4;
    const T t6 = t5 * t4;
    const T t7 = g * t6;
    return t7;
  }
};

struct softplus {
  template <class T> EG_FN T operator()(T x) const {
    const T t0 = abs(x);
    const T t1 = -t0;
    const T t2 = maximum(x, T(0.0));
    const T t3 = exp_share(t1);
    const T t4 = log1p_share(t3);
    const T t5 = t2 + t4;
    return t5;
  }
  static constexpr int STAGES = 2, KEPT = 1;
  template <class T, class K>
  EG_FN void stage(Places<0>, T x, K kept, Index i,
                   T& y) const {
    const T t0 = abs(x);
    const T t1 = -t0;
    const T t3 = exp_share(t1);
    kept[0][i] = t3;
  }
  template <class T, class K>
  EG_FN void stage(Places<1>, T x, K kept, Index i,
                   T& y) const {
    const T t3 = kept[0][i];
    const T t2 = maximum(x, T(0.0));
    const T t4 = log1p_share(t3);
    const T t5 = t2 + t4;
    y = t5;
  }
};

struct softplus_dx {
  template <class T> EG_FN T operator()(T g, T x) const {
    const T t0 = abs(x);
    const T t1 = -t0;
    const T t2 = exp_share(t1);
    const T t3 = T(1.0) + t2;
    const T t4 = T(1.0) / t3;
    const bool t5 = x >= T(0.0);
    const T t6 = t2 * t4;
    const T t7 = t5 ? t4 : t6;
    const T t8 = g * t7;
    return t8;
  }
};

struct gate_dg_ {
  template <class T> EG_FN T operator()(T g, T y_) const {
    const bool t0 = y_ > T(0.0);
    const T t1 = t0 ? g : T(0.0);
    return t1;
  }
};

struct relu_dx {
  template <class T> EG_FN T operator()(T g, T y) const {
    const bool t0 = y > T(0.0);
    const T t1 = t0 ? g : T(0.0);
    return t1;
  }
};

struct maximum_da {
  template <class T> EG_FN T operator()(T g, T a, T b) const {
    const bool t0 = a >= b;
    const bool t1 = a != a;
    const bool t2 = t0 | t1;
    const T t3 = t2 ? g : T(0.0);
    return t3;
  }
};

struct maximum_db {
  template <class T> EG_FN T operator()(T g, T a, T b) const {
    const bool t0 = a >= b;
    const bool t1 = a != a;
    const bool t2 = t0 | t1;
    const T t3 = t2 ? T(0.0) : g;
    return t3;
  }
};

struct minimum_da {
  template <class T> EG_FN T operator()(T g, T a, T b) const {
    const bool t0 = a <= b;
    const bool t1 = a != a;
    const bool t2 = t0 | t1;
    const T t3 = t2 ? g : T(0.0);
    return t3;
  }
};

struct minimum_db {
  template <class T> EG_FN T operator()(T g, T a, T b) const {
    const bool t0 = a <= b;
    const bool t1 = a != a;
    const bool t2 = t0 | t1;
    const T t3 = t2 ? T(0.0) : g;
    return t3;
  }
};

struct clip_dx {
  template <class T> EG_FN T operator()(T g, T x, T low, T high) const {
    const bool t0 = x >= low;
    const bool t1 = x <= high;
    const bool t2 = t0 & t1;
    const T t3 = t2 ? g : T(0.0);
    return t3;
  }
};

struct clip_dlow {
  template <class T> EG_FN T operator()(T g, T x, T low, T high) const {
    const bool t0 = x < low;
    const bool t1 = low <= high;
    const bool t2 = t0 & t1;
    const T t3 = t2 ? g : T(0.0);
    return t3;
  }
};

struct clip_dhigh {
  template <class T> EG_FN T operator()(T g, T x, T low, T high) const {
    const bool t0 = x > high;
    const bool t1 = low > high;
    const bool t2 = t0 | t1;
    const T t3 = t2 ? g : T(0.0);
    return t3;
  }
};

struct erf_dx {
  template <class T> EG_FN T operator()(T g, T x) const {
    const T t0 = -x;
    const T t1 = t0 * x;
    const T t2 = exp(t1);
    const T t3 = T(1.1283791670955126) * t2;
    const T t4 = g * t3;
    return t4;
  }
};

struct erfc_dx {
  template <class T> EG_FN T operator()(T g, T x) const {
    const T t0 = -x;
    const T t1 = t0 * x;
    const T t2 = exp(t1);
    const T t3 = T(-1.1283791670955126) * t2;
    const T t4 = g * t3;
    return t4;
  }
};

struct erfcx_dx {
  template <class T> EG_FN T operator()(T g, T x, T y) const {
    const T t0 = T(2.0) * x;
    const T t1 = t0 * y;
    const T t2 = t1 - T(1.1283791670955126);
    const bool t3 = g == T(0.0);
    const T t4 = g * t2;
    const T t5 = t3 ? T(0.0) : t4;
    return t5;
  }
};

struct erfinv_dx {
  template <class T> EG_FN T operator()(T g, T y) const {
    const T t0 = y * y;
    const T t1 = exp(t0);
    const T t2 = t1 / T(1.1283791670955126);
    const bool t3 = g == T(0.0);
    const T t4 = g * t2;
    const T t5 = t3 ? T(0.0) : t4;
    return t5;
  }
};

struct density {
  template <class T> EG_FN T operator()(T x) const {
    const T t0 = normpdf(x);
    return t0;
  }
};

struct density_dx {
  template <class T> EG_FN T operator()(T g, T x, T y) const {
    const T t0 = -g;
    const bool t1 = y == T(0.0);
    const T t2 = y * x;
    const T t3 = t1 ? T(0.0) : t2;
    const T t4 = t0 * t3;
    return t4;
  }
};

struct ndtr {
  template <class T> EG_FN T operator()(T x) const {
    const T t0 = normcdf(x);
    return t0;
  }
};

struct ndtr_dx {
  template <class T> EG_FN T operator()(T g, T x) const {
    const T t0 = normpdf(x);
    const T t1 = g * t0;
    return t1;
  }
};

struct ndtri_dx {
  template <class T> EG_FN T operator()(T g, T y) const {
    const T t0 = T(0.5) * y;
    const T t1 = t0 * y;
    const T t2 = exp(t1);
    const T t3 = t2 * T(2.5066282746310002);
    const bool t4 = g == T(0.0);
    const T t5 = g * t3;
    const T t6 = t4 ? T(0.0) : t5;
    return t6;
  }
};

struct logit {
  template <class T> EG_FN T operator()(T x) const {
    const bool t0 = x > T(0.25);
    const T t1 = T(2.0) * x;
    const T t2 = t1 - T(1.0);
    const T t3 = t0 ? t2 : T(0.0);
    const T t4 = atanh(t3);
    const T t5 = T(2.0) * t4;
    const T t6 = log(x);
    const T t7 = -x;
    const T t8 = log1p(t7);
    const T t9 = t6 - t8;
    const T t10 = t0 ? t5 : t9;
    return t10;
  }
};

struct logit_dx {
  template <class T> EG_FN T operator()(T g, T x) const {
    const bool t0 = g == T(0.0);
    const T t1 = g / x;
    const T t2 = t0 ? T(0.0) : t1;
    const T t3 = T(1.0) - x;
    const T t4 = g / t3;
    const T t5 = t0 ? T(0.0) : t4;
    const T t6 = t2 + t5;
    return t6;
  }
};

struct xlogy {
  template <class T> EG_FN T operator()(T a, T b) const {
    const bool t0 = a == T(0.0);
    const bool t1 = b == b;
    const bool t2 = t0 & t1;
    const T t3 = log(b);
    const T t4 = a * t3;
    const T t5 = t2 ? T(0.0) : t4;
    return t5;
  }
};

struct xlogy_da {
  template <class T> EG_FN T operator()(T g, T b) const {
    const bool t0 = g == T(0.0);
    const bool t1 = b == b;
    const bool t2 = t0 & t1;
    const T t3 = log(b);
    const T t4 = g * t3;
    const T t5 = t2 ? T(0.0) : t4;
    return t5;
  }
};

struct xlogy_db {
  template <class T> EG_FN T operator()(T g, T a, T b) const {
    const T t0 = g * a;
    const bool t1 = t0 == T(0.0);
    const T t2 = t0 / b;
    const T t3 = t1 ? T(0.0) : t2;
    return t3;
  }
};

struct xlog1py {
  template <class T> EG_FN T operator()(T a, T b) const {
    const bool t0 = a == T(0.0);
    const bool t1 = b == b;
    const bool t2 = t0 & t1;
    const T t3 = log1p(b);
    const T t4 = a * t3;
    const T t5 = t2 ? T(0.0) : t4;
    return t5;
  }
};

struct xlog1py_da {
  template <class T> EG_FN T operator()(T g, T b) const {
    const bool t0 = g == T(0.0);
    const bool t1 = b == b;
    const bool t2 = t0 & t1;
    const T t3 = log1p(b);
    const T t4 = g * t3;
    const T t5 = t2 ? T(0.0) : t4;
    return t5;
  }
};

struct xlog1py_db {
  template <class T> EG_FN T operator()(T g, T a, T b) const {
    const T t0 = g * a;
    const T t1 = T(1.0) + b;
    const bool t2 = t0 == T(0.0);
    const T t3 = t0 / t1;
    const T t4 = t2 ? T(0.0) : t3;
    return t4;
  }
};

struct entr_dx {
  template <class T> EG_FN T operator()(T g, T x) const {
    const T t0 = log(x);
    const T t1 = -t0;
    const T t2 = t1 - T(1.0);
    const bool t3 = g == T(0.0);
    const T t4 = g * t2;
    const T t5 = t3 ? T(0.0) : t4;
    return t5;
  }
};

struct hard_sigmoid {
  template <class T> EG_FN T operator()(T x) const {
    const T t0 = x / T(6.0);
    const T t1 = t0 + T(0.5);
    const T t2 = maximum(t1, T(0.0));
    const T t3 = minimum(t2, T(1.0));
    return t3;
  }
};

struct hard_sigmoid_dx {
  template <class T> EG_FN T operator()(T g, T x) const {
    const bool t0 = x > T(-3.0);
    const bool t1 = x < T(3.0);
    const bool t2 = t0 & t1;
    const T t3 = g / T(6.0);
    const T t4 = t2 ? t3 : T(0.0);
    return t4;
  }
};

struct hard_swish {
  template <class T> EG_FN T operator()(T x) const {
    const T t0 = x / T(6.0);
    const T t1 = t0 + T(0.5);
    const T t2 = maximum(t1, T(0.0));
    const T t3 = minimum(t2, T(1.0));
    const bool t4 = t3 == T(0.0);
    const T t5 = t3 * x;
    const T t6 = t4 ? T(0.0) : t5;
    return t6;
  }
};

struct hard_swish_dx {
  template <class T> EG_FN T operator()(T g, T x) const {
    const bool t0 = x < T(3.0);
    const bool t1 = x > T(-3.0);
    const T t2 = x / T(3.0);
    const T t3 = t2 + T(0.5);
    const bool t4 = g == T(0.0);
    const T t5 = g * t3;
    const T t6 = t4 ? T(0.0) : t5;
    const T t7 = t1 ? t6 : T(0.0);
    const T t8 = t0 ? t7 : g;
    return t8;
  }
};

struct log_sigmoid {
  template <class T> EG_FN T operator()(T x) const {
    const T t0 = -x;
    const T t1 = abs(t0);
    const T t2 = -t1;
    const T t3 = maximum(t0, T(0.0));
    const T t4 = exp_share(t2);
    const T t5 = log1p_share(t4);
    const T t6 = t3 + t5;
    const T t7 = -t6;
    return t7;
  }
  static constexpr int STAGES = 2, KEPT = 2;
  template <class T, class K>
  EG_FN void stage(Places<0>, T x, K kept, Index i,
                   T& y) const {
    const T t0 = -x;
    const T t1 = abs(t0);
    const T t2 = -t1;
    const T t4 = exp_share(t2);
    kept[0][i] = t0;
    kept[1][i] = t4;
  }
  template <class T, class K>
  EG_FN void stage(Places<1>, T x, K kept, Index i,
                   T& y) const {
    const T t0 = kept[0][i];
    const T t4 = kept[1][i];
    const T t3 = maximum(t0, T(0.0));
    const T t5 = log1p_share(t4);
    const T t6 = t3 + t5;
    const T t7 = -t6;
    y = t7;
  }
};

struct log_sigmoid_dx {
  template <class T> EG_FN T operator()(T g, T x) const {
    const T t0 = -x;
    const T t1 = abs(t0);
    const T t2 = -t1;
    const T t3 = exp_share(t2);
    const T t4 = T(1.0) + t3;
    const T t5 = T(1.0) / t4;
    const bool t6 = t0 >= T(0.0);
    const T t7 = t3 * t5;
    const T t8 = t6 ? t5 : t7;
    const T t9 = g * t8;
    return t9;
  }
};

struct softsign {
  template <class T> EG_FN T operator()(T x) const {
    const T t0 = abs(x);
    const bool t1 = t0 == T(INFINITY);
    const T t2 = sign(x);
    const T t3 = T(1.0) + t0;
    const T t4 = x / t3;
    const T t5 = t1 ? t2 : t4;
    return t5;
  }
};

struct softsign_dx {
  template <class T> EG_FN T operator()(T g, T x) const {
    const T t0 = abs(x);
    const T t1 = T(1.0) + t0;
    const T t2 = g / t1;
    const T t3 = t2 / t1;
    return t3;
  }
};

struct tanhshrink {
  template <class T> EG_FN T operator()(T x) const {
    const T t0 = abs(x);
    const bool t1 = t0 < T(1.0);
    const T t2 = x * x;
    const T t3 = t1 ? t2 : T(0.0);
    const T t4 = t3 / T(21.0);
    const T t5 = T(19.0) + t4;
    const T t6 = t3 / t5;
    const T t7 = T(17.0) + t6;
    const T t8 = t3 / t7;
    const T t9 = T(15.0) + t8;
    const T t10 = t3 / t9;
    const T t11 = T(13.0) + t10;
    const T t12 = t3 / t11;
    const T t13 = T(11.0) + t12;
    const T t14 = t3 / t13;
    const T t15 = T(9.0) + t14;
    const T t16 = t3 / t15;
    const T t17 = T(7.0) + t16;
    const T t18 = t3 / t17;
    const T t19 = T(5.0) + t18;
    const T t20 = t3 / t19;
    const T t21 = T(3.0) + t20;
    const T t22 = x * t3;
    const T t23 = t21 + t3;
    const T t24 = t22 / t23;
    const T t25 = tanh(x);
    const T t26 = x - t25;
    const T t27 = t1 ? t24 : t26;
    return t27;
  }
};

struct tanhshrink_dx {
  template <class T> EG_FN T operator()(T g, T x) const {
    const T t0 = tanh(x);
    const T t1 = t0 * t0;
    const T t2 = g * t1;
    return t2;
  }
};

struct silu {
  template <class T> EG_FN T operator()(T x) const {
    const T t0 = maximum(x, T(-10000.0));
    const T t1 = abs(t0);
    const T t2 = -t1;
    const T t3 = exp_share(t2);
    const bool t4 = t0 >= T(0.0);
    const T t5 = t0 * t3;
    const T t6 = t4 ? t0 : t5;
    const T t7 = T(1.0) + t3;
    const T t8 = t6 / t7;
    return t8;
  }
};

struct silu_dx {
  template <class T> EG_FN T operator()(T g, T x) const {
    const T t0 = abs(x);
    const T t1 = -t0;
    const T t2 = exp_share(t1);
    const T t3 = T(1.0) + t2;
    const T t4 = T(1.0) / t3;
    const bool t5 = x >= T(0.0);
    const T t6 = t2 * t4;
    const T t7 = t5 ? t4 : t6;
    const T t8 = T(1.0) - t7;
    const T t9 = t7 * t8;
    const bool t10 = t9 == T(0.0);
    const T t11 = t9 * x;
    const T t12 = t10 ? T(0.0) : t11;
    const T t13 = t7 + t12;
    const T t14 = g * t13;
    return t14;
  }
};

struct mish {
  template <class T> EG_FN T operator()(T x) const {
    const T t0 = abs(x);
    const T t1 = -t0;
    const T t2 = maximum(x, T(0.0));
    const T t3 = exp_share(t1);
    const T t4 = log1p_share(t3);
    const T t5 = t2 + t4;
    const T t6 = tanh(t5);
    const T t7 = maximum(x, T(-10000.0));
    const T t8 = t7 * t6;
    return t8;
  }
  static constexpr int STAGES = 3, KEPT = 1;
  template <class T, class K>
  EG_FN void stage(Places<0>, T x, K kept, Index i,
                   T& y) const {
    const T t0 = abs(x);
    const T t1 = -t0;
    const T t3 = exp_share(t1);
    kept[0][i] = t3;
  }
  template <class T, class K>
  EG_FN void stage(Places<1>, T x, K kept, Index i,
                   T& y) const {
    const T t3 = kept[0][i];
    const T t4 = log1p_share(t3);
    kept[0][i] = t4;
  }
  template <class T, class K>
  EG_FN void stage(Places<2>, T x, K kept, Index i,
                   T& y) const {
    const T t4 = kept[0][i];
    const T t2 = maximum(x, T(0.0));
    const T t5 = t2 + t4;
    const T t6 = tanh(t5);
    const T t7 = maximum(x, T(-10000.0));
    const T t8 = t7 * t6;
    y = t8;
  }
};

struct mish_dx {
  template <class T> EG_FN T operator()(T g, T x) const {
    const T t0 = abs(x);
    const T t1 = -t0;
    const T t2 = maximum(x, T(0.0));
    const T t3 = exp_share(t1);
    const T t4 = log1p_share(t3);
    const T t5 = t2 + t4;
    const T t6 = tanh(t5);
    const T t7 = t6 * t6;
    const T t8 = T(1.0) - t7;
    const T t9 = T(1.0) + t3;
    const T t10 = T(1.0) / t9;
    const bool t11 = x >= T(0.0);
    const T t12 = t3 * t10;
    const T t13 = t11 ? t10 : t12;
    const T t14 = t8 * t13;
    const bool t15 = t14 == T(0.0);
    const T t16 = t14 * x;
    const T t17 = t15 ? T(0.0) : t16;
    const T t18 = t6 + t17;
    const T t19 = g * t18;
    return t19;
  }
  static constexpr int STAGES = 3, KEPT = 2;
  template <class T, class K>
  EG_FN void stage(Places<0>, T g, T x, K kept, Index i,
                   T& y) const {
    const T t0 = abs(x);
    const T t1 = -t0;
    const T t3 = exp_share(t1);
    kept[0][i] = t3;
  }
  template <class T, class K>
  EG_FN void stage(Places<1>, T g, T x, K kept, Index i,
                   T& y) const {
    const T t3 = kept[0][i];
    const T t4 = log1p_share(t3);
    kept[1][i] = t4;
  }
  template <class T, class K>
  EG_FN void stage(Places<2>, T g, T x, K kept, Index i,
                   T& y) const {
    const T t3 = kept[0][i];
    const T t4 = kept[1][i];
    const T t2 = maximum(x, T(0.0));
    const T t5 = t2 + t4;
    const T t6 = tanh(t5);
    const T t7 = t6 * t6;
    const T t8 = T(1.0) - t7;
    const T t9 = T(1.0) + t3;
    const T t10 = T(1.0) / t9;
    const bool t11 = x >= T(0.0);
    const T t12 = t3 * t10;
    const T t13 = t11 ? t10 : t12;
    const T t14 = t8 * t13;
    const bool t15 = t14 == T(0.0);
    const T t16 = t14 * x;
    const T t17 = t15 ? T(0.0) : t16;
    const T t18 = t6 + t17;
    const T t19 = g * t18;
    y = t19;
  }
};

struct gelu {
  template <class T> EG_FN T operator()(T x) const {
    const T t0 = maximum(x, T(-10000.0));
    const T t1 = normcdf(x);
    const T t2 = t0 * t1;
    return t2;
  }
};

struct gelu_dx {
  template <class T> EG_FN T operator()(T g, T x) const {
    const T t0 = normcdf(x);
    const T t1 = normpdf(x);
    const bool t2 = t1 == T(0.0);
    const T t3 = t1 * x;
    const T t4 = t2 ? T(0.0) : t3;
    const T t5 = t0 + t4;
    const T t6 = g * t5;
    return t6;
  }
};

struct gelu_tanh {
  template <class T> EG_FN T operator()(T x) const {
    const T t0 = maximum(x, T(-10000.0));
    const T t1 = T(0.044715) * x;
    const T t2 = t1 * x;
    const T t3 = t2 * x;
    const T t4 = x + t3;
    const T t5 = T(1.5957691216057308) * t4;
    const T t6 = abs(t5);
    const T t7 = -t6;
    const T t8 = exp_share(t7);
    const T t9 = T(1.0) + t8;
    const T t10 = T(1.0) / t9;
    const bool t11 = t5 >= T(0.0);
    const T t12 = t8 * t10;
    const T t13 = t11 ? t10 : t12;
    const T t14 = t0 * t13;
    return t14;
  }
};

struct gelu_tanh_dx {
  template <class T> EG_FN T operator()(T g, T x) const {
    const T t0 = T(0.044715) * x;
    const T t1 = t0 * x;
    const T t2 = t1 * x;
    const T t3 = x + t2;
    const T t4 = T(1.5957691216057308) * t3;
    const T t5 = abs(t4);
    const T t6 = -t5;
    const T t7 = exp_share(t6);
    const T t8 = T(1.0) + t7;
    const T t9 = T(1.0) / t8;
    const bool t10 = t4 >= T(0.0);
    const T t11 = t7 * t9;
    const T t12 = t10 ? t9 : t11;
    const T t13 = T(0.134145) * x;
    const T t14 = t13 * x;
    const T t15 = T(1.0) + t14;
    const T t16 = T(1.5957691216057308) * t15;
    const T t17 = T(1.0) - t12;
    const T t18 = t12 * t17;
    const bool t19 = t16 == T(0.0);
    const T t20 = t16 * x;
    const T t21 = t19 ? T(0.0) : t20;
    const bool t22 = t18 == T(0.0);
    const T t23 = t18 * t21;
    const T t24 = t22 ? T(0.0) : t23;
    const T t25 = t12 + t24;
    const T t26 = g * t25;
    return t26;
  }
};

struct sigmoid_loss {
  template <class T> EG_FN T operator()(T a, T b) const {
    const T t0 = abs(a);
    const bool t1 = a > T(0.0);
    const T t2 = T(1.0) - b;
    const T t3 = t1 ? t2 : b;
    const bool t4 = t3 == T(0.0);
    const T t5 = t3 * t0;
    const T t6 = t4 ? T(0.0) : t5;
    const T t7 = -t0;
    const T t8 = exp_share(t7);
    const T t9 = log1p(t8);
    const T t10 = t6 + t9;
    return t10;
  }
  static constexpr int STAGES = 2, KEPT = 2;
  template <class T, class K>
  EG_FN void stage(Places<0>, T a, T b, K kept, Index i,
                   T& y) const {
    const T t0 = abs(a);
    const T t7 = -t0;
    const T t8 = exp_share(t7);
    kept[0][i] = t0;
    kept[1][i] = t8;
  }
  template <class T, class K>
  EG_FN void stage(Places<1>, T a, T b, K kept, Index i,
                   T& y) const {
    const T t0 = kept[0][i];
    const T t8 = kept[1][i];
    const bool t1 = a > T(0.0);
    const T t2 = T(1.0) - b;
    const T t3 = t1 ? t2 : b;
    const bool t4 = t3 == T(0.0);
    const T t5 = t3 * t0;
    const T t6 = t4 ? T(0.0) : t5;
    const T t9 = log1p(t8);
    const T t10 = t6 + t9;
    y = t10;
  }
};

struct sigmoid_loss_da {
  template <class T> EG_FN T operator()(T g, T a, T b) const {
    const T t0 = T(1.0) - b;
    const T t1 = abs(a);
    const T t2 = -t1;
    const T t3 = exp_share(t2);
    const T t4 = T(1.0) + t3;
    const T t5 = T(1.0) / t4;
    const bool t6 = a >= T(0.0);
    const T t7 = t3 * t5;
    const T t8 = t6 ? t5 : t7;
    const T t9 = t0 * t8;
    const T t10 = -a;
    const T t11 = abs(t10);
    const T t12 = -t11;
    const T t13 = exp_share(t12);
    const T t14 = T(1.0) + t13;
    const T t15 = T(1.0) / t14;
    const bool t16 = t10 >= T(0.0);
    const T t17 = t13 * t15;
    const T t18 = t16 ? t15 : t17;
    const T t19 = b * t18;
    const T t20 = t9 - t19;
    const T t21 = g * t20;
    return t21;
  }
};

struct sigmoid_loss_db {
  template <class T> EG_FN T operator()(T g, T a) const {
    const bool t0 = g == T(0.0);
    const T t1 = g * a;
    const T t2 = t0 ? T(0.0) : t1;
    const T t3 = -t2;
    return t3;
  }
};

struct tan_dx {
  template <class T> EG_FN T operator()(T g, T y) const {
    const T t0 = y * y;
    const T t1 = T(1.0) + t0;
    const T t2 = g * t1;
    return t2;
  }
};

struct unit_leg {
  template <class T> EG_FN T operator()(T x) const {
    const T t0 = T(1.0) - x;
    const T t1 = T(1.0) + x;
    const T t2 = t0 * t1;
    const T t3 = sqrt(t2);
    return t3;
  }
};

struct unit_leg_dx {
  template <class T> EG_FN T operator()(T g, T x, T y) const {
    const T t0 = g * x;
    const bool t1 = t0 == T(0.0);
    const T t2 = t0 / y;
    const T t3 = t1 ? T(0.0) : t2;
    const T t4 = -t3;
    return t4;
  }
};

struct arcsin_dx {
  template <class T> EG_FN T operator()(T g, T x) const {
    const T t0 = T(1.0) - x;
    const T t1 = T(1.0) + x;
    const T t2 = t0 * t1;
    const T t3 = sqrt(t2);
    const bool t4 = g == T(0.0);
    const T t5 = g / t3;
    const T t6 = t4 ? T(0.0) : t5;
    return t6;
  }
};

struct arccos_dx {
  template <class T> EG_FN T operator()(T g, T x) const {
    const T t0 = T(1.0) - x;
    const T t1 = T(1.0) + x;
    const T t2 = t0 * t1;
    const T t3 = sqrt(t2);
    const bool t4 = g == T(0.0);
    const T t5 = g / t3;
    const T t6 = t4 ? T(0.0) : t5;
    const T t7 = -t6;
    return t7;
  }
};

struct sinh_dx {
  template <class T> EG_FN T operator()(T g, T x) const {
    const T t0 = cosh(x);
    const T t1 = g * t0;
    return t1;
  }
};

struct cosh_dx {
  template <class T> EG_FN T operator()(T g, T x) const {
    const T t0 = sinh(x);
    const T t1 = g * t0;
    return t1;
  }
};

struct arcsinh_dx {
  template <class T> EG_FN T operator()(T g, T x) const {
    const T t0 = hypot(x, T(1.0));
    const bool t1 = g == T(0.0);
    const T t2 = g / t0;
    const T t3 = t1 ? T(0.0) : t2;
    return t3;
  }
};

struct arccosh_dx {
  template <class T> EG_FN T operator()(T g, T x) const {
    const T t0 = x - T(1.0);
    const T t1 = sqrt(t0);
    const bool t2 = g == T(0.0);
    const T t3 = g / t1;
    const T t4 = t2 ? T(0.0) : t3;
    const T t5 = x + T(1.0);
    const T t6 = sqrt(t5);
    const bool t7 = t4 == T(0.0);
    const T t8 = t4 / t6;
    const T t9 = t7 ? T(0.0) : t8;
    return t9;
  }
};

struct arctanh_dx {
  template <class T> EG_FN T operator()(T g, T x) const {
    const T t0 = T(1.0) - x;
    const bool t1 = g == T(0.0);
    const T t2 = g / t0;
    const T t3 = t1 ? T(0.0) : t2;
    const T t4 = T(1.0) + x;
    const T t5 = g / t4;
    const T t6 = t1 ? T(0.0) : t5;
    const T t7 = t3 + t6;
    const T t8 = T(0.5) * t7;
    return t8;
  }
};

struct arctan2_da {
  template <class T> EG_FN T operator()(T g, T a, T b) const {
    const T t0 = hypot(b, a);
    const bool t1 = b == T(0.0);
    const T t2 = b / t0;
    const T t3 = t1 ? T(0.0) : t2;
    const T t4 = g * t3;
    const bool t5 = t4 == T(0.0);
    const T t6 = t4 / t0;
    const T t7 = t5 ? T(0.0) : t6;
    return t7;
  }
};

struct arctan2_db {
  template <class T> EG_FN T operator()(T g, T a, T b) const {
    const T t0 = hypot(a, b);
    const bool t1 = a == T(0.0);
    const T t2 = a / t0;
    const T t3 = t1 ? T(0.0) : t2;
    const T t4 = g * t3;
    const bool t5 = t4 == T(0.0);
    const T t6 = t4 / t0;
    const T t7 = t5 ? T(0.0) : t6;
    const T t8 = -t7;
    return t8;
  }
};

struct hypot_da {
  template <class T> EG_FN T operator()(T g, T a, T y) const {
    const bool t0 = a == T(0.0);
    const T t1 = a / y;
    const T t2 = t0 ? T(0.0) : t1;
    const T t3 = g * t2;
    return t3;
  }
};

struct hypot_db {
  template <class T> EG_FN T operator()(T g, T b, T y) const {
    const bool t0 = b == T(0.0);
    const T t1 = b / y;
    const T t2 = t0 ? T(0.0) : t1;
    const T t3 = g * t2;
    return t3;
  }
};

struct exp2_dx {
  template <class T> EG_FN T operator()(T g, T y) const {
    const T t0 = y * T(0.6931471805599453);
    const T t1 = g * t0;
    return t1;
  }
};

struct log2_dx {
  template <class T> EG_FN T operator()(T g, T x) const {
    const T t0 = g / T(0.6931471805599453);
    const bool t1 = t0 == T(0.0);
    const T t2 = t0 / x;
    const T t3 = t1 ? T(0.0) : t2;
    return t3;
  }
};

struct log10_dx {
  template <class T> EG_FN T operator()(T g, T x) const {
    const T t0 = g / T(2.302585092994046);
    const bool t1 = t0 == T(0.0);
    const T t2 = t0 / x;
    const T t3 = t1 ? T(0.0) : t2;
    return t3;
  }
};

struct cbrt_dx {
  template <class T> EG_FN T operator()(T g, T y) const {
    const T t0 = g / T(3.0);
    const bool t1 = t0 == T(0.0);
    const T t2 = t0 / y;
    const T t3 = t1 ? T(0.0) : t2;
    const bool t4 = t3 == T(0.0);
    const T t5 = t3 / y;
    const T t6 = t4 ? T(0.0) : t5;
    return t6;
  }
};

struct logaddexp {
  template <class T> EG_FN T operator()(T a, T b) const {
    const bool t0 = a == b;
    const T t1 = a - b;
    const T t2 = abs(t1);
    const T t3 = -t2;
    const T t4 = t0 ? T(0.0) : t3;
    const T t5 = maximum(a, b);
    const T t6 = exp_share(t4);
    const T t7 = log1p_share(t6);
    const T t8 = t5 + t7;
    return t8;
  }
  static constexpr int STAGES = 2, KEPT = 1;
  template <class T, class K>
  EG_FN void stage(Places<0>, T a, T b, K kept, Index i,
                   T& y) const {
    const bool t0 = a == b;
    const T t1 = a - b;
    const T t2 = abs(t1);
    const T t3 = -t2;
    const T t4 = t0 ? T(0.0) : t3;
    const T t6 = exp_share(t4);
    kept[0][i] = t6;
  }
  template <class T, class K>
  EG_FN void stage(Places<1>, T a, T b, K kept, Index i,
                   T& y) const {
    const T t6 = kept[0][i];
    const T t5 = maximum(a, b);
    const T t7 = log1p_share(t6);
    const T t8 = t5 + t7;
    y = t8;
  }
};

struct logaddexp_da {
  template <class T> EG_FN T operator()(T g, T a, T b) const {
    const bool t0 = a == b;
    const T t1 = abs(a);
    const bool t2 = t1 == T(INFINITY);
    const bool t3 = t0 & t2;
    const T t4 = a - b;
    const T t5 = t3 ? T(0.0) : t4;
    const T t6 = abs(t5);
    const T t7 = -t6;
    const T t8 = exp_share(t7);
    const T t9 = T(1.0) + t8;
    const T t10 = T(1.0) / t9;
    const bool t11 = t5 >= T(0.0);
    const T t12 = t8 * t10;
    const T t13 = t11 ? t10 : t12;
    const T t14 = g * t13;
    return t14;
  }
};

struct logaddexp_db {
  template <class T> EG_FN T operator()(T g, T a, T b) const {
    const bool t0 = b == a;
    const T t1 = abs(b);
    const bool t2 = t1 == T(INFINITY);
    const bool t3 = t0 & t2;
    const T t4 = b - a;
    const T t5 = t3 ? T(0.0) : t4;
    const T t6 = abs(t5);
    const T t7 = -t6;
    const T t8 = exp_share(t7);
    const T t9 = T(1.0) + t8;
    const T t10 = T(1.0) / t9;
    const bool t11 = t5 >= T(0.0);
    const T t12 = t8 * t10;
    const T t13 = t11 ? t10 : t12;
    const T t14 = g * t13;
    return t14;
  }
};

struct logaddexp2_da {
  template <class T> EG_FN T operator()(T g, T a, T b) const {
    const bool t0 = a == b;
    const T t1 = abs(a);
    const bool t2 = t1 == T(INFINITY);
    const bool t3 = t0 & t2;
    const T t4 = a - b;
    const T t5 = t4 * T(0.6931471805599453);
    const T t6 = t3 ? T(0.0) : t5;
    const T t7 = abs(t6);
    const T t8 = -t7;
    const T t9 = exp_share(t8);
    const T t10 = T(1.0) + t9;
    const T t11 = T(1.0) / t10;
    const bool t12 = t6 >= T(0.0);
    const T t13 = t9 * t11;
    const T t14 = t12 ? t11 : t13;
    const T t15 = g * t14;
    return t15;
  }
};

struct logaddexp2_db {
  template <class T> EG_FN T operator()(T g, T a, T b) const {
    const bool t0 = b == a;
    const T t1 = abs(b);
    const bool t2 = t1 == T(INFINITY);
    const bool t3 = t0 & t2;
    const T t4 = b - a;
    const T t5 = t4 * T(0.6931471805599453);
    const T t6 = t3 ? T(0.0) : t5;
    const T t7 = abs(t6);
    const T t8 = -t7;
    const T t9 = exp_share(t8);
    const T t10 = T(1.0) + t9;
    const T t11 = T(1.0) / t10;
    const bool t12 = t6 >= T(0.0);
    const T t13 = t9 * t11;
    const T t14 = t12 ? t11 : t13;
    const T t15 = g * t14;
    return t15;
  }
};

struct copysign_da {
  template <class T> EG_FN T operator()(T g, T a, T y) const {
    const T t0 = sign(a);
    const T t1 = sign(y);
    const T t2 = t0 * t1;
    const T t3 = g * t2;
    return t3;
  }
};

struct fmod_db {
  template <class T> EG_FN T operator()(T g, T a, T b, T y) const {
    const T t0 = a - y;
    const bool t1 = t0 == T(0.0);
    const T t2 = t0 / b;
    const T t3 = t1 ? T(0.0) : t2;
    const T t4 = rint(t3);
    const bool t5 = g == T(0.0);
    const T t6 = g * t4;
    const T t7 = t5 ? T(0.0) : t6;
    const T t8 = -t7;
    return t8;
  }
};

struct fmax_da {
  template <class T> EG_FN T operator()(T g, T a, T b) const {
    const bool t0 = a >= b;
    const bool t1 = b != b;
    const bool t2 = t0 | t1;
    const T t3 = t2 ? g : T(0.0);
    return t3;
  }
};

struct fmax_db {
  template <class T> EG_FN T operator()(T g, T a, T b) const {
    const bool t0 = a >= b;
    const bool t1 = b != b;
    const bool t2 = t0 | t1;
    const T t3 = t2 ? T(0.0) : g;
    return t3;
  }
};

struct fmin_da {
  template <class T> EG_FN T operator()(T g, T a, T b) const {
    const bool t0 = a <= b;
    const bool t1 = b != b;
    const bool t2 = t0 | t1;
    const T t3 = t2 ? g : T(0.0);
    return t3;
  }
};

struct fmin_db {
  template <class T> EG_FN T operator()(T g, T a, T b) const {
    const bool t0 = a <= b;
    const bool t1 = b != b;
    const bool t2 = t0 | t1;
    const T t3 = t2 ? T(0.0) : g;
    return t3;
  }
};

struct heaviside_db {
  template <class T> EG_FN T operator()(T g, T a) const {
    const bool t0 = a == T(0.0);
    const T t1 = t0 ? g : T(0.0);
    return t1;
  }
};

struct times_slope {
  template <class T> EG_FN T operator()(T g, T slope) const {
    const T t0 = g * slope;
    return t0;
  }
};

struct tanhshrink_with_slope {
  static constexpr int RESULTS = 2;
  template <class T> EG_FN void operator()(T x, T& value, T& slope) const {
    const T t0 = abs(x);
    const bool t1 = t0 < T(1.0);
    const T t2 = x * x;
    const T t3 = t1 ? t2 : T(0.0);
    const T t4 = t3 / T(21.0);
    const T t5 = T(19.0) + t4;
    const T t6 = t3 / t5;
    const T t7 = T(17.0) + t6;
    const T t8 = t3 / t7;
    const T t9 = T(15.0) + t8;
    const T t10 = t3 / t9;
    const T t11 = T(13.0) + t10;
    const T t12 = t3 / t11;
    const T t13 = T(11.0) + t12;
    const T t14 = t3 / t13;
    const T t15 = T(9.0) + t14;
    const T t16 = t3 / t15;
    const T t17 = T(7.0) + t16;
    const T t18 = t3 / t17;
    const T t19 = T(5.0) + t18;
    const T t20 = t3 / t19;
    const T t21 = T(3.0) + t20;
    const T t22 = x * t3;
    const T t23 = t21 + t3;
    const T t24 = t22 / t23;
    const T t25 = tanh(x);
    const T t26 = x - t25;
    const T t27 = t1 ? t24 : t26;
    const T t28 = t25 * t25;
    value = t27;
    slope = t28;
  }
};

struct mish_with_slope {
  static constexpr int RESULTS = 2;
  template <class T> EG_FN void operator()(T x, T& value, T& slope) const {
    const T t0 = abs(x);
    const T t1 = -t0;
    const T t2 = maximum(x, T(0.0));
    const T t3 = exp_share(t1);
    const T t4 = log1p_share(t3);
    const T t5 = t2 + t4;
    const T t6 = tanh(t5);
    const T t7 = maximum(x, T(-10000.0));
    const T t8 = t7 * t6;
    const T t9 = t6 * t6;
    const T t10 = T(1.0) - t9;
    const T t11 = T(1.0) + t3;
    const T t12 = T(1.0) / t11;
    const bool t13 = x >= T(0.0);
    const T t14 = t3 * t12;
    const T t15 = t13 ? t12 : t14;
    const T t16 = t10 * t15;
    const bool t17 = t16 == T(0.0);
    const T t18 = t16 * x;
    const T t19 = t17 ? T(0.0) : t18;
    const T t20 = t6 + t19;
    value = t8;
    slope = t20;
  }
  static constexpr int STAGES = 3, KEPT = 2;
  template <class T, class K>
  EG_FN void stage(Places<0>, T x, K kept, Index i,
                   T& value, T& slope) const {
    const T t0 = abs(x);
    const T t1 = -t0;
    const T t3 = exp_share(t1);
    kept[0][i] = t3;
  }
  template <class T, class K>
  EG_FN void stage(Places<1>, T x, K kept, Index i,
                   T& value, T& slope) const {
    const T t3 = kept[0][i];
    const T t4 = log1p_share(t3);
    kept[1][i] = t4;
  }
  template <class T, class K>
  EG_FN void stage(Places<2>, T x, K kept, Index i,
                   T& value, T& slope) const {
    const T t3 = kept[0][i];
    const T t4 = kept[1][i];
    const T t2 = maximum(x, T(0.0));
    const T t5 = t2 + t4;
    const T t6 = tanh(t5);
    const T t7 = maximum(x, T(-10000.0));
    const T t8 = t7 * t6;
    const T t9 = t6 * t6;
    const T t10 = T(1.0) - t9;
    const T t11 = T(1.0) + t3;
    const T t12 = T(1.0) / t11;
    const bool t13 = x >= T(0.0);
    const T t14 = t3 * t12;
    const T t15 = t13 ? t12 : t14;
    const T t16 = t10 * t15;
    const bool t17 = t16 == T(0.0);
    const T t18 = t16 * x;
    const T t19 = t17 ? T(0.0) : t18;
    const T t20 = t6 + t19;
    value = t8;
    slope = t20;
  }
};

struct gelu_with_slope {
  static constexpr int RESULTS = 2;
  template <class T> EG_FN void operator()(T x, T& value, T& slope) const {
    const T t0 = maximum(x, T(-10000.0));
    const T t1 = normcdf(x);
    const T t2 = t0 * t1;
    const T t3 = normpdf(x);
    const bool t4 = t3 == T(0.0);
    const T t5 = t3 * x;
    const T t6 = t4 ? T(0.0) : t5;
    const T t7 = t1 + t6;
    value = t2;
    slope = t7;
  }
};

}  // namespace eg

// All of them.
#define EG_FORMULAS(X) \
  X(quotient, 2) \
  X(quotient_da, 2) \
  X(quotient_db, 3) \
  X(product_da, 2) \
  X(product_db, 2) \
  X(divide_da, 2) \
  X(divide_db, 3) \
  X(reciprocal_dx, 2) \
  X(power_da, 3) \
  X(square_dx, 2) \
  X(sqrt_dx, 2) \
  X(expm1_dx, 2) \
  X(log_dx, 2) \
  X(log1p_dx, 2) \
  X(sin_dx, 2) \
  X(cos_dx, 2) \
  X(tanh_dx, 2) \
  X(sigmoid_slope, 1) \
  X(sigmoid_slope_dx, 3) \
  X(sigmoid, 1) \
  X(sigmoid_dx, 2) \
  X(softplus, 1) \
  X(softplus_dx, 2) \
  X(gate_dg_, 2) \
  X(relu_dx, 2) \
  X(maximum_da, 3) \
  X(maximum_db, 3) \
  X(minimum_da, 3) \
  X(minimum_db, 3) \
  X(clip_dx, 4) \
  X(clip_dlow, 4) \
  X(clip_dhigh, 4) \
  X(erf_dx, 2) \
  X(erfc_dx, 2) \
  X(erfcx_dx, 3) \
  X(erfinv_dx, 2) \
  X(density, 1) \
  X(density_dx, 3) \
  X(ndtr, 1) \
  X(ndtr_dx, 2) \
  X(ndtri_dx, 2) \
  X(logit, 1) \
  X(logit_dx, 2) \
  X(xlogy, 2) \
  X(xlogy_da, 2) \
  X(xlogy_db, 3) \
  X(xlog1py, 2) \
  X(xlog1py_da, 2) \
  X(xlog1py_db, 3) \
  X(entr_dx, 2) \
  X(hard_sigmoid, 1) \
  X(hard_sigmoid_dx, 2) \
  X(hard_swish, 1) \
  X(hard_swish_dx, 2) \
  X(log_sigmoid, 1) \
  X(log_sigmoid_dx, 2) \
  X(softsign, 1) \
  X(softsign_dx, 2) \
  X(tanhshrink, 1) \
  X(tanhshrink_dx, 2) \
  X(silu, 1) \
  X(silu_dx, 2) \
  X(mish, 1) \
  X(mish_dx, 2) \
  X(gelu, 1) \
  X(gelu_dx, 2) \
  X(gelu_tanh, 1) \
  X(gelu_tanh_dx, 2) \
  X(sigmoid_loss, 2) \
  X(sigmoid_loss_da, 3) \
  X(sigmoid_loss_db, 2) \
  X(tan_dx, 2) \
  X(unit_leg, 1) \
  X(unit_leg_dx, 3) \
  X(arcsin_dx, 2) \
  X(arccos_dx, 2) \
  X(sinh_dx, 2) \
  X(cosh_dx, 2) \
  X(arcsinh_dx, 2) \
  X(arccosh_dx, 2) \
  X(arctanh_dx, 2) \
  X(arctan2_da, 3) \
  X(arctan2_db, 3) \
  X(hypot_da, 3) \
  X(hypot_db, 3) \
  X(exp2_dx, 2) \
  X(log2_dx, 2) \
  X(log10_dx, 2) \
  X(cbrt_dx, 2) \
  X(logaddexp, 2) \
  X(logaddexp_da, 3) \
  X(logaddexp_db, 3) \
  X(logaddexp2_da, 3) \
  X(logaddexp2_db, 3) \
  X(copysign_da, 3) \
  X(fmod_db, 4) \
  X(fmax_da, 3) \
  X(fmax_db, 3) \
  X(fmin_da, 3) \
  X(fmin_db, 3) \
  X(heaviside_db, 2)

// Those whose functions compilers vectorise: the others stay with NumPy.
#define EG_HOST_FORMULAS(X) \
  X(quotient, 2) \
  X(quotient_da, 2) \
  X(quotient_db, 3) \
  X(product_da, 2) \
  X(product_db, 2) \
  X(divide_da, 2) \
  X(divide_db, 3) \
  X(reciprocal_dx, 2) \
  X(square_dx, 2) \
  X(sqrt_dx, 2) \
  X(expm1_dx, 2) \
  X(log_dx, 2) \
  X(log1p_dx, 2) \
  X(tanh_dx, 2) \
  X(sigmoid_slope, 1) \
  X(sigmoid_slope_dx, 3) \
  X(sigmoid, 1) \
  X(sigmoid_dx, 2) \
  X(softplus, 1) \
  X(softplus_dx, 2) \
  X(gate_dg_, 2) \
  X(relu_dx, 2) \
  X(maximum_da, 3) \
  X(maximum_db, 3) \
  X(minimum_da, 3) \
  X(minimum_db, 3) \
  X(clip_dx, 4) \
  X(clip_dlow, 4) \
  X(clip_dhigh, 4) \
  X(erf_dx, 2) \
  X(erfc_dx, 2) \
  X(erfcx_dx, 3) \
  X(erfinv_dx, 2) \
  X(density, 1) \
  X(density_dx, 3) \
  X(ndtr, 1) \
  X(ndtr_dx, 2) \
  X(ndtri_dx, 2) \
  X(logit_dx, 2) \
  X(xlogy, 2) \
  X(xlogy_da, 2) \
  X(xlogy_db, 3) \
  X(xlog1py, 2) \
  X(xlog1py_da, 2) \
  X(xlog1py_db, 3) \
  X(entr_dx, 2) \
  X(hard_sigmoid, 1) \
  X(hard_sigmoid_dx, 2) \
  X(hard_swish, 1) \
  X(hard_swish_dx, 2) \
  X(log_sigmoid, 1) \
  X(log_sigmoid_dx, 2) \
  X(softsign, 1) \
  X(softsign_dx, 2) \
  X(tanhshrink, 1) \
  X(tanhshrink_dx, 2) \
  X(silu, 1) \
  X(silu_dx, 2) \
  X(mish, 1) \
  X(mish_dx, 2) \
  X(gelu, 1) \
  X(gelu_dx, 2) \
  X(gelu_tanh, 1) \
  X(gelu_tanh_dx, 2) \
  X(sigmoid_loss, 2) \
  X(sigmoid_loss_da, 3) \
  X(sigmoid_loss_db, 2) \
  X(tan_dx, 2) \
  X(unit_leg, 1) \
  X(unit_leg_dx, 3) \
  X(arcsin_dx, 2) \
  X(arccos_dx, 2) \
  X(sinh_dx, 2) \
  X(cosh_dx, 2) \
  X(arccosh_dx, 2) \
  X(arctanh_dx, 2) \
  X(hypot_da, 3) \
  X(hypot_db, 3) \
  X(exp2_dx, 2) \
  X(log2_dx, 2) \
  X(log10_dx, 2) \
  X(cbrt_dx, 2) \
  X(logaddexp, 2) \
  X(logaddexp_da, 3) \
  X(logaddexp_db, 3) \
  X(logaddexp2_da, 3) \
  X(logaddexp2_db, 3) \
  X(copysign_da, 3) \
  X(fmod_db, 4) \
  X(fmax_da, 3) \
  X(fmax_db, 3) \
  X(fmin_da, 3) \
  X(fmin_db, 3) \
  X(heaviside_db, 2)

// On the host alone: on a GPU to read a slope takes longer than to make it.
#define EG_HOST_SLOPES(X) \
  X(times_slope, 2) \
  X(tanhshrink_with_slope, 1) \
  X(mish_with_slope, 1) \
  X(gelu_with_slope, 1)
