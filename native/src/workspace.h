// Memory that a call works in. It is kept from call to call: running allocates nothing once the largest input was seen.
#pragma once

#include "memory.h"

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace tb {

class Workspace {
public:
  // At least `bytes`; what was there before is gone.
  uint8_t *reserve(size_t bytes) {
    if (memory_.bytes() < bytes) {
      memory_ = Buffer<uint8_t>();
      memory_ = Buffer<uint8_t>(bytes);
    }
    return memory_.data();
  }

private:
  Buffer<uint8_t> memory_;
};

// Cuts arrays out of memory. With no memory it only counts: the same code then says how much is needed.
class Carver {
public:
  explicit Carver(uint8_t *memory) : memory_(memory) {}

  template <class T> T *take(size_t count) {
    const size_t begin = used_;
    used_ += round_up(checked(count, sizeof(T)), kAlignment);
    return memory_ ? reinterpret_cast<T *>(memory_ + begin) : nullptr;
  }
  size_t used() const { return used_; }

private:
  uint8_t *memory_;
  size_t used_ = 0;
};

// Workspaces that nobody uses now.
class WorkspaceShelf {
public:
  std::unique_ptr<Workspace> take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (free_.empty()) return std::make_unique<Workspace>();
    std::unique_ptr<Workspace> workspace = std::move(free_.back());
    free_.pop_back();
    return workspace;
  }
  void put(std::unique_ptr<Workspace> workspace) {
    const std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(std::move(workspace));
  }

private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> free_;
};

} // namespace tb
