// Plain C++ for every CPU. Slow and obvious; the other kernels are tested against it.
#include "simd_portable.h"

namespace {

constexpr int kTileRows = 2, kVectors = 2, kNested = 1;
constexpr int kAccumulatedGroups = 0; // 32-bit accumulators are never full

using Accumulator = I;

TB_INLINE Accumulator zero_accumulator() { return set(0); }
TB_INLINE I widen(const Accumulator &a) { return a; }
TB_INLINE void dot(Accumulator &acc, const Bytes &codes, const Bytes &x) {
  for (int i = 0; i < kLanes; i++)
    for (int b = 0; b < 4; b++)
      acc.v[i] += codes.v[4 * i + b] * static_cast<int8_t>(x.v[4 * i + b]);
}

struct Wide {
  int16_t v[2 * kLanes];
};
using WideRow = int16_t;
constexpr int kWideGroup = 2, kWideZero = 0;

TB_INLINE Wide load_wide(const int8_t *p) {
  Wide a;
  for (int i = 0; i < 2 * kLanes; i++)
    a.v[i] = p[i];
  return a;
}
TB_INLINE Wide broadcast_wide(const WideRow *p) {
  Wide a;
  for (int i = 0; i < 2 * kLanes; i += 2)
    std::memcpy(a.v + i, p, 2 * sizeof(WideRow));
  return a;
}
TB_INLINE void wide_dot(I &acc, const Wide &w, const Wide &x) {
  for (int i = 0; i < kLanes; i++)
    acc.v[i] += w.v[2 * i] * x.v[2 * i] + w.v[2 * i + 1] * x.v[2 * i + 1];
}
TB_INLINE void store_joined(int8_t *p, const I &a) {
  for (int i = 0; i < kLanes; i++) {
    p[2 * i] = static_cast<int8_t>(a.v[i]);
    p[2 * i + 1] = static_cast<int8_t>(a.v[i] >> 8);
  }
}
TB_INLINE void store_wide4(WideRow *p, const I &a, const I &b, const I &c, const I &d) {
  const I four[4] = {a, b, c, d};
  for (int q = 0; q < 4; q++)
    for (int i = 0; i < kLanes; i++)
      p[q * kLanes + i] = static_cast<int16_t>(four[q].v[i]);
}

} // namespace

#include "body.h"

const tb::Kernel tb::portable_kernel = make_kernel("portable", 0);
