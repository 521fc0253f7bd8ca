// AVX-512 without VNNI: what avx2.cc does, in vectors of twice the size and with twice as many registers.
#include "simd512.h"

namespace {

constexpr int kTileRows = 6, kVectors = 4; // 24 accumulators of 32 registers
constexpr int kNested = 1;
constexpr int kAccumulatedGroups = 16; // 64 steps fit 16 bits

using Accumulator = Bytes;

TB_INLINE Accumulator zero_accumulator() { return {_mm512_setzero_si512()}; }
TB_INLINE I widen(Accumulator a) { return {_mm512_madd_epi16(a.v, _mm512_set1_epi16(1))}; }

TB_INLINE void dot(Accumulator &acc, Bytes codes, Bytes x) {
#if defined(__GNUC__) && !defined(TB_EMULATED) // together, for the reason given in avx2.cc
  __m512i product;
  __asm__("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+v"(acc.v), "=&v"(product) : "v"(codes.v), "v"(x.v));
#else
  acc.v = _mm512_add_epi16(acc.v, _mm512_maddubs_epi16(codes.v, x.v));
#endif
}

using Wide = Bytes;
using WideRow = int16_t;
constexpr int kWideGroup = 2, kWideZero = 0;

TB_INLINE Wide load_wide(const int8_t *p) {
  return {_mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)))};
}
TB_INLINE Wide broadcast_wide(const WideRow *p) { return broadcast4(reinterpret_cast<const int8_t *>(p)); }
TB_INLINE void wide_dot(I &acc, Wide w, Wide x) {
#if defined(__GNUC__) && !defined(TB_EMULATED)
  __m512i product;
  __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+v"(acc.v), "=&v"(product) : "v"(w.v), "v"(x.v));
#else
  acc.v = _mm512_add_epi32(acc.v, _mm512_madd_epi16(w.v, x.v));
#endif
}
TB_INLINE void store_words16(int16_t *p, I a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i *>(p), _mm512_cvtepi32_epi16(a.v));
}
TB_INLINE void store_joined(int8_t *p, I a) { store_words16(reinterpret_cast<int16_t *>(p), a); }
TB_INLINE void store_wide4(WideRow *p, I a, I b, I c, I d) {
  store_words16(p, a);
  store_words16(p + 16, b);
  store_words16(p + 32, c);
  store_words16(p + 48, d);
}

} // namespace

#include "body.h"

const tb::Kernel tb::avx512bw_kernel = make_kernel("avx512bw", TB_CPU_AVX512BW);
