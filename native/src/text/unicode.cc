#include "unicode.h"

#include "../failure.h"

#include <algorithm>
#include <iterator>

namespace tb {
namespace {

struct CharacterRange {
  uint32_t first, last;
};
struct CombiningClass {
  uint32_t code;
  uint8_t value;
};
struct Mapping {
  uint32_t code;
  uint16_t at;
  uint8_t count;
};

#include "unicode_tables.inc"

template <size_t n> bool within(const CharacterRange (&ranges)[n], uint32_t code) {
  const CharacterRange *range = std::lower_bound(std::begin(ranges), std::end(ranges), code,
                                                 [](const CharacterRange &r, uint32_t c) { return r.last < c; });
  return range != std::end(ranges) && range->first <= code;
}

template <class Row, size_t n> const Row *find(const Row (&rows)[n], uint32_t code) {
  const Row *row =
      std::lower_bound(std::begin(rows), std::end(rows), code, [](const Row &r, uint32_t c) { return r.code < c; });
  return row != std::end(rows) && row->code == code ? row : nullptr;
}

int combining_class(uint32_t code) {
  if (code < 0x300) return 0;
  const CombiningClass *row = find(kClasses, code);
  return row ? row->value : 0;
}

// Hangul syllables have no table: a syllable's number tells its two or three letters.
constexpr uint32_t kSyllables = 0xac00, kLeads = 0x1100, kVowels = 0x1161, kTails = 0x11a7;
constexpr uint32_t kSyllableCount = 11172, kVowelCount = 21, kTailCount = 28;

template <class Put> void decompose_one(uint32_t code, Put put) {
  if (code < 0xc0) return put(code);
  if (code >= kSyllables && code < kSyllables + kSyllableCount) {
    const uint32_t number = code - kSyllables;
    put(kLeads + number / (kVowelCount * kTailCount));
    put(kVowels + number / kTailCount % kVowelCount);
    if (number % kTailCount) put(kTails + number % kTailCount);
    return;
  }
  const Mapping *row = find(kDecomposition, code);
  if (!row) return put(code);
  for (int i = 0; i < row->count; i++)
    put(kDecompositionText[row->at + i]);
}

[[noreturn]] void invalid(size_t at) { fail(TB_ERROR_INPUT, "the text is not UTF-8 at byte %zu", at); }

bool all_ascii(const Characters &text) {
  return std::all_of(text.begin(), text.end(), [](const Character &c) { return c.code < 0x80; });
}

} // namespace

Characters decode(std::string_view text, size_t offset) {
  if (text.size() > 0x7fffffff) fail(TB_ERROR_INPUT, "a text of %zu bytes is too long", text.size());
  Characters result;
  result.reserve(text.size());
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  for (size_t at = 0; at < text.size();) {
    const uint32_t first = byte(at);
    const size_t length = first < 0x80   ? 1
                          : first < 0xc2 ? 0
                          : first < 0xe0 ? 2
                          : first < 0xf0 ? 3
                          : first < 0xf5 ? 4
                                         : 0;
    if (length == 0 || at + length > text.size()) invalid(at + offset);
    uint32_t code = length == 1 ? first : first & (0xffu >> (length + 1));
    for (size_t i = 1; i < length; i++) {
      if ((byte(at + i) & 0xc0) != 0x80) invalid(at + offset);
      code = code << 6 | (byte(at + i) & 0x3fu);
    }
    const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
    if (overlong || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) invalid(at + offset);
    result.push_back({code, static_cast<uint32_t>(at + offset), static_cast<uint32_t>(at + length + offset)});
    at += length;
  }
  return result;
}

void append_utf8(std::string &text, uint32_t code) {
  const auto put = [&](uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xc0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xe0 | code >> 12);
    } else {
      put(0xf0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3f));
    }
    put(0x80 | (code >> 6 & 0x3f));
  }
  put(0x80 | (code & 0x3f));
}

bool is_removed(uint32_t code) { return within(kRemoved, code); }
bool is_blank(uint32_t code) { return within(kBlanks, code); }
bool is_chinese(uint32_t code) { return code >= 0x3400 && within(kChinese, code); }
bool is_mark(uint32_t code) { return code >= 0x300 && within(kMarks, code); }
bool is_separator(uint32_t code) { return within(kSeparators, code); }
bool is_punctuation(uint32_t code) { return within(kPunctuation, code); }
bool is_nonspacing(uint32_t code) { return code >= 0x300 && within(kNonspacing, code); }
bool is_space(uint32_t code) { return (code >= 0x1c && code <= 0x1f) || is_separator(code); }

// Alignment is by position, as in Hugging Face's tokenizers: the first character of a decomposition takes the place of
// the next original character, each further one that of the character before it; putting marks in order comes first.
Characters decomposed(const Characters &text) {
  if (all_ascii(text)) return text;
  struct Piece {
    uint32_t code;
    int order;
    bool further;
  };
  std::vector<Piece> pieces;
  pieces.reserve(text.size() + 8);
  for (const Character &c : text) {
    bool further = false;
    decompose_one(c.code, [&](uint32_t code) {
      pieces.push_back({code, combining_class(code), further});
      further = true;
    });
  }
  for (size_t begin = 0; begin < pieces.size(); begin++) {
    size_t end = begin;
    while (end < pieces.size() && pieces[end].order != 0)
      end++;
    const auto before = [](const Piece &a, const Piece &b) { return a.order < b.order; };
    if (end - begin > 1) std::stable_sort(pieces.begin() + begin, pieces.begin() + end, before);
    begin = end;
  }
  Characters result;
  result.reserve(pieces.size());
  size_t next = 0;
  for (const Piece &piece : pieces) {
    if (!piece.further || next == 0) next++;
    const Character &from = text[next - 1];
    result.push_back({piece.code, from.start, from.end});
  }
  return result;
}

Characters lowered(const Characters &text) {
  Characters result;
  result.reserve(text.size());
  for (const Character &c : text) {
    const Mapping *row = c.code < 'A' ? nullptr : find(kLower, c.code);
    if (!row) {
      result.push_back(c);
      continue;
    }
    for (int i = 0; i < row->count; i++)
      result.push_back({kLowerText[row->at + i], c.start, c.end});
  }
  return result;
}

} // namespace tb
