// AVX-VNNI: vpdpbusd adds four products of bytes to a 32-bit sum. One instruction a step, against two in avx2.cc.
#include "simd256.h"

namespace {

// Twelve accumulators leave four registers: a vector of packed codes, two of codes and an activation.
constexpr int kTileRows = 6, kVectors = 2, kNested = 2;
constexpr int kAccumulatedGroups = 0; // 32-bit accumulators are never full

using Accumulator = I;

TB_INLINE Accumulator zero_accumulator() { return set(0); }
TB_INLINE I widen(Accumulator a) { return a; }

TB_INLINE void dot_unsigned_signed(I &acc, __m256i u, __m256i s) {
#if defined(TB_EMULATED)
  acc.v = _mm256_dpbusd_epi32(acc.v, u, s);
#elif defined(__GNUC__) // gcc 12 would gather the instructions' operands and spill the accumulators
  __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(acc.v) : "x"(u), "x"(s));
#else
  acc.v = _mm256_dpbusd_avx_epi32(acc.v, u, s);
#endif
}

TB_INLINE void dot(Accumulator &acc, Bytes codes, Bytes x) { dot_unsigned_signed(acc, codes.v, x.v); }

using Wide = Bytes;
using WideRow = uint8_t;
constexpr int kWideGroup = 4, kWideZero = 0;

TB_INLINE Wide load_wide(const int8_t *p) { return {_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p))}; }
TB_INLINE Wide broadcast_wide(const WideRow *p) { return broadcast4(reinterpret_cast<const int8_t *>(p)); }
TB_INLINE void wide_dot(I &acc, Wide w, Wide x) { dot_unsigned_signed(acc, x.v, w.v); }
TB_INLINE void store_joined(int8_t *p, I a) { store(reinterpret_cast<int32_t *>(p), a); }
TB_INLINE void store_wide4(WideRow *p, I a, I b, I c, I d) {
  const __m256i words = _mm256_packs_epi32(a.v, b.v), more = _mm256_packs_epi32(c.v, d.v);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(words, more), order);
  _mm256_storeu_si256(reinterpret_cast<__m256i *>(p), bytes);
}

} // namespace

#include "body.h"

const tb::Kernel tb::avxvnni_kernel = make_kernel("avxvnni", TB_CPU_AVX2 | TB_CPU_AVX_VNNI);
