// One head of attention on 8-bit codes: scores, softmax and context of kLanes queries at a time, so that their
// probabilities never leave the nearest cache.
//
// A token is a lane. What has to be found for each token (the range of its numbers, its grid, the sum of its codes, the
// largest of its scores, the sum of its exponentials) is found for kLanes of them at once, and lanes of a vector are
// never added up or compared with each other.
//
//   scores    of each key (a row of the product) with kLanes queries (its outputs)
//   context   of each query (a row) with the values' columns (outputs); a group is kWideGroup keys
//
// Codes of rows are stored minus z = kWideZero, those of outputs minus 128. With all sums exact,
//   sum a b = sum (a - z)(b - 128) + z sum (b - 128) + 128 sum a.
#pragma once

#include "linear.h"
#include "rows.h"

namespace {

using tb::HeadTask;

constexpr int kAtOnce = kVectors; // exponentials: as the columns of a tile, it grows with the number of registers
// Keys that are multiplied at once. Those beyond the last are the last one again (see read_tokens), and change nothing.
constexpr int kKeys = kVectors == 1 ? 4 : 8;
static_assert(kLanes % kKeys == 0, "whole tiles");
static_assert(8 % kAtOnce == 0, "sums of eight");

constexpr size_t whole_lanes(int n) { return (static_cast<size_t>(n) + kLanes - 1) / kLanes * kLanes; }

// What a head needs while it runs, cut out of the scratch memory. A word is kWideGroup codes of a row.
struct Head {
  const HeadTask &task;
  size_t tokens, width; // whole vectors
  float *scores;        // [key][query], as the next
  float *columns;       // a block of tokens, transposed: in the place of scores, which are not there yet
  int32_t *p_words;     // [key / kWideGroup]
  int32_t *k_words;     // [token / kLanes][column / kWideGroup][token % kLanes]
  int8_t *q_codes;      // [column / kWideGroup], of kLanes queries
  int8_t *v_codes;      // [token / kWideGroup][column]
  float *k_scale, *k_offset, *k_total;
  int32_t *k_sum; // 128 times it
  float *v_total;
  int32_t *v_correction;
  Grid v_grid;

  explicit Head(const HeadTask &t) : task(t), tokens(whole_lanes(t.tokens)), width(whole_lanes(t.width)) {
    uint8_t *next = t.scratch;
    scores = columns = take<float>(next, kLanes * (tokens > width ? tokens : width));
    p_words = take<int32_t>(next, kLanes * tokens / kWideGroup);
    k_words = take<int32_t>(next, tokens * width / kWideGroup);
    q_codes = take<int8_t>(next, kLanes * width);
    v_codes = take<int8_t>(next, tokens * width);
    k_scale = take<float>(next, tokens);
    k_offset = take<float>(next, tokens);
    k_total = take<float>(next, tokens);
    k_sum = take<int32_t>(next, tokens);
    v_total = take<float>(next, width);
    v_correction = take<int32_t>(next, width);
  }

  template <class T> static T *take(uint8_t *&next, size_t count) {
    T *const begin = reinterpret_cast<T *>(next);
    next += count * sizeof(T);
    return begin;
  }
};

size_t head_scratch(int n_tokens, int n_width) {
  const size_t tokens = whole_lanes(n_tokens), width = whole_lanes(n_width);
  return 4 * kLanes * ((tokens > width ? tokens : width) + tokens / kWideGroup) + 4 * tokens * width / kWideGroup +
         (kLanes + tokens) * width + 4 * (4 * tokens + 2 * width);
}

// Groups of codes as rows or outputs of a product. Beyond the end there are zeros, whatever the other factor is.
TB_INLINE I row_words(const I (&codes)[kWideGroup]) { return join<8 * sizeof(WideRow), kWideZero>(codes); }
TB_INLINE I output_codes(const I (&codes)[kWideGroup]) { return join<8, 128>(codes); }

// Calls f(i, codes) for each group of i .. i + kWideGroup - 1 of n vectors, of which `number(i)` gives one. Returns the
// sum of the codes, without the `zero` beyond the end.
template <class Number, class Function>
TB_INLINE I for_groups(int n, const Codes &codes, int zero, Number number, Function f) {
  I sum = set(0), group[kWideGroup];
  int i = 0;
  for (; i + kWideGroup <= n; i += kWideGroup) {
    TB_UNROLL for (int g = 0; g < kWideGroup; g++) {
      group[g] = codes(number(i + g));
      sum = sum + group[g];
    }
    f(i, group);
  }
  if (i < n) {
    TB_UNROLL for (int g = 0; g < kWideGroup; g++) {
      group[g] = set(zero);
      if (i + g < n) {
        group[g] = codes(number(i + g));
        sum = sum + group[g];
      }
    }
    f(i, group);
  }
  return sum;
}

// log2(kLanes) times the rows of both halves are zipped; each time, all bits of (row, column) move on by one place.
TB_INLINE void transpose(F (&rows)[kLanes]) {
  TB_UNROLL for (int half = 1; half < kLanes; half *= 2) {
    F zipped[kLanes];
    TB_UNROLL for (int i = 0; i < kLanes / 2; i++) zip(rows[i], rows[i + kLanes / 2], zipped[2 * i], zipped[2 * i + 1]);
    TB_UNROLL for (int i = 0; i < kLanes; i++) rows[i] = zipped[i];
  }
}

// Keys or queries: their numbers in Head::columns, and what belongs to each.
struct Tokens {
  LaneGrids grids;
  bool finite;
};

// Of the tokens first .. first + kLanes - 1 of `count`; where there are no more, the last one again.
TB_INLINE Tokens read_tokens(const Head &h, const float *x, int first, int count, const Grid *grid) {
  const HeadTask &t = h.task;
  RangeOf range;
  for (int d = 0; d < t.width; d += kLanes) {
    F v[kLanes];
    TB_UNROLL for (int i = 0; i < kLanes; i++) {
      const int token = first + i;
      const float *const place = x + (token < count ? token : count - 1) * t.stride + d;
      v[i] = load(place);
      // The next block: a token lies too far from the one before for the CPU's own prefetcher.
      if (token + kLanes < count) TB_PREFETCH(place + kLanes * t.stride);
    }
    transpose(v);
    TB_UNROLL for (int i = 0; i < kLanes; i++) {
      if (d + i < t.width) range.add(v[i]);
      store(h.columns + (d + i) * kLanes, v[i]);
    }
  }
  const LaneGrids grids = grid ? lane_grids(*grid) : lane_grids(*t.quantizer, range.low, range.high);
  return {.grids = grids, .finite = !any_nan(range.sum) && all_finite(range.low, range.high, grids)};
}

TB_NOINLINE bool read_keys(const Head &h) {
  const HeadTask &t = h.task;
  bool finite = true;
  for (int first = 0; first < t.tokens; first += kLanes) {
    const Tokens keys = read_tokens(h, t.k, first, t.tokens, t.k_grid);
    finite &= keys.finite;
    int32_t *words = h.k_words + static_cast<size_t>(first) * h.width / kWideGroup;
    const I sum = for_groups(
        t.width, Codes(keys.grids), kWideZero, [&](int d) { return load(h.columns + d * kLanes); },
        [&](int, const I(&codes)[kWideGroup]) {
          store(words, row_words(codes));
          words += kLanes;
        });
    store(h.k_scale + first, keys.grids.scale);
    store(h.k_offset + first, keys.grids.offset);
    store(h.k_total + first, keys.grids.scale * to_float(sum) + set(static_cast<float>(t.width)) * keys.grids.offset);
    store(h.k_sum + first, shift_left<7>(sum));
  }
  return finite;
}

Range range_of_values(const HeadTask &t) {
  RangeOf range;
  for (int i = 0; i < t.tokens; i++)
    for (int d = 0; d < t.width; d += kLanes)
      range.add(load(t.v + i * t.stride + d), t.width - d);
  return range.get();
}

TB_NOINLINE bool read_values(Head &h) {
  const HeadTask &t = h.task;
  h.v_grid = t.v_grid ? *t.v_grid : grid_of(*t.quantizer, range_of_values(t));
  const Codes codes(h.v_grid, 0.0f);
  for (int d = 0; d < t.width; d += kLanes) {
    const I sum = for_groups(
        t.tokens, codes, 128, [&](int i) { return load(t.v + i * t.stride + d); },
        [&](int i, const I(&group)[kWideGroup]) {
          store_joined(h.v_codes + static_cast<size_t>(i) * h.width + d * kWideGroup, output_codes(group));
        });
    const F total = set(h.v_grid.scale) * to_float(sum);
    store(h.v_total + d, total + set(static_cast<float>(t.tokens) * h.v_grid.offset));
    store(h.v_correction + d, kWideZero == 0 ? set(0) : shift_left<7>(sum - set(128 * t.tokens)));
  }
  return is_finite(h.v_grid);
}

// What the scores of a block of queries are made from, besides the products.
struct ScoreParts {
  F scale, scaled_sum, offset;
  I correction;
};

// Scores of the keys key .. key + kKeys - 1; returns the larger of `largest` and these. Not inlined: gcc 12 would spill
// what it adds up.
TB_NOINLINE F score_tile(const Head &h, const ScoreParts &parts, int key, F largest) {
  const WideRow *const k = reinterpret_cast<const WideRow *>(
      h.k_words + static_cast<size_t>(key / kLanes * kLanes) * h.width / kWideGroup + key % kLanes);
  I total[kKeys][1];
  wide_tile<kKeys, 1>(k, kWideGroup, kWideGroup * kLanes, h.q_codes, kWideBytes,
                      static_cast<int>(wide_groups(h.task.width)), total);
  const ScoreParts p = parts;
  // The compiler would read these again after each store.
  float *const scores = h.scores + key * kLanes;
  const float *const scale = h.k_scale + key, *const offset = h.k_offset + key, *const sum = h.k_total + key;
  const int32_t *const codes = h.k_sum + key;
  TB_UNROLL for (int r = 0; r < kKeys; r++) {
    const F products = to_float((total[r][0] + p.correction) + set(codes[r]));
    const F first = (p.scale * products) * set(scale[r]) + p.scaled_sum * set(offset[r]);
    const F score = first + p.offset * set(sum[r]);
    largest = max(largest, score);
    store(scores + r * kLanes, score);
  }
  return largest;
}

// Scores of kLanes queries with all keys; `top` becomes each query's largest.
TB_NOINLINE bool find_scores(const Head &h, int query, F &top) {
  const HeadTask &t = h.task;
  const Tokens queries = read_tokens(h, t.q, query, t.queries, t.q_grid);
  int8_t *codes = h.q_codes;
  const I q_sum = for_groups(
      t.width, Codes(queries.grids), 128, [&](int d) { return load(h.columns + d * kLanes); },
      [&](int, const I(&group)[kWideGroup]) {
        store_joined(codes, output_codes(group));
        codes += kWideBytes;
      });
  const F scale = queries.grids.scale * set(t.scaling);
  const ScoreParts parts{
      .scale = scale,
      .scaled_sum = scale * to_float(q_sum),
      .offset = queries.grids.offset * set(t.scaling),
      .correction = kWideZero == 0 ? set(0) : shift_left<7>(q_sum - set(128 * t.width)),
  };
  F largest = set(-INFINITY);
  for (int key = 0; key < t.tokens; key += kKeys)
    largest = score_tile(h, parts, key, largest);
  top = largest;
  return queries.finite;
}

// Of each query the sum of all exponentials, and the smallest.
struct Exponentials {
  Doubles sum;
  F smallest;
};

// Replaces scores by e^(score - top). As everywhere, key i is added to sum i mod 8.
TB_INLINE Exponentials exponentials(float *scores, int keys, F top) {
  F smallest = set(1.0f);
  Doubles sums[8];
  const auto add = [&](Doubles &sum, F e, int key) {
    smallest = min(smallest, e);
    sum = sum + doubles(e);
    store(scores + key * kLanes, e);
  };
  TB_UNROLL for (int lane = 0; lane < 8; lane += kAtOnce) {
    Doubles sum[kAtOnce];
    TB_UNROLL for (int i = 0; i < kAtOnce; i++) sum[i] = zero_doubles();
    int key = lane;
    for (; key + kAtOnce <= keys; key += 8) {
      const auto e = exp(load_several<kAtOnce>(scores + key * kLanes, kLanes) - top);
      TB_UNROLL for (int i = 0; i < kAtOnce; i++) add(sum[i], e.v[i], key + i);
    }
    TB_UNROLL for (int i = 0; i < kAtOnce; i++) if (key + i < keys)
        add(sum[i], exp(load(scores + (key + i) * kLanes) - top), key + i);
    TB_UNROLL for (int i = 0; i < kAtOnce; i++) sums[lane + i] = sum[i];
  }
  const Doubles even = (sums[0] + sums[4]) + (sums[2] + sums[6]), odd = (sums[1] + sums[5]) + (sums[3] + sums[7]);
  return {even + odd, smallest};
}

// Probabilities of each query: exponentials times the factor. The largest of them is the factor, for e^0 is 1.
struct Softmax {
  F factor, smallest;
};

TB_INLINE Softmax softmax(const Head &h, F top) {
  const Exponentials e = exponentials(h.scores, h.task.tokens, top);
  const F factor = one_over(e.sum);
  return {factor, e.smallest * factor};
}

// What the context of each query of a block is made from, besides the products.
struct ContextParts {
  float scale[kLanes], sum_part[kLanes], offset[kLanes];
  int32_t sum[kLanes];
};

// The queries row .. row + rows - 1 of the block that begins at `query`. Not inlined: gcc 12 would spill what it adds
// up.
template <int rows, int vectors>
TB_NOINLINE void context_tile(const Head &h, const ContextParts &parts, int query, int row, int column) {
  const HeadTask &t = h.task;
  I total[rows][vectors];
  wide_tile<rows, vectors>(reinterpret_cast<const WideRow *>(h.p_words) + row * kWideGroup, kWideGroup,
                           kWideGroup * kLanes, h.v_codes + column * kWideGroup, h.width * kWideGroup,
                           static_cast<int>(wide_groups(t.tokens)), total);
  const int left = t.width - column;
  const bool whole = left >= vectors * kLanes; // else what follows belongs to the next head
  TB_UNROLL for (int r = 0; r < rows; r++) {
    float last[vectors * kLanes], *const out = t.context + (query + row + r) * t.context_stride + column;
    TB_UNROLL for (int j = 0; j < vectors; j++) {
      const int d = column + j * kLanes;
      const F products = to_float((total[r][j] + load(h.v_correction + d)) + set(parts.sum[row + r]));
      const F y = (set(parts.scale[row + r]) * products + set(parts.sum_part[row + r])) +
                  set(parts.offset[row + r]) * load(h.v_total + d);
      store((whole ? out : last) + j * kLanes, y);
    }
    if (!whole) std::memcpy(out, last, sizeof(float) * static_cast<size_t>(left));
  }
}

TB_NOINLINE bool find_context(const Head &h, int query, F top) {
  const HeadTask &t = h.task;
  const Softmax s = softmax(h, top);
  const LaneGrids grids = t.p_grid ? lane_grids(*t.p_grid) : lane_grids(*t.quantizer, s.smallest, s.factor);
  const I p_sum = for_groups(
      t.tokens, Codes(grids), kWideZero, [&](int key) { return load(h.scores + key * kLanes) * s.factor; },
      [&](int key, const I(&group)[kWideGroup]) { store(h.p_words + key / kWideGroup * kLanes, row_words(group)); });
  ContextParts parts;
  store(parts.scale, grids.scale * set(h.v_grid.scale));
  store(parts.sum_part, (grids.scale * set(h.v_grid.offset)) * to_float(p_sum));
  store(parts.offset, grids.offset);
  store(parts.sum, shift_left<7>(p_sum));
  const int queries = t.queries - query < kLanes ? t.queries - query : kLanes;
  for_panels(t.width, [&](int column, auto vectors) {
    for_tiles(0, queries, [&](int row, auto rows) {
      context_tile<decltype(rows)::value, decltype(vectors)::value>(h, parts, query, row, column);
    });
  });
  return all_finite(s.smallest, s.factor, grids);
}

bool head(const HeadTask &task) {
  Head h(task);
  bool finite = read_keys(h);
  finite &= read_values(h);
  for (int query = 0; query < task.queries; query += kLanes) {
    F top;
    finite &= find_scores(h, query, top);
    if (!task.p_range) {
      finite &= find_context(h, query, top);
      continue;
    }
    const Softmax s = softmax(h, top);
    RangeOf range;
    range.add(s.smallest);
    range.add(s.factor);
    *task.p_range = tb::join(*task.p_range, range.get());
  }
  return finite;
}

// e^(score - largest) of one row in place of its scores; returns what makes them probabilities.
TB_INLINE float plain_softmax(float *x, int n) {
  F top = set(x[0]);
  for (int i = 0; i < n; i += kLanes)
    top = max(top, load(x, i, n, top));
  top = set(reduce_max(top));
  Sum sum = zero_sum();
  for (int i = 0; i < n; i += kLanes) {
    const F e = exp(load(x + i) - top), kept = i + kLanes <= n ? e : keep(e, n - i, set(0.0f));
    add(sum, kept);
    store(x + i, kept);
  }
  return static_cast<float>(1.0 / total(sum));
}

// Attention in plain numbers, for models whose activations are not quantized.
void plain_head(const HeadTask &t) {
  uint8_t *next = t.scratch;
  double *const sums = Head::take<double>(next, whole_lanes(t.width));
  float *const scores = Head::take<float>(next, whole_lanes(t.tokens));
  for (int query = 0; query < t.queries; query++) {
    const float *q = t.q + query * t.stride;
    for (int i = 0; i < t.tokens; i++)
      scores[i] = dot(q, t.k + i * t.stride, t.width) * t.scaling;
    const float factor = plain_softmax(scores, t.tokens);
    for (int d = 0; d < t.width; d++)
      sums[d] = 0.0;
    for (int i = 0; i < t.tokens; i++) {
      const double p = scores[i] * factor;
      const float *v = t.v + i * t.stride;
      for (int d = 0; d < t.width; d++)
        sums[d] += p * static_cast<double>(v[d]);
    }
    float *const out = t.context + query * t.context_stride;
    for (int d = 0; d < t.width; d++)
      out[d] = static_cast<float>(sums[d]);
  }
}

} // namespace
