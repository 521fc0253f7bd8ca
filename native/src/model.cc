#include "model.h"

#include "codec.h"
#include "failure.h"

#include <algorithm>
#include <cmath>

namespace tb {
namespace {

template <class T> Buffer<T> copy(const T *from, size_t count, size_t room) {
  Buffer<T> to(room);
  if (count) std::memcpy(to.data(), from, count * sizeof(T));
  return to;
}

// `rows` x n floats with rows of `stride`; one more vector after the last, as everywhere.
Buffer<float> copy_padded(const float *from, int rows, int n, size_t stride) {
  Buffer<float> to(checked(static_cast<size_t>(rows), stride) + kPad);
  for (int r = 0; r < rows; r++)
    std::memcpy(to.data() + static_cast<size_t>(r) * stride, from + static_cast<size_t>(r) * static_cast<size_t>(n),
                sizeof(float) * static_cast<size_t>(n));
  return to;
}

Norm copy_norm(const tb_norm &norm, int n) {
  const size_t count = static_cast<size_t>(n), room = round_up(count, kPad);
  return {.weight = copy(norm.weight, count, room), .bias = copy(norm.bias, count, room)};
}

} // namespace

Rows::Rows(const tb_matrix &matrix) : matrix_(matrix), stride_(row_bytes(matrix)) {
  const size_t count = static_cast<size_t>(matrix.rows);
  data_ = copy(static_cast<const uint8_t *>(matrix.codes), checked(count, stride_), checked(count, stride_) + kPad);
  if (matrix.bits == 32) {
    matrix_.scales = 1;
    scale_ = Buffer<float>(1);
    scale_[0] = 1.0f;
  } else {
    scale_ = copy(matrix.scale, static_cast<size_t>(matrix.scales), static_cast<size_t>(matrix.scales));
  }
  matrix_.codes = nullptr; // the caller's
  matrix_.scale = nullptr;
}

void Rows::read(int row, int8_t *codes, float *out) const {
  const uint8_t *from = data_.data() + static_cast<size_t>(row) * stride_;
  if (matrix_.bits == 32) {
    std::memcpy(out, from, stride_);
    return;
  }
  read_codes(matrix_, from, codes);
  for (int c = 0; c < matrix_.columns; c++)
    out[c] = static_cast<float>(codes[c]);
}

Linear::Linear(const Kernel &kernel, const std::vector<const tb_linear *> &parts, bool quantized_inputs)
    : inputs_(parts[0]->weight.columns) {
  bool floats = false, codes = false;
  for (const tb_linear *part : parts) {
    outputs_ += part->weight.rows;
    (part->weight.bits == 32 ? floats : codes) = true;
  }
  if (floats && codes) fail(TB_ERROR_MODEL, "query, key and value must all have codes, or all floats");
  if (quantized_inputs && codes)
    pack(kernel, parts);
  else
    copy_rows(parts);
}

void Linear::pack(const Kernel &kernel, const std::vector<const tb_linear *> &parts) {
  const bool ternary =
      std::all_of(parts.begin(), parts.end(), [](const tb_linear *part) { return part->weight.bits == 2; });
  panels_ = Panels(kernel, outputs_, inputs_, ternary);
  const size_t columns = static_cast<size_t>(kernel.columns), inputs = static_cast<size_t>(inputs_);
  Buffer<int8_t> codes(checked(columns, inputs)); // of one panel, which may have rows of several parts
  size_t n = 0;
  for (const tb_linear *part : parts) {
    const tb_matrix &m = part->weight;
    const size_t stride = row_bytes(m);
    panels_.set_outputs(static_cast<int>(n), m.rows, m.scale, m.scales, part->bias);
    for (size_t r = 0; r < static_cast<size_t>(m.rows); r++, n++) {
      if (n > 0 && n % columns == 0) panels_.pack(kernel, static_cast<int>(n / columns) - 1, codes.data(), inputs);
      read_codes(m, static_cast<const uint8_t *>(m.codes) + r * stride, &codes[n % columns * inputs]);
    }
  }
  panels_.pack(kernel, panels_.count() - 1, codes.data(), inputs);
}

void Linear::copy_rows(const std::vector<const tb_linear *> &parts) {
  bias_ = Buffer<float>(round_up(static_cast<size_t>(outputs_), kPad));
  float *bias = bias_.data();
  for (const tb_linear *part : parts) {
    rows_.emplace_back(part->weight);
    copy_bias(part->bias, part->weight.rows, bias);
    bias += part->weight.rows;
  }
}

size_t Linear::bytes() const {
  size_t all = panels_.bytes() + bias_.bytes();
  for (const Rows &rows : rows_)
    all += rows.bytes();
  return all;
}

} // namespace tb

tb_model::tb_model(const tb_config &c, const tb::Kernel &chosen, int threads)
    : kernel(chosen), hidden(c.hidden), heads(c.heads), intermediate(c.intermediate), first_position(c.first_position),
      positions(c.positions), types(c.types), function(c.function), norm_eps(c.norm_eps),
      activation_bits(c.activation_bits), sequence_ranges(c.range == TB_RANGE_SEQUENCE),
      quantizer{.bits = c.activation_bits, .symmetric = c.symmetric != 0, .clip = c.clip},
      scaling(static_cast<float>(std::pow(static_cast<double>(c.hidden / c.heads), -0.5))), word(c.word),
      stride(tb::round_up(static_cast<size_t>(c.hidden), tb::kPad)), dense_function(c.dense_function),
      dense_quantized(c.dense_quantized != 0 && c.activation_bits != 32) {
  using namespace tb;
  position = copy_padded(c.position, positions, hidden, stride);
  type = copy_padded(c.type, types, hidden, stride);
  embedding_norm = copy_norm(c.embedding_norm, hidden);
  bytes += word.bytes() + position.bytes() + type.bytes();
  layers.resize(static_cast<size_t>(c.layers));
  for (size_t i = 0; i < layers.size(); i++) {
    const tb_layer &from = c.layer[i];
    Layer &to = layers[i];
    to.qkv = Linear(kernel, {&from.query, &from.key, &from.value}, quantized());
    to.output = Linear(kernel, {&from.attention_output}, quantized());
    to.up = Linear(kernel, {&from.up}, quantized());
    to.down = Linear(kernel, {&from.down}, quantized());
    to.attention_norm = copy_norm(from.attention_norm, hidden);
    to.output_norm = copy_norm(from.output_norm, hidden);
    bytes += to.qkv.bytes() + to.output.bytes() + to.up.bytes() + to.down.bytes() + 4 * stride * sizeof(float);
  }
  if (c.dense.weight.rows > 0) dense = Linear(kernel, {&c.dense}, dense_quantized);
  if (c.head.weight.rows > 0) head = Linear(kernel, {&c.head}, false);
  bytes += dense.bytes() + head.bytes();
  float_weights = dense_quantized && dense.outputs() > 0 && !dense.in_panels();
  for (const Layer &layer : layers)
    for (const Linear *linear : {&layer.qkv, &layer.output, &layer.up, &layer.down})
      float_weights |= quantized() && !linear->in_panels();
  if (threads > 1) pool.reset(new Pool(threads));
}
