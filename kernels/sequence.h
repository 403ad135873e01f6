// Loops of universal functions called one after the other, as words of memory say.
//
// A captured program is a list of such calls on buffers that never move: one call of
// eg_sequence makes them all, with no Python between them (eagergrad/loops.py).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "host.h"
#include "matmul.h"

namespace eg {

constexpr int MOST_OPERANDS = 32, MOST_AXES = 16;

// A call's words: the loop and its data; how many operands, counts, steps and axes;
// those themselves; for each axis around the loop, outermost first, its length and the
// operands' steps in it.
inline const Index* called(const Index* at) {
  const Loop loop = reinterpret_cast<Loop>(at[0]);
  void* const data = reinterpret_cast<void*>(at[1]);
  const Index operands = at[2], counts = at[3], steps = at[4], axes = at[5];
  const Index *const arguments = at + 6, *const count = arguments + operands,
                     *const step = count + counts, *const axis = step + steps;
  char *a[MOST_OPERANDS], *given[MOST_OPERANDS];  // a loop may change what it is given
  std::memcpy(a, arguments, operands * sizeof(char*));
  const Index stride = 1 + operands;
  Index place[MOST_AXES] = {};
  for (;;) {
    std::memcpy(given, a, operands * sizeof(char*));
    loop(given, count, step, data);
    Index k = axes - 1;
    for (; k >= 0; --k) {
      const Index* const of = axis + k * stride;
      if (++place[k] < of[0]) {
        for (Index i = 0; i < operands; ++i) a[i] += of[1 + i];
        break;
      }
      place[k] = 0;
      for (Index i = 0; i < operands; ++i) a[i] -= of[1 + i] * (of[0] - 1);
    }
    if (k < 0) return axis + axes * stride;
  }
}

// The elements of one array to another of the same dtype, of SIZE bytes each.
template <std::size_t SIZE>
void copied(char** a, const Index* count, const Index* step, void*) {
  const Index n = count[0];
  if (step[0] == Index(SIZE) && step[1] == Index(SIZE)) {
    std::memmove(a[1], a[0], n * SIZE);
    return;
  }
  for (Index i = 0; i < n; ++i) std::memcpy(a[1] + i * step[1], a[0] + i * step[0], SIZE);
}

// condition ? x : y, whatever the bits mean.
template <class T>
void chosen(char** a, const Index* count, const Index* step, void*) {
  const Index n = count[0], size = sizeof(T);
  const auto dense = [&](int k) { return step[k] == size || step[k] == 0; };
  const auto truth = reinterpret_cast<const unsigned char*>(a[0]);
  if (step[0] == 1 && step[3] == size && dense(1) && dense(2)) {
    const auto to = reinterpret_cast<T*>(a[3]);
    const auto fill = [&](auto x, auto y) {
#pragma GCC ivdep
      for (Index i = 0; i < n; ++i) to[i] = truth[i] ? x(i) : y(i);
    };
    const auto row = [](const char* from) {
      return [x = reinterpret_cast<const T*>(from)](Index i) { return x[i]; };
    };
    const auto number = [](const char* from) {
      return [x = *reinterpret_cast<const T*>(from)](Index) { return x; };
    };
    if (step[1] && step[2])
      fill(row(a[1]), row(a[2]));
    else if (step[1])
      fill(row(a[1]), number(a[2]));
    else if (step[2])
      fill(number(a[1]), row(a[2]));
    else
      fill(number(a[1]), number(a[2]));
    return;
  }
  for (Index i = 0; i < n; ++i)
    std::memcpy(a[3] + i * step[3],
                truth[i * step[0]] ? a[1] + i * step[1] : a[2] + i * step[2], size);
}

}  // namespace eg

extern "C" __attribute__((visibility("default"))) void eg_sequence(const eg::Index* at,
                                                                   const eg::Index* end) {
  while (at != end) at = eg::called(at);
  eg::forget_flags();
}

// Each of numbers of 1, 2, 4 and 8 bytes, and copies of 16.
extern "C" __attribute__((visibility("default"))) const eg::Loop eg_copies[];
const eg::Loop eg_copies[] = {eg::copied<1>, eg::copied<2>, eg::copied<4>,
                              eg::copied<8>, eg::copied<16>};

extern "C" __attribute__((visibility("default"))) const eg::Loop eg_choices[];
const eg::Loop eg_choices[] = {eg::chosen<std::uint8_t>, eg::chosen<std::uint16_t>,
                               eg::chosen<std::uint32_t>, eg::chosen<std::uint64_t>};

extern "C" __attribute__((visibility("default"))) const eg::Loop eg_products[];
const eg::Loop eg_products[] = {eg::products_in_panels<float>,
                                eg::products_in_panels<double>};
