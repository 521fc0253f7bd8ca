// AVX-512 on CPUs without it: SIMDe's emulation of the intrinsics, and the few that SIMDe 0.7.4 (Debian 12) lacks.
// Slow; only the tests of the AVX-512 and AVX-VNNI kernels use it.
#pragma once

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx2.h>
#include <simde/x86/avx512.h>

#include <cmath>
#include <cstdint>
#include <cstring>

namespace {
namespace emulated {

// Vectors as arrays, as the instructions' description in Intel's manual does it.
template <class T, int n> struct Array {
  T v[n];
};
template <class T, int n, class Vector> Array<T, n> array(const Vector &from) {
  static_assert(sizeof(Vector) == n * sizeof(T), "same size");
  Array<T, n> to;
  std::memcpy(to.v, &from, sizeof to.v);
  return to;
}
template <class Vector, class T, int n> Vector vector(const Array<T, n> &from) {
  static_assert(sizeof(Vector) == n * sizeof(T), "same size");
  Vector to;
  std::memcpy(&to, from.v, sizeof to);
  return to;
}
template <class To, int n, class From, class Function> Array<To, n> map(const Array<From, n> &from, Function f) {
  Array<To, n> to;
  for (int i = 0; i < n; i++)
    to.v[i] = f(from.v[i]);
  return to;
}

inline int32_t convert(float x) { // numbers that int32 does not have become the smallest
  return std::fabs(x) < 2147483648.0f ? static_cast<int32_t>(x) : INT32_MIN;
}
inline __m512i cvttps_epi32(const __m512 &a) { return vector<__m512i>(map<int32_t>(array<float, 16>(a), convert)); }
inline __m512i cvtps_epi32(const __m512 &a) {
  return vector<__m512i>(map<int32_t>(array<float, 16>(a), [](float x) { return convert(std::nearbyint(x)); }));
}
inline __m512 cvtepi32_ps(const __m512i &a) {
  return vector<__m512>(map<float>(array<int32_t, 16>(a), [](int32_t x) { return static_cast<float>(x); }));
}
inline __m512d cvtps_pd(const __m256 &a) {
  return vector<__m512d>(map<double>(array<float, 8>(a), [](float x) { return static_cast<double>(x); }));
}
inline __m256 cvtpd_ps(const __m512d &a) {
  return vector<__m256>(map<float>(array<double, 8>(a), [](double x) { return static_cast<float>(x); }));
}
inline __m512i sra_epi32(const __m512i &a, const __m128i &count) {
  const int64_t n = array<int64_t, 2>(count).v[0];
  return vector<__m512i>(map<int32_t>(array<int32_t, 16>(a), [n](int32_t x) { return x >> n; }));
}
inline __m128i cvtepi32_epi8(const __m512i &a) {
  return vector<__m128i>(map<int8_t>(array<int32_t, 16>(a), [](int32_t x) { return static_cast<int8_t>(x); }));
}
inline __m256i cvtepi32_epi16(const __m512i &a) {
  return vector<__m256i>(map<int16_t>(array<int32_t, 16>(a), [](int32_t x) { return static_cast<int16_t>(x); }));
}
template <class T, class Vector, class Function> T reduce(const Vector &a, Function f) {
  const auto x = array<T, 16>(a);
  T result = x.v[0];
  for (int i = 1; i < 16; i++)
    result = f(result, x.v[i]);
  return result;
}
inline float reduce_min_ps(const __m512 &a) {
  return reduce<float>(a, [](float x, float y) { return x < y ? x : y; });
}
inline float reduce_max_ps(const __m512 &a) {
  return reduce<float>(a, [](float x, float y) { return x > y ? x : y; });
}
inline int32_t reduce_add_epi32(const __m512i &a) {
  return reduce<int32_t>(a, [](int32_t x, int32_t y) { return x + y; });
}

} // namespace emulated
} // namespace

#define _mm512_cvttps_epi32 emulated::cvttps_epi32
#define _mm512_cvtps_epi32 emulated::cvtps_epi32
#define _mm512_cvtepi32_ps emulated::cvtepi32_ps
#define _mm512_cvtps_pd emulated::cvtps_pd
#define _mm512_sra_epi32 emulated::sra_epi32
#define _mm512_cvtpd_ps emulated::cvtpd_ps
#define _mm512_cvtepi32_epi8 emulated::cvtepi32_epi8
#define _mm512_cvtepi32_epi16 emulated::cvtepi32_epi16
#define _mm512_reduce_min_ps emulated::reduce_min_ps
#define _mm512_reduce_max_ps emulated::reduce_max_ps
#define _mm512_reduce_add_epi32 emulated::reduce_add_epi32
#undef _mm512_madd_epi16 // SIMDe 0.7.4 gives it the masked form's parameters
#define _mm512_madd_epi16(a, b) simde_mm512_madd_epi16(a, b)
