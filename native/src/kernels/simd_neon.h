// Vectors of eight 32-bit lanes on 64-bit ARM, in two registers each: sums keep the eight float64 lanes of numerics.py.
#pragma once

#include <arm_neon.h>
#include <cstdint>
#include <cstring>

#include "inline.h"

namespace { // internal linkage: see body.h

constexpr int kLanes = 8;

struct F {
  float32x4_t a, b;
};
struct I {
  int32x4_t a, b;
};
struct Bytes {
  uint8x16_t a, b;
};

TB_INLINE F load(const float *p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
TB_INLINE void store(float *p, F x) {
  vst1q_f32(p, x.a);
  vst1q_f32(p + 4, x.b);
}
TB_INLINE F in_register(F x) {
#if defined(__GNUC__)
  __asm__("" : "+w"(x.a), "+w"(x.b));
#endif
  return x;
}
TB_INLINE F set(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x)}; }
TB_INLINE F operator+(F x, F y) { return {vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b)}; }
TB_INLINE F operator-(F x, F y) { return {vsubq_f32(x.a, y.a), vsubq_f32(x.b, y.b)}; }
TB_INLINE F operator*(F x, F y) { return {vmulq_f32(x.a, y.a), vmulq_f32(x.b, y.b)}; }
TB_INLINE F operator/(F x, F y) { return {vdivq_f32(x.a, y.a), vdivq_f32(x.b, y.b)}; }
// As x86 has it: the second argument if one is NaN.
TB_INLINE F min(F x, F y) {
  return {vbslq_f32(vcltq_f32(x.a, y.a), x.a, y.a), vbslq_f32(vcltq_f32(x.b, y.b), x.b, y.b)};
}
TB_INLINE F max(F x, F y) {
  return {vbslq_f32(vcgtq_f32(x.a, y.a), x.a, y.a), vbslq_f32(vcgtq_f32(x.b, y.b), x.b, y.b)};
}
TB_INLINE F abs(F x) { return {vabsq_f32(x.a), vabsq_f32(x.b)}; }
TB_INLINE F round(F x) { return {vrndnq_f32(x.a), vrndnq_f32(x.b)}; }
TB_INLINE float32x4_t where_at_least4(float32x4_t x, float32x4_t bound, float32x4_t value) {
  return vreinterpretq_f32_u32(vandq_u32(vcgeq_f32(x, bound), vreinterpretq_u32_f32(value)));
}
TB_INLINE F where_at_least(F x, F bound, F value) {
  return {where_at_least4(x.a, bound.a, value.a), where_at_least4(x.b, bound.b, value.b)};
}
TB_INLINE bool any_nan(F x) {
  return vminvq_u32(vandq_u32(vceqq_f32(x.a, x.a), vceqq_f32(x.b, x.b))) == 0; // NaN is not equal to itself
}

TB_INLINE I load(const int32_t *p) { return {vld1q_s32(p), vld1q_s32(p + 4)}; }
TB_INLINE void store(int32_t *p, I x) {
  vst1q_s32(p, x.a);
  vst1q_s32(p + 4, x.b);
}
TB_INLINE I set(int32_t x) { return {vdupq_n_s32(x), vdupq_n_s32(x)}; }
TB_INLINE I operator+(I x, I y) { return {vaddq_s32(x.a, y.a), vaddq_s32(x.b, y.b)}; }
TB_INLINE I operator-(I x, I y) { return {vsubq_s32(x.a, y.a), vsubq_s32(x.b, y.b)}; }
TB_INLINE I operator^(I x, I y) { return {veorq_s32(x.a, y.a), veorq_s32(x.b, y.b)}; }
TB_INLINE I shift_right(I x, int n) { return {vshlq_s32(x.a, vdupq_n_s32(-n)), vshlq_s32(x.b, vdupq_n_s32(-n))}; }
template <int n> TB_INLINE I shift_left(I x) { return {vshlq_n_s32(x.a, n), vshlq_n_s32(x.b, n)}; }
TB_INLINE I truncate(F x) { return {vcvtq_s32_f32(x.a), vcvtq_s32_f32(x.b)}; }
TB_INLINE I to_int(F x) { return {vcvtnq_s32_f32(x.a), vcvtnq_s32_f32(x.b)}; }
TB_INLINE F to_float(I x) { return {vcvtq_f32_s32(x.a), vcvtq_f32_s32(x.b)}; }
TB_INLINE F as_float(I x) { return {vreinterpretq_f32_s32(x.a), vreinterpretq_f32_s32(x.b)}; }
TB_INLINE I as_int(F x) { return {vreinterpretq_s32_f32(x.a), vreinterpretq_s32_f32(x.b)}; }

// Eight floats are 32 bytes, just what a table look-up takes: byte j of entry i is at 4 i + j.
TB_INLINE float32x4_t look_up4(uint8x16x2_t table, int32x4_t index) {
  const uint32x4_t first = vmulq_n_u32(vandq_u32(vreinterpretq_u32_s32(index), vdupq_n_u32(7)), 0x04040404u);
  const uint8x16_t bytes = vaddq_u8(vreinterpretq_u8_u32(first), vreinterpretq_u8_u32(vdupq_n_u32(0x03020100u)));
  return vreinterpretq_f32_u8(vqtbl2q_u8(table, bytes));
}
TB_INLINE F look_up(const float *entries, I index) {
  const uint8x16x2_t table = {{vreinterpretq_u8_f32(vld1q_f32(entries)), vreinterpretq_u8_f32(vld1q_f32(entries + 4))}};
  return {look_up4(table, index.a), look_up4(table, index.b)};
}

struct Lanes {
  uint32x4_t a, b;
};
TB_INLINE Lanes first_lanes(int n) {
  const int32_t numbers[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  const int32x4_t count = vdupq_n_s32(n);
  return {vcltq_s32(vld1q_s32(numbers), count), vcltq_s32(vld1q_s32(numbers + 4), count)};
}
TB_INLINE F keep(F x, int n, F fill) {
  const Lanes lanes = first_lanes(n);
  return {vbslq_f32(lanes.a, x.a, fill.a), vbslq_f32(lanes.b, x.b, fill.b)};
}
TB_INLINE I keep(I x, int n) {
  const Lanes lanes = first_lanes(n);
  return {vandq_s32(vreinterpretq_s32_u32(lanes.a), x.a), vandq_s32(vreinterpretq_s32_u32(lanes.b), x.b)};
}

TB_INLINE float reduce_min(F x) { return vminvq_f32(vminq_f32(x.a, x.b)); }
TB_INLINE float reduce_max(F x) { return vmaxvq_f32(vmaxq_f32(x.a, x.b)); }
TB_INLINE int32_t reduce_add(I x) { return vaddvq_s32(vaddq_s32(x.a, x.b)); }

// Eight float64 lanes.
struct Sum {
  float64x2_t v[4];
};
TB_INLINE Sum zero_sum() { return {{vdupq_n_f64(0), vdupq_n_f64(0), vdupq_n_f64(0), vdupq_n_f64(0)}}; }
TB_INLINE Sum widen(F x) {
  return {{vcvt_f64_f32(vget_low_f32(x.a)), vcvt_high_f64_f32(x.a), vcvt_f64_f32(vget_low_f32(x.b)),
           vcvt_high_f64_f32(x.b)}};
}
TB_INLINE void add(Sum &s, F x) {
  const Sum wide = widen(x);
  TB_UNROLL for (int i = 0; i < 4; i++) s.v[i] = vaddq_f64(s.v[i], wide.v[i]);
}
TB_INLINE void add_product(Sum &s, F x, F y) {
  const Sum p = widen(x), q = widen(y);
  TB_UNROLL for (int i = 0; i < 4; i++) s.v[i] = vaddq_f64(s.v[i], vmulq_f64(p.v[i], q.v[i]));
}
TB_INLINE double total(Sum s) {
  const float64x2_t two = vaddq_f64(vaddq_f64(s.v[0], s.v[2]), vaddq_f64(s.v[1], s.v[3])); // 04+26, 15+37
  return vgetq_lane_f64(two, 0) + vgetq_lane_f64(two, 1);
}

using Doubles = Sum; // one for each lane
TB_INLINE Doubles zero_doubles() { return zero_sum(); }
TB_INLINE Doubles operator+(Doubles x, Doubles y) {
  TB_UNROLL for (int i = 0; i < 4; i++) x.v[i] = vaddq_f64(x.v[i], y.v[i]);
  return x;
}
TB_INLINE Doubles doubles(F x) { return widen(x); }
TB_INLINE F one_over(Doubles x) {
  const float64x2_t one = vdupq_n_f64(1.0);
  TB_UNROLL for (int i = 0; i < 4; i++) x.v[i] = vdivq_f64(one, x.v[i]);
  return {vcvt_high_f32_f64(vcvt_f32_f64(x.v[0]), x.v[1]), vcvt_high_f32_f64(vcvt_f32_f64(x.v[2]), x.v[3])};
}

TB_INLINE void zip(F x, F y, F &low, F &high) {
  low = {vzip1q_f32(x.a, y.a), vzip2q_f32(x.a, y.a)};
  high = {vzip1q_f32(x.b, y.b), vzip2q_f32(x.b, y.b)};
}

TB_INLINE int8x8_t bytes_of(I x) { return vmovn_s16(vcombine_s16(vmovn_s32(x.a), vmovn_s32(x.b))); }
TB_INLINE void store_bytes4(int8_t *p, I a, I b, I c, I d) {
  vst1q_s8(p, vcombine_s8(bytes_of(a), bytes_of(b)));
  vst1q_s8(p + 16, vcombine_s8(bytes_of(c), bytes_of(d)));
}

TB_INLINE Bytes load_bytes(const uint8_t *p) { return {vld1q_u8(p), vld1q_u8(p + 16)}; }
TB_INLINE Bytes low_bits(Bytes x, int n) {
  const uint8x16_t mask = vdupq_n_u8(static_cast<uint8_t>((1 << n) - 1));
  return {vandq_u8(x.a, mask), vandq_u8(x.b, mask)};
}
template <int n> TB_INLINE Bytes without_low_bits(Bytes x) { return {vshrq_n_u8(x.a, n), vshrq_n_u8(x.b, n)}; }
TB_INLINE Bytes broadcast4(const int8_t *p) {
  uint32_t word;
  std::memcpy(&word, p, sizeof word);
  const uint8x16_t x = vreinterpretq_u8_u32(vdupq_n_u32(word));
  return {x, x};
}

} // namespace
