// The files of a model: in a folder that anybody may have made, or in one bundled file (docs/reference/format.md).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tb {

// The bytes of a file; a copy shares them.
struct FileBytes {
  const uint8_t *data = nullptr;
  size_t size = 0;
  std::shared_ptr<const std::vector<uint8_t>> owner; // null: somebody else keeps them

  std::string_view text() const { return {reinterpret_cast<const char *>(data), size}; }
};

class Files {
public:
  virtual ~Files() = default;
  // A file's bytes; none if there is no such file. Larger than `limit` is a Failure.
  virtual std::optional<FileBytes> find(const char *name, size_t limit = SIZE_MAX) const = 0;
  // A file with pickled weights, which are never read; empty if there is none.
  virtual std::string find_pickled() const { return {}; }
  // Whether the bytes of all files were compared with a hash already.
  virtual bool hashed() const { return false; }
};

// From a path: a folder, or a bundled file.
std::unique_ptr<Files> open_files(const char *path);
// From a bundled file in memory, which must outlive the result.
std::unique_ptr<Files> open_bundle(const uint8_t *data, size_t size);

} // namespace tb
