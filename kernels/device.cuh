// Kernels as launches of CUDA.
//
// A launch goes over rows x columns places.  Its layout says, of each operand, the type
// and how far apart the elements are from row to row and within one: so contiguous
// arrays, numbers, rows, columns and transposed matrices are one kernel, and so are half
// types, alone or beside float.  Kernels on whole arrays have one function for each type
// instead.  eagergrad/launches.py makes the layouts, and eagergrad/cuda_kernels.py
// prints the functions.
#pragma once

#include "core.h"
#include "functions.h"

namespace eg {

// What the operands of a kernel in float may be; those of one in double are all double.
enum Kind : Index { FLOAT, HALF, BFLOAT16 };

// K operands, in the order of OPERANDS; distances in elements.
template <int K> struct Layout {
  Index rows, columns;
  Index run, runs, head;  // elements for a thread to take at once; how often; before
  Index lane, lanes;  // the threads that share a row; how many rows a block has at once
  Index height;       // rows that a lane adds up
  Index outer[K], inner[K], kind[K];
  double number[K];  // what stands for an operand without an address
};

template <class T> __device__ T load(const void* a, Index place, Index kind) {
  if constexpr (sizeof(T) == sizeof(float)) {
    if (kind == HALF) return T(static_cast<const half*>(a)[place]);
    if (kind == BFLOAT16) return T(static_cast<const bfloat16*>(a)[place]);
  }
  return static_cast<const T*>(a)[place];
}

template <class T> __device__ void store(void* a, Index place, Index kind, T x) {
  if constexpr (sizeof(T) == sizeof(float)) {
    if (kind == HALF) {
      static_cast<half*>(a)[place] = half(x);
      return;
    }
    if (kind == BFLOAT16) {
      static_cast<bfloat16*>(a)[place] = bfloat16(x);
      return;
    }
  }
  static_cast<T*>(a)[place] = x;
}

template <class T, int K>
__device__ T read(const void* a, const Layout<K>& at, int k, Index i, Index j) {
  if (!a) return T(at.number[k]);
  return load<T>(a, i * at.outer[k] + j * at.inner[k], at.kind[k]);
}

// The first place of a thread in a launch, and how far it is to its next one.
__device__ inline Index first_place() {
  return Index(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline Index step() { return Index(gridDim.x) * blockDim.x; }

// ------------------------------------------------------------------------- elementwise

// One element of an operand, or a run of them that is moved at once and used one by one:
// the next is the lowest, and what is put in moves down from the top.  So no element
// needs a place of its own among the registers, nor the formula to be repeated for each.
template <class T> struct Run {
  static constexpr bool SINGLE = sizeof(T) == sizeof(float);
  uint4 words;
  Index kind;

  __device__ Index bytes(Index elements) const {
    return SINGLE && kind != FLOAT ? 2 * elements : Index(sizeof(T)) * elements;
  }
  // from 16 bytes at most; of a half type, 8 beside float
  __device__ void fetch(const void* from, Index elements) {
    const Index size = bytes(elements);
    if (size == 16) {
      words = *static_cast<const uint4*>(from);
    } else if (size == 8) {
      const uint2 both = *static_cast<const uint2*>(from);
      words.x = both.x, words.y = both.y;
    } else if (size == 4) {
      words.x = *static_cast<const unsigned*>(from);
    } else {
      words.x = *static_cast<const unsigned short*>(from);
    }
  }
  __device__ void flush(void* to, Index elements) const {
    const Index size = bytes(elements);
    if (size == 16)
      *static_cast<uint4*>(to) = words;
    else if (size == 8)
      *static_cast<uint2*>(to) = {words.z, words.w};
    else if (size == 4)
      *static_cast<unsigned*>(to) = words.w;
    else
      *static_cast<unsigned short*>(to) = (unsigned short)(words.w >> 16);
  }

  __device__ void shift(unsigned bits, unsigned top) {
    words.x = __funnelshift_rc(words.x, words.y, bits);
    words.y = __funnelshift_rc(words.y, words.z, bits);
    words.z = __funnelshift_rc(words.z, words.w, bits);
    words.w = __funnelshift_rc(words.w, top, bits);
  }
  __device__ T lowest() const { return load<T>(&words, 0, kind); }
  __device__ void drop() {
    if constexpr (SINGLE)
      shift(kind == FLOAT ? 32 : 16, 0);
    else
      words.x = words.z, words.y = words.w;
  }
  __device__ void put(T x) {
    if constexpr (SINGLE) {
      unsigned top = 0;
      store(&top, 0, kind, x);
      shift(kind == FLOAT ? 32 : 16, top);
    } else {
      words.x = words.z, words.y = words.w;
      memcpy(&words.z, &x, sizeof x);
    }
  }
};

// Of an operand that is read: so many elements, or one that stands for them.
template <class T> struct Source {
  Run<T> run;
  bool several;
  template <int K>
  __device__ Source(const void* a, const Layout<K>& at, int k, Index i, Index j,
                    Index elements)
      : several(elements > 1 && at.inner[k]) {
    run.kind = at.kind[k];
    const T number = T(at.number[k]);
    const char* const start = static_cast<const char*>(a);
    if (a)
      run.fetch(start + run.bytes(i * at.outer[k] + j * at.inner[k]),
                several ? elements : 1);
    else
      memcpy(&run.words, &number, sizeof number);
  }
  __device__ T next() {
    const T x = run.lowest();
    if (several) run.drop();
    return x;
  }
};

template <class F, class T, int K, int... I, int... O>
__device__ void elementwise(void* const* a, const Layout<K>& at, Places<I...>,
                            Places<O...>) {
  constexpr int N = sizeof...(I);
  const Index size = at.rows * at.columns, runs = at.runs;
  const Index rest = size - runs * at.run;
#pragma unroll 1  // many threads hide what waits; unrolled, all compile thrice as long
  for (Index t = first_place(); t < runs + rest; t += step()) {
    const Index one = t - runs;  // of those that are alone: first those in front
    const Index e = one < 0         ? at.head + t * at.run
                    : one < at.head ? one
                                    : one + runs * at.run;
    const Index i = at.rows == 1 ? 0 : divided(e, at.columns), j = e - i * at.columns;
    const Index elements = one < 0 ? at.run : 1;
    Source<T> x[] = {Source<T>(a[I], at, I, i, j, elements)...};
    Run<T> y[sizeof...(O)];
    ((y[O].kind = at.kind[N + O]), ...);
#pragma unroll 1
    for (Index n = elements; n; --n) {
      T made[sizeof...(O)];
      if constexpr (sizeof...(O) == 1)
        made[0] = F()(x[I].next()...);
      else
        F()(x[I].next()..., made[O]...);
      (y[O].put(made[O]), ...);
    }
    (y[O].flush(static_cast<char*>(a[N + O]) +
                    y[O].bytes(i * at.outer[N + O] + j * at.inner[N + O]),
                elements),
     ...);
  }
}

template <class F, class T, int K>
__device__ void elementwise(void* const* a, const Layout<K>& at) {
  constexpr int M = Results<F>::COUNT;
  elementwise<F, T>(a, at, typename Count<K - M>::type(), typename Count<M>::type());
}

// ------------------------------------------------------------------------------- rows

// Some threads of a block, which share a row: a power of two within a warp, or all.
// Each sums what it passes, then warps sum by halves, then each warp sums those: an
// order that depends on how many they are, and so on the row's length, alone.
struct Lane {
  static constexpr int WARP = 32;
  int threads, place;  // how many they are; which of them this one is
  explicit __device__ Lane(Index threads)
      : threads(int(threads)), place(threadIdx.x % unsigned(threads)) {}

  __device__ unsigned mask() const {
    if (threads >= WARP) return ~0u;
    return ((1u << threads) - 1) << (threadIdx.x % WARP - place);
  }

  template <class F> __device__ void each(Index n, F f) const {
#pragma unroll 1
    for (Index i = place; i < n; i += threads) f(i);
  }

  template <class F> __device__ void at(Index i, Index n, F f) const {
    if (0 <= i && i < n && i % threads == place) f(i);
  }

  // Each warp looks through all of them, so that none has to wait for another.
  template <class P, class F> __device__ void each_where(Index n, P holds, F f) const {
    const int width = threads < WARP ? threads : WARP;
    const int own = place % width, low = threadIdx.x % WARP - own;
#pragma unroll 1
    for (Index start = 0; start < n; start += width) {
      const bool found = start + own < n && holds(start + own);
      for (unsigned left = __ballot_sync(mask(), found) >> low; left; left &= left - 1)
        f(start + __ffs(left) - 1);
    }
  }

  template <class T, class C> __device__ T of_warp(T x, C combine) const {
    for (int half = (threads < WARP ? threads : WARP) / 2; half; half /= 2)
      x = combine(x, __shfl_xor_sync(mask(), x, half));
    return x;
  }

  template <class T, class F, class C>
  __device__ T fold(Index n, T start, F f, C combine) const {
    __shared__ T parts[WARP];
    T x = start;
    each(n, [&](Index i) { x = combine(x, T(f(i))); });
    x = of_warp(x, combine);
    if (threads <= WARP) return x;
    const int warps = threads / WARP, within = threadIdx.x % WARP;
    if (!within) parts[threadIdx.x / WARP] = x;
    __syncthreads();
    x = of_warp(within < warps ? parts[within] : start, combine);
    __syncthreads();  // the next fold writes there again
    return x;
  }

  template <class T, class F> __device__ T sum(Index n, F f) const {
    return fold(n, T(0), f, [](T a, T b) { return a + b; });
  }

  // The largest, or nan if there is one; -inf of none.
  template <class T, class F> __device__ T max(Index n, F f) const {
    return fold(n, -T(INFINITY), f, [](T a, T b) { return maximum(a, b); });
  }

  // The same of f(i, j) for m pieces of n elements each.
  template <class F> static __device__ auto in_pieces(Index n, F f) {
    return [=](Index e) {
      const Index i = divided(e, n);
      return f(i, e - i * n);
    };
  }
  template <class F> __device__ void each_of(Index m, Index n, F f) const {
    each(m * n, in_pieces(n, f));
  }
  template <class T, class F> __device__ T sum_of(Index m, Index n, F f) const {
    return sum<T>(m * n, in_pieces(n, f));
  }
  template <class T, class F> __device__ T max_of(Index m, Index n, F f) const {
    return max<T>(m * n, in_pieces(n, f));
  }
};

// One operand of row i: LETTER is that in OPERANDS.
template <class T, char LETTER, bool INPUT> struct RowOperand;

template <class T> struct RowOperand<T, 'n', true> {
  const void* x;
  Index start, step, kind;
  T number;
  template <int K>
  __device__ RowOperand(void* a, const Layout<K>& at, int k, Index i, const Lane&)
      : x(a), start(i * at.outer[k]), step(at.inner[k]), kind(at.kind[k]),
        number(T(at.number[k])) {}
  __device__ T operator[](Index j) const {
    return x ? load<T>(x, start + j * step, kind) : number;
  }
  __device__ const RowOperand& argument() const { return *this; }
};

template <class T> struct RowOperand<T, 'n', false> {
  struct Place {
    void* y;
    Index place, kind;
    __device__ void operator=(T x) const { store(y, place, kind, x); }
  };
  void* y;
  Index start, step, kind;
  template <int K>
  __device__ RowOperand(void* a, const Layout<K>& at, int k, Index i, const Lane&)
      : y(a), start(i * at.outer[k]), step(at.inner[k]), kind(at.kind[k]) {}
  __device__ Place operator[](Index j) const { return {y, start + j * step, kind}; }
  __device__ const RowOperand& argument() const { return *this; }
};

template <class T> struct RowOperand<T, 's', true> {
  T x;
  template <int K>
  __device__ RowOperand(void* a, const Layout<K>& at, int k, Index i, const Lane&)
      : x(read<T>(a, at, k, i, 0)) {}
  __device__ T argument() const { return x; }
};

template <class T> struct RowOperand<T, 's', false> {
  void* to;
  Index place, kind;
  bool first;
  T y = 0;
  template <int K>
  __device__ RowOperand(void* a, const Layout<K>& at, int k, Index i, const Lane& lane)
      : to(a), place(i * at.outer[k]), kind(at.kind[k]), first(!lane.place) {}
  __device__ ~RowOperand() {
    if (first) store(to, place, kind, y);
  }
  __device__ T& argument() { return y; }
};

template <class T> struct RowOperand<T, 'i', true> {
  long long x;
  template <int K>
  __device__ RowOperand(void* a, const Layout<K>& at, int k, Index i, const Lane&)
      : x(a ? static_cast<const long long*>(a)[i * at.outer[k]]
            : (long long)at.number[k]) {}
  __device__ long long argument() const { return x; }
};

// Of a lane's own sums, which it is given the address of.
template <class T> struct RowOperand<T, 'c', false> {
  T* sums;
  template <int K>
  __device__ RowOperand(void* a, const Layout<K>&, int, Index, const Lane&)
      : sums(static_cast<T*>(a)) {}
  __device__ T* argument() const { return sums; }
};

// What differs in its name alone: the type is in the layout, and so are the distances.
#define EG_OPERAND(letter, like)                                                \
  template <class T, bool INPUT>                                                \
  struct RowOperand<T, letter, INPUT> : RowOperand<T, like, INPUT> {            \
    using RowOperand<T, like, INPUT>::RowOperand;                               \
  };
EG_OPERAND('t', 'n')
EG_OPERAND('w', 's')
EG_OPERAND('m', 's')
#undef EG_OPERAND

template <class F, class T, int K, int... I>
__device__ void row(void* const* a, const Layout<K>& at, const Lane& lane, Index i,
                    Places<I...>) {
  F().template operator()<T>(
      lane, at.columns,
      RowOperand<T, letter(F::OPERANDS, I), (I < inputs(F::OPERANDS))>(a[I], at, I, i,
                                                                       lane)
          .argument()...);
}

template <class F, class T, int K>
__device__ void rows(void* const* a, const Layout<K>& at) {
  const Lane lane(at.lane);
  const Index own = divided(threadIdx.x, at.lane);
#pragma unroll 1
  for (Index i = blockIdx.x * at.lanes + own; i < at.rows; i += gridDim.x * at.lanes)
    row<F, T>(a, at, lane, i, typename Count<K>::type());
}

// ---------------------------------------------------------------------------- columns

constexpr int sum_count(const char* text) {
  return *text ? (*text == 'c') + sum_count(text + 1) : 0;
}

// Element e of the sums of all columns, to where the results lie.
template <class F, class T, int K>
__device__ void keep_sum(void* const* a, const Layout<K>& at, Index e, T x) {
  for (int r = K - sum_count(F::OPERANDS); r < K; ++r, e -= at.columns)
    if (e >= 0 && e < at.columns) store(a[r], e * at.inner[r], at.kind[r], x);
}

// Each lane adds up some rows, one after the other; then each block adds its lanes',
// and keeps that for column_sums, or as the result if it is the only block.
template <class F, class T, int K>
__device__ void columns(void* const* a, T* sums, const Layout<K>& at) {
  constexpr int SUMS = sum_count(F::OPERANDS);
  const Index size = SUMS * at.columns;
  const Lane lane(at.lane);
  const Index tile = blockIdx.x * at.lanes + divided(threadIdx.x, at.lane);
  T* const block = sums + blockIdx.x * at.lanes * size;
  void* own[K];
  for (int k = 0; k < K; ++k) own[k] = a[k];
  for (int r = 0; r < SUMS; ++r) {
    T* const zeros = sums + tile * size + r * at.columns;
    lane.each(at.columns, [&](Index j) { zeros[j] = T(0); });
    own[K - SUMS + r] = zeros;
  }
  const Index first = tile * at.height, stop = first + at.height;
#pragma unroll 1
  for (Index i = first; i < stop && i < at.rows; ++i)
    row<F, T>(own, at, lane, i, typename Count<K>::type());
  __syncthreads();
  for (Index e = threadIdx.x; e < size; e += blockDim.x) {
    T x = block[e];
    for (Index k = 1; k < at.lanes; ++k) x += block[k * size + e];
    if (gridDim.x == 1)
      keep_sum<F>(a, at, e, x);
    else
      block[e] = x;
  }
}

// The sums of what the blocks of `columns` kept: a warp's threads have a column each,
// and the warps of a block every so many of the rows.
template <class F, class T, int K>
__device__ void column_sums(void* const* a, const T* sums, const Layout<K>& at) {
  constexpr int WARP = Lane::WARP;
  __shared__ T parts[WARP][WARP + 1];
  const Index size = sum_count(F::OPERANDS) * at.columns, each = at.lanes * at.height;
  const Index blocks = (at.rows + each - 1) / each;
  const int own = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const int warps = blockDim.x / WARP;
  const Index e = Index(blockIdx.x) * WARP + own;
  T x = 0;
  if (e < size)
    for (Index b = warp; b < blocks; b += warps) x += sums[b * at.lanes * size + e];
  parts[warp][own] = x;
  __syncthreads();
  if (warp || e >= size) return;
  for (int k = 1; k < warps; ++k) x += parts[k][own];
  keep_sum<F>(a, at, e, x);
}

// ----------------------------------------------------------------------------- arrays

// K operands: how many elements they have; integers may come with the launch.
template <int K> struct Whole {
  static constexpr int WORDS = 32;
  Index size;  // elements of all operands together
  Index count[K], word[K];
  double number[K];
  long long words[WORDS];
};

// The threads of a launch, which share its work.
struct Team {
  Index size;

  // f(lane, i) for i = 0 ... count - 1: a block for each where that is much to do.
  template <class F> __device__ void parts(Index count, F f) const {
    const bool much = size >= 8 * Index(blockDim.x) * count;
    const Lane lane(much ? blockDim.x : Lane::WARP);
    const Index lanes = blockDim.x / lane.threads;
#pragma unroll 1
    for (Index i = blockIdx.x * lanes + threadIdx.x / lane.threads; i < count;
         i += gridDim.x * lanes)
      f(lane, i);
  }

  // f(i) for i = 0 ... count - 1
  template <class F> __device__ void each(Index count, Index, F f) const {
#pragma unroll 1
    for (Index i = first_place(); i < count; i += step()) f(i);
  }

  // A thread for each element of each line: it passes over runs that do not reach it.
  template <class T, int M, class R, class E>
  __device__ void lines(Index count, Index n, const T (&start)[M], R runs, E end) const {
    each(count * n, 0, [&](Index e) {
      const Index line = divided(e, n), i = e - line * n;
      T s[M];
      for (int m = 0; m < M; ++m) s[m] = start[m];
      runs(line, [&](Index first, Index step, Index length, auto f) {
        const Index past = i - first;
        if (past < 0) return;
        const Index j = step == 1 ? past : divided(past, step);
        if (j >= length || j * step != past) return;
        if constexpr (M == 1)
          f(j, s[0]);
        else
          f(j, s[0], s[1]);
      });
      if constexpr (M == 1)
        end(e, s[0]);
      else
        end(e, s[0], s[1]);
    });
  }
};

template <class T, char LETTER, bool INPUT, int K>
__device__ auto whole(void* a, const Whole<K>& at, int k) {
  if constexpr (LETTER == 's')
    return wide<T>(T(wide<T>(at.number[k])));
  else if constexpr (LETTER == 'j')
    return Span<const long long>{
        a ? static_cast<const long long*>(a) : at.words + at.word[k], at.count[k]};
  else if constexpr (LETTER == 'b' && INPUT)
    return Span<const signed char>{static_cast<const signed char*>(a), at.count[k]};
  else if constexpr (LETTER == 'b')
    return Span<signed char>{static_cast<signed char*>(a), at.count[k]};
  else if constexpr (INPUT)
    return Span<const T>{static_cast<const T*>(a), at.count[k]};
  else
    return Span<T>{static_cast<T*>(a), at.count[k]};
}

template <class F, class T, int K, int... I>
__device__ void arrays(void* const* a, const Whole<K>& at, Places<I...>) {
  F().template operator()<wide<T>>(
      Team{at.size},
      whole<T, letter(F::OPERANDS, I), (I < inputs(F::OPERANDS))>(a[I], at, I)...);
}

template <class F, class T, int K>
__device__ void arrays(void* const* a, const Whole<K>& at) {
  arrays<F, T>(a, at, typename Count<K>::type());
}

}  // namespace eg
