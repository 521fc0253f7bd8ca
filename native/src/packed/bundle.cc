// One file with all files of a model:
//
//    8 bytes   "TBERT" and the bundle's version: 0 0 1
//   32 bytes   SHA-256 of everything after it
//    8 bytes   N, little-endian
//    N bytes   JSON: {"files": [{"name": .., "size": ..}, ..]}
//              the files, each at the next multiple of 8, zeros between them
#include "../failure.h"
#include "files.h"
#include "json.h"
#include "sha256.h"

#include <algorithm>
#include <cstring>

namespace tb {
namespace {

constexpr uint8_t kMagic[8] = {'T', 'B', 'E', 'R', 'T', 0, 0, 1};
constexpr size_t kDigestAt = 8, kHashedFrom = 40, kHeaderAt = 48;

size_t aligned(size_t n) { return (n + 7) / 8 * 8; }

class Bundle : public Files {
public:
  Bundle(const uint8_t *data, size_t size) {
    check_start(data, size);
    uint64_t length;
    std::memcpy(&length, data + kHashedFrom, sizeof length);
    if (length > kJsonLimit || length > size - kHeaderAt)
      fail(TB_ERROR_CONTAINER, "the bundle is truncated: its header claims %llu bytes", (unsigned long long)length);
    const FileBytes header{data + kHeaderAt, static_cast<size_t>(length), nullptr};
    const JsonFile json(header.text(), "the bundle's header", TB_ERROR_CONTAINER);
    const Json list = is_object(json.root()) ? member(json.root(), "files") : nullptr;
    if (!is_list(list)) fail(TB_ERROR_CONTAINER, "the bundle's header has no list of files");
    size_t end = kHeaderAt + header.size;
    each_item(list, [&](Json file) {
      const Json name = is_object(file) ? member(file, "name") : nullptr;
      const auto bytes = is_object(file) ? integer_of(member(file, "size")) : std::nullopt;
      const size_t begin = aligned(end);
      if (!is_string(name) || !bytes || *bytes < 0 || begin > size || uint64_t(*bytes) > size - begin)
        fail(TB_ERROR_CONTAINER, "the bundle's header is malformed, or the bundle is truncated");
      if (std::any_of(data + end, data + begin, [](uint8_t byte) { return byte != 0; }))
        fail(TB_ERROR_CONTAINER, "the bundle has something else than zeros between its files");
      end = begin + static_cast<size_t>(*bytes);
      const FileBytes content{data + begin, static_cast<size_t>(*bytes), nullptr};
      if (!files_.emplace(text_of(name), content).second)
        fail(TB_ERROR_CONTAINER, "the bundle has the file %s twice", shown(name).c_str());
    });
    if (end != size) fail(TB_ERROR_CONTAINER, "the bundle is longer than its files");
  }

  std::optional<FileBytes> find(const char *name, size_t limit) const override {
    const auto found = files_.find(name);
    if (found == files_.end()) return std::nullopt;
    if (found->second.size > limit)
      fail(TB_ERROR_CONFIG, "%s is longer than %zu bytes, which is the limit", name, limit);
    return found->second;
  }

  bool hashed() const override { return true; }

private:
  static void check_start(const uint8_t *data, size_t size) {
    if (size < sizeof kMagic || std::memcmp(data, kMagic, sizeof kMagic - 1) != 0)
      fail(TB_ERROR_NOT_PACKED, "not a bundled model; `ternarybert bundle` makes one from a packed folder");
    if (data[7] != kMagic[7])
      fail(TB_ERROR_VERSION, "bundle version %d; the one supported here is %d", data[7], kMagic[7]);
    if (size < kHeaderAt) fail(TB_ERROR_CONTAINER, "the bundle is truncated: %zu bytes", size);
    const std::string found = sha256(data + kHashedFrom, size - kHashedFrom);
    for (size_t i = 0; i < 32; i++)
      if (std::stoi(found.substr(2 * i, 2), nullptr, 16) != data[kDigestAt + i])
        fail(TB_ERROR_CONTAINER, "the bundle is damaged or truncated: its SHA-256 differs; copy it again");
  }

  std::map<std::string, FileBytes, std::less<>> files_;
};

} // namespace

std::unique_ptr<Files> open_bundle(const uint8_t *data, size_t size) { return std::make_unique<Bundle>(data, size); }

} // namespace tb
