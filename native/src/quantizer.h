// Activation codes: x_hat = scale * code + offset, as numerics.py's quantize() computes them.
//
// Nothing is inline here on purpose, not even a constructor with default values: kernels include this header, and of a
// function that is compiled once for every instruction set the linker might keep the copy that this CPU cannot run.
#pragma once

namespace tb {

struct Range {
  float low, high; // low is NaN if a number was NaN or infinite
};

Range join(Range a, Range b);

// code = clamp(rint((x - shift) * inverse), smallest, largest) + zero, an unsigned number.
struct Grid {
  float scale, offset;
  float shift, inverse, smallest, largest, zero;

  bool finite() const;
  float round_trip(float x) const; // x_hat
};

struct Quantizer {
  int bits;
  bool symmetric;
  float clip; // 0: none

  Grid grid(Range range) const;
};

} // namespace tb
