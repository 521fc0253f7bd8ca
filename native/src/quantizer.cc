#include "quantizer.h"

#include "kernels/grid.h"

#include <algorithm>
#include <cmath>

namespace tb {
Range join(Range a, Range b) {
  if (std::isnan(a.low)) return a;
  if (std::isnan(b.low)) return b;
  return {.low = std::min(a.low, b.low), .high = std::max(a.high, b.high)};
}

bool Grid::finite() const { return is_finite(*this); }

float Grid::round_trip(float x) const {
  const float code = std::nearbyint((x - shift) * inverse);
  return scale * (std::min(std::max(code, smallest), largest) + zero) + offset;
}

Grid Quantizer::grid(Range range) const { return grid_of(*this, range); }

} // namespace tb
