// Memory that a call works in. It is kept from call to call, so that batches of the same size allocate nothing. After
// larger ones it shrinks again: a model does not hold the memory of its largest batch forever.
//
// Of every kPeriod uses the largest is known. If a workspace is more than twice as large, it shrinks to that; if there
// were more workspaces than were in use at once, the others are freed. Work that alternates between large and small
// allocates at most once in kPeriod uses.
#pragma once

#include "memory.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace tb {

class Workspace {
public:
  static constexpr int kPeriod = 32;

  // At least `bytes`; what was there before is gone.
  uint8_t *reserve(size_t bytes) {
    largest_ = std::max(largest_, bytes);
    const bool shrink = ++uses_ >= kPeriod && memory_.bytes() / 2 > largest_;
    if (memory_.bytes() < bytes || shrink) {
      memory_ = Buffer<uint8_t>(); // first: both at once might be too much
      memory_ = Buffer<uint8_t>(largest_);
    }
    if (uses_ >= kPeriod) {
      uses_ = 0;
      largest_ = bytes;
    }
    return memory_.data();
  }
  size_t bytes() const { return memory_.bytes(); }

private:
  Buffer<uint8_t> memory_;
  size_t largest_ = 0; // use of this period
  int uses_ = 0;
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

// The workspaces of a model: lent to whoever runs it.
class WorkspaceShelf {
public:
  std::unique_ptr<Workspace> take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    most_lent_ = std::max(most_lent_, ++lent_);
    if (free_.empty()) return std::make_unique<Workspace>();
    std::unique_ptr<Workspace> workspace = std::move(free_.back());
    free_.pop_back();
    return workspace;
  }
  void put(std::unique_ptr<Workspace> workspace) {
    const std::lock_guard<std::mutex> lock(mutex_);
    lent_--;
    free_.push_back(std::move(workspace));
    if (++uses_ < Workspace::kPeriod) return;
    // The last ones that were put back are the first to be taken: what is at the beginning was not used.
    const size_t needed = most_lent_ - lent_;
    if (free_.size() > needed) free_.erase(free_.begin(), free_.end() - static_cast<std::ptrdiff_t>(needed));
    uses_ = 0;
    most_lent_ = lent_;
  }
  size_t free() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return free_.size();
  }

private:
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> free_;
  size_t lent_ = 0, most_lent_ = 0; // now; at once in this period
  int uses_ = 0;
};

} // namespace tb
