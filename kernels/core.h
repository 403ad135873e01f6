// What every kernel stands on: where functions run, and the types they run on.
#pragma once

#ifdef __CUDACC__
#define EG_FN __host__ __device__ __forceinline__
#else
// in a large file GCC would stop inlining, and with it vectorising
#define EG_FN [[gnu::always_inline]] inline
#include <cstddef>
#include <cstring>
#endif

#ifdef __CUDACC_RTC__  // brings no headers
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#elif !defined(INFINITY)  // <cmath> takes longer to read than most kernels to compile
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#endif

namespace eg {

#ifdef __CUDACC__
using Index = long long;
#else
using Index = std::ptrdiff_t;  // NumPy's npy_intp
#endif

// a / b of numbers that are not negative.  To divide 64 bits takes a GPU, and many a CPU,
// several times as long as 32.
EG_FN Index divided(Index a, Index b) {
  return (a | b) >> 32 ? a / b : Index(unsigned(a) / unsigned(b));
}

#ifdef __CUDACC__
struct half {
  unsigned short bits;
  half() = default;
  EG_FN half(float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x)); }
  EG_FN explicit operator float() const {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
  }
};
#elif defined(__FLT16_MAX__)
using half = _Float16;
#else
#error "eagergrad's kernels need a compiler with _Float16: GCC 12 or Clang 15"
#endif

// The upper half of a float, rounded to the nearest, ties to even.
struct bfloat16 {
  unsigned short bits;
  bfloat16() = default;
  EG_FN bfloat16(float x) {
    unsigned whole;
    memcpy(&whole, &x, sizeof x);
    const unsigned rounded = whole + 0x7fff + (whole >> 16 & 1);
    bits = (unsigned short)((x != x ? whole | 1 << 22 : rounded) >> 16);
  }
  EG_FN explicit operator float() const {
    const unsigned whole = unsigned(bits) << 16;
    float x;
    memcpy(&x, &whole, sizeof x);
    return x;
  }
};

// What a type is computed in: half types in float.
template <class T> struct Wide { using type = T; };
template <> struct Wide<half> { using type = float; };
template <> struct Wide<bfloat16> { using type = float; };
template <class T> using wide = typename Wide<T>::type;

// How many results a formula has; one that has several writes them through its last
// parameters.
template <class> using Void = void;
template <class F, class = void> struct Results {
  static constexpr int COUNT = 1;
};
template <class F> struct Results<F, Void<decltype(F::RESULTS)>> {
  static constexpr int COUNT = F::RESULTS;
};

// Reading OPERANDS: the letter of operand k, and how many there are on either side.
constexpr int length(const char* text) { return *text ? 1 + length(text + 1) : 0; }
constexpr int inputs(const char* text) { return *text == '>' ? 0 : 1 + inputs(text + 1); }
constexpr char letter(const char* text, int k) {
  return text[k < inputs(text) ? k : k + 1];
}

// 0, ..., N - 1
template <int... I> struct Places {};
template <int N, int... I> struct Count : Count<N - 1, N - 1, I...> {};
template <int... I> struct Count<0, I...> { using type = Places<I...>; };

// A whole array, as it lies in memory.
template <class T> struct Span {
  using Element = T;
  T* at;
  Index count;
  EG_FN T& operator[](Index i) const { return at[i]; }
};

}  // namespace eg
