// WebAssembly with plain 128-bit SIMD. It has no product of bytes that is one instruction of a CPU, but codes 0, 1, 2
// need none: an activation is taken with one mask where the code is not 0 and with another where it is 2, and both are
// added. i16x8.extadd_pairwise_i8x16_s, which adds neighbors, is one instruction on x86 and ARM.
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

// The masks do not depend on the row: the compiler makes them once for all rows of a tile.
TB_INLINE void add_products(v128_t &acc, v128_t codes, v128_t x) {
  const v128_t some = wasm_i8x16_ne(codes, wasm_i8x16_const_splat(0));
  const v128_t two = wasm_i8x16_eq(codes, wasm_i8x16_const_splat(2));
  acc = wasm_i16x8_add(acc, wasm_i16x8_extadd_pairwise_i8x16(wasm_v128_and(x, some)));
  acc = wasm_i16x8_add(acc, wasm_i16x8_extadd_pairwise_i8x16(wasm_v128_and(x, two)));
}
TB_INLINE void dot(Accumulator &acc, Bytes codes, Bytes x) {
  add_products(acc.a, codes.a, x.a);
  add_products(acc.b, codes.b, x.b);
}

} // namespace

#include "body.h"

const tb::Kernel tb::wasm_simd128_kernel = make_kernel("simd128", 0);
