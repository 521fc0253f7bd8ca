// Working memory: kept for equal batches, given back after larger ones, and after many callers at once.
#include "../src/workspace.h"
#include "check.h"

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

} // namespace

int main() {
  check_equal_uses_keep_their_memory();
  check_shrinks_after_a_large_use();
  check_alternating_uses_keep_their_memory();
  check_shelf();
  return report();
}
