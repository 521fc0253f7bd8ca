// A weight in the layout that a kernel multiplies: made when a model is created, and on every call of tb_multiply.
#pragma once

#include "kernels/kernel.h"
#include "memory.h"

namespace tb {

class Panels {
public:
  Panels() = default;
  Panels(const Kernel &kernel, int outputs, int inputs, bool ternary);

  int count() const { return count_; }
  int first_output(int panel) const { return panel * columns_; }
  int outputs_of(int panel) const; // Kernel::columns, fewer in the last panel

  // Fills one panel from its rows of codes. Different panels may be filled by different threads.
  void pack(const Kernel &kernel, int panel, const int8_t *codes, size_t stride);
  // Scale and bias of `count` outputs, from `begin` on; `scales` is 1 or count, and the bias may be null.
  void set_outputs(int begin, int count, const float *scale, int scales, const float *bias);

  const PanelWeight &weight() const { return weight_; }
  size_t bytes() const;

private:
  int columns_ = 1, count_ = 0;
  Buffer<uint8_t> panels_;
  Buffer<float> scale_, bias_, sum_;
  Buffer<int32_t> correction_;
  PanelWeight weight_; // points to the above
};

// Biases as they are added: those given, or for null as many that change nothing.
void copy_bias(const float *bias, int count, float *to);

} // namespace tb
