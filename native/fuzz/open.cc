// Fuzzing (libFuzzer): any bytes given to tb_open_memory are a model or a named error; `make fuzz`.
//
// The input is a bundle without its first 40 bytes: the hash would keep everything else out. A model that opens is run.
#include "../src/packed/sha256.h"
#include "ternarybert.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::vector<uint8_t> bundle = {'T', 'B', 'E', 'R', 'T', 0, 0, 1};
  const std::string digest = tb::sha256(data, size);
  for (size_t i = 0; i < 64; i += 2)
    bundle.push_back(static_cast<uint8_t>(std::stoi(digest.substr(i, 2), nullptr, 16)));
  bundle.insert(bundle.end(), data, data + size);
  tb_text_model *model = nullptr;
  tb_error error{};
  const int status = tb_open_memory(bundle.data(), bundle.size(), nullptr, 1, 0, &model, &error);
  if ((status == TB_OK) != (model != nullptr)) std::abort();
  if (!model) return error.message[0] ? 0 : (std::abort(), 0);
  tb_text_info info;
  tb_text_model_info(model, &info, &error);
  const tb_text text = {"the film was good", 17, nullptr, 0};
  std::vector<float> vector(static_cast<size_t>(info.hidden));
  tb_embed(model, &text, 1, TB_OUTPUT_MEAN, 1, vector.data(), vector.size(), &error);
  tb_close(model);
  return 0;
}
