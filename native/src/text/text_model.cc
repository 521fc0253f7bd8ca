#include "text_model.h"

#include "../failure.h"
#include "windows.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace tb {
namespace {

constexpr size_t kBatchTokens = 2048; // computed together

Problem problem_of(Json config, size_t labels) {
  const Json problem = member(config, "problem_type");
  if (!problem || yyjson_is_null(problem)) return labels == 1 ? Problem::kRegression : Problem::kSingleLabel;
  if (equals(problem, "regression")) return Problem::kRegression;
  if (equals(problem, "single_label_classification")) return Problem::kSingleLabel;
  if (equals(problem, "multi_label_classification")) return Problem::kMultiLabel;
  fail(TB_ERROR_CONFIG, "config.json has problem_type %s", shown(problem).c_str());
}

// A label that is not a string, as Python shows it.
std::string label_text(Json name) {
  if (is_string(name)) return std::string(text_of(name));
  if (yyjson_is_null(name)) return "None";
  if (yyjson_is_bool(name)) return yyjson_get_bool(name) ? "True" : "False";
  if (!integer_of(name)) fail(TB_ERROR_CONFIG, "id2label in config.json has the label %s", shown(name).c_str());
  return shown(name);
}

// Refuses a name that does something where it is shown: on a terminal, or in a cell of a spreadsheet.
void check_label(std::string_view name) {
  const Characters characters = decode(name);
  const auto is_control = [](const Character &c) { return c.code < 0x20 || (c.code >= 0x7f && c.code < 0xa0); };
  if (std::any_of(characters.begin(), characters.end(), is_control))
    fail(TB_ERROR_CONFIG, "the label %s in config.json has control characters", shown(name).c_str());
  const auto start =
      std::find_if(characters.begin(), characters.end(), [](const Character &c) { return !is_space(c.code); });
  if (start == characters.end() || start->code >= 0x80) return;
  const bool begins = std::string_view("=+-@").find(static_cast<char>(start->code)) != std::string_view::npos;
  if (begins && name.find_first_of("(|!") != std::string_view::npos)
    fail(TB_ERROR_CONFIG, "the label %s in config.json is a spreadsheet formula; rename it", shown(name).c_str());
}

std::vector<std::string> label_names(Json config, int32_t count) {
  std::vector<std::string> labels;
  const Json names = member(config, "id2label");
  const bool named = is_object(names) && yyjson_obj_size(names) > 0;
  if (named && count > 0 && yyjson_obj_size(names) != static_cast<size_t>(count))
    fail(TB_ERROR_CONFIG, "id2label in config.json has %zu labels, but the model has %d outputs",
         yyjson_obj_size(names), count);
  for (int32_t i = 0; i < count; i++) {
    const Json name = named ? member(names, std::to_string(i)) : nullptr;
    if (named && !name)
      fail(TB_ERROR_CONFIG, "id2label in config.json has no label %d, but the model has %d outputs", i, count);
    labels.push_back(named ? label_text(name) : "LABEL_" + std::to_string(i));
  }
  if (named) each_member(names, [](std::string_view, Json name) { check_label(label_text(name)); });
  return labels;
}

// From which probability on each of several labels applies (src/ternarybert/data/multi_label.py).
std::vector<double> thresholds_of(Json config, const std::vector<std::string> &labels) {
  std::vector<double> thresholds(labels.size(), 0.5);
  const Json section = member(config, "multi_label");
  if (!section || yyjson_is_null(section)) return thresholds;
  const Json values = is_object(section) ? member(section, "thresholds") : nullptr;
  const std::set<std::string_view> names(labels.begin(), labels.end());
  if (!is_object(values) || yyjson_obj_size(values) != names.size())
    fail(TB_ERROR_CONFIG, "config.json: multi_label.thresholds must have a number for each label");
  for (size_t i = 0; i < labels.size(); i++) {
    const Json value = member(values, labels[i]);
    const auto number = number_of(value);
    if (!number || !(*number >= 0 && *number <= 1))
      fail(TB_ERROR_CONFIG, "config.json: the threshold of %s is %s, not a number from 0 to 1",
           shown(labels[i]).c_str(), shown(value).c_str());
    thresholds[i] = *number;
  }
  return thresholds;
}

// Whether transformers' tokenizer of this model gives token types, as the model saw them in training.
bool types_given(Json settings) {
  const Json names = settings ? member(settings, "model_input_names") : nullptr;
  if (is_list(names)) {
    bool found = false;
    each_item(names, [&](Json name) { found = found || equals(name, "token_type_ids"); });
    return found;
  }
  const Json name = settings ? member(settings, "tokenizer_class") : nullptr;
  if (!name) return true;
  return is_string(name) && (text_of(name).starts_with("Bert") || text_of(name).starts_with("Electra"));
}

AnsweringSettings answering_of(Json config) {
  AnsweringSettings settings;
  const Json section = member(config, "question_answering");
  if (!section || yyjson_is_null(section)) return settings;
  if (!is_object(section)) fail(TB_ERROR_CONFIG, "config.json: question_answering is %s", shown(section).c_str());
  const std::pair<const char *, int64_t *> sizes[] = {
      {"max_length", &settings.max_length}, {"stride", &settings.stride}, {"max_question", &settings.max_question},
      {"max_answer", &settings.max_answer}, {"n_best", &settings.n_best},
  };
  for (const auto &[name, place] : sizes) {
    const Json value = member(section, name);
    if (!value) continue;
    const int64_t number = yyjson_is_bool(value) ? 0 : integer_of(value).value_or(0);
    if (number < 1) fail(TB_ERROR_CONFIG, "config.json: question_answering.%s is %s", name, shown(value).c_str());
    *place = std::min<int64_t>(number, 1 << 20);
  }
  const Json threshold = member(section, "null_threshold");
  if (!threshold || yyjson_is_null(threshold)) return settings;
  settings.null_threshold = number_of(threshold);
  if (!settings.null_threshold)
    fail(TB_ERROR_CONFIG, "config.json: question_answering.null_threshold is %s", shown(threshold).c_str());
  return settings;
}

// NumPy's order of summation, so that vectors of length 1 have the same bits.
float pairwise_squares(const float *x, size_t n) {
  if (n < 8) {
    float sum = n ? x[0] * x[0] : 0.0f;
    for (size_t i = 1; i < n; i++)
      sum += x[i] * x[i];
    return sum;
  }
  if (n > 128) {
    const size_t half = n / 2 / 8 * 8;
    return pairwise_squares(x, half) + pairwise_squares(x + half, n - half);
  }
  float lanes[8];
  for (size_t i = 0; i < 8; i++)
    lanes[i] = x[i] * x[i];
  size_t i = 8;
  for (; i + 8 <= n; i += 8)
    for (size_t lane = 0; lane < 8; lane++)
      lanes[lane] += x[i + lane] * x[i + lane];
  float sum = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
  for (; i < n; i++)
    sum += x[i] * x[i];
  return sum;
}

std::pair<char, std::string_view> label_parts(std::string_view label) { // B-PER as B and PER
  const bool has_prefix =
      label.size() >= 2 && label[1] == '-' && std::string_view("BIES").find(label[0]) != std::string_view::npos;
  return has_prefix ? std::pair{label[0], label.substr(2)} : std::pair{char(0), label};
}

// Words joined by the B-, I-, E- and S- of their labels; those outside are left out.
std::vector<tb_word> entities(const std::vector<tb_word> &words) {
  std::vector<tb_word> joined;
  std::vector<int> sizes;
  bool open = false; // whether the next word may continue the last entity
  std::string_view last;
  for (const tb_word &word : words) {
    const auto [prefix, kind] = label_parts(word.label);
    if (kind == "O") {
      open = false;
      continue;
    }
    if (open && prefix != 'B' && prefix != 'S' && last == kind) {
      joined.back().score += word.score;
      joined.back().end = word.end;
      sizes.back()++;
    } else {
      joined.push_back({kind.data(), word.score, word.start, word.end}); // the end of the label's name
      sizes.push_back(1);
    }
    open = prefix != 'E' && prefix != 'S';
    last = kind;
  }
  for (size_t i = 0; i < joined.size(); i++)
    joined[i].score /= sizes[i];
  return joined;
}

// The logits of all tokens of a text; of special tokens around a text that is read in windows they are zeros.
std::vector<float> token_logits(const tb_text_model &model, const Tokens &tokens) {
  const size_t labels = model.labels.size(), longest = static_cast<size_t>(model.max_length);
  std::vector<float> logits(tokens.size() * labels);
  if (tokens.size() <= longest) {
    model.run({tokens}, false, TB_OUTPUT_TOKEN_LOGITS, logits.data(), logits.size());
    return logits;
  }
  const auto is_special = [](const Token &token) { return token.word < 0; };
  const auto content = std::find_if_not(tokens.begin(), tokens.end(), is_special);
  const auto end = std::find_if_not(tokens.rbegin(), tokens.rend(), is_special).base();
  const size_t before = static_cast<size_t>(content - tokens.begin()), after = static_cast<size_t>(tokens.end() - end);
  const size_t total = tokens.size() - before - after, room = longest - before - after;
  for (const Window &window : cut_windows(total, room, std::max<size_t>(1, room / 2))) {
    const auto first = content + static_cast<ptrdiff_t>(window.first);
    Tokens input(tokens.begin(), content);
    input.insert(input.end(), first, first + static_cast<ptrdiff_t>(window.count));
    input.insert(input.end(), end, tokens.end());
    std::vector<float> rows(input.size() * labels);
    model.run({input}, false, TB_OUTPUT_TOKEN_LOGITS, rows.data(), rows.size());
    const float *const own = &rows[(before + window.own_from - window.first) * labels];
    std::copy(own, own + (window.own_to - window.own_from) * labels, &logits[(before + window.own_from) * labels]);
  }
  return logits;
}

} // namespace

void normalize_rows(float *rows, size_t count, size_t width) {
  for (size_t r = 0; r < count; r++) {
    float *row = rows + r * width;
    const float length = std::max(std::sqrt(pairwise_squares(row, width)), 1.17549435e-38f);
    for (size_t i = 0; i < width; i++)
      row[i] /= length;
  }
}

void probabilities(const tb_text_model &model, const float *logits, double *scores) {
  const size_t count = model.labels.size();
  if (model.problem == Problem::kRegression) {
    std::copy(logits, logits + count, scores);
  } else if (model.problem == Problem::kMultiLabel) {
    for (size_t i = 0; i < count; i++) {
      const double x = logits[i], power = std::exp(-std::fabs(x)); // never overflows
      scores[i] = x >= 0 ? 1 / (1 + power) : power / (1 + power);
    }
  } else {
    const double largest = *std::max_element(logits, logits + count);
    double total = 0;
    for (size_t i = 0; i < count; i++)
      total += scores[i] = std::exp(logits[i] - largest);
    for (size_t i = 0; i < count; i++)
      scores[i] /= total;
  }
}

std::vector<tb_word> tag(const tb_text_model &model, const tb_text &text, bool join) {
  if (model.model.kind != HeadKind::kToken) fail(TB_ERROR_MODEL, "the model does not label words");
  if (text.pair) fail(TB_ERROR_INPUT, "words are labelled in a single text, not in a pair");
  const Tokens tokens = model.encode_whole(text);
  const size_t labels = model.labels.size();
  const std::vector<float> logits = token_logits(model, tokens);
  std::vector<tb_word> words;
  for (size_t i = 0; i < tokens.size(); i++) { // a word has the label of its first token
    if (tokens[i].word < 0 || (i > 0 && tokens[i - 1].word == tokens[i].word)) continue;
    size_t last = i;
    while (last + 1 < tokens.size() && tokens[last + 1].word == tokens[i].word)
      last++;
    const float *row = &logits[i * labels];
    const size_t best = static_cast<size_t>(std::max_element(row, row + labels) - row);
    double total = 0;
    for (size_t k = 0; k < labels; k++)
      total += std::exp(double(row[k]) - double(row[best]));
    words.push_back({model.labels[best].c_str(), 1.0 / total, tokens[i].start, tokens[last].end});
  }
  return join ? entities(words) : words;
}

} // namespace tb

using namespace tb;

tb_text_model::tb_text_model(const Files &files, const char *kernel, int32_t threads, int32_t longest)
    : tb_text_model(files, load_model(files, kernel, threads), read_object(files, "tokenizer_config.json", false),
                    longest) {}

tb_text_model::tb_text_model(const Files &files, LoadedModel loaded, std::unique_ptr<JsonFile> settings_file,
                             int32_t longest)
    : model(std::move(loaded)), tokenizer(files, settings_file ? settings_file->root() : nullptr) {
  const Json settings = settings_file ? settings_file->root() : nullptr;
  if (tokenizer.largest_id() >= model.vocabulary)
    fail(TB_ERROR_CONFIG, "the tokenizer has the token id %d; the model has %d tokens", tokenizer.largest_id(),
         model.vocabulary);
  labels = label_names(model.config, model.outputs);
  if (model.kind == HeadKind::kSequence) problem = problem_of(model.config, labels.size());
  thresholds.assign(labels.size(), 0.5);
  if (problem == Problem::kMultiLabel) thresholds = thresholds_of(model.config, labels);
  if (model.kind == HeadKind::kQuestion) answering = answering_of(model.config);
  gives_types = model.has_types && types_given(settings);
  keep_end = settings && equals(member(settings, "truncation_side"), "left");
  const int least = static_cast<int>(tokenizer.special_tokens(true)) + 2; // one token of each of two texts
  if (longest != 0 && (longest < least || longest > model.max_tokens))
    fail(TB_ERROR_ARGUMENT, "max_length is %d; this model supports %d to %d tokens", longest, least, model.max_tokens);
  max_length = longest ? longest : model.max_tokens;
  const auto usual = settings ? number_of(member(settings, "model_max_length")) : std::nullopt;
  if (!longest && usual && *usual >= 1 && *usual < max_length) max_length = static_cast<int32_t>(*usual);
}

Tokens tb_text_model::encode(const tb_text &text, bool *truncated) const {
  return encode(text, static_cast<size_t>(max_length), truncated);
}

Tokens tb_text_model::encode_whole(const tb_text &text) const {
  bool truncated;
  return encode(text, SIZE_MAX, &truncated);
}

Tokens tb_text_model::encode(const tb_text &text, size_t most, bool *truncated) const {
  if (!text.text && text.bytes) fail(TB_ERROR_ARGUMENT, "a text is null");
  const std::string_view first(text.text ? text.text : "", text.bytes),
      second(text.pair ? text.pair : "", text.pair_bytes);
  Tokens tokens = tokenizer.encode(first, text.pair ? &second : nullptr, most, keep_end, truncated);
  if (tokens.empty()) fail(TB_ERROR_INPUT, "the tokenizer returns no tokens for a text");
  return tokens;
}

void tb_text_model::run(const std::vector<Tokens> &inputs, bool types, int output, float *result, size_t size) const {
  std::vector<int32_t> lengths, ids, kinds;
  for (const Tokens &tokens : inputs) {
    lengths.push_back(static_cast<int32_t>(tokens.size()));
    for (const Token &token : tokens) {
      ids.push_back(token.id);
      kinds.push_back(token.type);
    }
  }
  const tb_batch batch = {static_cast<int32_t>(lengths.size()), lengths.data(), ids.data(),
                          types ? kinds.data() : nullptr};
  tb_error error;
  if (const int status = tb_run(model.engine.get(), &batch, output, result, size, &error))
    fail(status, "%s", error.message);
}

void tb_text_model::run_texts(const tb_text *texts, int32_t count, int output, float *result, size_t size) const {
  if (count < 0 || (count > 0 && !texts)) fail(TB_ERROR_ARGUMENT, "%d texts, or texts is null", count);
  if (!result && size) fail(TB_ERROR_ARGUMENT, "result is null");
  const int32_t widths[] = {0, model.hidden, model.hidden, model.dense, model.outputs};
  const size_t width = static_cast<size_t>(widths[output]);
  if (width == 0) fail(TB_ERROR_MODEL, "the model has no %s", output == TB_OUTPUT_DENSE ? "pooler" : "task head");
  if (size != width * static_cast<size_t>(count))
    fail(TB_ERROR_ARGUMENT, "result has %zu floats; %d texts give %zu each", size, count, width);
  std::vector<Tokens> inputs;
  size_t waiting = 0;
  for (int32_t i = 0; i < count; i++) {
    bool truncated;
    inputs.push_back(encode(texts[i], &truncated));
    waiting += inputs.back().size();
    if (waiting < kBatchTokens && i + 1 < count) continue;
    run(inputs, gives_types, output, result, inputs.size() * width);
    result += inputs.size() * width;
    inputs.clear();
    waiting = 0;
  }
}
