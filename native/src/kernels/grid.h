// The grid of a range, as numerics.py computes it. A head of attention needs two for each token: kernels have their own
// copies of these functions, inlined (see body.h); everything else calls those of quantizer.h.
#pragma once

#include "../quantizer.h"
#include "inline.h"

#include <float.h>
#include <math.h> // C headers: see body.h

namespace {

// Infinity minus itself is NaN, as is NaN.
TB_INLINE bool is_finite(float x) { return x - x == 0.0f; }
TB_INLINE bool is_finite(const tb::Grid &grid) { return is_finite(grid.scale) && is_finite(grid.offset); }

// 1 / scale. One so small that the inverse might be infinite has none: all codes are then the smallest.
TB_INLINE float inverse_of(float scale) { return scale >= FLT_MIN ? 1.0f / scale : 0.0f; }

TB_INLINE float clipped(float x, float clip) { return x < -clip ? -clip : x > clip ? clip : x; }

TB_INLINE tb::Grid minmax_grid(tb::Range range, int bits, float clip) {
  if (clip > 0) range = {.low = clipped(range.low, clip), .high = clipped(range.high, clip)};
  const float largest = static_cast<float>((1 << bits) - 1);
  const float scale = (range.high - range.low) / largest;
  return {
      .scale = scale,
      .offset = range.low,
      .shift = range.low,
      .inverse = inverse_of(scale),
      .smallest = 0.0f,
      .largest = largest,
      .zero = 0.0f,
  };
}

TB_INLINE tb::Grid symmetric_grid(tb::Range range, int bits, float clip) {
  const float largest = static_cast<float>((1 << (bits - 1)) - 1), zero = largest + 1;
  float magnitude = range.high < -range.low ? -range.low : range.high;
  if (clip > 0 && clip < magnitude) magnitude = clip;
  const float scale = magnitude / largest;
  return {
      .scale = scale,
      .offset = scale * -zero,
      .shift = 0.0f,
      .inverse = inverse_of(scale),
      .smallest = -largest,
      .largest = largest,
      .zero = zero,
  };
}

TB_INLINE tb::Grid grid_of(const tb::Quantizer &quantizer, tb::Range range) {
  if (!is_finite(range.low) || !is_finite(range.high)) {
    constexpr float kNan = NAN;
    return {.scale = kNan, .offset = kNan, .shift = 0, .inverse = 0, .smallest = 0, .largest = 0, .zero = 0};
  }
  return quantizer.symmetric ? symmetric_grid(range, quantizer.bits, quantizer.clip)
                             : minmax_grid(range, quantizer.bits, quantizer.clip);
}

} // namespace
