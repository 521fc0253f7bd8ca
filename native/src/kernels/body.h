// A kernel, from the vectors of an instruction set: include this last, after the vector types and dot products.
//
// Each kernel is one source file, compiled with its own flags, that includes the same code. Everything in it is in an
// unnamed namespace: if the linker could merge, say, the AVX-512 and the portable copy of a function, it might keep the
// one that this CPU cannot run. For the same reason nothing here uses templates of the standard library.
//
// What an instruction set provides (simd*.h and the kernel's own file):
//   F, I              kLanes float32, int32 numbers; + - *, min and max (the second argument if one is NaN), ...
//   Sum               eight float64 lanes: element i of a row is added to lane i mod 8
//   Doubles           a float64 number for each of kLanes lanes; Sum where these are eight
//   zip               two vectors' lanes by turns, from which attention.h makes a transposition
//   in_register       a vector that is computed before what follows in the source (several.h)
//   Bytes             4 * kLanes bytes: four for each lane
//   kTileRows         rows of activations that a tile of the product has
//   kVectors          vectors of outputs that it has; kLanes * kVectors, the columns of a panel, divides kPad
//   kNested           how many of these vectors have their codes in one byte (ternary.h); 1 for 16-bit accumulators
//   Accumulator       of dot(acc, codes 0..2 or nested, activations -128..127). One of 16 bits is widened to I after
//                     kAccumulatedGroups groups of 4 steps, when it is just not full (64 steps * 4 bytes: -32768 ..
//                     32512); 0: one of 32 bits never is
//   Wide, WideRow     of wide_dot(acc, signed bytes, codes - kWideZero), kWideGroup numbers a lane; store_joined()
//                     stores the kWideGroup lowest bytes of each lane
#pragma once

#include "attention.h"

namespace {

// The kernel's table. Fields are named, as are the functions: no two can be swapped by accident, and the compiler warns
// of one that is missing.
constexpr tb::Kernel make_kernel(const char *name, uint32_t features) {
#if defined(TB_EMULATED)
  features = TB_CPU_AVX2; // runs wherever AVX2 does
#endif
  return {
      .name = name,
      .features = features,
      .columns = kColumns,
      .rows = kTileRows,
      .wide_zero = kWideZero,
      .panel_bytes = panel_bytes,
      .pack_panel = pack_panel,
      .linear = linear,
      .only_products = only_products,
      .row_bytes = row_bytes,
      .quantize = quantize,
      .range = range,
      .embed = embed,
      .layer_norm = layer_norm,
      .activate = activate,
      .head_scratch = head_scratch,
      .head = head,
      .plain_head = plain_head,
      .dot = dot,
  };
}

} // namespace
