#include "encoder.h"

#include <algorithm>
#include <cstring>

namespace tb {
namespace {

// Rows that a worker takes from one attention to the next at once. Their intermediate activations (4 bytes times 3072
// in BERT-base) should stay in its second-level cache.
constexpr int kPartRows = 25;
// With fewer rows for each worker than this, all workers share the columns of the weights instead.
constexpr int kFewRows = 8;
constexpr int kTaskRows = 4; // of the work that is done row by row

// Where piece i of `count` nearly equal pieces of n rows begins; they are multiples of `unit`, but for the last.
int piece_begin(int n, int i, int count, int unit) {
  return std::min(n, static_cast<int>(static_cast<int64_t>(pieces(n, unit)) * i / count) * unit);
}

size_t padded(int n) { return round_up(static_cast<size_t>(n), kPad); }

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

Encoder::Encoder(const tb_model &model, const Output &output, const Group &group, const Team &team,
                 Workspace &workspace)
    : model_(model), kernel_(model.kernel), output_(output), group_(group), team_(team),
      // With ranges per sequence, all tokens of the last layer count in its ranges.
      first_only_(output.first_only && !sequence_ranges()),
      qkv_stride_(padded(3 * model.hidden) + kPad), // vectors may begin at any head
      up_stride_(padded(model.intermediate)), hat_stride_(std::max(up_stride_, model.stride)),
      arrays_(carve_workspace(workspace)) {
  number_rows();
}

Encoder::Arrays Encoder::carve_workspace(Workspace &workspace) const {
  Carver counter(nullptr);
  carve(counter);
  Carver carver(workspace.reserve(counter.used()));
  return carve(carver);
}

// With a carver that only counts, all pointers are null.
Encoder::Arrays Encoder::carve(Carver &carver) const {
  const size_t tokens = static_cast<size_t>(group_.tokens), sequences = static_cast<size_t>(group_.sequences);
  const size_t heads = static_cast<size_t>(model_.heads), workers = static_cast<size_t>(team_.size());
  // The initializers are evaluated in this order.
  const Arrays arrays{
      .x = carver.take<float>(checked(tokens, model_.stride)),
      .qkv = carver.take<float>(checked(tokens, qkv_stride_)),
      .context = carver.take<float>(checked(tokens, model_.stride)),
      .first = carver.take<int>(sequences + 1),
      .sequence = carver.take<int>(tokens),
      .head_ranges = carver.take<Range>(checked(sequences, heads)),
      .grids = carver.take<Grid>(checked(sequences, 4)),
      .rows = carver.take<RowBuffers>(workers),
      .scratch = carver.take<Scratch>(workers),
  };

  // The first worker's rows are also those that all workers share (see for_parts). A part has whole tiles.
  const int part_rows = pieces(kPartRows, kernel_.rows) * kernel_.rows;
  for (size_t i = 0; i < workers; i++) {
    const int shared = i == 0 ? team_.size() * kFewRows : 0;
    const int rows =
        sequence_ranges() ? (i == 0 ? group_.tokens : 0) : std::min(group_.tokens, std::max(part_rows, shared));
    const RowBuffers buffers = carve_rows(carver, static_cast<size_t>(rows));
    if (arrays.rows) arrays.rows[i] = buffers;
  }

  const int longest = *std::max_element(group_.lengths, group_.lengths + group_.sequences);
  const size_t most_inputs =
      static_cast<size_t>(std::max({model_.hidden, model_.intermediate, model_.dense.outputs()}));
  for (size_t i = 0; i < workers; i++) {
    const Scratch scratch{
        .head = carver.take<uint8_t>(kernel_.head_scratch(longest, model_.hidden / model_.heads)),
        .codes = carver.take<int8_t>(most_inputs),
        .row = carver.take<float>(most_inputs + kPad),
    };
    if (arrays.scratch) arrays.scratch[i] = scratch;
  }
  return arrays;
}

Encoder::RowBuffers Encoder::carve_rows(Carver &carver, size_t rows) const {
  size_t stride = 0;
  for (const int n : {model_.hidden, model_.intermediate})
    for (const bool ternary : {true, false})
      stride = std::max(stride, kernel_.row_bytes(n, ternary));
  return {
      .codes = carver.take<uint8_t>(checked(rows, stride + kAlignment)),
      .scale = carver.take<float>(rows),
      .offset = carver.take<float>(rows),
      .sum = carver.take<int32_t>(rows),
      .ranges = carver.take<Range>(rows),
      .up = carver.take<float>(checked(rows, up_stride_)),
      .x_hat = model_.float_weights ? carver.take<float>(checked(rows, hat_stride_)) : nullptr,
      .dense = carver.take<float>(checked(rows, padded(model_.dense.outputs()))),
      .head = carver.take<float>(checked(rows, padded(model_.head.outputs()))),
  };
}

void Encoder::number_rows() const {
  int row = 0;
  for (int s = 0; s < group_.sequences; s++) {
    arrays_.first[s] = row;
    for (int i = 0; i < group_.lengths[s]; i++)
      arrays_.sequence[row++] = s;
  }
  arrays_.first[group_.sequences] = row;
}

// ---- The whole ------------------------------------------------------------------------------------------------------

// Every worker has as many rows as the others, and takes them in parts of whole tiles.
template <class Function> void Encoder::for_parts(int rows, const Function &f) {
  const int workers = team_.size();
  if (sequence_ranges() || (workers > 1 && rows < workers * kFewRows)) {
    f(Part{.begin = 0, .rows = rows, .buffers = arrays_.rows[0], .team = team_, .worker = 0});
    return;
  }
  const int parts = pieces(pieces(rows, workers), kPartRows); // of a worker
  team_.run(workers * parts, [&](int task, int worker) {
    const int share = task % workers, part = task / workers;
    const int first = piece_begin(rows, share, workers, 1), n = piece_begin(rows, share + 1, workers, 1) - first;
    const int begin = piece_begin(n, part, parts, kernel_.rows), end = piece_begin(n, part + 1, parts, kernel_.rows);
    f(Part{.begin = first + begin,
           .rows = end - begin,
           .buffers = arrays_.rows[worker],
           .team = Team(),
           .worker = worker});
  });
}

// A worker takes its rows from one attention to the next, across the border between layers: that needs no waiting.
bool Encoder::run(float *result) {
  const size_t layers = model_.layers.size();
  for (size_t i = 0; i < layers; i++) {
    const bool last = i + 1 == layers;
    for_parts(group_.tokens, [&](const Part &part) {
      if (i == 0)
        embed(part);
      else
        after_attention(part, model_.layers[i - 1]);
      const Norm &norm = i == 0 ? model_.embedding_norm : model_.layers[i - 1].output_norm;
      before_attention(part, model_.layers[i], norm, last);
    });
    attention(last);
  }
  if (first_only_) move_first_tokens();
  const Layer &last = model_.layers.back();
  for_parts(first_only_ ? group_.sequences : group_.tokens, [&](const Part &part) {
    after_attention(part, last);
    const Input input{
        .x = arrays_.x + row(part.begin), .stride = model_.stride, .n = model_.hidden, .norm = &last.output_norm};
    prepare_rows(input, 0, part.rows, part.buffers.ranges);
  });
  if (output_.first_only && !first_only_) move_first_tokens();
  if (output_.kind == TB_OUTPUT_MEAN)
    write_means(result);
  else
    for_parts(output_.per_token ? group_.tokens : group_.sequences, [&](const Part &part) { write(part, result); });
  return finite_;
}

// From a row a token to a row a sequence.
void Encoder::move_first_tokens() const {
  for (int s = 0; s < group_.sequences; s++)
    std::memmove(arrays_.x + row(s), arrays_.x + row(arrays_.first[s]), model_.stride * sizeof(float));
}

// ---- Layers, in the order of the forward pass -----------------------------------------------------------------------

void Encoder::embed(const Part &part) const {
  part.team.run(part.rows, [&](int task, int worker) {
    const Scratch &scratch = arrays_.scratch[part.team.size() == 1 ? part.worker : worker];
    const int token = part.begin + task, id = group_.ids[token];
    const int position = model_.first_position + token - arrays_.first[arrays_.sequence[token]];
    model_.word.read(id, scratch.codes, scratch.row);
    const float scale = model_.word.scale(id);
    for (int i = 0; i < model_.hidden; i++)
      scratch.row[i] = scale * scratch.row[i];
    const float *type = model_.types > 0 ? model_.type.data() + row(group_.types ? group_.types[token] : 0) : nullptr;
    kernel_.embed(scratch.row, type, model_.position.data() + row(position), model_.hidden, arrays_.x + row(token));
  });
}

void Encoder::before_attention(const Part &part, const Layer &layer, const Norm &norm, bool last) {
  const Input input{
      .x = arrays_.x + row(part.begin),
      .stride = model_.stride,
      .n = model_.hidden,
      .norm = &norm,
      .quantized = model_.quantized(),
  };
  const Target target{.y = arrays_.qkv + static_cast<size_t>(part.begin) * qkv_stride_, .stride = qkv_stride_};
  if (!(last && first_only_) || !layer.qkv.in_panels()) return apply(part, layer.qkv, input, target);

  // Keys and values of all tokens, but only the first tokens' queries.
  prepare(part, layer.qkv, input);
  multiply(part, layer.qkv, input, target,
           {.row_begin = 0,
            .row_end = part.rows,
            .panel_begin = model_.hidden / kernel_.columns,
            .panel_end = layer.qkv.panels()});
  for (int s = 0; s < group_.sequences; s++) {
    const int first = arrays_.first[s] - part.begin;
    if (first >= 0 && first < part.rows)
      multiply(part, layer.qkv, input, target,
               {.row_begin = first,
                .row_end = first + 1,
                .panel_begin = 0,
                .panel_end = pieces(model_.hidden, kernel_.columns)});
  }
}

void Encoder::after_attention(const Part &part, const Layer &layer) {
  float *const x = arrays_.x + row(part.begin), *const up = part.buffers.up;
  const size_t stride = model_.stride;
  const bool quantized = model_.quantized();
  apply(part, layer.output,
        {.x = arrays_.context + row(part.begin), .stride = stride, .n = model_.hidden, .quantized = quantized},
        {.y = x, .stride = stride, .add = true});
  apply(part, layer.up,
        {.x = x, .stride = stride, .n = model_.hidden, .norm = &layer.attention_norm, .quantized = quantized},
        {.y = up, .stride = up_stride_});
  apply(part, layer.down,
        {.x = up, .stride = up_stride_, .n = model_.intermediate, .function = model_.function, .quantized = quantized},
        {.y = x, .stride = stride, .add = true});
}

void Encoder::attention(bool last) {
  const bool first_query_only = last && first_only_;
  if (sequence_ranges()) return attention_with_sequence_ranges(first_query_only);
  team_.run(group_.sequences * model_.heads, [&](int i, int worker) {
    const HeadTask task = head_task(i / model_.heads, i % model_.heads, first_query_only, worker);
    if (!model_.quantized())
      kernel_.plain_head(task);
    else if (!kernel_.head(task))
      not_finite();
  });
}

HeadTask Encoder::head_task(int sequence, int head, bool first_query_only, int worker) const {
  const size_t width = static_cast<size_t>(model_.hidden / model_.heads), hidden = static_cast<size_t>(model_.hidden);
  const int first = arrays_.first[sequence], tokens = group_.lengths[sequence];
  const size_t column = static_cast<size_t>(head) * width;
  const float *const q = arrays_.qkv + static_cast<size_t>(first) * qkv_stride_ + column;
  return {
      .q = q,
      .k = q + hidden,
      .v = q + 2 * hidden,
      .stride = qkv_stride_,
      .tokens = tokens,
      .queries = first_query_only ? 1 : tokens,
      .width = static_cast<int>(width),
      .scaling = model_.scaling,
      .quantizer = &model_.quantizer,
      // With one query a sequence the context has one row a sequence, too.
      .context = arrays_.context + row(first_query_only ? sequence : first) + column,
      .context_stride = model_.stride,
      .scratch = arrays_.scratch[worker].head,
  };
}

// One range each for Q, K, V and P of a sequence, over all its heads. That of P is known only when all heads were
// computed once; computing them again is cheaper than storing tokens x tokens x heads probabilities.
void Encoder::attention_with_sequence_ranges(bool first_query_only) {
  const int heads = model_.heads, hidden = model_.hidden;
  team_.run(group_.sequences * 3, [&](int i, int) {
    const int s = i / 3, which = i % 3;
    const float *x =
        arrays_.qkv + static_cast<size_t>(arrays_.first[s]) * qkv_stride_ + static_cast<size_t>(which * hidden);
    Range range = kernel_.range(x, hidden);
    for (int t = 1; t < group_.lengths[s]; t++)
      range = join(range, kernel_.range(x + static_cast<size_t>(t) * qkv_stride_, hidden));
    arrays_.grids[s * 4 + which] = model_.quantizer.grid(range);
  });
  const auto run_heads = [&](bool only_range) {
    team_.run(group_.sequences * heads, [&](int i, int worker) {
      const int s = i / heads;
      HeadTask task = head_task(s, i % heads, first_query_only, worker);
      const Grid *grids = arrays_.grids + s * 4;
      task.q_grid = grids;
      task.k_grid = grids + 1;
      task.v_grid = grids + 2;
      task.p_grid = grids + 3;
      if (only_range) {
        arrays_.head_ranges[i] = {.low = 1.0f, .high = 0.0f};
        task.p_range = &arrays_.head_ranges[i];
      }
      if (!kernel_.head(task)) not_finite();
    });
  };
  run_heads(true);
  for (int s = 0; s < group_.sequences; s++) {
    Range range = arrays_.head_ranges[s * heads];
    for (int h = 1; h < heads; h++)
      range = join(range, arrays_.head_ranges[s * heads + h]);
    arrays_.grids[s * 4 + 3] = model_.quantizer.grid(range);
  }
  run_heads(false);
}

// ---- Linear layers --------------------------------------------------------------------------------------------------

void Encoder::apply(const Part &part, const Linear &linear, const Input &input, const Target &target) {
  prepare(part, linear, input);
  multiply(part, linear, input, target,
           {.row_begin = 0, .row_end = part.rows, .panel_begin = 0, .panel_end = linear.panels()});
}

// Norm, function and codes of the rows that go into a linear layer. The input is replaced by what it becomes.
void Encoder::prepare(const Part &part, const Linear &linear, const Input &input) {
  const bool row_ranges = !model_.sequence_ranges || input.row_ranges;
  const int tasks = pieces(part.rows, kTaskRows);
  Range *const ranges = part.buffers.ranges;
  part.team.run(tasks, [&](int task, int) {
    const int begin = task * kTaskRows, end = std::min(part.rows, begin + kTaskRows);
    prepare_rows(input, begin, end, ranges);
    for (int i = begin; i < end && input.quantized && row_ranges; i++)
      quantize_row(part, linear, input, i, ranges[i]);
  });
  if (!input.quantized || row_ranges) return;
  for (int s = 0; s < group_.sequences; s++) { // the part is then the whole group: part.begin is 0
    const int begin = arrays_.first[s], end = arrays_.first[s + 1];
    Range range = ranges[begin];
    for (int i = begin + 1; i < end; i++)
      range = join(range, ranges[i]);
    std::fill(ranges + begin, ranges + end, range);
  }
  part.team.run(tasks, [&](int task, int) {
    for (int i = task * kTaskRows; i < std::min(part.rows, (task + 1) * kTaskRows); i++)
      quantize_row(part, linear, input, i, ranges[i]);
  });
}

// Norm or function of the rows begin .. end - 1, and the ranges of what they become.
void Encoder::prepare_rows(const Input &input, int begin, int end, Range *ranges) const {
  float *const x = input.x + static_cast<size_t>(begin) * input.stride;
  if (input.norm)
    return kernel_.layer_norm(x, input.stride, end - begin, input.n, input.norm->weight.data(), input.norm->bias.data(),
                              model_.norm_eps, ranges + begin);
  for (int i = begin; i < end; i++)
    ranges[i] = kernel_.activate(input.x + static_cast<size_t>(i) * input.stride, input.n, input.function);
}

// Rows of codes lie close together, but not at multiples of a large power of two: those would share a few sets of the
// first-level cache.
size_t Encoder::code_stride(const Linear &linear) const {
  return kernel_.row_bytes(linear.inputs(), linear.weight().ternary) + kAlignment;
}

void Encoder::quantize_row(const Part &part, const Linear &linear, const Input &input, int row, Range range) {
  const RowBuffers &buffers = part.buffers;
  const float *x = input.x + static_cast<size_t>(row) * input.stride;
  const Grid grid = model_.quantizer.grid(range);
  if (!grid.finite()) not_finite();
  if (!linear.in_panels()) { // float weights multiply x_hat itself
    float *x_hat = buffers.x_hat + static_cast<size_t>(row) * hat_stride_;
    for (int i = 0; i < input.n; i++)
      x_hat[i] = grid.round_trip(x[i]);
    return;
  }
  buffers.scale[row] = grid.scale;
  buffers.offset[row] = grid.offset;
  buffers.sum[row] = kernel_.quantize(x, input.n, grid, linear.weight().ternary,
                                      buffers.codes + static_cast<size_t>(row) * code_stride(linear));
}

void Encoder::multiply(const Part &part, const Linear &linear, const Input &input, const Target &target,
                       const Block &block) {
  if (!linear.in_panels()) return multiply_floats(part, linear, input, target, block);
  const CodeRows rows{
      .codes = part.buffers.codes,
      .stride = code_stride(linear),
      .scale = part.buffers.scale,
      .offset = part.buffers.offset,
      .sum = part.buffers.sum,
  };
  const int panels = block.panel_end - block.panel_begin;
  const int tasks = part.team.size() == 1 ? 1 : std::min(panels, part.team.size() * 4);
  part.team.run(tasks, [&](int task, int) {
    kernel_.linear(linear.weight(), rows,
                   {
                       .row_begin = block.row_begin,
                       .row_end = block.row_end,
                       .panel_begin = block.panel_begin + piece_begin(panels, task, tasks, 1),
                       .panel_end = block.panel_begin + piece_begin(panels, task + 1, tasks, 1),
                       .y = target.y,
                       .stride = target.stride,
                       .residual = target.add ? target.y : nullptr,
                   });
  });
}

// Inputs that are not quantized, or weights that are not: float64 sums, one output at a time for all rows.
void Encoder::multiply_floats(const Part &part, const Linear &linear, const Input &input, const Target &target,
                              const Block &block) {
  constexpr int kOutputs = 16; // of a task
  const float *x = input.quantized ? part.buffers.x_hat : input.x;
  const size_t stride = input.quantized ? hat_stride_ : input.stride;
  int column = 0;
  for (const Rows &rows : linear.parts()) {
    part.team.run(pieces(rows.rows(), kOutputs), [&](int task, int worker) {
      const Scratch &scratch = arrays_.scratch[part.team.size() == 1 ? part.worker : worker];
      for (int n = task * kOutputs; n < std::min(rows.rows(), (task + 1) * kOutputs); n++) {
        rows.read(n, scratch.codes, scratch.row);
        const float scale = rows.scale(n), bias = linear.bias()[column + n];
        for (int i = block.row_begin; i < block.row_end; i++) {
          const size_t r = static_cast<size_t>(i);
          float *const y = target.y + r * target.stride + column + n;
          const float sum = scale * kernel_.dot(x + r * stride, scratch.row, input.n) + bias;
          *y = target.add ? sum + *y : sum;
        }
      }
    });
    column += rows.rows();
  }
}

// ---- Output ---------------------------------------------------------------------------------------------------------

// From hidden states (one row a token or a sequence) to the output.
void Encoder::write(const Part &part, float *result) {
  Input input{.x = arrays_.x + row(part.begin), .stride = model_.stride, .n = model_.hidden, .row_ranges = true};
  const bool logits = output_.kind == TB_OUTPUT_LOGITS;
  if (output_.kind == TB_OUTPUT_DENSE || (logits && model_.dense.outputs() > 0)) {
    const int n = model_.dense.outputs();
    const Target dense{.y = part.buffers.dense, .stride = padded(n)};
    input.quantized = model_.dense_quantized;
    apply(part, model_.dense, input, dense);
    for (int i = 0; i < part.rows; i++)
      kernel_.activate(dense.y + static_cast<size_t>(i) * dense.stride, n, model_.dense_function);
    input = {.x = dense.y, .stride = dense.stride, .n = n, .row_ranges = true};
  }
  Target output{.y = input.x, .stride = input.stride};
  if (logits || output_.kind == TB_OUTPUT_TOKEN_LOGITS) {
    output = {.y = part.buffers.head, .stride = padded(model_.head.outputs())};
    apply(part, model_.head, input, output);
  }
  const size_t width = static_cast<size_t>(output_.width);
  for (int i = 0; i < part.rows; i++)
    std::memcpy(result + static_cast<size_t>(part.begin + i) * width, output.y + static_cast<size_t>(i) * output.stride,
                width * sizeof(float));
}

void Encoder::write_means(float *result) const {
  team_.run(group_.sequences, [&](int s, int) {
    for (int i = 0; i < model_.hidden; i++) {
      double sum = 0.0;
      for (int r = arrays_.first[s]; r < arrays_.first[s + 1]; r++)
        sum += static_cast<double>(arrays_.x[row(r) + static_cast<size_t>(i)]);
      result[static_cast<size_t>(s) * static_cast<size_t>(model_.hidden) + static_cast<size_t>(i)] =
          static_cast<float>(sum / group_.lengths[s]);
    }
  });
}

} // namespace tb
