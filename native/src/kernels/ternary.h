// The product with ternary weights, from 2-bit codes.
//
// A panel holds kColumns = kVectors * kLanes outputs. Its unit is a vector of bytes: lane l is an output, the four
// bytes of a lane are a step of four successive inputs, and a byte has four codes.
//
// kNested = 1: the codes in a byte are those of four steps, of one output. Each is taken out with a shift and an AND.
//
// kNested = 2 or 4: a byte has codes c0, c1, .. of as many outputs, one in each vector of a tile, and they are not
// taken apart at all. Its lowest 2, 4, 6, 8 bits are c0, c0 + 4 c1, c0 + 4 c1 + 16 c2, ..: one AND each, and the sums
// of these times the activations, T0, T1, .., give the sums of the products one by one as (Tj - Tj-1) / 4^j. They need
// 32 bits: 170 * 128 * 65536 < 2^31.
//
// Codes are the unsigned 0, 1, 2 (w + 1); activations are a - 128, signed. With all sums exact,
//   sum a w = sum (a-128)(w+1) - sum (a-128) + 128 sum w.
// Padding: inputs beyond the weight's have code 0, so that whatever the activations hold there counts nothing.
#pragma once

#include "kernel.h"

#include <atomic>
#include <cstring>

namespace {

constexpr int kColumns = kVectors * kLanes;
constexpr int kVectorBytes = 4 * kLanes;
constexpr int kNests = kVectors / kNested; // vectors of bytes in a group
constexpr int kSteps = 4 / kNested;        // of a group
constexpr int kGroup = 4 * kSteps;         // inputs of a group
constexpr int kGroupBytes = kNests * kVectorBytes;
constexpr int kLine = 64; // bytes that a cache fetches at once
static_assert(kNests * kNested == kVectors && kSteps * kNested == 4, "whole vectors, whole bytes");

constexpr size_t padded(int n) { return (static_cast<size_t>(n) + tb::kPad - 1) / tb::kPad * tb::kPad; }

// The codes w + 1 of a group's weights, `place` in their nest.
TB_INLINE uint32_t group_codes(const int8_t *weights, int place) {
  uint32_t lane = 0;
  TB_UNROLL for (int step = 0; step < kSteps; step++) {
    uint32_t four;
    std::memcpy(&four, weights + 4 * step, 4);
    lane |= (((four & 0x03030303) + 0x01010101) & 0x03030303) << 2 * (step * kNested + place);
  }
  return lane;
}

// `codes` has rows of `stride` bytes; the panel is all zeros.
void pack_ternary(const int8_t *codes, size_t stride, int rows, int inputs, uint8_t *panel) {
  for (int n = 0; n < rows; n++) {
    const int8_t *const weights = codes + n * stride;
    const int nest = n / kLanes / kNested, place = n / kLanes % kNested;
    uint8_t *to = panel + nest * kVectorBytes + n % kLanes * 4;
    for (int k = 0; k < inputs; k += kGroup, to += kGroupBytes) {
      const int8_t *group = weights + k;
      int8_t last[kGroup];
      if (k + kGroup > inputs) { // -1, whose code is 0, beyond the end
        std::memset(last, -1, sizeof last);
        std::memcpy(last, group, static_cast<size_t>(inputs - k));
        group = last;
      }
      uint32_t lane;
      std::memcpy(&lane, to, 4); // the nest's other outputs
      lane |= group_codes(group, place);
      std::memcpy(to, &lane, 4);
    }
  }
}

// acc[r][j] = products of row r with the outputs of vector j, nested; a and b move on. What lies `ahead` bytes beyond
// b, in the panel that comes next, is fetched meanwhile: a weight is too large for the nearer caches.
template <int rows>
TB_INLINE void accumulate(const int8_t *&a, size_t stride, const uint8_t *&b, size_t ahead, int groups,
                          Accumulator (&acc)[rows][kVectors]) {
  TB_UNROLL for (int r = 0; r < rows; r++) TB_UNROLL for (int j = 0; j < kVectors; j++) acc[r][j] = zero_accumulator();
  for (int g = 0; g < groups; g++) {
    Bytes codes[kNests], w[kVectors];
    TB_UNROLL for (int line = 0; line < kGroupBytes; line += kLine) TB_PREFETCH(b + ahead + line);
    TB_UNROLL for (int step = 0; step < kSteps; step++) {
      TB_UNROLL for (int i = 0; i < kNests; i++) codes[i] =
          step == 0 ? load_bytes(b + i * kVectorBytes) : without_low_bits<2 * kNested>(codes[i]);
      TB_UNROLL for (int j = 0; j < kVectors; j++) w[j] = low_bits(codes[j / kNested], 2 * (j % kNested + 1));
      TB_UNROLL for (int r = 0; r < rows; r++) {
        const Bytes x = broadcast4(a + r * stride + step * 4);
        TB_UNROLL for (int j = 0; j < kVectors; j++) dot(acc[r][j], w[j], x);
      }
    }
    a += kGroup;
    b += kGroupBytes;
  }
}

// total[r][j] = products of row r with the panel's outputs j * kLanes ..
template <int rows>
TB_INLINE void tile(const int8_t *a, size_t stride, const uint8_t *b, int groups, I (&total)[rows][kVectors]) {
  const size_t panel = static_cast<size_t>(groups) * kGroupBytes;
  Accumulator acc[rows][kVectors];
  if constexpr (kAccumulatedGroups == 0) {
    accumulate<rows>(a, stride, b, panel, groups, acc);
    TB_UNROLL for (int r = 0; r < rows; r++) TB_UNROLL for (int j = 0; j < kVectors; j++) total[r][j] =
        widen(acc[r][j]);
  } else {
    TB_UNROLL for (int r = 0; r < rows; r++) TB_UNROLL for (int j = 0; j < kVectors; j++) total[r][j] = set(0);
    for (; groups > 0; groups -= kAccumulatedGroups) {
      accumulate<rows>(a, stride, b, panel, groups < kAccumulatedGroups ? groups : kAccumulatedGroups, acc);
      TB_UNROLL for (int r = 0; r < rows; r++) TB_UNROLL for (int j = 0; j < kVectors; j++) total[r][j] =
          total[r][j] + widen(acc[r][j]);
    }
  }
  TB_UNROLL for (int r = 0; r < rows; r++) TB_UNROLL for (int j = kVectors - 1; j > 0; j--) if (j % kNested != 0)
      total[r][j] = shift_right(total[r][j] - total[r][j - 1], 2 * (j % kNested));
}

// A compiler must neither leave the products out (so their sum is returned) nor see that all rounds are alike.
int32_t only_products(const int8_t *four, int rounds) {
  const Bytes codes = low_bits(broadcast4(four), 2);
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
