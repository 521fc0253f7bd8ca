#include "model.h"

#include "codec.h"
#include "failure.h"

#include <cmath>

namespace tb {
namespace {

template <class T> Buffer<T> copy(const T *from, size_t count, size_t room) {
  Buffer<T> to(room);
  if (count) std::memcpy(to.data(), from, count * sizeof(T));
  return to;
}

// `rows` x n floats with rows of `stride`; one more vector behind the last, as everywhere.
Buffer<float> copy_rows(const float *from, int rows, int n, size_t stride) {
  Buffer<float> to(checked(static_cast<size_t>(rows), stride) + kPad);
  for (int r = 0; r < rows; r++)
    std::memcpy(to.data() + static_cast<size_t>(r) * stride, from + static_cast<size_t>(r) * static_cast<size_t>(n),
                sizeof(float) * static_cast<size_t>(n));
  return to;
}

Norm copy_norm(const tb_norm &norm, int n) {
  const size_t count = static_cast<size_t>(n), room = round_up(count, kPad);
  return {copy(norm.weight, count, room), copy(norm.bias, count, room)};
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

Linear::Linear(const Kernel &kernel, const std::vector<const tb_linear *> &parts, bool quantized_inputs) {
  bool floats = false, codes = false;
  weight_.inputs = parts[0]->weight.columns;
  weight_.ternary = true;
  for (const tb_linear *part : parts) {
    weight_.outputs += part->weight.rows;
    weight_.ternary &= part->weight.bits == 2;
    (part->weight.bits == 32 ? floats : codes) = true;
  }
  if (floats && codes) fail(TB_ERROR_MODEL, "query, key and value must all have codes, or all floats");

  const size_t room = round_up(static_cast<size_t>(weight_.outputs), kPad);
  bias_ = Buffer<float>(room);
  size_t row = 0;
  for (const tb_linear *part : parts) {
    const size_t count = static_cast<size_t>(part->weight.rows);
    if (part->bias) std::memcpy(&bias_[row], part->bias, count * sizeof(float));
    row += count;
  }
  if (quantized_inputs && codes)
    pack(kernel, parts);
  else
    for (const tb_linear *part : parts)
      rows_.emplace_back(part->weight);
}

void Linear::pack(const Kernel &kernel, const std::vector<const tb_linear *> &parts) {
  const size_t columns = static_cast<size_t>(kernel.columns), inputs = static_cast<size_t>(weight_.inputs);
  const size_t room = round_up(static_cast<size_t>(weight_.outputs), kPad);
  const size_t panel_bytes = kernel.panel_bytes(weight_.inputs, weight_.ternary);
  panels_ = Buffer<uint8_t>(checked(static_cast<size_t>(panels(kernel)), panel_bytes));
  scale_ = Buffer<float>(room);
  sum_ = Buffer<float>(room);
  correction_ = Buffer<int32_t>(room);

  Buffer<int8_t> codes(checked(columns, inputs)); // of one panel
  const auto flush = [&](size_t end) {
    const size_t begin = (end - 1) / columns * columns;
    kernel.pack_panel(codes.data(), inputs, static_cast<int>(end - begin), weight_.inputs, weight_.ternary,
                      &panels_[begin / columns * panel_bytes]);
  };
  size_t n = 0;
  for (const tb_linear *part : parts) {
    const tb_matrix &m = part->weight;
    const size_t stride = row_bytes(m);
    for (size_t r = 0; r < static_cast<size_t>(m.rows); r++, n++) {
      if (n > 0 && n % columns == 0) flush(n);
      int8_t *const row = &codes[n % columns * inputs];
      read_codes(m, static_cast<const uint8_t *>(m.codes) + r * stride, row);
      int32_t sum = 0;
      for (size_t k = 0; k < inputs; k++)
        sum += row[k];
      scale_[n] = m.scale[m.scales == 1 ? 0 : r];
      sum_[n] = static_cast<float>(sum);
      correction_[n] = sum * (weight_.ternary ? 128 : kernel.wide_zero);
    }
  }
  flush(n);
  weight_.panels = panels_.data();
  weight_.panel_bytes = panel_bytes;
  weight_.scale = scale_.data();
  weight_.bias = bias_.data();
  weight_.sum = sum_.data();
  weight_.correction = correction_.data();
}

size_t Linear::bytes() const {
  size_t all = panels_.bytes() + scale_.bytes() + bias_.bytes() + sum_.bytes() + correction_.bytes();
  for (const Rows &rows : rows_)
    all += rows.bytes();
  return all;
}

} // namespace tb

tb_model::tb_model(const tb_config &c, const tb::Kernel &chosen, int threads)
    : kernel(chosen), hidden(c.hidden), heads(c.heads), intermediate(c.intermediate), first_position(c.first_position),
      positions(c.positions), types(c.types), function(c.function), norm_eps(c.norm_eps),
      activation_bits(c.activation_bits), sequence_ranges(c.range == TB_RANGE_SEQUENCE),
      quantizer{c.activation_bits, c.symmetric != 0, c.clip},
      scaling(static_cast<float>(std::pow(static_cast<double>(c.hidden / c.heads), -0.5))), word(c.word),
      stride(tb::round_up(static_cast<size_t>(c.hidden), tb::kPad)), dense_function(c.dense_function),
      dense_quantized(c.dense_quantized != 0 && c.activation_bits != 32) {
  using namespace tb;
  position = copy_rows(c.position, positions, hidden, stride);
  type = copy_rows(c.type, types, hidden, stride);
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
