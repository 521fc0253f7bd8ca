// Aligned memory, initially zero. Every row that vectors run over begins at a multiple of 64 bytes and may be
// read and written up to the next multiple: that is what keeps the kernels free of special cases at the end of a row.
#pragma once

#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <new>

namespace tb {

constexpr size_t kAlignment = 64;

constexpr size_t round_up(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// a * b; sizes that do not fit are out of memory.
inline size_t checked(size_t a, size_t b) {
  if (b != 0 && a > std::numeric_limits<size_t>::max() / 2 / b) throw std::bad_alloc();
  return a * b;
}

template <class T> class Buffer {
public:
  Buffer() = default;
  explicit Buffer(size_t count) : bytes_(round_up(checked(count, sizeof(T)), kAlignment)) {
    if (bytes_ == 0) return;
    data_.reset(static_cast<T *>(::operator new(bytes_, std::align_val_t(kAlignment))));
    std::memset(static_cast<void *>(data_.get()), 0, bytes_);
  }

  T *data() const { return data_.get(); }
  T &operator[](size_t i) const { return data_.get()[i]; }
  size_t bytes() const { return bytes_; }

private:
  struct Free {
    void operator()(T *p) const { ::operator delete(p, std::align_val_t(kAlignment)); }
  };
  size_t bytes_ = 0;
  std::unique_ptr<T, Free> data_;
};

} // namespace tb
