// Rows of packed codes (docs/reference/format.md, section 3) as signed bytes.
#pragma once

#include "ternarybert.h"

#include <cstddef>
#include <cstdint>

namespace tb {

// Bytes of a row, also of floats.
size_t row_bytes(const tb_matrix &matrix);

// The codes of one row, for 2, 3, 4 and 8 bits.
void read_codes(const tb_matrix &matrix, const uint8_t *row, int8_t *codes);

// Whether a row holds only valid codes, and the padding that the format requires.
bool valid_row(const tb_matrix &matrix, const uint8_t *row);

} // namespace tb
