// A thread pool with a parallel for.
//
// Threads that wait spin for some microseconds (a layer has several parallel parts, one right after the other) and then
// sleep. One caller has the pool at a time; others find it busy and work alone. A child process after fork() has no
// thread but the caller's, and works alone too.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace tb {

class Pool;

// The workers of a call: the pool's threads, or the caller alone.
class Team {
public:
  Team() = default; // alone
  explicit Team(Pool *pool) : pool_(pool) {}

  int size() const;

  // f(task, worker) for all tasks, by size() workers; returns when all are done. f must not throw.
  //
  // Worker w does the tasks w, w + size(), w + 2 size(), .. and then helps the others: of one run and the next the same
  // tasks are done by the same thread, which still has in its cache what it wrote. Only a thread that is late leaves
  // tasks to the others.
  template <class Function> void run(int tasks, const Function &f) const {
    if (!pool_ || tasks <= 1)
      for (int task = 0; task < tasks; task++)
        f(task, 0);
    else
      run_in_pool(
          tasks, [](const void *g, int task, int worker) { (*static_cast<const Function *>(g))(task, worker); }, &f);
  }

private:
  using Call = void (*)(const void *, int task, int worker);
  void run_in_pool(int tasks, Call call, const void *function) const;

  Pool *pool_ = nullptr;
  friend class Pool;
};

class Pool {
public:
  // In a forked child a pool is never destroyed: its threads do not exist there and cannot be joined, and destroying
  // the condition variable that they slept on would wait for them forever.
  struct Delete {
    void operator()(Pool *pool) const {
      if (pool->in_this_process()) delete pool;
    }
  };
  using Pointer = std::unique_ptr<Pool, Delete>;

  explicit Pool(int threads);
  ~Pool();
  Pool(const Pool &) = delete;
  Pool &operator=(const Pool &) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }

  // Reserves the pool for this caller, if it is free and belongs to this process. Return it with release().
  bool acquire();
  bool in_this_process() const;
  void release();

  // Lets threads that wait for more sleep at once instead of spinning: nothing follows soon.
  void rest() { resting_ = true; }

private:
  friend class Team;
  void run(int tasks, Team::Call call, const void *function);
  void work(int worker);
  bool take_task(int share, int worker);
  void take_tasks(int worker);
  bool open() const;

  std::vector<std::thread> threads_;
  long process_;
  std::mutex busy_;

  // The current work. Each worker has a share of the tasks, and its ticket holds their number and the next one. The
  // thread that advances it owns that task, and the caller stays in run() until all tasks are counted as done: so
  // `call_` and `function_` are valid meanwhile. A thread that comes late finds no task and touches nothing.
  Team::Call call_ = nullptr;
  const void *function_ = nullptr;
  struct alignas(64) Share {         // on a cache line of its own
    std::atomic<uint64_t> ticket{0}; // round (16 bits) | tasks (24) | next (24)
  };
  std::vector<Share> shares_;
  std::atomic<int> done_{0};

  std::mutex sleep_;
  std::condition_variable wake_;
  std::atomic<int> sleeping_{0};
  std::atomic<bool> resting_{false}, stop_{false};
};

// Keeps a pool from call to call, for functions without a handle that could own it. Whoever takes the pool has it
// alone; callers that come meanwhile get a new one. Needs no destructor: it may be used until the program ends.
class PoolCache {
public:
  // A pool of so many threads: the last one if it has as many, else a new one. Null for one thread.
  Pool::Pointer take(int threads);
  // Keeps the pool, or ends it if there is another already.
  void put(Pool::Pointer pool);
  // Ends the pool, and from now on those that are put back.
  void close();

private:
  static Pool *closed();

  std::atomic<Pool *> idle_{nullptr};
};

} // namespace tb
