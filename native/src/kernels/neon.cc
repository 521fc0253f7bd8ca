// 64-bit ARM with dot products (ARMv8.2 and later): sdot adds four products of signed bytes to a 32-bit sum.
#include "simd_neon.h"

namespace {

constexpr int kTileRows = 4, kVectors = 2; // 16 accumulators of 32 registers
constexpr int kNested = 2;
constexpr int kAccumulatedGroups = 0; // 32-bit accumulators are never full

using Accumulator = I;

TB_INLINE Accumulator zero_accumulator() { return set(0); }
TB_INLINE I widen(Accumulator x) { return x; }
TB_INLINE void dot(Accumulator &acc, Bytes codes, Bytes x) { // codes 0 .. 2, nested 0 .. 10, are the same signed
  acc.a = vdotq_s32(acc.a, vreinterpretq_s8_u8(codes.a), vreinterpretq_s8_u8(x.a));
  acc.b = vdotq_s32(acc.b, vreinterpretq_s8_u8(codes.b), vreinterpretq_s8_u8(x.b));
}

// Both factors are signed, so the rows of wide products hold codes minus 128.
using Wide = Bytes;
using WideRow = int8_t;
constexpr int kWideGroup = 4, kWideZero = 128;

TB_INLINE Wide load_wide(const int8_t *p) { return load_bytes(reinterpret_cast<const uint8_t *>(p)); }
TB_INLINE Wide broadcast_wide(const WideRow *p) { return broadcast4(p); }
TB_INLINE void wide_dot(I &acc, Wide w, Wide x) { dot(acc, w, x); }
TB_INLINE void store_joined(int8_t *p, I a) {
  vst1q_s8(p, vreinterpretq_s8_s32(a.a));
  vst1q_s8(p + 16, vreinterpretq_s8_s32(a.b));
}
TB_INLINE void store_wide4(WideRow *p, I a, I b, I c, I d) { store_bytes4(p, a, b, c, d); }

} // namespace

#include "body.h"

const tb::Kernel tb::neon_kernel = make_kernel("neon", TB_CPU_NEON | TB_CPU_DOTPROD);
