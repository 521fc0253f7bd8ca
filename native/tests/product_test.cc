// tb_multiply gives the numbers of plain loops: any kernel, shape, weight and number of threads; and says what is
// wrong.
#include "check.h"
#include "random_model.h"
#include "ternarybert.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace {

struct Problem {
  std::vector<float> codes, x_scale, x_offset, scale, bias, y;
  std::vector<int8_t> weight;
  tb_product product{};

  Problem(int rows, int inputs, int outputs, int largest, bool row_scales, bool with_bias, Random &random) {
    for (int i = 0; i < rows * inputs; i++)
      codes.push_back(static_cast<float>(random.below(256)));
    for (int i = 0; i < outputs * inputs; i++)
      weight.push_back(static_cast<int8_t>(random.below(2 * largest + 1) - largest));
    for (int i = 0; i < rows; i++)
      x_scale.push_back(random.real(0.1f)), x_offset.push_back(random.real(2.0f));
    for (int i = 0; i < outputs; i++)
      scale.push_back(random.real(0.1f)), bias.push_back(random.real(1.0f));
    y.assign(static_cast<size_t>(rows) * static_cast<size_t>(outputs), std::numeric_limits<float>::quiet_NaN());
    product = {rows,
               inputs,
               outputs,
               row_scales ? outputs : 1,
               codes.data(),
               x_scale.data(),
               x_offset.data(),
               weight.data(),
               scale.data(),
               with_bias ? bias.data() : nullptr,
               y.data()};
  }

  std::vector<float> plainly() const {
    std::vector<float> result;
    const size_t k = static_cast<size_t>(product.inputs);
    for (size_t r = 0; r < x_scale.size(); r++)
      for (size_t n = 0; n < scale.size(); n++) {
        int64_t products = 0, sum = 0;
        for (size_t i = 0; i < k; i++) {
          products += static_cast<int64_t>(codes[r * k + i]) * weight[n * k + i];
          sum += weight[n * k + i];
        }
        const float inner = x_scale[r] * static_cast<float>(products) + x_offset[r] * static_cast<float>(sum);
        const float v = scale[product.scales == 1 ? 0 : n] * inner;
        result.push_back(product.bias ? v + bias[n] : v);
      }
    return result;
  }
};

bool same(const std::vector<float> &a, const std::vector<float> &b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void check_products() {
  Random random(1);
  for (const int rows : {1, 7, 130})
    for (const int inputs : {1, 63, 64, 200})
      for (const int outputs : {1, 16, 33, 128})
        for (const int largest : {0, 1, 7, 127}) {
          Problem problem(rows, inputs, outputs, largest, rows % 2 == 0, outputs % 2 == 0, random);
          const std::vector<float> expected = problem.plainly();
          for (const char *const *kernel = tb_kernels(); *kernel; kernel++)
            for (const int threads : {1, 2, 5}) {
              problem.y.assign(problem.y.size(), 0.0f);
              tb_error error;
              CHECK(tb_multiply(&problem.product, *kernel, threads, &error) == TB_OK);
              if (same(problem.y, expected)) continue;
              failures++;
              std::fprintf(stderr, "%s: %d x %d x %d, codes up to %d, %d threads\n", *kernel, rows, inputs, outputs,
                           largest, threads);
            }
        }
}

// The longest rows that are allowed, with the codes and weights that give the largest sums.
void check_largest() {
  for (const int code : {0, 255})
    for (const int w : {-128, -1, 1, 127}) {
      Random random(4);
      Problem problem(7, 65536, 70, 1, true, true, random);
      problem.codes.assign(problem.codes.size(), static_cast<float>(code));
      problem.weight.assign(problem.weight.size(), static_cast<int8_t>(w));
      for (size_t i = 0; i < problem.weight.size(); i += 4099) // outputs differ, so that none can stand for another
        problem.weight[i] = static_cast<int8_t>(w > 0 ? w - 1 : w + 1);
      const std::vector<float> expected = problem.plainly();
      for (const char *const *kernel = tb_kernels(); *kernel; kernel++) {
        tb_error error;
        CHECK(tb_multiply(&problem.product, *kernel, 1, &error) == TB_OK);
        CHECK(same(problem.y, expected));
      }
    }
}

template <class Change> void check_refused(const char *why, Change change) {
  Random random(2);
  Problem problem(3, 4, 5, 1, true, true, random);
  change(problem.product);
  tb_error error{};
  CHECK(tb_multiply(&problem.product, nullptr, 1, &error) == TB_ERROR_ARGUMENT);
  CHECK(std::string(error.message).find(why) != std::string::npos);
}

void check_mistakes() {
  check_refused("0 rows", [](tb_product &p) { p.rows = 0; });
  check_refused("-1 outputs", [](tb_product &p) { p.outputs = -1; });
  check_refused("70000 inputs", [](tb_product &p) { p.inputs = 70000; });
  check_refused("2 scales", [](tb_product &p) { p.scales = 2; });
  check_refused("null", [](tb_product &p) { p.weight = nullptr; });
  check_refused("null", [](tb_product &p) { p.y = nullptr; });
  tb_error error{};
  CHECK(tb_multiply(nullptr, nullptr, 1, &error) == TB_ERROR_ARGUMENT);
  Random random(3);
  Problem problem(3, 4, 5, 1, true, true, random);
  CHECK(tb_multiply(&problem.product, nullptr, 0, &error) == TB_ERROR_ARGUMENT);
  CHECK(tb_multiply(&problem.product, "nonesuch", 1, &error) == TB_ERROR_KERNEL);
}

} // namespace

int main() {
  check_products();
  check_largest();
  check_mistakes();
  return report();
}
