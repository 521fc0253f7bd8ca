// Bundled models from their bytes to answers: the same bits with every kernel, number of threads and platform; texts
// that are not UTF-8, and bundles that are damaged, are refused or answered and nothing else. The arguments are
// native/fuzz/model.tbert, words.tbert and answers.tbert, made by tools/fuzz_seeds.py.
#include "../src/packed/sha256.h"
#include "check.h"
#include "random_model.h"
#include "ternarybert.h"

#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

namespace {

// SHA-256 of the logits of kTexts; tests/native/test_c_library.py compares them with Python's.
constexpr const char *kLogits = "a1f12b29052c421780faaff5f5aa30ee3262845564c453c14a237b665de2617c";
constexpr const char *kTexts[] = {"the film was good", "", "Great! [SEP] zzz \xc3\xa9 \xe6\x97\xa5\xe6\x9c\xac"};
constexpr const char *kLong = "the film was good and we liked it but not the plot ";

using Bytes = std::vector<uint8_t>;

Bytes read_file(const char *path) {
  std::ifstream file(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

class Model {
public:
  explicit Model(const Bytes &bundle, const char *kernel = nullptr, int threads = 1) {
    status = tb_open_memory(bundle.data(), bundle.size(), kernel, threads, 0, &model_, &error);
    if (model_) tb_text_model_info(model_, &info, &error);
  }
  ~Model() { tb_close(model_); }
  Model(const Model &) = delete;
  Model &operator=(const Model &) = delete;

  const tb_text_model *get() const { return model_; }

  std::vector<float> logits(const std::vector<std::string> &texts) const {
    std::vector<tb_text> given;
    for (const std::string &text : texts)
      given.push_back({text.data(), text.size(), nullptr, 0});
    std::vector<float> found(texts.size() * static_cast<size_t>(info.labels));
    std::vector<double> scores(found.size());
    tb_error problem;
    const int32_t count = static_cast<int32_t>(texts.size());
    CHECK(tb_classify(model_, given.data(), count, found.data(), scores.data(), found.size(), &problem) == TB_OK);
    return found;
  }

  // Whatever the model's head is for; whether that worked. Everything that is read must have been written.
  bool answer(const std::string &text) const {
    const tb_text one = {text.data(), text.size(), nullptr, 0};
    const tb_text pair = {text.data(), text.size(), text.data(), text.size()};
    tb_error problem;
    if (info.task == TB_TASK_TAG) {
      tb_word *words = nullptr;
      int32_t count = 0;
      if (tb_tag(model_, &one, 1, &words, &count, &problem) != TB_OK) return false;
      for (int32_t i = 0; i < count; i++)
        CHECK(words[i].start <= words[i].end && words[i].end <= text.size() && std::strlen(words[i].label) < 100);
      tb_words_free(words);
      return true;
    }
    if (info.task == TB_TASK_ANSWER) {
      tb_span span;
      const int found = tb_answer(model_, &pair, &span, &problem);
      if (found == TB_OK && span.found) CHECK(span.start <= span.end && span.end <= text.size());
      return found == TB_OK;
    }
    std::vector<float> vector(static_cast<size_t>(info.hidden));
    return tb_embed(model_, &pair, 1, TB_OUTPUT_MEAN, 1, vector.data(), vector.size(), &problem) == TB_OK;
  }

  int status;
  tb_error error{};
  tb_text_info info{};

private:
  tb_text_model *model_ = nullptr;
};

std::string repeated(const std::string &text, int times) {
  std::string all;
  for (int i = 0; i < times; i++)
    all += text;
  return all;
}

void check_bits(const Bytes &bundle) {
  const std::vector<std::string> texts(std::begin(kTexts), std::end(kTexts));
  for (const char *const *kernel = tb_kernels(); *kernel; kernel++)
    for (const int threads : {1, 3}) {
      const std::vector<float> found = Model(bundle, *kernel, threads).logits(texts);
      const auto *const bytes = reinterpret_cast<const uint8_t *>(found.data());
      CHECK(tb::sha256(bytes, found.size() * sizeof(float)) == kLogits);
    }
}

void check_texts(const Bytes &bundle) {
  const Model model(bundle);
  CHECK(model.status == TB_OK);
  CHECK(model.answer("") && model.answer(kLong) && model.answer(repeated(kLong, 30)));
  CHECK(!model.answer("caf\xc3"));
  Random random(9);
  for (int i = 0; i < 300; i++) {
    std::string text;
    for (int n = random.below(60); n > 0; n--)
      text.push_back(static_cast<char>(random.below(4) ? 32 + random.below(95) : random.below(256)));
    const tb_text given = {text.data(), text.size(), nullptr, 0};
    tb_tokens tokens;
    tb_error error;
    const int status = tb_tokenize(model.get(), &given, &tokens, &error);
    CHECK(status == TB_OK || status == TB_ERROR_INPUT);
    CHECK(model.answer(text) == (status == TB_OK));
    if (status != TB_OK) continue;
    for (int32_t t = 0; t < tokens.count; t++)
      CHECK(tokens.starts[t] <= tokens.ends[t] && tokens.ends[t] <= text.size());
    tb_tokens_free(&tokens);
  }
}

Bytes with_hash(Bytes bundle) {
  const std::string digest = tb::sha256(bundle.data() + 40, bundle.size() - 40);
  for (size_t i = 0; i < 32; i++)
    bundle[8 + i] = static_cast<uint8_t>(std::stoi(digest.substr(2 * i, 2), nullptr, 16));
  return bundle;
}

// One bit of a byte, with a hash that fits, or without the end: a model that answers, or an error with a message.
void check_damage(const Bytes &bundle) {
  Random random(10);
  for (size_t at = 40; at < bundle.size(); at += 11) {
    Bytes damaged = bundle;
    damaged[at] ^= static_cast<uint8_t>(1 << random.below(8));
    const Model model(with_hash(damaged));
    CHECK((model.status == TB_OK) == (model.get() != nullptr));
    if (model.get())
      model.answer("the film was good");
    else
      CHECK(model.status != TB_ERROR_ARGUMENT && model.error.message[0] != 0);
  }
  for (size_t size = 48; size < bundle.size(); size += 331) {
    const Bytes cut(bundle.begin(), bundle.begin() + static_cast<ptrdiff_t>(size));
    CHECK(Model(cut).status == TB_ERROR_CONTAINER && Model(with_hash(cut)).status == TB_ERROR_CONTAINER);
  }
}

void check_concurrent_calls(const Bytes &bundle) {
  const Model model(bundle, nullptr, 2);
  const std::vector<std::string> texts = {"the film was good", repeated(kLong, 3), "dull"};
  const std::vector<float> expected = model.logits(texts);
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 6; i++)
    callers.emplace_back([&] {
      for (int turn = 0; turn < 20; turn++)
        if (model.logits(texts) != expected) wrong++;
    });
  for (std::thread &caller : callers)
    caller.join();
  CHECK(wrong == 0);
}

} // namespace

int main(int count, char **arguments) {
  CHECK(count > 1);
  if (count > 2 && std::strcmp(arguments[2], "concurrent") == 0) {
    check_concurrent_calls(read_file(arguments[1]));
    return report();
  }
  check_bits(read_file(arguments[1]));
  for (int i = 1; i < count; i++) {
    check_texts(read_file(arguments[i]));
    check_damage(read_file(arguments[i]));
  }
  return report();
}
