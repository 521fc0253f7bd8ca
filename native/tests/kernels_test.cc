// Every kernel that this CPU can run gives the portable kernel's numbers, and that one those of plain loops.
#include "../src/kernels/kernel.h"
#include "../src/memory.h"
#include "check.h"
#include "random_model.h"

#include <vector>

namespace {

using namespace tb;

struct Problem {
  int rows, outputs, inputs;
  bool ternary;
  std::vector<int8_t> weight;
  std::vector<float> x, scale, bias;

  Problem(int m, int n, int k, bool is_ternary, Random &random) : rows(m), outputs(n), inputs(k), ternary(is_ternary) {
    for (int i = 0; i < n * k; i++)
      weight.push_back(static_cast<int8_t>(is_ternary ? random.below(3) - 1 : random.below(255) - 127));
    for (int i = 0; i < m * k; i++)
      x.push_back(random.real(2.0f));
    for (int i = 0; i < n; i++)
      scale.push_back(random.real(0.1f)), bias.push_back(random.real(1.0f));
  }
};

// Quantize rows, multiply; as the encoder does it.
std::vector<float> multiply(const Kernel &kernel, const Problem &p) {
  const size_t columns = static_cast<size_t>(kernel.columns), n = static_cast<size_t>(p.outputs);
  const size_t k = static_cast<size_t>(p.inputs), m = static_cast<size_t>(p.rows), room = round_up(n, kPad);
  const size_t panels = (n + columns - 1) / columns, panel_bytes = kernel.panel_bytes(p.inputs, p.ternary);
  Buffer<uint8_t> packed(panels * panel_bytes);
  for (size_t i = 0; i < panels; i++)
    kernel.pack_panel(&p.weight[i * columns * k], k, static_cast<int>(std::min(columns, n - i * columns)), p.inputs,
                      p.ternary, &packed[i * panel_bytes]);
  Buffer<float> scale(room), bias(room), sum(room);
  Buffer<int32_t> correction(room);
  for (size_t i = 0; i < n; i++) {
    int32_t s = 0;
    for (size_t j = 0; j < k; j++)
      s += p.weight[i * k + j];
    scale[i] = p.scale[i];
    bias[i] = p.bias[i];
    sum[i] = static_cast<float>(s);
    correction[i] = s * (p.ternary ? 128 : kernel.wide_zero);
  }
  const size_t stride = kernel.row_bytes(p.inputs, p.ternary);
  Buffer<uint8_t> codes(m * stride);
  Buffer<float> x_scale(m), x_offset(m), row(round_up(k, kPad)), y(m * room);
  Buffer<int32_t> x_sum(m);
  const Quantizer quantizer{.bits = 8, .symmetric = false, .clip = 0.0f};
  for (size_t i = 0; i < m; i++) {
    std::memcpy(row.data(), &p.x[i * k], k * sizeof(float));
    const Grid grid = quantizer.grid(kernel.range(row.data(), p.inputs));
    x_scale[i] = grid.scale;
    x_offset[i] = grid.offset;
    x_sum[i] = kernel.quantize(row.data(), p.inputs, grid, p.ternary, &codes[i * stride]);
  }
  const PanelWeight weight{
      .outputs = p.outputs,
      .inputs = p.inputs,
      .ternary = p.ternary,
      .panels = packed.data(),
      .panel_bytes = panel_bytes,
      .scale = scale.data(),
      .bias = bias.data(),
      .sum = sum.data(),
      .correction = correction.data(),
  };
  const CodeRows rows{
      .codes = codes.data(),
      .stride = stride,
      .scale = x_scale.data(),
      .offset = x_offset.data(),
      .sum = x_sum.data(),
  };
  kernel.linear(weight, rows,
                {.row_begin = 0,
                 .row_end = p.rows,
                 .panel_begin = 0,
                 .panel_end = static_cast<int>(panels),
                 .y = y.data(),
                 .stride = room});
  std::vector<float> result;
  for (size_t i = 0; i < m; i++)
    result.insert(result.end(), &y[i * room], &y[i * room] + n);
  return result;
}

// The same in loops, one number at a time.
std::vector<float> multiply_plainly(const Problem &p) {
  std::vector<float> result;
  const size_t k = static_cast<size_t>(p.inputs);
  for (size_t i = 0; i < static_cast<size_t>(p.rows); i++) {
    const float *x = &p.x[i * k];
    Range range{x[0], x[0]};
    for (size_t j = 0; j < k; j++)
      range = join(range, {x[j], x[j]});
    const Grid g = Quantizer{.bits = 8, .symmetric = false, .clip = 0.0f}.grid(range);
    for (size_t n = 0; n < static_cast<size_t>(p.outputs); n++) {
      int64_t products = 0, sum = 0;
      for (size_t j = 0; j < k; j++) {
        const int code = static_cast<int>(std::nearbyint((x[j] - g.shift) * g.inverse));
        products += code * p.weight[n * k + j];
        sum += p.weight[n * k + j];
      }
      const float y = p.scale[n] * (g.scale * static_cast<float>(products) + g.offset * static_cast<float>(sum));
      result.push_back(y + p.bias[n]);
    }
  }
  return result;
}

bool runs_here(const Kernel &kernel) { return (kernel.features & ~tb_cpu_features()) == 0; }

bool same(const std::vector<float> &a, const std::vector<float> &b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void check_products(int m, int n, int k, bool ternary, Random &random) {
  const Problem problem(m, n, k, ternary, random);
  const std::vector<float> expected = multiply(portable_kernel, problem);
  if (m <= 7) CHECK(same(multiply_plainly(problem), expected));
  for (const Kernel *const *kernel = built_kernels(); *kernel; kernel++) {
    if (!runs_here(**kernel) || same(multiply(**kernel, problem), expected)) continue;
    failures++;
    std::fprintf(stderr, "%s: %d x %d x %d, %s\n", (*kernel)->name, m, n, k, ternary ? "ternary" : "8 bits");
  }
}

// Activations and codes at their extremes: 16-bit accumulators are then as full as they can be.
void check_extremes() {
  Random random(3);
  for (const int8_t code : {-1, 1})
    for (const float value : {0.0f, 1.0f}) {
      Problem problem(5, 40, 1030, true, random);
      for (int8_t &w : problem.weight)
        w = code;
      for (size_t i = 0; i < problem.x.size(); i++)
        problem.x[i] = i % 1030 == 0 ? 1.0f - value : value;
      const std::vector<float> expected = multiply_plainly(problem);
      for (const Kernel *const *kernel = built_kernels(); *kernel; kernel++)
        if (runs_here(**kernel)) CHECK(same(multiply(**kernel, problem), expected));
    }
}

// Rows of all lengths, with numbers of all sizes.
void check_rows() {
  Random random(4);
  for (int n = 1; n <= 140; n++) {
    const size_t room = round_up(static_cast<size_t>(n), kPad);
    Buffer<float> x(room), weight(room), bias(room);
    for (size_t i = 0; i < static_cast<size_t>(n); i++) {
      x[i] = random.real(8.0f) * std::exp2(static_cast<float>(random.below(12) - 9));
      weight[i] = random.real(2.0f);
      bias[i] = random.real(1.0f);
    }
    for (const Kernel *const *kernel = built_kernels(); *kernel; kernel++) {
      if (!runs_here(**kernel)) continue;
      for (int function = -1; function <= TB_TANH; function++) { // -1: LayerNorm
        Buffer<float> a(room), b(room);
        std::memcpy(a.data(), x.data(), room * sizeof(float));
        std::memcpy(b.data(), x.data(), room * sizeof(float));
        const auto apply = [&](const Kernel &k, float *row) {
          if (function >= 0) return k.activate(row, n, function);
          Range range;
          k.layer_norm(row, 0, 1, n, weight.data(), bias.data(), 1e-12, &range);
          return range;
        };
        const Range p = apply(portable_kernel, a.data()), q = apply(**kernel, b.data());
        CHECK(p.low == q.low && p.high == q.high);
        for (size_t i = 0; i < static_cast<size_t>(n); i++)
          CHECK(a[i] == b[i]);
      }
      CHECK((*kernel)->dot(x.data(), weight.data(), n) == portable_kernel.dot(x.data(), weight.data(), n));
    }
  }
}

// Rows that are normalized together are what each of them is alone.
void check_rows_together() {
  Random random(5);
  constexpr int kRows = 7, kNumbers = 45;
  const size_t stride = round_up(kNumbers, kPad);
  Buffer<float> together(kRows * stride), weight(stride), bias(stride);
  for (size_t i = 0; i < kRows * stride; i++)
    together[i] = random.real(3.0f);
  for (size_t i = 0; i < kNumbers; i++) {
    weight[i] = random.real(2.0f);
    bias[i] = random.real(1.0f);
  }
  for (const Kernel *const *kernel = built_kernels(); *kernel; kernel++) {
    if (!runs_here(**kernel)) continue;
    const auto normalize = [&](float *rows, int count, Range *ranges) {
      (*kernel)->layer_norm(rows, stride, count, kNumbers, weight.data(), bias.data(), 1e-12, ranges);
    };
    Buffer<float> alone(kRows * stride);
    std::memcpy(alone.data(), together.data(), together.bytes());
    Range ranges[kRows], range;
    normalize(together.data(), kRows, ranges);
    for (size_t r = 0; r < kRows; r++) {
      normalize(alone.data() + r * stride, 1, &range);
      CHECK(range.low == ranges[r].low && range.high == ranges[r].high);
      for (size_t i = 0; i < kNumbers; i++)
        CHECK(alone[r * stride + i] == together[r * stride + i]);
    }
  }
}

void check_not_finite() {
  for (const Kernel *const *kernel = built_kernels(); *kernel; kernel++) {
    if (!runs_here(**kernel)) continue;
    for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF})
      for (const int place : {0, 7, 30, 37}) {
        Buffer<float> x(64);
        x[static_cast<size_t>(place)] = bad;
        CHECK(std::isnan((*kernel)->range(x.data(), 38).low));
        CHECK(!std::isnan((*kernel)->range(x.data(), place ? place : 1).low) || place == 0);
      }
  }
}

} // namespace

int main() {
  Random random(1);
  for (const bool ternary : {true, false}) {
    for (const int m : {1, 2, 3, 5, 7, 63, 64, 65})
      check_products(m, 70, 83, ternary, random);
    check_products(1000, 33, 49, ternary, random);
    for (int i = 0; i < 40; i++)
      check_products(1 + random.below(20), 1 + random.below(200), 1 + random.below(1500), ternary, random);
  }
  check_extremes();
  check_rows();
  check_rows_together();
  check_not_finite();
  return report();
}
