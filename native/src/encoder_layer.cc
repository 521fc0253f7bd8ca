// The parts of a layer, in the order of the forward pass.
#include "encoder.h"

namespace tb {

void Encoder::embed(const Part &part) {
  part.team.run(part.rows, [&](int task, int worker) {
    const Scratch &scratch = scratch_[part.team.size() == 1 ? part.worker : worker];
    const int row = part.begin + task;
    const int place = model_.first_position + row - first_[sequence_[row]];
    model_.word.read(group_->ids[row], scratch.codes, scratch.row);
    const float scale = model_.word.scale(group_->ids[row]);
    for (int i = 0; i < model_.hidden; i++)
      scratch.row[i] = scale * scratch.row[i];
    const float *type = nullptr;
    if (model_.types > 0)
      type = model_.type.data() + static_cast<size_t>(group_->types ? group_->types[row] : 0) * model_.stride;
    kernel_.embed(scratch.row, type, model_.position.data() + static_cast<size_t>(place) * model_.stride, model_.hidden,
                  x_ + static_cast<size_t>(row) * model_.stride);
  });
}

void Encoder::before_attention(const Part &part, const Layer &layer, const Norm &norm, bool last) {
  const Input input{x_ + static_cast<size_t>(part.begin) * model_.stride,
                    model_.stride,
                    model_.hidden,
                    &norm,
                    TB_IDENTITY,
                    model_.quantized(),
                    false};
  float *const y = qkv_ + static_cast<size_t>(part.begin) * qkv_stride_;
  if (!(last && first_only_) || !layer.qkv.in_panels()) return apply(part, layer.qkv, input, y, qkv_stride_, false);

  // Keys and values of all tokens, but only the first tokens' queries.
  const int all = layer.qkv.panels(kernel_);
  prepare(part, layer.qkv, input);
  multiply(part, layer.qkv, input, {0, part.rows, model_.hidden / kernel_.columns, all, y, qkv_stride_, false});
  const int queries = pieces(model_.hidden, kernel_.columns);
  for (int s = 0; s < group_->sequences; s++) {
    const int row = first_[s] - part.begin;
    if (row >= 0 && row < part.rows)
      multiply(part, layer.qkv, input, {row, row + 1, 0, queries, y, qkv_stride_, false});
  }
}

void Encoder::after_attention(const Part &part, const Layer &layer) {
  const size_t begin = static_cast<size_t>(part.begin), stride = model_.stride;
  float *const x = x_ + begin * stride, *const up = part.local.up;
  const bool codes = model_.quantized();
  apply(part, layer.output, {context_ + begin * stride, stride, model_.hidden, nullptr, TB_IDENTITY, codes, false}, x,
        stride, true);
  apply(part, layer.up, {x, stride, model_.hidden, &layer.attention_norm, TB_IDENTITY, codes, false}, up, up_stride_,
        false);
  apply(part, layer.down, {up, up_stride_, model_.intermediate, nullptr, model_.function, codes, false}, x, stride,
        true);
}

HeadTask Encoder::head_task(int sequence, int head, int worker) const {
  const size_t width = static_cast<size_t>(model_.hidden / model_.heads), hidden = static_cast<size_t>(model_.hidden);
  const size_t first = static_cast<size_t>(first_[sequence]);
  HeadTask task{};
  task.q = qkv_ + first * qkv_stride_ + static_cast<size_t>(head) * width;
  task.k = task.q + hidden;
  task.v = task.k + hidden;
  task.stride = qkv_stride_;
  task.tokens = group_->lengths[sequence];
  task.queries = queries_ ? queries_ : task.tokens;
  task.width = static_cast<int>(width);
  task.scaling = model_.scaling;
  task.quantizer = &model_.quantizer;
  // With one row a sequence the context has one row a sequence, too.
  task.context =
      context_ + (queries_ ? static_cast<size_t>(sequence) : first) * model_.stride + static_cast<size_t>(head) * width;
  task.context_stride = model_.stride;
  task.scratch = scratch_[worker].head;
  return task;
}

void Encoder::attention() {
  if (ranges_span_rows()) return attention_with_ranges_per_sequence();
  team_.run(group_->sequences * model_.heads, [&](int i, int worker) {
    const HeadTask task = head_task(i / model_.heads, i % model_.heads, worker);
    if (!model_.quantized())
      kernel_.plain_head(task);
    else if (!kernel_.head(task))
      finite_.store(false, std::memory_order_relaxed);
  });
}

// One range each for Q, K, V and P of a sequence, over all its heads. That of P is known only when all heads were
// computed once; computing them again is cheaper than keeping tokens x tokens x heads probabilities.
void Encoder::attention_with_ranges_per_sequence() {
  const int heads = model_.heads, hidden = model_.hidden;
  team_.run(group_->sequences * 3, [&](int i, int) {
    const int s = i / 3, which = i % 3;
    const float *x = qkv_ + static_cast<size_t>(first_[s]) * qkv_stride_ + static_cast<size_t>(which * hidden);
    Range range = kernel_.range(x, hidden);
    for (int t = 1; t < group_->lengths[s]; t++)
      range = join(range, kernel_.range(x + static_cast<size_t>(t) * qkv_stride_, hidden));
    grids_[s * 4 + which] = model_.quantizer.grid(range);
  });
  const auto run = [&](bool only_range) {
    team_.run(group_->sequences * heads, [&](int i, int worker) {
      const int s = i / heads;
      HeadTask task = head_task(s, i % heads, worker);
      const Grid *grids = grids_ + s * 4;
      task.q_grid = grids;
      task.k_grid = grids + 1;
      task.v_grid = grids + 2;
      task.p_grid = grids + 3;
      if (only_range) {
        head_ranges_[i] = {1.0f, 0.0f};
        task.p_range = &head_ranges_[i];
      }
      if (!kernel_.head(task)) finite_.store(false, std::memory_order_relaxed);
    });
  };
  run(true);
  for (int s = 0; s < group_->sequences; s++) {
    Range range = head_ranges_[s * heads];
    for (int h = 1; h < heads; h++)
      range = join(range, head_ranges_[s * heads + h]);
    grids_[s * 4 + 3] = model_.quantizer.grid(range);
  }
  run(false);
}

} // namespace tb
