// Kernels as loops of NumPy's universal functions.
//
// NumPy broadcasts, allocates and calls; a loop gets pointers, counts and strides.  This
// needs no header of Python's or NumPy's: eagergrad/host_kernels.py compiles one kernel
// into one shared library, EG_ELEMENTWISE(name, arity), and registers its loops.
//
// A first call waits for the compiler.  So nothing is included that takes long to read
// (<memory>, <tuple> and <cmath> take 0.2 s), and what a kernel computes of a row or of
// matrices is one function for each type that is computed in, which float16 and float32
// share.
#pragma once

#if !defined(__SSE__)
#include <cfenv>
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
  __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() & ~0x3fu);
#else
  std::feclearexcept(FE_ALL_EXCEPT);
#endif
}

constexpr Index BLOCK = 1024;          // elements at a time, in cache
constexpr Index PARALLEL = 1 << 16;    // elements from which threads pay

// Memory for n numbers, in any state.
template <class T> struct Room {
  T* const at;
  explicit Room(Index n) : at(n ? new T[n] : nullptr) {}
  Room(const Room&) = delete;
  ~Room() { delete[] at; }
};

// n elements of one operand, gathered into a buffer as numbers of the wide type.
template <class T>
[[gnu::noinline]] void gather(const char* from, Index step, Index n, wide<T>* buffer) {
  if (step == sizeof(T)) {
    const T* x = reinterpret_cast<const T*>(from);
    for (Index i = 0; i < n; ++i) buffer[i] = wide<T>(x[i]);
  } else if (step == 0) {
    const wide<T> x = wide<T>(*reinterpret_cast<const T*>(from));
    for (Index i = 0; i < n; ++i) buffer[i] = x;
  } else {
    for (Index i = 0; i < n; ++i)
      buffer[i] = wide<T>(*reinterpret_cast<const T*>(from + i * step));
  }
}

// The same as they lie, where they are contiguous and wide.
template <class T>
inline const wide<T>* gathered(const char* from, Index step, Index n, wide<T>* buffer) {
  if (sizeof(T) == sizeof(wide<T>) && step == sizeof(T))
    return reinterpret_cast<const wide<T>*>(from);
  gather<T>(from, step, n, buffer);
  return buffer;
}

// n numbers of the wide type to where an operand's elements lie.
template <class T>
[[gnu::noinline]] void scatter(const wide<T>* y, Index n, char* to, Index step) {
  if (step == sizeof(T)) {
    T* const x = reinterpret_cast<T*>(to);
    for (Index i = 0; i < n; ++i) x[i] = T(y[i]);
    return;
  }
  for (Index i = 0; i < n; ++i) *reinterpret_cast<T*>(to + i * step) = T(y[i]);
}

// Elements at a time of what is beside the operands in the first cache, which whole
// blocks would drive them out of: rows of stages, and an operand that is one number,
// written so many times.
constexpr Index SAME = 256;

template <class F, class W, int N, int M, int... I, int... O>
inline void at_once(const W* const (&x)[N], W* const (&y)[M], Index n, Places<I...>,
                    Places<O...>) {
  const F f{};
#pragma GCC ivdep
  for (Index i = 0; i < n; ++i) {
    if constexpr (M == 1) {
      y[0][i] = f(x[I][i]...);
    } else {  // written when all is read: a read waits for a write 4096 bytes apart
      W made[M];
      f(x[I][i]..., made[O]...);
      ((y[O][i] = made[O]), ...);
    }
  }
}

// A formula may come in stages: each goes over SAME elements before the next begins, and
// what it makes for another is one of the rows ``kept``.
template <class F, class = void> struct Stages {
  static constexpr int COUNT = 1;
};
template <class F> struct Stages<F, Void<decltype(F::STAGES)>> {
  static constexpr int COUNT = F::STAGES;
};

template <class F, int STAGE, class W, int N, int M, int... I, int... O>
inline void stage(const W* const (&x)[N], W* const (&y)[M], W (*kept)[SAME],
                  Places<I...>, Places<O...>) {
  const F f{};
#pragma GCC ivdep
  for (Index i = 0; i < SAME; ++i)
    f.stage(Places<STAGE>(), x[I][i]..., kept, i, y[O][i]...);
}

template <class F, class W, int N, int M, int... STAGE>
inline void in_stages(const W* const (&x)[N], W* const (&y)[M], Places<STAGE...>) {
  alignas(64) W kept[F::KEPT][SAME];
  (stage<F, STAGE>(x, y, kept, typename Count<N>::type(), typename Count<M>::type()),
   ...);
}

template <class F, class W, int N, int M>
inline void made(const W* const (&x)[N], W* const (&y)[M], Index n) {
  constexpr int STAGES = Stages<F>::COUNT;
  if constexpr (STAGES > 1)
    if (n == SAME) return in_stages<F>(x, y, typename Count<STAGES>::type());
  at_once<F>(x, y, n, typename Count<N>::type(), typename Count<M>::type());
}

// n elements; ``same`` has those of the operands that are one number.
template <class F, class T, int... I, int... O>
[[gnu::noinline]] void block(char* const* a, const Index* step, Index start, Index n,
                             const wide<T> (*same)[SAME], Places<I...>,
                             Places<O...>) {
  using W = wide<T>;
  constexpr int N = sizeof...(I), M = sizeof...(O);
  alignas(64) W buffers[N][BLOCK];
  alignas(64) W results[M][BLOCK];
  const W* x[N] = {step[I] == 0 ? same[I]
                                : gathered<T>(a[I] + start * step[I], step[I], n,
                                              buffers[I])...};
  char* to[M] = {a[N + O] + start * step[N + O]...};
  const bool direct[M] = {sizeof(T) == sizeof(W) && step[N + O] == sizeof(T)...};
  W* y[M] = {direct[O] ? reinterpret_cast<W*>(to[O]) : results[O]...};
  const bool whole = Stages<F>::COUNT == 1 && !(... || (step[I] == 0));
  const Index most = whole ? n : SAME;
  for (Index from = 0; from < n; from += most) {
    const Index count = n - from < most ? n - from : most;
    made<F>(x, y, count);
    ((x[I] += step[I] == 0 ? 0 : count), ...);
    ((y[O] += count), ...);
  }
  for (int k = 0; k < M; ++k)
    if (!direct[k]) scatter<T>(results[k], n, to[k], step[N + k]);
}

constexpr Index LINE = 64;  // bytes of a line of the cache, and of the widest vectors

// Elements between the last boundary of a line and an address.  Blocks that begin on
// boundaries have no vectors across two lines: where a kernel has several results, as
// Adam's, those take up to twice as long, and NumPy's memory is 16 bytes past one.
template <class T> inline Index past_line(const char* to) {
  return Index(reinterpret_cast<std::size_t>(to) % LINE / sizeof(T));
}

template <class F, class T, int N>
void elementwise(char** a, const Index* count, const Index* step, void*) {
  const Index n = count[0];
  const auto inputs = typename Count<N>::type();
  const auto outputs = typename Count<Results<F>::COUNT>::type();
  alignas(64) wide<T> same[N][SAME];
  for (int k = 0; k < N; ++k)
    if (n && step[k] == 0) gathered<T>(a[k], 0, n < SAME ? n : SAME, same[k]);
  // the first block is shorter by what the first result lies past a boundary
  const Index skew = n > BLOCK && step[N] == sizeof(T) ? past_line<T>(a[N]) : 0;
  const auto from = [&](Index start) {
    const Index first = start < 0 ? 0 : start;
    const Index end = n - start < BLOCK ? n : start + BLOCK;
    block<F, T>(a, step, first, end - first, same, inputs, outputs);
  };
  if (n < PARALLEL) {  // an omp if(...) would still cost a call of its runtime
    for (Index start = -skew; start < n; start += BLOCK) from(start);
  } else {
#pragma omp parallel for schedule(static)
    for (Index start = -skew; start < n; start += BLOCK) from(start);
  }
  forget_flags();
}

// ------------------------------------------------------------------------------- rows

constexpr bool is_matrix(char c) { return c == 't' || c == 'p' || c == 'q'; }

// A kernel's OPERANDS, counted without ">".
template <class F> struct Letters {
  static constexpr int INPUTS = inputs(F::OPERANDS);
  static constexpr int TOTAL = length(F::OPERANDS) - 1;
  // read when compiled, not by each call
  struct Table {
    char letter[TOTAL] = {};
    int axes[TOTAL] = {};
    constexpr Table() {
      for (int k = 0, count = 0; k < TOTAL; ++k) {
        const char c = letter[k] = eg::letter(F::OPERANDS, k);
        axes[k] = count;
        count += is_matrix(c) ? 2 : c == 'n' || c == 'm' || c == 'c';
      }
    }
  };
  static constexpr Table TABLE{};
  static constexpr char letter(int k) { return TABLE.letter[k]; }
  // how many axes the operands before k have: so many steps within them come first
  static constexpr int axes(int k) { return TABLE.axes[k]; }
};

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
    if (!direct) scatter<T>(y, n, to, step);
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

// What differs in where it lies, or in being of the wide type.
#define EG_OPERAND(letter, T, like)                                             \
  template <class N, bool INPUT>                                                \
  struct Operand<N, letter, INPUT> : Operand<T, like, INPUT> {                  \
    using Operand<T, like, INPUT>::Operand;                                     \
  };
EG_OPERAND('t', N, 'n')
EG_OPERAND('c', wide<N>, 'n')
EG_OPERAND('w', wide<N>, 's')
EG_OPERAND('m', wide<N>, 's')
#undef EG_OPERAND

// One row, of operands as the kernel takes them.
template <class F, class W, class... A>
[[gnu::noinline]] void computed(Index n, A... argument) {
  F().template operator()<W>(HostLane(), n, argument...);
}
template <class F, class T, class... A> inline void row(Index n, A&&... operand) {
  computed<F, wide<T>, decltype(operand.argument())...>(n, operand.argument()...);
}

// Row i.  down: the steps of the operands from one row to the next; along: within one.
template <class F, class T, int... K>
inline void row(char* const* a, const Index* down, const Index* along, Index i, Index n,
                wide<T>* buffer, Places<K...>) {
  using L = Letters<F>;
  row<F, T>(n, Operand<T, L::letter(K), (K < L::INPUTS)>(a[K] + i * down[K], along[K], n,
                                                         buffer + K * n)...);
}

template <class F, class T>
void rows(char** a, const Index* count, const Index* step, void*) {
  using L = Letters<F>;
  const Index m = count[0], n = count[1];
  Index along[L::TOTAL];
  for (int k = 0; k < L::TOTAL; ++k)
    along[k] = L::letter(k) == 'n' ? step[L::TOTAL + L::axes(k)] : 0;
  const auto some = [&](Index from, Index to) {
    // for the rows that are not contiguous, or of a half type
    const Room<wide<T>> buffer(L::TOTAL * n);
    for (Index i = from; i < to; ++i)
      row<F, T>(a, step, along, i, n, buffer.at, typename Count<L::TOTAL>::type());
  };
  if (m == 1 || m * n < PARALLEL) {
    some(0, m);
  } else {
    const Index height = n < 16 * BLOCK ? 16 * BLOCK / (n + 1) + 1 : 1;
#pragma omp parallel for schedule(static)
    for (Index from = 0; from < m; from += height)
      some(from, from + height < m ? from + height : m);
  }
  forget_flags();
}

// ---------------------------------------------------------------------------- columns

// Rows that are added one after the other: so the sum of m rows has the rounding of at
// most HEIGHT + log2(m / HEIGHT) additions, in an order that m alone decides.
constexpr Index HEIGHT = 32;

// The first operand that is a sum, counted without ">"; where there is none, all.
constexpr int first_sum(const char* text) {
  return *text && *text != 'c' ? 1 + first_sum(text + 1) : -1;
}

template <class F, class T>
void columns(char** a, const Index* count, const Index* step, void*) {
  using W = wide<T>;
  using L = Letters<F>;
  constexpr int FIRST = first_sum(F::OPERANDS), SUMS = L::TOTAL - FIRST;
  const Index m = count[1], n = count[2], size = SUMS * n;
  const Index tiles = m > HEIGHT ? (m - 1) / HEIGHT + 1 : 1;
  const Room<W> room(tiles * size);
  W* const sums = room.at;
  Index down[L::TOTAL], along[L::TOTAL];
  for (int k = 0; k < L::TOTAL; ++k) {
    const Index* within = step + L::TOTAL + L::axes(k);
    const char letter = L::letter(k);
    down[k] = letter == 't' || letter == 'm' ? within[0] : 0;
    along[k] = letter == 't' ? within[1] : letter == 'c' ? sizeof(W) : within[0];
  }
  const auto tile = [&](Index k, Index t) {
    const Room<W> buffer(L::TOTAL * n);
    W* const own = sums + t * size;
    for (Index j = 0; j < size; ++j) own[j] = 0;
    char* at[L::TOTAL];
    for (int j = 0; j < L::TOTAL; ++j)
      at[j] = j < FIRST ? a[j] + k * step[j]
                        : reinterpret_cast<char*>(own + (j - FIRST) * n);
    const Index end = (t + 1) * HEIGHT < m ? (t + 1) * HEIGHT : m;
    for (Index i = t * HEIGHT; i < end; ++i)
      row<F, T>(at, down, along, i, n, buffer.at, typename Count<L::TOTAL>::type());
  };
  for (Index k = 0; k < count[0]; ++k) {
    if (m * n < PARALLEL) {
      for (Index t = 0; t < tiles; ++t) tile(k, t);
    } else {
#pragma omp parallel for schedule(static)
      for (Index t = 0; t < tiles; ++t) tile(k, t);
    }
    for (Index apart = 1; apart < tiles; apart *= 2)
      for (Index t = 0; t + apart < tiles; t += 2 * apart)
        for (Index j = 0; j < size; ++j)
          sums[t * size + j] += sums[(t + apart) * size + j];
    for (int r = FIRST; r < L::TOTAL; ++r) {
      char* const to = a[r] + k * step[r];
      const Index apart = step[L::TOTAL + L::axes(r)];
      scatter<T>(sums + (r - FIRST) * n, n, to, apart);
    }
  }
  forget_flags();
}

// --------------------------------------------------------------------------- products

// An operand without gaps, of the type that is computed in: as it lies, or in a buffer.
template <class T> struct Dense {
  using W = wide<T>;
  char* from;
  Index rows, columns, down, along;
  W* at;
  bool direct;
  // How much of the buffer it takes.
  Index room() {
    direct = sizeof(T) == sizeof(W) && (columns <= 1 || along == sizeof(T)) &&
             (rows <= 1 || down == columns * Index(sizeof(T)));
    return direct ? 0 : rows * columns;
  }
  void place(W* buffer) { at = direct ? reinterpret_cast<W*>(from) : buffer; }
  void read() {
    for (Index i = 0; !direct && i < rows; ++i)
      for (Index j = 0; j < columns; ++j)
        at[i * columns + j] = W(*reinterpret_cast<T*>(from + i * down + j * along));
  }
  void write() {
    for (Index i = 0; !direct && i < rows; ++i)
      for (Index j = 0; j < columns; ++j)
        *reinterpret_cast<T*>(from + i * down + j * along) = T(at[i * columns + j]);
  }
};

template <class T, char KIND, bool INPUT> inline auto argument(const Dense<T>& operand) {
  if constexpr (KIND == 'i')
    return *reinterpret_cast<const long long*>(operand.from);
  else if constexpr (INPUT)
    return static_cast<const wide<T>*>(operand.at);
  else
    return operand.at;
}

template <class F, class W, class... A>
[[gnu::noinline]] void multiplied(Index m, Index k, Index n, W* scratch, A... argument) {
  F().template operator()<W>(HostLane(), m, k, n, scratch, argument...);
}

template <class F, class T, int... K>
void products(char** a, const Index* count, const Index* step, Places<K...>) {
  using W = wide<T>;
  using L = Letters<F>;
  const Index m = count[1], k = count[2], n = count[3];
  Dense<T> operands[L::TOTAL];
  Index size = n;
  for (int i = 0; i < L::TOTAL; ++i) {
    const char letter = L::letter(i);
    const Index* within = step + L::TOTAL + L::axes(i);
    Dense<T>& own = operands[i];
    own.rows = letter == 'i' ? 0 : letter == 'q' ? k : is_matrix(letter) ? m : 1;
    own.columns = letter == 'p' ? k : n;
    own.down = is_matrix(letter) ? within[0] : 0;
    own.along = within[is_matrix(letter)];
    size += own.room();
  }
  constexpr Index NEAR = 256;  // elements for which asking for memory takes too long
  W near[NEAR];
  const Room<W> far(size > NEAR ? size : 0);
  W* const buffer = far.at ? far.at : near;
  for (Index call = 0; call < count[0]; ++call) {
    W* next = buffer + n;
    for (int i = 0; i < L::TOTAL; ++i) {
      operands[i].from = a[i] + call * step[i];
      operands[i].place(next);
      next += operands[i].room();
      if (i < L::INPUTS) operands[i].read();
    }
    multiplied<F, W>(m, k, n, buffer,
                     argument<T, L::letter(K), (K < L::INPUTS)>(operands[K])...);
    for (int i = L::INPUTS; i < L::TOTAL; ++i) operands[i].write();
  }
  forget_flags();
}

template <class F, class T>
void products(char** a, const Index* count, const Index* step, void*) {
  products<F, T>(a, count, step, typename Count<Letters<F>::TOTAL>::type());
}

// ----------------------------------------------------------------------------- arrays

// Lanes that share the work of one call, on operands of `size` elements together.
struct HostTeam {
  static constexpr Index SHARES = 256;  // at most: small parts are taken several at once
  Index size;

  // f(lane, i, scratch) for i = 0 ... count - 1, in any order: each has a lane, and
  // `scratch` numbers of T that it finds in any state.
  template <class T, class F> void parts(Index count, Index scratch, F f) const {
    if (count <= 1 || size < PARALLEL) {
      const Room<T> own(scratch);
      for (Index i = 0; i < count; ++i) f(HostLane(), i, own.at);
      return;
    }
    const Index several = count / SHARES + 1;
#pragma omp parallel
    {
      const Room<T> own(scratch);
#pragma omp for schedule(dynamic, several)
      for (Index i = 0; i < count; ++i) f(HostLane(), i, own.at);
    }
  }

  template <class F> void parts(Index count, F f) const {
    parts<char>(count, 0, [&](auto lane, Index i, char*) { f(lane, i); });
  }

  // f(i) for i = 0 ... count - 1, `share` of them at a time.
  template <class F> void each(Index count, Index share, F f) const {
    parts((count + share - 1) / share, [&](auto lane, Index part) {
      const Index first = part * share, left = count - first;
      lane.each(left < share ? left : share, [&](Index i) { f(first + i); });
    });
  }

  // M numbers for each of n elements of each line, from `start` on.  runs(line, run)
  // calls run(first, step, length, f), which calls f(j, numbers...) for the elements
  // first, first + step ...; then end(e, numbers...) is called for every element, which
  // are counted through all lines.
  template <class T, int M, class R, class E>
  void lines(Index count, Index n, const T (&start)[M], R runs, E end) const {
    static_assert(M <= 2);
    const Index several = BLOCK / (n + 1) + 1, apart = several * n;
    const Index groups = (count + several - 1) / several;
    parts<T>(groups, M * apart, [&](auto lane, Index group, T* all) {
      const Index top = group * several;
      const Index high = count - top < several ? count - top : several;
      for (int m = 0; m < M; ++m)
        lane.each(apart, [&](Index i) { all[m * apart + i] = start[m]; });
      for (Index line = 0; line < high; ++line)
        runs(top + line, [&](Index first, Index step, Index length, auto f) {
          T* const at = all + line * n + first;
          const auto call = [&](Index j, Index i) {
            if constexpr (M == 1)
              f(j, at[i]);
            else
              f(j, at[i], at[apart + i]);
          };
          if (step == 1)  // apart, for compilers to vectorise
            lane.each(length, [&](Index j) { call(j, j); });
          else
            lane.each(length, [&](Index j) { call(j, j * step); });
        });
      lane.each(high * n, [&](Index i) {
        if constexpr (M == 1)
          end(top * n + i, all[i]);
        else
          end(top * n + i, all[i], all[apart + i]);
      });
    });
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
inline void call(char* const* a, const Index* count, Places<K...>) {
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
  if (count[0]) call<F, T>(a, count + 1, typename Count<TOTAL>::type());
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
#define EG_COLUMNS(name) EG_EXPORT(eg::columns<eg::name, T>)
#define EG_PRODUCTS(name) EG_EXPORT(eg::products<eg::name, T>)
#define EG_ARRAYS(name) EG_EXPORT(eg::arrays<eg::name, T>)
