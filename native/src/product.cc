#include "product.h"

#include "failure.h"
#include "float_mode.h"
#include "memory.h"
#include "pool.h"

#include <algorithm>

namespace tb {
namespace {

constexpr int kLargest = 65536; // 65536 * 255 * 128 < 2^31: no sum leaves 32 bits
constexpr int kTiles = 12;      // of a block of rows: small enough that the block stays in the cache for all panels

bool is_ternary(const int8_t *codes, size_t count) {
  int8_t low = 0, high = 0;
  for (size_t i = 0; i < count; i++) {
    low = std::min(low, codes[i]);
    high = std::max(high, codes[i]);
  }
  return low >= -1 && high <= 1;
}

size_t padded_outputs(const tb_product &p) { return round_up(static_cast<size_t>(p.outputs), kPad); }

int panel_count(const tb_product &p, const Kernel &kernel) { return (p.outputs + kernel.columns - 1) / kernel.columns; }

// The weight in the kernel's panels.
class Panels {
public:
  Panels(const tb_product &p, const Kernel &kernel)
      : scale_(padded_outputs(p)), bias_(padded_outputs(p)), sum_(padded_outputs(p)), correction_(padded_outputs(p)) {
    const size_t n = static_cast<size_t>(p.outputs), k = static_cast<size_t>(p.inputs);
    weight_.outputs = p.outputs;
    weight_.inputs = p.inputs;
    weight_.ternary = is_ternary(p.weight, checked(n, k));
    weight_.panel_bytes = kernel.panel_bytes(p.inputs, weight_.ternary);
    panels_ = Buffer<uint8_t>(checked(static_cast<size_t>(panel_count(p, kernel)), weight_.panel_bytes));
    for (size_t i = 0; i < n; i++) {
      const int8_t *row = p.weight + i * k;
      int32_t sum = 0;
      for (size_t j = 0; j < k; j++)
        sum += row[j];
      scale_[i] = p.scale[p.scales == 1 ? 0 : i];
      bias_[i] = p.bias ? p.bias[i] : -0.0f; // what changes no number, not even -0
      sum_[i] = static_cast<float>(sum);
      correction_[i] = sum * (weight_.ternary ? 128 : kernel.wide_zero);
    }
    weight_.panels = panels_.data();
    weight_.scale = scale_.data();
    weight_.bias = bias_.data();
    weight_.sum = sum_.data();
    weight_.correction = correction_.data();
  }

  void pack(const tb_product &p, const Kernel &kernel, int panel) const {
    const int begin = panel * kernel.columns;
    kernel.pack_panel(p.weight + static_cast<size_t>(begin) * p.inputs, static_cast<size_t>(p.inputs),
                      std::min(kernel.columns, p.outputs - begin), p.inputs, weight_.ternary,
                      &panels_[static_cast<size_t>(panel) * weight_.panel_bytes]);
  }

  const PanelWeight &weight() const { return weight_; }

private:
  PanelWeight weight_{};
  Buffer<uint8_t> panels_;
  Buffer<float> scale_, bias_, sum_;
  Buffer<int32_t> correction_;
};

// What one worker needs for a block of rows.
struct Block {
  Block(const tb_product &p, const Kernel &kernel, bool ternary, int rows)
      : stride(kernel.row_bytes(p.inputs, ternary)), codes(checked(static_cast<size_t>(rows), stride)),
        row(round_up(static_cast<size_t>(p.inputs), kPad)),
        y(p.outputs % kernel.columns == 0 ? 0 : checked(static_cast<size_t>(rows), padded_outputs(p))),
        sum(static_cast<size_t>(rows)) {}

  size_t stride;
  Buffer<uint8_t> codes;
  Buffer<float> row, y; // y: where the last panel would write beyond the caller's row
  Buffer<int32_t> sum;
};

// Codes are numbers already: rounding them to themselves brings them into the kernel's layout.
constexpr Grid kIdentity{1.0f, 0.0f, 0.0f, 1.0f, 0.0f, 255.0f, 0.0f};

void multiply_rows(const tb_product &p, const Kernel &kernel, const PanelWeight &weight, int begin, int end,
                   const Block &block) {
  const size_t k = static_cast<size_t>(p.inputs), n = static_cast<size_t>(p.outputs);
  const size_t first = static_cast<size_t>(begin), rows = static_cast<size_t>(end - begin);
  for (size_t r = 0; r < rows; r++) {
    std::memcpy(block.row.data(), p.codes + (first + r) * k, k * sizeof(float));
    block.sum[r] =
        kernel.quantize(block.row.data(), p.inputs, kIdentity, weight.ternary, &block.codes[r * block.stride]);
  }
  const CodeRows x{block.codes.data(), block.stride, const_cast<float *>(p.x_scale) + first,
                   const_cast<float *>(p.x_offset) + first, block.sum.data()};
  const bool direct = !block.y.data();
  float *const y = direct ? p.y + first * n : block.y.data();
  const size_t stride = direct ? n : padded_outputs(p);
  kernel.linear(weight, x, {0, end - begin, 0, panel_count(p, kernel), y, stride, nullptr});
  for (size_t r = 0; r < rows && !direct; r++)
    std::memcpy(p.y + (first + r) * n, y + r * stride, n * sizeof(float));
}

} // namespace

void check_product(const tb_product *product) {
  if (!product) fail(TB_ERROR_ARGUMENT, "product is null");
  const tb_product &p = *product;
  if (p.rows < 1 || p.outputs < 1 || p.inputs < 1 || p.inputs > kLargest || p.outputs > kLargest)
    fail(TB_ERROR_ARGUMENT, "%d rows, %d inputs, %d outputs; at least 1, inputs and outputs at most %d", p.rows,
         p.inputs, p.outputs, kLargest);
  if (p.scales != 1 && p.scales != p.outputs)
    fail(TB_ERROR_ARGUMENT, "%d scales for %d outputs; 1 or one each", p.scales, p.outputs);
  if (!p.codes || !p.x_scale || !p.x_offset || !p.weight || !p.scale || !p.y)
    fail(TB_ERROR_ARGUMENT, "an array of the product is null");
}

void multiply(const tb_product &p, const Kernel &kernel, int threads) {
  const FloatMode mode;
  const int step = std::min(p.rows, kTiles * kernel.rows), blocks = (p.rows - 1) / step + 1;
  const Panels panels(p, kernel);
  Pool pool(std::min(threads, blocks));
  std::vector<Block> workspace;
  for (int i = 0; i < pool.size(); i++)
    workspace.emplace_back(p, kernel, panels.weight().ternary, step);
  const bool alone = !pool.acquire();
  const Team team = alone ? Team() : Team(&pool);
  team.run(panel_count(p, kernel), [&](int panel, int) { panels.pack(p, kernel, panel); });
  team.run(blocks, [&](int block, int worker) {
    multiply_rows(p, kernel, panels.weight(), block * step, std::min(p.rows, (block + 1) * step),
                  workspace[static_cast<size_t>(worker)]);
  });
  if (!alone) pool.release();
}

} // namespace tb
