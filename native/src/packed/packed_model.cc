#include "packed_model.h"

#include "../codec.h"
#include "../failure.h"
#include "../memory.h"
#include "manifest.h"
#include "sha256.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <deque>
#include <set>

namespace tb {
namespace {

float half_to_float(uint16_t half) {
  const uint32_t sign = uint32_t(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 0x3ff;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float small = static_cast<float>(fraction) * 0x1p-24f;
  return sign ? -small : small;
}

// The tensors of a model as the engine reads them.
class Tensors {
public:
  Tensors(const Manifest &manifest, const Arrays &arrays) : manifest_(manifest), arrays_(arrays) {
    for (const auto &[name, spec] : manifest.tensors)
      if (spec.packed) check_packed(name, spec);
  }

  void check_floats() const {
    for (const auto &[name, spec] : manifest_.tensors)
      if (!spec.packed) check_finite(name, spec);
  }

  const TensorSpec *find(const std::string &name) const {
    const auto found = manifest_.tensors.find(name);
    return found == manifest_.tensors.end() ? nullptr : &found->second;
  }

  tb_matrix matrix(const std::string &name) {
    const TensorSpec &spec = *find(name);
    if (spec.packed) return packed(name, spec);
    tb_matrix result{};
    result.rows = int32(name, spec.shape[0]);
    result.columns = spec.shape.size() > 1 ? int32(name, spec.shape[1]) : 1;
    result.bits = 32;
    result.codes = floats_of(arrays_.find(name)->second);
    return result;
  }

  const float *floats(const std::string &name) {
    if (find(name)->packed)
      fail(TB_ERROR_MODEL, "the folder packs '%.100s', which the runtime needs as floats", name.c_str());
    return floats_of(arrays_.find(name)->second);
  }

private:
  tb_matrix packed(const std::string &name, const TensorSpec &spec) {
    tb_matrix result{};
    result.rows = int32(name, spec.shape[0]);
    result.columns = int32(name, spec.shape[1]);
    result.bits = spec.bits;
    result.log = spec.log;
    result.dense = spec.dense;
    result.codes = arrays_.find(name + ".codes")->second.data;
    result.scales = spec.per_row ? result.rows : 1;
    result.scale = floats_of(arrays_.find(name + ".scale")->second);
    return result;
  }

  static int32_t int32(const std::string &name, int64_t n) {
    if (n > INT32_MAX) fail(TB_ERROR_MODEL, "tensor '%.100s' has a side of %lld", name.c_str(), (long long)n);
    return static_cast<int32_t>(n);
  }

  // In place where the file has aligned floats, else a copy.
  const float *floats_of(const Array &array) {
    const size_t count = array.bytes / (array.dtype == "F16" ? 2 : 4);
    if (array.dtype == "F32" && reinterpret_cast<uintptr_t>(array.data) % alignof(float) == 0)
      return reinterpret_cast<const float *>(array.data);
    Buffer<float> &copy = copies_.emplace_back(count);
    for (size_t i = 0; i < count; i++) {
      uint16_t half;
      if (array.dtype == "F32") {
        std::memcpy(&copy[i], array.data + 4 * i, 4);
      } else {
        std::memcpy(&half, array.data + 2 * i, 2);
        copy[i] = half_to_float(half);
      }
    }
    return copy.data();
  }

  void check_packed(const std::string &name, const TensorSpec &spec) {
    const tb_matrix matrix = packed(name, spec);
    for (int32_t i = 0; i < matrix.scales; i++)
      if (!(matrix.scale[i] >= 0.0f) || !std::isfinite(matrix.scale[i]))
        fail(TB_ERROR_TENSOR, "tensor '%.100s': scale %d is %g; it must be finite and not negative", name.c_str(), i,
             static_cast<double>(matrix.scale[i]));
    const size_t bytes = row_bytes(matrix);
    for (int32_t r = 0; r < matrix.rows; r++)
      if (!valid_row(matrix, static_cast<const uint8_t *>(matrix.codes) + static_cast<size_t>(r) * bytes))
        fail(TB_ERROR_TENSOR, "tensor '%.100s': row %d has a code or padding that %d bits do not have", name.c_str(), r,
             spec.bits);
  }

  void check_finite(const std::string &name, const TensorSpec &spec) const {
    const Array &array = arrays_.find(name)->second;
    const size_t width = spec.half ? 2 : 4;
    for (size_t i = 0; i < array.bytes / width; i++) {
      uint32_t bits = 0;
      std::memcpy(&bits, array.data + i * width, width);
      const uint32_t exponent = spec.half ? 0x7c00 : 0x7f800000;
      if ((bits & exponent) == exponent)
        fail(TB_ERROR_TENSOR, "tensor '%.100s': element %zu is infinite or NaN", name.c_str(), i);
    }
  }

  const Manifest &manifest_;
  const Arrays &arrays_;
  std::deque<Buffer<float>> copies_;
};

Arrays load_arrays(const Files &files, const Manifest &manifest, FileBytes &bytes) {
  const char *const weights = manifest.weights;
  const auto found = files.find(weights);
  if (!found) {
    const std::string pickled = files.find_pickled();
    if (!pickled.empty())
      fail(TB_ERROR_FILE, "there is no %s; %.100s is a pickled file, which is never read", weights, pickled.c_str());
    fail(TB_ERROR_NOT_PACKED, "there is no %s", weights);
  }
  bytes = *found;
  Arrays arrays = read_arrays(bytes.data, bytes.size, weights);
  check_layout(manifest, arrays);
  // The weights of a bundle are not hashed twice: in WebAssembly that would be a quarter of the time to open a model.
  if (!files.hashed() && !manifest.sha256.empty() && sha256(bytes.data, bytes.size) != manifest.sha256)
    fail(TB_ERROR_CONTAINER, "%s is damaged: its SHA-256 differs from the one in config.json; copy it again", weights);
  return arrays;
}

// ---- the tensors against the configuration ------------------------------------------------------------------------

// Each of the paper's matrices once, in every layer, in the shape that the configuration implies.
void check_matrices(const Family &family, Json config, const Manifest &manifest) {
  std::map<MatrixName, std::string> found;
  for (const auto &[name, spec] : manifest.tensors) {
    const auto matrix = find_matrix(name);
    if (!matrix) continue;
    if (const auto [other, fresh] = found.emplace(*matrix, name); !fresh)
      fail(TB_ERROR_CONFIG, "'%.80s' and '%.80s' are both %s", other->second.c_str(), name.c_str(),
           matrix->text().c_str());
    const MatrixSizes &sizes = matrix_sizes(matrix->symbol);
    const Shape expected = {family.size(config, sizes.rows), family.size(config, sizes.columns)};
    if (spec.shape != expected)
      fail(TB_ERROR_CONFIG, "tensor '%.80s' is %s; config.json implies %s", name.c_str(), shown(spec.shape).c_str(),
           shown(expected).c_str());
  }
  const int64_t layers = family.size(config, "layers");
  if (layers > static_cast<int64_t>(manifest.tensors.size())) // before anything is made for each layer
    fail(TB_ERROR_CONFIG, "config.json describes %lld layers, but there are %zu tensors",
         static_cast<long long>(layers), manifest.tensors.size());
  std::set<MatrixName> required = {{"w_e", -1}};
  for (const char *symbol : kLayerMatrices)
    for (int64_t layer = 0; layer < layers; layer++)
      required.insert({symbol, static_cast<int>(layer)});
  for (const MatrixName &name : required)
    if (!found.contains(name))
      fail(TB_ERROR_CONFIG, "config.json describes %lld layers, but %s is missing", static_cast<long long>(layers),
           name.text().c_str());
  for (const auto &[name, _] : found)
    if (name.symbol != "w_p" && !required.contains(name))
      fail(TB_ERROR_CONFIG, "config.json describes %lld layers, but there is %s", static_cast<long long>(layers),
           name.text().c_str());
}

std::string encoder_prefix(const Family &family, const Manifest &manifest) {
  const std::string ending = std::string(family.word) + ".weight";
  for (const auto &[name, _] : manifest.tensors)
    if (name == ending || name.ends_with("." + ending)) return name.substr(0, name.size() - ending.size());
  return {};
}

// Every module of the family under its name, in the shape that the configuration says.
class ModuleCheck {
public:
  ModuleCheck(const Family &family, Json config, const Manifest &manifest)
      : family_(family), config_(config), manifest_(manifest), prefix_(encoder_prefix(family, manifest)) {}

  void check(const HeadLayers &head) const {
    const Family &f = family_;
    encoder(f.word, {"vocabulary", "embedding"}, false);
    encoder(f.position, {"positions", "embedding"}, false);
    if (f.type) encoder(f.type, {"token_types", "embedding"}, false);
    encoder(f.embedding_norm, {"embedding"});
    if (f.embedding_projection && f.size(config_, "embedding") != f.size(config_, "hidden"))
      encoder(f.embedding_projection, {"hidden", "embedding"});
    const int64_t layers = f.size(config_, "layers");
    for (int64_t i = 0; i < layers; i++) {
      const std::string at = std::string(f.layers) + "." + std::to_string(i) + ".";
      for (const char *name : {f.query, f.key, f.value, f.attention_output})
        encoder(at + name, {"hidden", "hidden"});
      encoder(at + f.up, {"intermediate", "hidden"});
      encoder(at + f.down, {"hidden", "intermediate"});
      encoder(at + f.attention_norm, {"hidden"});
      encoder(at + f.output_norm, {"hidden"});
    }
    const bool has_pooler = f.pooler && manifest_.tensors.contains(prefix_ + f.pooler + ".weight");
    if (f.pooler && (head.pooler || has_pooler)) encoder(f.pooler, {"hidden", "hidden"});
    if (head.dense) module(head.dense, {"hidden", "hidden"});
    if (head.projection) module(head.projection, {head.outputs, "hidden"});
  }

private:
  using Sizes = std::initializer_list<const char *>;

  void encoder(const std::string &name, Sizes sizes, bool bias = true) const { module(prefix_ + name, sizes, bias); }

  void module(const std::string &name, Sizes sizes, bool bias = true) const {
    const Shape &weight = shape(name + ".weight");
    bool right = weight.size() == sizes.size();
    size_t i = 0;
    for (const char *size : sizes) {
      const auto expected = family_.optional_size(config_, size);
      right = right && (!expected || *expected == weight[i]);
      i++;
    }
    if (!right)
      fail(TB_ERROR_CONFIG, "tensor '%.100s.weight' is %s, which is not what config.json implies", name.c_str(),
           shown(weight).c_str());
    if (bias && shape(name + ".bias") != Shape{weight[0]})
      fail(TB_ERROR_CONFIG, "tensor '%.100s.bias' is %s, but its weight has %lld rows", name.c_str(),
           shown(shape(name + ".bias")).c_str(), static_cast<long long>(weight[0]));
  }

  const Shape &shape(const std::string &name) const {
    const auto found = manifest_.tensors.find(name);
    if (found == manifest_.tensors.end())
      fail(TB_ERROR_CONFIG, "the tensor '%.100s' is missing; a model of type '%s' has it", name.c_str(),
           family_.model_type);
    return found->second.shape;
  }

  const Family &family_;
  Json config_;
  const Manifest &manifest_;
  std::string prefix_;
};

void check_bits(const Manifest &manifest) {
  const BitWidths bits = parse_bits(manifest.bits);
  for (const bool embedding : {false, true}) {
    const int expected = embedding ? bits.e : bits.w;
    bool any = false;
    for (const auto &[name, spec] : manifest.tensors) {
      const auto matrix = find_matrix(name);
      if (!spec.packed || (matrix && matrix->symbol == "w_e") != embedding) continue;
      any = true;
      if (spec.bits != expected)
        fail(TB_ERROR_CONFIG, "bits is %s, but tensor '%.100s' has %d bits", manifest.bits.c_str(), name.c_str(),
             spec.bits);
    }
    if (expected != 32 && !any)
      fail(TB_ERROR_CONFIG, "bits is %s, but no %s is packed", manifest.bits.c_str(),
           embedding ? "word embedding" : "weight");
  }
}

// ---- how it computes ----------------------------------------------------------------------------------------------

// The part of the recipe that says how activations are quantized. The rest is about training and is not looked at.
struct ActivationRecipe {
  int bits = 8;
  bool per_token = false, symmetric = false, pooler = true;
  float clip = 0.0f;
};

[[noreturn]] void bad_recipe(const char *name, Json value) {
  fail(TB_ERROR_CONFIG, "the folder's recipe cannot be used: %s is %s", name, shown(value).c_str());
}

void check_fields(Json object, const char *where, std::initializer_list<std::string_view> known) {
  each_member(object, [&](std::string_view name, Json) {
    if (std::find(known.begin(), known.end(), name) == known.end())
      fail(TB_ERROR_CONFIG, "the folder's recipe cannot be used: %s has no field %s", where, shown(name).c_str());
  });
}

ActivationRecipe read_recipe(const Manifest &manifest) {
  const Json recipe = manifest.recipe;
  if (yyjson_obj_size(recipe) == 0)
    fail(TB_ERROR_CONFIG, "the folder has no recipe, so it is unknown how its activations are quantized");
  check_fields(recipe, "recipe",
               {"name", "bits", "weight", "embedding", "activation", "pooler", "distill", "stages", "schedule"});
  ActivationRecipe result;
  const Json bits = member(recipe, "bits"), pooler = member(recipe, "pooler"),
             activation = member(recipe, "activation");
  const std::string label = is_string(bits) ? std::string(text_of(bits)) : bits ? "" : "2-2-8";
  if (label != manifest.bits)
    fail(TB_ERROR_CONFIG, "the folder is packed at %s bits, but its recipe has %s", shown(manifest.bits).c_str(),
         shown(label).c_str());
  result.bits = parse_bits(label).a;
  if (result.bits != 4 && result.bits != 8 && result.bits != 32) bad_recipe("bits", bits);
  if (pooler && !yyjson_is_bool(pooler)) bad_recipe("pooler", pooler);
  result.pooler = !pooler || is_true(pooler);
  if (!activation) return result;
  if (!is_object(activation)) bad_recipe("activation", activation);
  check_fields(activation, "recipe.activation", {"scheme", "granularity", "clip", "masked"});
  if (const Json masked = member(activation, "masked"); masked && !yyjson_is_bool(masked))
    bad_recipe("activation.masked", masked);
  const Json scheme = member(activation, "scheme"), granularity = member(activation, "granularity");
  const Json clip = member(activation, "clip");
  if (scheme && !equals(scheme, "minmax") && !equals(scheme, "symmetric")) bad_recipe("activation.scheme", scheme);
  if (granularity && !equals(granularity, "tensor") && !equals(granularity, "sample") && !equals(granularity, "token"))
    bad_recipe("activation.granularity", granularity);
  if (clip && !yyjson_is_null(clip)) {
    const double number = number_of(clip).value_or(0.0);
    if (!(number > 0.0)) bad_recipe("activation.clip", clip);
    result.clip = static_cast<float>(number);
  }
  result.symmetric = equals(scheme, "symmetric");
  result.per_token = equals(granularity, "token");
  return result;
}

int activation_function(const Family &family, Json config) {
  const Json name = member(config, family.activation_key);
  if (equals(name, "gelu")) return TB_GELU;
  if (equals(name, "gelu_new") || equals(name, "gelu_pytorch_tanh")) return TB_GELU_TANH;
  if (equals(name, "relu")) return TB_RELU;
  fail(TB_ERROR_MODEL, "the runtime does not support the activation function %s", shown(name).c_str());
}

void check_computation(const Family &family, Json config) {
  const Json positions = member(config, "position_embedding_type");
  if (is_true(positions) && !equals(positions, "absolute"))
    fail(TB_ERROR_MODEL, "the model has %s positions; the runtime supports only absolute ones",
         shown(positions).c_str());
  for (const char *key : {"is_decoder", "is_encoder_decoder", "add_cross_attention", "pruned_heads"})
    if (is_true(member(config, key)))
      fail(TB_ERROR_MODEL, "the model has %s in config.json; the runtime runs plain encoders", key);
  activation_function(family, config);
  const int64_t embedding = family.size(config, "embedding"), hidden = family.size(config, "hidden");
  if (embedding != hidden)
    fail(TB_ERROR_MODEL, "the embeddings are %lld wide and the layers %lld; the runtime has no projection between them",
         static_cast<long long>(embedding), static_cast<long long>(hidden));
}

// The configuration for tb_model_create. Sizes are those of tensors, so they fit.
class NetworkBuilder {
public:
  NetworkBuilder(const Family &family, Json config, const Manifest &manifest, Tensors &tensors)
      : family_(family), config_(config), tensors_(tensors), prefix_(encoder_prefix(family, manifest)) {}

  tb_config build(const HeadLayers &head, const ActivationRecipe &recipe) {
    tb_config c{};
    c.size = sizeof c;
    set_sizes(c);
    c.function = activation_function(family_, config_);
    const Json eps = member(config_, "layer_norm_eps");
    if (eps && !number_of(eps)) fail(TB_ERROR_CONFIG, "config.json has layer_norm_eps = %s", shown(eps).c_str());
    c.norm_eps = eps ? *number_of(eps) : 1e-12;
    c.activation_bits = recipe.bits;
    c.range = recipe.per_token ? TB_RANGE_TOKEN : TB_RANGE_SEQUENCE;
    c.symmetric = recipe.symmetric;
    c.clip = recipe.clip;
    c.word = tensors_.matrix(prefix_ + family_.word + ".weight");
    c.position = tensors_.floats(prefix_ + family_.position + ".weight");
    if (family_.type) c.type = tensors_.floats(prefix_ + family_.type + ".weight");
    c.embedding_norm = norm(prefix_ + family_.embedding_norm);
    for (int32_t i = 0; i < c.layers; i++)
      layers_.push_back(layer(prefix_ + family_.layers + "." + std::to_string(i) + "."));
    c.layer = layers_.data();
    set_head(c, head, recipe);
    return c;
  }

private:
  void set_sizes(tb_config &c) {
    const auto size = [&](const char *what) {
      return static_cast<int32_t>(std::min<int64_t>(family_.size(config_, what), INT32_MAX));
    };
    c.hidden = size("hidden");
    c.heads = size("heads");
    if (c.hidden % c.heads != 0)
      fail(TB_ERROR_CONFIG, "config.json has %d attention heads, which do not divide the width %d", c.heads, c.hidden);
    c.intermediate = size("intermediate");
    c.layers = size("layers");
    c.positions = rows(family_.position);
    const int64_t first = family_.first_position(config_);
    if (c.positions <= first)
      fail(TB_ERROR_CONFIG, "there are %d positions, and the first token would have position %lld", c.positions,
           static_cast<long long>(first));
    c.first_position = static_cast<int32_t>(first);
    c.types = family_.type ? rows(family_.type) : 0;
  }

  int32_t rows(const char *name) {
    return static_cast<int32_t>(std::min<int64_t>(tensors_.find(prefix_ + name + ".weight")->shape[0], INT32_MAX));
  }

  tb_linear linear(const std::string &name) {
    return {tensors_.matrix(name + ".weight"), tensors_.floats(name + ".bias")};
  }

  tb_norm norm(const std::string &name) { return {tensors_.floats(name + ".weight"), tensors_.floats(name + ".bias")}; }

  tb_layer layer(const std::string &at) {
    const Family &f = family_;
    return {.query = linear(at + f.query),
            .key = linear(at + f.key),
            .value = linear(at + f.value),
            .attention_output = linear(at + f.attention_output),
            .up = linear(at + f.up),
            .down = linear(at + f.down),
            .attention_norm = norm(at + f.attention_norm),
            .output_norm = norm(at + f.output_norm)};
  }

  void set_head(tb_config &c, const HeadLayers &head, const ActivationRecipe &recipe) {
    if (head.projection) c.head = linear(head.projection);
    const bool has_pooler = family_.pooler && tensors_.find(prefix_ + family_.pooler + ".weight");
    if (head.dense) {
      c.dense = linear(head.dense);
      c.dense_function = head.function;
    } else if ((head.pooler || !head.projection) && has_pooler) { // a bare encoder gives its pooler's output
      c.dense = linear(prefix_ + family_.pooler);
      c.dense_function = head.function;
      c.dense_quantized = recipe.pooler && recipe.bits != 32;
    }
  }

  const Family &family_;
  Json config_;
  Tensors &tensors_;
  std::string prefix_;
  std::vector<tb_layer> layers_;
};

} // namespace

std::unique_ptr<JsonFile> read_object(const Files &files, const char *name, bool required) {
  const auto bytes = files.find(name, kJsonLimit);
  if (!bytes && required) fail(TB_ERROR_NOT_PACKED, "there is no %s", name);
  if (!bytes) return nullptr;
  auto json = std::make_unique<JsonFile>(bytes->text(), name, TB_ERROR_CONFIG);
  if (!is_object(json->root()))
    fail(TB_ERROR_CONFIG, "%s is not a JSON object but %s", name, shown(json->root()).c_str());
  return json;
}

LoadedModel load_model(const Files &files, const char *kernel, int32_t threads) {
  LoadedModel loaded;
  loaded.config_file = read_object(files, "config.json", true);
  const Json config = loaded.config = loaded.config_file->root();
  const Manifest manifest = read_manifest(config);
  FileBytes bytes;
  const Arrays arrays = load_arrays(files, manifest, bytes);
  Tensors tensors(manifest, arrays);
  read_object(files, "metrics.json", false);
  tensors.check_floats();
  const Family *family = known_family(config);
  if (!family) fail(TB_ERROR_MODEL, "models of type %s are not supported", shown(member(config, "model_type")).c_str());
  check_matrices(*family, config, manifest);
  const ModuleCheck modules(*family, config, manifest);
  static constexpr HeadLayers no_head = {.name = ""};
  const HeadLayers *named = family->head(config);
  modules.check(named ? *named : no_head);
  check_bits(manifest);

  const ActivationRecipe recipe = read_recipe(manifest);
  loaded.kind = head_kind(config);
  check_computation(*family, config);
  const HeadLayers &head = family->head(loaded.kind);
  modules.check(head);
  NetworkBuilder builder(*family, config, manifest, tensors);
  const tb_config network = builder.build(head, recipe);
  loaded.vocabulary = network.word.rows;
  loaded.hidden = network.hidden;
  loaded.dense = network.dense.weight.rows;
  loaded.outputs = network.head.weight.rows;
  loaded.max_tokens = network.positions - network.first_position;
  loaded.has_types = family->uses_types && network.types > 1;
  tb_model *model = nullptr;
  tb_error error;
  if (const int status = tb_model_create(&network, kernel, threads, &model, &error)) fail(status, "%s", error.message);
  loaded.engine.reset(model);
  return loaded;
}

} // namespace tb
