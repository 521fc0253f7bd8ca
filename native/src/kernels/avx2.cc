// AVX2 without VNNI. vpmaddubsw multiplies unsigned codes 0, 1, 2 with signed activations and adds pairs; the sums fit
// 16 bits for 64 steps, so that one more addition is all a step costs. Generic 8-bit engines need three instructions.
#include "simd256.h"

namespace {

// Ten accumulators leave six registers: two vectors of packed codes, two of codes, an activation and a product.
// Taking codes apart once for many rows, into memory, was not faster.
constexpr int kTileRows = 5, kVectors = 2;
constexpr int kNested = 1; // sums of nested codes would not fit
constexpr int kAccumulatedGroups = 16;

using Accumulator = Bytes;

TB_INLINE Accumulator zero_accumulator() { return {_mm256_setzero_si256()}; }
TB_INLINE I widen(Accumulator a) { return {_mm256_madd_epi16(a.v, _mm256_set1_epi16(1))}; }

TB_INLINE void dot(Accumulator &acc, Bytes codes, Bytes x) {
#if defined(__GNUC__) && !defined(TB_EMULATED)
  // The two instructions together: left alone, gcc 12 gathers the products first and spills the accumulators.
  __m256i product;
  __asm__("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(acc.v), "=&x"(product) : "x"(codes.v), "x"(x.v));
#else
  acc.v = _mm256_add_epi16(acc.v, _mm256_maddubs_epi16(codes.v, x.v));
#endif
}

// Unsigned times signed bytes could saturate vpmaddubsw; 16-bit products never do.
using Wide = Bytes;
using WideRow = int16_t;
constexpr int kWideGroup = 2, kWideZero = 0;

TB_INLINE Wide load_wide(const int8_t *p) {
  return {_mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)))};
}
TB_INLINE Wide broadcast_wide(const WideRow *p) { return broadcast4(reinterpret_cast<const int8_t *>(p)); }
TB_INLINE void wide_dot(I &acc, Wide w, Wide x) {
#if defined(__GNUC__) && !defined(TB_EMULATED)
  __m256i product;
  __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(acc.v), "=&x"(product) : "x"(w.v), "x"(x.v));
#else
  acc.v = _mm256_add_epi32(acc.v, _mm256_madd_epi16(w.v, x.v));
#endif
}
TB_INLINE void store_joined(int8_t *p, I a) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(a.v, a.v), 0x08);
  _mm_storeu_si128(reinterpret_cast<__m128i *>(p), _mm256_castsi256_si128(words));
}
TB_INLINE void store_wide4(WideRow *p, I a, I b, I c, I d) {
  const __m256i ab = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.v, b.v), 0xd8);
  const __m256i cd = _mm256_permute4x64_epi64(_mm256_packs_epi32(c.v, d.v), 0xd8);
  _mm256_storeu_si256(reinterpret_cast<__m256i *>(p), ab);
  _mm256_storeu_si256(reinterpret_cast<__m256i *>(p + 2 * kLanes), cd);
}

} // namespace

#include "body.h"

const tb::Kernel tb::avx2_kernel = make_kernel("avx2", TB_CPU_AVX2);
