// From hidden states to what was asked for.
#include "encoder.h"

#include <cstring>

namespace tb {

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

} // namespace tb
