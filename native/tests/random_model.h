// Models of random weights, through the public header. Used by tests and the benchmark.
#pragma once

#include "ternarybert.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

// xorshift: the same numbers everywhere.
class Random {
public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint32_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<uint32_t>(state_ >> 32);
  }
  int below(int n) { return static_cast<int>(next() % static_cast<uint32_t>(n)); }
  float real(float size) { return size * (static_cast<float>(next()) * (2.0f / 4294967296.0f) - 1.0f); }

private:
  uint64_t state_;
};

struct Shape {
  int hidden, heads, intermediate, layers, vocabulary, positions;
};

// Everything a tb_config points to.
class RandomModel {
public:
  tb_config config{};

  explicit RandomModel(const Shape &s, uint64_t seed = 1) : random_(seed) {
    config.size = sizeof config;
    config.hidden = s.hidden;
    config.heads = s.heads;
    config.intermediate = s.intermediate;
    config.layers = s.layers;
    config.positions = s.positions;
    config.types = 2;
    config.function = TB_GELU;
    config.norm_eps = 1e-12;
    config.activation_bits = 8;
    config.word = codes(s.vocabulary, s.hidden, 0.03f);
    config.position = floats(s.positions * s.hidden, 0.03f);
    config.type = floats(2 * s.hidden, 0.03f);
    config.embedding_norm = norm(s.hidden);
    layers_.resize(static_cast<size_t>(s.layers));
    for (tb_layer &layer : layers_) {
      for (tb_linear *l : {&layer.query, &layer.key, &layer.value, &layer.attention_output})
        *l = linear(s.hidden, s.hidden);
      layer.up = linear(s.intermediate, s.hidden);
      layer.down = linear(s.hidden, s.intermediate);
      layer.attention_norm = norm(s.hidden);
      layer.output_norm = norm(s.hidden);
    }
    config.layer = layers_.data();
    config.dense = linear(s.hidden, s.hidden);
    config.dense_function = TB_TANH;
    config.dense_quantized = 1;
    config.head.weight.rows = 2;
    config.head.weight.columns = s.hidden;
    config.head.weight.bits = 32;
    config.head.weight.codes = floats(2 * s.hidden, 0.1f);
  }

  const float *floats(int count, float size, float around = 0.0f) {
    auto x = std::make_unique<float[]>(static_cast<size_t>(count));
    for (int i = 0; i < count; i++)
      x[static_cast<size_t>(i)] = around + random_.real(size);
    floats_.push_back(std::move(x));
    return floats_.back().get();
  }

  // Ternary codes, a third of each; what a row leaves of its last byte is code 0.
  tb_matrix codes(int rows, int columns, float scale) {
    const size_t row_bytes = (static_cast<size_t>(columns) + 3) / 4;
    auto bytes = std::make_unique<uint8_t[]>(static_cast<size_t>(rows) * row_bytes);
    for (size_t r = 0; r < static_cast<size_t>(rows); r++)
      for (size_t c = 0; c < row_bytes * 4; c++) {
        const unsigned index = c < static_cast<size_t>(columns) ? random_.next() % 3 : 1;
        bytes[r * row_bytes + c / 4] |= static_cast<uint8_t>(index << (c % 4 * 2));
      }
    bytes_.push_back(std::move(bytes));
    tb_matrix matrix{};
    matrix.rows = rows;
    matrix.columns = columns;
    matrix.bits = 2;
    matrix.scales = 1;
    matrix.codes = bytes_.back().get();
    matrix.scale = floats(1, 0.0f, scale);
    return matrix;
  }

  tb_linear linear(int rows, int columns) {
    return {.weight = codes(rows, columns, 1.0f / std::sqrt(static_cast<float>(columns))), .bias = floats(rows, 0.1f)};
  }

private:
  tb_norm norm(int n) { return {.weight = floats(n, 0.1f, 1.0f), .bias = floats(n, 0.1f)}; }

  Random random_;
  std::vector<tb_layer> layers_;
  std::vector<std::unique_ptr<float[]>> floats_;
  std::vector<std::unique_ptr<uint8_t[]>> bytes_;
};

struct RandomBatch {
  std::vector<int32_t> lengths, ids;

  RandomBatch(int sequences, int length, int vocabulary, uint64_t seed = 7)
      : lengths(static_cast<size_t>(sequences), length),
        ids(static_cast<size_t>(sequences) * static_cast<size_t>(length)) {
    Random random(seed);
    for (int32_t &id : ids)
      id = random.below(vocabulary);
  }
  tb_batch get() const {
    return {
        .sequences = static_cast<int32_t>(lengths.size()),
        .lengths = lengths.data(),
        .ids = ids.data(),
        .types = nullptr,
    };
  }
};
