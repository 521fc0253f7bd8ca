// Fuzzing (libFuzzer): any configuration, model, batch and product gives an answer or a named error; `make fuzz`.
//
// The input's bytes choose settings and sizes, also wrong ones, and fill the arrays. The arrays have the sizes that the
// header asks for (a C interface cannot check those) and end where they must: the address sanitizer notices a byte read
// too far.
#include "ternarybert.h"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

namespace {

class Input {
public:
  Input(const uint8_t *data, size_t size) : data_(data), size_(size) {}

  uint8_t byte() { return next_ < size_ ? data_[next_++] : 0; }
  int below(int n) { return byte() % n; }
  // Mostly what makes a model; sometimes any number.
  int32_t mostly(int32_t value) {
    if (below(64) != 63) return value;
    int32_t any = 0;
    for (int i = 0; i < 4; i++)
      any = static_cast<int32_t>(static_cast<uint32_t>(any) << 8 | byte());
    return any;
  }

  // Arrays live as long as the input. When the bytes are used up they repeat.
  uint8_t *bytes(size_t count) {
    memory_.push_back(std::make_unique<uint8_t[]>(count));
    uint8_t *const to = memory_.back().get();
    for (size_t i = 0; i < count; i++)
      to[i] = size_ ? data_[(next_ + i) % size_] : 0;
    next_ += count < 64 ? count : 64;
    return to;
  }
  float *floats(size_t count) {
    float *const x = reinterpret_cast<float *>(bytes(count * sizeof(float)));
    const int kind = below(16);
    for (size_t i = 0; i < count && kind != 15; i++) { // 15: any bits, also NaN
      int8_t small;
      std::memcpy(&small, reinterpret_cast<const char *>(x + i), 1);
      x[i] = static_cast<float>(small) * (kind == 14 ? 1e36f : 0.01f);
    }
    return x;
  }

private:
  const uint8_t *data_;
  size_t size_, next_ = 0;
  std::vector<std::unique_ptr<uint8_t[]>> memory_;
};

void fail(const char *why) {
  std::fprintf(stderr, "%s\n", why);
  std::abort();
}

// A failure has words; the largest status is TB_ERROR_NUMERIC.
bool ok(int status, const tb_error &error) {
  if (status < TB_OK || status > TB_ERROR_NUMERIC) fail("unknown status");
  if (status != TB_OK && !std::memchr(error.message, 0, sizeof error.message)) fail("unterminated message");
  if (status != TB_OK && !error.message[0]) fail("no message");
  return status == TB_OK;
}

// 0x55 is a row of valid 2-bit codes, and so on: random bytes would hardly ever be a valid matrix.
void make_valid(const tb_matrix &m, uint8_t *codes, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) {
    if (m.bits == 2 && m.dense) codes[i] = static_cast<uint8_t>(codes[i] % 243);
    if (m.bits == 2 && !m.dense) codes[i] = static_cast<uint8_t>(codes[i] & ~((codes[i] & codes[i] << 1) & 0xaa));
    if (m.bits == 8 && codes[i] == 0x80) codes[i] = 0x7f;
  }
}

tb_matrix matrix(Input &input, int rows, int columns) {
  constexpr int32_t kBits[] = {2, 2, 2, 3, 4, 8, 32, 2};
  tb_matrix m{};
  m.rows = rows;
  m.columns = columns;
  m.bits = kBits[input.below(8)];
  m.log = (m.bits == 3 || m.bits == 4) && input.below(2);
  m.dense = m.bits == 2 && input.below(2);
  m.scales = input.below(2) ? rows : 1;
  const size_t n = static_cast<size_t>(columns);
  const size_t row = m.bits == 32 ? 4 * n : m.dense ? (n + 4) / 5 : (n * static_cast<size_t>(m.bits) + 7) / 8;
  const size_t count = static_cast<size_t>(rows);
  if (m.bits == 32) {
    m.codes = input.floats(count * n);
  } else {
    uint8_t *const codes = input.bytes(count * row);
    if (input.below(8) != 7) make_valid(m, codes, count * row);
    m.codes = codes;
  }
  m.scale = input.floats(static_cast<size_t>(m.scales));
  // Wrong columns and settings are refused before any array is read. (Rows of the embedding and of the heads are not
  // wrong but larger: the caller's array must have them.)
  if (input.below(128) == 127) m.columns = input.mostly(m.columns + 1);
  if (input.below(128) == 127) m.bits = 5;
  return m;
}

tb_linear linear(Input &input, int rows, int columns) {
  tb_linear l{};
  l.weight = matrix(input, rows, columns);
  if (input.below(2)) l.bias = input.floats(static_cast<size_t>(rows));
  return l;
}

tb_norm norm(Input &input, int n) {
  tb_norm both{};
  both.weight = input.floats(static_cast<size_t>(n));
  both.bias = input.floats(static_cast<size_t>(n));
  return both;
}

void run(Input &input, const tb_model *model, const tb_config &config) {
  std::vector<int32_t> lengths, ids, types;
  size_t tokens = 0;
  for (int s = input.below(4); s >= 0; s--) {
    lengths.push_back(input.mostly(1 + input.below(config.positions + 1)));
    for (int32_t i = 0; i < lengths.back() && i < config.positions + 1; i++) {
      ids.push_back(input.mostly(input.below(config.word.rows)));
      types.push_back(input.mostly(config.types > 0 ? input.below(config.types) : 0));
      tokens++;
    }
  }
  tb_batch batch{};
  batch.sequences = static_cast<int32_t>(lengths.size());
  batch.lengths = lengths.data();
  batch.ids = ids.data();
  batch.types = input.below(2) ? types.data() : nullptr;
  const int output = input.below(7); // 6 does not exist
  const bool per_token = output == TB_OUTPUT_HIDDEN || output == TB_OUTPUT_TOKEN_LOGITS;
  const int width = output == TB_OUTPUT_DENSE                                        ? config.dense.weight.rows
                    : output == TB_OUTPUT_LOGITS || output == TB_OUTPUT_TOKEN_LOGITS ? config.head.weight.rows
                                                                                     : config.hidden;
  std::vector<float> result((per_token ? tokens : lengths.size()) * static_cast<size_t>(width > 0 ? width : 1));
  tb_error error{};
  const int status = tb_run(model, &batch, output, result.data(), result.size(), &error);
  if (!ok(status, error)) return;
  for (const float x : result)
    if (!(x - x == 0.0f)) fail("a number that is not finite, without an error");
}

void make_model(Input &input) {
  tb_config config{};
  const int hidden = (1 + input.below(4)) * (1 + input.below(20)), intermediate = 1 + input.below(80);
  const int words = 1 + input.below(20), positions = 1 + input.below(40), types = input.below(3);
  config.size = sizeof config;
  config.hidden = hidden;
  config.heads = input.below(4) + 1;
  config.intermediate = intermediate;
  config.layers = 1 + input.below(2);
  config.positions = positions;
  config.first_position = input.mostly(input.below(3));
  config.types = types;
  config.function = input.mostly(1 + input.below(3));
  config.norm_eps = 1e-12;
  config.activation_bits = input.mostly(input.below(4) ? 8 : input.below(2) ? 32 : 2 + input.below(7));
  config.range = input.mostly(input.below(2));
  config.symmetric = input.mostly(input.below(2));
  config.clip = input.below(4) ? 0.0f : 1.5f;
  config.word = matrix(input, words, hidden);
  config.position = input.floats(static_cast<size_t>(positions * hidden));
  config.type = input.floats(static_cast<size_t>(types * hidden));
  config.embedding_norm = norm(input, hidden);
  std::vector<tb_layer> layers(static_cast<size_t>(config.layers));
  for (tb_layer &layer : layers) {
    for (tb_linear *l : {&layer.query, &layer.key, &layer.value, &layer.attention_output})
      *l = linear(input, hidden, hidden);
    layer.up = linear(input, intermediate, hidden);
    layer.down = linear(input, hidden, intermediate);
    layer.attention_norm = norm(input, hidden);
    layer.output_norm = norm(input, hidden);
  }
  config.layer = layers.data();
  const int dense = input.below(2) * (1 + input.below(70));
  if (dense > 0) config.dense = linear(input, dense, hidden);
  config.dense_function = input.below(5);
  config.dense_quantized = input.below(2);
  config.head = linear(input, 1 + input.below(4), dense > 0 ? dense : hidden);

  tb_model *model = nullptr;
  tb_error error{};
  const int status = tb_model_create(&config, nullptr, 1 + input.below(2), &model, &error);
  if (ok(status, error) != (model != nullptr)) fail("status and model differ");
  for (int i = 0; model && i < 3; i++)
    run(input, model, config);
  tb_model_free(model);
}

void multiply(Input &input) {
  tb_product p{};
  p.rows = 1 + input.below(70);
  p.inputs = 1 + input.below(200);
  p.outputs = 1 + input.below(100);
  p.scales = input.below(2) ? p.outputs : 1;
  const size_t rows = static_cast<size_t>(p.rows), inputs = static_cast<size_t>(p.inputs);
  const size_t outputs = static_cast<size_t>(p.outputs);
  p.codes = input.floats(rows * inputs); // not whole numbers: no right answer, but no crash
  p.x_scale = input.floats(rows);
  p.x_offset = input.floats(rows);
  uint8_t *const weight = input.bytes(outputs * inputs);
  for (size_t i = 0; i < outputs * inputs && input.below(2); i++)
    weight[i] = static_cast<uint8_t>(weight[i] % 3 - 1);
  p.weight = reinterpret_cast<const int8_t *>(weight);
  p.scale = input.floats(static_cast<size_t>(p.scales));
  if (input.below(2)) p.bias = input.floats(outputs);
  std::vector<float> y(rows * outputs);
  p.y = y.data();
  tb_error error{};
  ok(tb_multiply(&p, nullptr, 1, &error), error);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Input input(data, size);
  if (input.below(4) == 0)
    multiply(input);
  else
    make_model(input);
  return 0;
}
