#include "panels.h"

#include <algorithm>

namespace tb {
namespace {

size_t padded(int n) { return round_up(static_cast<size_t>(n), kPad); }

} // namespace

Panels::Panels(const Kernel &kernel, int outputs, int inputs, bool ternary)
    : columns_(kernel.columns), count_((outputs + kernel.columns - 1) / kernel.columns),
      panels_(checked(static_cast<size_t>(count_), kernel.panel_bytes(inputs, ternary))), scale_(padded(outputs)),
      bias_(padded(outputs)), sum_(padded(outputs)), correction_(padded(outputs)),
      weight_{
          .outputs = outputs,
          .inputs = inputs,
          .ternary = ternary,
          .panels = panels_.data(),
          .panel_bytes = kernel.panel_bytes(inputs, ternary),
          .scale = scale_.data(),
          .bias = bias_.data(),
          .sum = sum_.data(),
          .correction = correction_.data(),
      } {}

int Panels::outputs_of(int panel) const { return std::min(columns_, weight_.outputs - first_output(panel)); }

void Panels::pack(const Kernel &kernel, int panel, const int8_t *codes, size_t stride) {
  const int outputs = outputs_of(panel), inputs = weight_.inputs;
  kernel.pack_panel(codes, stride, outputs, inputs, weight_.ternary,
                    &panels_[static_cast<size_t>(panel) * weight_.panel_bytes]);
  for (int i = 0; i < outputs; i++) {
    const int8_t *const row = codes + static_cast<size_t>(i) * stride;
    const size_t output = static_cast<size_t>(first_output(panel) + i);
    int32_t sum = 0;
    for (int k = 0; k < inputs; k++)
      sum += row[k];
    sum_[output] = static_cast<float>(sum);
    correction_[output] = sum * (weight_.ternary ? 128 : kernel.wide_zero);
  }
}

void Panels::set_outputs(int begin, int count, const float *scale, int scales, const float *bias) {
  float *const to = &scale_[static_cast<size_t>(begin)];
  if (scales == 1)
    std::fill(to, to + count, scale[0]);
  else
    std::copy(scale, scale + count, to);
  copy_bias(bias, count, &bias_[static_cast<size_t>(begin)]);
}

size_t Panels::bytes() const {
  return panels_.bytes() + scale_.bytes() + bias_.bytes() + sum_.bytes() + correction_.bytes();
}

void copy_bias(const float *bias, int count, float *to) {
  if (bias)
    std::copy(bias, bias + count, to);
  else
    std::fill(to, to + count, kNoBias);
}

} // namespace tb
