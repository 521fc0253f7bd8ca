// Texts in, answers out: a loaded model with its tokenizer (src/ternarybert/runtime/model.py and text.py).
#pragma once

#include "../packed/packed_model.h"
#include "tokenizer.h"

#include <optional>
#include <string>
#include <vector>

namespace tb {

// How a question's context is cut into windows and answers are chosen (src/ternarybert/data/squad).
struct AnsweringSettings {
  int64_t max_length = 384, stride = 128, max_question = 64, max_answer = 30, n_best = 20;
  std::optional<double> null_threshold; // none: every question has an answer
};

enum class Problem { kRegression, kSingleLabel, kMultiLabel };

} // namespace tb

struct tb_text_model {
  tb_text_model(const tb::Files &files, const char *kernel, int32_t threads, int32_t max_length);

  tb::Tokens encode(const tb_text &text, bool *truncated) const;
  tb::Tokens encode_whole(const tb_text &text) const; // however long it is
  void run(const std::vector<tb::Tokens> &inputs, bool types, int output, float *result, size_t size) const;
  void run_texts(const tb_text *texts, int32_t count, int output, float *result, size_t size) const;

  tb::LoadedModel model;
  tb::Problem problem = tb::Problem::kSingleLabel;
  tb::AnsweringSettings answering;
  std::vector<std::string> labels;
  std::vector<double> thresholds; // from which probability on each label applies, where several may
  int32_t max_length = 0;
  bool gives_types = false;
  bool keep_end = false; // texts are truncated at their beginning

private:
  tb_text_model(const tb::Files &files, tb::LoadedModel loaded, std::unique_ptr<tb::JsonFile> settings,
                int32_t longest);
  tb::Tokens encode(const tb_text &text, size_t most, bool *truncated) const;

public:
  tb::Tokenizer tokenizer;
};

namespace tb {

void normalize_rows(float *rows, size_t count, size_t width);
void probabilities(const tb_text_model &model, const float *logits, double *scores);
std::vector<tb_word> tag(const tb_text_model &model, const tb_text &text, bool join);
tb_span answer(const tb_text_model &model, const tb_text &pair);

} // namespace tb
