// Working memory: kept for equal batches, given back after larger ones, and after many callers at once.
#include "../src/workspace.h"
#include "check.h"

#include <array>

namespace {

using tb::Workspace;
using tb::WorkspaceShelf;

constexpr size_t kSmall = 1 << 12, kLarge = 1 << 20;

void check_equal_uses_keep_their_memory() {
  Workspace workspace;
  const uint8_t *const first = workspace.reserve(kLarge);
  for (int i = 0; i < 10 * Workspace::kPeriod; i++)
    CHECK(workspace.reserve(kLarge) == first);
  for (int i = 0; i < 10 * Workspace::kPeriod; i++) // not worth the work
    CHECK(workspace.reserve(kLarge / 2 + 64) == first);
}

void check_shrinks_after_a_large_use() {
  Workspace workspace;
  workspace.reserve(kLarge);
  for (int i = 0; i < 2 * Workspace::kPeriod; i++)
    workspace.reserve(i % 3 ? kSmall : 3 * kSmall);
  CHECK(workspace.bytes() == 3 * kSmall); // the largest of the last uses, not the last one
  const uint8_t *const memory = workspace.reserve(kSmall);
  CHECK(memory[0] == 0 && memory[kSmall - 1] == 0);
}

void check_alternating_uses_keep_their_memory() {
  Workspace workspace;
  const uint8_t *const first = workspace.reserve(kLarge);
  for (int i = 0; i < 10 * Workspace::kPeriod; i++)
    CHECK(workspace.reserve(i % (Workspace::kPeriod / 2) == 0 ? kLarge : kSmall) == first);
}

void check_shelf() {
  WorkspaceShelf shelf;
  std::vector<std::unique_ptr<Workspace>> lent;
  for (int i = 0; i < 8; i++) {
    lent.push_back(shelf.take());
    lent.back()->reserve(kLarge);
  }
  for (std::unique_ptr<Workspace> &workspace : lent)
    shelf.put(std::move(workspace));
  CHECK(shelf.free() == 8);
  for (int i = 0; i < 3 * Workspace::kPeriod; i++) { // two at once from now on
    std::unique_ptr<Workspace> one = shelf.take(), other = shelf.take();
    one->reserve(kSmall);
    other->reserve(kSmall);
    shelf.put(std::move(one));
    shelf.put(std::move(other));
  }
  CHECK(shelf.free() == 2);
  const std::unique_ptr<Workspace> one = shelf.take(), other = shelf.take();
  CHECK(one->bytes() == kSmall && other->bytes() == kSmall);
}

void check_what_is_put_back_is_taken_again() {
  WorkspaceShelf shelf;
  std::array<const Workspace *, 2> last{};
  for (int i = 0; i < 3 * Workspace::kPeriod; i++) { // the shelf's own clearing takes none of the two
    std::unique_ptr<Workspace> one = shelf.take(), other = shelf.take();
    CHECK(shelf.free() == 0);
    if (i > 0) {
      CHECK(one.get() == last[1] && other.get() == last[0]); // the last one first: its memory is in the cache
      CHECK(one->bytes() == kSmall && other->bytes() == kSmall);
    }
    one->reserve(kSmall);
    other->reserve(kSmall);
    last = {one.get(), other.get()};
    shelf.put(std::move(one));
    shelf.put(std::move(other));
    CHECK(shelf.free() == 2);
  }
}

// Calls `use` while somebody else is at the shelf.
template <class F> void while_locked(const WorkspaceShelf &shelf, F use) {
  const std::unique_lock<std::mutex> lock = shelf.lock();
  std::thread(use).join(); // a thread that waited would do it for ever
}

void check_nobody_waits_for_the_shelf() {
  WorkspaceShelf shelf;
  std::unique_ptr<Workspace> kept = shelf.take();
  const Workspace *const address = kept.get();
  kept->reserve(kSmall);
  shelf.put(std::move(kept));
  while_locked(shelf, [&] {
    std::unique_ptr<Workspace> fresh = shelf.take();
    CHECK(fresh.get() != address && fresh->bytes() == 0);
    fresh->reserve(kSmall);
    shelf.put(std::move(fresh)); // freed: there is no other place for it
    CHECK(!fresh);
  });
  CHECK(shelf.free() == 1);
  CHECK(shelf.take().get() == address);
}

// Loans that the shelf did not see, or whose end it did not see, neither fill it nor empty it for long.
void check_loans_that_are_not_counted() {
  const auto use_normally = [](WorkspaceShelf &shelf) {
    for (int i = 0; i < 2 * Workspace::kPeriod; i++) {
      std::unique_ptr<Workspace> one = shelf.take(), other = shelf.take();
      shelf.put(std::move(one));
      shelf.put(std::move(other));
    }
  };
  WorkspaceShelf unseen_begin, unseen_end;
  for (int i = 0; i < 10 * Workspace::kPeriod; i++) {
    std::unique_ptr<Workspace> one, other = unseen_end.take();
    while_locked(unseen_begin, [&] { one = unseen_begin.take(); });
    unseen_begin.put(std::move(one));
    while_locked(unseen_end, [&] { unseen_end.put(std::move(other)); });
    CHECK(unseen_begin.free() < 2 * Workspace::kPeriod);
    CHECK(unseen_end.free() == 0);
  }
  for (WorkspaceShelf *shelf : {&unseen_begin, &unseen_end}) {
    use_normally(*shelf);
    CHECK(shelf->free() == 2);
  }
}

} // namespace

int main() {
  check_equal_uses_keep_their_memory();
  check_shrinks_after_a_large_use();
  check_alternating_uses_keep_their_memory();
  check_shelf();
  check_what_is_put_back_is_taken_again();
  check_nobody_waits_for_the_shelf();
  check_loans_that_are_not_counted();
  return report();
}
