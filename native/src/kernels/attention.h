// One head of attention on 8-bit codes: scores, softmax and context of a few queries at a time, so that their
// probabilities never leave the nearest cache.
//
// Keys and values are the panels of a wide product and hold codes minus 128. With all sums exact,
//   sum q k = sum (q - z)(k - 128) + z sum (k - 128) + 128 sum q,   z = kWideZero.
#pragma once

#include "linear.h"
#include "rows.h"

namespace {

using tb::HeadTask;

// What a head needs while it runs, cut out of the scratch memory.
struct Head {
  const HeadTask &task;
  size_t tokens, width; // padded
  int8_t *k_panels, *v_panels, *bytes;
  float *k_scale, *k_offset, *k_total, *v_total, *scores;
  int32_t *k_correction, *v_correction;
  WideRow *q, *p;
  Grid v_grid;

  explicit Head(const HeadTask &t) : task(t), tokens(padded(t.tokens)), width(padded(t.width)) {
    uint8_t *next = t.scratch;
    k_panels = take<int8_t>(next, tokens * width);
    v_panels = take<int8_t>(next, tokens * width);
    bytes = take<int8_t>(next, kWideGroup * width);
    k_scale = take<float>(next, tokens);
    k_offset = take<float>(next, tokens);
    k_total = take<float>(next, tokens);
    v_total = take<float>(next, width);
    scores = take<float>(next, kTileRows * tokens);
    k_correction = take<int32_t>(next, tokens);
    v_correction = take<int32_t>(next, width);
    q = take<WideRow>(next, kTileRows * width);
    p = take<WideRow>(next, kTileRows * tokens);
  }

  template <class T> static T *take(uint8_t *&next, size_t count) {
    T *const begin = reinterpret_cast<T *>(next);
    next += count * sizeof(T);
    return begin;
  }
};

size_t head_scratch(int n_tokens, int n_width) {
  const size_t tokens = padded(n_tokens), width = padded(n_width);
  return 2 * tokens * width + kWideGroup * width + 4 * (4 * tokens + 2 * width) + 4 * kTileRows * tokens +
         sizeof(WideRow) * kTileRows * (tokens + width);
}

// A head's part of one token lies far from that of the next: too far for the CPU's own prefetcher.
TB_INLINE void fetch_ahead(const HeadTask &t, const float *x, int token) {
  constexpr int kAhead = 6;
  if (token + kAhead >= t.tokens) return;
  const float *next = x + (token + kAhead) * t.stride;
  for (int d = 0; d < t.width; d += 16)
    TB_PREFETCH(next + d);
}

bool read_keys(Head &h) {
  const HeadTask &t = h.task;
  const size_t panel_bytes = h.width * kColumns;
  bool finite = true;
  for (size_t i = static_cast<size_t>(t.tokens); i < h.tokens; i++)
    h.k_scale[i] = h.k_offset[i] = h.k_total[i] = 0.0f;
  for (int i = 0; i < t.tokens; i++) {
    const float *k = t.k + i * t.stride;
    fetch_ahead(t, t.k, i);
    const Grid grid = t.k_grid ? *t.k_grid : grid_of(*t.quantizer, range_of(k, t.width));
    finite &= is_finite(grid);
    const int32_t sum = quantize_bytes(k, t.width, grid, h.bytes);
    int8_t *const panel = h.k_panels + i / kColumns * panel_bytes;
    for (int g = 0; g < t.width; g += kWideGroup)
      std::memcpy(wide_place(panel, i % kColumns, g), h.bytes + g, kWideGroup);
    h.k_scale[i] = grid.scale;
    h.k_offset[i] = grid.offset;
    h.k_total[i] = grid.scale * static_cast<float>(sum + 128 * t.width) + static_cast<float>(t.width) * grid.offset;
    h.k_correction[i] = kWideZero * sum;
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

// The bytes of kWideGroup rows, a column's side by side.
TB_INLINE void interleave(const int8_t *__restrict rows, size_t stride, int columns, int8_t *__restrict out) {
  for (int c = 0; c < columns; c++)
    TB_UNROLL for (int g = 0; g < kWideGroup; g++) out[c * kWideGroup + g] = rows[g * stride + c];
}

bool read_values(Head &h) {
  const HeadTask &t = h.task;
  h.v_grid = t.v_grid ? *t.v_grid : grid_of(*t.quantizer, range_of_values(t));
  const size_t panel_bytes = h.tokens * kColumns;
  for (int i = 0; i < t.tokens; i += kWideGroup) {
    TB_UNROLL for (int g = 0; g < kWideGroup; g++) {
      int8_t *const row = h.bytes + g * h.width;
      if (i + g < t.tokens)
        quantize_bytes(t.v + (i + g) * t.stride, t.width, h.v_grid, row);
      else
        std::memset(row, 0, h.width);
    }
    for_panels(t.width, [&](int d, auto vectors) {
      interleave(h.bytes + d, h.width, decltype(vectors)::value * kLanes,
                 wide_place(h.v_panels + static_cast<size_t>(d) / kColumns * panel_bytes, 0, i));
    });
  }
  // The sum of a column is its product with ones.
  for (size_t i = 0; i < h.tokens; i++)
    h.p[i] = 1;
  for_panels(t.width, [&](int column, auto vectors) {
    I sums[1][decltype(vectors)::value];
    wide_tile(h.p, h.tokens, h.v_panels + column * h.tokens, static_cast<int>(wide_groups(t.tokens)), sums);
    TB_UNROLL for (int j = 0; j < decltype(vectors)::value; j++) {
      const int d = column + j * kLanes;
      const F total = set(h.v_grid.scale) * to_float(sums[0][j] + set(128 * t.tokens));
      store(h.v_total + d, total + set(static_cast<float>(t.tokens) * h.v_grid.offset));
      store(h.v_correction + d, sums[0][j]);
    }
  });
  if (kWideZero != 1)
    for (size_t d = 0; d < h.width; d++)
      h.v_correction[d] *= kWideZero;
  return is_finite(h.v_grid);
}

// Scores of `rows` queries with all keys.
template <int rows> TB_NOINLINE bool find_scores(Head &h, int query) {
  const HeadTask &t = h.task;
  F scale[rows], scaled_sum[rows], offset[rows];
  I sum[rows];
  bool finite = true;
  for (int r = 0; r < rows; r++) {
    const float *q = t.q + (query + r) * t.stride;
    if (t.queries > 1) fetch_ahead(t, t.q, query + r);
    const Grid grid = t.q_grid ? *t.q_grid : grid_of(*t.quantizer, range_of(q, t.width));
    finite &= is_finite(grid);
    const int32_t q_sum = quantize_wide(q, t.width, 1.0f, grid, h.q + r * h.width) + 128 * t.width;
    const float q_scale = grid.scale * t.scaling;
    scale[r] = set(q_scale);
    scaled_sum[r] = set(q_scale * static_cast<float>(q_sum));
    offset[r] = set(grid.offset * t.scaling);
    sum[r] = set(128 * q_sum);
  }
  for_panels(t.tokens, [&](int key, auto constant) {
    constexpr int vectors = decltype(constant)::value;
    I total[rows][vectors];
    wide_tile(h.q, h.width, h.k_panels + key * h.width, static_cast<int>(wide_groups(t.width)), total);
    for (int r = 0; r < rows; r++)
      TB_UNROLL for (int j = 0; j < vectors; j++) {
        const int k = key + j * kLanes;
        const F products = to_float((total[r][j] + load(h.k_correction + k)) + sum[r]);
        const F first = (scale[r] * products) * load(h.k_scale + k) + scaled_sum[r] * load(h.k_offset + k);
        store(h.scores + r * h.tokens + k, first + offset[r] * load(h.k_total + k));
      }
  });
  return finite;
}

// Replaces scores by e^(score - largest); the probabilities are these times the factor, and the largest of them is the
// factor itself, for e^0 is 1.
struct Softmax {
  float factor, smallest;
};

// Of `rows` rows at once: one alone would mostly wait for its own sums.
template <int rows> TB_INLINE void softmax(float *x, size_t stride, int n, Softmax *out) {
  F top[rows], smallest[rows];
  Sum sum[rows];
  TB_UNROLL for (int r = 0; r < rows; r++) top[r] = set(x[r * stride]);
  for (int i = 0; i < n; i += kLanes)
    TB_UNROLL for (int r = 0; r < rows; r++) top[r] = max(top[r], load(x + r * stride, i, n, top[r]));
  TB_UNROLL for (int r = 0; r < rows; r++) {
    top[r] = set(reduce_max(top[r]));
    smallest[r] = set(1.0f);
    sum[r] = zero_sum();
  }
  const int whole = n / kLanes * kLanes;
  for (int i = 0; i < whole; i += kLanes)
    TB_UNROLL for (int r = 0; r < rows; r++) {
      const F e = exp(load(x + r * stride + i) - top[r]);
      smallest[r] = min(smallest[r], e);
      add(sum[r], e);
      store(x + r * stride + i, e);
    }
  if (whole < n) TB_UNROLL for (int r = 0; r < rows; r++) {
      const F e = exp(load(x + r * stride + whole) - top[r]), kept = keep(e, n - whole, set(0.0f));
      smallest[r] = min(smallest[r], keep(e, n - whole, smallest[r]));
      add(sum[r], kept);
      store(x + r * stride + whole, kept);
    }
  TB_UNROLL for (int r = 0; r < rows; r++) {
    const float factor = static_cast<float>(1.0 / total(sum[r]));
    out[r] = {factor, reduce_min(smallest[r]) * factor};
  }
}

template <int rows> TB_NOINLINE bool find_context(Head &h, int query) {
  const HeadTask &t = h.task;
  F scale[rows], sum_part[rows], offset[rows];
  I sum[rows];
  Softmax s[rows];
  bool finite = true;
  softmax<rows>(h.scores, h.tokens, t.tokens, s);
  for (int r = 0; r < rows; r++) {
    const float *const x = h.scores + r * h.tokens;
    const Grid grid = t.p_grid ? *t.p_grid : grid_of(*t.quantizer, {s[r].smallest, s[r].factor});
    finite &= is_finite(grid);
    const int32_t p_sum = quantize_wide(x, t.tokens, s[r].factor, grid, h.p + r * h.tokens) + 128 * t.tokens;
    scale[r] = set(grid.scale * h.v_grid.scale);
    sum_part[r] = set((grid.scale * h.v_grid.offset) * static_cast<float>(p_sum));
    offset[r] = set(grid.offset);
    sum[r] = set(128 * p_sum);
  }
  for_panels(t.width, [&](int column, auto constant) {
    constexpr int vectors = decltype(constant)::value;
    I total[rows][vectors];
    wide_tile(h.p, h.tokens, h.v_panels + column * h.tokens, static_cast<int>(wide_groups(t.tokens)), total);
    for (int r = 0; r < rows; r++)
      TB_UNROLL for (int j = 0; j < vectors; j++) {
        const int d = column + j * kLanes;
        const F products = to_float((total[r][j] + load(h.v_correction + d)) + sum[r]);
        const F y = (scale[r] * products + sum_part[r]) + offset[r] * load(h.v_total + d);
        float *const out = t.context + (query + r) * t.context_stride + d;
        if (d + kLanes <= t.width) {
          store(out, y);
        } else { // what follows belongs to the next head
          float last[kLanes];
          store(last, y);
          std::memcpy(out, last, sizeof(float) * static_cast<size_t>(t.width - d));
        }
      }
  });
  return finite;
}

bool head(const HeadTask &task) {
  Head h(task);
  bool finite = read_keys(h);
  finite &= read_values(h);
  for_tiles(0, task.queries, [&](int query, auto rows) {
    constexpr int n = decltype(rows)::value;
    finite &= find_scores<n>(h, query);
    if (!task.p_range) {
      finite &= find_context<n>(h, query);
      return;
    }
    Softmax s[n];
    softmax<n>(h.scores, h.tokens, task.tokens, s);
    for (int r = 0; r < n; r++)
      *task.p_range = tb::join(*task.p_range, {s[r].smallest, s[r].factor});
  });
  return finite;
}

// Attention in plain numbers, for models whose activations are not quantized.
void plain_head(const HeadTask &t) {
  uint8_t *next = t.scratch;
  float *const scores = Head::take<float>(next, padded(t.tokens));
  double *const sums = Head::take<double>(next, padded(t.width));
  for (int query = 0; query < t.queries; query++) {
    const float *q = t.q + query * t.stride;
    for (int i = 0; i < t.tokens; i++)
      scores[i] = dot(q, t.k + i * t.stride, t.width) * t.scaling;
    Softmax s;
    softmax<1>(scores, 0, t.tokens, &s);
    for (int d = 0; d < t.width; d++)
      sums[d] = 0.0;
    for (int i = 0; i < t.tokens; i++) {
      const double p = scores[i] * s.factor;
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
