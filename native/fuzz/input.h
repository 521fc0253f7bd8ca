// Shared by the fuzz targets: bytes of the input become choices and arrays.
//
// The input's bytes choose settings and sizes, also wrong ones, and fill the arrays. The arrays have the sizes that the
// header asks for (a C interface cannot check those) and end where they must: the address sanitizer notices a byte read
// too far.
#pragma once

#include "ternarybert.h"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

class Input {
public:
  Input(const uint8_t *data, size_t size) : data_(data), size_(size) {}

  uint8_t byte() { return next_ < size_ ? data_[next_++] : 0; }
  int below(int n) { return byte() % n; }
  // Mostly what makes a model; sometimes any number.
  int32_t mostly(int32_t value) {
    if (below(64) != 63) return value;
    int32_t any = 0;
    for (int i = 0; i < 4; i++)
      any = static_cast<int32_t>(static_cast<uint32_t>(any) << 8 | byte());
    return any;
  }

  // Arrays live as long as the input. When the bytes are used up they repeat.
  uint8_t *bytes(size_t count) {
    memory_.push_back(std::make_unique<uint8_t[]>(count));
    uint8_t *const to = memory_.back().get();
    for (size_t i = 0; i < count; i++)
      to[i] = size_ ? data_[(next_ + i) % size_] : 0;
    next_ += count < 64 ? count : 64;
    return to;
  }
  float *floats(size_t count) {
    float *const x = reinterpret_cast<float *>(bytes(count * sizeof(float)));
    const int kind = below(16);
    for (size_t i = 0; i < count && kind != 15; i++) { // 15: any bits, also NaN
      int8_t small;
      std::memcpy(&small, reinterpret_cast<const char *>(x + i), 1);
      x[i] = static_cast<float>(small) * (kind == 14 ? 1e36f : 0.01f);
    }
    return x;
  }

private:
  const uint8_t *data_;
  size_t size_, next_ = 0;
  std::vector<std::unique_ptr<uint8_t[]>> memory_;
};

[[noreturn]] inline void fail(const char *why) {
  std::fprintf(stderr, "%s\n", why);
  std::abort();
}

// A failure has words; the largest status is TB_ERROR_NUMERIC.
inline bool ok(int status, const tb_error &error) {
  if (status < TB_OK || status > TB_ERROR_NUMERIC) fail("unknown status");
  if (status != TB_OK && !std::memchr(error.message, 0, sizeof error.message)) fail("unterminated message");
  if (status != TB_OK && !error.message[0]) fail("no message");
  return status == TB_OK;
}
