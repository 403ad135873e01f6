// Convolution: products with columns that are gathered where they are needed.
//
// For one image and one group, column j is what the filter covers at output place j:
// columns[r][j] = x[rows[r] + place(j)].  Both parts of that offset come in tables, so
// that ranks, strides and dilations are all alike:
//
//     conv         y = w columns
//     conv_input   x = what w^T y adds up to where the columns were gathered
//     conv_filter  w^T = columns y^T, summed over images
//
// Places come in runs, each from an offset in `starts` on, `step` apart.  A run holds
// some lines of the output, `width` places from one to the next, of which `length` are
// kept: what lies between two lines is computed and not used, since long runs are
// gathered much faster than short lines.
//
// An image may have zeros around it, which nobody stores: `own` has the offsets of its
// lines among them.  Without zeros the whole image is one line.
//
// sizes is (images, groups, step, lines in a run, width, length, channels of a group,
// size of a channel with its zeros, length of an image's own lines).
#pragma once

#include "lane.h"
#include "registers.h"

namespace eg {

using Table = Span<const long long>;

// Offsets in runs.
struct Runs {
  Table starts;
  Index length, step;
  EG_FN Index count() const { return starts.count * length; }
  EG_FN Index runs() const { return starts.count; }
  EG_FN Index start(Index t) const { return Index(starts[t]); }
  // f(index of the first, its offset) for each run
  template <class F> EG_FN void each(F f) const {
    for (Index t = 0; t < starts.count; ++t) f(t * length, start(t));
  }
};

// The same, where one run begins `apart` after the other.
struct Columns {
  Index count, apart, length, step;
  EG_FN Index runs() const { return count; }
  EG_FN Index start(Index t) const { return t * apart; }
};

struct Product {
  static constexpr Index HIGH = TILE_ROWS;
  template <class T> static constexpr Index BROAD = 2 * LANES<T>;

  // The stride of a matrix b whose tiles are whole.
  template <class T> EG_FN static Index stride(Index n) {
    return (n + LANES<T> - 1) / LANES<T> * LANES<T>;
  }

  // Zeros beyond the n columns of b: what lies there could be slow to multiply.
  template <class T, class Lane>
  EG_FN static void complete(const Lane& lane, Index m, Index n, T* b) {
    const Index whole = stride<T>(n);
    for (Index i = 0; i < m; ++i)
      lane.each(whole - n, [&](Index j) { b[i * whole + n + j] = T(0); });
  }

  // How many numbers the rows of a matrix a with `count` columns are, packed.
  EG_FN static Index packed(Index m, Index count) {
    return (m + HIGH - 1) / HIGH * HIGH * count;
  }

  // a by tiles: what HIGH rows have in one column lies together.  a[i][k] is found at
  // row(i) + the offset of k.
  template <class T, class A, class Row>
  EG_FN static void pack(Index m, A a, Row row, const Columns& columns, T* to) {
    for (Index top = 0; top < m; top += HIGH)
      for (Index t = 0; t < columns.count; ++t)
        for (Index l = 0; l < columns.length; ++l, to += HIGH)
          for (Index i = 0; i < HIGH; ++i) {
            const Index column = columns.start(t) + l * columns.step;
            to[i] = top + i < m ? T(a[row(top + i) + column]) : T(0);
          }
  }

  // HIGH rows of a, as packed; or each where it lies.
  template <class T> struct Packed {
    const T* at;
    EG_FN T operator()(Index i, Index column, Index) const {
      return at[column * HIGH + i];
    }
  };
  template <class T> struct Lines {
    const T* at[HIGH];
    EG_FN T operator()(Index i, Index, Index offset) const { return at[i][offset]; }
  };

  // c (m, n) = a b, or c += a b.  a(top) has the rows from there on; the row of b for
  // element l of run t is at b(t, l): n numbers, or as many as whole registers have.
  template <bool ADD, class T, class A, class Offsets, class B, class C>
  EG_FN static void make(Index m, Index n, A a, const Offsets& columns, B b, C c, T) {
    Index first = 0;
    for (; n - first > LANES<T>; first += BROAD<T>)
      panel<ADD, T, 2>(m, n, first, a, columns, b, c);
    if (first < n) panel<ADD, T, 1>(m, n, first, a, columns, b, c);
  }

  // The columns from `first` on, of COUNT registers.  The last ones begin earlier, so
  // that they are whole.
  template <bool ADD, class T, int COUNT, class A, class Offsets, class B, class C>
  EG_FN static void panel(Index m, Index n, Index first, A a, const Offsets& columns,
                          B b, C c) {
    constexpr Index BROAD = COUNT * LANES<T>;
    const Index left = n - first >= BROAD || n < BROAD ? first : n - BROAD;
    const Index skip = first - left, broad = n - left < BROAD ? n - left : BROAD;
    for (Index top = 0; top < m; top += HIGH) {
      const Index high = m - top;
      const auto rows = a(top);
      const auto terms = [=](auto f) {
        Index column = 0;
        for (Index t = 0; t < columns.runs(); ++t)
          for (Index l = 0; l < columns.length; ++l, ++column) {
            const Index k = columns.start(t) + l * columns.step;
            f([&](int i) { return rows(i, column, k); }, b(t, l) + left);
          }
      };
      const C to = c + top * n + left;
      tile<T, HIGH, COUNT>(terms, [=](Index i, const T* row) {
        const auto put = [&](Index first, Index end) {
          for (Index j = first; j < end; ++j)
            to[i * n + j] = ADD ? to[i * n + j] + row[j] : row[j];
        };
        if (i < high && skip == 0 && broad == BROAD)  // apart, to be unrolled
          put(0, BROAD);
        else if (i < high)
          put(skip, broad);
      });
    }
  }
};

// What the three have in common.
struct Geometry {
  Table rows, own;
  Index images, groups, lines, width, length, channels, plane, line;
  Runs places;
  EG_FN Geometry(Table rows, Table starts, Table own, Table sizes)
      : rows(rows), own(own), images(Index(sizes[0])), groups(Index(sizes[1])),
        lines(Index(sizes[3])), width(Index(sizes[4])), length(Index(sizes[5])),
        channels(Index(sizes[6])), plane(Index(sizes[7])), line(Index(sizes[8])),
        places{starts, (lines - 1) * width + length, Index(sizes[2])} {}
  EG_FN Index parts() const { return images * groups; }
  EG_FN Index outputs() const { return places.starts.count * lines * length; }
  // Whether the places are one run without steps, of a tile at least: a row of columns
  // is then a part of the image, and need not be gathered.
  template <class T> EG_FN bool simple() const {
    return places.runs() == 1 && places.step == 1 && places.length >= Product::BROAD<T>;
  }
  // Of an image of one group: its size as it is stored, and with its zeros.
  EG_FN Index stored() const { return own.count * line; }
  EG_FN Index whole() const { return channels * plane; }
  EG_FN bool padded() const { return stored() != whole(); }
  // How many places of a channel lie from its first own one to its last.
  EG_FN Index span() const {
    return padded() ? Index(own[own.count / channels - 1] - own[0]) + line : plane;
  }
  // the image with its zeros, made in b where it has any, or is not of T
  template <class T, class Lane, class X>
  EG_FN const T* image(const Lane& lane, X x, T* b) const {
    if (!padded() && sizeof(*x) == sizeof(T)) return reinterpret_cast<const T*>(x);
    if (padded()) lane.each(whole(), [&](Index i) { b[i] = T(0); });
    for (Index i = 0; i < own.count; ++i)
      lane.each(line, [&](Index l) { b[own[i] + l] = T(x[i * line + l]); });
    return b;
  }
  // what lies at the image's own places of b, which begins `first` places later
  template <class Lane, class T, class X>
  EG_FN void store(const Lane& lane, const T* b, Index first, Index stride, X x) const {
    const Index each = own.count / channels;
    for (Index i = 0; i < own.count; ++i) {
      const T* from = b + own[i % each] - first + i / each * stride;
      lane.each(line, [&](Index l) { x[i * line + l] = from[l]; });
    }
  }
  // y (filters, outputs) at its places in b (filters, stride), from `first` on, with
  // zeros between and around
  template <class Lane, class Y, class T>
  EG_FN void lay(const Lane& lane, Y y, Index filters, Index stride, Index first,
                 T* b) const {
    lane.each(filters * stride, [&](Index i) { b[i] = T(0); });
    for (Index f = 0; f < filters; ++f)
      each_line([&](Index output, Index place) {
        const auto from = y + f * outputs() + output;
        T* to = b + f * stride + first + place;
        lane.each(length, [&](Index l) { to[l] = T(from[l]); });
      });
  }
  // f(lane, image and group, packed filters, scratch), for which pack(group, to) packs
  // `weights` numbers; several images go by one packing, where there are many.
  template <class T, class Team, class Pack, class F>
  EG_FN void each_image(const Team& team, Index weights, Index scratch, Pack pack,
                        F f) const {
    const Index shares = images < 32 ? images : images / 4;
    team.template parts<T>(
        shares * groups, weights + scratch, [&](auto lane, Index part, T* b) {
          const Index share = part / groups, group = part % groups;
          pack(group, b);
          const Index last = (share + 1) * images / shares;
          for (Index i = share * images / shares; i < last; ++i)
            f(lane, i * groups + group, b, b + weights);
        });
  }
  // f(first output, its place) for each line
  template <class F> EG_FN void each_line(F f) const {
    for (Index t = 0; t < places.starts.count; ++t)
      for (Index l = 0; l < lines; ++l)
        f((t * lines + l) * length, t * places.length + l * width);
  }
};

struct conv {
  static constexpr char OPERANDS[] = "aajjjj>a";
  template <class T, class Team, class X, class Y>
  EG_FN void operator()(const Team& team, X x, X w, Table rows, Table starts, Table own,
                        Table sizes, Y y) const {
    const Geometry at(rows, starts, own, sizes);
    const Index r = rows.count, n = at.places.count(), stride = Product::stride<T>(n);
    const Index filters = w.count / (at.groups * r);
    const Columns along{1, 0, r, 1};
    const bool simple = at.template simple<T>();
    const Index weights = Product::packed(filters, r);
    const Index columns = simple ? 0 : r * stride;
    const auto pack = [&](Index group, T* to) {
      Product::pack(filters, w.at + group * filters * r,
                    [&](Index f) { return f * r; }, along, to);
    };
    const Index scratch = columns + filters * n + at.whole();
    at.template each_image<T>(
        team, weights, scratch, pack, [&](auto lane, Index part, const T* a, T* b) {
          T* all = b + columns;
          const T* from =
              at.template image<T>(lane, x.at + part * at.stored(), all + filters * n);
          const auto multiply = [&](auto row) {
            const auto tile = [&](Index f) { return Product::Packed<T>{a + f * r}; };
            Product::make<false>(filters, n, tile, along, row, all, T(0));
          };
          if (simple) {
            multiply([&](Index, Index k) { return from + rows[k]; });
          } else {
            for (Index k = 0; k < r; ++k)
              at.places.each([&](Index j, Index start) {
                const T* spot = from + rows[k] + start;
                T* to = b + k * stride + j;
                lane.each(at.places.length,
                          [&](Index l) { to[l] = spot[l * at.places.step]; });
              });
            Product::complete(lane, r, n, b);
            multiply([&](Index, Index k) { return b + k * stride; });
          }
          const auto to = y.at + part * filters * at.outputs();
          for (Index f = 0; f < filters; ++f)
            at.each_line([&](Index output, Index place) {
              const auto line = to + f * at.outputs() + output;
              const T* from = all + f * n + place;
              lane.each(at.length, [&](Index l) { line[l] = from[l]; });
            });
        });
  }
};

struct conv_input {
  static constexpr char OPERANDS[] = "aajjjj>a";
  template <class T, class Team, class X, class Y>
  EG_FN void operator()(const Team& team, X y, X w, Table rows, Table starts, Table own,
                        Table sizes, Y x) const {
    const Geometry at(rows, starts, own, sizes);
    if (at.template simple<T>() && at.channels >= Product::HIGH &&
        at.span() >= Product::BROAD<T>)
      whole<T>(team, at, y, w, rows, x);
    else
      by_columns<T>(team, at, y, w, rows, x);
  }

  // As a convolution of y, with as many zeros around it as the filter reaches: each
  // element of x is made at once, and there are no columns to add up.
  template <class T, class Team, class Y, class W, class X>
  EG_FN static void whole(const Team& team, const Geometry& at, Y y, W w, Table rows,
                          X x) {
    const Index r = rows.count, filters = w.count / (at.groups * r);
    const Index n = at.places.count();
    const Index elements = r / at.channels, reach = Index(rows[elements - 1]);
    const Index plane = n + 2 * reach, count = filters * elements;
    const Columns across{filters, r, elements, 1};
    const Index first = Index(at.own[0]), m = at.span();
    const auto pack = [&](Index group, T* to) {
      Product::pack(at.channels, w.at + group * filters * r,
                    [&](Index c) { return c * elements; }, across, to);
    };
    at.template each_image<T>(
        team, Product::packed(at.channels, count), filters * plane + at.channels * m,
        pack,
        [&](auto lane, Index part, const T* a, T* b) {
          at.lay(lane, y.at + part * filters * at.outputs(), filters, plane, reach, b);
          const auto to = x.at + part * at.stored();
          const auto multiply = [&](auto result) {
            const T* from = b + reach + first;
            Product::make<false>(
                at.channels, m,
                [&](Index c) { return Product::Packed<T>{a + c * count}; }, across,
                [&](Index f, Index k) { return from + f * plane - rows[k]; }, result,
                T(0));
          };
          if (!at.padded()) {
            multiply(to);
          } else {
            T* all = b + filters * plane;
            multiply(all);
            at.store(lane, all, first, m, to);
          }
        });
  }

  template <class T, class Team, class Y, class W, class X>
  EG_FN static void by_columns(const Team& team, const Geometry& at, Y y, W w,
                               Table rows, X x) {
    const Index r = rows.count, n = at.places.count(), stride = Product::stride<T>(n);
    const Index filters = w.count / (at.groups * r);
    const Columns down{1, 0, filters, r};
    const auto pack = [&](Index group, T* to) {
      Product::pack(
          r, w.at + group * filters * r, [&](Index k) { return k; }, down, to);
    };
    at.template each_image<T>(
        team, Product::packed(r, filters), filters * stride + r * n + at.whole(), pack,
        [&](auto lane, Index part, const T* a, T* b) {
          at.lay(lane, y.at + part * filters * at.outputs(), filters, stride, 0, b);
          T* columns = b + filters * stride;
          Product::make<false>(
              r, n, [&](Index k) { return Product::Packed<T>{a + k * filters}; }, down,
              [&](Index, Index f) { return b + f * stride; }, columns, T(0));
          T* image = columns + r * n;
          lane.each(at.whole(), [&](Index i) { image[i] = T(0); });
          for (Index k = 0; k < r; ++k)
            at.places.each([&](Index j, Index start) {
              T* spot = image + rows[k] + start;
              const T* column = columns + k * n + j;
              lane.each(at.places.length,
                        [&](Index l) { spot[l * at.places.step] += column[l]; });
            });
          const auto to = x.at + part * at.stored();
          if (at.padded())
            at.store(lane, image, 0, at.plane, to);
          else
            lane.each(at.whole(), [&](Index i) { to[i] = image[i]; });
        });
  }
};

// As many partial sums as the result has room for, each over its share of the images.
struct conv_filter {
  static constexpr char OPERANDS[] = "aajjjj>a";
  template <class T, class Team, class X, class Y>
  EG_FN void operator()(const Team& team, X x, X y, Table rows, Table starts, Table own,
                        Table sizes, Y w) const {
    const Geometry at(rows, starts, own, sizes);
    const Index r = rows.count, n = at.places.count();
    const Index filters = y.count / (at.parts() * n);
    const Index stride = Product::stride<T>(filters), size = r * filters;
    const Index shares = w.count / (at.groups * size);
    team.template parts<T>(
        shares * at.groups, n * stride + at.whole(), [&](auto lane, Index part, T* b) {
          const Index share = part / at.groups, group = part % at.groups;
          const auto to = w.at + part * size;
          lane.each(size, [&](Index i) { to[i] = T(0); });
          Product::complete(lane, n, filters, b);
          const Index last = (share + 1) * at.images / shares;
          for (Index i = share * at.images / shares; i < last; ++i) {
            const Index at_image = i * at.groups + group;
            transpose(lane, filters, n, y.at + at_image * filters * n, stride, b);
            const T* from = at.template image<T>(lane, x.at + at_image * at.stored(),
                                                 b + n * stride);
            const auto tile = [&](Index k) {
              Product::Lines<T> lines;
              for (Index i = 0; i < Product::HIGH; ++i)
                lines.at[i] = from + rows[k + i < r ? k + i : k];
              return lines;
            };
            const auto row = [&](Index t, Index l) {
              return b + (t * at.places.length + l) * stride;
            };
            Product::make<true>(r, filters, tile, at.places, row, to, T(0));
          }
        });
  }

  // y (m, n) as b (n, stride), four numbers at a time
  template <class T, class Lane, class Y>
  EG_FN static void transpose(const Lane& lane, Index m, Index n, Y y, Index stride,
                              T* b) {
    Index i = 0;
    for (; i + 4 <= m; i += 4)
      lane.each(n, [&](Index j) {
        T* to = b + j * stride + i;
        const Y from = y + i * n + j;
        const T four[] = {T(from[0]), T(from[n]), T(from[2 * n]), T(from[3 * n])};
        for (int k = 0; k < 4; ++k) to[k] = four[k];
      });
    for (; i < m; ++i)
      lane.each(n, [&](Index j) { b[j * stride + i] = T(y[i * n + j]); });
  }
};

}  // namespace eg
