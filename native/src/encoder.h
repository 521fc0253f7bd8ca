// The forward pass over a group of sequences.
//
// An encoder is made for one group and runs once. Its constructor decides the shapes and cuts all arrays out of the
// workspace; from then on nothing of it changes but what the arrays hold and whether all numbers were finite.
#pragma once

#include "model.h"

#include <atomic>

namespace tb {

// How many pieces of `size` n things make.
inline int pieces(int n, int size) { return (n + size - 1) / size; }

// Sequences that are computed together, and where their part of the batch begins.
struct Group {
  int sequences = 0, tokens = 0;
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
  Encoder(const tb_model &model, const Output &output, const Group &group, const Team &team, Workspace &workspace);

  // Writes the group's rows of `result`. False: numbers that are not finite.
  bool run(float *result);

private:
  // ---- Memory
  // What the rows of a part need on their way from one attention to the next.
  struct RowBuffers {
    uint8_t *codes;
    float *scale, *offset; // of each row, like the next two
    int32_t *sum;
    Range *ranges;
    float *up, *x_hat, *dense, *head;
  };
  // What a worker needs for a head of attention, or for a row of a matrix.
  struct Scratch {
    uint8_t *head;
    int8_t *codes;
    float *row;
  };
  struct Arrays {
    float *x, *qkv, *context; // a row for each token
    int *first;               // row of each sequence's first token; one more at the end
    int *sequence;            // of each row
    Range *head_ranges;
    Grid *grids;
    RowBuffers *rows; // one for each worker, as the next
    Scratch *scratch;
  };
  Arrays carve(Carver &carver) const;
  RowBuffers carve_rows(Carver &carver, size_t rows) const;
  Arrays carve_workspace(Workspace &workspace) const;
  void number_rows() const;

  // ---- Layers
  // Rows that one worker (or, with a team, all of them) takes from one attention to the next.
  struct Part {
    int begin, rows;
    const RowBuffers &buffers;
    Team team;
    int worker; // if the team is alone
  };
  template <class Function> void for_parts(int rows, const Function &f);
  void embed(const Part &part) const;
  void before_attention(const Part &part, const Layer &layer, const Norm &norm, bool last);
  void after_attention(const Part &part, const Layer &layer);
  void attention(bool last);
  void attention_with_sequence_ranges(bool first_query_only);
  HeadTask head_task(int sequence, int head, bool first_query_only, int worker) const;
  void move_first_tokens() const;

  // ---- Linear layers
  // Rows that go into a linear layer, and what is done to them before: a norm or a function, then codes.
  struct Input {
    float *x;
    size_t stride;
    int n;
    const Norm *norm = nullptr;
    int function = TB_IDENTITY;
    bool quantized = false;
    bool row_ranges = false; // one range a row, even in models with ranges per sequence
  };
  // Where a product goes.
  struct Target {
    float *y;
    size_t stride;
    bool add = false; // to what y holds: the residual
  };
  // The part of a product that is computed.
  struct Block {
    int row_begin, row_end, panel_begin, panel_end;
  };
  void apply(const Part &part, const Linear &linear, const Input &input, const Target &target);
  void prepare(const Part &part, const Linear &linear, const Input &input);
  void prepare_rows(const Input &input, int begin, int end, Range *ranges) const;
  void quantize_row(const Part &part, const Linear &linear, const Input &input, int row, Range range);
  void multiply(const Part &part, const Linear &linear, const Input &input, const Target &target, const Block &block);
  void multiply_floats(const Part &part, const Linear &linear, const Input &input, const Target &target,
                       const Block &block);
  size_t code_stride(const Linear &linear) const;

  // ---- Output
  void write(const Part &part, float *result);
  void write_means(float *result) const;

  // Ranges of activations span rows of a sequence: its rows cannot be shared out among workers.
  bool sequence_ranges() const { return model_.sequence_ranges && model_.quantized(); }
  size_t row(int i) const { return static_cast<size_t>(i) * model_.stride; } // where row i of x or context begins
  void not_finite() { finite_.store(false, std::memory_order_relaxed); }

  const tb_model &model_;
  const Kernel &kernel_;
  const Output &output_;
  const Group &group_;
  const Team team_;
  const bool first_only_; // from the last attention on there is one row a sequence
  const size_t qkv_stride_, up_stride_, hat_stride_;
  const Arrays arrays_;
  std::atomic<bool> finite_{true};
};

} // namespace tb
