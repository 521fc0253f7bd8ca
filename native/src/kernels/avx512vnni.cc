// AVX512-VNNI: vpdpbusd adds four products of bytes to a 32-bit sum, sixteen sums at once.
#include "simd512.h"

namespace {

constexpr int kTileRows = 6, kVectors = 4; // 24 accumulators of 32 registers
constexpr int kNested = 4;                 // three ANDs for 24 dot products
constexpr int kAccumulatedGroups = 0;      // 32-bit accumulators are never full

using Accumulator = I;

TB_INLINE Accumulator zero_accumulator() { return set(0); }
TB_INLINE I widen(Accumulator a) { return a; }

TB_INLINE void dot_unsigned_signed(I &acc, __m512i u, __m512i s) {
#if defined(__GNUC__) && !defined(TB_EMULATED) // from intrinsics gcc 12 makes a loop that spills every accumulator
  __asm__("vpdpbusd %2, %1, %0" : "+v"(acc.v) : "v"(u), "v"(s));
#else
  acc.v = _mm512_dpbusd_epi32(acc.v, u, s);
#endif
}

TB_INLINE void dot(Accumulator &acc, Bytes codes, Bytes x) { dot_unsigned_signed(acc, codes.v, x.v); }

using Wide = Bytes;
using WideRow = uint8_t;
constexpr int kWideGroup = 4, kWideZero = 0;

TB_INLINE Wide load_wide(const int8_t *p) { return {_mm512_loadu_si512(p)}; }
TB_INLINE Wide broadcast_wide(const WideRow *p) { return broadcast4(reinterpret_cast<const int8_t *>(p)); }
TB_INLINE void wide_dot(I &acc, Wide w, Wide x) { dot_unsigned_signed(acc, x.v, w.v); }
TB_INLINE void store_joined(int8_t *p, I a) { store(reinterpret_cast<int32_t *>(p), a); }
TB_INLINE void store_wide4(WideRow *p, I a, I b, I c, I d) { store_bytes4(reinterpret_cast<int8_t *>(p), a, b, c, d); }

} // namespace

#include "body.h"

const tb::Kernel tb::avx512vnni_kernel = make_kernel("avx512vnni", TB_CPU_AVX512BW | TB_CPU_AVX512VNNI);
