// How fast the forward pass is, with random weights: milliseconds, multiplications a second, and the share of what the
// CPU could do if it did nothing but multiply.
//
//   bench [base|mini] [threads] [kernel, or - for the best] [batch x length, such as 8x128]
#include "../tests/random_model.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

namespace {

struct Case {
  int sequences, length;
};

// Multiplications of integers that the output needs: in the last layer only keys and values of all tokens.
double macs(const Shape &s, const Case &c) {
  const double n = c.length, h = s.hidden, i = s.intermediate;
  const double token = 4 * h * h + 2 * h * i, attention = 2 * n * n * h;
  const double last = n * 2 * h * h + 2 * n * h + (2 * h * h + 2 * h * i) + h * h;
  return c.sequences * ((s.layers - 1) * (n * token + attention) + last);
}

// CPU time of this thread: other programs on the machine then count less.
double thread_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Seconds {
  double median, best;
};

// Of at least `least` runs. One thread: its CPU time; more: the clock on the wall.
Seconds measure(const tb_model *model, const RandomBatch &batch, int threads, int least) {
  const tb_batch b = batch.get();
  std::vector<float> result(2 * batch.lengths.size());
  std::vector<double> times;
  tb_error error;
  const double start = wall_seconds();
  while (static_cast<int>(times.size()) < least || wall_seconds() - start < 1.0) {
    const double begin = threads == 1 ? thread_seconds() : wall_seconds();
    if (tb_run(model, &b, TB_OUTPUT_LOGITS, result.data(), result.size(), &error) != TB_OK) {
      std::fprintf(stderr, "%s\n", error.message);
      std::exit(1);
    }
    times.push_back((threads == 1 ? thread_seconds() : wall_seconds()) - begin);
  }
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times[0]};
}

} // namespace

int main(int count, char **arguments) {
  const std::string name = count > 1 ? arguments[1] : "base";
  const int threads = count > 2 ? std::atoi(arguments[2]) : 1;
  const char *wanted = count > 3 && std::strcmp(arguments[3], "-") != 0 ? arguments[3] : nullptr;
  std::vector<Case> cases = {{1, 16}, {1, 64}, {1, 128}, {1, 384}, {8, 128}, {32, 128}};
  if (count > 4) {
    Case only{};
    if (std::sscanf(arguments[4], "%dx%d", &only.sequences, &only.length) != 2) return 2;
    cases = {only};
  }
  constexpr Shape kBase = {
      .hidden = 768, .heads = 12, .intermediate = 3072, .layers = 12, .vocabulary = 30522, .positions = 512};
  constexpr Shape kMini = {
      .hidden = 384, .heads = 12, .intermediate = 1536, .layers = 6, .vocabulary = 30522, .positions = 512};
  const Shape shape = name == "mini" ? kMini : kBase;

  tb_model *model = nullptr;
  tb_error error;
  double load;
  {
    const RandomModel made(shape);
    const double begin = wall_seconds();
    if (tb_model_create(&made.config, wanted, threads, &model, &error) != TB_OK) {
      std::fprintf(stderr, "%s\n", error.message);
      return 1;
    }
    load = wall_seconds() - begin;
  }
  const double peak = tb_peak(tb_model_kernel(model)) * threads;
  std::printf("%s, %d thread(s), kernel %s: %.1f MB, made in %.0f ms; peak %.1f GMAC/s\n", name.c_str(), threads,
              tb_model_kernel(model), static_cast<double>(tb_model_memory(model)) * 1e-6, load * 1e3, peak);
  for (const Case &c : cases) {
    const RandomBatch batch(c.sequences, c.length, shape.vocabulary);
    measure(model, batch, threads, 1);
    const Seconds seconds = measure(model, batch, threads, 5);
    const double rate = macs(shape, c) * 1e-9 / seconds.median;
    std::printf("  %2dx%-3d  %8.2f ms (best %8.2f)  %6.1f GMAC/s  %3.0f %%\n", c.sequences, c.length,
                seconds.median * 1e3, seconds.best * 1e3, rate, 100 * rate / peak);
    std::fflush(stdout);
  }
  tb_model_free(model);
  return 0;
}
