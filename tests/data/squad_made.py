"""Questions for the tests: SQuAD 1.1 dev where it is at hand, otherwise made ones; and tokenizers of their words."""

import os
import random
from functools import cache
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from ternarybert.data.squad.questions import GoldAnswer, Question, read_questions

SPECIALS = ("[UNK]", "[SEP]", "[CLS]", "[PAD]")  # not in BERT's order, lest an id be taken for granted
SYLLABLES = ("ba", "ce", "di", "fo", "gu", "ha", "je", "ki", "lo", "mu", "quin", "ta", "vex", "zu", "the", "an", "a")


@cache
def dev_questions():
    """The 10,570 questions, or five hundred made ones."""
    repository = Path(__file__).parents[2]
    real = Path(os.environ.get("SQUAD_DIR", repository.parent / "shared" / "data" / "squad"))
    files = sorted(real.glob("dev-v1.1.json*"))
    return read_questions(files[0]) if files else made_questions(500, words=(30, 400))


def made_questions(count, seed=0, words=(30, 900), unanswerable=0.0, answer_words=8):
    """Texts of random words; the answers, up to three a question, are pieces of them that begin and end with a word."""
    rng = random.Random(seed)
    questions = []
    for number in range(count):
        text = [_word(rng) for _ in range(rng.randint(*words))]
        answers = [] if rng.random() < unanswerable else [_piece(rng, text, answer_words) for _ in range(3)]
        asked = " ".join(_word(rng) for _ in range(rng.randint(3, 12))) + "?"
        questions.append(Question(asked, " ".join(text), tuple(answers), str(number), f"article {number % 7}"))
    return questions


def _word(rng):
    word = "".join(rng.choices(SYLLABLES, k=rng.randint(1, 4)))
    return rng.choice((word, word, word.capitalize(), word + ",", word + ".", f"({word})"))


def _piece(rng, words, longest):
    long = [i for i, word in enumerate(words) if len(word) > 5]  # no article: version 2.0 ignores answers like "The"
    first = rng.choice(long or range(len(words)))
    piece = " ".join(words[first : first + rng.randint(1, longest)])
    return GoldAnswer(piece, len(" ".join([*words[:first], ""])))


def wordpiece(texts, size=8000):
    """A small BERT tokenizer that, like many on the hub, says it pads and cuts at a length for other uses."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=list(SPECIALS), show_progress=False)
    tokenizer.train_from_iterator(dict.fromkeys(texts), trainer)
    special = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=special
    )
    tokenizer.enable_truncation(16)
    tokenizer.enable_padding(length=16, pad_id=tokenizer.token_to_id("[PAD]"))
    return tokenizer


def bytelevel(texts, size=260):
    """A tiny RoBERTa tokenizer: hardly more than bytes, blanks inside the tokens, two separators."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0), trim_offsets=False)
    return tokenizer


@cache
def made_tokenizer():
    return wordpiece([question.context for question in made_questions(50)], size=300)


def perfect_logits(windows, peak=10.0, noise=0.0, seed=0):
    """What a model would say that knows every window's label; padded, with nonsense in the padding."""
    rng = np.random.default_rng(seed)
    shape = (2, len(windows), max(len(window) for window in windows) + 3)
    logits = rng.normal(0, noise, shape).astype(np.float32) if noise else np.zeros(shape, np.float32)
    for row, window in enumerate(windows):
        logits[0, row, window.start] += peak
        logits[1, row, window.end] += peak
        logits[:, row, len(window) :] = np.nan
    return logits[0], logits[1]
