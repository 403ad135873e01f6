// Kernels as launches of CUDA.
//
// A launch goes over rows x columns places.  Its layout says, of each operand, the type
// and how far apart the elements are from row to row and within one: so contiguous
// arrays, numbers, rows, columns and transposed matrices are one kernel, and so are half
// types, alone or beside float.  eagergrad/launches.py makes the layouts, and
// eagergrad/cuda_kernels.py prints two functions for each kernel: in float and in double.
#pragma once

#include "core.h"
#include "functions.h"

namespace eg {

// What the operands of a kernel in float may be; those of one in double are all double.
enum Kind : Index { FLOAT, HALF, BFLOAT16 };

// K operands, in the order of OPERANDS; distances in elements.
template <int K> struct Layout {
  Index rows, columns;
  Index outer[K], inner[K], kind[K];
  double number[K];  // what stands for an operand without an address
};

// 0, ..., N - 1
template <int... I> struct Places {};
template <int N, int... I> struct Count : Count<N - 1, N - 1, I...> {};
template <int... I> struct Count<0, I...> { using type = Places<I...>; };

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

// ------------------------------------------------------------------------- elementwise

template <class T, int K>
__device__ T read(const void* a, const Layout<K>& at, int k, Index i, Index j) {
  if (!a) return T(at.number[k]);
  return load<T>(a, i * at.outer[k] + j * at.inner[k], at.kind[k]);
}

template <class F, class T, int K, int... I, int... O>
__device__ void elementwise(void* const* a, const Layout<K>& at, Places<I...>,
                            Places<O...>) {
  constexpr int N = sizeof...(I);
  const Index size = at.rows * at.columns, step = Index(gridDim.x) * blockDim.x;
#pragma unroll 1  // many threads hide what waits; unrolled, all compile thrice as long
  for (Index e = Index(blockIdx.x) * blockDim.x + threadIdx.x; e < size; e += step) {
    const Index i = at.rows == 1 ? 0 : e / at.columns, j = e - i * at.columns;
    T y[sizeof...(O)];
    if constexpr (sizeof...(O) == 1)
      y[0] = F()(read<T>(a[I], at, I, i, j)...);
    else
      F()(read<T>(a[I], at, I, i, j)..., y[O]...);
    (store(a[N + O], i * at.outer[N + O] + j * at.inner[N + O], at.kind[N + O], y[O]),
     ...);
  }
}

template <class F, class T, int K>
__device__ void elementwise(void* const* a, const Layout<K>& at) {
  constexpr int M = Results<F>::COUNT;
  elementwise<F, T>(a, at, typename Count<K - M>::type(), typename Count<M>::type());
}

// ------------------------------------------------------------------------------- rows

// The threads of a block, which share a row.  Each sums what it passes, then warps sum
// by halves, then each warp sums those: an order that depends on the block's size, and
// so on the row's length, alone.
struct BlockLane {
  static constexpr int WARP = 32;

  template <class F> __device__ void each(Index n, F f) const {
#pragma unroll 1
    for (Index i = threadIdx.x; i < n; i += blockDim.x) f(i);
  }

  template <class T, class C> static __device__ T of_warp(T x, C combine) {
    for (int half = WARP / 2; half; half /= 2)
      x = combine(x, __shfl_xor_sync(0xffffffff, x, half));
    return x;
  }

  template <class T, class F, class C>
  __device__ T fold(Index n, T start, F f, C combine) const {
    __shared__ T parts[WARP];
    T x = start;
    each(n, [&](Index i) { x = combine(x, T(f(i))); });
    x = of_warp(x, combine);
    const int warps = blockDim.x / WARP, place = threadIdx.x % WARP;
    if (warps == 1) return x;
    if (!place) parts[threadIdx.x / WARP] = x;
    __syncthreads();
    x = of_warp(place < warps ? parts[place] : start, combine);
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
};

// One operand of one row: LETTER is that in OPERANDS.
template <class T, char LETTER, bool INPUT> struct RowOperand;

template <class T> struct RowOperand<T, 'n', true> {
  const void* x;
  Index start, step, kind;
  template <int K> __device__ RowOperand(void* a, const Layout<K>& at, int k, Index i)
      : x(a), start(i * at.outer[k]), step(at.inner[k]), kind(at.kind[k]) {}
  __device__ T operator[](Index j) const { return load<T>(x, start + j * step, kind); }
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
  template <int K> __device__ RowOperand(void* a, const Layout<K>& at, int k, Index i)
      : y(a), start(i * at.outer[k]), step(at.inner[k]), kind(at.kind[k]) {}
  __device__ Place operator[](Index j) const { return {y, start + j * step, kind}; }
  __device__ const RowOperand& argument() const { return *this; }
};

template <class T> struct RowOperand<T, 's', true> {
  T x;
  template <int K> __device__ RowOperand(void* a, const Layout<K>& at, int k, Index i)
      : x(read<T>(a, at, k, i, 0)) {}
  __device__ T argument() const { return x; }
};

template <class T> struct RowOperand<T, 's', false> {
  void* to;
  Index place, kind;
  T y = 0;
  template <int K> __device__ RowOperand(void* a, const Layout<K>& at, int k, Index i)
      : to(a), place(i * at.outer[k]), kind(at.kind[k]) {}
  __device__ ~RowOperand() {
    if (!threadIdx.x) store(to, place, kind, y);
  }
  __device__ T& argument() { return y; }
};

template <class T> struct RowOperand<T, 'i', true> {
  long long x;
  template <int K> __device__ RowOperand(void* a, const Layout<K>& at, int k, Index i)
      : x(static_cast<const long long*>(a)[i * at.outer[k]]) {}
  __device__ long long argument() const { return x; }
};

template <class F, class T, int K, int... I>
__device__ void rows(void* const* a, const Layout<K>& at, Places<I...>) {
#pragma unroll 1
  for (Index i = blockIdx.x; i < at.rows; i += gridDim.x)
    F().template operator()<T>(
        BlockLane(), at.columns,
        RowOperand<T, letter(F::OPERANDS, I), (I < inputs(F::OPERANDS))>(a[I], at, I, i)
            .argument()...);
}

template <class F, class T, int K>
__device__ void rows(void* const* a, const Layout<K>& at) {
  rows<F, T>(a, at, typename Count<K>::type());
}

}  // namespace eg
