// Every allocation of the library made to fail once: create, run and multiply then report that memory is out, leak
// nothing, and work the next time.
#include "check.h"
#include "random_model.h"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

// The allocation that fails, counted from now on; negative: none. Only this thread's allocations are counted.
thread_local long countdown = -1;
thread_local long live = 0; // blocks that this thread has allocated and not freed

bool fails() { return countdown >= 0 && countdown-- == 0; }

void *allocate(size_t size, size_t alignment) {
  if (fails()) throw std::bad_alloc();
  void *block = nullptr;
  if (posix_memalign(&block, alignment < sizeof(void *) ? sizeof(void *) : alignment, size ? size : 1) != 0)
    throw std::bad_alloc();
  live++;
  return block;
}

void release(void *block) {
  if (block) live--;
  std::free(block);
}

} // namespace

// The library is linked into this program, so these are its operators too.
void *operator new(size_t size) { return allocate(size, alignof(std::max_align_t)); }
void *operator new[](size_t size) { return allocate(size, alignof(std::max_align_t)); }
void *operator new(size_t size, std::align_val_t alignment) { return allocate(size, static_cast<size_t>(alignment)); }
void *operator new[](size_t size, std::align_val_t alignment) { return allocate(size, static_cast<size_t>(alignment)); }
void operator delete(void *block) noexcept { release(block); }
void operator delete[](void *block) noexcept { release(block); }
void operator delete(void *block, size_t) noexcept { release(block); }
void operator delete[](void *block, size_t) noexcept { release(block); }
void operator delete(void *block, std::align_val_t) noexcept { release(block); }
void operator delete[](void *block, std::align_val_t) noexcept { release(block); }
void operator delete(void *block, size_t, std::align_val_t) noexcept { release(block); }
void operator delete[](void *block, size_t, std::align_val_t) noexcept { release(block); }

namespace {

constexpr Shape kTiny = {.hidden = 24, .heads = 2, .intermediate = 32, .layers = 2, .vocabulary = 20, .positions = 80};
constexpr long kMost = 100000;

// Calls `attempt` with its 1st, 2nd, ... allocation failing until none does. It returns the status.
template <class Attempt> long fail_each(const Attempt &attempt) {
  for (long n = 0; n < kMost; n++) {
    countdown = n;
    const int status = attempt();
    const bool failed = countdown < 0;
    countdown = -1;
    if (!failed) {
      CHECK(status == TB_OK);
      return n;
    }
    // A pool that gets no more threads works with those that it has.
    CHECK(status == TB_ERROR_MEMORY || status == TB_OK);
  }
  CHECK(!"an end");
  return kMost;
}

void check_create(int threads) {
  const RandomModel made(kTiny);
  const long before = live;
  const long count = fail_each([&] {
    tb_model *model = nullptr;
    tb_error error{};
    const int status = tb_model_create(&made.config, nullptr, threads, &model, &error);
    CHECK((status == TB_OK) == (model != nullptr));
    CHECK((status == TB_OK) == (error.message[0] == 0));
    tb_model_free(model);
    return status;
  });
  CHECK(count > 20);
  if (threads == 1) CHECK(live == before); // a thread's own memory is freed by that thread
}

// Long sequences are computed by all threads together; many groups side by side.
void check_run(int threads, int sequences) {
  const RandomModel made(kTiny);
  const RandomBatch batch(sequences, 70, kTiny.vocabulary);
  const tb_batch b = batch.get();
  tb_model *model = nullptr;
  CHECK(tb_model_create(&made.config, nullptr, threads, &model, nullptr) == TB_OK);
  if (!model) return;
  std::vector<float> expected(2 * batch.lengths.size()), result(expected.size());
  CHECK(tb_run(model, &b, TB_OUTPUT_LOGITS, expected.data(), expected.size(), nullptr) == TB_OK);
  tb_model_free(model);
  const long count = fail_each([&] {
    const long armed = countdown;
    countdown = -1; // a new model has no working memory yet
    CHECK(tb_model_create(&made.config, nullptr, threads, &model, nullptr) == TB_OK);
    countdown = armed;
    const int status = tb_run(model, &b, TB_OUTPUT_LOGITS, result.data(), result.size(), nullptr);
    const long left = countdown;
    countdown = -1;
    CHECK(tb_run(model, &b, TB_OUTPUT_LOGITS, result.data(), result.size(), nullptr) == TB_OK);
    CHECK(result == expected);
    tb_model_free(model);
    countdown = left;
    return status;
  });
  CHECK(count > 1);
}

void check_multiply(int threads) {
  constexpr int kRows = 40, kInputs = 300, kOutputs = 70;
  const std::vector<float> codes(kRows * kInputs, 3.0f), ones(kOutputs, 1.0f), zeros(kRows, 0.0f);
  const std::vector<int8_t> weight(kInputs * kOutputs, 1);
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
  const long count = fail_each([&] { return tb_multiply(&p, nullptr, threads, nullptr); });
  CHECK(count > 1);
  CHECK(y[0] == 900.0f && y.back() == 900.0f);
}

} // namespace

int main() {
  for (const int threads : {1, 3}) {
    check_create(threads);
    check_run(threads, 2);
    check_run(threads, 30);
    check_multiply(threads);
  }
  return report();
}
