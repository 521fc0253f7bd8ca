#include "manifest.h"

#include "../codec.h"
#include "../failure.h"

#include <algorithm>
#include <iterator>

namespace tb {
namespace {

constexpr const char *kWhere = "in quantization_config";

const FormatVersion &known_version(Json version) {
  const auto number = yyjson_is_bool(version) ? std::nullopt : integer_of(version);
  if (!number) fail(TB_ERROR_CONFIG, "format_version %s is %s; it must be an integer", kWhere, shown(version).c_str());
  for (const FormatVersion &known : kFormatVersions)
    if (known.number == *number) return known;
  const int64_t newest = (std::end(kFormatVersions) - 1)->number;
  fail(TB_ERROR_VERSION, "format version %lld is %s than %lld, the one supported here; %s",
       static_cast<long long>(*number), *number > newest ? "newer" : "older", static_cast<long long>(newest),
       *number > newest ? "update ternarybert" : "pack the model again");
}

void check_digest(Json digest) {
  const bool null = !digest || yyjson_is_null(digest);
  const std::string_view text = is_string(digest) ? text_of(digest) : std::string_view();
  const bool hexadecimal = text.size() == 64 && text.find_first_not_of("0123456789abcdef") == text.npos;
  if (!null && !hexadecimal)
    fail(TB_ERROR_CONFIG, "sha256 %s is %s; it must be 64 hexadecimal digits", kWhere, shown(digest).c_str());
}

TensorSpec plain_spec(const char *name, Json entry, Shape shape) {
  const Json dtype = member(entry, "dtype");
  if (!equals(dtype, "float32") && !equals(dtype, "float16"))
    fail(TB_ERROR_CONFIG, "tensor '%s': dtype %s %s; allowed: float32, float16", name, shown(dtype).c_str(), kWhere);
  TensorSpec spec;
  spec.half = equals(dtype, "float16");
  spec.shape = std::move(shape);
  return spec;
}

TensorSpec packed_spec(const char *name, Json entry, Shape shape) {
  const Json bits = member(entry, "bits"), levels = member(entry, "levels"), packing = member(entry, "packing");
  const Json granularity = member(entry, "granularity");
  if (shape.size() != 2 || !(equals(granularity, "layer") || equals(granularity, "row")))
    fail(TB_ERROR_CONFIG, "tensor '%s' %s must be a matrix of granularity layer or row", name, kWhere);
  const int64_t width = integer_of(bits).value_or(0);
  if (width != 2 && width != 3 && width != 4 && width != 8)
    fail(TB_ERROR_CONFIG, "tensor '%s' %s: bits is %s; it must be 2, 3, 4 or 8", name, kWhere, shown(bits).c_str());
  const bool log = equals(levels, "log"), dense = equals(packing, "dense");
  if (!equals(levels, "linear") && !(log && (width == 3 || width == 4)))
    fail(TB_ERROR_CONFIG, "tensor '%s' %s: levels is %s; it must be 'linear', or 'log' at 3 or 4 bits", name, kWhere,
         shown(levels).c_str());
  if (!equals(packing, "plain") && !(dense && width == 2))
    fail(TB_ERROR_CONFIG, "tensor '%s' %s: packing is %s; it must be 'plain', or 'dense' at 2 bits", name, kWhere,
         shown(packing).c_str());
  TensorSpec spec;
  spec.packed = true;
  spec.bits = static_cast<int32_t>(width);
  spec.log = log;
  spec.dense = dense;
  spec.per_row = equals(granularity, "row");
  spec.shape = std::move(shape);
  return spec;
}

bool has_keys(Json entry, std::initializer_list<const char *> keys) {
  return yyjson_obj_size(entry) == keys.size() &&
         std::all_of(keys.begin(), keys.end(), [&](const char *key) { return member(entry, key) != nullptr; });
}

TensorSpec read_spec(std::string_view full_name, Json entry) {
  if (!is_tensor_name(full_name)) fail(TB_ERROR_CONFIG, "%s %s is not a tensor name", shown(full_name).c_str(), kWhere);
  const std::string name(full_name.substr(0, 100));
  const bool packed = is_object(entry) && has_keys(entry, {"bits", "granularity", "levels", "packing", "shape"});
  if (!packed && !(is_object(entry) && has_keys(entry, {"dtype", "shape"})))
    fail(TB_ERROR_CONFIG, "tensor '%s' %s must have the keys bits, granularity, levels, packing, shape or dtype, shape",
         name.c_str(), kWhere);
  Shape shape;
  bool positive = is_list(member(entry, "shape"));
  if (positive)
    each_item(member(entry, "shape"), [&](Json item) {
      const int64_t n = yyjson_is_bool(item) ? 0 : integer_of(item).value_or(0);
      positive = positive && n > 0 && n < int64_t(1) << 40;
      shape.push_back(n);
    });
  if (!positive) fail(TB_ERROR_CONFIG, "tensor '%s': its shape %s must be positive integers", name.c_str(), kWhere);
  return packed ? packed_spec(name.c_str(), entry, std::move(shape))
                : plain_spec(name.c_str(), entry, std::move(shape));
}

struct Expected {
  const char *dtype;
  Shape shape;
};

std::map<std::string, Expected, std::less<>> layout(const Manifest &manifest) {
  std::map<std::string, Expected, std::less<>> expected;
  const auto add = [&](const std::string &name, const char *dtype, Shape shape) {
    if (!expected.emplace(name, Expected{dtype, std::move(shape)}).second)
      fail(TB_ERROR_TENSOR, "two tensors would be stored as '%.100s'", name.c_str());
  };
  for (const auto &[name, spec] : manifest.tensors) {
    if (!spec.packed) {
      add(name, spec.half ? "F16" : "F32", spec.shape);
      continue;
    }
    const int64_t columns = spec.shape[1];
    const int64_t bytes = spec.dense ? (columns + 4) / 5 : (columns * spec.bits + 7) / 8;
    add(name + ".codes", spec.bits == 8 ? "I8" : "U8", {spec.shape[0], bytes});
    add(name + ".scale", "F32", {spec.per_row ? spec.shape[0] : 1});
  }
  return expected;
}

} // namespace

Manifest read_manifest(Json config) {
  const Json section = member(config, "quantization_config");
  if (!is_object(section) || !equals(member(section, "quant_method"), "ternarybert"))
    fail(TB_ERROR_NOT_PACKED, "not packed: config.json has no quantization_config with quant_method 'ternarybert'; "
                              "`ternarybert ternarize` makes a packed folder from a fine-tuned model");
  const Json bits = member(section, "bits"), digest = member(section, "sha256"), tensors = member(section, "tensors");
  Manifest manifest;
  manifest.weights = known_version(member(section, "format_version")).weights;
  manifest.recipe = member(section, "recipe");
  if (!is_string(bits))
    fail(TB_ERROR_CONFIG, "bits %s is %s; expected something like '2-2-8'", kWhere, shown(bits).c_str());
  if (!is_object(manifest.recipe))
    fail(TB_ERROR_CONFIG, "recipe %s is %s; it must be an object", kWhere, shown(manifest.recipe).c_str());
  check_digest(digest);
  if (!is_object(tensors))
    fail(TB_ERROR_CONFIG, "tensors %s is %s; it must be an object", kWhere, shown(tensors).c_str());
  manifest.bits = text_of(bits);
  if (is_string(digest)) manifest.sha256 = text_of(digest);
  each_member(tensors,
              [&](std::string_view name, Json entry) { manifest.tensors.emplace(name, read_spec(name, entry)); });
  return manifest;
}

BitWidths parse_bits(const std::string &label) {
  int numbers[3] = {}, count = 0;
  size_t at = 0;
  while (count < 3 && at <= label.size()) {
    const size_t end = std::min(label.find('-', at), label.size());
    const std::string part = label.substr(at, end - at);
    const bool digits = !part.empty() && part.size() <= 2 && part.find_first_not_of("0123456789") == part.npos;
    numbers[count++] = digits && part[0] != '0' ? std::stoi(part) : 0;
    at = end + 1;
  }
  const auto weight = [](int n) { return n == 2 || n == 3 || n == 4 || n == 8 || n == 32; };
  const bool activation = (numbers[2] >= 2 && numbers[2] <= 16) || numbers[2] == 32;
  if (count != 3 || at != label.size() + 1 || !weight(numbers[0]) || !weight(numbers[1]) || !activation)
    fail(TB_ERROR_CONFIG, "bits is %s; expected W-E-A such as '2-2-8', W and E of 2, 3, 4, 8 or 32",
         shown(label).c_str());
  return {numbers[0], numbers[1], numbers[2]};
}

void check_layout(const Manifest &manifest, const Arrays &arrays) {
  const auto expected = layout(manifest);
  for (const auto &[name, _] : expected)
    if (!arrays.contains(name)) fail(TB_ERROR_TENSOR, "%s lacks the tensor '%.100s'", manifest.weights, name.c_str());
  for (const auto &[name, array] : arrays) {
    const auto wanted = expected.find(name);
    if (wanted == expected.end())
      fail(TB_ERROR_TENSOR, "%s has, unlike config.json, the tensor '%.100s'", manifest.weights, name.c_str());
    if (array.dtype != wanted->second.dtype || array.shape != wanted->second.shape)
      fail(TB_ERROR_TENSOR, "tensor '%.80s' is %s of shape %s; config.json has %s of %s", name.c_str(),
           array.dtype.c_str(), shown(array.shape).c_str(), wanted->second.dtype, shown(wanted->second.shape).c_str());
  }
}

} // namespace tb
