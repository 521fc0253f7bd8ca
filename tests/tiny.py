"""Tiny models with seeded random weights, for tests that need a real architecture and no real knowledge."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from ternarybert.data.squad.questions import GoldAnswer, Question

WORDS = "the a film movie was is very good great bad awful plot acting fun dull and not i we liked hated it".split()  # noqa: SIM905


def tokenizer() -> PreTrainedTokenizerFast:
    """A WordPiece tokenizer that knows a few dozen words and every letter."""
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *letters, *(f"##{letter}" for letter in letters)]
    vocabulary = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    inner = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer()
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.post_processor = processors.BertProcessing(("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"]))
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=64,
    )


def config(**changes: object) -> BertConfig:
    settings = {
        "vocab_size": 100,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "max_position_embeddings": 64,
        "num_labels": 2,
    }
    return BertConfig(**(settings | changes))


def bert(seed: int = 0, scale: float = 4.0, **changes: object) -> BertForSequenceClassification:
    """A classifier whose weights are large enough that attention is not flat."""
    torch.manual_seed(seed)
    return enlarged(BertForSequenceClassification(config(**changes)), scale)


def answerer(seed: int = 0, scale: float = 4.0, **changes: object) -> BertForQuestionAnswering:
    """The same with a head that answers questions."""
    torch.manual_seed(seed)
    return enlarged(BertForQuestionAnswering(config(**changes)), scale)


def tagger(seed: int = 0, scale: float = 4.0, **changes: object) -> BertForTokenClassification:
    """The same with a head that labels words."""
    torch.manual_seed(seed)
    return enlarged(BertForTokenClassification(config(**changes)), scale)


def enlarged(model: PreTrainedModel, scale: float) -> PreTrainedModel:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "LayerNorm" not in name:
                parameter.mul_(scale)
            if name.endswith("bias"):
                parameter.normal_(0, 0.1)
    return model.eval()


def batch(seed: int = 0, lengths: tuple[int, ...] = (9, 5, 7), vocabulary: int = 100) -> dict[str, torch.Tensor]:
    """Random token ids, padded behind."""
    generator = torch.Generator().manual_seed(seed)
    longest = max(lengths)
    mask = (torch.arange(longest) < torch.tensor(lengths)[:, None]).long()
    ids = torch.randint(5, vocabulary, (len(lengths), longest), generator=generator) * mask
    segments = (torch.arange(longest) > 3).long().expand(len(lengths), -1) * mask
    return {"input_ids": ids, "token_type_ids": segments, "attention_mask": mask}


def save(folder: Path, dtype: torch.dtype = torch.float32, make=bert, **changes: object) -> str:
    """A classifier, or what `make` makes, and its tokenizer as a Hugging Face folder."""
    known = tokenizer()
    make(vocab_size=len(known), **changes).to(dtype).save_pretrained(folder)
    known.save_pretrained(folder)
    return str(folder)


def questions(count: int, start: int = 0, silent: bool = False) -> list[Question]:
    """Contexts of varying length with one adjective, which is the answer; with `silent` every third has none."""
    made = []
    for i in range(start, start + count):
        word = ("good", "great", "awful", "dull")[i % 4]
        if silent and i % 3 == 0:
            word = "film"
        before, after = "the plot was it and " * (i % 5), " and we liked the acting" * (i // 2 % 8)
        context = f"{before}the film was {word}{after}"
        answers = () if word == "film" else (GoldAnswer(word, len(before) + len("the film was ")),)
        made.append(Question("was it fun", context, answers, str(i), f"article {i % 7}"))
    return made
