// Checks of what callers pass: models, batches, products. See internal.h.
#include "codec.h"
#include "failure.h"
#include "internal.h"
#include "model.h"

#include <cmath>

namespace tb {
namespace {

// In attention, too, no sum of products leaves 32 bits: 32768 * 255 * 255 < 2^31.
constexpr int kMostPositions = 32768;

void check_range(const char *name, int value, int lowest, int highest) {
  if (value < lowest || value > highest)
    fail(TB_ERROR_MODEL, "%s is %d, not within %d .. %d", name, value, lowest, highest);
}

void check_floats(const char *name, const float *x, size_t count) {
  if (!x) fail(TB_ERROR_MODEL, "%s is missing", name);
  for (size_t i = 0; i < count; i++)
    if (!std::isfinite(x[i])) fail(TB_ERROR_MODEL, "%s has a number that is not finite", name);
}

void check_matrix(const char *name, const tb_matrix &m, int rows, int columns) {
  if (m.rows != rows || m.columns != columns)
    fail(TB_ERROR_MODEL, "%s is %d x %d, not %d x %d", name, m.rows, m.columns, rows, columns);
  const bool known = m.bits == 2 || m.bits == 3 || m.bits == 4 || m.bits == 8 || m.bits == 32;
  if (!known) fail(TB_ERROR_MODEL, "%s has %d bits, not 2, 3, 4, 8 or 32", name, m.bits);
  if (m.log && m.bits != 3 && m.bits != 4) fail(TB_ERROR_MODEL, "%s: %d bits have no logarithmic levels", name, m.bits);
  if (m.dense && m.bits != 2) fail(TB_ERROR_MODEL, "%s: only 2 bits have a dense packing", name);
  if (!m.codes) fail(TB_ERROR_MODEL, "%s has no codes", name);
  const size_t count = static_cast<size_t>(rows);
  if (m.bits == 32)
    return check_floats(name, static_cast<const float *>(m.codes), count * static_cast<size_t>(columns));

  if (m.scales != 1 && m.scales != rows) fail(TB_ERROR_MODEL, "%s has %d scales, not 1 or %d", name, m.scales, rows);
  check_floats(name, m.scale, static_cast<size_t>(m.scales));
  const size_t bytes = row_bytes(m);
  for (size_t r = 0; r < count; r++)
    if (!valid_row(m, static_cast<const uint8_t *>(m.codes) + r * bytes))
      fail(TB_ERROR_MODEL, "%s has a code or padding in row %zu that %d bits do not have", name, r, m.bits);
}

void check_linear(const char *name, const tb_linear &linear, int rows, int columns) {
  check_matrix(name, linear.weight, rows, columns);
  if (linear.bias) check_floats(name, linear.bias, static_cast<size_t>(rows));
}

void check_norm(const char *name, const tb_norm &norm, int n) {
  check_floats(name, norm.weight, static_cast<size_t>(n));
  check_floats(name, norm.bias, static_cast<size_t>(n));
}

void check_layer(int number, const tb_layer &layer, int hidden, int intermediate) {
  char name[64];
  const auto check = [&](const char *which, const tb_linear &linear, int rows, int columns) {
    std::snprintf(name, sizeof name, "layer %d: %s", number, which);
    check_linear(name, linear, rows, columns);
  };
  check("query", layer.query, hidden, hidden);
  check("key", layer.key, hidden, hidden);
  check("value", layer.value, hidden, hidden);
  check("attention_output", layer.attention_output, hidden, hidden);
  check("up", layer.up, intermediate, hidden);
  check("down", layer.down, hidden, intermediate);
  std::snprintf(name, sizeof name, "layer %d: attention_norm", number);
  check_norm(name, layer.attention_norm, hidden);
  std::snprintf(name, sizeof name, "layer %d: output_norm", number);
  check_norm(name, layer.output_norm, hidden);
}

void check_sizes(const tb_config &c) {
  check_range("hidden", c.hidden, 1, kLargestLayer);
  check_range("heads", c.heads, 1, c.hidden);
  if (c.hidden % c.heads != 0) fail(TB_ERROR_MODEL, "%d hidden units do not divide into %d heads", c.hidden, c.heads);
  check_range("hidden / heads", c.hidden / c.heads, 1, kMostPositions);
  check_range("intermediate", c.intermediate, 1, kLargestLayer);
  check_range("layers", c.layers, 1, 4096);
  check_range("positions", c.positions, 1, kMostPositions);
  check_range("first_position", c.first_position, 0, c.positions - 1);
  check_range("types", c.types, 0, kLargestLayer);
  check_range("word.rows", c.word.rows, 1, 1 << 26);
}

void check_settings(const tb_config &c) {
  if (c.function != TB_GELU && c.function != TB_GELU_TANH && c.function != TB_RELU)
    fail(TB_ERROR_MODEL, "function is %d, not GELU, GELU_TANH or RELU", c.function);
  if (!(c.norm_eps > 0.0) || !std::isfinite(c.norm_eps)) fail(TB_ERROR_MODEL, "norm_eps is not a positive number");
  if (c.activation_bits != 32) check_range("activation_bits", c.activation_bits, 2, 8);
  check_range("range", c.range, TB_RANGE_TOKEN, TB_RANGE_SEQUENCE);
  check_range("symmetric", c.symmetric, 0, 1);
  if (!(c.clip >= 0.0f) || !std::isfinite(c.clip)) fail(TB_ERROR_MODEL, "clip is not a number of 0 or more");
}

void check_heads(const tb_config &c) {
  int inputs = c.hidden;
  if (c.dense.weight.rows != 0) {
    check_range("dense.rows", c.dense.weight.rows, 1, kLargestLayer);
    check_range("dense_function", c.dense_function, TB_IDENTITY, TB_TANH);
    check_range("dense_quantized", c.dense_quantized, 0, 1);
    check_linear("dense", c.dense, c.dense.weight.rows, c.hidden);
    inputs = c.dense.weight.rows;
  }
  if (c.head.weight.rows != 0) {
    check_range("head.rows", c.head.weight.rows, 1, kLargestLayer);
    check_linear("head", c.head, c.head.weight.rows, inputs);
  }
}

} // namespace

void check_config(const tb_config *config) {
  if (!config) fail(TB_ERROR_ARGUMENT, "config is null");
  if (config->size != sizeof(tb_config))
    fail(TB_ERROR_ARGUMENT, "config has size %u, this library's is %zu: header and library differ", config->size,
         sizeof(tb_config));
  const tb_config &c = *config;
  check_sizes(c);
  check_settings(c);
  const size_t hidden = static_cast<size_t>(c.hidden);
  check_matrix("word", c.word, c.word.rows, c.hidden);
  check_floats("position", c.position, static_cast<size_t>(c.positions) * hidden);
  if (c.types > 0) check_floats("type", c.type, static_cast<size_t>(c.types) * hidden);
  check_norm("embedding_norm", c.embedding_norm, c.hidden);
  if (!c.layer) fail(TB_ERROR_MODEL, "layer is missing");
  for (int i = 0; i < c.layers; i++)
    check_layer(i, c.layer[i], c.hidden, c.intermediate);
  check_heads(c);
}

void check_batch(const tb_model &model, const tb_batch *batch) {
  if (!batch) fail(TB_ERROR_ARGUMENT, "batch is null");
  if (batch->sequences < 1) fail(TB_ERROR_INPUT, "a batch has %d sequences", batch->sequences);
  if (!batch->lengths || !batch->ids) fail(TB_ERROR_ARGUMENT, "lengths or ids are null");
  const int most = model.positions - model.first_position, words = model.word.rows();
  size_t token = 0;
  for (int s = 0; s < batch->sequences; s++) {
    const int length = batch->lengths[s];
    if (length < 1) fail(TB_ERROR_INPUT, "sequence %d has %d tokens", s, length);
    if (length > most) fail(TB_ERROR_INPUT, "sequence %d has %d tokens, the model takes at most %d", s, length, most);
    for (int i = 0; i < length; i++, token++) {
      const int id = batch->ids[token], type = batch->types ? batch->types[token] : 0;
      if (id < 0 || id >= words)
        fail(TB_ERROR_INPUT, "sequence %d, token %d: id %d, the vocabulary has %d", s, i, id, words);
      if (type < 0 || (type >= model.types && type != 0))
        fail(TB_ERROR_INPUT, "sequence %d, token %d: type %d, the model has %d", s, i, type, model.types);
    }
  }
}

void check_product(const tb_product *product) {
  if (!product) fail(TB_ERROR_ARGUMENT, "product is null");
  const tb_product &p = *product;
  if (p.rows < 1 || p.outputs < 1 || p.inputs < 1 || p.inputs > kLargestLayer || p.outputs > kLargestLayer)
    fail(TB_ERROR_ARGUMENT, "%d rows, %d inputs, %d outputs; at least 1, inputs and outputs at most %d", p.rows,
         p.inputs, p.outputs, kLargestLayer);
  if (p.scales != 1 && p.scales != p.outputs)
    fail(TB_ERROR_ARGUMENT, "%d scales for %d outputs; 1 or one each", p.scales, p.outputs);
  if (!p.codes || !p.x_scale || !p.x_offset || !p.weight || !p.scale || !p.y)
    fail(TB_ERROR_ARGUMENT, "an array of the product is null");
}

} // namespace tb
