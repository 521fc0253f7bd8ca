// `quantization_config` in config.json: which tensors a packed model has, and how they are stored
// (src/ternarybert/packed/manifest.py).
#pragma once

#include "json.h"
#include "weights_file.h"

#include <map>
#include <string>

namespace tb {

// The format versions that this library reads, oldest first, and the file that holds the weights in each.
struct FormatVersion {
  int64_t number;
  const char *weights;
};
constexpr FormatVersion kFormatVersions[] = {
    {1, "model.safetensors"},
    {2, "ternarybert.safetensors"},
};

struct TensorSpec {
  bool packed = false;
  bool half = false; // float16
  int32_t bits = 32;
  bool log = false, dense = false, per_row = false;
  Shape shape;
};

struct Manifest {
  const char *weights = nullptr; // the file's name
  std::string bits;              // W-E-A
  std::string sha256;
  Json recipe = nullptr;
  std::map<std::string, TensorSpec, std::less<>> tensors;
};

Manifest read_manifest(Json config);

// W, E and A of a label such as 2-2-8.
struct BitWidths {
  int w, e, a;
};
BitWidths parse_bits(const std::string &label);

// Refuses arrays other than those that the manifest announces.
void check_layout(const Manifest &manifest, const Arrays &arrays);

} // namespace tb
