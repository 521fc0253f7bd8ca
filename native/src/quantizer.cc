#include "quantizer.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tb {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

float inverse(float scale) { return scale >= std::numeric_limits<float>::min() ? 1.0f / scale : 0.0f; }

Grid minmax_grid(Range range, int bits, float clip) {
  if (clip > 0) range = {std::min(std::max(range.low, -clip), clip), std::min(std::max(range.high, -clip), clip)};
  const float largest = static_cast<float>((1 << bits) - 1);
  const float scale = (range.high - range.low) / largest;
  return {scale, range.low, range.low, inverse(scale), 0.0f, largest, 0.0f};
}

Grid symmetric_grid(Range range, int bits, float clip) {
  const float largest = static_cast<float>((1 << (bits - 1)) - 1), zero = largest + 1;
  float magnitude = std::max(range.high, -range.low);
  if (clip > 0) magnitude = std::min(magnitude, clip);
  const float scale = magnitude / largest;
  return {scale, scale * -zero, 0.0f, inverse(scale), -largest, largest, zero};
}

} // namespace

Range join(Range a, Range b) {
  if (std::isnan(a.low)) return a;
  if (std::isnan(b.low)) return b;
  return {std::min(a.low, b.low), std::max(a.high, b.high)};
}

bool Grid::finite() const { return std::isfinite(scale) && std::isfinite(offset); }

float Grid::round_trip(float x) const {
  const float code = std::nearbyint((x - shift) * inverse);
  return scale * (std::min(std::max(code, smallest), largest) + zero) + offset;
}

Grid Quantizer::grid(Range range) const {
  if (!std::isfinite(range.low) || !std::isfinite(range.high)) return {kNan, kNan, 0, 0, 0, 0, 0};
  return symmetric ? symmetric_grid(range, bits, clip) : minmax_grid(range, bits, clip);
}

} // namespace tb
