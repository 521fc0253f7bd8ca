#include "tokenizer.h"

#include "../failure.h"

#include <algorithm>

namespace tb {
namespace {

constexpr const char *kFile = "tokenizer.json";

[[noreturn]] void unsupported(const char *what, Json found, const char *wanted) {
  const Json type = is_object(found) ? member(found, "type") : found;
  fail(TB_ERROR_MODEL, "%s: the %s is %s; the C library has only %s", kFile, what, shown(type).c_str(), wanted);
}

[[noreturn]] void malformed(const char *what) { fail(TB_ERROR_CONFIG, "%s: %s is malformed", kFile, what); }

bool flag(Json object, const char *name, bool missing) {
  const Json value = member(object, name);
  return value ? is_true(value) : missing;
}

std::string utf8(const Characters &text) {
  std::string result;
  for (const Character &c : text)
    append_utf8(result, c.code);
  return result;
}

int32_t checked_id(Json value) {
  const auto id = integer_of(value);
  if (!id || *id < 0 || *id > INT32_MAX) malformed("a token's id");
  return static_cast<int32_t>(*id);
}

} // namespace

Tokenizer::Tokenizer(const Files &files, Json settings) {
  if (const auto whole = files.find(kFile)) {
    const JsonFile json(whole->text(), kFile, TB_ERROR_CONFIG);
    if (!is_object(json.root())) malformed("the file");
    read(json.root());
  } else if (const auto words = files.find("vocab.txt")) {
    read_words(words->text(), settings);
  } else {
    fail(TB_ERROR_CONFIG, "there is no %s; copy it from the model that the folder was made from", kFile);
  }
}

// ---- reading ------------------------------------------------------------------------------------------------------

void Tokenizer::read(Json file) {
  read_model(member(file, "model"));
  read_normalizer(member(file, "normalizer"));
  const Json splitter = member(file, "pre_tokenizer");
  if (!is_object(splitter) || !equals(member(splitter, "type"), "BertPreTokenizer"))
    unsupported("pre_tokenizer", splitter, "BertPreTokenizer");
  read_added(member(file, "added_tokens"));
  read_processor(member(file, "post_processor"));
}

void Tokenizer::read_model(Json model) {
  if (!is_object(model)) malformed("the model");
  const Json type = member(model, "type"), unknown = member(model, "unk_token");
  if (!equals(type, "WordPiece")) unsupported("model", model, "WordPiece");
  if (is_string(unknown)) unknown_ = text_of(unknown);
  if (const Json prefix = member(model, "continuing_subword_prefix"); is_string(prefix)) prefix_ = text_of(prefix);
  if (const auto most = integer_of(member(model, "max_input_chars_per_word"))) {
    if (*most < 0) malformed("max_input_chars_per_word");
    most_characters_ = static_cast<size_t>(*most);
  }
  const Json vocabulary = member(model, "vocab");
  if (!is_object(vocabulary)) malformed("the vocabulary");
  storage_.reserve(yyjson_obj_size(vocabulary)); // keys point into it: it must not grow
  each_member(vocabulary, [&](std::string_view word, Json id) { add_word(word, checked_id(id)); });
  index();
}

void Tokenizer::add_word(std::string_view word, int32_t id) {
  storage_.emplace_back(word);
  words_.insert_or_assign(storage_.back(), id);
}

void Tokenizer::index() {
  for (const auto &[word, id] : words_) {
    longest_ = std::max(longest_, word.size());
    if (word.size() > prefix_.size() && word.substr(0, prefix_.size()) == prefix_)
      pieces_.emplace(word.substr(prefix_.size()), id);
  }
  unknown_id_ = id_of(unknown_, "unk_token");
}

int32_t Tokenizer::id_of(std::string_view token, const char *what) const {
  const auto found = words_.find(token);
  if (found == words_.end())
    fail(TB_ERROR_CONFIG, "the tokenizer's %s is %s, which is not in its vocabulary", what, shown(token).c_str());
  return found->second;
}

void Tokenizer::read_normalizer(Json normalizer) {
  if (!is_object(normalizer) || !equals(member(normalizer, "type"), "BertNormalizer"))
    unsupported("normalizer", normalizer, "BertNormalizer");
  clean_ = flag(normalizer, "clean_text", true);
  chinese_ = flag(normalizer, "handle_chinese_chars", true);
  lower_ = flag(normalizer, "lowercase", true);
  const Json strip = member(normalizer, "strip_accents");
  strip_ = yyjson_is_bool(strip) ? is_true(strip) : lower_;
}

void Tokenizer::read_added(Json tokens) {
  if (!tokens) return;
  if (!is_list(tokens)) malformed("added_tokens");
  each_item(tokens, [&](Json token) {
    const Json content = is_object(token) ? member(token, "content") : nullptr;
    if (!is_string(content)) malformed("a token of added_tokens");
    const std::string text(text_of(content));
    for (const char *name : {"single_word", "lstrip", "rstrip"})
      if (flag(token, name, false))
        fail(TB_ERROR_MODEL, "%s: the token %s has %s, which the C library does not support", kFile,
             shown(text).c_str(), name);
    if (text.empty()) return;
    const bool normal = flag(token, "normalized", !flag(token, "special", false));
    const auto known = words_.find(text); // the vocabulary's own id comes first
    const int32_t id = known == words_.end() ? checked_id(member(token, "id")) : known->second;
    (normal ? added_ : raw_).push_back({normal ? utf8(normalized(decode(text))) : text, id});
  });
}

void Tokenizer::read_processor(Json processor) {
  const Json type = is_object(processor) ? member(processor, "type") : processor;
  if (equals(type, "TemplateProcessing")) {
    const Json special = member(processor, "special_tokens");
    read_template(member(processor, "single"), special, single_);
    read_template(member(processor, "pair"), special, pair_);
    return;
  }
  if (!equals(type, "BertProcessing")) unsupported("post_processor", processor, "TemplateProcessing, BertProcessing");
  const auto part = [&](const char *name, int32_t of) -> Part {
    const Json token = member(processor, name);
    if (!is_list(token) || yyjson_arr_size(token) != 2) malformed(name);
    return {'s', of, {checked_id(yyjson_arr_get(token, 1))}};
  };
  single_ = {part("cls", 0), {'A', 0, {}}, part("sep", 0)};
  pair_ = {part("cls", 0), {'A', 0, {}}, part("sep", 0), {'B', 1, {}}, part("sep", 1)};
}

void Tokenizer::read_template(Json list, Json special, std::vector<Part> &parts) const {
  if (!is_list(list)) malformed("the template");
  bool seen[2] = {};
  each_item(list, [&](Json item) {
    const Json sequence = is_object(item) ? member(item, "Sequence") : nullptr;
    const Json token = is_object(item) ? member(item, "SpecialToken") : nullptr;
    const Json inner = sequence ? sequence : token;
    if (!is_object(inner) || !is_string(member(inner, "id"))) malformed("the template");
    Part part{'s', checked_id(member(inner, "type_id")), {}};
    const std::string_view name = text_of(member(inner, "id"));
    if (sequence) {
      if (name != "A" && name != "B") malformed("the template");
      part.kind = name[0];
      if (seen[name[0] - 'A']) malformed("the template");
      seen[name[0] - 'A'] = true;
    } else {
      const Json described = is_object(special) ? member(special, name) : nullptr;
      const Json ids = is_object(described) ? member(described, "ids") : nullptr;
      if (!is_list(ids)) malformed("special_tokens");
      each_item(ids, [&](Json id) { part.ids.push_back(checked_id(id)); });
    }
    parts.push_back(part);
  });
  if (!seen[0] || seen[1] != (&parts == &pair_)) malformed("the template");
}

// Older folders have only BERT's word list: the same tokenizer is built from it (src/ternarybert/runtime/text.py).
void Tokenizer::read_words(std::string_view words, Json settings) {
  const auto name = [&](const char *key, const char *usual) -> std::string {
    const Json token = settings ? member(settings, key) : nullptr;
    const Json content = is_object(token) ? member(token, "content") : token;
    return is_string(content) ? std::string(text_of(content)) : usual;
  };
  words_alone_ = true;
  decode(words);
  while (!words.empty() && words.back() == '\n')
    words.remove_suffix(1);
  storage_.reserve(static_cast<size_t>(std::count(words.begin(), words.end(), '\n')) + 1);
  for (size_t at = 0, line = 0; at <= words.size(); line++) {
    const size_t end = std::min(words.find('\n', at), words.size());
    std::string_view word = words.substr(at, end - at);
    if (!word.empty() && word.back() == '\r') word.remove_suffix(1); // as Python reads text
    add_word(word, static_cast<int32_t>(line));
    at = end + 1;
  }
  unknown_ = name("unk_token", "[UNK]");
  index();
  lower_ = !settings || flag(settings, "do_lower_case", true);
  chinese_ = !settings || flag(settings, "tokenize_chinese_chars", true);
  const Json strip = settings ? member(settings, "strip_accents") : nullptr;
  strip_ = yyjson_is_bool(strip) ? is_true(strip) : lower_;
  const std::string cls = name("cls_token", "[CLS]"), sep = name("sep_token", "[SEP]");
  const auto part = [&](const std::string &token, const char *what, int32_t type) -> Part {
    return {'s', type, {id_of(token, what)}};
  };
  const Part first = part(cls, "cls_token", 0), last = part(sep, "sep_token", 0),
             last_of_pair = part(sep, "sep_token", 1);
  single_ = {first, {'A', 0, {}}, last};
  pair_ = {first, {'A', 0, {}}, last, {'B', 1, {}}, last_of_pair};
  for (const std::string &token : {name("pad_token", "[PAD]"), unknown_, cls, sep, name("mask_token", "[MASK]")})
    if (const auto found = words_.find(token); found != words_.end()) raw_.push_back({token, found->second});
}

int32_t Tokenizer::largest_id() const {
  int32_t largest = unknown_id_;
  for (const std::vector<Part> *parts : {&single_, &pair_})
    for (const Part &part : *parts)
      for (const int32_t id : part.ids)
        largest = std::max(largest, id);
  if (words_alone_) return largest;
  for (const auto &[word, id] : words_)
    largest = std::max(largest, id);
  for (const std::vector<Added> *added : {&raw_, &added_})
    for (const Added &token : *added)
      largest = std::max(largest, token.id);
  return largest;
}

// ---- texts to tokens ----------------------------------------------------------------------------------------------

Characters Tokenizer::normalized(Characters text) const {
  if (clean_) {
    std::erase_if(text, [](const Character &c) { return is_removed(c.code); });
    for (Character &c : text)
      if (is_blank(c.code)) c.code = ' ';
  }
  if (chinese_ && std::any_of(text.begin(), text.end(), [](const Character &c) { return is_chinese(c.code); })) {
    Characters spaced;
    for (const Character &c : text) {
      const bool alone = is_chinese(c.code);
      if (alone) spaced.push_back({' ', c.start, c.end});
      spaced.push_back(c);
      if (alone) spaced.push_back({' ', c.start, c.end});
    }
    text = std::move(spaced);
  }
  if (strip_) {
    text = decomposed(text);
    std::erase_if(text, [](const Character &c) { return is_mark(c.code); });
  }
  return lower_ ? lowered(text) : text;
}

Tokens Tokenizer::plain(std::string_view text) const {
  decode(text); // all of it must be UTF-8, also around added tokens
  Tokens tokens;
  int32_t word = 0;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const Added *longest = nullptr;
    for (const Added &added : raw_)
      if (text.compare(at, added.content.size(), added.content) == 0 &&
          (!longest || added.content.size() > longest->content.size()))
        longest = &added;
    if (!longest) {
      at++;
      continue;
    }
    add_raw(text.substr(begin, at - begin), begin, tokens, word);
    const size_t end = at + longest->content.size();
    tokens.push_back({longest->id, 0, word++, static_cast<uint32_t>(at), static_cast<uint32_t>(end)});
    begin = at = end;
  }
  add_raw(text.substr(begin), begin, tokens, word);
  return tokens;
}

// Text without raw added tokens.
void Tokenizer::add_raw(std::string_view text, size_t offset, Tokens &tokens, int32_t &word) const {
  const Characters characters = normalized(decode(text, offset));
  if (added_.empty()) return add_words(characters, 0, characters.size(), tokens, word);
  std::string bytes;
  std::vector<size_t> character_at; // of each byte
  for (size_t i = 0; i < characters.size(); i++) {
    append_utf8(bytes, characters[i].code);
    character_at.resize(bytes.size(), i);
  }
  character_at.push_back(characters.size());
  size_t begin = 0;
  for (size_t at = 0; at < bytes.size();) {
    const Added *longest = nullptr;
    for (const Added &added : added_)
      if (!added.content.empty() && bytes.compare(at, added.content.size(), added.content) == 0 &&
          (!longest || added.content.size() > longest->content.size()))
        longest = &added;
    if (!longest) {
      at++;
      continue;
    }
    const size_t first = character_at[at], last = character_at[at + longest->content.size()];
    add_words(characters, begin, first, tokens, word);
    tokens.push_back({longest->id, 0, word++, characters[first].start, characters[last - 1].end});
    begin = last;
    at += longest->content.size();
  }
  add_words(characters, begin, characters.size(), tokens, word);
}

void Tokenizer::add_words(const Characters &text, size_t begin, size_t end, Tokens &tokens, int32_t &word) const {
  const auto emit = [&](size_t from, size_t to) {
    if (to > from) add_word_pieces(&text[from], to - from, word++, tokens);
  };
  for (size_t i = begin; i < end; i++) {
    const bool separator = is_separator(text[i].code);
    if (!separator && !is_punctuation(text[i].code)) continue;
    emit(begin, i);
    if (!separator) emit(i, i + 1);
    begin = i + 1;
  }
  emit(begin, end);
}

// The longest piece that the vocabulary has, then the longest of the rest, and so on; or one unknown token.
void Tokenizer::add_word_pieces(const Character *word, size_t count, int32_t number, Tokens &tokens) const {
  const size_t before = tokens.size();
  const auto unknown = [&] {
    tokens.resize(before);
    tokens.push_back({unknown_id_, 0, number, word[0].start, word[count - 1].end});
  };
  if (count > most_characters_) return unknown();
  std::string bytes;
  std::vector<size_t> ends{0}; // of each character, in bytes
  for (size_t i = 0; i < count; i++) {
    append_utf8(bytes, word[i].code);
    ends.push_back(bytes.size());
  }
  for (size_t first = 0; first < count;) {
    const Vocabulary &vocabulary = first ? pieces_ : words_;
    size_t last = count;
    for (; last > first; last--) {
      const size_t length = ends[last] - ends[first];
      if (length > longest_) continue;
      const auto found = vocabulary.find(std::string_view(bytes).substr(ends[first], length));
      if (found == vocabulary.end()) continue;
      tokens.push_back({found->second, 0, number, word[first].start, word[last - 1].end});
      break;
    }
    if (last == first) return unknown();
    first = last;
  }
}

Tokens Tokenizer::encode(std::string_view text, const std::string_view *pair, size_t most, bool keep_end,
                         bool *truncated) const {
  Tokens texts[2] = {plain(text), pair ? plain(*pair) : Tokens()};
  const size_t special = special_tokens(pair != nullptr), room = most > special ? most - special : 0;
  size_t first = texts[0].size(), second = texts[1].size();
  *truncated = first + second > room;
  if (*truncated && !pair) {
    first = room;
  } else if (*truncated) { // the longer one gives way, then both
    const bool swap = first > second;
    const size_t shorter = std::min(first, second);
    size_t a = shorter, b = shorter > room ? shorter : std::max(shorter, room - shorter);
    if (a + b > room) a = room / 2, b = a + room % 2;
    first = swap ? b : a;
    second = swap ? a : b;
  }
  const auto shorten = [&](Tokens &tokens, size_t count) {
    if (tokens.size() <= count) return;
    if (keep_end)
      tokens.erase(tokens.begin(), tokens.end() - static_cast<ptrdiff_t>(count));
    else
      tokens.resize(count);
  };
  shorten(texts[0], first);
  shorten(texts[1], second);
  Tokens result;
  for (const Part &part : pair ? pair_ : single_) {
    for (const int32_t id : part.ids)
      result.push_back({id, part.type, -1, 0, 0});
    if (part.kind == 's') continue;
    for (Token token : texts[part.kind - 'A']) {
      token.type = part.type;
      result.push_back(token);
    }
  }
  return result;
}

size_t Tokenizer::special_tokens(bool pair) const {
  size_t count = 0;
  for (const Part &part : pair ? pair_ : single_)
    count += part.ids.size();
  return count;
}

PairFrame Tokenizer::pair_frame() const {
  PairFrame frame;
  int place = 0; // before A, between, after B
  for (const Part &part : pair_) {
    if (part.kind == 's') {
      std::vector<int32_t> &ids = place == 0 ? frame.before : place == 1 ? frame.between : frame.after;
      ids.insert(ids.end(), part.ids.begin(), part.ids.end());
      frame.types[2 * place] = place == 0 && ids.size() > part.ids.size() ? frame.types[0] : part.type;
    } else {
      if (part.kind != (place == 0 ? 'A' : 'B'))
        fail(TB_ERROR_MODEL, "%s: the template has the second text first; questions need it the other way", kFile);
      frame.types[2 * place + 1] = part.type;
      place++;
    }
  }
  return frame;
}

} // namespace tb
