// fork() while other threads are inside the library: the child computes the same answers and never waits for a thread
// that it does not have. `fork_test 3000` is the long version.
#include "check.h"
#include "random_model.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace {

// Tiny, so that threads spend much of their time where they take and return what they share.
constexpr Shape kTiny = {.hidden = 16, .heads = 2, .intermediate = 16, .layers = 1, .vocabulary = 20, .positions = 8};
constexpr int kThreads = 4, kRunsOfChild = 3, kFailed = 7;
constexpr auto kPause = std::chrono::microseconds(200);
constexpr int kPatience = 100'000; // pauses, 20 s; by the clock all children would be late after the test was suspended

std::vector<float> run(const tb_model *model, const RandomBatch &batch) {
  std::vector<float> result(2 * batch.lengths.size());
  const tb_batch b = batch.get();
  if (tb_run(model, &b, TB_OUTPUT_LOGITS, result.data(), result.size(), nullptr) != TB_OK) result.clear();
  return result;
}

std::vector<float> multiply() {
  constexpr int kRows = 64, kInputs = 512, kOutputs = 512; // large enough for more than one thread
  static const std::vector<float> codes(kRows * kInputs, 3.0f), ones(kRows, 1.0f), zeros(kRows, 0.0f);
  static const std::vector<int8_t> weight(kInputs * kOutputs, 1);
  std::vector<float> y(kRows * kOutputs);
  tb_product p{};
  p.rows = kRows;
  p.inputs = kInputs;
  p.outputs = kOutputs;
  p.scales = 1;
  p.codes = codes.data();
  p.x_scale = ones.data();
  p.x_offset = zeros.data();
  p.weight = weight.data();
  p.scale = ones.data();
  p.y = y.data();
  if (tb_multiply(&p, nullptr, 2, nullptr) != TB_OK) y.clear();
  return y;
}

// Exits with 0 if all answers are right; a child must not return into the test.
[[noreturn]] void answer(const tb_model *model, const RandomBatch &batch, const std::vector<float> &expected,
                         const std::vector<float> *product) {
  for (int i = 0; i < kRunsOfChild; i++)
    if (run(model, batch) != expected) _exit(kFailed);
  if (product && multiply() != *product) _exit(kFailed);
  _exit(0);
}

// Whether the child ended well; one that hangs is killed.
bool ends(pid_t child) {
  int status = 0;
  for (int waited = 0;; waited++) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) return WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (ended < 0 && errno != EINTR) return false;
    if (waited > kPatience) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return false;
    }
    std::this_thread::sleep_for(kPause);
  }
}

void check_forks_under_load(int forks) {
  const RandomModel made(kTiny);
  const RandomBatch batch(2, 2, kTiny.vocabulary);
  tb_model *model = nullptr;
  CHECK(tb_model_create(&made.config, nullptr, 2, &model, nullptr) == TB_OK);
  if (!model) return;
  const std::vector<float> expected = run(model, batch), product = multiply();
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; t++)
    threads.emplace_back([&, t] {
      while (!stop)
        if (t == 0 ? multiply() != product : run(model, batch) != expected) wrong++;
    });
  int failed = 0;
  for (int i = 0; i < forks && failed < 3; i++) {
    const pid_t child = fork();
    if (child == 0) answer(model, batch, expected, i % 8 == 0 ? &product : nullptr);
    CHECK(child > 0);
    if (child > 0 && !ends(child)) {
      failed++;
      std::fprintf(stderr, "child %d of %d hung or was wrong\n", i + 1, forks);
    }
  }
  stop = true;
  for (std::thread &thread : threads)
    thread.join();
  CHECK(failed == 0);
  CHECK(wrong == 0);
  tb_model_free(model);
}

} // namespace

int main(int count, char **arguments) {
  check_forks_under_load(count > 1 ? std::atoi(arguments[1]) : 100);
  return report();
}
