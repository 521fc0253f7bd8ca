// The grids of several ranges at once, one for each lane: what grid_of() computes for one.
#pragma once

#include "functions.h"
#include "grid.h"

namespace {

struct LaneGrids {
  F scale, offset, shift, inverse;
  float smallest, largest, zero; // the same in all lanes
};

TB_INLINE LaneGrids lane_grids(const tb::Grid &g) {
  return {.scale = set(g.scale),
          .offset = set(g.offset),
          .shift = set(g.shift),
          .inverse = set(g.inverse),
          .smallest = g.smallest,
          .largest = g.largest,
          .zero = g.zero};
}

TB_INLINE F inverse_of(F scale) { return where_at_least(scale, set(FLT_MIN), set(1.0f) / scale); }

// NaN in the lanes where a number is NaN or infinite, else 0.
TB_INLINE F nan_unless_finite(F a) { return a - a; }

// Whether all ranges are finite, and the grids made from them (see is_finite() of one grid): clipping hides a range.
TB_INLINE bool all_finite(F low, F high, const LaneGrids &g) {
  const F range = nan_unless_finite(low) + nan_unless_finite(high);
  return !any_nan(range + (nan_unless_finite(g.scale) + nan_unless_finite(g.offset)));
}

TB_INLINE LaneGrids lane_grids(const tb::Quantizer &quantizer, F low, F high) {
  const bool clips = quantizer.clip > 0;
  const F clip = set(quantizer.clip), minus_clip = set(-quantizer.clip);
  if (quantizer.symmetric) {
    const float largest = static_cast<float>((1 << (quantizer.bits - 1)) - 1), zero = largest + 1;
    F magnitude = max(set(0.0f) - low, high);
    if (clips) magnitude = min(clip, magnitude);
    const F scale = magnitude / set(largest);
    return {.scale = scale,
            .offset = scale * set(-zero),
            .shift = set(0.0f),
            .inverse = inverse_of(scale),
            .smallest = -largest,
            .largest = largest,
            .zero = zero};
  }
  if (clips) {
    low = min(max(low, minus_clip), clip);
    high = min(max(high, minus_clip), clip);
  }
  const float largest = static_cast<float>((1 << quantizer.bits) - 1);
  const F scale = (high - low) / set(largest);
  return {.scale = scale,
          .offset = low,
          .shift = low,
          .inverse = inverse_of(scale),
          .smallest = 0.0f,
          .largest = largest,
          .zero = 0.0f};
}

} // namespace
