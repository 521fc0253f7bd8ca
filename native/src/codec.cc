#include "codec.h"

#include <array>
#include <cstring>

namespace tb {
namespace {

int level(const tb_matrix &m, int index) {
  const int code = index - ((1 << (m.bits - 1)) - 1);
  if (!m.log || code == 0) return code;
  return code > 0 ? 1 << (code - 1) : -(1 << (-code - 1));
}

constexpr int kPowers[5] = {1, 3, 9, 27, 81};

// The index of column c; also of the padding behind the last column, as far as it lies within the row.
int index_at(const tb_matrix &m, const uint8_t *row, size_t c) {
  if (m.dense) return row[c / 5] / kPowers[c % 5] % 3;
  const size_t bit = c * static_cast<size_t>(m.bits);
  unsigned word = row[bit / 8];
  if (bit / 8 + 1 < row_bytes(m)) word |= static_cast<unsigned>(row[bit / 8 + 1]) << 8;
  return static_cast<int>(word >> bit % 8) & ((1 << m.bits) - 1);
}

// The codes in a byte, for all 256 of them: ternary models have a hundred million codes and should load instantly.
template <size_t per_byte> using Table = std::array<std::array<int8_t, per_byte>, 256>;

constexpr Table<4> plain_table() {
  Table<4> table{};
  for (int byte = 0; byte < 256; byte++)
    for (int i = 0; i < 4; i++)
      table[byte][i] = static_cast<int8_t>((byte >> (2 * i) & 3) - 1);
  return table;
}

constexpr Table<5> dense_table() {
  Table<5> table{};
  for (int byte = 0; byte < 256; byte++)
    for (int i = 0; i < 5; i++)
      table[byte][i] = static_cast<int8_t>(byte / kPowers[i] % 3 - 1);
  return table;
}

constexpr Table<4> kPlain = plain_table();
constexpr Table<5> kDense = dense_table();

template <size_t per_byte> void read(const Table<per_byte> &table, const uint8_t *row, size_t columns, int8_t *codes) {
  const size_t whole = columns / per_byte;
  for (size_t i = 0; i < whole; i++)
    std::memcpy(codes + i * per_byte, table[row[i]].data(), per_byte);
  for (size_t c = whole * per_byte; c < columns; c++)
    codes[c] = table[row[whole]][c - whole * per_byte];
}

// Padding bits continue the index of code 0.
bool valid_padding(const tb_matrix &m, const uint8_t *row, size_t bytes) {
  const size_t bits = static_cast<size_t>(m.bits), end = static_cast<size_t>(m.columns) * bits;
  const int zero = (1 << (m.bits - 1)) - 1;
  for (size_t bit = end; bit < bytes * 8; bit++)
    if ((row[bit / 8] >> bit % 8 & 1) != (zero >> (bit - end) % bits & 1)) return false;
  return true;
}

bool valid_dense_row(const tb_matrix &m, const uint8_t *row, size_t bytes) {
  unsigned largest = 0;
  for (size_t i = 0; i < bytes; i++)
    largest = row[i] > largest ? row[i] : largest;
  for (size_t c = static_cast<size_t>(m.columns); c < bytes * 5; c++)
    if (index_at(m, row, c) != 1) return false;
  return largest <= 242;
}

} // namespace

size_t row_bytes(const tb_matrix &m) {
  const size_t columns = static_cast<size_t>(m.columns);
  if (m.bits == 32) return columns * sizeof(float);
  if (m.dense) return (columns + 4) / 5;
  return (columns * static_cast<size_t>(m.bits) + 7) / 8;
}

void read_codes(const tb_matrix &m, const uint8_t *row, int8_t *codes) {
  const size_t columns = static_cast<size_t>(m.columns);
  if (m.bits == 8)
    std::memcpy(codes, row, columns);
  else if (m.bits == 2 && m.dense)
    read(kDense, row, columns, codes);
  else if (m.bits == 2)
    read(kPlain, row, columns, codes);
  else
    for (size_t c = 0; c < columns; c++)
      codes[c] = static_cast<int8_t>(level(m, index_at(m, row, c)));
}

bool valid_row(const tb_matrix &m, const uint8_t *row) {
  const size_t columns = static_cast<size_t>(m.columns), bytes = row_bytes(m);
  if (m.bits == 8) return std::memchr(row, 0x80, columns) == nullptr;
  if (m.dense) return valid_dense_row(m, row, bytes);
  if (!valid_padding(m, row, bytes)) return false;
  if (m.bits == 2) { // index 3 has both bits
    unsigned none = 0;
    for (size_t i = 0; i < bytes; i++)
      none |= row[i] & row[i] >> 1 & 0x55u;
    return none == 0;
  }
  for (size_t c = 0; c < columns; c++)
    if (index_at(m, row, c) == (1 << m.bits) - 1) return false;
  return true;
}

} // namespace tb
