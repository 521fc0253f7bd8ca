#include "encoder.h"

#include <algorithm>
#include <cstring>

namespace tb {
namespace {

// Rows that a worker takes from one attention to the next at once. Their intermediate activations (4 bytes times 3072
// in BERT-base) should stay in its second-level cache.
constexpr int kPartRows = 25;
// With fewer rows for each worker than this it is better that all share the columns of the weights.
constexpr int kFewRows = 16;

// Where piece i of `count` nearly equal pieces of n rows begins; they are multiples of `unit`, but for the last.
int piece_begin(int n, int i, int count, int unit) {
  return std::min(n, static_cast<int>(static_cast<int64_t>(pieces(n, unit)) * i / count) * unit);
}

} // namespace

// ---- Memory ---------------------------------------------------------------------------------------------------------

void Encoder::carve_local(Carver &carver, Local &local, size_t rows) const {
  size_t stride = 0;
  for (const int n : {model_.hidden, model_.intermediate})
    for (const bool ternary : {true, false})
      stride = std::max(stride, kernel_.row_bytes(n, ternary));
  local.codes = carver.take<uint8_t>(checked(rows, stride + kAlignment));
  local.scale = carver.take<float>(rows);
  local.offset = carver.take<float>(rows);
  local.sum = carver.take<int32_t>(rows);
  local.ranges = carver.take<Range>(rows);
  local.up = carver.take<float>(checked(rows, up_stride_));
  local.hat = model_.float_weights ? carver.take<float>(checked(rows, std::max(up_stride_, model_.stride))) : nullptr;
  local.dense = carver.take<float>(checked(rows, round_up(static_cast<size_t>(model_.dense.outputs()), kPad)));
  local.head = carver.take<float>(checked(rows, round_up(static_cast<size_t>(model_.head.outputs()), kPad)));
}

void Encoder::carve(Carver carver, size_t *bytes) {
  const size_t tokens = static_cast<size_t>(group_->tokens), sequences = static_cast<size_t>(group_->sequences);
  const size_t heads = static_cast<size_t>(model_.heads), workers = static_cast<size_t>(team_.size());
  qkv_stride_ = round_up(3 * static_cast<size_t>(model_.hidden), kPad) + kPad; // vectors may begin at any head
  up_stride_ = round_up(static_cast<size_t>(model_.intermediate), kPad);
  x_ = carver.take<float>(checked(tokens, model_.stride));
  qkv_ = carver.take<float>(checked(tokens, qkv_stride_));
  context_ = carver.take<float>(checked(tokens, model_.stride));
  first_ = carver.take<int>(sequences + 1);
  sequence_ = carver.take<int>(tokens);
  head_ranges_ = carver.take<Range>(checked(sequences, heads));
  grids_ = carver.take<Grid>(checked(sequences, 4));

  // Each worker has rows of its own; the first also has those that all share (see for_parts).
  locals_ = carver.take<Local>(workers);
  Local counted;
  for (size_t i = 0; i < workers; i++) {
    const int shared = i == 0 ? team_.size() * kFewRows : 0;
    const int rows = ranges_span_rows() ? (i == 0 ? group_->tokens : 0)
                                        : std::min(group_->tokens, std::max(kPartRows + kernel_.rows, shared));
    carve_local(carver, locals_ ? locals_[i] : counted, static_cast<size_t>(rows));
  }

  int longest = 0;
  for (size_t i = 0; i < sequences; i++)
    longest = std::max(longest, group_->lengths[i]);
  const int most_inputs = std::max({model_.hidden, model_.intermediate, model_.dense.outputs()});
  scratch_ = carver.take<Scratch>(workers);
  for (size_t i = 0; i < workers; i++) {
    const Scratch scratch{carver.take<uint8_t>(kernel_.head_scratch(longest, model_.hidden / model_.heads)),
                          carver.take<int8_t>(static_cast<size_t>(most_inputs)),
                          carver.take<float>(static_cast<size_t>(most_inputs) + kPad)};
    if (scratch_) scratch_[i] = scratch;
  }
  *bytes = carver.used();
}

// ---- Who does what --------------------------------------------------------------------------------------------------

// Every worker has as many rows as the others, and takes them in parts of whole tiles.
template <class Function> void Encoder::for_parts(int rows, const Function &f) {
  const int workers = team_.size();
  if (ranges_span_rows() || (workers > 1 && rows < workers * kFewRows)) {
    f(Part{0, rows, locals_[0], team_, 0});
    return;
  }
  const int parts = pieces(pieces(rows, workers), kPartRows); // of a worker
  team_.run(workers * parts, [&](int task, int worker) {
    const int share = task % workers, part = task / workers;
    const int first = piece_begin(rows, share, workers, 1), n = piece_begin(rows, share + 1, workers, 1) - first;
    const int begin = piece_begin(n, part, parts, kernel_.rows), end = piece_begin(n, part + 1, parts, kernel_.rows);
    f(Part{first + begin, end - begin, locals_[worker], Team(), worker});
  });
}

// ---- The whole ------------------------------------------------------------------------------------------------------

void Encoder::keep_first_tokens() {
  for (int s = 0; s < group_->sequences; s++)
    std::memmove(x_ + static_cast<size_t>(s) * model_.stride, x_ + static_cast<size_t>(first_[s]) * model_.stride,
                 model_.stride * sizeof(float));
}

bool Encoder::run(const Group &group, float *result) {
  group_ = &group;
  size_t bytes = 0;
  carve(Carver(nullptr), &bytes);
  carve(Carver(workspace_.reserve(bytes)), &bytes);
  for (int s = 0, row = 0; s < group.sequences; s++) {
    first_[s] = row;
    for (int i = 0; i < group.lengths[s]; i++)
      sequence_[row++] = s;
    first_[s + 1] = row;
  }
  // With ranges per sequence all tokens of the last layer have a say in its ranges.
  first_only_ = output_.first_only && !ranges_span_rows();

  const size_t layers = model_.layers.size();
  for (size_t i = 0; i < layers; i++) {
    for_parts(group.tokens, [&](const Part &part) {
      if (i == 0)
        embed(part);
      else
        after_attention(part, model_.layers[i - 1]);
      const Norm &norm = i == 0 ? model_.embedding_norm : model_.layers[i - 1].output_norm;
      before_attention(part, model_.layers[i], norm, i + 1 == layers);
    });
    queries_ = i + 1 == layers && first_only_ ? 1 : 0;
    attention();
  }
  if (first_only_) keep_first_tokens();
  const int rows = first_only_ ? group.sequences : group.tokens;
  for_parts(rows, [&](const Part &part) {
    after_attention(part, model_.layers.back());
    const Norm &norm = model_.layers.back().output_norm;
    for (int row = 0; row < part.rows; row++)
      prepare_row(x_ + static_cast<size_t>(part.begin + row) * model_.stride,
                  {nullptr, 0, model_.hidden, &norm, TB_IDENTITY, false, true});
  });
  if (output_.first_only && !first_only_) keep_first_tokens();
  if (output_.kind == TB_OUTPUT_MEAN)
    write_means(result);
  else
    for_parts(output_.per_token ? group.tokens : group.sequences, [&](const Part &part) { write(part, result); });
  return finite_;
}

} // namespace tb
