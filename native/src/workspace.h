// Memory that a call works in. It is kept from call to call, so that batches of the same size allocate nothing. After
// larger ones it shrinks again: a model does not hold the memory of its largest batch forever.
//
// Of every kPeriod uses the largest is known. If a workspace is more than twice as large, it shrinks to that; if there
// were more workspaces than were in use at once, the others are freed. Work that alternates between large and small
// allocates at most once in kPeriod uses.
#pragma once

#include "memory.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
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
//
// Nobody waits for the shelf. After fork() the child may have a copy of it that a thread had locked, and that thread
// does not exist in the child: then it works with new workspaces and forgets them. Threads that meet do the same,
// hardly ever, as the shelf is locked for a moment only. Some loans are then not counted, which shrinks the shelf a
// little too early or too late.
class WorkspaceShelf {
public:
  std::unique_ptr<Workspace> take() {
    if (const std::unique_lock<std::mutex> lock = try_lock()) {
      most_lent_ = std::max(most_lent_, ++lent_);
      if (!free_.empty()) {
        std::unique_ptr<Workspace> workspace = std::move(free_.back());
        free_.pop_back();
        return workspace;
      }
    }
    return std::make_unique<Workspace>();
  }
  void put(std::unique_ptr<Workspace> workspace) {
    const std::unique_lock<std::mutex> lock = try_lock();
    if (!lock) return;
    lent_--;
    free_.push_back(std::move(workspace));
    if (++uses_ < Workspace::kPeriod) return;
    // The last ones that were put back are the first to be taken: what is at the beginning was not used.
    const std::ptrdiff_t needed = most_lent_ - lent_;
    if (static_cast<std::ptrdiff_t>(free_.size()) > needed) free_.erase(free_.begin(), free_.end() - needed);
    uses_ = 0;
    most_lent_ = lent_;
  }
  size_t free() const {
    const std::unique_lock<std::mutex> lock = this->lock();
    return free_.size();
  }
  // For tests: what threads do for a moment, and one that fork() left behind does for ever.
  std::unique_lock<std::mutex> lock() const { return std::unique_lock<std::mutex>(mutex_); }

private:
  static constexpr int kTries = 100; // some microseconds

  std::unique_lock<std::mutex> try_lock() const {
    std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    for (int i = 1; i < kTries && !lock; i++) {
      std::this_thread::yield();
      lock.try_lock();
    }
    return lock;
  }

  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> free_;
  std::ptrdiff_t lent_ = 0, most_lent_ = 0; // now; at once in this period. Signed: not all loans are counted
  int uses_ = 0;
};

} // namespace tb
