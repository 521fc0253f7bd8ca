// Rows of packed codes (docs/reference/format.md, section 3) as signed bytes.
#pragma once

#include "ternarybert.h"

#include <cstddef>
#include <cstdint>

namespace tb {

// Bytes that a row takes; floats too.
size_t row_bytes(const tb_matrix &matrix);

// The codes of one row. Ours to read: only call it for bits 2, 3, 4 and 8.
void read_codes(const tb_matrix &matrix, const uint8_t *row, int8_t *codes);

// Whether a row holds only codes that exist, and the padding that the format asks for.
bool valid_row(const tb_matrix &matrix, const uint8_t *row);

} // namespace tb
