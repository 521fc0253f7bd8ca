// `model.safetensors`: named arrays in one file (src/ternarybert/packed/weights_file.py).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tb {

using Shape = std::vector<int64_t>;

struct Array {
  std::string dtype; // U8, I8, F32 or F16
  Shape shape;
  const uint8_t *data;
  size_t bytes;
};
using Arrays = std::map<std::string, Array, std::less<>>;

// Whether a tensor may have this name: the characters of Hugging Face names and no others.
bool is_tensor_name(std::string_view name);
std::string shown(const Shape &shape);

// The arrays of a file, which must outlive them; `file` is its name. The header must account for every byte exactly
// once.
Arrays read_arrays(const uint8_t *data, size_t size, const char *file);

} // namespace tb
