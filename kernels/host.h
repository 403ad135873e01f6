// Kernels as loops of NumPy's universal functions.
//
// NumPy broadcasts, allocates and calls; a loop gets pointers, counts and strides.  This
// needs no header of Python's or NumPy's: eagergrad/host_kernels.py compiles one kernel
// into one shared library, EG_ELEMENTWISE(name, arity), and registers its loops.
#pragma once

#include <cfenv>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "core.h"
#include "lane.h"
#include "functions.h"

namespace eg {

using Loop = void (*)(char**, const Index*, const Index*, void*);

// A kernel computes what it then does not choose, so the flags it leaves behind mean
// nothing; NumPy would read them as overflow in the result.
inline void forget_flags() {
#if defined(__SSE__)
  _mm_setcsr(_mm_getcsr() & ~0x3fu);
#else
  std::feclearexcept(FE_ALL_EXCEPT);
#endif
}

constexpr Index BLOCK = 1024;          // elements at a time, in cache
constexpr Index PARALLEL = 1 << 16;    // elements from which threads pay

// n elements of one operand as contiguous numbers of the wide type: as they lie, or
// gathered into a buffer.
template <class T>
inline const wide<T>* gathered(const char* from, Index step, Index n, wide<T>* buffer) {
  if constexpr (sizeof(T) == sizeof(wide<T>)) {
    if (step == sizeof(T)) return reinterpret_cast<const T*>(from);
  } else if (step == sizeof(T)) {
    const T* x = reinterpret_cast<const T*>(from);
    for (Index i = 0; i < n; ++i) buffer[i] = wide<T>(x[i]);
    return buffer;
  }
  if (step == 0) {
    const wide<T> x = wide<T>(*reinterpret_cast<const T*>(from));
    for (Index i = 0; i < n; ++i) buffer[i] = x;
    return buffer;
  }
  for (Index i = 0; i < n; ++i)
    buffer[i] = wide<T>(*reinterpret_cast<const T*>(from + i * step));
  return buffer;
}

template <class F, class T, int... I, int... O>
inline void block(char* const* a, const Index* step, Index start, Index n,
                  std::integer_sequence<int, I...>, std::integer_sequence<int, O...>) {
  using W = wide<T>;
  constexpr int N = sizeof...(I), M = sizeof...(O);
  alignas(64) W buffers[N][BLOCK];
  alignas(64) W results[M][BLOCK];
  const W* x[N] = {
      gathered<T>(a[I] + start * step[I], step[I], n, buffers[I])...};
  char* to[M] = {a[N + O] + start * step[N + O]...};
  const bool direct[M] = {sizeof(T) == sizeof(W) && step[N + O] == sizeof(T)...};
  W* y[M] = {direct[O] ? reinterpret_cast<W*>(to[O]) : results[O]...};
  const F f;
#pragma GCC ivdep
  for (Index i = 0; i < n; ++i) {
    if constexpr (M == 1)
      y[0][i] = f(x[I][i]...);
    else
      f(x[I][i]..., y[O][i]...);
  }
  for (int k = 0; k < M; ++k)
    if (!direct[k])
      for (Index i = 0; i < n; ++i)
        *reinterpret_cast<T*>(to[k] + i * step[N + k]) = T(results[k][i]);
}

template <class F, class T, int N>
void elementwise(char** a, const Index* count, const Index* step, void*) {
  const Index n = count[0];
  const auto inputs = std::make_integer_sequence<int, N>();
  const auto outputs = std::make_integer_sequence<int, Results<F>::COUNT>();
  const auto from = [&](Index start) {
    block<F, T>(a, step, start, n - start < BLOCK ? n - start : BLOCK, inputs, outputs);
  };
  if (n < PARALLEL) {  // an omp if(...) would still cost a call of its runtime
    for (Index start = 0; start < n; start += BLOCK) from(start);
  } else {
#pragma omp parallel for schedule(static)
    for (Index start = 0; start < n; start += BLOCK) from(start);
  }
  forget_flags();
}

// ------------------------------------------------------------------------------- rows

// One operand of one row: KIND is its letter in OPERANDS.
template <class T, char KIND, bool INPUT> struct Operand;

template <class T> struct Operand<T, 'n', true> {
  using W = wide<T>;
  const W* x;
  Operand(char* from, Index step, Index n, W* buffer)
      : x(gathered<T>(from, step, n, buffer)) {}
  const W* argument() { return x; }
};

template <class T> struct Operand<T, 'n', false> {
  using W = wide<T>;
  char* to;
  Index step, n;
  W* y;
  bool direct;
  Operand(char* to, Index step, Index n, W* buffer) : to(to), step(step), n(n) {
    direct = sizeof(T) == sizeof(W) && step == sizeof(T);
    y = direct ? reinterpret_cast<W*>(to) : buffer;
  }
  ~Operand() {
    if (!direct)
      for (Index i = 0; i < n; ++i) *reinterpret_cast<T*>(to + i * step) = T(y[i]);
  }
  W* argument() { return y; }
};

template <class T> struct Operand<T, 's', true> {
  wide<T> x;
  Operand(char* from, Index, Index, wide<T>*) : x(*reinterpret_cast<const T*>(from)) {}
  wide<T> argument() { return x; }
};

template <class T> struct Operand<T, 's', false> {
  char* to;
  wide<T> y = 0;
  Operand(char* to, Index, Index, wide<T>*) : to(to) {}
  ~Operand() { *reinterpret_cast<T*>(to) = T(y); }
  wide<T>& argument() { return y; }
};

template <class T> struct Operand<T, 'i', true> {
  long long x;
  Operand(char* from, Index, Index, wide<T>*)
      : x(*reinterpret_cast<const long long*>(from)) {}
  long long argument() { return x; }
};

// One row.  steps: those between rows, then those within one.
template <class F, class T, int... K>
inline void row(char* const* a, const Index* step, Index i, Index n, wide<T>* buffer,
                std::integer_sequence<int, K...>) {
  constexpr int INPUTS = inputs(F::OPERANDS);
  constexpr auto before = [](int k) {  // rows among the operands before k
    int count = 0;
    for (int j = 0; j < k; ++j) count += letter(F::OPERANDS, j) == 'n';
    return count;
  };
  const Index* within = step + sizeof...(K);
  std::tuple<Operand<T, letter(F::OPERANDS, K), (K < INPUTS)>...> operands{
      Operand<T, letter(F::OPERANDS, K), (K < INPUTS)>(
          a[K] + i * step[K], within[before(K)], n, buffer + before(K) * n)...};
  F().template operator()<wide<T>>(HostLane(), n, std::get<K>(operands).argument()...);
}

template <class F, class T>
void rows(char** a, const Index* count, const Index* step, void*) {
  constexpr int TOTAL = length(F::OPERANDS) - 1;
  const Index m = count[0], n = count[1];
  const auto over = [&](Index start, Index end) {
    // for the rows that are not contiguous, or of a half type
    const std::unique_ptr<wide<T>[]> buffer(new wide<T>[TOTAL * n]);
    for (Index i = start; i < end; ++i)
      row<F, T>(a, step, i, n, buffer.get(), std::make_integer_sequence<int, TOTAL>());
  };
  if (m == 1 || m * n < PARALLEL) {
    over(0, m);
  } else {
    const Index chunk = (PARALLEL / 8 + n - 1) / n;  // rows at a time
#pragma omp parallel for schedule(static)
    for (Index start = 0; start < m; start += chunk)
      over(start, start + chunk < m ? start + chunk : m);
  }
  forget_flags();
}

// ----------------------------------------------------------------------------- arrays

// Lanes that share the work of one call, on operands of `size` elements together.
struct HostTeam {
  Index size;

  // f(lane, i, scratch) for i = 0 ... count - 1, in any order: each has a lane, and
  // `scratch` numbers of T that it finds in any state.
  template <class T, class F> void parts(Index count, Index scratch, F f) const {
    if (count <= 1 || size < PARALLEL) {
      const std::unique_ptr<T[]> own(new T[scratch]);
      for (Index i = 0; i < count; ++i) f(HostLane(), i, own.get());
      return;
    }
#pragma omp parallel
    {
      const std::unique_ptr<T[]> own(new T[scratch]);
#pragma omp for schedule(dynamic)
      for (Index i = 0; i < count; ++i) f(HostLane(), i, own.get());
    }
  }
};

template <class T, char KIND> struct Element { using type = T; };
template <class T> struct Element<T, 'j'> { using type = long long; };
template <class T> struct Element<T, 'b'> { using type = signed char; };

template <class T, char KIND, bool INPUT> inline auto whole(char* at, Index count) {
  using E = typename Element<T, KIND>::type;
  if constexpr (KIND == 's')
    return wide<T>(*reinterpret_cast<const T*>(at));
  else if constexpr (INPUT)
    return Span<const E>{reinterpret_cast<const E*>(at), count};
  else
    return Span<E>{reinterpret_cast<E*>(at), count};
}

template <class F, class T, int... K>
inline void call(char* const* a, const Index* count, std::integer_sequence<int, K...>) {
  constexpr int INPUTS = inputs(F::OPERANDS);
  constexpr auto letter = [](int k) { return eg::letter(F::OPERANDS, k); };
  constexpr auto before = [](int k) {  // arrays among the operands before k
    int found = 0;
    for (int j = 0; j < k; ++j) found += eg::letter(F::OPERANDS, j) != 's';
    return found;
  };
  Index size = 0;
  for (int i = 0; i < before(sizeof...(K)); ++i) size += count[i];
  F().template operator()<wide<T>>(
      HostTeam{size}, whole<T, letter(K), (K < INPUTS)>(a[K], count[before(K)])...);
}

// Arrays come as they lie, without gaps: the caller sees to that.
template <class F, class T>
void arrays(char** a, const Index* count, const Index*, void*) {
  constexpr int TOTAL = length(F::OPERANDS) - 1;
  if (count[0]) call<F, T>(a, count + 1, std::make_integer_sequence<int, TOTAL>());
  forget_flags();
}

}  // namespace eg

// The loops of a kernel, in the order of host_kernels.DTYPES.
#define EG_EXPORT(...)                                                         \
  template <class T> constexpr eg::Loop loop = __VA_ARGS__;                    \
  extern "C" __attribute__((visibility("default"))) const eg::Loop eg_loops[]; \
  const eg::Loop eg_loops[] = {loop<eg::half>, loop<float>, loop<double>};

#define EG_ELEMENTWISE(name, arity) EG_EXPORT(eg::elementwise<eg::name, T, arity>)
#define EG_ROWS(name) EG_EXPORT(eg::rows<eg::name, T>)
#define EG_ARRAYS(name) EG_EXPORT(eg::arrays<eg::name, T>)
