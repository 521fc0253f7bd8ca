// Products of unsigned 8-bit codes with signed bytes: weights of 3 to 8 bits, and attention.
//
// Panels as in ternary.h, one byte a number: a vector has kWideGroup successive inputs for each of kLanes outputs.
// The rows hold codes minus kWideZero, in whatever type the instruction set multiplies. wide_tile() gives
// sum (a - kWideZero) b; what is missing, kWideZero * sum b, is added by the caller, who knows the sums.
#pragma once

#include "ternary.h"

namespace {

constexpr int kWideBytes = kLanes * kWideGroup;

constexpr size_t wide_groups(int inputs) { return (static_cast<size_t>(inputs) + kWideGroup - 1) / kWideGroup; }
constexpr size_t wide_panel_bytes(int inputs) { return padded(inputs) * kColumns; }

// Where output n (of the panel) has its inputs k .. k + kWideGroup - 1.
TB_INLINE int8_t *wide_place(int8_t *panel, int n, int k) {
  return panel + (static_cast<size_t>(k) / kWideGroup * kColumns + static_cast<size_t>(n)) * kWideGroup;
}

void pack_wide(const int8_t *codes, size_t stride, int rows, int inputs, int8_t *panel) {
  for (int n = 0; n < rows; n++)
    for (int k = 0; k < inputs; k++)
      wide_place(panel, n, k)[k % kWideGroup] = codes[n * stride + k];
}

// Products of `rows` rows with `vectors` vectors of outputs. From one row to the next it is `stride` numbers, from one
// group to the next `a_step` numbers in `a` and `b_step` bytes in `b`.
template <int rows, int vectors>
TB_INLINE void wide_tile(const WideRow *a, size_t stride, size_t a_step, const int8_t *b, size_t b_step, int groups,
                         I (&total)[rows][vectors]) {
  I acc[rows][vectors];
  TB_UNROLL for (int r = 0; r < rows; r++) TB_UNROLL for (int j = 0; j < vectors; j++) acc[r][j] = set(0);
  for (int g = 0; g < groups; g++) {
    Wide w[vectors];
    TB_UNROLL for (int j = 0; j < vectors; j++) w[j] = load_wide(b + j * kWideBytes);
    TB_UNROLL for (int r = 0; r < rows; r++) {
      const Wide x = broadcast_wide(a + r * stride);
      TB_UNROLL for (int j = 0; j < vectors; j++) wide_dot(acc[r][j], w[j], x);
    }
    a += a_step;
    b += b_step;
  }
  TB_UNROLL for (int r = 0; r < rows; r++) TB_UNROLL for (int j = 0; j < vectors; j++) total[r][j] = acc[r][j];
}

// Calls f(first, vectors) for n outputs, as many vectors of them at a time as a panel has; `vectors` is a constant.
template <class Function> TB_INLINE void for_panels(int n, Function f) {
  for (int first = 0; first < n; first += kColumns) {
    const int left = (n - first + kLanes - 1) / kLanes;
    with_constant<kVectors>(left < kVectors ? left : kVectors, [&](auto vectors) { f(first, vectors); });
  }
}

// kWideGroup codes of 0 .. 255 of each lane side by side, `bits` for each, less `zero`, which is 0 or 128.
template <int bits, int zero> TB_INLINE I join(const I (&codes)[kWideGroup]) {
  static_assert(zero == 0 || bits == 8, "the exclusive or takes 128 from a byte");
  I all = codes[kWideGroup - 1];
  TB_UNROLL for (int g = kWideGroup - 2; g >= 0; g--) all = codes[g] + shift_left<bits>(all);
  // To flip the highest bit of a byte is to subtract 128 from it.
  if constexpr (zero != 0) all = all ^ set(bits * kWideGroup == 32 ? static_cast<int32_t>(0x80808080) : 0x8080);
  return all;
}

} // namespace
