// Every allocation of the library made to fail once: create, run and multiply, and opening a bundle, tokenizing and
// answering texts then report that memory is out, leak nothing, and work the next time.
//
// `allocation_test BUNDLE...`: the models whose texts are answered. malloc and its relatives, which JSON and results
// use, are counted where the linker can replace them.
#include "../src/guarded.h"
#include "check.h"
#include "random_model.h"

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <new>
#include <string>
#include <vector>

namespace {

// The allocation that fails, counted from now on; negative: none. Only this thread's allocations are counted.
thread_local long countdown = -1;
thread_local long live = 0; // blocks that this thread has allocated and not freed

bool fails() { return countdown >= 0 && countdown-- == 0; }

} // namespace

#ifdef TB_WRAP_MALLOC
extern "C" {
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *block, size_t size);
void __real_free(void *block);

void *__wrap_malloc(size_t size) {
  void *const block = fails() ? nullptr : __real_malloc(size);
  live += block != nullptr;
  return block;
}
void *__wrap_calloc(size_t count, size_t size) {
  void *const block = fails() ? nullptr : __real_calloc(count, size);
  live += block != nullptr;
  return block;
}
void *__wrap_realloc(void *block, size_t size) {
  if (fails()) return nullptr;
  void *const moved = __real_realloc(block, size);
  live += !block && moved;
  return moved;
}
void __wrap_free(void *block) {
  live -= block != nullptr;
  __real_free(block);
}
}
#define TB_REAL_FREE __real_free
#else
#define TB_REAL_FREE std::free
#endif

namespace {

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
  TB_REAL_FREE(block);
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

// Asks a model all that it can do and writes the results to a line; allocates nothing itself.
struct Answers {
  char line[160] = {};
  bool operator==(const Answers &other) const { return std::strcmp(line, other.line) == 0; }
};

Answers ask(const tb_text_model *model, int *status) {
  const char *const question = "was the film good", *const context = "the film was very good and we liked the plot";
  const tb_text pair = {question, std::strlen(question), context, std::strlen(context)};
  const tb_text text = {context, std::strlen(context), nullptr, 0};
  tb_text_info info{};
  tb_tokens tokens{};
  *status = tb_text_model_info(model, &info, nullptr);
  if (*status == TB_OK) *status = tb_tokenize(model, &pair, &tokens, nullptr);
  const size_t count = static_cast<size_t>(tokens.count);
  tb_tokens_free(&tokens);
  if (*status != TB_OK) return {};
  float numbers[64] = {};
  double scores[64] = {};
  tb_word *words = nullptr;
  tb_span span{};
  int32_t found = 0;
  if (info.task == TB_TASK_CLASSIFY)
    *status = tb_classify(model, &text, 1, numbers, scores, static_cast<size_t>(info.labels), nullptr);
  else if (info.task == TB_TASK_TAG)
    *status = tb_tag(model, &text, 0, &words, &found, nullptr);
  else if (info.task == TB_TASK_ANSWER)
    *status = tb_answer(model, &pair, &span, nullptr);
  else
    *status = tb_embed(model, &text, 1, TB_OUTPUT_MEAN, 1, numbers, static_cast<size_t>(info.hidden), nullptr);
  const double last = found ? words[found - 1].score : span.score;
  tb_words_free(words);
  if (*status != TB_OK) return {};
  Answers made;
  std::snprintf(made.line, sizeof made.line, "%zu %.9g %.9g %.17g %d %zu %zu", count, static_cast<double>(numbers[0]),
                static_cast<double>(numbers[1]), last, found, span.start, span.end);
  return made;
}

// From its bytes and from its path, as a program would open it.
void check_texts(const char *path, int threads) {
  std::ifstream file(path, std::ios::binary);
  const std::string data((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  CHECK(!data.empty());
  tb_text_model *model = nullptr;
  CHECK(tb_open(path, nullptr, threads, 0, &model, nullptr) == TB_OK);
  tb_close(model);
  const long before = live; // with what the first model leaves for all later ones
  for (const bool from_memory : {true, false}) {
    const auto open = [&](tb_text_model **model) {
      return from_memory ? tb_open_memory(data.data(), data.size(), nullptr, threads, 0, model, nullptr)
                         : tb_open(path, nullptr, threads, 0, model, nullptr);
    };
    const long count = fail_each([&] {
      tb_text_model *model = nullptr;
      const int status = open(&model);
      CHECK((status == TB_OK) == (model != nullptr));
      tb_close(model);
      return status;
    });
    CHECK(count > 100);
    if (threads == 1) CHECK(live == before);
  }
  CHECK(tb_open(path, nullptr, threads, 0, &model, nullptr) == TB_OK);
  if (!model) return;
  int status = TB_OK;
  const Answers expected = ask(model, &status);
  CHECK(status == TB_OK);
  const long count = fail_each([&] {
    const Answers found = ask(model, &status);
    CHECK(status != TB_OK || found == expected);
    return status;
  });
  CHECK(count > 5);
  CHECK(ask(model, &status) == expected);
  tb_close(model);
  if (threads == 1) CHECK(live == before);
}

// A vector refuses such a size itself, by another exception than that of memory that is out.
void check_more_than_fits() {
  volatile size_t size = static_cast<size_t>(-1);
  tb_error error;
  CHECK(tb::guarded(&error, [&] { std::vector<char>().reserve(size); }) == TB_ERROR_MEMORY);
  CHECK(std::strcmp(error.message, "out of memory") == 0);
}

} // namespace

int main(int count, char **arguments) {
  check_more_than_fits();
  for (const int threads : {1, 3}) {
    check_create(threads);
    check_run(threads, 2);
    check_run(threads, 30);
    check_multiply(threads);
    for (int i = 1; i < count; i++)
      check_texts(arguments[i], threads);
  }
  return report();
}
