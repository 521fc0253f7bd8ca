// Characters as BERT's tokenizer sees them. The tables come from tools/unicode_tables.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tb {

// A character of a text on its way through normalization, and the bytes of the original text that it came from.
struct Character {
  uint32_t code;
  uint32_t start, end;
};
using Characters = std::vector<Character>;

// The code points of UTF-8; throws a Failure (TB_ERROR_INPUT) where the bytes are not valid UTF-8. `offset` is added to
// the positions.
Characters decode(std::string_view text, size_t offset = 0);
void append_utf8(std::string &text, uint32_t code);

bool is_removed(uint32_t code);     // by cleaning
bool is_blank(uint32_t code);       // cleaning makes it a space
bool is_chinese(uint32_t code);     // a word of its own
bool is_mark(uint32_t code);        // an accent, after decomposition
bool is_separator(uint32_t code);   // between words
bool is_punctuation(uint32_t code); // a word of its own, too
bool is_nonspacing(uint32_t code);  // stands on the letter before it
bool is_space(uint32_t code);       // what Python's str.strip() takes off

Characters decomposed(const Characters &text); // canonical decomposition, NFD
Characters lowered(const Characters &text);

} // namespace tb
