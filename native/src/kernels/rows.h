// What happens between the integers, one row at a time: numerics.py in vectors, operation by operation.
#pragma once

#include "functions.h"
#include "kernel.h"
#include "lane_grids.h"

#include <math.h> // C functions: see body.h

namespace {

using tb::Grid;
using tb::Range;

// Beyond the end of a row the lanes are `fill`.
TB_INLINE F load(const float *x, int i, int n, F fill) {
  const F v = load(x + i);
  return i + kLanes <= n ? v : keep(v, n - i, fill);
}

// The range of numbers that come one vector after the other.
struct RangeOf {
  F low = set(INFINITY), high = set(-INFINITY);
  F sum = set(0.0f); // NaN if a number was, which minima and maxima do not show

  // A vector of which the first `count` lanes are numbers.
  void add(F v, int count) {
    if (count >= kLanes) {
      add(v);
    } else {
      low = min(low, keep(v, count, low));
      high = max(high, keep(v, count, high));
      sum = sum + keep(v, count, set(0.0f));
    }
  }
  void add(F v) {
    low = min(low, v);
    high = max(high, v);
    sum = sum + v;
  }
  Range get() const {
    const Range range{reduce_min(low), reduce_max(high)};
    const bool finite = !any_nan(sum) && is_finite(range.low) && is_finite(range.high);
    return {finite ? range.low : NAN, range.high};
  }
};

TB_INLINE Range range_of(const float *x, int n) {
  RangeOf range;
  for (int i = 0; i < n; i += kLanes)
    range.add(load(x + i), n - i);
  return range.get();
}

Range range(const float *x, int n) { return range_of(x, n); }

// Replaces each vector by f of it, and gives the range of the new numbers. f takes a vector, or several.
template <class Function> TB_INLINE Range map(float *x, int n, Function f) {
  constexpr int kAtOnce = kVectors;
  RangeOf range;
  int i = 0;
  for (; i + kAtOnce * kLanes <= n; i += kAtOnce * kLanes) {
    const auto v = f(load_several<kAtOnce>(x + i, kLanes), i);
    TB_UNROLL for (int j = 0; j < kAtOnce; j++) {
      store(x + i + j * kLanes, v.v[j]);
      range.add(v.v[j]);
    }
  }
  for (; i < n; i += kLanes) {
    const F v = f(load(x + i), i);
    store(x + i, v);
    range.add(v, n - i);
  }
  return range.get();
}

struct Codes {
  F shift, inverse, smallest, largest;
  I zero;

  // `stored_zero` is what the layout subtracts from a code.
  explicit Codes(const Grid &g, float stored_zero)
      : shift(set(g.shift)), inverse(set(g.inverse)), smallest(set(g.smallest)), largest(set(g.largest)),
        zero(set(static_cast<int32_t>(g.zero - stored_zero))) {}
  explicit Codes(const LaneGrids &g)
      : shift(g.shift), inverse(g.inverse), smallest(set(g.smallest)), largest(set(g.largest)),
        zero(set(static_cast<int32_t>(g.zero))) {}

  I operator()(F x) const {
    // The bounds are whole numbers: clamping before rounding is the same, and the conversion rounds.
    return to_int(max(min((x - shift) * inverse, largest), smallest)) + zero;
  }
};

// Four vectors of codes of factor * x[i ..], 0 beyond the end.
struct FourCodes {
  I c[4];

  FourCodes(const float *x, int i, int n, F factor, const Codes &codes) {
    const int left = n - i;
    c[2] = c[3] = set(0);
    TB_UNROLL for (int q = 0; q < 2; q++) c[q] = codes(load(x + i + q * kLanes) * factor);
    if (left > 2 * kLanes) // not so in heads of two vectors
      TB_UNROLL for (int q = 2; q < 4; q++) c[q] = codes(load(x + i + q * kLanes) * factor);
    if (left < 4 * kLanes && left != 2 * kLanes)
      TB_UNROLL for (int q = 0; q < 4; q++) c[q] = keep(c[q], left - q * kLanes);
  }
  I sum() const { return (c[0] + c[1]) + (c[2] + c[3]); }
};

// Codes minus 128, as bytes; returns their sum.
TB_INLINE int32_t quantize_bytes(const float *x, int n, const Grid &grid, int8_t *out) {
  const Codes codes(grid, 128.0f);
  I sum = set(0);
  for (int i = 0; i < n; i += 4 * kLanes) {
    const FourCodes four(x, i, n, set(1.0f), codes);
    sum = sum + four.sum();
    store_bytes4(out + i, four.c[0], four.c[1], four.c[2], four.c[3]);
  }
  return reduce_add(sum);
}

// Codes of factor * x as the rows of a wide product; returns the sum of the codes minus 128.
TB_INLINE int32_t quantize_wide(const float *x, int n, float factor, const Grid &grid, WideRow *out) {
  const Codes codes(grid, kWideZero);
  I sum = set(0);
  for (int i = 0; i < n; i += 4 * kLanes) {
    const FourCodes four(x, i, n, set(factor), codes);
    sum = sum + four.sum();
    store_wide4(out + i, four.c[0], four.c[1], four.c[2], four.c[3]);
  }
  return reduce_add(sum) - n * (128 - kWideZero);
}

int32_t quantize(const float *x, int n, const Grid &grid, bool ternary, uint8_t *codes) {
  return ternary ? quantize_bytes(x, n, grid, reinterpret_cast<int8_t *>(codes))
                 : quantize_wide(x, n, 1.0f, grid, reinterpret_cast<WideRow *>(codes));
}

void embed(const float *word, const float *type, const float *position, int n, float *out) {
  for (int i = 0; i < n; i += kLanes) {
    F v = load(word + i);
    if (type) v = v + load(type + i);
    store(out + i, v + load(position + i));
  }
}

// Each sum waits for itself, once for every eight numbers: several rows at a time do so together.
template <int rows>
TB_INLINE void normalize(float *x, size_t stride, int n, const float *weight, const float *bias, double eps,
                         Range *ranges) {
  const F zero = set(0.0f);
  Sum sum[rows], squares[rows];
  F mean[rows], inverse[rows];
  TB_UNROLL for (int r = 0; r < rows; r++) sum[r] = squares[r] = zero_sum();
  for (int i = 0; i < n; i += kLanes)
    TB_UNROLL for (int r = 0; r < rows; r++) add(sum[r], load(x + r * stride, i, n, zero));
  TB_UNROLL for (int r = 0; r < rows; r++) mean[r] = set(static_cast<float>(total(sum[r]) / n));
  for (int i = 0; i < n; i += kLanes)
    TB_UNROLL for (int r = 0; r < rows; r++) {
      const F d = load(x + r * stride, i, n, mean[r]) - mean[r];
      store(x + r * stride + i, d);
      add_product(squares[r], d, d);
    }
  TB_UNROLL for (int r = 0; r < rows; r++) inverse[r] =
      set(static_cast<float>(1.0 / ::sqrt(total(squares[r]) / n + eps)));
  TB_UNROLL for (int r = 0; r < rows; r++) ranges[r] = map(x + r * stride, n, [&](auto d, int i) {
    return (d * inverse[r]) * load_as(d, weight + i) + load_as(d, bias + i);
  });
}

void layer_norm(float *x, size_t stride, int rows, int n, const float *weight, const float *bias, double eps,
                Range *ranges) {
  constexpr int kAtOnce = 4;
  int r = 0;
  for (; r + kAtOnce <= rows; r += kAtOnce)
    normalize<kAtOnce>(x + r * stride, stride, n, weight, bias, eps, ranges + r);
  for (; r < rows; r++)
    normalize<1>(x + r * stride, stride, n, weight, bias, eps, ranges + r);
}

Range activate(float *x, int n, int function) {
  switch (function) {
  case TB_GELU:
    return map(x, n, [](auto v, int) { return gelu(v, kGelu); });
  case TB_GELU_TANH:
    return map(x, n, [](auto v, int) { return gelu(v, kGeluTanh); });
  case TB_RELU:
    return map(x, n, [](auto v, int) { return max(v, set(0.0f)); });
  case TB_TANH:
    for (int i = 0; i < n; i++)
      // Through double: the last bit of tanhf differs between C libraries, that of this does not.
      x[i] = static_cast<float>(::tanh(static_cast<double>(x[i])));
    break;
  }
  return range(x, n);
}

float dot(const float *x, const float *w, int n) {
  const F zero = set(0.0f);
  Sum sum = zero_sum();
  for (int i = 0; i < n; i += kLanes)
    add_product(sum, load(x, i, n, zero), load(w, i, n, zero));
  return static_cast<float>(total(sum));
}

} // namespace
