// Questions about a text: windows of the context, the best spans of all of them (src/ternarybert/data/squad).
#include "../failure.h"
#include "text_model.h"
#include "windows.h"

#include <algorithm>
#include <cmath>

namespace tb {
namespace {

struct Span {
  double logit;
  size_t place; // in the order of the text, the shorter first
  size_t first, last;
};

bool better(const Span &a, const Span &b) { return a.logit != b.logit ? a.logit > b.logit : a.place < b.place; }

void keep_best(std::vector<Span> &spans, size_t count) {
  std::sort(spans.begin(), spans.end(), better);
  if (spans.size() > count) spans.resize(count);
}

// Byte positions of a piece of text without blanks around it, with the marks on its last letter.
struct Piece {
  size_t start, end;
};

Piece trimmed(const Characters &context, size_t start, size_t end) {
  const auto at = [&](size_t byte) {
    return static_cast<size_t>(std::lower_bound(context.begin(), context.end(), byte,
                                                [](const Character &c, size_t b) { return c.start < b; }) -
                               context.begin());
  };
  size_t first = at(start), last = at(end);
  while (last < context.size() && is_nonspacing(context[last].code))
    last++;
  while (first < last && is_space(context[first].code))
    first++;
  while (last > first && is_space(context[last - 1].code))
    last--;
  if (first == last) return {0, 0};
  return {context[first].start, context[last - 1].end};
}

class Reader {
public:
  Reader(const tb_text_model &model, std::string_view question, std::string_view context)
      : model_(model), context_(context), frame_(model.tokenizer.pair_frame()),
        question_(model.tokenizer.plain(question)), tokens_(model.tokenizer.plain(context)) {
    if (frame_.before.empty())
      fail(TB_ERROR_CONFIG, "the tokenizer puts no special token before a pair of texts; \"no answer\" points at it");
  }

  tb_span answer() {
    const AnsweringSettings &settings = model_.answering;
    if (tokens_.empty()) return {0, 1.0, 0, 0};
    const size_t length = static_cast<size_t>(std::min<int64_t>(settings.max_length, model_.max_length));
    const size_t free = length > frame_.size() ? length - frame_.size() : 0;
    question_.resize(std::min({question_.size(), static_cast<size_t>(settings.max_question), free / 2}));
    if (free <= question_.size()) fail(TB_ERROR_CONFIG, "windows of %zu tokens leave no room for a context", length);
    const size_t room = free - question_.size();
    const size_t stride = std::min(static_cast<size_t>(settings.stride), std::max<size_t>(1, room / 2));
    const std::vector<Window> windows = cut_windows(tokens_.size(), room, stride);
    longest_ = std::min(static_cast<size_t>(settings.max_answer), std::min(room, tokens_.size()));
    std::vector<Span> spans;
    double null = INFINITY;
    for (const Window &window : windows)
      read(window, spans, null);
    keep_best(spans, static_cast<size_t>(settings.n_best));
    return choose(spans, null);
  }

private:
  Tokens input(const Window &window) const {
    Tokens tokens;
    const auto frame = [&](const std::vector<int32_t> &ids, int part) {
      for (const int32_t id : ids)
        tokens.push_back({id, frame_.types[part], -1, 0, 0});
    };
    const auto text = [&](const Token *from, size_t count, int part) {
      for (size_t i = 0; i < count; i++)
        tokens.push_back({from[i].id, frame_.types[part], -1, 0, 0});
    };
    frame(frame_.before, 0);
    text(question_.data(), question_.size(), 1);
    frame(frame_.between, 2);
    text(tokens_.data() + window.first, window.count, 3);
    frame(frame_.after, 4);
    return tokens;
  }

  void read(const Window &window, std::vector<Span> &spans, double &null) const {
    const Tokens tokens = input(window);
    std::vector<float> logits(2 * tokens.size());
    model_.run({tokens}, model_.model.has_types, TB_OUTPUT_TOKEN_LOGITS, logits.data(), logits.size());
    null = std::min(null, double(logits[0]) + double(logits[1]));
    const float *context = &logits[2 * (frame_.before.size() + question_.size() + frame_.between.size())];
    std::vector<Span> found;
    for (size_t s = window.own_from - window.first; s < std::min(window.own_to - window.first, window.count); s++)
      for (size_t k = 0; k < longest_ && s + k < window.count; k++) {
        const size_t first = window.first + s;
        found.push_back(
            {double(context[2 * s]) + double(context[2 * (s + k) + 1]), first * longest_ + k, first, first + k});
      }
    keep_best(found, static_cast<size_t>(model_.answering.n_best));
    spans.insert(spans.end(), found.begin(), found.end());
  }

  tb_span choose(const std::vector<Span> &spans, double null) const {
    const Characters characters = decode(context_);
    std::vector<Piece> pieces; // no text twice
    std::vector<double> logits;
    for (const Span &span : spans) {
      const Piece piece = trimmed(characters, tokens_[span.first].start, tokens_[span.last].end);
      const auto same = [&](const Piece &other) {
        return context_.substr(other.start, other.end - other.start) ==
               context_.substr(piece.start, piece.end - piece.start);
      };
      if (piece.end == 0 || std::any_of(pieces.begin(), pieces.end(), same)) continue;
      pieces.push_back(piece);
      logits.push_back(span.logit);
    }
    const std::optional<double> threshold = model_.answering.null_threshold;
    const bool silent = pieces.empty() || (threshold && null - logits[0] > *threshold);
    if (pieces.empty() || threshold) logits.push_back(null);
    const double largest = *std::max_element(logits.begin(), logits.end());
    double total = 0;
    for (const double logit : logits)
      total += std::exp(logit - largest);
    const double score = std::exp((silent ? logits.back() : logits.front()) - largest) / total;
    if (silent) return {0, score, 0, 0};
    return {1, score, pieces[0].start, pieces[0].end};
  }

  const tb_text_model &model_;
  std::string_view context_;
  PairFrame frame_;
  Tokens question_, tokens_;
  size_t longest_ = 1; // tokens of an answer
};

} // namespace

tb_span answer(const tb_text_model &model, const tb_text &pair) {
  if (model.model.kind != HeadKind::kQuestion || model.model.outputs != 2)
    fail(TB_ERROR_MODEL, "the model does not answer questions");
  if (!pair.text || !pair.pair) fail(TB_ERROR_INPUT, "a question and its context are needed, as text and pair");
  return Reader(model, {pair.text, pair.bytes}, {pair.pair, pair.pair_bytes}).answer();
}

} // namespace tb
