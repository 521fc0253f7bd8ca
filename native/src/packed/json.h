// JSON as the packed format needs it (src/ternarybert/packed/strict_json.py): UTF-8, no key twice, no number beyond
// double precision, nesting at most 100 deep. One difference: half of a surrogate pair as an escape is an error here.
#pragma once

#include "../../third_party/yyjson/yyjson.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace tb {

constexpr size_t kJsonLimit = size_t(16) << 20; // bytes

using Json = yyjson_val *; // null: there is no such value

class JsonFile {
public:
  // `what` begins the message ("config.json") of the Failure, which has the given status.
  JsonFile(std::string_view text, const char *what, int status);
  Json root() const { return yyjson_doc_get_root(document_.get()); }

private:
  struct Free {
    void operator()(yyjson_doc *document) const { yyjson_doc_free(document); }
  };
  std::unique_ptr<yyjson_doc, Free> document_;
};

inline bool is_object(Json value) { return yyjson_is_obj(value); }
inline bool is_list(Json value) { return yyjson_is_arr(value); }
inline bool is_string(Json value) { return yyjson_is_str(value); }
inline std::string_view text_of(Json value) { return {yyjson_get_str(value), yyjson_get_len(value)}; }
inline Json member(Json object, std::string_view key) { return yyjson_obj_getn(object, key.data(), key.size()); }
inline bool equals(Json value, std::string_view text) { return is_string(value) && text_of(value) == text; }

// What Python calls an int: not true, not 1.0. Integers beyond 64 bits are none here, but no limit is that high.
std::optional<int64_t> integer_of(Json value);
std::optional<double> number_of(Json value);
bool is_true(Json value); // as Python's `if value:`

// A value for a message, cut short.
std::string shown(Json value);
std::string shown(std::string_view text);

template <class Function> void each_member(Json object, Function f) {
  size_t index, count;
  yyjson_val *key, *value;
  yyjson_obj_foreach(object, index, count, key, value) f(text_of(key), value);
}

template <class Function> void each_item(Json list, Function f) {
  size_t index, count;
  yyjson_val *value;
  yyjson_arr_foreach(list, index, count, value) f(value);
}

} // namespace tb
