// BERT's tokenizer: normalization, words, WordPiece, special tokens, pairs, truncation; token for token that of Hugging
// Face `tokenizers`. Tokenizers of another kind (byte-level BPE, Unigram) are refused by name.
#pragma once

#include "../packed/files.h"
#include "../packed/json.h"
#include "unicode.h"

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tb {

struct Token {
  int32_t id, type;
  int32_t word;        // tokens of one word have the same number; -1: a special token around the texts
  uint32_t start, end; // bytes of the text that the token is of
};
using Tokens = std::vector<Token>;

// Special tokens before, between and after two texts, and the token type of each of the five parts.
struct PairFrame {
  std::vector<int32_t> before, between, after;
  int32_t types[5] = {};
  size_t size() const { return before.size() + between.size() + after.size(); }
};

class Tokenizer {
public:
  // From tokenizer.json or, where there is none, vocab.txt. `settings` is tokenizer_config.json, null if there is none.
  Tokenizer(const Files &files, Json settings);

  // A text or, if `pair` is not null, two, with special tokens, at most `most` tokens in all.
  Tokens encode(std::string_view text, const std::string_view *pair, size_t most, bool keep_end, bool *truncated) const;
  // Without special tokens.
  Tokens plain(std::string_view text) const;

  PairFrame pair_frame() const;
  size_t special_tokens(bool pair) const;
  // Of all tokens; from a word list alone, only of those that every text has and the unknown one, as in Python.
  int32_t largest_id() const;

private:
  struct Added {
    std::string content;
    int32_t id;
  };
  struct Part { // of what a text becomes
    char kind;  // 'A' and 'B': the texts; 's': a special token
    int32_t type;
    std::vector<int32_t> ids;
  };
  using Vocabulary = std::unordered_map<std::string_view, int32_t>;

  void read(Json file);
  void read_model(Json model);
  void read_normalizer(Json normalizer);
  void read_added(Json tokens);
  void read_processor(Json processor);
  void read_template(Json list, Json special, std::vector<Part> &parts) const;
  void read_words(std::string_view words, Json settings);
  void add_word(std::string_view word, int32_t id);
  void index();
  int32_t id_of(std::string_view token, const char *what) const;

  Characters normalized(Characters text) const;
  void add_raw(std::string_view text, size_t offset, Tokens &tokens, int32_t &word) const;
  void add_words(const Characters &text, size_t begin, size_t end, Tokens &tokens, int32_t &word) const;
  void add_word_pieces(const Character *word, size_t count, int32_t number, Tokens &tokens) const;

  std::vector<std::string> storage_; // what the vocabulary's keys point at
  Vocabulary words_, pieces_;        // pieces: the tokens that continue a word, without their prefix
  size_t longest_ = 0;               // bytes of a token
  bool words_alone_ = false;         // read from vocab.txt
  std::string prefix_ = "##";
  std::string unknown_ = "[UNK]";
  int32_t unknown_id_ = 0;
  size_t most_characters_ = 100;
  bool clean_ = true, chinese_ = true, strip_ = true, lower_ = true;
  std::vector<Added> raw_, added_; // found in the text, and in the normalized text
  std::vector<Part> single_, pair_;
};

} // namespace tb
