// The part of the C interface that takes texts. Results that the library allocates are plain malloc memory.
#include "../float_mode.h"
#include "../guarded.h"
#include "text_model.h"

#include <cmath>
#include <cstdlib>
#include <cstring>

namespace {

const tb_text_model &checked(const tb_text_model *model) {
  if (!model) tb::fail(TB_ERROR_ARGUMENT, "model is null");
  return *model;
}

template <class T> T *allocate(size_t count) {
  T *memory = static_cast<T *>(std::calloc(count ? count : 1, sizeof(T)));
  if (!memory) throw std::bad_alloc();
  return memory;
}

template <class Source>
void open(const Source &source, const char *kernel, int32_t threads, int32_t max_length, tb_text_model **model) {
  if (!model) tb::fail(TB_ERROR_ARGUMENT, "model is null");
  *model = nullptr;
  *model = new tb_text_model(*source(), kernel, threads, max_length);
}

} // namespace

extern "C" {

int tb_open(const char *path, const char *kernel, int32_t threads, int32_t max_length, tb_text_model **model,
            tb_error *error) {
  return tb::guarded(error, [&] {
    if (!path) tb::fail(TB_ERROR_ARGUMENT, "path is null");
    open([&] { return tb::open_files(path); }, kernel, threads, max_length, model);
  });
}

int tb_open_memory(const void *data, size_t size, const char *kernel, int32_t threads, int32_t max_length,
                   tb_text_model **model, tb_error *error) {
  return tb::guarded(error, [&] {
    if (!data) tb::fail(TB_ERROR_ARGUMENT, "data is null");
    open([&] { return tb::open_bundle(static_cast<const uint8_t *>(data), size); }, kernel, threads, max_length, model);
  });
}

void tb_close(tb_text_model *model) { delete model; }

int tb_text_model_info(const tb_text_model *model, tb_text_info *info, tb_error *error) {
  return tb::guarded(error, [&] {
    const tb_text_model &m = checked(model);
    if (!info) tb::fail(TB_ERROR_ARGUMENT, "info is null");
    constexpr int32_t tasks[] = {TB_TASK_CLASSIFY, TB_TASK_TAG, TB_TASK_ANSWER, TB_TASK_NONE};
    constexpr int32_t problems[] = {TB_PROBLEM_NUMBER, TB_PROBLEM_LABEL, TB_PROBLEM_LABELS};
    *info = {
        .task = tasks[static_cast<int>(m.model.kind)],
        .problem = problems[static_cast<int>(m.problem)],
        .labels = m.model.outputs,
        .hidden = m.model.hidden,
        .pooler = m.model.dense,
        .max_length = m.max_length,
        .model = m.model.engine.get(),
    };
  });
}

const char *tb_label(const tb_text_model *model, int32_t label) {
  if (!model || label < 0 || static_cast<size_t>(label) >= model->labels.size()) return nullptr;
  return model->labels[static_cast<size_t>(label)].c_str();
}

double tb_threshold(const tb_text_model *model, int32_t label) {
  if (!tb_label(model, label)) return NAN;
  return model->thresholds[static_cast<size_t>(label)];
}

int tb_tokenize(const tb_text_model *model, const tb_text *text, tb_tokens *tokens, tb_error *error) {
  return tb::guarded(error, [&] {
    if (!text || !tokens) tb::fail(TB_ERROR_ARGUMENT, "text or tokens is null");
    *tokens = {};
    bool truncated;
    const tb::Tokens found = checked(model).encode(*text, &truncated);
    const size_t count = found.size();
    int32_t *numbers = allocate<int32_t>(5 * count); // one block, freed through `ids`
    *tokens = {
        .count = static_cast<int32_t>(count),
        .truncated = truncated,
        .ids = numbers,
        .types = numbers + count,
        .words = numbers + 2 * count,
        .starts = reinterpret_cast<uint32_t *>(numbers + 3 * count),
        .ends = reinterpret_cast<uint32_t *>(numbers + 4 * count),
    };
    for (size_t i = 0; i < count; i++) {
      tokens->ids[i] = found[i].id;
      tokens->types[i] = found[i].type;
      tokens->words[i] = found[i].word;
      tokens->starts[i] = found[i].start;
      tokens->ends[i] = found[i].end;
    }
  });
}

void tb_tokens_free(tb_tokens *tokens) {
  if (!tokens) return;
  std::free(tokens->ids);
  *tokens = {};
}

int tb_classify(const tb_text_model *model, const tb_text *texts, int32_t count, float *logits, double *scores,
                size_t size, tb_error *error) {
  return tb::guarded(error, [&] {
    const tb_text_model &m = checked(model);
    if (m.model.kind != tb::HeadKind::kSequence) tb::fail(TB_ERROR_MODEL, "the model does not classify texts");
    m.run_texts(texts, count, TB_OUTPUT_LOGITS, logits, size);
    if (!scores) return;
    for (size_t at = 0; at < size; at += m.labels.size())
      tb::probabilities(m, logits + at, scores + at);
  });
}

int tb_embed(const tb_text_model *model, const tb_text *texts, int32_t count, int32_t output, int32_t normalize,
             float *vectors, size_t size, tb_error *error) {
  return tb::guarded(error, [&] {
    const tb_text_model &m = checked(model);
    if (output != TB_OUTPUT_MEAN && output != TB_OUTPUT_FIRST && output != TB_OUTPUT_DENSE)
      tb::fail(TB_ERROR_ARGUMENT, "output %d is none of MEAN, FIRST and DENSE", output);
    m.run_texts(texts, count, output, vectors, size);
    const tb::FloatMode mode;
    if (normalize && count > 0)
      tb::normalize_rows(vectors, static_cast<size_t>(count), size / static_cast<size_t>(count));
  });
}

int tb_tag(const tb_text_model *model, const tb_text *text, int32_t entities, tb_word **words, int32_t *count,
           tb_error *error) {
  return tb::guarded(error, [&] {
    if (!text || !words || !count) tb::fail(TB_ERROR_ARGUMENT, "text, words or count is null");
    *words = nullptr;
    *count = 0;
    const std::vector<tb_word> found = tb::tag(checked(model), *text, entities != 0);
    *words = allocate<tb_word>(found.size());
    if (!found.empty()) std::memcpy(*words, found.data(), found.size() * sizeof(tb_word));
    *count = static_cast<int32_t>(found.size());
  });
}

void tb_words_free(tb_word *words) { std::free(words); }

int tb_answer(const tb_text_model *model, const tb_text *pair, tb_span *answer, tb_error *error) {
  return tb::guarded(error, [&] {
    if (!pair || !answer) tb::fail(TB_ERROR_ARGUMENT, "pair or answer is null");
    *answer = tb::answer(checked(model), *pair);
  });
}

} // extern "C"
