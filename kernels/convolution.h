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
// sizes is (images, groups, step, lines in a run, width, length).
#pragma once

#include "lane.h"

namespace eg {

using Table = Span<const long long>;

// Offsets in runs.
struct Runs {
  Table starts;
  Index length, step;
  EG_FN Index count() const { return starts.count * length; }
  // f(index of the first, its offset) for each run
  template <class F> EG_FN void each(F f) const {
    for (Index t = 0; t < starts.count; ++t) f(t * length, Index(starts[t]));
  }
};

struct Product {
  static constexpr Index HIGH = 8, BROAD = 32;  // of a tile: 16 registers in float

  // The stride of a matrix b whose tiles are whole.
  EG_FN static Index stride(Index n) { return (n + BROAD - 1) / BROAD * BROAD; }

  // Zeros beyond the n columns of b: what lies there could be slow to multiply.
  template <class T, class Lane>
  EG_FN static void complete(const Lane& lane, Index m, Index n, T* b) {
    for (Index i = 0; i < m; ++i)
      lane.each(stride(n) - n, [&](Index j) { b[i * stride(n) + n + j] = T(0); });
  }

  // c (m, n) = a b, or c += a b, where a[i][k] lies at row(i) + the offset of k.
  template <class T, bool ADD, class A, class Row, class C>
  EG_FN static void make(Index m, Index n, A a, Row row, const Runs& columns,
                         const T* b, C c) {
    for (Index left = 0; left < n; left += BROAD)
      for (Index top = 0; top < m; top += HIGH) {
        const Index high = m - top < HIGH ? m - top : HIGH;
        const Index broad = n - left < BROAD ? n - left : BROAD;
        A line[HIGH];
        for (Index i = 0; i < HIGH; ++i) line[i] = a + row(top + (i < high ? i : 0));
        T tile[HIGH][BROAD];
        fill(tile, line, columns, b + left, stride(n));
        for (Index i = 0; i < high; ++i) {
          C to = c + (top + i) * n + left;
          for (Index j = 0; j < broad; ++j)
            to[j] = ADD ? to[j] + tile[i][j] : tile[i][j];
        }
      }
  }

  template <class T, class A>
  EG_FN static void fill(T (&tile)[HIGH][BROAD], const A (&line)[HIGH],
                         const Runs& columns, const T* b, Index stride) {
    T sum[HIGH][BROAD] = {};  // not the tile itself, whose address others know
    for (Index t = 0; t < columns.starts.count; ++t)
      for (Index l = 0; l < columns.length; ++l, b += stride) {
        const Index k = Index(columns.starts[t]) + l * columns.step;
        for (int i = 0; i < HIGH; ++i)
          for (int j = 0; j < BROAD; ++j)
            sum[i][j] = multiply_add(T(line[i][k]), b[j], sum[i][j]);
      }
    for (int i = 0; i < HIGH; ++i)
      for (int j = 0; j < BROAD; ++j) tile[i][j] = sum[i][j];
  }
};

// What the three have in common.
struct Geometry {
  Table rows;
  Index images, groups, lines, width, length;
  Runs places;
  EG_FN Geometry(Table rows, Table starts, Table sizes)
      : rows(rows), images(Index(sizes[0])), groups(Index(sizes[1])),
        lines(Index(sizes[3])), width(Index(sizes[4])), length(Index(sizes[5])),
        places{starts, (lines - 1) * width + length, Index(sizes[2])} {}
  EG_FN Index parts() const { return images * groups; }
  EG_FN Index outputs() const { return places.starts.count * lines * length; }
  // f(first output, its place) for each line
  template <class F> EG_FN void each_line(F f) const {
    for (Index t = 0; t < places.starts.count; ++t)
      for (Index l = 0; l < lines; ++l)
        f((t * lines + l) * length, t * places.length + l * width);
  }
};

// The offsets 0, step, 2 step ... of a matrix's columns.
struct Columns {
  long long origin = 0;
  Index count, step;
  EG_FN Columns(Index count, Index step) : count(count), step(step) {}
  EG_FN operator Runs() const { return {{&origin, 1}, count, step}; }
};

struct conv {
  static constexpr char OPERANDS[] = "aajjj>a";
  template <class T, class Team, class X, class Y>
  EG_FN void operator()(const Team& team, X x, X w, Table rows, Table starts,
                        Table sizes, Y y) const {
    const Geometry at(rows, starts, sizes);
    const Index r = rows.count, n = at.places.count(), stride = Product::stride(n);
    const Index image = x.count / at.parts(), filters = w.count / (at.groups * r);
    const Columns along(r, 1);
    const Index scratch = r * stride + filters * n;
    team.template parts<T>(at.parts(), scratch, [&](auto lane, Index part, T* b) {
      for (Index k = 0; k < r; ++k)
        at.places.each([&](Index j, Index start) {
          const auto from = x.at + part * image + rows[k] + start;
          T* to = b + k * stride + j;
          lane.each(at.places.length,
                    [&](Index l) { to[l] = T(from[l * at.places.step]); });
        });
      Product::complete(lane, r, n, b);
      T* all = b + r * stride;
      Product::make<T, false>(
          filters, n, w.at + part % at.groups * filters * r,
          [&](Index f) { return f * r; }, along, b, all);
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
  static constexpr char OPERANDS[] = "aajjj>a";
  template <class T, class Team, class X, class Y>
  EG_FN void operator()(const Team& team, X y, X w, Table rows, Table starts,
                        Table sizes, Y x) const {
    const Geometry at(rows, starts, sizes);
    const Index r = rows.count, n = at.places.count(), stride = Product::stride(n);
    const Index image = x.count / at.parts(), filters = w.count / (at.groups * r);
    const Columns down(filters, r);
    const Index scratch = filters * stride + r * n;
    team.template parts<T>(at.parts(), scratch, [&](auto lane, Index part, T* b) {
      const auto from = y.at + part * filters * at.outputs();
      lane.each(filters * stride, [&](Index i) { b[i] = T(0); });
      for (Index f = 0; f < filters; ++f)
        at.each_line([&](Index output, Index place) {
          const auto line = from + f * at.outputs() + output;
          T* to = b + f * stride + place;
          lane.each(at.length, [&](Index l) { to[l] = T(line[l]); });
        });
      T* columns = b + filters * stride;
      Product::make<T, false>(
          r, n, w.at + part % at.groups * filters * r, [&](Index k) { return k; },
          down, b, columns);
      const auto to = x.at + part * image;
      lane.each(image, [&](Index i) { to[i] = T(0); });
      for (Index k = 0; k < r; ++k)
        at.places.each([&](Index j, Index start) {
          const auto spot = to + rows[k] + start;
          const T* column = columns + k * n + j;
          lane.each(at.places.length,
                    [&](Index l) { spot[l * at.places.step] += column[l]; });
        });
    });
  }
};

// As many partial sums as the result has room for, each over its share of the images.
struct conv_filter {
  static constexpr char OPERANDS[] = "aajjj>a";
  template <class T, class Team, class X, class Y>
  EG_FN void operator()(const Team& team, X x, X y, Table rows, Table starts,
                        Table sizes, Y w) const {
    const Geometry at(rows, starts, sizes);
    const Index r = rows.count, n = at.places.count();
    const Index image = x.count / at.parts(), filters = y.count / (at.parts() * n);
    const Index stride = Product::stride(filters), size = r * filters;
    const Index shares = w.count / (at.groups * size);
    team.template parts<T>(
        shares * at.groups, n * stride, [&](auto lane, Index part, T* b) {
          const Index share = part / at.groups, group = part % at.groups;
          const auto to = w.at + part * size;
          lane.each(size, [&](Index i) { to[i] = T(0); });
          Product::complete(lane, n, filters, b);
          const Index last = (share + 1) * at.images / shares;
          for (Index i = share * at.images / shares; i < last; ++i) {
            const Index at_image = i * at.groups + group;
            const auto from = y.at + at_image * filters * n;
            for (Index first = 0; first < n; first += 16)  // a line of the cache
              for (Index f = 0; f < filters; ++f)
                lane.each(n - first < 16 ? n - first : 16, [&](Index l) {
                  const Index j = first + l;
                  b[j * stride + f] = T(from[f * n + j]);
                });
            Product::make<T, true>(
                r, filters, x.at + at_image * image,
                [&](Index k) { return Index(rows[k]); }, at.places, b, to);
          }
        });
  }
};

}  // namespace eg
