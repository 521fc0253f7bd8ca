// A single product, for training loops, where weights change on every call: the weight is packed, used and forgotten.
#include "float_mode.h"
#include "internal.h"
#include "memory.h"
#include "panels.h"
#include "pool.h"

#include <algorithm>
#include <atomic>
#include <vector>

namespace tb {
namespace {

// A block of rows has so many tiles at most: few enough that it stays in the cache while all panels are multiplied.
constexpr int kTiles = 12;
// Multiplications below which waking other threads takes longer than they save. Packing a weight takes the time of so
// many rows.
constexpr int64_t kParallelWork = 1 << 24, kPackingRows = 32;

// The threads of the last call; those of a program's training loop are all alike. The cache is never destroyed (threads
// may still multiply while the program exits), but emptied, so that no thread outlives the library.
PoolCache pool_cache;

#if !defined(_WIN32) // there, threads cannot be joined while a library is unloaded, and are gone when a program ends
struct CloseAtExit {
  ~CloseAtExit() { pool_cache.close(); }
} close_at_exit;
#endif

bool is_ternary(const int8_t *codes, size_t count) {
  uint8_t largest = 0; // of w + 1, unsigned: the baseline of x86-64 has a vector maximum for it
  for (size_t i = 0; i < count; i++)
    largest = std::max(largest, static_cast<uint8_t>(codes[i] + 1));
  return largest <= 2;
}

bool is_ternary(const tb_product &p, const Team &team) {
  constexpr size_t kRows = 32; // of a task
  const size_t outputs = static_cast<size_t>(p.outputs), inputs = static_cast<size_t>(p.inputs);
  std::atomic<bool> ternary{true};
  team.run(static_cast<int>((outputs + kRows - 1) / kRows), [&](int task, int) {
    const size_t begin = static_cast<size_t>(task) * kRows, end = std::min(outputs, begin + kRows);
    if (ternary && !is_ternary(p.weight + begin * inputs, (end - begin) * inputs)) ternary = false;
  });
  return ternary;
}

Panels pack(const tb_product &p, const Kernel &kernel, const Team &team) {
  const size_t inputs = static_cast<size_t>(p.inputs);
  Panels panels(kernel, p.outputs, p.inputs, is_ternary(p, team));
  panels.set_outputs(0, p.outputs, p.scale, p.scales, p.bias);
  team.run(panels.count(), [&](int panel, int) {
    panels.pack(kernel, panel, p.weight + static_cast<size_t>(panels.first_output(panel)) * inputs, inputs);
  });
  return panels;
}

// What one worker needs for a block of rows.
struct BlockMemory {
  BlockMemory(const tb_product &p, const Kernel &kernel, bool ternary, int block_rows)
      : rows(static_cast<size_t>(block_rows)), stride(kernel.row_bytes(p.inputs, ternary)),
        y_stride(round_up(static_cast<size_t>(p.outputs), kPad)), codes(checked(rows, stride)),
        row(round_up(static_cast<size_t>(p.inputs), kPad)),
        y(p.outputs % kernel.columns == 0 ? 0 : checked(rows, y_stride)), sum(rows) {}

  size_t rows, stride, y_stride;
  Buffer<uint8_t> codes;
  Buffer<float> row, y; // y: only where the last panel would write beyond the caller's row
  Buffer<int32_t> sum;
};

// Codes are whole numbers already: rounding them to themselves brings them into the kernel's layout.
constexpr Grid kIdentity{
    .scale = 1.0f, .offset = 0.0f, .shift = 0.0f, .inverse = 1.0f, .smallest = 0.0f, .largest = 255.0f, .zero = 0.0f};

void multiply_rows(const tb_product &p, const Kernel &kernel, const Panels &panels, int begin, int end,
                   const BlockMemory &memory) {
  const size_t k = static_cast<size_t>(p.inputs), n = static_cast<size_t>(p.outputs);
  const size_t first = static_cast<size_t>(begin), rows = static_cast<size_t>(end - begin);
  const PanelWeight &weight = panels.weight();
  for (size_t r = 0; r < rows; r++) {
    std::memcpy(memory.row.data(), p.codes + (first + r) * k, k * sizeof(float));
    memory.sum[r] =
        kernel.quantize(memory.row.data(), p.inputs, kIdentity, weight.ternary, &memory.codes[r * memory.stride]);
  }
  const CodeRows x{
      .codes = memory.codes.data(),
      .stride = memory.stride,
      .scale = p.x_scale + first,
      .offset = p.x_offset + first,
      .sum = memory.sum.data(),
  };
  const bool direct = !memory.y.data();
  float *const y = direct ? p.y + first * n : memory.y.data();
  const size_t y_stride = direct ? n : memory.y_stride;
  kernel.linear(weight, x,
                {.row_begin = 0,
                 .row_end = end - begin,
                 .panel_begin = 0,
                 .panel_end = panels.count(),
                 .y = y,
                 .stride = y_stride});
  for (size_t r = 0; r < rows && !direct; r++)
    std::memcpy(p.y + (first + r) * n, y + r * y_stride, n * sizeof(float));
}

// Rows of a block: as many blocks for each worker, of whole tiles.
int block_rows(int rows, const Kernel &kernel, int workers) {
  const int64_t most = kTiles * kernel.rows;
  const int64_t blocks =
      static_cast<int64_t>(round_up(static_cast<size_t>((rows + most - 1) / most), static_cast<size_t>(workers)));
  const int64_t tiles = (rows + blocks * kernel.rows - 1) / (blocks * kernel.rows);
  return static_cast<int>(std::min<int64_t>(rows, tiles * kernel.rows));
}

} // namespace

void multiply(const tb_product &p, const Kernel &kernel, int threads) {
  const FloatMode mode;
  const int64_t work = static_cast<int64_t>(p.inputs) * p.outputs * (p.rows + kPackingRows);
  Pool::Pointer pool = pool_cache.take(work < kParallelWork ? 1 : threads);
  const Team team = pool ? Team(pool.get()) : Team();
  const Panels panels = pack(p, kernel, team);
  const int step = block_rows(p.rows, kernel, team.size()), blocks = (p.rows - 1) / step + 1;
  std::vector<BlockMemory> memory;
  for (int i = 0; i < team.size(); i++)
    memory.emplace_back(p, kernel, panels.weight().ternary, step);
  team.run(blocks, [&](int block, int worker) {
    multiply_rows(p, kernel, panels, block * step, std::min(p.rows, (block + 1) * step),
                  memory[static_cast<size_t>(worker)]);
  });
  if (pool) pool_cache.put(std::move(pool));
}

} // namespace tb
