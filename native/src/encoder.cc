#include "encoder.h"

#include <algorithm>

namespace tb {
namespace {

// Rows that a worker takes from one attention to the next at once. Their intermediate activations (4 bytes times 3072
// in BERT-base) should stay in its second-level cache.
constexpr int kPartRows = 25;
// With fewer rows for each worker than this it is better that all share the columns of the weights.
constexpr int kFewRows = 16;
// Rows in a task of the parts that work row by row.
constexpr int kTaskRows = 4;

int pieces(int n, int size) { return (n + size - 1) / size; }

} // namespace

Output::Output(const tb_model &model, int kind_) : kind(kind_) {
  per_token = kind == TB_OUTPUT_HIDDEN || kind == TB_OUTPUT_TOKEN_LOGITS;
  first_only = kind == TB_OUTPUT_FIRST || kind == TB_OUTPUT_DENSE || kind == TB_OUTPUT_LOGITS;
  if (kind == TB_OUTPUT_DENSE)
    width = model.dense.outputs();
  else if (kind == TB_OUTPUT_LOGITS || kind == TB_OUTPUT_TOKEN_LOGITS)
    width = model.head.outputs();
  else
    width = model.hidden;
}

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

  // Each worker has rows of its own; the first also has those that all share (see part_rows).
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
    const Scratch scratch{carver.take<uint8_t>(kernel_.panel_scratch(most_inputs)),
                          carver.take<uint8_t>(kernel_.head_scratch(longest, model_.hidden / model_.heads)),
                          carver.take<int8_t>(static_cast<size_t>(most_inputs)),
                          carver.take<float>(static_cast<size_t>(most_inputs) + kPad)};
    if (scratch_) scratch_[i] = scratch;
  }
  *bytes = carver.used();
}

// ---- Who does what --------------------------------------------------------------------------------------------------

// How many rows a worker takes at once; all, if the workers share them. Whole tiles, as many for each worker.
int Encoder::part_rows(int rows) const {
  const int workers = team_.size();
  if (ranges_span_rows() || (workers > 1 && rows < workers * kFewRows)) return rows;
  const int parts = workers * pieces(rows, workers * kPartRows), tile = kernel_.rows;
  return pieces(pieces(rows, parts), tile) * tile;
}

template <class Function> void Encoder::for_parts(int rows, const Function &f) {
  const int size = part_rows(rows);
  if (size >= rows) {
    f(Part{0, rows, locals_[0], team_, 0});
    return;
  }
  team_.run(pieces(rows, size), [&](int part, int worker) {
    const int begin = part * size;
    f(Part{begin, std::min(size, rows - begin), locals_[worker], Team(), worker});
  });
}

// ---- A linear layer -------------------------------------------------------------------------------------------------

// Norm or function of a row; the range of what it becomes.
Range Encoder::prepare_row(float *x, const Input &input) const {
  if (input.norm)
    return kernel_.layer_norm(x, input.n, input.norm->weight.data(), input.norm->bias.data(), model_.norm_eps);
  return kernel_.activate(x, input.n, input.function);
}

// Rows of codes lie close together, but not at multiples of a large power of two: those would fall into the same few
// places of the nearest cache.
CodeRows Encoder::code_rows(const Local &local, const Linear &linear) const {
  const size_t stride = kernel_.row_bytes(linear.inputs(), linear.weight().ternary) + kAlignment;
  return {local.codes, stride, local.scale, local.offset, local.sum};
}

void Encoder::quantize(const Part &part, const Linear &linear, const Input &input, int row, Range range) {
  const float *x = input.x + static_cast<size_t>(row) * input.stride;
  const Grid grid = model_.quantizer.grid(range);
  if (!grid.finite()) finite_.store(false, std::memory_order_relaxed);
  if (!linear.in_panels()) { // weights that are floats take x_hat itself
    float *hat = part.local.hat + static_cast<size_t>(row) * std::max(up_stride_, model_.stride);
    for (int i = 0; i < input.n; i++)
      hat[i] = grid.round_trip(x[i]);
    return;
  }
  const CodeRows codes = code_rows(part.local, linear);
  codes.scale[row] = grid.scale;
  codes.offset[row] = grid.offset;
  codes.sum[row] = kernel_.quantize(x, input.n, grid, linear.weight().ternary,
                                    codes.codes + static_cast<size_t>(row) * codes.stride);
}

// Norm, function and codes of the rows that go into a linear layer. The input is replaced by what it becomes.
void Encoder::prepare(const Part &part, const Linear &linear, const Input &input) {
  const bool codes = input.quantized, per_row = !model_.sequence_ranges || input.per_row;
  const int tasks = pieces(part.rows, kTaskRows);
  part.team.run(tasks, [&](int task, int) {
    for (int row = task * kTaskRows; row < std::min(part.rows, (task + 1) * kTaskRows); row++) {
      float *const x = input.x + static_cast<size_t>(row) * input.stride;
      part.local.ranges[row] = prepare_row(x, input);
      if (!codes) continue;
      if (per_row) quantize(part, linear, input, row, part.local.ranges[row]);
    }
  });
  if (!codes || per_row) return;
  for (int s = 0; s < group_->sequences; s++) { // parts are then whole: part.begin is 0
    Range range = part.local.ranges[first_[s]];
    for (int row = first_[s] + 1; row < first_[s + 1]; row++)
      range = join(range, part.local.ranges[row]);
    for (int row = first_[s]; row < first_[s + 1]; row++)
      part.local.ranges[row] = range;
  }
  part.team.run(tasks, [&](int task, int) {
    for (int row = task * kTaskRows; row < std::min(part.rows, (task + 1) * kTaskRows); row++)
      quantize(part, linear, input, row, part.local.ranges[row]);
  });
}

void Encoder::multiply(const Part &part, const Linear &linear, const Input &input, const Product &product) {
  if (!linear.in_panels()) return multiply_plain(part, linear, input, product);
  const int panels = product.panel_end - product.panel_begin;
  const int tasks = part.team.size() == 1 ? 1 : std::min(panels, part.team.size() * 4);
  part.team.run(tasks, [&](int task, int worker) {
    const int begin = product.panel_begin + static_cast<int>(static_cast<int64_t>(panels) * task / tasks);
    const int end = product.panel_begin + static_cast<int>(static_cast<int64_t>(panels) * (task + 1) / tasks);
    const Scratch &scratch = scratch_[part.team.size() == 1 ? part.worker : worker];
    kernel_.linear(linear.weight(), code_rows(part.local, linear),
                   {product.row_begin, product.row_end, begin, end, product.y, product.stride,
                    product.residual ? product.y : nullptr, scratch.panel});
  });
}

// Inputs that are not quantized, or weights that are not: float64 sums, one output at a time for all rows.
void Encoder::multiply_plain(const Part &part, const Linear &linear, const Input &input, const Product &product) {
  const float *x = input.quantized ? part.local.hat : input.x;
  const size_t stride = input.quantized ? std::max(up_stride_, model_.stride) : input.stride;
  int column = 0;
  for (const Rows &rows : linear.parts()) {
    constexpr int kOutputs = 16;
    part.team.run(pieces(rows.rows(), kOutputs), [&](int task, int worker) {
      const Scratch &scratch = scratch_[part.team.size() == 1 ? part.worker : worker];
      for (int n = task * kOutputs; n < std::min(rows.rows(), (task + 1) * kOutputs); n++) {
        rows.read(n, scratch.codes, scratch.row);
        const float scale = rows.scale(n), bias = linear.bias()[column + n];
        for (int row = product.row_begin; row < product.row_end; row++) {
          const size_t r = static_cast<size_t>(row);
          float *const y = product.y + r * product.stride + column + n;
          const float sum = scale * kernel_.dot(x + r * stride, scratch.row, input.n) + bias;
          *y = product.residual ? sum + *y : sum;
        }
      }
    });
    column += rows.rows();
  }
}

void Encoder::apply(const Part &part, const Linear &linear, const Input &input, float *y, size_t stride,
                    bool residual) {
  prepare(part, linear, input);
  multiply(part, linear, input, {0, part.rows, 0, linear.panels(kernel_), y, stride, residual});
}

// ---- The layers -----------------------------------------------------------------------------------------------------

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

// ---- The whole ------------------------------------------------------------------------------------------------------

void Encoder::keep_first_tokens() {
  for (int s = 0; s < group_->sequences; s++)
    std::memmove(x_ + static_cast<size_t>(s) * model_.stride, x_ + static_cast<size_t>(first_[s]) * model_.stride,
                 model_.stride * sizeof(float));
}

// From hidden states (one row a token or a sequence) to the output.
void Encoder::write(const Part &part, float *result) {
  const size_t width = static_cast<size_t>(output_.width);
  float *y = x_ + static_cast<size_t>(part.begin) * model_.stride;
  size_t stride = model_.stride;
  int n = model_.hidden;
  const bool logits = output_.kind == TB_OUTPUT_LOGITS;
  if (output_.kind == TB_OUTPUT_DENSE || (logits && model_.dense.outputs() > 0)) {
    const size_t dense_stride = round_up(static_cast<size_t>(model_.dense.outputs()), kPad);
    apply(part, model_.dense, {y, stride, n, nullptr, TB_IDENTITY, model_.dense_quantized, true}, part.local.dense,
          dense_stride, false);
    y = part.local.dense;
    stride = dense_stride;
    n = model_.dense.outputs();
    for (int row = 0; row < part.rows; row++)
      kernel_.activate(y + static_cast<size_t>(row) * stride, n, model_.dense_function);
  }
  if (logits || output_.kind == TB_OUTPUT_TOKEN_LOGITS) {
    const size_t head_stride = round_up(static_cast<size_t>(model_.head.outputs()), kPad);
    apply(part, model_.head, {y, stride, n, nullptr, TB_IDENTITY, false, true}, part.local.head, head_stride, false);
    y = part.local.head;
    stride = head_stride;
  }
  for (int row = 0; row < part.rows; row++)
    std::memcpy(result + static_cast<size_t>(part.begin + row) * width, y + static_cast<size_t>(row) * stride,
                width * sizeof(float));
}

void Encoder::write_means(float *result) {
  team_.run(group_->sequences, [&](int s, int) {
    for (int i = 0; i < model_.hidden; i++) {
      double sum = 0.0;
      for (int row = first_[s]; row < first_[s + 1]; row++)
        sum += static_cast<double>(x_[static_cast<size_t>(row) * model_.stride + static_cast<size_t>(i)]);
      result[static_cast<size_t>(s) * static_cast<size_t>(model_.hidden) + static_cast<size_t>(i)] =
          static_cast<float>(sum / group_->lengths[s]);
    }
  });
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
