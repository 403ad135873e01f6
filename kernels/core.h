// What every kernel stands on: where functions run, and the types they run on.
#pragma once

#ifdef __CUDACC__
#define EG_FN __host__ __device__ __forceinline__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#else
// in a large file GCC would stop inlining, and with it vectorising
#define EG_FN [[gnu::always_inline]] inline
#include <cstddef>
#endif

namespace eg {

#ifdef __CUDACC__
using Index = long long;
#else
using Index = std::ptrdiff_t;  // NumPy's npy_intp
#endif

#ifdef __CUDACC__
using half = __half;
#elif defined(__FLT16_MAX__)
using half = _Float16;
#else
#error "eagergrad's kernels need a compiler with _Float16: GCC 12 or Clang 15"
#endif

// What a type is computed in: half types in float.
template <class T> struct Wide { using type = T; };
template <> struct Wide<half> { using type = float; };
#ifdef __CUDACC__
template <> struct Wide<__nv_bfloat16> { using type = float; };
#endif
template <class T> using wide = typename Wide<T>::type;

}  // namespace eg
