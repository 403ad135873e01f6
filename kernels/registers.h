// Tiles of a product of matrices, in a CPU's vector registers.
#pragma once

#include <cstring>

#include "core.h"

// Where x * y + z is one instruction with one rounding, as multiply_add is elsewhere.
#if defined(__clang__)
#define EG_FUSED [[clang::noinline]] inline
#pragma clang fp contract(fast)
#else
#define EG_FUSED [[gnu::noinline, gnu::optimize("fp-contract=fast")]] inline
#endif

namespace eg {

#if defined(__AVX512F__)
constexpr int REGISTER = 64, TILE_ROWS = 8;  // bytes; rows of two registers at once
#elif defined(__AVX__)
constexpr int REGISTER = 32, TILE_ROWS = 4;
#else
constexpr int REGISTER = 16, TILE_ROWS = 4;
#endif

template <class T> constexpr int LANES = REGISTER / sizeof(T);

template <class T> struct Register {
  typedef T type __attribute__((vector_size(REGISTER)));
};

// ROWS rows of COUNT registers, each handed over as put(row, its numbers).  Terms come
// from each(f), which calls f(x, b) for one after the other: row r has the sum of
// x(r) b[0], x(r) b[1] ... over them, in their order, whatever the size of tiles.
template <class T, int ROWS, int COUNT, class Each, class Put>
EG_FUSED void tile(Each each, Put put) {
  using R = typename Register<T>::type;
  R sums[ROWS][COUNT] = {};
  each([&](auto x, const T* b) {
    R row[COUNT];
    for (int j = 0; j < COUNT; ++j) std::memcpy(&row[j], b + j * LANES<T>, sizeof(R));
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; ++r) {
      const T factor = x(r);
#pragma GCC unroll 4
      for (int j = 0; j < COUNT; ++j) sums[r][j] += factor * row[j];
    }
  });
  for (int r = 0; r < ROWS; ++r) {
    T whole[COUNT * LANES<T>];  // not sums itself, which would then not stay in registers
    for (int j = 0; j < COUNT; ++j)
      std::memcpy(whole + j * LANES<T>, &sums[r][j], sizeof(R));
    put(r, whole);
  }
}

}  // namespace eg
