// The product with ternary weights, from 2-bit codes.
//
// A panel holds kColumns = kVectors * kLanes outputs. Its unit is a vector of bytes: lane l is an output, the four
// bytes of a lane are four successive inputs, and the four codes in a byte (lowest bits first) are four such steps, 16
// inputs in all. So a step costs one AND (and one shift), a broadcast of four activations, and one dot() per output
// vector.
//
// Codes are the unsigned 0, 1, 2 (w + 1); activations are a - 128, signed. With all sums exact,
//   sum a w = sum (a-128)(w+1) - sum (a-128) + 128 sum w.
// Padding: inputs beyond the weight's have code 0, so that whatever the activations hold there counts nothing.
#pragma once

#include "kernel.h"

#include <atomic>

namespace {

constexpr int kColumns = kVectors * kLanes;
constexpr int kGroup = 16; // inputs in one packed vector
constexpr int kVectorBytes = 4 * kLanes;

constexpr size_t padded(int n) { return (static_cast<size_t>(n) + tb::kPad - 1) / tb::kPad * tb::kPad; }

// `codes` has rows of `stride` bytes, zeros beyond `inputs`; the panel is all zeros.
void pack_ternary(const int8_t *codes, size_t stride, int rows, int inputs, uint8_t *panel) {
  for (int n = 0; n < rows; n++)
    for (int k = 0; k < inputs; k += kGroup) {
      uint8_t step[kGroup]; // w + 1
      for (int i = 0; i < kGroup; i++)
        step[i] = static_cast<uint8_t>(k + i < inputs ? codes[n * stride + k + i] + 1 : 0);
      uint8_t *lane = panel + (static_cast<size_t>(k) / kGroup * kVectors * kLanes + n) * 4;
      for (int b = 0; b < 4; b++)
        lane[b] = static_cast<uint8_t>(step[b] | step[4 + b] << 2 | step[8 + b] << 4 | step[12 + b] << 6);
    }
}

// A panel with one code a byte, in the order in which tile() reads it.
void unpack_ternary(const uint8_t *panel, int inputs, uint8_t *out) {
  const size_t groups = padded(inputs) / kGroup;
  for (size_t g = 0; g < groups; g++)
    for (int j = 0; j < kVectors; j++) {
      Bytes packed = load_bytes(panel + (g * kVectors + j) * kVectorBytes);
      TB_UNROLL for (int step = 0; step < 4; step++) {
        store_bytes(out + ((g * 4 + step) * kVectors + j) * kVectorBytes, low_codes(packed));
        packed = next_codes(packed);
      }
    }
}

// total[r][j] = products of row r with the panel's outputs j * kLanes ..; `packed` says how b holds the codes.
template <int rows, bool packed>
TB_INLINE void tile(const int8_t *a, size_t stride, const uint8_t *b, int groups, I (&total)[rows][kVectors]) {
  TB_UNROLL for (int r = 0; r < rows; r++) TB_UNROLL for (int j = 0; j < kVectors; j++) total[r][j] = set(0);
  constexpr size_t kGroupBytes = kVectors * kVectorBytes * (packed ? 1 : 4);
  for (int begin = 0; begin < groups; begin += kAccumulatedGroups) {
    const int end = begin + kAccumulatedGroups < groups ? begin + kAccumulatedGroups : groups;
    Accumulator acc[rows][kVectors];
    TB_UNROLL for (int r = 0; r < rows; r++) TB_UNROLL for (int j = 0; j < kVectors; j++) acc[r][j] =
        zero_accumulator();
    for (int g = begin; g < end; g++) {
      Bytes codes[kVectors];
      TB_UNROLL for (int step = 0; step < 4; step++) {
        Bytes w[kVectors];
        TB_UNROLL for (int j = 0; j < kVectors; j++) {
          if constexpr (packed) {
            codes[j] = step == 0 ? load_bytes(b + j * kVectorBytes) : next_codes(codes[j]);
            w[j] = low_codes(codes[j]);
          } else {
            w[j] = load_bytes(b + (step * kVectors + j) * kVectorBytes);
          }
        }
        TB_UNROLL for (int r = 0; r < rows; r++) {
          const Bytes x = broadcast4(a + r * stride + step * 4);
          TB_UNROLL for (int j = 0; j < kVectors; j++) dot(acc[r][j], w[j], x);
        }
      }
      a += kGroup;
      b += kGroupBytes;
    }
    TB_UNROLL for (int r = 0; r < rows; r++) TB_UNROLL for (int j = 0; j < kVectors; j++) total[r][j] =
        total[r][j] + widen(acc[r][j]);
  }
}

// A compiler must neither leave the products out (so their sum is returned) nor see that all rounds are alike.
int32_t only_products(const int8_t *four, int rounds) {
  const Bytes codes = low_codes(broadcast4(four));
  Accumulator acc[kTileRows][kVectors];
  TB_UNROLL for (int r = 0; r < kTileRows; r++) TB_UNROLL for (int j = 0; j < kVectors; j++) acc[r][j] =
      zero_accumulator();
  for (int i = 0; i < rounds; i++) {
    std::atomic_signal_fence(std::memory_order_seq_cst); // whatever lies at `four` may have changed
    const Bytes x = broadcast4(four);
    TB_UNROLL for (int step = 0; step < 4; step++) TB_UNROLL for (int r = 0; r < kTileRows; r++)
        TB_UNROLL for (int j = 0; j < kVectors; j++) dot(acc[r][j], codes, x);
  }
  I total = set(0);
  TB_UNROLL for (int r = 0; r < kTileRows; r++) TB_UNROLL for (int j = 0; j < kVectors; j++) total =
      total + widen(acc[r][j]);
  return reduce_add(total);
}

} // namespace
