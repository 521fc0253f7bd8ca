// Fuzzing (libFuzzer): any configuration and batch gives an answer, the same from every kernel, or a named error.
#include "input.h"

namespace {

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

// The same model for every kernel that this CPU can run.
using Models = std::vector<tb_model *>;

void run(Input &input, const Models &models, const tb_config &config) {
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
  const size_t size = (per_token ? tokens : lengths.size()) * static_cast<size_t>(width > 0 ? width : 1);
  std::vector<float> expected;
  int expected_status = TB_OK;
  for (const tb_model *model : models) {
    std::vector<float> result(size);
    tb_error error{};
    const int status = tb_run(model, &batch, output, result.data(), result.size(), &error);
    if (model == models.front()) expected_status = status;
    if (status != expected_status) fail("kernels differ in their status");
    if (!ok(status, error)) continue;
    for (const float x : result)
      if (!(x - x == 0.0f)) fail("a number that is not finite, without an error");
    if (model == models.front()) expected = result;
    if (std::memcmp(result.data(), expected.data(), size * sizeof(float)) != 0) fail("kernels differ");
  }
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

  const int threads = 1 + input.below(2);
  Models models;
  for (const char *const *kernel = tb_kernels(); *kernel; kernel++) {
    tb_model *model = nullptr;
    tb_error error{};
    const int status = tb_model_create(&config, *kernel, threads, &model, &error);
    if (ok(status, error) != (model != nullptr)) fail("status and model differ");
    if (kernel != tb_kernels() && (model == nullptr) != models.empty()) fail("kernels differ in what they accept");
    if (model) models.push_back(model);
  }
  for (int i = 0; !models.empty() && i < 3; i++)
    run(input, models, config);
  for (tb_model *model : models)
    tb_model_free(model);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Input input(data, size);
  make_model(input);
  return 0;
}
