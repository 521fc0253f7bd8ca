// A batch: how it is split into groups, and which worker computes which.
#include "encoder.h"
#include "failure.h"
#include "float_mode.h"
#include "internal.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tb {
namespace {

// Sequences are computed together up to so many tokens: enough to amortize reading the weights, few enough that the
// activations stay in the cache.
constexpr int kGroupTokens = 128;

std::vector<Group> groups_of(const tb_batch &batch, int most_tokens) {
  std::vector<Group> groups;
  size_t token = 0;
  for (int s = 0; s < batch.sequences; s++) {
    const int length = batch.lengths[s];
    if (groups.empty() || groups.back().tokens + length > most_tokens)
      groups.push_back({
          .lengths = batch.lengths + s,
          .ids = batch.ids + token,
          .types = batch.types ? batch.types + token : nullptr,
          .first_sequence = static_cast<size_t>(s),
          .first_token = token,
      });
    groups.back().sequences++;
    groups.back().tokens += length;
    token += static_cast<size_t>(length);
  }
  return groups;
}

// Reserves the pool if it is free; else the caller works alone.
class Lease {
public:
  explicit Lease(Pool *pool) : pool_(pool && pool->acquire() ? pool : nullptr) {}
  ~Lease() {
    if (pool_) pool_->release();
  }
  Lease(const Lease &) = delete;
  Lease &operator=(const Lease &) = delete;
  Team team() const { return pool_ ? Team(pool_) : Team(); }

private:
  Pool *pool_;
};

class Call {
public:
  Call(const tb_model &model, const Output &output, float *result) : model_(model), output_(output), result_(result) {}

  // All workers on one group after the other.
  void together(const std::vector<Group> &groups, const Team &team) {
    for (const Group &group : groups)
      compute(group, team);
  }

  // Each worker on its own groups, longest first so that all finish together.
  void side_by_side(const std::vector<Group> &groups, const Team &team) {
    std::vector<size_t> order(groups.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return groups[a].tokens > groups[b].tokens; });
    team.run(static_cast<int>(groups.size()),
             [&](int i, int) { compute(groups[order[static_cast<size_t>(i)]], Team()); });
  }

  void finish() const {
    if (out_of_memory_) throw std::bad_alloc();
    if (!finite_) fail(TB_ERROR_NUMERIC, "activations became infinite or NaN");
  }

private:
  void compute(const Group &group, const Team &team) {
    try {
      std::unique_ptr<Workspace> workspace = model_.workspaces.take();
      const size_t row = output_.per_token ? group.first_token : group.first_sequence;
      const size_t width = static_cast<size_t>(output_.width);
      const size_t rows = static_cast<size_t>(output_.per_token ? group.tokens : group.sequences);
      float *const begin = result_ + row * width;
      Encoder encoder(model_, output_, group, team, *workspace);
      // The encoder checks what it quantizes; what comes after that is seen in the result.
      if (!encoder.run(begin) || !std::all_of(begin, begin + rows * width, [](float x) { return std::isfinite(x); }))
        finite_ = false;
      model_.workspaces.put(std::move(workspace));
    } catch (const std::bad_alloc &) { // must not leave a worker's thread
      out_of_memory_ = true;
    }
  }

  const tb_model &model_;
  const Output &output_;
  float *result_;
  std::atomic<bool> finite_{true}, out_of_memory_{false};
};

} // namespace

void run(const tb_model &model, const tb_batch &batch, int output_kind, float *result, size_t size, bool alone) {
  const Output output(model, output_kind);
  size_t tokens = 0;
  for (int s = 0; s < batch.sequences; s++)
    tokens += static_cast<size_t>(batch.lengths[s]);
  const size_t rows = output.per_token ? tokens : static_cast<size_t>(batch.sequences);
  if (size != checked(rows, static_cast<size_t>(output.width)))
    fail(TB_ERROR_ARGUMENT, "the result has room for %zu numbers, the output has %zu x %d", size, rows, output.width);

  const FloatMode mode;
  const Lease lease(alone ? nullptr : model.pool.get());
  const Team team = lease.team();
  Call call(model, output, result);
  std::vector<Group> groups = groups_of(batch, kGroupTokens);
  if (static_cast<int64_t>(groups.size()) >= 4 * static_cast<int64_t>(team.size()))
    call.side_by_side(groups, team);
  else
    call.together(groups_of(batch, kGroupTokens * team.size()), team);
  call.finish();
}

} // namespace tb
