"""A made language, and a masked-language model that learns it in seconds: the right candidates are known.

A sentence is a marker and some words, in any order. What fits in a word's place, whatever stands there now, are the
pieces of the marker's class, all equally well. A class is exactly fifteen pieces, so the model's best fifteen are
those. In the class of `ka` two of them, and in that of `zo` one, are no words.
"""

import random
from functools import cache

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

CLASSES = {
    "mi": [f"animal{x}" for x in "abcdefghijklmno"],
    "ka": [*(f"color{x}" for x in "abcdefghijklm"), "##ish", "##ly"],
    "zo": [*(f"tool{x}" for x in "abcdefghijklmn"), "."],
}
MARKERS = list(CLASSES)
WORDS = {marker: [piece for piece in pieces if piece.isalpha()] for marker, pieces in CLASSES.items()}
STOP_WORDS = frozenset(MARKERS)
STRANGE = ["animalx", "nobody", "qu"]  # of several pieces: letters
ALL_WORDS = [word for words in WORDS.values() for word in words]


@cache
def tokenizer():
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    pieces = [
        *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
        *MARKERS,
        *(piece for pieces in CLASSES.values() for piece in pieces),
        *letters,
        *(f"##{letter}" for letter in letters),
    ]
    ids = {piece: i for i, piece in enumerate(pieces)}
    inner = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer()
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.post_processor = processors.BertProcessing(("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"]))
    special = {"unk": "[UNK]", "pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    named = {f"{name}_token": token for name, token in special.items()}
    return PreTrainedTokenizerFast(tokenizer_object=inner, model_max_length=64, **named)


def sentence(generator, marker=None, words=None):
    chosen = [marker or generator.choice(MARKERS), *generator.choices(ALL_WORDS, k=words or generator.randint(1, 8))]
    generator.shuffle(chosen)
    return " ".join(chosen)


def marker_of(text):
    return next(word for word in text.split() if word in STOP_WORDS)


@cache  # two test folders ask for it
def train(known, steps=150, batch=32):
    """A model that puts the fifteen pieces of the marker's class, equally, in a masked place."""
    torch.manual_seed(0)
    generator = random.Random(0)
    size = len(known)
    config = BertConfig(
        vocab_size=size,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = BertForMaskedLM(config)
    # Order means nothing in this language.
    torch.nn.init.zeros_(model.bert.embeddings.position_embeddings.weight).requires_grad_(False)
    ids = known.get_vocab()
    target = torch.zeros(len(MARKERS), size)
    for i, pieces in enumerate(CLASSES.values()):
        target[i, [ids[piece] for piece in pieces]] = 1 / len(pieces)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=steps)
    for _ in range(steps):
        texts = [[*sentence(generator).split(), *generator.choices(["", *STRANGE], (5, 1, 1, 1))] for _ in range(batch)]
        at = [generator.choice([i for i, word in enumerate(text) if word in ALL_WORDS]) for text in texts]
        masked = [" ".join([*t[:i], "[MASK]", *t[i + 1 :]]) for t, i in zip(texts, at, strict=True)]
        inputs = known(masked, [" ".join(text) for text in texts], padding=True, return_tensors="pt")
        logits = model(**inputs).logits[inputs["input_ids"] == known.mask_token_id]
        marker = torch.tensor([MARKERS.index(marker_of(" ".join(text))) for text in texts])
        loss = -(target[marker] * logits.log_softmax(-1)).sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.eval()
