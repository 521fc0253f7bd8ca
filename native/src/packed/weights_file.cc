#include "weights_file.h"

#include "../failure.h"
#include "json.h"

#include <algorithm>
#include <cstring>

namespace tb {
namespace {

constexpr int64_t kLargest = int64_t(1) << 48; // bytes or elements
constexpr size_t kMostDimensions = 8, kLongestName = 500;

struct DtypeSize {
  const char *name;
  int64_t bytes;
  bool ours;
};
constexpr DtypeSize kDtypes[] = {
    {"F32", 4, true},  {"F16", 2, true},  {"U8", 1, true},    {"I8", 1, true},   {"BOOL", 1, false},
    {"I16", 2, false}, {"U16", 2, false}, {"BF16", 2, false}, {"I32", 4, false}, {"U32", 4, false},
    {"I64", 8, false}, {"U64", 8, false}, {"F64", 8, false},
};

bool naturals(Json value, Shape &numbers) {
  if (!is_list(value) || yyjson_arr_size(value) > kMostDimensions) return false;
  bool good = true;
  each_item(value, [&](Json item) {
    const auto number = integer_of(item);
    good = good && number && *number >= 0 && *number < kLargest;
    numbers.push_back(number.value_or(0));
  });
  return good;
}

// The product of the numbers that are not 0, or kLargest if it is larger; an array without elements has one, too.
int64_t bounded_product(const Shape &shape) {
  int64_t product = 1;
  for (const int64_t n : shape) {
    if (n > 0 && product > kLargest / n) return kLargest;
    product *= n > 0 ? n : 1;
  }
  return product;
}

Array entry(std::string_view name, Json described, const uint8_t *start, size_t room) {
  const std::string shown_name(name.substr(0, 100));
  if (!is_tensor_name(name)) fail(TB_ERROR_CONTAINER, "%s is not a tensor name", shown(name).c_str());
  const bool complete = is_object(described) && yyjson_obj_size(described) == 3;
  const Json dtype = complete ? member(described, "dtype") : nullptr;
  const Json shape = complete ? member(described, "shape") : nullptr;
  const Json offsets = complete ? member(described, "data_offsets") : nullptr;
  if (!dtype || !shape || !offsets)
    fail(TB_ERROR_CONTAINER, "tensor '%s': the header must give dtype, shape and data_offsets, and nothing else",
         shown_name.c_str());
  const DtypeSize *known =
      std::find_if(std::begin(kDtypes), std::end(kDtypes), [&](const DtypeSize &d) { return equals(dtype, d.name); });
  if (known == std::end(kDtypes))
    fail(TB_ERROR_CONTAINER, "tensor '%s': unknown dtype %s", shown_name.c_str(), shown(dtype).c_str());
  Array array{known->name, {}, start, 0};
  Shape ends;
  if (!naturals(shape, array.shape) || bounded_product(array.shape) >= kLargest || !naturals(offsets, ends) ||
      ends.size() != 2)
    fail(TB_ERROR_CONTAINER, "tensor '%s': its shape or data_offsets is malformed", shown_name.c_str());
  const bool empty = std::find(array.shape.begin(), array.shape.end(), 0) != array.shape.end();
  const int64_t bytes = empty ? 0 : bounded_product(array.shape) * known->bytes;
  if (ends[1] - ends[0] != bytes)
    fail(TB_ERROR_CONTAINER, "tensor '%s': %lld bytes are given, but %s of shape %s takes %lld", shown_name.c_str(),
         static_cast<long long>(ends[1] - ends[0]), known->name, shown(array.shape).c_str(),
         static_cast<long long>(bytes));
  array.bytes = static_cast<size_t>(bytes);
  // Past the end is found when all tensors are put together; no pointer is made there.
  array.data = start + std::min(static_cast<uint64_t>(ends[0]), static_cast<uint64_t>(room));
  return array;
}

void check_cover(Json header, size_t room, const char *file) {
  struct Part {
    int64_t begin, end;
    std::string_view name;
  };
  std::vector<Part> parts;
  each_member(header, [&](std::string_view name, Json described) {
    if (name == "__metadata__") return;
    const Json offsets = member(described, "data_offsets");
    parts.push_back({*integer_of(yyjson_arr_get(offsets, 0)), *integer_of(yyjson_arr_get(offsets, 1)), name});
  });
  std::sort(parts.begin(), parts.end(),
            [](const Part &a, const Part &b) { return a.begin != b.begin ? a.begin < b.begin : a.end < b.end; });
  int64_t position = 0;
  for (const Part &part : parts) {
    if (part.begin != position)
      fail(TB_ERROR_CONTAINER, "%s: tensor '%.100s' %s", file, std::string(part.name).c_str(),
           part.begin < position ? "overlaps the tensor before it" : "leaves a gap before it");
    position = part.end;
  }
  if (static_cast<uint64_t>(position) != room)
    fail(TB_ERROR_CONTAINER, "%s is %s: %zu bytes of tensors, but its header describes %lld", file,
         static_cast<uint64_t>(position) > room ? "truncated" : "longer than its tensors", room,
         static_cast<long long>(position));
}

void check_metadata(Json metadata) {
  bool strings = !metadata || is_object(metadata);
  if (metadata && strings) each_member(metadata, [&](std::string_view, Json value) { strings &= is_string(value); });
  if (!strings) fail(TB_ERROR_CONTAINER, "__metadata__ in the header is not an object of strings");
}

} // namespace

bool is_tensor_name(std::string_view name) {
  return !name.empty() && name.size() <= kLongestName && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '-';
  });
}

std::string shown(const Shape &shape) {
  std::string text = "(";
  for (const int64_t n : shape)
    text += (text.size() > 1 ? ", " : "") + std::to_string(n);
  return text + ")";
}

Arrays read_arrays(const uint8_t *data, size_t size, const char *file) {
  uint64_t length = 0;
  for (size_t i = 0; i < std::min<size_t>(size, 8); i++)
    length |= static_cast<uint64_t>(data[i]) << 8 * i;
  if (size < 8 || length > size - 8)
    fail(TB_ERROR_CONTAINER, "%s is truncated: %zu bytes, but its header alone claims %llu", file, size,
         static_cast<unsigned long long>(length));
  if (length > kJsonLimit)
    fail(TB_ERROR_CONTAINER, "the header of %s claims %llu bytes; the limit is %zu", file,
         static_cast<unsigned long long>(length), kJsonLimit);
  const std::string_view text(reinterpret_cast<const char *>(data) + 8, static_cast<size_t>(length));
  const JsonFile json(text, (std::string("the header of ") + file).c_str(), TB_ERROR_CONTAINER);
  const Json header = json.root();
  if (!is_object(header) || text.front() != '{')
    fail(TB_ERROR_CONTAINER, "the header of %s is not a JSON object", file);
  check_metadata(member(header, "__metadata__"));
  const uint8_t *start = data + 8 + length;
  const size_t room = size - 8 - static_cast<size_t>(length);
  Arrays arrays;
  each_member(header, [&](std::string_view name, Json described) {
    if (name != "__metadata__") arrays.emplace(name, entry(name, described, start, room));
  });
  check_cover(header, room, file);
  for (const auto &[name, array] : arrays)
    for (const DtypeSize &dtype : kDtypes)
      if (array.dtype == dtype.name && !dtype.ours)
        fail(TB_ERROR_CONTAINER, "tensor '%.100s' is %s; allowed: F32, F16, U8, I8", name.c_str(), dtype.name);
  return arrays;
}

} // namespace tb
