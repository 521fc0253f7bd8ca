// A model in memory: what tb_model_create makes from a configuration.
#pragma once

#include "kernels/kernel.h"
#include "memory.h"
#include "panels.h"
#include "pool.h"
#include "workspace.h"

#include <memory>
#include <vector>

namespace tb {

// A copy of a matrix as stored in a packed folder: the word embedding, and weights whose inputs are not quantized.
class Rows {
public:
  Rows() = default;
  explicit Rows(const tb_matrix &matrix);

  int rows() const { return matrix_.rows; }
  int columns() const { return matrix_.columns; }
  float scale(int row) const { return scale_[matrix_.scales == 1 ? 0 : static_cast<size_t>(row)]; }
  // Row r without its scale (which is 1 for floats); `codes` has room for a row of bytes, `out` for one of floats.
  void read(int row, int8_t *codes, float *out) const;
  size_t bytes() const { return data_.bytes() + scale_.bytes(); }

private:
  tb_matrix matrix_{};
  size_t stride_ = 0;
  Buffer<uint8_t> data_;
  Buffer<float> scale_;
};

// A weight with its bias: in a kernel's panels if weight and inputs have codes, else as rows.
class Linear {
public:
  Linear() = default;
  // Several linears with the same inputs are one whose outputs follow each other.
  Linear(const Kernel &kernel, const std::vector<const tb_linear *> &parts, bool quantized_inputs);

  int outputs() const { return outputs_; }
  int inputs() const { return inputs_; }
  size_t bytes() const;

  bool in_panels() const { return panels_.count() > 0; }
  int panels() const { return panels_.count(); }
  const PanelWeight &weight() const { return panels_.weight(); }

  // If not in panels.
  const std::vector<Rows> &parts() const { return rows_; }
  const float *bias() const { return bias_.data(); }

private:
  void pack(const Kernel &kernel, const std::vector<const tb_linear *> &parts);
  void copy_rows(const std::vector<const tb_linear *> &parts);

  int outputs_ = 0, inputs_ = 0;
  Panels panels_;
  std::vector<Rows> rows_;
  Buffer<float> bias_;
};

struct Norm {
  Buffer<float> weight, bias;
};

struct Layer {
  Linear qkv, output, up, down;
  Norm attention_norm, output_norm;
};

} // namespace tb

struct tb_model {
  tb_model(const tb_config &config, const tb::Kernel &kernel, int threads);

  const tb::Kernel &kernel;
  int hidden, heads, intermediate, first_position, positions, types, function;
  double norm_eps;
  int activation_bits;
  bool sequence_ranges;
  tb::Quantizer quantizer;
  float scaling; // of the scores

  tb::Rows word;
  tb::Buffer<float> position, type; // rows of `stride` floats
  size_t stride;                    // hidden, padded
  tb::Norm embedding_norm;
  std::vector<tb::Layer> layers;
  tb::Linear dense, head;
  int dense_function;
  bool dense_quantized;
  bool float_weights; // some weight with quantized inputs has no codes

  uint64_t bytes = 0;

  // Not part of the model but of running it, which does not change the model; both may be used by several threads.
  mutable tb::Pool::Pointer pool;
  mutable tb::WorkspaceShelf workspaces;

  bool quantized() const { return activation_bits != 32; }
};
