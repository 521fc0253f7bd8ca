// Vectors of sixteen 32-bit lanes on AVX-512 (F, BW, VL). See body.h for what each of these functions has to do.
#pragma once

#include "intrinsics.h"

#include <cstdint>
#include <cstring>

#include "inline.h"

namespace { // internal linkage: see body.h

constexpr int kLanes = 16;

struct F {
  __m512 v;
};
struct I {
  __m512i v;
};
struct Bytes {
  __m512i v;
};

TB_INLINE F load(const float *p) { return {_mm512_loadu_ps(p)}; }
TB_INLINE void store(float *p, F a) { _mm512_storeu_ps(p, a.v); }
// The compiler must compute it here, before what follows, instead of moving it.
TB_INLINE F in_register(F a) {
#if defined(__GNUC__) && !defined(TB_EMULATED)
  __asm__("" : "+v"(a.v));
#endif
  return a;
}
TB_INLINE F set(float x) { return {_mm512_set1_ps(x)}; }
TB_INLINE F operator+(F a, F b) { return {_mm512_add_ps(a.v, b.v)}; }
TB_INLINE F operator-(F a, F b) { return {_mm512_sub_ps(a.v, b.v)}; }
TB_INLINE F operator*(F a, F b) { return {_mm512_mul_ps(a.v, b.v)}; }
TB_INLINE F operator/(F a, F b) { return {_mm512_div_ps(a.v, b.v)}; }
TB_INLINE F min(F a, F b) { return {_mm512_min_ps(a.v, b.v)}; }
TB_INLINE F max(F a, F b) { return {_mm512_max_ps(a.v, b.v)}; }
TB_INLINE F abs(F a) { return {_mm512_abs_ps(a.v)}; }
TB_INLINE F round(F a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
// `value` in the lanes where a >= bound, else 0.
TB_INLINE F where_at_least(F a, F bound, F value) {
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a.v, bound.v, _CMP_GE_OQ), value.v)};
}
TB_INLINE bool any_nan(F a) { return _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q) != 0; }

TB_INLINE I load(const int32_t *p) { return {_mm512_loadu_si512(p)}; }
TB_INLINE void store(int32_t *p, I a) { _mm512_storeu_si512(p, a.v); }
TB_INLINE I set(int32_t x) { return {_mm512_set1_epi32(x)}; }
TB_INLINE I operator+(I a, I b) { return {_mm512_add_epi32(a.v, b.v)}; }
TB_INLINE I operator-(I a, I b) { return {_mm512_sub_epi32(a.v, b.v)}; }
TB_INLINE I operator^(I a, I b) { return {_mm512_xor_si512(a.v, b.v)}; }
TB_INLINE I shift_right(I a, int n) { return {_mm512_sra_epi32(a.v, _mm_cvtsi32_si128(n))}; }
template <int n> TB_INLINE I shift_left(I a) { return {_mm512_slli_epi32(a.v, n)}; }
TB_INLINE I truncate(F a) { return {_mm512_cvttps_epi32(a.v)}; }
TB_INLINE I to_int(F a) { return {_mm512_cvtps_epi32(a.v)}; }
TB_INLINE F to_float(I a) { return {_mm512_cvtepi32_ps(a.v)}; }
TB_INLINE F as_float(I a) { return {_mm512_castsi512_ps(a.v)}; }
TB_INLINE I as_int(F a) { return {_mm512_castps_si512(a.v)}; }
// Eight entries, in both halves of the vector.
TB_INLINE F look_up(const float *table, I index) {
  const __m512d both = _mm512_broadcast_f64x4(_mm256_castps_pd(_mm256_loadu_ps(table)));
  return {_mm512_permutexvar_ps(index.v, _mm512_castpd_ps(both))};
}

TB_INLINE __mmask16 first_lanes(int n) {
  return static_cast<__mmask16>(n >= 16 ? 0xffffu : n <= 0 ? 0u : (1u << n) - 1u);
}
TB_INLINE F keep(F a, int n, F fill) { return {_mm512_mask_blend_ps(first_lanes(n), fill.v, a.v)}; }
TB_INLINE I keep(I a, int n) { return {_mm512_maskz_mov_epi32(first_lanes(n), a.v)}; }

TB_INLINE float reduce_min(F a) { return _mm512_reduce_min_ps(a.v); }
TB_INLINE float reduce_max(F a) { return _mm512_reduce_max_ps(a.v); }
TB_INLINE int32_t reduce_add(I a) { return _mm512_reduce_add_epi32(a.v); }

// Eight float64 lanes. Of sixteen numbers, i and i + 8 go to the same lane, one after the other.
struct Sum {
  __m512d v;
};
TB_INLINE __m512d low_half(F a) { return _mm512_cvtps_pd(_mm512_castps512_ps256(a.v)); }
TB_INLINE __m512d high_half(F a) {
  return _mm512_cvtps_pd(_mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a.v), 1)));
}
TB_INLINE Sum zero_sum() { return {_mm512_setzero_pd()}; }
TB_INLINE void add(Sum &s, F a) { s.v = _mm512_add_pd(_mm512_add_pd(s.v, low_half(a)), high_half(a)); }
TB_INLINE void add_product(Sum &s, F a, F b) {
  s.v = _mm512_add_pd(s.v, _mm512_mul_pd(low_half(a), low_half(b)));
  s.v = _mm512_add_pd(s.v, _mm512_mul_pd(high_half(a), high_half(b)));
}
TB_INLINE double total(Sum s) {
  const __m256d four = _mm256_add_pd(_mm512_castpd512_pd256(s.v), _mm512_extractf64x4_pd(s.v, 1));
  const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
  return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

// A float64 number for each lane.
struct Doubles {
  __m512d low, high;
};
TB_INLINE Doubles zero_doubles() { return {_mm512_setzero_pd(), _mm512_setzero_pd()}; }
TB_INLINE Doubles operator+(Doubles a, Doubles b) {
  return {_mm512_add_pd(a.low, b.low), _mm512_add_pd(a.high, b.high)};
}
TB_INLINE Doubles doubles(F a) { return {low_half(a), high_half(a)}; }
TB_INLINE F one_over(Doubles a) {
  const __m512d one = _mm512_set1_pd(1.0);
  const __m256 low = _mm512_cvtpd_ps(_mm512_div_pd(one, a.low)), high = _mm512_cvtpd_ps(_mm512_div_pd(one, a.high));
  return {
      _mm512_castpd_ps(_mm512_insertf64x4(_mm512_castps_pd(_mm512_castps256_ps512(low)), _mm256_castps_pd(high), 1))};
}

// a0, b0, a1, b1, ..: the lower half of these lanes and the upper one.
TB_INLINE void zip(F a, F b, F &low, F &high) {
  const __m512i lower = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i upper = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  low = {_mm512_permutex2var_ps(a.v, lower, b.v)};
  high = {_mm512_permutex2var_ps(a.v, upper, b.v)};
}

TB_INLINE void store_bytes16(void *p, I a) {
  _mm_storeu_si128(static_cast<__m128i *>(p), _mm512_cvtepi32_epi8(a.v)); // the lowest byte of each lane
}
TB_INLINE void store_bytes4(int8_t *p, I a, I b, I c, I d) {
  store_bytes16(p, a);
  store_bytes16(p + 16, b);
  store_bytes16(p + 32, c);
  store_bytes16(p + 48, d);
}

TB_INLINE Bytes load_bytes(const uint8_t *p) { return {_mm512_load_si512(p)}; }
TB_INLINE Bytes low_bits(Bytes a, int n) {
  return {_mm512_and_si512(a.v, _mm512_set1_epi8(static_cast<char>((1 << n) - 1)))};
}
template <int n> TB_INLINE Bytes without_low_bits(Bytes a) { return {_mm512_srli_epi16(a.v, n)}; }
TB_INLINE Bytes broadcast4(const int8_t *p) {
  int32_t word;
  std::memcpy(&word, p, sizeof word);
  return {_mm512_set1_epi32(word)};
}

} // namespace
