// The files of a folder: regular files, of bounded size, inside the folder (src/ternarybert/packed/files.py).
#include "../failure.h"
#include "files.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <system_error>

namespace fs = std::filesystem;

namespace tb {
namespace {

constexpr const char *kPickled[] = {".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib"};

fs::path path_of(const char *text) { // UTF-8, also on Windows
  const std::string_view view(text);
  return fs::path(std::u8string(view.begin(), view.end()));
}

std::string name_of(const fs::path &path) {
  const std::u8string name = path.filename().u8string();
  return std::string(name.begin(), name.end());
}

FileBytes read_all(const fs::path &path, size_t limit) {
  struct Close {
    void operator()(std::FILE *file) const { std::fclose(file); }
  };
  const std::string name = name_of(path);
#if defined(_WIN32)
  const std::unique_ptr<std::FILE, Close> file(_wfopen(path.c_str(), L"rb"));
#else
  const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "rb"));
#endif
  if (!file) fail(TB_ERROR_READ, "%.80s cannot be opened", name.c_str());
  std::error_code error;
  const uintmax_t expected = fs::file_size(path, error);
  auto bytes = std::make_shared<std::vector<uint8_t>>();
  const size_t step = size_t(1) << 16;
  if (!error) bytes->reserve(std::min<uintmax_t>(expected, limit) + 1);
  for (;;) { // the file may be longer than it said
    const size_t have = bytes->size(), room = std::max(step, bytes->capacity() - have);
    bytes->resize(have + room);
    const size_t got = std::fread(bytes->data() + have, 1, room, file.get());
    bytes->resize(have + got);
    if (std::ferror(file.get())) fail(TB_ERROR_READ, "%.80s cannot be read", name.c_str());
    if (bytes->size() > limit)
      fail(TB_ERROR_CONFIG, "%.80s is longer than %zu bytes, which is the limit", name.c_str(), limit);
    if (got < room) break;
  }
  return {bytes->data(), bytes->size(), bytes};
}

bool lies_in(const fs::path &target, const fs::path &root) {
  const auto [rest, _] = std::mismatch(root.begin(), root.end(), target.begin(), target.end());
  return rest == root.end();
}

class Folder : public Files {
public:
  explicit Folder(fs::path place) : place_(std::move(place)) { refuse_escapes(); }

  std::optional<FileBytes> find(const char *name, size_t limit) const override {
    const fs::path path = place_ / name;
    std::error_code error;
    if (!fs::exists(fs::symlink_status(path, error))) return std::nullopt;
    if (!fs::is_regular_file(path, error)) // a pipe would block us, a directory or a dangling link cannot be read
      fail(TB_ERROR_FILE, "%s is not a regular file", name);
    return read_all(path, limit);
  }

  std::string find_pickled() const override {
    std::string found;
    for (const fs::directory_entry &entry : fs::directory_iterator(place_)) {
      const std::string name = name_of(entry.path());
      std::string ending = entry.path().extension().string();
      std::transform(ending.begin(), ending.end(), ending.begin(), [](unsigned char c) { return std::tolower(c); });
      const bool pickled = std::any_of(std::begin(kPickled), std::end(kPickled), [&](auto p) { return ending == p; });
      if (pickled && (found.empty() || name < found)) found = name;
    }
    return found;
  }

private:
  // Symbolic links must not lead out of the folder, but may lead into the `blobs` of the hub's download cache.
  void refuse_escapes() const {
    const fs::path here = fs::canonical(place_);
    std::vector<fs::path> roots{here};
    for (fs::path parent = here.parent_path(); parent != parent.parent_path(); parent = parent.parent_path())
      if (parent.filename() == "snapshots") {
        roots.push_back(parent.parent_path() / "blobs");
        break;
      }
    for (const fs::directory_entry &entry : fs::directory_iterator(place_)) {
      if (!entry.is_symlink()) continue;
      std::error_code error; // a link to itself has no target
      const fs::path target = fs::weakly_canonical(entry.path(), error);
      const bool inside = std::any_of(roots.begin(), roots.end(), [&](auto &root) { return lies_in(target, root); });
      if (!error && !inside)
        fail(TB_ERROR_FILE, "%.80s is a symbolic link that leads out of the folder", name_of(entry.path()).c_str());
    }
  }

  fs::path place_;
};

// A bundle with its bytes.
class BundleFile : public Files {
public:
  explicit BundleFile(const fs::path &path)
      : bytes_(read_all(path, SIZE_MAX)), bundle_(open_bundle(bytes_.data, bytes_.size)) {}

  std::optional<FileBytes> find(const char *name, size_t limit) const override { return bundle_->find(name, limit); }

private:
  FileBytes bytes_;
  std::unique_ptr<Files> bundle_;
};

} // namespace

std::unique_ptr<Files> open_files(const char *path) {
  try {
    const fs::path place = path_of(path);
    std::error_code error;
    const fs::file_status status = fs::status(place, error);
    if (fs::is_directory(status)) return std::make_unique<Folder>(place);
    if (!fs::exists(status)) fail(TB_ERROR_NOT_PACKED, "there is no such folder or file");
    if (!fs::is_regular_file(status)) fail(TB_ERROR_FILE, "this is neither a folder nor a regular file");
    return std::make_unique<BundleFile>(place);
  } catch (const fs::filesystem_error &error) {
    fail(TB_ERROR_READ, "cannot be read: %.150s", error.code().message().c_str());
  }
}

} // namespace tb
