// Kernels called from Python without NumPy's iterators, which take longer than the loops
// of small arrays do.
//
// eg_direct is a function of Python's: it reads arrays as they lie in memory, makes the
// results, and calls a loop of host.h once.  What is not plain (operands that broadcast,
// have gaps or another dtype, keywords, large arrays) goes to NumPy's universal function
// of the same kernel.  What is known of Python's and NumPy's structures stands here and
// in eagergrad/direct.py, which tries it before use.
#pragma once

#include <cstddef>

#include "host.h"

namespace eg {

constexpr int MOST = 16;             // operands
constexpr int MOST_DIMENSIONS = 32;  // of an array
constexpr Index SMALL = 1 << 13;     // elements of all inputs; NumPy lets threads run

struct Object {
  Index references;
  const void* type;
};

struct Array : Object {
  char* data;
  int axes;
  Index *shape, *steps;
  Object *base, *dtype;
  int flags;
  bool plain() const { return (flags & 0x101) == 0x101; }  // without gaps, and aligned
};

// What eagergrad/direct.py fills in for each kernel.
struct Direct {
  const void* array_type;
  Object* ufunc;
  Object* (*call)(Object*, Object* const*, std::size_t, Object*);
  Object* (*make)(const void*, Object*, int, const Index*, const Index*, void*, int, Object*);
  Object* (*tuple)(Index);
  int (*put)(Object*, Index, Object*);
  void (*hold)(Object*);
  void (*drop)(Object*);
  Index inputs, results, dtypes;
  Index core[MOST];          // how many core axes an operand has
  Index dimensions[MOST][2]; // their numbers among all core axes
  Loop loops[3];
  Object* types[3][MOST];    // the operands' dtypes for each loop
  Index widths[3][MOST];     // and how many bytes a number takes
};

inline bool served(const Direct& kernel, Object* const* args, int dtype) {
  for (Index k = 0; k < kernel.inputs; ++k)
    if (static_cast<Array*>(args[k])->dtype != kernel.types[dtype][k]) return false;
  return true;
}

// The results, or null where NumPy is to make them; ``failed`` if memory ran out.
inline Object* direct(const Direct& kernel, Object* const* args, bool& failed) {
  for (Index k = 0; k < kernel.inputs; ++k)
    if (args[k]->type != kernel.array_type || !static_cast<Array*>(args[k])->plain())
      return nullptr;
  int dtype = 0;
  while (!served(kernel, args, dtype))
    if (++dtype == kernel.dtypes) return nullptr;

  const Index operands = kernel.inputs + kernel.results;
  const Index* const width = kernel.widths[dtype];
  Index sizes[MOST], around = 0, total = 0, count = 1;
  for (int d = 0; d < MOST; ++d) sizes[d] = -1;
  Index shape[MOST_DIMENSIONS];
  char* at[MOST];
  Index steps[3 * MOST], *inner = steps + operands;  // around the loop, then within
  for (Index k = 0; k < kernel.inputs; ++k) {
    const Array& x = *static_cast<Array*>(args[k]);
    const Index core = kernel.core[k], outer = x.axes - core;
    if (outer < 0 || outer > MOST_DIMENSIONS - 2) return nullptr;
    if (outer && !around) {
      for (around = 0; around < outer; ++around) count *= shape[around] = x.shape[around];
    } else if (outer) {
      if (outer != around) return nullptr;
      for (Index i = 0; i < outer; ++i)
        if (shape[i] != x.shape[i]) return nullptr;
    }
    Index size = 1;
    for (Index i = 0; i < core; ++i) {
      const Index n = x.shape[outer + i];
      Index& known = sizes[kernel.dimensions[k][i]];
      if (known >= 0 && known != n) return nullptr;
      known = n;
      size *= n;
    }
    // an axis of length 1 may have any step: so not as the array has them
    if (core == 2) *inner++ = width[k] * x.shape[outer + 1];
    if (core) *inner++ = width[k];
    steps[k] = outer ? size * width[k] : 0;
    at[k] = x.data;
    total += outer ? size * count : size;
    if (!size) return nullptr;
  }
  if (total > SMALL || !count) return nullptr;

  Object* made[MOST];
  for (Index r = 0, k = kernel.inputs; k < operands; ++r, ++k) {
    const Index core = kernel.core[k];
    Index size = 1;
    for (Index i = 0; i < core; ++i)
      size *= shape[around + i] = sizes[kernel.dimensions[k][i]];
    Object* const type = kernel.types[dtype][k];
    kernel.hold(type);  // which `make` takes
    made[r] = kernel.make(kernel.array_type, type, int(around + core), shape,
                          nullptr, nullptr, 0, nullptr);
    if (!made[r]) {
      while (r) kernel.drop(made[--r]);
      failed = true;
      return nullptr;
    }
    if (core == 2) *inner++ = width[k] * shape[around + 1];
    if (core) *inner++ = width[k];
    steps[k] = around ? size * width[k] : 0;
    at[k] = static_cast<Array*>(made[r])->data;
  }
  Index counts[1 + MOST] = {count};
  for (int d = 0; d < MOST; ++d) counts[1 + d] = sizes[d];
  kernel.loops[dtype](at, counts, steps, nullptr);
  if (kernel.results == 1) return made[0];
  Object* const all = kernel.tuple(kernel.results);
  for (Index r = 0; r < kernel.results; ++r) {
    if (all)
      kernel.put(all, r, made[r]);
    else
      kernel.drop(made[r]);
  }
  failed = !all;
  return all;
}

}  // namespace eg

// self: an array of NumPy's with a Direct in it.
extern "C" __attribute__((visibility("default"))) eg::Object* eg_direct(
    eg::Object* self, eg::Object* const* args, eg::Index given, eg::Object* names) {
  const eg::Direct& kernel =
      *reinterpret_cast<const eg::Direct*>(static_cast<eg::Array*>(self)->data);
  if (!names && given == kernel.inputs) {
    bool failed = false;
    eg::Object* const found = eg::direct(kernel, args, failed);
    if (found || failed) return found;
  }
  return kernel.call(kernel.ufunc, args, given, names);
}
