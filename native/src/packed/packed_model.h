// A packed model: its files read, every byte of them checked, and handed to the engine
// (src/ternarybert/packed/folder.py, packed/model.py and runtime/load.py).
#pragma once

#include "families.h"
#include "files.h"
#include "json.h"
#include "ternarybert.h"

#include <memory>

namespace tb {

struct FreeModel {
  void operator()(tb_model *model) const { tb_model_free(model); }
};
using ModelHandle = std::unique_ptr<tb_model, FreeModel>;

struct LoadedModel {
  std::unique_ptr<JsonFile> config_file;
  Json config = nullptr; // of config_file
  HeadKind kind = HeadKind::kNone;
  ModelHandle engine;
  int32_t hidden = 0, dense = 0, outputs = 0; // widths of the results; 0: there is none
  int32_t vocabulary = 0, max_tokens = 0;
  bool has_types = false; // more than one token type, and the family uses them
};

LoadedModel load_model(const Files &files, const char *kernel, int32_t threads);

// An object from a JSON file that must, or need not, be there.
std::unique_ptr<JsonFile> read_object(const Files &files, const char *name, bool required);

} // namespace tb
