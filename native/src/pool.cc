#include "pool.h"

#include "float_mode.h"

#include <chrono>
#include <new>
#include <system_error>

#if defined(_WIN32)
#include <process.h>
#else
#include <unistd.h>
#endif

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace tb {
namespace {

long process_id() {
#if defined(_WIN32)
  return _getpid();
#else
  return getpid();
#endif
}

void relax() {
#if defined(__x86_64__) || defined(_M_X64)
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Longer than the serial parts between two rounds, too short to matter on an idle machine.
constexpr auto kSpin = std::chrono::microseconds(100);

template <class Condition> bool spin_until(Condition done) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; i++) {
      if (done()) return true;
      relax();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

constexpr int kFieldBits = 24, kMostTasks = (1 << kFieldBits) - 1;

struct Ticket {
  uint64_t value;
  int next() const { return static_cast<int>(value & kMostTasks); }
  int tasks() const { return static_cast<int>(value >> kFieldBits & kMostTasks); }
  bool open() const { return next() < tasks(); }
  Ticket of_next_round(int tasks) const {
    const uint64_t round = (value >> 2 * kFieldBits) + 1;
    return {round << 2 * kFieldBits | static_cast<uint64_t>(tasks) << kFieldBits};
  }
};

} // namespace

int Team::size() const { return pool_ ? pool_->size() : 1; }

void Team::run_in_pool(int tasks, Call call, const void *function) const { pool_->run(tasks, call, function); }

Pool::Pool(int threads) : process_(process_id()), shares_(static_cast<size_t>(threads)) {
  threads_.reserve(static_cast<size_t>(threads - 1));
  try {
    for (int worker = 1; worker < threads; worker++)
      threads_.emplace_back([this, worker] { work(worker); });
  } catch (const std::system_error &) { // the system has no more threads: the pool has those that started
  } catch (const std::bad_alloc &) {    // no memory for another: the same
  }
}

Pool::~Pool() {
  {
    const std::lock_guard<std::mutex> lock(sleep_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread &thread : threads_)
    thread.join();
}

bool Pool::in_this_process() const { return process_ == process_id(); }

bool Pool::acquire() { return !threads_.empty() && in_this_process() && busy_.try_lock(); }

void Pool::release() { busy_.unlock(); }

bool Pool::open() const {
  for (const Share &share : shares_)
    if (Ticket{share.ticket.load()}.open()) return true;
  return false;
}

void Pool::run(int tasks, Team::Call call, const void *function) {
  if (tasks > kMostTasks) { // the ticket cannot count them
    for (int task = 0; task < tasks; task++)
      call(function, task, 0);
    return;
  }
  call_ = call;
  function_ = function;
  done_.store(0, std::memory_order_relaxed);
  resting_ = false;
  for (int i = size(); i-- > 0;) { // the caller's own share last; each store publishes the above
    std::atomic<uint64_t> &ticket = shares_[static_cast<size_t>(i)].ticket;
    ticket.store(Ticket{ticket.load()}.of_next_round((tasks - i + size() - 1) / size()).value);
  }
  if (const int sleeping = sleeping_.load(); sleeping > 0) {
    {
      const std::lock_guard<std::mutex> lock(sleep_);
    } // a thread that was about to sleep now does, or has seen the ticket
    if (tasks > sleeping)
      wake_.notify_all();
    else
      for (int i = 1; i < tasks; i++) // no more than there is work for; the caller takes tasks, too
        wake_.notify_one();
  }
  take_tasks(0);
  while (!spin_until([&] { return done_.load(std::memory_order_acquire) == tasks; }))
    std::this_thread::yield();
}

bool Pool::take_task(int share, int worker) {
  std::atomic<uint64_t> &tickets = shares_[static_cast<size_t>(share)].ticket;
  uint64_t ticket = tickets.load();
  do {
    if (!Ticket{ticket}.open()) return false;
  } while (!tickets.compare_exchange_weak(ticket, ticket + 1));
  call_(function_, share + Ticket{ticket}.next() * size(), worker);
  done_.fetch_add(1, std::memory_order_release);
  return true;
}

void Pool::take_tasks(int worker) {
  for (int i = 0; i < size(); i++)
    while (take_task((worker + i) % size(), worker)) {
    }
}

void Pool::work(int worker) {
  const FloatMode mode; // a new thread inherits its creator's
  const auto called = [this] { return open() || stop_; };
  // While it spins it looks at its own tasks only: the others' tickets stay in the others' caches.
  const std::atomic<uint64_t> &own = shares_[static_cast<size_t>(worker)].ticket;
  const auto has_tasks = [&] { return Ticket{own.load()}.open() || stop_; };
  for (;;) {
    if (!spin_until([&] { return has_tasks() || resting_; }) || !has_tasks()) {
      std::unique_lock<std::mutex> lock(sleep_);
      sleeping_.fetch_add(1);
      wake_.wait(lock, called);
      sleeping_.fetch_sub(1);
    }
    if (stop_) return;
    take_tasks(worker);
  }
}

// Any address but null and those of pools.
Pool *PoolCache::closed() {
  static char mark;
  return reinterpret_cast<Pool *>(&mark);
}

Pool::Pointer PoolCache::take(int threads) {
  if (threads == 1) return nullptr;
  Pool *idle = idle_.load();
  while (idle != closed() && !idle_.compare_exchange_weak(idle, nullptr)) {
  }
  Pool::Pointer pool(idle == closed() ? nullptr : idle);
  if (!pool || !pool->in_this_process() || pool->size() != threads) pool.reset(new Pool(threads));
  return pool;
}

void PoolCache::put(Pool::Pointer pool) {
  pool->rest();
  Pool *none = nullptr;
  if (idle_.compare_exchange_strong(none, pool.get())) pool.release();
}

void PoolCache::close() {
  Pool *const idle = idle_.exchange(closed());
  if (idle != closed()) Pool::Pointer(idle).reset();
}

} // namespace tb
