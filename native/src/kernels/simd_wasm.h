// Vectors of eight 32-bit lanes on WebAssembly, in two registers each: sums keep the eight float64 lanes of
// numerics.py.
//
// Engines turn each of these instructions into one of the CPU's, with exceptions that are avoided here: saturating
// conversions to integers take seven on x86.
#pragma once

#include <cstdint>
#include <cstring>
#include <wasm_simd128.h>

#include "inline.h"

namespace { // internal linkage: see body.h

constexpr int kLanes = 8;

struct F {
  v128_t a, b;
};
struct I {
  v128_t a, b;
};
struct Bytes {
  v128_t a, b;
};

TB_INLINE F load(const float *p) { return {wasm_v128_load(p), wasm_v128_load(p + 4)}; }
TB_INLINE void store(float *p, F x) {
  wasm_v128_store(p, x.a);
  wasm_v128_store(p + 4, x.b);
}
TB_INLINE F in_register(F x) { return x; }
TB_INLINE F set(float x) { return {wasm_f32x4_splat(x), wasm_f32x4_splat(x)}; }
TB_INLINE F operator+(F x, F y) { return {wasm_f32x4_add(x.a, y.a), wasm_f32x4_add(x.b, y.b)}; }
TB_INLINE F operator-(F x, F y) { return {wasm_f32x4_sub(x.a, y.a), wasm_f32x4_sub(x.b, y.b)}; }
TB_INLINE F operator*(F x, F y) { return {wasm_f32x4_mul(x.a, y.a), wasm_f32x4_mul(x.b, y.b)}; }
TB_INLINE F operator/(F x, F y) { return {wasm_f32x4_div(x.a, y.a), wasm_f32x4_div(x.b, y.b)}; }
// pmin and pmax give the first argument if one is NaN, and the others of x86 the second.
TB_INLINE F min(F x, F y) { return {wasm_f32x4_pmin(y.a, x.a), wasm_f32x4_pmin(y.b, x.b)}; }
TB_INLINE F max(F x, F y) { return {wasm_f32x4_pmax(y.a, x.a), wasm_f32x4_pmax(y.b, x.b)}; }
TB_INLINE F abs(F x) { return {wasm_f32x4_abs(x.a), wasm_f32x4_abs(x.b)}; }
TB_INLINE F round(F x) { return {wasm_f32x4_nearest(x.a), wasm_f32x4_nearest(x.b)}; }
TB_INLINE F where_at_least(F x, F bound, F value) {
  return {wasm_v128_and(wasm_f32x4_ge(x.a, bound.a), value.a), wasm_v128_and(wasm_f32x4_ge(x.b, bound.b), value.b)};
}
TB_INLINE bool any_nan(F x) {
  return wasm_v128_any_true(wasm_v128_or(wasm_f32x4_ne(x.a, x.a), wasm_f32x4_ne(x.b, x.b)));
}

TB_INLINE I load(const int32_t *p) { return {wasm_v128_load(p), wasm_v128_load(p + 4)}; }
TB_INLINE void store(int32_t *p, I x) {
  wasm_v128_store(p, x.a);
  wasm_v128_store(p + 4, x.b);
}
TB_INLINE I set(int32_t x) { return {wasm_i32x4_splat(x), wasm_i32x4_splat(x)}; }
TB_INLINE I operator+(I x, I y) { return {wasm_i32x4_add(x.a, y.a), wasm_i32x4_add(x.b, y.b)}; }
TB_INLINE I operator-(I x, I y) { return {wasm_i32x4_sub(x.a, y.a), wasm_i32x4_sub(x.b, y.b)}; }
TB_INLINE I operator^(I x, I y) { return {wasm_v128_xor(x.a, y.a), wasm_v128_xor(x.b, y.b)}; }
TB_INLINE I shift_right(I x, int n) {
  const uint32_t by = static_cast<uint32_t>(n);
  return {wasm_i32x4_shr(x.a, by), wasm_i32x4_shr(x.b, by)};
}
template <int n> TB_INLINE I shift_left(I x) { return {wasm_i32x4_shl(x.a, n), wasm_i32x4_shl(x.b, n)}; }
TB_INLINE F to_float(I x) { return {wasm_f32x4_convert_i32x4(x.a), wasm_f32x4_convert_i32x4(x.b)}; }
TB_INLINE F as_float(I x) { return {x.a, x.b}; }
TB_INLINE I as_int(F x) { return {x.a, x.b}; }
// To the nearest, ties to even, for |x| < 2^22, which is all that the kernels convert: 1.5 * 2^23 + x has the rounded x
// in its lowest bits. NaN gives a number whose nine lowest bits are zeros, as everywhere.
TB_INLINE I to_int(F x) { return as_int(x + set(12582912.0f)) - set(0x4b400000); }
TB_INLINE I truncate(F x) { return to_int({wasm_f32x4_trunc(x.a), wasm_f32x4_trunc(x.b)}); }

// Eight floats are two tables of 16 bytes; byte j of entry i is at 4 i + j. Places that a table lacks give 0.
TB_INLINE v128_t look_up4(v128_t low, v128_t high, v128_t index) {
  const v128_t first = wasm_i32x4_mul(index, wasm_i32x4_const_splat(0x04040404));
  const v128_t bytes = wasm_i8x16_add(first, wasm_i32x4_const_splat(0x03020100));
  const v128_t beyond = wasm_i8x16_sub(bytes, wasm_i8x16_const_splat(16));
  return wasm_v128_or(wasm_i8x16_swizzle(low, bytes), wasm_i8x16_swizzle(high, beyond));
}
TB_INLINE F look_up(const float *entries, I index) {
  const v128_t low = wasm_v128_load(entries), high = wasm_v128_load(entries + 4);
  return {look_up4(low, high, index.a), look_up4(low, high, index.b)};
}

struct Lanes {
  v128_t a, b;
};
TB_INLINE Lanes first_lanes(int n) {
  const v128_t count = wasm_i32x4_splat(n);
  return {wasm_i32x4_lt(wasm_i32x4_const(0, 1, 2, 3), count), wasm_i32x4_lt(wasm_i32x4_const(4, 5, 6, 7), count)};
}
TB_INLINE F keep(F x, int n, F fill) {
  const Lanes lanes = first_lanes(n);
  return {wasm_v128_bitselect(x.a, fill.a, lanes.a), wasm_v128_bitselect(x.b, fill.b, lanes.b)};
}
TB_INLINE I keep(I x, int n) {
  const Lanes lanes = first_lanes(n);
  return {wasm_v128_and(x.a, lanes.a), wasm_v128_and(x.b, lanes.b)};
}

TB_INLINE float reduce_min(F x) {
  v128_t m = wasm_f32x4_pmin(x.b, x.a);
  m = wasm_f32x4_pmin(wasm_i32x4_shuffle(m, m, 2, 3, 2, 3), m);
  return wasm_f32x4_extract_lane(wasm_f32x4_pmin(wasm_i32x4_shuffle(m, m, 1, 1, 1, 1), m), 0);
}
TB_INLINE float reduce_max(F x) {
  v128_t m = wasm_f32x4_pmax(x.b, x.a);
  m = wasm_f32x4_pmax(wasm_i32x4_shuffle(m, m, 2, 3, 2, 3), m);
  return wasm_f32x4_extract_lane(wasm_f32x4_pmax(wasm_i32x4_shuffle(m, m, 1, 1, 1, 1), m), 0);
}
TB_INLINE int32_t reduce_add(I x) {
  v128_t s = wasm_i32x4_add(x.a, x.b);
  s = wasm_i32x4_add(s, wasm_i32x4_shuffle(s, s, 2, 3, 2, 3));
  return wasm_i32x4_extract_lane(wasm_i32x4_add(s, wasm_i32x4_shuffle(s, s, 1, 1, 1, 1)), 0);
}

// Eight float64 lanes.
struct Sum {
  v128_t v[4];
};
TB_INLINE v128_t upper(v128_t x) { return wasm_i32x4_shuffle(x, x, 2, 3, 2, 3); }
TB_INLINE Sum zero_sum() {
  const v128_t zero = wasm_f64x2_const_splat(0.0);
  return {{zero, zero, zero, zero}};
}
TB_INLINE Sum widen(F x) {
  return {{wasm_f64x2_promote_low_f32x4(x.a), wasm_f64x2_promote_low_f32x4(upper(x.a)),
           wasm_f64x2_promote_low_f32x4(x.b), wasm_f64x2_promote_low_f32x4(upper(x.b))}};
}
TB_INLINE void add(Sum &s, F x) {
  const Sum wide = widen(x);
  TB_UNROLL for (int i = 0; i < 4; i++) s.v[i] = wasm_f64x2_add(s.v[i], wide.v[i]);
}
TB_INLINE void add_product(Sum &s, F x, F y) {
  const Sum p = widen(x), q = widen(y);
  TB_UNROLL for (int i = 0; i < 4; i++) s.v[i] = wasm_f64x2_add(s.v[i], wasm_f64x2_mul(p.v[i], q.v[i]));
}
TB_INLINE double total(Sum s) {
  const v128_t two = wasm_f64x2_add(wasm_f64x2_add(s.v[0], s.v[2]), wasm_f64x2_add(s.v[1], s.v[3])); // 04+26, 15+37
  return wasm_f64x2_extract_lane(two, 0) + wasm_f64x2_extract_lane(two, 1);
}

using Doubles = Sum; // one for each lane
TB_INLINE Doubles zero_doubles() { return zero_sum(); }
TB_INLINE Doubles operator+(Doubles x, Doubles y) {
  TB_UNROLL for (int i = 0; i < 4; i++) x.v[i] = wasm_f64x2_add(x.v[i], y.v[i]);
  return x;
}
TB_INLINE Doubles doubles(F x) { return widen(x); }
TB_INLINE v128_t one_over4(v128_t x, v128_t y) {
  const v128_t one = wasm_f64x2_const_splat(1.0);
  const v128_t low = wasm_f32x4_demote_f64x2_zero(wasm_f64x2_div(one, x));
  return wasm_i32x4_shuffle(low, wasm_f32x4_demote_f64x2_zero(wasm_f64x2_div(one, y)), 0, 1, 4, 5);
}
TB_INLINE F one_over(Doubles x) { return {one_over4(x.v[0], x.v[1]), one_over4(x.v[2], x.v[3])}; }

TB_INLINE v128_t zip_low(v128_t x, v128_t y) { return wasm_i32x4_shuffle(x, y, 0, 4, 1, 5); }
TB_INLINE v128_t zip_high(v128_t x, v128_t y) { return wasm_i32x4_shuffle(x, y, 2, 6, 3, 7); }
TB_INLINE void zip(F x, F y, F &low, F &high) {
  low = {zip_low(x.a, y.a), zip_high(x.a, y.a)};
  high = {zip_low(x.b, y.b), zip_high(x.b, y.b)};
}

TB_INLINE v128_t words_of(I x) { return wasm_i16x8_narrow_i32x4(x.a, x.b); }
TB_INLINE void store_bytes4(int8_t *p, I a, I b, I c, I d) {
  wasm_v128_store(p, wasm_i8x16_narrow_i16x8(words_of(a), words_of(b)));
  wasm_v128_store(p + 16, wasm_i8x16_narrow_i16x8(words_of(c), words_of(d)));
}

TB_INLINE Bytes load_bytes(const uint8_t *p) { return {wasm_v128_load(p), wasm_v128_load(p + 16)}; }
TB_INLINE Bytes low_bits(Bytes x, int n) {
  const v128_t mask = wasm_i8x16_splat(static_cast<int8_t>((1 << n) - 1));
  return {wasm_v128_and(x.a, mask), wasm_v128_and(x.b, mask)};
}
// Shifts of 16-bit lanes, as single bytes have none: bits of the upper byte get into the lower one, where low_bits()
// removes them.
template <int n> TB_INLINE Bytes without_low_bits(Bytes x) { return {wasm_u16x8_shr(x.a, n), wasm_u16x8_shr(x.b, n)}; }
TB_INLINE Bytes broadcast4(const int8_t *p) {
  const v128_t x = wasm_v128_load32_splat(p);
  return {x, x};
}

// Products of 8-bit codes: neither factor fits seven bits, so they are of 16 bits.
using Wide = Bytes;
using WideRow = int16_t;
constexpr int kWideGroup = 2, kWideZero = 0;

TB_INLINE Wide load_wide(const int8_t *p) { return {wasm_i16x8_load8x8(p), wasm_i16x8_load8x8(p + 8)}; }
TB_INLINE Wide broadcast_wide(const WideRow *p) { return broadcast4(reinterpret_cast<const int8_t *>(p)); }
TB_INLINE void wide_dot(I &acc, Wide w, Wide x) {
  acc.a = wasm_i32x4_add(acc.a, wasm_i32x4_dot_i16x8(w.a, x.a));
  acc.b = wasm_i32x4_add(acc.b, wasm_i32x4_dot_i16x8(w.b, x.b));
}
TB_INLINE void store_wide4(WideRow *p, I a, I b, I c, I d) {
  wasm_v128_store(p, words_of(a));
  wasm_v128_store(p + kLanes, words_of(b));
  wasm_v128_store(p + 2 * kLanes, words_of(c));
  wasm_v128_store(p + 3 * kLanes, words_of(d));
}
TB_INLINE void store_joined(int8_t *p, I a) { wasm_v128_store(p, wasm_u16x8_narrow_i32x4(a.a, a.b)); }

} // namespace
