// Every task runs once, on whichever thread and however long the threads slept.
#include "../src/pool.h"
#include "check.h"

#include <chrono>

namespace {

void check_tasks() {
  for (const int threads : {1, 2, 3, 8}) {
    tb::Pool pool(threads);
    CHECK(pool.size() == threads);
    for (int round = 0; round < 300; round++) {
      if (round % 100 == 99) std::this_thread::sleep_for(std::chrono::milliseconds(2)); // they sleep now
      const int tasks = round % 37;
      std::vector<std::atomic<int>> done(static_cast<size_t>(tasks));
      const bool mine = pool.acquire();
      CHECK(mine == (threads > 1));
      if (mine) CHECK(!pool.acquire());
      const tb::Team team = mine ? tb::Team(&pool) : tb::Team();
      std::atomic<bool> known{true};
      team.run(tasks, [&](int task, int worker) {
        done[static_cast<size_t>(task)]++;
        if (worker < 0 || worker >= team.size()) known = false;
      });
      for (const std::atomic<int> &count : done)
        CHECK(count == 1);
      CHECK(known);
      if (mine) pool.release();
      if (round % 3 == 0) pool.rest();
    }
  }
}

// One idle pool is kept; one that is taken belongs to its taker alone.
void check_cache() {
  tb::PoolCache cache;
  CHECK(!cache.take(1));
  tb::Pool::Pointer first = cache.take(2), second = cache.take(2);
  CHECK(first && second && first != second && first->size() == 2);
  const tb::Pool *const kept = first.get();
  cache.put(std::move(first));
  cache.put(std::move(second)); // not needed any more
  tb::Pool::Pointer again = cache.take(2);
  CHECK(again.get() == kept);
  cache.put(std::move(again));
  tb::Pool::Pointer larger = cache.take(3);
  CHECK(larger->size() == 3);
  cache.put(std::move(larger));
  cache.close();
  tb::Pool::Pointer late = cache.take(2); // works as before, but nothing is kept
  CHECK(late && late->size() == 2);
  cache.put(std::move(late));
  cache.close();
}

} // namespace

int main() {
  check_tasks();
  check_cache();
  return report();
}
