// Vectors of eight 32-bit lanes on AVX2. See body.h for what each of these functions has to do.
#pragma once

#include "intrinsics.h"

#include <cstdint>
#include <cstring>

#include "inline.h"

namespace { // internal linkage: see body.h

constexpr int kLanes = 8;

struct F {
  __m256 v;
};
struct I {
  __m256i v;
};
struct Bytes {
  __m256i v;
};

TB_INLINE F load(const float *p) { return {_mm256_loadu_ps(p)}; }
TB_INLINE void store(float *p, F a) { _mm256_storeu_ps(p, a.v); }
TB_INLINE F in_register(F a) {
#if defined(__GNUC__)
  __asm__("" : "+x"(a.v));
#endif
  return a;
}
TB_INLINE F set(float x) { return {_mm256_set1_ps(x)}; }
TB_INLINE F operator+(F a, F b) { return {_mm256_add_ps(a.v, b.v)}; }
TB_INLINE F operator-(F a, F b) { return {_mm256_sub_ps(a.v, b.v)}; }
TB_INLINE F operator*(F a, F b) { return {_mm256_mul_ps(a.v, b.v)}; }
TB_INLINE F operator/(F a, F b) { return {_mm256_div_ps(a.v, b.v)}; }
TB_INLINE F min(F a, F b) { return {_mm256_min_ps(a.v, b.v)}; }
TB_INLINE F max(F a, F b) { return {_mm256_max_ps(a.v, b.v)}; }
TB_INLINE F abs(F a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)}; }
TB_INLINE F round(F a) { return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
TB_INLINE F look_up(const float *table, I index) {
  __m256 t = _mm256_loadu_ps(table);
#if defined(__GNUC__)
  __asm__("" : "+x"(t)); // into a register first: as an operand in memory it takes Zen 3 half as long again
#endif
  return {_mm256_permutevar8x32_ps(t, index.v)};
}
TB_INLINE F where_at_least(F a, F bound, F value) {
  return {_mm256_and_ps(_mm256_cmp_ps(a.v, bound.v, _CMP_GE_OQ), value.v)};
}
TB_INLINE bool any_nan(F a) { return _mm256_movemask_ps(_mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q)) != 0; }

TB_INLINE I load(const int32_t *p) { return {_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p))}; }
TB_INLINE void store(int32_t *p, I a) { _mm256_storeu_si256(reinterpret_cast<__m256i *>(p), a.v); }
TB_INLINE I set(int32_t x) { return {_mm256_set1_epi32(x)}; }
TB_INLINE I operator+(I a, I b) { return {_mm256_add_epi32(a.v, b.v)}; }
TB_INLINE I operator-(I a, I b) { return {_mm256_sub_epi32(a.v, b.v)}; }
TB_INLINE I operator^(I a, I b) { return {_mm256_xor_si256(a.v, b.v)}; }
TB_INLINE I shift_right(I a, int n) { return {_mm256_sra_epi32(a.v, _mm_cvtsi32_si128(n))}; }
template <int n> TB_INLINE I shift_left(I a) { return {_mm256_slli_epi32(a.v, n)}; }
TB_INLINE I truncate(F a) { return {_mm256_cvttps_epi32(a.v)}; }
TB_INLINE I to_int(F a) { return {_mm256_cvtps_epi32(a.v)}; }
TB_INLINE F to_float(I a) { return {_mm256_cvtepi32_ps(a.v)}; }
TB_INLINE F as_float(I a) { return {_mm256_castsi256_ps(a.v)}; }
TB_INLINE I as_int(F a) { return {_mm256_castps_si256(a.v)}; }

TB_INLINE __m256i first_lanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
TB_INLINE F keep(F a, int n, F fill) { return {_mm256_blendv_ps(fill.v, a.v, _mm256_castsi256_ps(first_lanes(n)))}; }
TB_INLINE I keep(I a, int n) { return {_mm256_and_si256(a.v, first_lanes(n))}; }

TB_INLINE float reduce_min(F a) {
  __m128 x = _mm_min_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  x = _mm_min_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_min_ss(x, _mm_movehdup_ps(x)));
}
TB_INLINE float reduce_max(F a) {
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}
TB_INLINE int32_t reduce_add(I a) {
  __m128i x = _mm_add_epi32(_mm256_castsi256_si128(a.v), _mm256_extracti128_si256(a.v, 1));
  x = _mm_add_epi32(x, _mm_shuffle_epi32(x, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(x, _mm_shuffle_epi32(x, 0xb1)));
}

// Eight float64 lanes.
struct Sum {
  __m256d low, high;
};
TB_INLINE Sum zero_sum() { return {_mm256_setzero_pd(), _mm256_setzero_pd()}; }
TB_INLINE Sum widen(F a) {
  return {_mm256_cvtps_pd(_mm256_castps256_ps128(a.v)), _mm256_cvtps_pd(_mm256_extractf128_ps(a.v, 1))};
}
TB_INLINE void add(Sum &s, F a) {
  const Sum x = widen(a);
  s = {_mm256_add_pd(s.low, x.low), _mm256_add_pd(s.high, x.high)};
}
TB_INLINE void add_product(Sum &s, F a, F b) {
  const Sum x = widen(a), y = widen(b);
  s = {_mm256_add_pd(s.low, _mm256_mul_pd(x.low, y.low)), _mm256_add_pd(s.high, _mm256_mul_pd(x.high, y.high))};
}
TB_INLINE double total(Sum s) {
  const __m256d four = _mm256_add_pd(s.low, s.high);
  const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
  return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

using Doubles = Sum; // one for each lane
TB_INLINE Doubles zero_doubles() { return zero_sum(); }
TB_INLINE Doubles operator+(Doubles a, Doubles b) {
  return {_mm256_add_pd(a.low, b.low), _mm256_add_pd(a.high, b.high)};
}
TB_INLINE Doubles doubles(F a) { return widen(a); }
TB_INLINE F one_over(Doubles a) {
  const __m256d one = _mm256_set1_pd(1.0);
  return {_mm256_set_m128(_mm256_cvtpd_ps(_mm256_div_pd(one, a.high)), _mm256_cvtpd_ps(_mm256_div_pd(one, a.low)))};
}

TB_INLINE void zip(F a, F b, F &low, F &high) {
  const __m256 even = _mm256_unpacklo_ps(a.v, b.v), odd = _mm256_unpackhi_ps(a.v, b.v); // within halves
  low = {_mm256_permute2f128_ps(even, odd, 0x20)};
  high = {_mm256_permute2f128_ps(even, odd, 0x31)};
}

// 4 x 8 numbers of -128 .. 255 to 32 bytes. The packs work within halves of a register; the permutation mends that.
TB_INLINE void store_bytes4(int8_t *p, I a, I b, I c, I d) {
  const __m256i words = _mm256_packs_epi32(a.v, b.v), more = _mm256_packs_epi32(c.v, d.v);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(words, more), order);
  _mm256_storeu_si256(reinterpret_cast<__m256i *>(p), bytes);
}

TB_INLINE Bytes load_bytes(const uint8_t *p) { return {_mm256_load_si256(reinterpret_cast<const __m256i *>(p))}; }
TB_INLINE Bytes low_bits(Bytes a, int n) {
  return {_mm256_and_si256(a.v, _mm256_set1_epi8(static_cast<char>((1 << n) - 1)))};
}
template <int n> TB_INLINE Bytes without_low_bits(Bytes a) { return {_mm256_srli_epi16(a.v, n)}; }
TB_INLINE Bytes broadcast4(const int8_t *p) {
  int32_t word;
  std::memcpy(&word, p, sizeof word);
  return {_mm256_set1_epi32(word)};
}

} // namespace
