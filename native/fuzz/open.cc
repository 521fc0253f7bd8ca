// Fuzzing (libFuzzer): any bytes given to tb_open_memory are a model or a named error; `make fuzz`.
//
// The input is a bundle without its first 40 bytes: the hash would keep everything else out. A model that opens is run
// on what its head is for, with a text that most models read in windows.
#include "../src/packed/sha256.h"
#include "ternarybert.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

void run(const tb_text_model *model) {
  tb_text_info info;
  tb_error error;
  tb_text_model_info(model, &info, &error);
  std::string text;
  for (int i = 0; i < 20; i++)
    text += "the film was good ";
  const tb_text one = {text.data(), text.size(), nullptr, 0}, pair = {text.data(), 8, text.data(), text.size()};
  if (info.task == TB_TASK_TAG) {
    tb_word *words = nullptr;
    int32_t count;
    if (tb_tag(model, &one, 1, &words, &count, &error) != TB_OK) return;
    for (int32_t i = 0; i < count; i++)
      if (words[i].start > words[i].end || words[i].end > text.size()) std::abort();
    tb_words_free(words);
  } else if (info.task == TB_TASK_ANSWER) {
    tb_span span;
    if (tb_answer(model, &pair, &span, &error) != TB_OK) return;
    if (span.start > span.end || span.end > text.size()) std::abort();
  } else if (info.task == TB_TASK_CLASSIFY) {
    std::vector<float> logits(static_cast<size_t>(info.labels));
    std::vector<double> scores(logits.size());
    tb_classify(model, &one, 1, logits.data(), scores.data(), logits.size(), &error);
  }
  std::vector<float> vector(static_cast<size_t>(info.hidden));
  tb_embed(model, &one, 1, TB_OUTPUT_MEAN, 1, vector.data(), vector.size(), &error);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::vector<uint8_t> bundle = {'T', 'B', 'E', 'R', 'T', 0, 0, 1};
  const std::string digest = tb::sha256(data, size);
  for (size_t i = 0; i < 64; i += 2)
    bundle.push_back(static_cast<uint8_t>(std::stoi(digest.substr(i, 2), nullptr, 16)));
  bundle.insert(bundle.end(), data, data + size);
  tb_text_model *model = nullptr;
  tb_error error{};
  const int status = tb_open_memory(bundle.data(), bundle.size(), nullptr, 1, 0, &model, &error);
  if ((status == TB_OK) != (model != nullptr)) std::abort();
  if (!model) return error.message[0] ? 0 : (std::abort(), 0);
  run(model);
  tb_close(model);
  return 0;
}
