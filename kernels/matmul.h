// Products of matrices of some ten thousand numbers, in panels of columns.
//
// A library packs both factors first and wakes its threads, which is worth it for large
// ones.  Here the second factor is read where it lies, unless its columns lie apart.
// Each element is
//   fma(a[k], b[k], ... fma(a[0], b[0], 0))
// whatever the size of tiles, panels and registers.
#pragma once

#include <type_traits>

#include "registers.h"

namespace eg {

template <class T, int COUNT>
inline void panel(const char* a, Index down_a, Index along_a, const T* b, Index down_b,
                  char* c, Index down_c, Index m, Index k, Index columns) {
  Index i = 0;
  const auto rows = [&](auto height) {
    constexpr int ROWS = decltype(height)::value;
    for (; i + ROWS <= m; i += ROWS) {
      const char* const top = a + i * down_a;
      char* const to = c + i * down_c;
      tile<T, ROWS, COUNT>(
          [=](auto f) {
            for (Index l = 0; l < k; ++l)
              f([=](int r) {
                return *reinterpret_cast<const T*>(top + r * down_a + l * along_a);
              }, b + l * down_b);
          },
          [=](int r, const T* row) {
            std::memcpy(to + r * down_c, row, columns * sizeof(T));
          });
    }
  };
  rows(std::integral_constant<int, TILE_ROWS>());
  rows(std::integral_constant<int, 2>());
  rows(std::integral_constant<int, 1>());
}

// A thread's memory for a panel whose numbers lie apart, for its next one too.
template <class T> struct Packed {
  T* at = nullptr;
  Index room = 0;
  ~Packed() { delete[] at; }
  T* of(Index n) {
    if (room < n) {
      delete[] at;
      at = new T[room = n];
    }
    return at;
  }
};

// One product: its result has rows without gaps.
template <class T>
void product_in_panels(char* const* args, const Index* count, const Index* step) {
  const Index m = count[1], k = count[2], n = count[3];
  const Index down_a = step[3], along_a = step[4], down_b = step[5], along_b = step[6],
              down_c = step[7];
  constexpr Index size = sizeof(T), wide = 2 * LANES<T>;
  static thread_local Packed<T> packed;
  for (Index j = 0; j < n; j += wide) {
    const Index columns = n - j < wide ? n - j : wide;
    const char* const from = args[1] + j * along_b;
    const T* b = reinterpret_cast<const T*>(from);
    Index down = down_b / size;
    if (columns < wide || along_b != size) {
      T* const to = packed.of(k * wide);
      if (columns < wide) std::memset(to, 0, k * wide * size);
      if (along_b == size)
        for (Index l = 0; l < k; ++l)
          std::memcpy(to + l * wide, from + l * down_b, columns * size);
      else
        for (Index l = 0; l < k; ++l)
#pragma GCC unroll 8
          for (Index i = 0; i < columns; ++i)
            to[l * wide + i] =
                *reinterpret_cast<const T*>(from + l * down_b + i * along_b);
      b = to;
      down = wide;
    }
    char* const c = args[2] + j * size;
    if (columns <= LANES<T>)
      panel<T, 1>(args[0], down_a, along_a, b, down, c, down_c, m, k, columns);
    else
      panel<T, 2>(args[0], down_a, along_a, b, down, c, down_c, m, k, columns);
  }
}

// The loop of a universal function (m,k),(k,n)->(m,n).
template <class T>
void products_in_panels(char** args, const Index* count, const Index* step, void*) {
  for (Index i = 0; i < count[0]; ++i) {
    char* const at[] = {args[0] + i * step[0], args[1] + i * step[1],
                        args[2] + i * step[2]};
    product_in_panels<T>(at, count, step);
  }
}

}  // namespace eg
