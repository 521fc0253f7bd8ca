// Model families: one record each, as in src/ternarybert/families.py (tests/native/test_c_library.py compares them).
#pragma once

#include "json.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tb {

enum class HeadKind { kSequence, kToken, kQuestion, kNone };

// The layers of a task head: the pooler or a dense layer, an activation function, a projection to the outputs.
struct HeadLayers {
  const char *name; // the end of the class name
  const char *projection = nullptr;
  const char *outputs = "labels"; // the size of the projection; "any": the configuration does not tell
  bool pooler = false;
  const char *dense = nullptr;
  int function = 4; // TB_TANH
};

struct Family {
  const char *model_type, *class_prefix;
  std::vector<HeadLayers> heads;
  const char *word = "embeddings.word_embeddings", *position = "embeddings.position_embeddings";
  const char *type = "embeddings.token_type_embeddings", *embedding_norm = "embeddings.LayerNorm";
  const char *embedding_projection = nullptr, *layers = "encoder.layer", *pooler = "pooler.dense";
  const char *query = "attention.self.query", *key = "attention.self.key", *value = "attention.self.value";
  const char *attention_output = "attention.output.dense", *attention_norm = "attention.output.LayerNorm";
  const char *up = "intermediate.dense", *down = "output.dense", *output_norm = "output.LayerNorm";
  bool positions_follow_padding = false, uses_types = true, distilbert_keys = false;
  const char *activation_key = "hidden_act";

  // Sizes by name ("hidden"); a Failure where the configuration lacks one or has a bad one.
  int64_t size(Json config, std::string_view what) const;
  std::optional<int64_t> optional_size(Json config, std::string_view what) const;
  int64_t first_position(Json config) const;
  const HeadLayers *head(Json config) const; // of the class that the configuration names; null: not of this family
  const HeadLayers &head(HeadKind kind) const;
};

const std::vector<Family> &families();
const Family *known_family(Json config);
HeadKind head_kind(Json config);

// Which of the paper's matrices a tensor is in some family.
struct MatrixName {
  std::string symbol; // "w_q"
  int layer = -1;     // -1: outside the layers
  auto operator<=>(const MatrixName &) const = default;
  std::string text() const { return layer < 0 ? symbol : symbol + " of layer " + std::to_string(layer); }
};
std::optional<MatrixName> find_matrix(std::string_view tensor);

// The sizes of a matrix by its symbol: rows, columns.
struct MatrixSizes {
  const char *symbol, *rows, *columns;
};
const MatrixSizes &matrix_sizes(std::string_view symbol);
constexpr const char *kLayerMatrices[] = {"w_q", "w_k", "w_v", "w_o", "w_1", "w_2"};

} // namespace tb
