// Elementary functions of float and double, for CUDA and for the host.
//
// CUDA compiles its own. The host compiles these, which have selections, no branches,
// so that a loop over them becomes vector instructions. sin and others (EG_SCALAR) are
// the C library's, since their reduction of huge arguments needs a branch.
//
// Reductions are Cody & Waite's (Software Manual for the Elementary Functions, 1980).
// Polynomials are minimax, by Remez' exchange on the interval named, then rounded. Sums
// may be fused with products or not (fma does where the processor can, in half of the
// time), but -ffast-math would undo the reductions. The
// error beside a function is the largest met, rounded up; a test holds it to that.
#pragma once

#ifdef __CUDACC__
#define EG_MATH __host__ __device__ inline
#else
// in a large file GCC would stop inlining, and with it vectorising
#define EG_MATH [[gnu::always_inline]] inline
#include <cstdint>
#endif

// The functions of one argument; EG_OWN are in no library of C. copysign, maximum, minimum, pow, atan2, hypot and fmod
// take two, of which the last three, and pow of double, are the C library's; so is cbrt.
#define EG_INSTRUCTIONS(F) F(sqrt) F(fabs) F(floor) F(ceil) F(trunc) F(rint)
#define EG_VECTORISED(F)                                                             \
  EG_INSTRUCTIONS(F) F(exp) F(exp2) F(expm1) F(log) F(log2) F(log10) F(log1p)        \
  F(sinh) F(cosh) F(tanh) F(atan) F(asin) F(acos) F(erf) F(erfc)
#define EG_OWN(F) F(exp_share) F(log1p_share) F(normcdf) F(normpdf)
#define EG_SCALAR(F) F(sin) F(cos) F(tan) F(asinh) F(acosh) F(atanh)

namespace eg {

// a * b + c, rounded once where the machine can do that.
template <class T> EG_MATH T multiply_add(T a, T b, T c) {
#if defined(__CUDACC__)
  return fma(a, b, c);
#elif defined(__FP_FAST_FMAF)
  if constexpr (sizeof(T) == sizeof(float))
    return __builtin_fmaf(a, b, c);
  else
    return __builtin_fma(a, b, c);
#else
  return a * b + c;
#endif
}

#ifdef __CUDACC__

#define EG_CUDA(name)                                  \
  EG_MATH float name(float x) { return ::name##f(x); } \
  EG_MATH double name(double x) { return ::name(x); }
EG_VECTORISED(EG_CUDA)
EG_SCALAR(EG_CUDA)
EG_CUDA(cbrt)
EG_CUDA(normcdf)
#undef EG_CUDA
template <class T> EG_MATH T exp_share(T x) { return exp(x); }
template <class T> EG_MATH T log1p_share(T x) { return log1p(x); }
template <class T> EG_MATH T normpdf(T x) {
  return exp(T(-0.5) * x * x) * T(0.3989422804014327);
}
#define EG_CUDA_PAIR(name)                                             \
  EG_MATH float name(float x, float y) { return ::name##f(x, y); }     \
  EG_MATH double name(double x, double y) { return ::name(x, y); }
EG_CUDA_PAIR(pow)
EG_CUDA_PAIR(copysign)
EG_CUDA_PAIR(atan2)
EG_CUDA_PAIR(hypot)
EG_CUDA_PAIR(fmod)
#undef EG_CUDA_PAIR

#else

namespace detail {

// The C library's, by the names that need no <cmath>.
#define EG_LIBRARY(name)                                           \
  EG_MATH float name(float x) { return __builtin_##name##f(x); }   \
  EG_MATH double name(double x) { return __builtin_##name(x); }
EG_INSTRUCTIONS(EG_LIBRARY)
EG_SCALAR(EG_LIBRARY)
EG_LIBRARY(cbrt)
#undef EG_LIBRARY
#define EG_LIBRARY_PAIR(name)                                                      \
  EG_MATH float name(float x, float y) { return __builtin_##name##f(x, y); }       \
  EG_MATH double name(double x, double y) { return __builtin_##name(x, y); }
EG_LIBRARY_PAIR(copysign)
EG_LIBRARY_PAIR(atan2)
EG_LIBRARY_PAIR(hypot)
EG_LIBRARY_PAIR(fmod)
#undef EG_LIBRARY_PAIR

template <class T> struct Format;
template <> struct Format<float> {
  using Bits = std::uint32_t;
  static constexpr int digits = 23, bias = 127;
  // log(2), log10(2), 1 / log(2), 1 / log(10): leading bits, and the rest
  static constexpr float ln2 = 0.693115234375f, ln2_lo = 3.19461849e-05f;
  static constexpr float lg2 = 0.301025390625f, lg2_lo = 4.60503898e-06f;
  static constexpr float log2e = 1.44287109375f, log2e_lo = -0.000176052854f;
  static constexpr float log10e = 0.434326171875f, log10e_lo = -3.16899714e-05f;
  static constexpr float pi_2_lo = -4.371139e-08f;
  // From where on exp, and each of the others, has nothing left but its limit
  static constexpr float overflow = 88.8f, underflow = -104, expm1_is_minus_one = -18;
  static constexpr float tanh_is_one = 10, erf_is_one = 4, erfc_is_zero = 10.1f;
  static constexpr float normal_is_zero = 15, least_normal = 0x1p-126f;
};
template <> struct Format<double> {
  using Bits = std::uint64_t;
  static constexpr int digits = 52, bias = 1023;
  static constexpr double ln2 = 0.6931471806019545, ln2_lo = -4.2009150726810846e-11;
  static constexpr double lg2 = 0.3010299956658855, lg2_lo = -1.9043128467164274e-12;
  static constexpr double log2e = 1.4426950514316559, log2e_lo = -1.0542692476429e-08;
  static constexpr double log10e = 0.4342944845557213, log10e_lo = -2.652469455308e-09;
  static constexpr double pi_2_lo = 6.123233995736766e-17;
  static constexpr double overflow = 709.8, underflow = -746, expm1_is_minus_one = -38;
  static constexpr double tanh_is_one = 20, erf_is_one = 6, erfc_is_zero = 27.3;
  static constexpr double normal_is_zero = 38.6, least_normal = 0x1p-1022;
};

constexpr double log2e = 1.4426950408889634, pi_2 = 1.5707963267948966;
constexpr double sqrt_half = 0.7071067811865476;

template <class T> using Bits = typename Format<T>::Bits;
template <class T> constexpr T inf = T(__builtin_inf());
template <class T> constexpr T nan = T(__builtin_nan(""));

template <class To, class From> EG_MATH To bit_cast(From x) {
  To y;
  __builtin_memcpy(&y, &x, sizeof x);
  return y;
}
// x without its last n bits
template <class T> EG_MATH T without_last(T x, int n) {
  return bit_cast<T>(bit_cast<Bits<T>>(x) >> n << n);
}
// a b + c
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
EG_MATH float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
EG_MATH double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
template <class T> EG_MATH T fma(T a, T b, T c) { return a * b + c; }
#endif
// a b - y, where y is a b rounded
template <class T> EG_MATH T product_rest(T a, T b, T y) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  return fma(a, b, -y);
#else
  constexpr int half = Format<T>::digits / 2 + 1;
  T a_high = without_last(a, half), b_high = without_last(b, half);
  return (a_high * b_high - y) + (a_high * (b - b_high) + (a - a_high) * b);
#endif
}
// c[0] + c[1] x + c[2] x^2 + ...
template <class T> EG_MATH T poly(T, double c) { return T(c); }
template <class T, class... C> EG_MATH T poly(T x, double c, C... rest) {
  return fma(x, poly(x, rest...), T(c));
}

// Added to a small number, 3 * 2^(digits - 1) leaves no place for a fraction: the sum's
// last bits are the nearest integer, in two's complement.
template <class T> constexpr T shifter = T(Bits<T>(3) << (Format<T>::digits - 1));
template <class T> EG_MATH T nearest(T x) { return (x + shifter<T>) - shifter<T>; }
// 2^n for an integer n whose power is a normal number
template <class T> EG_MATH T power_of_two(T n) {
  n += T(Format<T>::bias) + shifter<T>;
  return bit_cast<T>(bit_cast<Bits<T>>(n) << Format<T>::digits);
}
// y 2^n, where 2^n itself may overflow or vanish; rounded once
template <class T> EG_MATH T scaled(T y, T n) {
  using F = Format<T>;
  Bits<T> twice = bit_cast<Bits<T>>(n + T(2 * F::bias) + shifter<T>), half = twice >> 1;
  return y * bit_cast<T>(half << F::digits) * bit_cast<T>((twice - half) << F::digits);
}

// (exp(r) - 1 - r) / r^2 for |r| <= log(2) / 2
EG_MATH float exp_tail(float r) {
  return poly(r, 0.5, 0.16666539, 0.041666612, 0.00836708397, 0.00139179325);
}
EG_MATH double exp_tail(double r) {
  return poly(r, 0.5000000000000004, 0.16666666666666682, 0.041666666666581934,
    0.008333333333316284, 0.0013888888930210892, 0.00019841269898991358,
    2.4801506644066112e-05, 2.755723192484413e-06, 2.7625564217001495e-07,
    2.5113093401323014e-08);
}
// x + rest = n log(2) + r for an integer n and the least |r|; the last bits of `power`
// are n + bias, so that 2^n is a shift away
template <class T> EG_MATH T reduced(T x, T& n, T bias, Bits<T>& power, T rest = 0) {
  T sum = fma(x, T(log2e), shifter<T> + bias);
  n = sum - (shifter<T> + bias);
  power = bit_cast<Bits<T>>(sum);
  return fma(-n, Format<T>::ln2, x) + fma(-n, Format<T>::ln2_lo, rest);
}
template <class T> EG_MATH T expm1_reduced(T r) { return fma(r * r, exp_tail(r), r); }
template <class T> EG_MATH T from_exponent(Bits<T> biased) {
  return bit_cast<T>(biased << Format<T>::digits);
}
// 2^n exp(r), by the biased n; rounded once
template <class T> EG_MATH T exp_of(T r, Bits<T> power) {
  T s = from_exponent<T>(power);
  return fma(s, expm1_reduced(r), s);
}
// exp(x) 2^shift for a clamped x; exp_normal(x) where 2^n is a normal number
template <class T> EG_MATH T exp_shifted(T x, T shift) {
  Bits<T> twice;
  T n, r = reduced(x, n, T(2 * Format<T>::bias) + shift, twice);
  Bits<T> half = twice >> 1;
  return exp_of(r, half) * from_exponent<T>(twice - half);
}
template <class T> EG_MATH T exp_normal(T x) {
  Bits<T> power;
  T n, r = reduced(x, n, T(Format<T>::bias), power);
  return exp_of(r, power);
}
// exp(x + rest) for underflow <= x <= 0: 2^room times too large, then rounded once more,
// as it may be below the normal numbers
template <class T> EG_MATH T exp_downwards(T x, T rest = 0) {
  constexpr int room = 64;
  Bits<T> power;
  T n, r = reduced(x, n, T(Format<T>::bias + room), power, rest);
  return exp_of(r, power) * T(0x1p-64);
}
// min(x, top) and max(x, low), of which nan remains nan
template <class T> EG_MATH T at_most(T top, T x) { return x > top ? top : x; }
template <class T> EG_MATH T at_least(T low, T x) { return x < low ? low : x; }
// m in [sqrt(1/2), sqrt(2)) and an integer k with x = m 2^k, for a normal x > 0
template <class T> EG_MATH T significand(T x, T& k) {
  using F = Format<T>;
  constexpr Bits<T> one = Bits<T>(1) << F::digits;
  const Bits<T> low = bit_cast<Bits<T>>(T(sqrt_half));
  const Bits<T> b = bit_cast<Bits<T>>(x) - low + (Bits<T>(F::bias) << F::digits);
  // 2^digits with the biased exponent in its last bits
  k = bit_cast<T>((b >> F::digits) | bit_cast<Bits<T>>(T(one))) - T(one + F::bias);
  return bit_cast<T>((b & (one - 1)) + low);
}
// log(1 + f) - f for sqrt(1/2) - 1 <= f <= sqrt(2) - 1: a polynomial in f or, for
// double, in s = f / (2 + f), of which log(1 + f) is an odd function
EG_MATH float log_rest(float f) {
  float p = poly(f, 0.333333164, -0.250007749, 0.200023279, -0.166256309, 0.141804025,
    -0.131184667, 0.128857419, -0.0789218917);
  return f * f * fma(f, p, -0.5f);
}
EG_MATH double log_rest(double f) {
  double s = f / (2 + f), z = s * s, half = 0.5 * f * f;
  double p = poly(z, 0.6666666666666735, 0.3999999999940921, 0.28571428743729516,
    0.22222198424251044, 0.1818357258920122, 0.15313827131291616, 0.14798292322958903);
  return s * (half + z * p) - half;
}
// log(x) / log(base) of x = (1 + f) 2^k, by log(2) / log(base) and 1 / log(base) in two
// parts each; c times half of the bits of f is exact
template <class T> EG_MATH T log_sum(T k, T f, T two, T two_lo, T c, T c_lo) {
  T most = c == T(1) ? f : without_last(f, Format<T>::digits / 2 + 1);
  T r = log_rest(f), rest = c == T(1) ? r : c * (r + (f - most)) + c_lo * (f + r);
  T high = k * two, low = c * most, sum = high + low;
  return sum + (((high - sum) + low) + (k * two_lo + rest));
}
template <class T> EG_MATH T log_any(T x, T two, T two_lo, T c, T c_lo) {
  bool tiny = x < Format<T>::least_normal;
  T up = T(Bits<T>(1) << Format<T>::digits), k;
  T m = significand(tiny ? x * up : x, k);
  T y = log_sum(tiny ? k - T(Format<T>::digits) : k, m - T(1), two, two_lo, c, c_lo);
  return x > T(0) ? (x < inf<T> ? y : x) : (x == T(0) ? -inf<T> : nan<T>);
}

// (tanh(x) / x - 1) / x^2 for z = x^2, |x| <= 0.55
EG_MATH float tanh_tail(float z) {
  return poly(z, -0.333333164, 0.133325443, -0.0538475476, 0.0210507289,
    -0.0062429151);
}
EG_MATH double tanh_tail(double z) {
  return poly(z, -0.3333333333333231, 0.1333333333316823, -0.05396825387583946,
    0.021869485969007382, -0.008863194425947378, 0.00359171906860542,
    -0.001453213670662137, 0.000579127971951089, -0.00021028786727648338,
    5.1011633060175784e-05);
}
// (sinh(x) / x - 1) / x^2 for z = x^2, |x| <= 1
EG_MATH float sinh_tail(float z) {
  return poly(z, 0.166666672, 0.00833331142, 0.000198426365, 2.78390917e-06);
}
EG_MATH double sinh_tail(double z) {
  return poly(z, 0.16666666666666669, 0.008333333333332915, 0.000198412698415892,
    2.755731910850783e-06, 2.5052130672372315e-08, 1.6056687133607633e-10,
    7.775703174364741e-13);
}
// (atan(x) / x - 1) / x^2 for z = x^2, |x| <= tan(pi / 8)
EG_MATH float atan_tail(float z) {
  return poly(z, -0.333333164, 0.199985325, -0.142445102, 0.106001653, -0.0609270856);
}
EG_MATH double atan_tail(double z) {
  return poly(z, -0.333333333333332, 0.19999999999953808, -0.14285714280219286,
    0.11111110784644077, -0.09090897793521396, 0.07692060887023232,
    -0.06663112122510563, 0.058479513186163394, -0.050395990942687874,
    0.03807242038638624, -0.017916225868013766);
}
// (asin(x) / x - 1) / x^2 for z = x^2, |x| <= 1/2
EG_MATH float asin_tail(float z) {
  return poly(z, 0.166667536, 0.0749525279, 0.0454759225, 0.0241527148, 0.0422107168);
}
EG_MATH double asin_tail(double z) {
  return poly(z, 0.16666666666665383, 0.07500000000342968, 0.04464285682350572,
    0.030381959331356442, 0.02237175350273789, 0.01735977162782599,
    0.013884591604594937, 0.012173334152310667, 0.0065105788949289135,
    0.019574748236444846, -0.016295523660873345, 0.031960039667672746);
}
// s + rest is asin(|x|) for |x| <= 1/2, else half of acos(|x|); nan for |x| > 1
template <class T> EG_MATH T asin_reduced(T a, T& rest) {
  T z = a > T(0.5) ? (T(1) - a) * T(0.5) : a * a;
  T s = a > T(0.5) ? sqrt(z) : a;
  rest = s * z * asin_tail(z);
  return s;
}
// erf(x) / x - 1 for z = x^2, |x| <= 1
EG_MATH float erf_tail(float z) {
  return poly(z, 0.128379166, -0.37612626, 0.112835787, -0.0268533472, 0.00518716406,
    -0.000799788337, 7.80704286e-05);
}
EG_MATH double erf_tail(double z) {
  return poly(z, 0.12837916709551256, -0.37612638903183343, 0.11283791670936921,
    -0.026866170641948683, 0.0052239775965978695, -0.000854832547574127,
    0.0001205528013801857, -1.4924457153200987e-05, 1.6444026009562856e-06,
    -1.6182885810500077e-07, 1.361127149182976e-08, -7.596498716337656e-10);
}
// -log(erfc(x)) for 1 <= x <= erf_is_one, weighted with erfc(x)
EG_MATH float log_erfc(float x) {
  return poly(x, 0.000354003074, 1.12703884, 0.638227761, 0.103035472, -0.0218043607,
    0.00293935416, -0.000185546654);
}
EG_MATH double log_erfc(double x) {
  return poly(x, 1.0823310816138685e-06, 1.1283685439964881, 0.6366682767524493,
    0.10263587288155203, -0.01886227851092739, -0.0005880159049500922,
    0.0021025618691318487, -0.0009227306947491907, 0.00023224055756242335,
    -2.8706375388312577e-05, -3.3667577635571028e-06, 2.608445376338968e-06,
    -6.749288011366076e-07, 1.0636880863782392e-07, -1.0719913951892759e-08,
    6.406842249329087e-10, -1.7392461602727935e-11);
}
// (1 + 2 x) exp(x^2) erfc(x) - 1 for x >= 0, in t = (x - K) / (x + K):
// Shepherd & Laframboise, Mathematics of Computation 36 (1981)
EG_MATH float erfc_factor(float x) {
  return poly((x - 3) / (x + 3), 0.253008068, -0.135621145, -0.047562398, 0.12964642,
    -0.119270973, 0.0682957694, -0.023797527, 0.00256737997, 0.00200180756,
    -0.000777590729, -0.000268130476);
}
EG_MATH double erfc_factor(double x) {
  return poly((x - 3.5) / (x + 3.5), 0.24234924487115436, -0.1400091801376193,
    -0.010555596332215695, 0.09751909515324118, -0.11508959816034862,
    0.08798315382548243, -0.04882332582412874, 0.019099330932530727,
    -0.004215019955388277, -0.0003022677915677791, 0.0005643847744595996,
    -0.00012151286608281427, -4.278392190875546e-05, 2.4262368915665465e-05,
    2.333503928056352e-06, -3.817310814931308e-06, -5.455216574130497e-08,
    6.038143598514582e-07, 4.834331510846125e-09, -9.558218595361458e-08,
    -8.377826477908059e-09, 1.1169760090910297e-08, 2.71612795060287e-09);
}
// log(1 + x) / x - 1 for 0 <= x <= 1, in t = x - 1 / 2
EG_MATH float log1p_factor(float t) {
  return poly(t, -0.18906978, -0.28852711, 0.132609002, -0.0676877023, 0.0366355156,
    -0.0205702575, 0.0115758745, -0.00675006519, 0.00525390622, -0.00324381945);
}
EG_MATH double log1p_factor(double t) {
  return poly(t, -0.18906978378367123, -0.28852709909932389, 0.13260975375420291,
    -0.067688643310966466, 0.036611854523156883, -0.020548811918967193,
    0.011833792109709617, -0.0069453949799178462, 0.0041361791206806208,
    -0.002491841109014766, 0.0015153828387962826, -0.0009288583039145674,
    0.00057306528310843427, -0.00035481508348087275, 0.00022107504081334235,
    -0.0001421198312880474, 8.9730744757854566e-5, -4.4788748701037029e-5,
    2.7527706876551217e-5, -3.8395859851415811e-5, 2.5039528282225264e-5);
}
// exp(x^2 / 2) normcdf(-x) for x >= 0: t = 1 / (1 + 0.3 x), times a polynomial in it
EG_MATH float normcdf_factor(float x) {
  float t = 1 / fma(0.3f, x, 1.0f);
  return t * poly(t - 0.5f, 0.221970613, 0.329158971, 0.34619884, 0.222082694,
    0.0290565069, -0.0775518151, -0.0364601785, 0.0359176264, 0.0196299146,
    -0.0206233694);
}
EG_MATH double normcdf_factor(double x) {
  double t = 1 / fma(0.3, x, 1.0);
  return t * poly(t - 0.5, 0.22197061383443279, 0.32915896817232569, 0.34619854967384719,
    0.22208292378973771, 0.029074172728018855, -0.077564689531971121,
    -0.0368411210441845, 0.036305525061735706, 0.023075819763922687,
    -0.025470123984812561, -0.01139259029661818, 0.021977525225548224,
    0.0010016717021319552, -0.018428296874523829, 0.0084964746579076374,
    0.011578657169020459, -0.015187417372795231, -0.001125254148376666,
    0.015868119448737743, -0.0087916530759459945, -0.0097309259880712805,
    0.010988735289714706, 0.0022654305023109858, -0.0046496048095074909);
}
template <class T> EG_MATH T exp(T x) {  // 1.1 ulp
  x = at_least(Format<T>::underflow, at_most(Format<T>::overflow, x));
  return exp_shifted(x, T(0));
}
// exp(x) for x <= 0, which takes two thirds of the time
template <class T> EG_MATH T exp_share(T x) {  // 1.1 ulp
  return exp_downwards(at_least(Format<T>::underflow, x));
}
template <class T> EG_MATH T exp2(T x) {  // 1.2 ulp
  using F = Format<T>;
  x = at_least(T(-F::bias - F::digits - 2), at_most(T(F::bias + 2), x));
  T n = nearest(x);
  return scaled(T(1) + expm1_reduced((x - n) * T(0.6931471805599453)), n);
}
// 2^n exp(r) - 1 as (2^n - 1) + 2^n (exp(r) - 1), the rounding of the first sum kept;
// half of it, as 2^n may overflow
template <class T> EG_MATH T expm1(T x) {  // 1.7 ulp
  T a = at_least(Format<T>::expm1_is_minus_one, at_most(Format<T>::overflow, x));
  Bits<T> power;
  T n, r = reduced(a, n, T(Format<T>::bias - 1), power);
  T s = from_exponent<T>(power), t = s - T(0.5);
  T high = t + s * r, low = (t - high) + s * r;
  T y = high + (low + s * (r * r * exp_tail(r)));
  return fabs(x) < Format<T>::least_normal ? x : y + y;
}
template <class T> EG_MATH T log(T x) {  // 1.0 ulp
  return log_any<T>(x, Format<T>::ln2, Format<T>::ln2_lo, 1, 0);
}
template <class T> EG_MATH T log2(T x) {  // 1.3 ulp
  return log_any<T>(x, 1, 0, Format<T>::log2e, Format<T>::log2e_lo);
}
template <class T> EG_MATH T log10(T x) {  // 1.1 ulp
  using F = Format<T>;
  return log_any(x, F::lg2, F::lg2_lo, F::log10e, F::log10e_lo);
}
// f = m - 1 is x 2^-k - (1 - 2^-k), which keeps the bits of x that 1 + x = m 2^k loses
template <class T> EG_MATH T log1p(T x) {  // 1.6 ulp
  T k, m = significand(T(1) + x, k), down = power_of_two(-k);
  T f = k > T(Format<T>::digits + 2) ? m - T(1) : x * down + (down - T(1));
  T y = log_sum<T>(k, f, Format<T>::ln2, Format<T>::ln2_lo, 1, 0);
  y = x == T(0) ? x : y;
  return x > T(-1) ? (x < inf<T> ? y : x) : (x == T(-1) ? -inf<T> : nan<T>);
}

// log1p(x) for 0 <= x <= 1, which takes half of the time
template <class T> EG_MATH T log1p_share(T x) {  // 1.5 ulp
  return fma(x, log1p_factor(x - T(0.5)), x);
}

template <class T> EG_MATH T sinh(T x) {  // 1.7 ulp
  T a = fabs(x), z = x * x;
  T half = exp_shifted(at_most(Format<T>::overflow + T(1), a), T(-1));
  return copysign(a > T(1) ? half - T(0.25) / half : a + a * z * sinh_tail(z), x);
}
template <class T> EG_MATH T cosh(T x) {  // 1.6 ulp
  T half = exp_shifted(at_most(Format<T>::overflow + T(1), fabs(x)), T(-1));
  return half + T(0.25) / half;
}
template <class T> EG_MATH T tanh(T x) {  // 1.6 ulp
  T a = at_most(Format<T>::tanh_is_one, fabs(x)), z = a * a;
  T big = T(1) - T(2) / (exp_normal(a + a) + T(1));
  return copysign(a > T(0.55) ? big : a + a * z * tanh_tail(z), x);
}
// atan(a) is pi / 4 + atan((a - 1) / (a + 1)) and pi / 2 + atan(-1 / a).
template <class T> EG_MATH T atan(T x) {  // 1.9 ulp
  T a = fabs(x);
  bool middle = a > T(0.4142135623730950), far = a > T(2.414213562373095);
  T t = (far ? T(-1) : middle ? a - T(1) : a) / (far ? a : middle ? a + T(1) : T(1));
  T part = far ? T(1) : middle ? T(0.5) : T(0), z = t * t;
  T rest = t * z * atan_tail(z) + part * Format<T>::pi_2_lo;
  return copysign(part * T(pi_2) + (t + rest), x);
}
template <class T> EG_MATH T asin(T x) {  // 1.2 ulp
  T a = fabs(x), rest, s = asin_reduced(a, rest);
  T high = T(pi_2) - T(2) * s, low = (T(pi_2) - high) - T(2) * s;
  T far = high + (low - (T(2) * rest - Format<T>::pi_2_lo));
  return copysign(a > T(0.5) ? far : s + rest, x);
}
template <class T> EG_MATH T acos(T x) {  // 1.2 ulp
  T a = fabs(x), rest, s = asin_reduced(a, rest), y = s + rest;
  T lo = Format<T>::pi_2_lo, near = T(pi_2) - (copysign(y, x) - lo);
  return a > T(0.5) ? T(2) * (x < T(0) ? T(pi_2) - (y - lo) : y) : near;
}

template <class T> EG_MATH T erf(T x) {  // 1.5 ulp
  T a = at_most(Format<T>::erf_is_one, fabs(x));
  T big = T(1) - exp_normal(-log_erfc(a));
  return copysign(a > T(1) ? big : a + a * erf_tail(a * a), x);
}
// exp(-a^2) (1 + p) / (1 + 2 a), where a, its square, and 1 + p + ... are each a number
// and what rounding took from it; the quotient is that of two such sums
template <class T> EG_MATH T erfc(T x) {  // 1.7 ulp
  constexpr int half = Format<T>::digits / 2 + 1;
  T a = at_most(Format<T>::erfc_is_zero, fabs(x));
  T high = without_last(a, half), low = a - high, square = without_last(a * a, 3);
  T square_lo = (high * high - square) + low * (a + high);
  T n = nearest(-square * T(log2e)), r = -square - n * Format<T>::ln2;
  T e = expm1_reduced(r - (n * Format<T>::ln2_lo + square_lo)), p = erfc_factor(a);
  T v = p + (e + p * e), top = T(1) + v, top_lo = (T(1) - top) + v;
  T d = T(1) + T(2) * high, d_lo = T(2) * low, q = without_last(top / d, half + 1);
  T y = scaled(q + ((top - q * d) + (top_lo - q * d_lo)) / (d + d_lo), n);
  T near = T(1) - (x + x * erf_tail(x * x));
  return a < T(0.5) ? near : (x < T(0) ? T(2) - y : y);
}

// exp(-x^2 / 2): of the rounded square, and of what rounding took from it
template <class T> EG_MATH T bell(T x) {
  T a = at_most(Format<T>::normal_is_zero, fabs(x)), half = T(-0.5) * a;
  T square = half * a;
  return exp_downwards(square, product_rest(half, a, square));
}
// the normal density, and its distribution function
template <class T> EG_MATH T normpdf(T x) {  // 2.5 ulp
  return bell(x) * T(0.3989422804014327);
}
template <class T> EG_MATH T normcdf(T x) {  // 6 ulp
  T tail = bell(x) * normcdf_factor(fabs(x));
  return x > T(0) ? T(1) - tail : tail;
}

// y log2(x), up to 150, multiplies the logarithm's error: hence double
EG_MATH float pow(float x, float y) {  // 0.6 ulp
  float a = fabs(x), z = float(exp2(double(y) * log2(double(a))));
  bool whole = y == floor(y), odd = whole && 0.5f * y != floor(0.5f * y);
  z = (a == 1 && fabs(y) == inf<float>) ? 1 : z;
  z = odd ? copysign(z, x) : z;
  z = (x < 0 && a < inf<float> && !whole) ? nan<float> : z;
  return (x == 1 || y == 0) ? 1 : z;
}
EG_MATH double pow(double x, double y) { return __builtin_pow(x, y); }

}  // namespace detail

#define EG_USING(name) using detail::name;
EG_VECTORISED(EG_USING)
EG_SCALAR(EG_USING)
EG_USING(cbrt)
EG_OWN(EG_USING)
EG_USING(copysign)
EG_USING(pow)
EG_USING(atan2)
EG_USING(hypot)
EG_USING(fmod)
#undef EG_USING

#endif

template <class T> EG_MATH T abs(T x) { return fabs(x); }
template <class T> EG_MATH T sign(T x) {
  return x != x ? x : T((x > T(0)) - (x < T(0)));
}
// nan where either is, as in NumPy; a || would be a branch to GCC 12, in long formulas
template <class T> EG_MATH T maximum(T a, T b) { return a > b ? a : a != a ? a : b; }
template <class T> EG_MATH T minimum(T a, T b) { return a < b ? a : a != a ? a : b; }

}  // namespace eg
