// The functions that the encoder needs from an instruction set: one table per kernel. All kernels give the same bits.
//
// Rows of floats are padded to a multiple of kPad: kernels read and write whole vectors there.
#pragma once

#include "../quantizer.h"
#include "ternarybert.h"

#include <cstddef>
#include <cstdint>

namespace tb {

constexpr int kPad = 64;

// A weight for quantized inputs. Its outputs are cut into panels of Kernel::columns, its inputs padded to kPad.
struct PanelWeight {
  int outputs = 0, inputs = 0;
  bool ternary = false;                // panels of 2-bit codes, else of bytes
  const uint8_t *panels = nullptr;     // all of the same size, one after the other
  size_t panel_bytes = 0;              //
  const float *scale = nullptr;        // one per output, like the next three; padded with zeros
  const float *bias = nullptr;         //
  const float *sum = nullptr;          // of the codes
  const int32_t *correction = nullptr; // what the layout leaves out of the products: a multiple of the sum of the codes
};

// The bias of a layer that has none: adding it changes no number, not even -0 (which +0 would make +0).
constexpr float kNoBias = -0.0f;

// Rows of activation codes. The layout of `codes` is the kernel's: bytes of code-128 for ternary weights, `Row`s else.
struct CodeRows {
  const uint8_t *codes;
  size_t stride;       // bytes
  const float *scale;  // one per row, like the next two
  const float *offset; //
  const int32_t *sum;  // of code-128
};

// Part of a product: rows x panels. y[row * stride + column] = x_hat w_hat + bias (+ residual, in the place of y).
struct LinearTask {
  int row_begin, row_end, panel_begin, panel_end;
  float *y;
  size_t stride;
  const float *residual = nullptr; // same stride
};

// One head of one sequence. q, k and v point at the head's part of the first token's row.
struct HeadTask {
  const float *q, *k, *v;
  size_t stride; // floats between tokens
  int tokens, queries, width;
  float scaling;
  const Quantizer *quantizer;
  // Ranges that span more than this head, if not null; else Q and K have one per token, P per query, V per head.
  const Grid *q_grid = nullptr, *k_grid = nullptr, *v_grid = nullptr, *p_grid = nullptr;
  Range *p_range = nullptr; // if not null: only find the range of the probabilities
  float *context;           // queries rows
  size_t context_stride;
  uint8_t *scratch; // Kernel::head_scratch(tokens, width) bytes
};

struct Kernel {
  const char *name;
  uint32_t features; // what the CPU must have
  int columns;       // of a panel
  int rows;          // of a tile: products of a multiple of it are fastest
  int wide_zero;     // subtracted from codes that multiply weights of more than 2 bits

  // A panel of `rows` (at most `columns`) rows of codes; the memory that it goes to is all zeros.
  size_t (*panel_bytes)(int inputs, bool ternary);
  void (*pack_panel)(const int8_t *codes, size_t stride, int rows, int inputs, bool ternary, uint8_t *panel);
  void (*linear)(const PanelWeight &, const CodeRows &, const LinearTask &);
  // A tile's products of four steps on registers, `rounds` times: the inner loop of linear() and nothing else. The
  // `four` activations are zeros, so that sums never overflow.
  int32_t (*only_products)(const int8_t *four, int rounds);

  // Codes of a row of n numbers; returns the sum of code-128.
  size_t (*row_bytes)(int n, bool ternary);
  int32_t (*quantize)(const float *x, int n, const Grid &, bool ternary, uint8_t *codes);
  Range (*range)(const float *x, int n);

  void (*embed)(const float *word, const float *type, const float *position, int n, float *out);
  // Whole rows, in place, and the range of each new row.
  void (*layer_norm)(float *x, size_t stride, int rows, int n, const float *weight, const float *bias, double eps,
                     Range *ranges);
  Range (*activate)(float *x, int n, int function);

  size_t (*head_scratch)(int tokens, int width);
  bool (*head)(const HeadTask &);       // false: numbers that are not finite
  void (*plain_head)(const HeadTask &); // activations that are not quantized

  // sum over k of x[k] * w[k] in float64, rounded
  float (*dot)(const float *x, const float *w, int n);
};

// All kernels that were built, best first; the list ends with null. They may not all run on this CPU.
const Kernel *const *built_kernels();

extern const Kernel avx512vnni_kernel, avx512bw_kernel, avxvnni_kernel, avx2_kernel, neon_kernel, portable_kernel;
extern const Kernel wasm_relaxed_kernel, wasm_simd128_kernel;

} // namespace tb
