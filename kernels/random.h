// Random numbers from a counter: eagergrad/ops/philox.py says how, in array operations.
#pragma once

#include "lane.h"

namespace eg {

using Word = unsigned;
using Pair = unsigned long long;  // of words

// Philox4x32-10, by Salmon, Moraes, Dror and Shaw (2011).
struct Philox {
  Pair key, offset;

  // The four words of a block.
  EG_FN void words(Pair block, Word (&c)[4]) const {
    c[0] = Word(block), c[1] = Word(block >> 32);
    c[2] = Word(offset), c[3] = Word(offset >> 32);
    Word k0 = Word(key), k1 = Word(key >> 32);
#ifndef __CUDACC__
#pragma GCC unroll 10
#endif
    for (int round = 0; round < 10; ++round) {
      const Pair p = Pair(c[0]) * 0xD2511F53u, q = Pair(c[2]) * 0xCD9E8D57u;
      c[0] = Word(q >> 32) ^ c[1] ^ k0;
      c[1] = Word(q);
      c[2] = Word(p >> 32) ^ c[3] ^ k1;
      c[3] = Word(p);
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
  }

  // f(i, words, k) for n elements, COUNT to a block: k = i % COUNT.
  template <int COUNT, class Team, class F>
  EG_FN void each(const Team& team, Index n, F f) const {
    const Index blocks = n / COUNT, rest = n % COUNT;
    const auto block = [&](Index b, int count) {
      Word c[4];
      words(Pair(b), c);
      for (int k = 0; k < count; ++k) f(b * COUNT + k, c, k);
    };
    team.each(blocks, 4096 / COUNT, [&](Index b) { block(b, COUNT); });
    if (rest)  // fills no block
      team.each(1, 1, [&](Index) { block(blocks, int(rest)); });
  }
};

// The bits of a word that a number of a type, from 0 to 1, has no room for.
template <class T> constexpr int SPARE = 8;
template <> constexpr int SPARE<half> = 21;
template <> constexpr int SPARE<bfloat16> = 24;

using Seed = Span<const long long>;  // key, offset and what else there is

// Multiples of `unit`, the least difference of numbers that go from 0 to 1.
struct uniform {
  static constexpr char OPERANDS[] = "sj>a";
  template <class T, class Team, class Y>
  EG_FN void operator()(const Team& team, T unit, Seed seed, Y y) const {
    const Philox philox{Pair(seed[0]), Pair(seed[1])};
    if constexpr (sizeof(T) == sizeof(double))
      philox.each<2>(team, y.count, [&](Index i, const Word* c, int k) {
        const Pair high = c[2 * k] >> 5, low = c[2 * k + 1] >> 6;
        y[i] = T(high << 26 | low) * unit;
      });
    else
      philox.each<4>(team, y.count, [&](Index i, const Word* c, int k) {
        y[i] = T(c[k] >> SPARE<typename Y::Element>) * unit;
      });
  }
};

// scale times sqrt(-2 log u) cos(2 pi v) and sqrt(-2 log u) sin(2 pi v), of two words, by
// Box and Muller (1958); in double, and rounded once.
struct normal {
  static constexpr char OPERANDS[] = "sj>a";
  template <class T, class Team, class Y>
  EG_FN void operator()(const Team& team, T scale, Seed seed, Y y) const {
    constexpr double UNIT = 1.0 / 4294967296.0, TURN = 6.283185307179586 * UNIT;
    const Philox philox{Pair(seed[0]), Pair(seed[1])};
    philox.each<4>(team, y.count, [&](Index i, const Word* c, int k) {
      const double u = (double(c[k & 2]) + 1.0) * UNIT;
      const double radius = sqrt(-2.0 * log(u)), angle = double(c[k | 1]) * TURN;
      const double x = radius * (k & 1 ? sin(angle) : cos(angle));
      y[i] = typename Y::Element(double(scale) * x);
    });
  }
};

// x / keep where a uniform number of 24 bits is at least seed[2] * 2^-24, else 0.
struct dropout {
  static constexpr char OPERANDS[] = "asj>a";
  template <class T, class Team, class X, class Y>
  EG_FN void operator()(const Team& team, X x, T keep, Seed seed, Y y) const {
    const Philox philox{Pair(seed[0]), Pair(seed[1])};
    const Word least = Word(seed[2]);
    philox.each<4>(team, y.count, [&](Index i, const Word* c, int k) {
      const T grown = T(x[i]) / keep;
      y[i] = (c[k] >> 8) >= least ? grown : T(0);
    });
  }
};

}  // namespace eg
