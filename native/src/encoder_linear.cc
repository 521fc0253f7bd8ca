// Linear layers of the forward pass: what comes before the product, and the product.
#include "encoder.h"

#include <algorithm>

namespace tb {
namespace {

constexpr int kTaskRows = 4; // of the work that is done row by row

} // namespace

// Norm or function of a row; the range of what it becomes.
Range Encoder::prepare_row(float *x, const Input &input) const {
  if (input.norm)
    return kernel_.layer_norm(x, input.n, input.norm->weight.data(), input.norm->bias.data(), model_.norm_eps);
  return kernel_.activate(x, input.n, input.function);
}

// Rows of codes lie close together, but not at multiples of a large power of two: those would fall into the same few
// places of the nearest cache.
CodeRows Encoder::code_rows(const Local &local, const Linear &linear) const {
  const size_t stride = kernel_.row_bytes(linear.inputs(), linear.weight().ternary) + kAlignment;
  return {local.codes, stride, local.scale, local.offset, local.sum};
}

void Encoder::quantize(const Part &part, const Linear &linear, const Input &input, int row, Range range) {
  const float *x = input.x + static_cast<size_t>(row) * input.stride;
  const Grid grid = model_.quantizer.grid(range);
  if (!grid.finite()) finite_.store(false, std::memory_order_relaxed);
  if (!linear.in_panels()) { // weights that are floats take x_hat itself
    float *hat = part.local.hat + static_cast<size_t>(row) * std::max(up_stride_, model_.stride);
    for (int i = 0; i < input.n; i++)
      hat[i] = grid.round_trip(x[i]);
    return;
  }
  const CodeRows codes = code_rows(part.local, linear);
  codes.scale[row] = grid.scale;
  codes.offset[row] = grid.offset;
  codes.sum[row] = kernel_.quantize(x, input.n, grid, linear.weight().ternary,
                                    codes.codes + static_cast<size_t>(row) * codes.stride);
}

// Norm, function and codes of the rows that go into a linear layer. The input is replaced by what it becomes.
void Encoder::prepare(const Part &part, const Linear &linear, const Input &input) {
  const bool codes = input.quantized, per_row = !model_.sequence_ranges || input.per_row;
  const int tasks = pieces(part.rows, kTaskRows);
  part.team.run(tasks, [&](int task, int) {
    for (int row = task * kTaskRows; row < std::min(part.rows, (task + 1) * kTaskRows); row++) {
      float *const x = input.x + static_cast<size_t>(row) * input.stride;
      part.local.ranges[row] = prepare_row(x, input);
      if (!codes) continue;
      if (per_row) quantize(part, linear, input, row, part.local.ranges[row]);
    }
  });
  if (!codes || per_row) return;
  for (int s = 0; s < group_->sequences; s++) { // parts are then whole: part.begin is 0
    Range range = part.local.ranges[first_[s]];
    for (int row = first_[s] + 1; row < first_[s + 1]; row++)
      range = join(range, part.local.ranges[row]);
    for (int row = first_[s]; row < first_[s + 1]; row++)
      part.local.ranges[row] = range;
  }
  part.team.run(tasks, [&](int task, int) {
    for (int row = task * kTaskRows; row < std::min(part.rows, (task + 1) * kTaskRows); row++)
      quantize(part, linear, input, row, part.local.ranges[row]);
  });
}

void Encoder::multiply(const Part &part, const Linear &linear, const Input &input, const Product &product) {
  if (!linear.in_panels()) return multiply_plain(part, linear, input, product);
  const int panels = product.panel_end - product.panel_begin;
  const int tasks = part.team.size() == 1 ? 1 : std::min(panels, part.team.size() * 4);
  part.team.run(tasks, [&](int task, int) {
    const int begin = product.panel_begin + static_cast<int>(static_cast<int64_t>(panels) * task / tasks);
    const int end = product.panel_begin + static_cast<int>(static_cast<int64_t>(panels) * (task + 1) / tasks);
    kernel_.linear(linear.weight(), code_rows(part.local, linear),
                   {product.row_begin, product.row_end, begin, end, product.y, product.stride,
                    product.residual ? product.y : nullptr});
  });
}

// Inputs that are not quantized, or weights that are not: float64 sums, one output at a time for all rows.
void Encoder::multiply_plain(const Part &part, const Linear &linear, const Input &input, const Product &product) {
  const float *x = input.quantized ? part.local.hat : input.x;
  const size_t stride = input.quantized ? std::max(up_stride_, model_.stride) : input.stride;
  int column = 0;
  for (const Rows &rows : linear.parts()) {
    constexpr int kOutputs = 16;
    part.team.run(pieces(rows.rows(), kOutputs), [&](int task, int worker) {
      const Scratch &scratch = scratch_[part.team.size() == 1 ? part.worker : worker];
      for (int n = task * kOutputs; n < std::min(rows.rows(), (task + 1) * kOutputs); n++) {
        rows.read(n, scratch.codes, scratch.row);
        const float scale = rows.scale(n), bias = linear.bias()[column + n];
        for (int row = product.row_begin; row < product.row_end; row++) {
          const size_t r = static_cast<size_t>(row);
          float *const y = product.y + r * product.stride + column + n;
          const float sum = scale * kernel_.dot(x + r * stride, scratch.row, input.n) + bias;
          *y = product.residual ? sum + *y : sum;
        }
      }
    });
    column += rows.rows();
  }
}

void Encoder::apply(const Part &part, const Linear &linear, const Input &input, float *y, size_t stride,
                    bool residual) {
  prepare(part, linear, input);
  multiply(part, linear, input, {0, part.rows, 0, linear.panels(kernel_), y, stride, residual});
}

} // namespace tb
