#include "quantizer.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tb {
namespace {

constexpr Grid kNotFinite{
    .scale = std::numeric_limits<float>::quiet_NaN(),
    .offset = std::numeric_limits<float>::quiet_NaN(),
    .shift = 0.0f,
    .inverse = 0.0f,
    .smallest = 0.0f,
    .largest = 0.0f,
    .zero = 0.0f,
};

float inverse(float scale) { return scale >= std::numeric_limits<float>::min() ? 1.0f / scale : 0.0f; }

Grid minmax_grid(Range range, int bits, float clip) {
  if (clip > 0) range = {.low = std::clamp(range.low, -clip, clip), .high = std::clamp(range.high, -clip, clip)};
  const float largest = static_cast<float>((1 << bits) - 1);
  const float scale = (range.high - range.low) / largest;
  return {
      .scale = scale,
      .offset = range.low,
      .shift = range.low,
      .inverse = inverse(scale),
      .smallest = 0.0f,
      .largest = largest,
      .zero = 0.0f,
  };
}

Grid symmetric_grid(Range range, int bits, float clip) {
  const float largest = static_cast<float>((1 << (bits - 1)) - 1), zero = largest + 1;
  float magnitude = std::max(range.high, -range.low);
  if (clip > 0) magnitude = std::min(magnitude, clip);
  const float scale = magnitude / largest;
  return {
      .scale = scale,
      .offset = scale * -zero,
      .shift = 0.0f,
      .inverse = inverse(scale),
      .smallest = -largest,
      .largest = largest,
      .zero = zero,
  };
}

} // namespace

Range join(Range a, Range b) {
  if (std::isnan(a.low)) return a;
  if (std::isnan(b.low)) return b;
  return {.low = std::min(a.low, b.low), .high = std::max(a.high, b.high)};
}

bool Grid::finite() const { return std::isfinite(scale) && std::isfinite(offset); }

float Grid::round_trip(float x) const {
  const float code = std::nearbyint((x - shift) * inverse);
  return scale * (std::min(std::max(code, smallest), largest) + zero) + offset;
}

Grid Quantizer::grid(Range range) const {
  if (!std::isfinite(range.low) || !std::isfinite(range.high)) return kNotFinite;
  return symmetric ? symmetric_grid(range, bits, clip) : minmax_grid(range, bits, clip);
}

} // namespace tb
