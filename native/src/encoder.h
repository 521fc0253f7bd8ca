// The forward pass over a group of sequences.
#pragma once

#include "model.h"

#include <atomic>

namespace tb {

// How many pieces of `size` n things make.
inline int pieces(int n, int size) { return (n + size - 1) / size; }

// Sequences that are computed together, and where their part of the batch begins.
struct Group {
  int sequences, tokens;
  const int32_t *lengths, *ids, *types;
  size_t first_sequence, first_token;
};

// What each row of the result is, and how wide.
struct Output {
  int kind;
  bool per_token;
  bool first_only; // reads nothing but first tokens
  int width;

  Output(const tb_model &model, int kind);
};

class Encoder {
public:
  Encoder(const tb_model &model, const Output &output, Workspace &workspace, Team team)
      : model_(model), kernel_(model.kernel), output_(output), workspace_(workspace), team_(team) {}

  // Writes the group's rows of `result`. False: numbers that are not finite.
  bool run(const Group &group, float *result);

private:
  // Working memory for some rows on their way from one attention to the next.
  struct Local {
    uint8_t *codes;
    float *scale, *offset; // of each row, like the next two
    int32_t *sum;
    Range *ranges;
    float *up, *hat, *dense, *head;
  };
  // Rows that one worker (or, with `team`, all of them) takes from one attention to the next.
  struct Part {
    int begin, rows;
    const Local &local;
    Team team;
    int worker; // if the team is alone
  };
  struct Scratch {
    uint8_t *head;
    int8_t *codes;
    float *row;
  };

  void carve(Carver carver, size_t *bytes);
  void carve_local(Carver &carver, Local &local, size_t rows) const;
  template <class Function> void for_parts(int rows, const Function &f);
  bool ranges_span_rows() const { return model_.sequence_ranges && model_.quantized(); }

  void embed(const Part &part);
  void before_attention(const Part &part, const Layer &layer, const Norm &norm, bool last);
  void after_attention(const Part &part, const Layer &layer);
  void attention();
  void attention_with_ranges_per_sequence();
  void keep_first_tokens();
  void write(const Part &part, float *result);
  void write_means(float *result);

  struct Input {
    float *x;
    size_t stride;
    int n;
    const Norm *norm;
    int function;
    bool quantized;
    bool per_row; // ranges never span rows
  };
  struct Product {
    int row_begin, row_end, panel_begin, panel_end;
    float *y;
    size_t stride;
    bool residual; // y is added to
  };
  CodeRows code_rows(const Local &local, const Linear &linear) const;
  void prepare(const Part &part, const Linear &linear, const Input &input);
  Range prepare_row(float *x, const Input &input) const;
  void quantize(const Part &part, const Linear &linear, const Input &input, int row, Range range);
  void multiply(const Part &part, const Linear &linear, const Input &input, const Product &product);
  void multiply_plain(const Part &part, const Linear &linear, const Input &input, const Product &product);
  void apply(const Part &part, const Linear &linear, const Input &input, float *y, size_t stride, bool residual);

  HeadTask head_task(int sequence, int head, int worker) const;

  const tb_model &model_;
  const Kernel &kernel_;
  const Output &output_;
  Workspace &workspace_;
  const Team team_;
  std::atomic<bool> finite_{true};

  const Group *group_ = nullptr;
  bool first_only_ = false; // from the last attention on there is one row a sequence
  int queries_ = 0;         // 1 if only the first token asks, else 0
  float *x_ = nullptr, *qkv_ = nullptr, *context_ = nullptr;
  size_t qkv_stride_ = 0, up_stride_ = 0;
  int *first_ = nullptr;    // row of each sequence's first token; one more at the end
  int *sequence_ = nullptr; // of each row
  Range *head_ranges_ = nullptr;
  Grid *grids_ = nullptr;
  Local *locals_ = nullptr;
  Scratch *scratch_ = nullptr;
};

} // namespace tb
