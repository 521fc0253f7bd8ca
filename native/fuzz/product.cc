// Fuzzing (libFuzzer): any product gives an answer, the same from every kernel, or a named error.
#include "input.h"

namespace {

void multiply(Input &input) {
  tb_product p{};
  p.rows = 1 + input.below(70);
  p.inputs = 1 + input.below(200);
  p.outputs = 1 + input.below(100);
  p.scales = input.below(2) ? p.outputs : 1;
  const size_t rows = static_cast<size_t>(p.rows), inputs = static_cast<size_t>(p.inputs);
  const size_t outputs = static_cast<size_t>(p.outputs);
  float *const codes = input.floats(rows * inputs);
  const bool whole = input.below(4) != 0; // else there is no right answer, but no crash either
  for (size_t i = 0; whole && i < rows * inputs; i++) {
    uint8_t code;
    std::memcpy(&code, codes + i, 1);
    codes[i] = static_cast<float>(code);
  }
  p.codes = codes;
  p.x_scale = input.floats(rows);
  p.x_offset = input.floats(rows);
  uint8_t *const weight = input.bytes(outputs * inputs);
  for (size_t i = 0; i < outputs * inputs && input.below(2); i++)
    weight[i] = static_cast<uint8_t>(weight[i] % 3 - 1);
  p.weight = reinterpret_cast<const int8_t *>(weight);
  p.scale = input.floats(static_cast<size_t>(p.scales));
  if (input.below(2)) p.bias = input.floats(outputs);
  std::vector<float> expected;
  for (const char *const *kernel = tb_kernels(); *kernel; kernel++) {
    std::vector<float> y(rows * outputs);
    p.y = y.data();
    tb_error error{};
    const bool done = ok(tb_multiply(&p, *kernel, 1, &error), error);
    if (kernel == tb_kernels())
      expected = done ? y : std::vector<float>();
    else if (done == expected.empty())
      fail("kernels differ in what they accept");
    for (size_t i = 0; done && whole && i < y.size(); i++) // NaN, of infinite scales, has more than one form
      if (!(y[i] == expected[i]) && !(y[i] != y[i] && expected[i] != expected[i])) fail("kernels differ");
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Input input(data, size);
  multiply(input);
  return 0;
}
