// Whole models: kernels, batches and threads give the same bits; random input gives answers or named errors.
#include "check.h"
#include "random_model.h"

#include <atomic>
#include <cfenv>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#if defined(__unix__) || defined(__APPLE__)
#include <sys/wait.h>
#include <unistd.h>
#endif

namespace {

constexpr Shape kSmall = {.hidden = 40, .heads = 4, .intermediate = 72, .layers = 2, .vocabulary = 60, .positions = 48};

class Model {
public:
  explicit Model(const RandomModel &random, const char *kernel = nullptr, int threads = 1) {
    tb_error error;
    if (tb_model_create(&random.config, kernel, threads, &model_, &error) != TB_OK) {
      failures++;
      std::fprintf(stderr, "%s\n", error.message);
    }
    hidden_ = static_cast<size_t>(random.config.hidden);
  }
  ~Model() { free(); }
  Model(const Model &) = delete;
  Model &operator=(const Model &) = delete;

  std::vector<float> run(const RandomBatch &batch, int output = TB_OUTPUT_LOGITS) const {
    const size_t rows = output == TB_OUTPUT_HIDDEN ? batch.ids.size() : batch.lengths.size();
    std::vector<float> result(rows * (output == TB_OUTPUT_LOGITS ? 2 : hidden_));
    const tb_batch b = batch.get();
    tb_error error;
    if (tb_run(model_, &b, output, result.data(), result.size(), &error) != TB_OK) {
      failures++;
      std::fprintf(stderr, "%s\n", error.message);
    }
    return result;
  }
  void free() {
    tb_model_free(model_);
    model_ = nullptr;
  }
  const tb_model *get() const { return model_; }

private:
  tb_model *model_ = nullptr;
  size_t hidden_;
};

RandomBatch ragged(Random &random, int sequences, int longest) {
  RandomBatch batch(0, 0, 1);
  for (int i = 0; i < sequences; i++) {
    batch.lengths.push_back(1 + random.below(longest));
    for (int t = 0; t < batch.lengths.back(); t++)
      batch.ids.push_back(random.below(kSmall.vocabulary));
  }
  return batch;
}

void check_kernels() {
  Random random(5);
  for (const int range : {TB_RANGE_TOKEN, TB_RANGE_SEQUENCE})
    for (const int bits : {8, 5, 32}) {
      RandomModel made(kSmall);
      made.config.range = range;
      made.config.activation_bits = bits;
      const RandomBatch batch = ragged(random, 6, kSmall.positions);
      const std::vector<float> expected = Model(made, "portable").run(batch, TB_OUTPUT_HIDDEN);
      for (const char *const *kernel = tb_kernels(); *kernel; kernel++)
        for (const int threads : {1, 3})
          CHECK(Model(made, *kernel, threads).run(batch, TB_OUTPUT_HIDDEN) == expected);
    }
}

// Several callers of one model, some of which find the pool busy.
void check_concurrent_calls() {
  const RandomModel made(kSmall);
  const Model model(made, nullptr, 3);
  Random random(6);
  std::vector<RandomBatch> batches;
  std::vector<std::vector<float>> expected;
  for (int i = 0; i < 12; i++) {
    batches.push_back(ragged(random, 1 + i, kSmall.positions));
    expected.push_back(model.run(batches.back()));
  }
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (size_t c = 0; c < 8; c++)
    callers.emplace_back([&, c] {
      for (size_t i = 0; i < 25; i++) {
        const size_t which = (c + i) % batches.size();
        if (model.run(batches[which]) != expected[which]) wrong++;
      }
    });
  for (std::thread &caller : callers)
    caller.join();
  CHECK(wrong == 0);
}

// The rounding mode is a setting of the thread; the results do not depend on it.
void check_rounding() {
  const RandomModel made(kSmall);
  const RandomBatch batch(1, 20, kSmall.vocabulary);
  const std::vector<float> expected = Model(made).run(batch, TB_OUTPUT_HIDDEN);
  std::fesetround(FE_UPWARD);
  const Model model(made, nullptr, 3);
  CHECK(model.run(batch, TB_OUTPUT_HIDDEN) == expected);
  CHECK(std::fegetround() == FE_UPWARD);
  std::fesetround(FE_TONEAREST);
}

void check_fork() {
#if defined(__unix__) || defined(__APPLE__)
  const RandomModel made(kSmall);
  Model model(made, nullptr, 3);
  const RandomBatch batch(2, 20, kSmall.vocabulary);
  const std::vector<float> expected = model.run(batch);
  std::this_thread::sleep_for(std::chrono::milliseconds(20)); // the threads sleep: the harder case
  const pid_t child = fork();
  if (child == 0) {
    const bool same = model.run(batch) == expected;
    model.free();
    _exit(same ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(model.run(batch) == expected);
#endif
}

// A layer without a bias adds nothing, as in numerics.py: -0 stays -0, which adding +0 would turn into +0.
void check_no_bias() {
  const std::vector<uint8_t> two_bits(static_cast<size_t>(kSmall.hidden * kSmall.hidden) / 4, 0x55); // all codes 0
  const std::vector<uint8_t> eight_bits(static_cast<size_t>(kSmall.hidden * kSmall.hidden), 0x00);
  const float scale = -1.0f; // times a sum of +0
  const RandomBatch batch(3, 5, kSmall.vocabulary);
  for (const int activation_bits : {8, 32}) // weights in panels, and in rows
    for (const int bits : {2, 8}) {
      RandomModel made(kSmall);
      made.config.activation_bits = activation_bits;
      made.config.dense_function = TB_IDENTITY;
      made.config.dense.weight.bits = bits;
      made.config.dense.weight.codes = bits == 2 ? two_bits.data() : eight_bits.data();
      made.config.dense.weight.scale = &scale;
      made.config.dense.bias = nullptr;
      for (const char *const *kernel = tb_kernels(); *kernel; kernel++)
        for (const float y : Model(made, *kernel).run(batch, TB_OUTPUT_DENSE))
          CHECK(y == 0.0f && std::signbit(y));
    }
}

// A sequence much longer than the others: working memory grows, shrinks, and never shows in the result.
void check_memory_shrinks() {
  constexpr Shape kLong = {
      .hidden = 40, .heads = 4, .intermediate = 72, .layers = 2, .vocabulary = 60, .positions = 2000};
  const RandomModel made(kLong);
  const RandomBatch small(2, 9, kLong.vocabulary), large(1, 2000, kLong.vocabulary);
  for (const int threads : {1, 2}) {
    const Model model(made, nullptr, threads);
    const std::vector<float> expected = model.run(small), expected_large = model.run(large);
    for (int i = 0; i < 80; i++)
      CHECK(model.run(small) == expected);
    CHECK(model.run(large) == expected_large);
    CHECK(model.run(small) == expected);
  }
}

// Ten thousand batches: ids out of range, nothing, too much.
void check_random_input() {
  const RandomModel made(kSmall);
  const Model model(made);
  Random random(8);
  int answers = 0, errors = 0;
  for (int i = 0; i < 10000; i++) {
    const int sequences = random.below(20) ? 1 + random.below(2) : 0;
    std::vector<int32_t> lengths, ids, types;
    for (int s = 0; s < sequences; s++) {
      const int length = random.below(10) ? 1 + random.below(6) : random.below(60) - 3;
      lengths.push_back(length);
      for (int t = 0; t < length; t++) {
        ids.push_back(random.below(40) ? random.below(60) : static_cast<int32_t>(random.next()));
        types.push_back(random.below(60) ? random.below(2) : random.below(9) - 4);
      }
    }
    ids.push_back(0); // never null
    lengths.push_back(0);
    types.push_back(0);
    const tb_batch batch{
        .sequences = sequences,
        .lengths = lengths.data(),
        .ids = ids.data(),
        .types = random.below(2) ? types.data() : nullptr,
    };
    float result[4];
    tb_error error{};
    const size_t size = random.below(30) ? static_cast<size_t>(2 * sequences) : random.below(5);
    const int status = tb_run(model.get(), &batch, TB_OUTPUT_LOGITS, result, size, &error);
    CHECK(status == TB_OK || ((status == TB_ERROR_INPUT || status == TB_ERROR_ARGUMENT) && error.message[0]));
    (status == TB_OK ? answers : errors)++;
  }
  CHECK(answers > 1000 && errors > 1000);
}

// A configuration with one error is refused, with a message that names it.
template <class Function> void check_refused(int status, const char *words, Function damage) {
  RandomModel made(kSmall);
  tb_layer layers[2] = {made.config.layer[0], made.config.layer[1]};
  made.config.layer = layers;
  damage(made, layers[1]);
  tb_model *model = nullptr;
  tb_error error{};
  const int found = tb_model_create(&made.config, nullptr, 1, &model, &error);
  if (found != status || model || std::string(error.message).find(words) == std::string::npos) {
    failures++;
    std::fprintf(stderr, "status %d, \"%s\" instead of %d, \"%s\"\n", found, error.message, status, words);
  }
  tb_model_free(model);
}

void check_refusals() {
  check_refused(TB_ERROR_ARGUMENT, "header and library differ", [](RandomModel &m, tb_layer &) { m.config.size--; });
  check_refused(TB_ERROR_MODEL, "hidden is 0", [](RandomModel &m, tb_layer &) { m.config.hidden = 0; });
  check_refused(TB_ERROR_MODEL, "heads", [](RandomModel &m, tb_layer &) { m.config.heads = 7; });
  check_refused(TB_ERROR_MODEL, "positions", [](RandomModel &m, tb_layer &) { m.config.positions = -1; });
  check_refused(TB_ERROR_MODEL, "norm_eps", [](RandomModel &m, tb_layer &) { m.config.norm_eps = NAN; });
  check_refused(TB_ERROR_MODEL, "activation_bits", [](RandomModel &m, tb_layer &) { m.config.activation_bits = 9; });
  check_refused(TB_ERROR_MODEL, "clip", [](RandomModel &m, tb_layer &) { m.config.clip = -1; });
  check_refused(TB_ERROR_MODEL, "word has no codes", [](RandomModel &m, tb_layer &) { m.config.word.codes = nullptr; });
  check_refused(TB_ERROR_MODEL, "layer is missing", [](RandomModel &m, tb_layer &) { m.config.layer = nullptr; });
  check_refused(TB_ERROR_MODEL, "layer 1: up is 71 x 40, not 72 x 40",
                [](RandomModel &, tb_layer &layer) { layer.up.weight.rows = 71; });
  check_refused(TB_ERROR_MODEL, "layer 1: key has 5 bits",
                [](RandomModel &, tb_layer &layer) { layer.key.weight.bits = 5; });
  check_refused(TB_ERROR_MODEL, "layer 1: down has 2 scales",
                [](RandomModel &, tb_layer &layer) { layer.down.weight.scales = 2; });
  check_refused(TB_ERROR_MODEL, "layer 1: value",
                [](RandomModel &m, tb_layer &layer) { layer.value.weight.scale = m.floats(1, 0.0f, INFINITY); });
  check_refused(TB_ERROR_MODEL, "layer 1: query has a code or padding in row 3", [](RandomModel &, tb_layer &layer) {
    static uint8_t codes[400];
    std::memset(codes, 0x55, sizeof codes);
    codes[35] = 0x5d; // index 3
    layer.query.weight.codes = codes;
  });
  check_refused(TB_ERROR_MODEL, "head is 2 x 39, not 2 x 40",
                [](RandomModel &m, tb_layer &) { m.config.head.weight.columns = 39; });
}

void check_null() {
  const RandomModel made(kSmall);
  const Model model(made);
  tb_error error;
  tb_model *out = nullptr;
  float result[2];
  const RandomBatch batch(1, 3, kSmall.vocabulary);
  const tb_batch b = batch.get(), nothing{};
  CHECK(tb_model_create(nullptr, nullptr, 1, &out, &error) == TB_ERROR_ARGUMENT);
  CHECK(tb_model_create(&made.config, nullptr, 1, nullptr, nullptr) == TB_ERROR_ARGUMENT);
  CHECK(tb_model_create(&made.config, nullptr, 0, &out, &error) == TB_ERROR_ARGUMENT);
  CHECK(tb_model_create(&made.config, "abacus", 1, &out, &error) == TB_ERROR_KERNEL);
  CHECK(tb_run(nullptr, &b, TB_OUTPUT_LOGITS, result, 2, &error) == TB_ERROR_ARGUMENT);
  CHECK(tb_run(model.get(), nullptr, TB_OUTPUT_LOGITS, result, 2, &error) == TB_ERROR_ARGUMENT);
  CHECK(tb_run(model.get(), &nothing, TB_OUTPUT_LOGITS, result, 2, &error) == TB_ERROR_INPUT);
  CHECK(tb_run(model.get(), &b, TB_OUTPUT_LOGITS, nullptr, 2, &error) == TB_ERROR_ARGUMENT);
  CHECK(tb_run(model.get(), &b, TB_OUTPUT_LOGITS, result, 3, &error) == TB_ERROR_ARGUMENT);
  CHECK(tb_run(model.get(), &b, 99, result, 2, &error) == TB_ERROR_ARGUMENT);
  CHECK(tb_run(model.get(), &b, TB_OUTPUT_LOGITS, result, 2, nullptr) == TB_OK);
  float by_itself[2];
  CHECK(tb_run_alone(model.get(), &b, TB_OUTPUT_LOGITS, by_itself, 2, nullptr) == TB_OK);
  CHECK(std::memcmp(by_itself, result, sizeof result) == 0);
  CHECK(tb_run_alone(nullptr, &b, TB_OUTPUT_LOGITS, result, 2, &error) == TB_ERROR_ARGUMENT);
  CHECK(tb_run_alone(model.get(), &b, 99, result, 2, &error) == TB_ERROR_ARGUMENT);
}

} // namespace

// All, or with an argument only the concurrent calls (the thread sanitizer is slow).
int main(int count, char **) {
  check_concurrent_calls();
  if (count > 1) return report();
  check_kernels();
  check_rounding();
  check_fork();
  check_no_bias();
  check_memory_shrinks();
  check_random_input();
  check_refusals();
  check_null();
  return report();
}
