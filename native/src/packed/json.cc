#include "json.h"

#include "../failure.h"

#include <cmath>
#include <unordered_set>

namespace tb {
namespace {

constexpr int kDeepest = 100;
constexpr size_t kShown = 40;

// Before parsing, so that what follows may call itself.
bool too_deep(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); i++) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\')
        i++;
      else if (c == '"')
        quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kDeepest) return true;
    } else if (c == ']' || c == '}') {
      depth--;
    }
  }
  return false;
}

std::optional<std::string> repeated_key(Json value) {
  std::optional<std::string> found;
  if (is_object(value)) {
    std::unordered_set<std::string_view> seen;
    seen.reserve(yyjson_obj_size(value));
    each_member(value, [&](std::string_view key, Json inner) {
      if (!found && !seen.insert(key).second) found = shown(key);
      if (!found) found = repeated_key(inner);
    });
  } else if (is_list(value)) {
    each_item(value, [&](Json inner) {
      if (!found) found = repeated_key(inner);
    });
  }
  return found;
}

} // namespace

JsonFile::JsonFile(std::string_view text, const char *what, int status) {
  if (too_deep(text)) fail(status, "%s is not JSON: it is nested too deeply, beyond %d levels", what, kDeepest);
  yyjson_read_err error{};
  // Without the flag for reading in place the text is not changed, whatever the type says.
  document_.reset(yyjson_read_opts(const_cast<char *>(text.data()), text.size(), YYJSON_READ_NOFLAG, nullptr, &error));
  if (!document_ && error.code == YYJSON_READ_ERROR_MEMORY_ALLOCATION) throw std::bad_alloc();
  if (!document_) fail(status, "%s is not JSON: %s (byte %zu)", what, error.msg, error.pos);
  if (const auto key = repeated_key(root()))
    fail(status, "%s is not JSON: the key %s occurs twice", what, key->c_str());
}

std::optional<int64_t> integer_of(Json value) {
  if (yyjson_is_sint(value)) return yyjson_get_sint(value);
  if (yyjson_is_uint(value) && yyjson_get_uint(value) <= INT64_MAX) return static_cast<int64_t>(yyjson_get_uint(value));
  return std::nullopt;
}

std::optional<double> number_of(Json value) {
  if (yyjson_is_num(value)) return yyjson_get_num(value);
  return std::nullopt;
}

bool is_true(Json value) {
  if (yyjson_is_bool(value)) return yyjson_get_bool(value);
  if (yyjson_is_num(value)) return yyjson_get_num(value) != 0.0;
  if (is_string(value)) return yyjson_get_len(value) != 0;
  return yyjson_is_ctn(value) && yyjson_get_len(value) != 0;
}

std::string shown(std::string_view text) {
  std::string result = "'";
  for (const char c : text.substr(0, kShown))
    result.push_back(static_cast<unsigned char>(c) < 0x20 ? ' ' : c);
  return result + (text.size() > kShown ? "...'" : "'");
}

std::string shown(Json value) {
  if (!value) return "missing";
  if (is_string(value)) return shown(text_of(value));
  if (is_object(value)) return "an object";
  if (is_list(value)) return "a list";
  if (yyjson_is_bool(value)) return yyjson_get_bool(value) ? "true" : "false";
  if (yyjson_is_null(value)) return "null";
  char digits[40];
  if (const auto integer = integer_of(value))
    std::snprintf(digits, sizeof digits, "%lld", static_cast<long long>(*integer));
  else
    std::snprintf(digits, sizeof digits, "%.17g", yyjson_get_num(value));
  return digits;
}

} // namespace tb
