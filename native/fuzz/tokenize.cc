// Fuzzing (libFuzzer): any text, also one that is not UTF-8, gives tokens or a named error; `make fuzz`.
//
// The model is the bundle that the environment variable TB_FUZZ_MODEL names. Offsets must lie within the texts.
#include "ternarybert.h"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

tb_text_model *model() {
  static tb_text_model *const opened = [] {
    tb_text_model *made = nullptr;
    tb_error error;
    const char *const path = std::getenv("TB_FUZZ_MODEL");
    if (tb_open(path ? path : "", nullptr, 1, 0, &made, &error) != TB_OK) {
      std::fprintf(stderr, "TB_FUZZ_MODEL: %s\n", error.message);
      std::exit(1);
    }
    return made;
  }();
  return opened;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const size_t first = size ? data[0] % size : 0; // where the pair begins
  const char *const bytes = reinterpret_cast<const char *>(data);
  const bool pair = size > 1 && data[1] % 2;
  const tb_text text = {bytes, pair ? first : size, pair ? bytes + first : nullptr, pair ? size - first : 0};
  tb_tokens tokens;
  tb_error error;
  const int status = tb_tokenize(model(), &text, &tokens, &error);
  if (status != TB_OK) return status == TB_ERROR_INPUT ? 0 : (std::abort(), 0);
  for (int32_t i = 0; i < tokens.count; i++)
    if (tokens.starts[i] > tokens.ends[i] || tokens.ends[i] > size) std::abort();
  tb_tokens_free(&tokens);
  return 0;
}
