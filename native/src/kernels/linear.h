// y = x_hat w_hat^T + bias (+ residual): the integer products and what makes them numbers again.
#pragma once

#include "wide.h"

namespace {

using tb::CodeRows;
using tb::LinearTask;
using tb::PanelWeight;

// Calls f(row, count) with as many rows as a tile has; count is a constant. The last tiles share what is left.
template <class Function> TB_INLINE void for_tiles(int begin, int end, Function f) {
  for (int left = end - begin; left > 0; left = end - begin) {
    int count = left < kTileRows ? left : kTileRows;
    if (left > kTileRows && left < 2 * kTileRows) count = (left + 1) / 2;
    with_constant<kTileRows>(count, [&](auto rows) { f(begin, rows); });
    begin += count;
  }
}

// Everything that the loop reads is in a local: storing y might change what pointers point to, for all the compiler
// knows.
template <int rows>
TB_INLINE void finish(const PanelWeight &w, const CodeRows &x, const LinearTask &task, int row, int column,
                      const I (&total)[rows][kVectors]) {
  const int32_t zeros[rows] = {}, *const x_sum = w.ternary ? x.sum + row : zeros;
  const float *const x_scale = x.scale + row, *const x_offset = x.offset + row;
  const size_t stride = task.stride, place = row * stride + column;
  const float *const residual = task.residual ? task.residual + place : nullptr;
  float *const y = task.y + place;
  TB_UNROLL for (int j = 0; j < kVectors; j++) {
    const int n = column + j * kLanes;
    const I correction = load(w.correction + n);
    const F w_sum = load(w.sum + n), w_scale = load(w.scale + n), bias = load(w.bias + n);
    TB_UNROLL for (int r = 0; r < rows; r++) {
      const I products = (total[r][j] - set(x_sum[r])) + correction;
      const F sum = set(x_scale[r]) * to_float(products) + set(x_offset[r]) * w_sum;
      F v = w_scale * sum + bias;
      if (residual) v = v + load(residual + r * stride + j * kLanes);
      store(y + r * stride + j * kLanes, v);
    }
  }
}

template <int rows>
TB_NOINLINE void ternary_rows(const PanelWeight &w, const CodeRows &x, const LinearTask &task, int row, int column,
                              const uint8_t *b) {
  I total[rows][kVectors];
  const int8_t *a = reinterpret_cast<const int8_t *>(x.codes + row * x.stride);
  tile<rows>(a, x.stride, b, static_cast<int>(padded(w.inputs) / kGroup), total);
  finish<rows>(w, x, task, row, column, total);
}

template <int rows>
TB_NOINLINE void wide_rows(const PanelWeight &w, const CodeRows &x, const LinearTask &task, int row, int column,
                           const uint8_t *b) {
  I total[rows][kVectors];
  const WideRow *a = reinterpret_cast<const WideRow *>(x.codes + row * x.stride);
  wide_tile<rows, kVectors>(a, x.stride / sizeof(WideRow), kWideGroup, reinterpret_cast<const int8_t *>(b),
                            kVectors * kWideBytes, static_cast<int>(wide_groups(w.inputs)), total);
  finish<rows>(w, x, task, row, column, total);
}

void linear(const PanelWeight &w, const CodeRows &x, const LinearTask &task) {
  for (int p = task.panel_begin; p < task.panel_end; p++) {
    const uint8_t *panel = w.panels + p * w.panel_bytes;
    const int column = p * kColumns;
    for_tiles(task.row_begin, task.row_end, [&](int row, auto rows) {
      if (w.ternary)
        ternary_rows<decltype(rows)::value>(w, x, task, row, column, panel);
      else
        wide_rows<decltype(rows)::value>(w, x, task, row, column, panel);
    });
  }
}

size_t panel_bytes(int inputs, bool ternary) {
  return ternary ? padded(inputs) * kColumns / 4 : wide_panel_bytes(inputs);
}

void pack_panel(const int8_t *codes, size_t stride, int rows, int inputs, bool ternary, uint8_t *panel) {
  if (ternary)
    pack_ternary(codes, stride, rows, inputs, panel);
  else
    pack_wide(codes, stride, rows, inputs, reinterpret_cast<int8_t *>(panel));
}

size_t row_bytes(int n, bool ternary) { return padded(n) * (ternary ? 1 : sizeof(WideRow)); }

} // namespace
