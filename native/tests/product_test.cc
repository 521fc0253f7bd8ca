// tb_multiply gives the numbers of plain loops, for any kernel, shape, weight and number of threads; and names what is
// wrong with its arguments.
#include "check.h"
#include "random_model.h"
#include "ternarybert.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#if defined(__unix__) || defined(__APPLE__)
#include <sys/wait.h>
#include <unistd.h>
#endif

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
    product = {
        .rows = rows,
        .inputs = inputs,
        .outputs = outputs,
        .scales = row_scales ? outputs : 1,
        .codes = codes.data(),
        .x_scale = x_scale.data(),
        .x_offset = x_offset.data(),
        .weight = weight.data(),
        .scale = scale.data(),
        .bias = with_bias ? bias.data() : nullptr,
        .y = y.data(),
    };
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

// Enough work that the threads are used: all shares of rows and panels, and a number of threads that changes.
void check_threads() {
  Random random(5);
  for (const int rows : {1, 59, 61, 64, 301})
    for (const int largest : {1, 127}) {
      Problem problem(rows, 1000, 600, largest, true, false, random);
      const std::vector<float> expected = problem.plainly();
      for (const int threads : {2, 2, 3, 16, 1, 2}) {
        problem.y.assign(problem.y.size(), 0.0f);
        CHECK(tb_multiply(&problem.product, nullptr, threads, nullptr) == TB_OK);
        CHECK(same(problem.y, expected));
      }
    }
}

// Several threads that train at once: only one of them can have the threads of the last call.
void check_concurrent_calls() {
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 6; c++)
    callers.emplace_back([&wrong, c] {
      Random random(static_cast<uint64_t>(10 + c));
      Problem problem(40 + c, 700, 500, c % 2 ? 1 : 5, true, true, random);
      const std::vector<float> expected = problem.plainly();
      for (int i = 0; i < 30; i++) {
        problem.y.assign(problem.y.size(), 0.0f);
        if (tb_multiply(&problem.product, nullptr, 2 + c % 2, nullptr) != TB_OK || !same(problem.y, expected)) wrong++;
      }
    });
  for (std::thread &caller : callers)
    caller.join();
  CHECK(wrong == 0);
}

// A child process has none of its parent's threads, and makes its own.
void check_fork() {
#if defined(__unix__) || defined(__APPLE__)
  Random random(6);
  Problem problem(64, 600, 500, 1, true, true, random);
  const std::vector<float> expected = problem.plainly();
  const auto right = [&] {
    problem.y.assign(problem.y.size(), 0.0f);
    return tb_multiply(&problem.product, nullptr, 3, nullptr) == TB_OK && same(problem.y, expected);
  };
  CHECK(right());
  for (const int milliseconds : {0, 20}) { // the threads may still spin; or they sleep
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    const pid_t child = fork();
    if (child == 0) _exit(right() && right() ? 0 : 1);
    int status = 1;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(right());
  }
#endif
}

// Without a bias -0 stays -0, as in numerics.py.
void check_no_bias() {
  Random random(7);
  Problem problem(3, 4, 5, 0, false, false, random); // all weights 0
  problem.scale[0] = -1.0f;
  for (const char *const *kernel = tb_kernels(); *kernel; kernel++) {
    CHECK(tb_multiply(&problem.product, *kernel, 1, nullptr) == TB_OK);
    for (const float y : problem.y)
      CHECK(y == 0.0f && std::signbit(y));
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

// All, or with an argument only the concurrent calls (the thread sanitizer is slow).
int main(int count, char **) {
  check_concurrent_calls();
  if (count > 1) return report();
  check_threads();
  check_products();
  check_largest();
  check_fork();
  check_no_bias();
  check_mistakes();
  return report();
}
