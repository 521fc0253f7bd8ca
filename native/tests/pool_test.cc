// Every task is done once, whoever does it and however long the threads slept.
#include "../src/pool.h"
#include "check.h"

#include <chrono>

int main() {
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
    }
  }
  return report();
}
