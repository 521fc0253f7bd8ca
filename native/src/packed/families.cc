#include "families.h"

#include "../failure.h"

#include <algorithm>
#include <iterator>

namespace tb {
namespace {

constexpr int64_t kLargestSize = int64_t(1) << 31;

struct SizeKeys {
  std::string_view what;
  std::vector<const char *> keys; // the first that is present counts
};

const std::vector<SizeKeys> &size_keys(bool distilbert) {
  static const std::vector<SizeKeys> bert = {
      {"vocabulary", {"vocab_size"}},
      {"embedding", {"embedding_size", "hidden_size"}},
      {"hidden", {"hidden_size"}},
      {"intermediate", {"intermediate_size"}},
      {"layers", {"num_hidden_layers"}},
      {"heads", {"num_attention_heads"}},
      {"positions", {"max_position_embeddings"}},
      {"token_types", {"type_vocab_size"}},
      {"labels", {"num_labels"}},
  };
  static const std::vector<SizeKeys> distil = {
      {"vocabulary", {"vocab_size"}},
      {"embedding", {"dim", "hidden_size"}},
      {"hidden", {"dim", "hidden_size"}},
      {"intermediate", {"hidden_dim", "intermediate_size"}},
      {"layers", {"n_layers", "num_hidden_layers"}},
      {"heads", {"n_heads", "num_attention_heads"}},
      {"positions", {"max_position_embeddings"}},
      {"token_types", {"type_vocab_size"}},
      {"labels", {"num_labels"}},
  };
  return distilbert ? distil : bert;
}

const std::vector<const char *> *keys_of(const Family &family, std::string_view what) {
  for (const SizeKeys &row : size_keys(family.distilbert_keys))
    if (row.what == what) return &row.keys;
  return nullptr; // "any"
}

std::vector<HeadLayers> heads(HeadLayers classifier, std::vector<HeadLayers> more) {
  std::vector<HeadLayers> all = {
      {.name = "Model"},
      {.name = "ForTokenClassification", .projection = "classifier"},
      {.name = "ForQuestionAnswering", .projection = "qa_outputs", .outputs = "any"},
      classifier,
  };
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

Family roberta(const char *model_type, const char *class_prefix) {
  return {
      .model_type = model_type,
      .class_prefix = class_prefix,
      .heads =
          heads({.name = "ForSequenceClassification", .projection = "classifier.out_proj", .dense = "classifier.dense"},
                {{.name = "ForMultipleChoice", .projection = "classifier", .outputs = "any", .pooler = true}}),
      .positions_follow_padding = true,
      .uses_types = false,
  };
}

std::vector<Family> make_families() {
  return {
      {
          .model_type = "bert",
          .class_prefix = "Bert",
          .heads = heads({.name = "ForSequenceClassification", .projection = "classifier", .pooler = true},
                         {{.name = "ForMultipleChoice", .projection = "classifier", .outputs = "any", .pooler = true},
                          {.name = "ForNextSentencePrediction",
                           .projection = "cls.seq_relationship",
                           .outputs = "any",
                           .pooler = true}}),
      },
      roberta("roberta", "Roberta"),
      roberta("xlm-roberta", "XLMRoberta"),
      roberta("camembert", "Camembert"),
      {
          .model_type = "electra",
          .class_prefix = "Electra",
          .heads = heads({.name = "ForSequenceClassification",
                          .projection = "classifier.out_proj",
                          .dense = "classifier.dense",
                          .function = TB_GELU},
                         {{.name = "ForMultipleChoice", .projection = "classifier", .outputs = "any"},
                          {.name = "ForPreTraining",
                           .projection = "discriminator_predictions.dense_prediction",
                           .outputs = "any",
                           .dense = "discriminator_predictions.dense"}}),
          .embedding_projection = "embeddings_project",
      },
      {
          .model_type = "distilbert",
          .class_prefix = "DistilBert",
          .heads = heads({.name = "ForSequenceClassification",
                          .projection = "classifier",
                          .dense = "pre_classifier",
                          .function = TB_RELU},
                         {{.name = "ForMultipleChoice",
                           .projection = "classifier",
                           .outputs = "any",
                           .dense = "pre_classifier",
                           .function = TB_RELU}}),
          .type = nullptr,
          .layers = "transformer.layer",
          .pooler = nullptr,
          .query = "attention.q_lin",
          .key = "attention.k_lin",
          .value = "attention.v_lin",
          .attention_output = "attention.out_lin",
          .attention_norm = "sa_layer_norm",
          .up = "ffn.lin1",
          .down = "ffn.lin2",
          .output_norm = "output_layer_norm",
          .uses_types = false,
          .distilbert_keys = true,
          .activation_key = "activation",
      },
  };
}

bool take_end(std::string_view &name, std::string_view end) {
  if (name.size() < end.size() || name.substr(name.size() - end.size()) != end) return false;
  name.remove_suffix(end.size());
  return true;
}

// Whether what is left is `part`, or ends with it after a dot.
bool is_or_ends(std::string_view name, std::string_view part) {
  return take_end(name, part) && (name.empty() || name.back() == '.');
}

// Takes ".12" off; -1: there is none.
int take_layer(std::string_view &name) {
  size_t digits = 0;
  while (digits < name.size() && name[name.size() - 1 - digits] >= '0' && name[name.size() - 1 - digits] <= '9')
    digits++;
  if (digits < 1 || digits > 4 || digits >= name.size() || name[name.size() - 1 - digits] != '.') return -1;
  const int layer = std::stoi(std::string(name.substr(name.size() - digits)));
  name.remove_suffix(digits + 1);
  return layer;
}

std::optional<MatrixName> matrix_of(const Family &family, std::string_view name) {
  if (is_or_ends(name, family.word)) return MatrixName{"w_e", -1};
  if (family.pooler && is_or_ends(name, family.pooler)) return MatrixName{"w_p", -1};
  const char *const inner[] = {family.query, family.key, family.value, family.attention_output, family.up, family.down};
  for (size_t i = 0; i < std::size(inner); i++) {
    std::string_view rest = name;
    if (!take_end(rest, inner[i]) || !take_end(rest, ".")) continue;
    const int layer = take_layer(rest);
    if (layer >= 0 && is_or_ends(rest, family.layers)) return MatrixName{kLayerMatrices[i], layer};
  }
  return std::nullopt;
}

Json architecture(Json config) {
  const Json names = member(config, "architectures");
  const Json first = is_list(names) ? yyjson_arr_get_first(names) : nullptr;
  return is_string(first) ? first : nullptr;
}

} // namespace

int64_t Family::size(Json config, std::string_view what) const {
  const auto *keys = keys_of(*this, what);
  std::string names;
  for (const char *key : *keys) {
    names += (names.empty() ? "" : " or ") + std::string(key);
    const Json value = member(config, key);
    if (!value) continue;
    const int64_t number = yyjson_is_bool(value) ? 0 : integer_of(value).value_or(0);
    if (number < 1 || number > kLargestSize)
      fail(TB_ERROR_CONFIG, "config.json has %s = %s; it must be a positive integer", key, shown(value).c_str());
    return number;
  }
  fail(TB_ERROR_CONFIG, "config.json has no %s size; expected the key %s", std::string(what).c_str(), names.c_str());
}

std::optional<int64_t> Family::optional_size(Json config, std::string_view what) const {
  if (const auto *keys = keys_of(*this, what))
    for (const char *key : *keys)
      if (member(config, key)) return size(config, what);
  const Json names = what == "labels" ? member(config, "id2label") : nullptr;
  if (is_object(names) && yyjson_obj_size(names) > 0) return static_cast<int64_t>(yyjson_obj_size(names));
  return std::nullopt;
}

int64_t Family::first_position(Json config) const {
  if (!positions_follow_padding) return 0;
  const Json padding = member(config, "pad_token_id");
  const int64_t number = !padding ? 1 : yyjson_is_bool(padding) ? -1 : integer_of(padding).value_or(-1);
  if (number < 0 || number > kLargestSize)
    fail(TB_ERROR_CONFIG, "config.json has pad_token_id = %s; positions are counted from it", shown(padding).c_str());
  return number + 1;
}

const HeadLayers *Family::head(Json config) const {
  const Json name = architecture(config);
  if (!name || yyjson_arr_size(member(config, "architectures")) != 1) return nullptr;
  for (const HeadLayers &head : heads)
    if (text_of(name) == std::string(class_prefix) + head.name) return &head;
  return nullptr;
}

const HeadLayers &Family::head(HeadKind kind) const {
  constexpr const char *names[] = {"ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering",
                                   "Model"};
  const std::string_view name = names[static_cast<int>(kind)];
  return *std::find_if(heads.begin(), heads.end(), [&](const HeadLayers &head) { return head.name == name; });
}

const std::vector<Family> &families() {
  static const std::vector<Family> all = make_families();
  return all;
}

const Family *known_family(Json config) {
  for (const Family &family : families())
    if (equals(member(config, "model_type"), family.model_type)) return &family;
  return nullptr;
}

HeadKind head_kind(Json config) {
  const Json name = architecture(config);
  if (!name)
    fail(TB_ERROR_CONFIG, "config.json has architectures = %s; it must name the model's class",
         shown(member(config, "architectures")).c_str());
  const std::string_view text = text_of(name);
  if (text.ends_with("ForSequenceClassification")) return HeadKind::kSequence;
  if (text.ends_with("ForTokenClassification")) return HeadKind::kToken;
  return text.ends_with("ForQuestionAnswering") ? HeadKind::kQuestion : HeadKind::kNone;
}

std::optional<MatrixName> find_matrix(std::string_view tensor) {
  if (!take_end(tensor, ".weight")) return std::nullopt;
  for (const Family &family : families())
    if (const auto found = matrix_of(family, tensor)) return found;
  return std::nullopt;
}

const MatrixSizes &matrix_sizes(std::string_view symbol) {
  static constexpr MatrixSizes all[] = {
      {"w_e", "vocabulary", "embedding"}, {"w_q", "hidden", "hidden"}, {"w_k", "hidden", "hidden"},
      {"w_v", "hidden", "hidden"},        {"w_o", "hidden", "hidden"}, {"w_1", "intermediate", "hidden"},
      {"w_2", "hidden", "intermediate"},  {"w_p", "hidden", "hidden"},
  };
  return *std::find_if(std::begin(all), std::end(all),
                       [&](const MatrixSizes &sizes) { return sizes.symbol == symbol; });
}

} // namespace tb
