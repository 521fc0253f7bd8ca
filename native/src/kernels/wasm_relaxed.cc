// WebAssembly with relaxed SIMD: i16x8.relaxed_dot_i8x16_i7x16_s is x86's vpmaddubsw, so this is the AVX2 kernel in
// half as wide registers.
//
// "Relaxed" leaves two things to the engine: what a second factor with its highest bit set means, and whether sums of
// two products that leave 16 bits wrap around or saturate. Neither occurs: the second factor is a code 0, 1 or 2, and
// 2 * 2 * 128 is far from 32768. So the bits are those of every other kernel.
#include "simd_wasm.h"

namespace {

constexpr int kTileRows = 4, kVectors = 1; // eight accumulators, as engines have fifteen registers on x86
constexpr int kNested = 1;                 // sums of nested codes would not fit
constexpr int kAccumulatedGroups = 16;

using Accumulator = Bytes;

TB_INLINE Accumulator zero_accumulator() { return {wasm_i16x8_const_splat(0), wasm_i16x8_const_splat(0)}; }
TB_INLINE I widen(Accumulator x) {
  return {wasm_i32x4_extadd_pairwise_i16x8(x.a), wasm_i32x4_extadd_pairwise_i16x8(x.b)};
}
TB_INLINE void dot(Accumulator &acc, Bytes codes, Bytes x) {
  acc.a = wasm_i16x8_add(acc.a, wasm_i16x8_relaxed_dot_i8x16_i7x16(x.a, codes.a));
  acc.b = wasm_i16x8_add(acc.b, wasm_i16x8_relaxed_dot_i8x16_i7x16(x.b, codes.b));
}

} // namespace

#include "body.h"

const tb::Kernel tb::wasm_relaxed_kernel = make_kernel("relaxed-simd", 0);
