// Random numbers from a counter: eagergrad/ops/philox.py says how, in array operations.
#pragma once

#include <stdint.h>

#include "lane.h"

namespace eg {

// Philox4x32-10, by Salmon, Moraes, Dror and Shaw (2011).
struct Philox {
  uint64_t key, offset;

  // The four words of a block.
  EG_FN void words(uint64_t block, uint32_t (&c)[4]) const {
    c[0] = uint32_t(block), c[1] = uint32_t(block >> 32);
    c[2] = uint32_t(offset), c[3] = uint32_t(offset >> 32);
    uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
      const uint64_t p = uint64_t(c[0]) * 0xD2511F53u, q = uint64_t(c[2]) * 0xCD9E8D57u;
      c[0] = uint32_t(q >> 32) ^ c[1] ^ k0;
      c[1] = uint32_t(q);
      c[2] = uint32_t(p >> 32) ^ c[3] ^ k1;
      c[3] = uint32_t(p);
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
  }

  // f(i, words, k) for n elements, COUNT to a block: k = i % COUNT.
  template <int COUNT, class Team, class F>
  EG_FN void each(const Team& team, Index n, F f) const {
    const Index share = 4096 / COUNT, blocks = n / COUNT, rest = n % COUNT;
    team.template parts<char>(blocks / share + 1, 0, [&](auto lane, Index part, char*) {
      const Index first = part * share, left = blocks - first;
      lane.each(left < share ? left : share, [&](Index b) {
        uint32_t c[4];
        words(uint64_t(first + b), c);
        for (int k = 0; k < COUNT; ++k) f((first + b) * COUNT + k, c, k);
      });
      if (left < share) {  // the last part has what fills no block
        uint32_t c[4];
        words(uint64_t(blocks), c);
        for (Index k = 0; k < rest; ++k) f(blocks * COUNT + k, c, int(k));
      }
    });
  }
};

using Seed = Span<const long long>;  // key, offset and what else there is

// Multiples of `unit`, the least difference of numbers that go from 0 to 1.
struct uniform {
  static constexpr char OPERANDS[] = "sj>a";
  template <class T, class Team, class Y>
  EG_FN void operator()(const Team& team, T unit, Seed seed, Y y) const {
    const Philox philox{uint64_t(seed[0]), uint64_t(seed[1])};
    if constexpr (sizeof(y[0]) == 8)
      philox.each<2>(team, y.count, [&](Index i, const uint32_t* c, int k) {
        const uint64_t high = c[2 * k] >> 5, low = c[2 * k + 1] >> 6;
        y[i] = T(high << 26 | low) * unit;
      });
    else if constexpr (sizeof(y[0]) == 4)
      philox.each<4>(team, y.count, [&](Index i, const uint32_t* c, int k) {
        y[i] = T(c[k] >> 8) * unit;
      });
    else
      philox.each<4>(team, y.count, [&](Index i, const uint32_t* c, int k) {
        y[i] = T(c[k] >> 21) * unit;
      });
  }
};

// x / keep where a uniform number of 24 bits is at least seed[2] * 2^-24, else 0.
struct dropout {
  static constexpr char OPERANDS[] = "asj>a";
  template <class T, class Team, class X, class Y>
  EG_FN void operator()(const Team& team, X x, T keep, Seed seed, Y y) const {
    const Philox philox{uint64_t(seed[0]), uint64_t(seed[1])};
    const uint32_t least = uint32_t(seed[2]);
    philox.each<4>(team, y.count, [&](Index i, const uint32_t* c, int k) {
      const T grown = T(x[i]) / keep;
      y[i] = (c[k] >> 8) >= least ? grown : T(0);
    });
  }
};

}  // namespace eg
