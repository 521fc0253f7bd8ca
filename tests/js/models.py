"""Bundled models and what Python makes of texts with them, for the tests of js/."""

import base64
import json
import random
import warnings
from itertools import islice

from ternarybert.errors import TruncationWarning
from ternarybert.packed.bundle import write_bundle
from ternarybert.runtime import load
from tests.native.texts import SENTENCES, random_text, real_texts, rich_tokenizer
from tests.packed.damage import edit_config
from tests.runtime.folders import save_student
from tests.tiny import WORDS

MINILM = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
TEXTS = [
    "the film was good",
    "",
    "Great! [SEP] zzz é \x00 日本 🙂",
    ["a movie", "very dull plot and awful acting"],
    ["the plot", ""],
    "not " * 100,
    ["bad " * 70, "fun " * 70],
]
THRESHOLDS = {"LABEL_0": 0.4, "LABEL_1": 0.5, "LABEL_2": 0.6}
CONTEXTS = ["the film was good and we liked it " * n for n in (1, 7, 20)] + ["🙂 a  dull — plot ŵâs  ", "", "great"]


# What the configurations of some models have besides.
SECTIONS = {
    "answers": [lambda config: config.update(question_answering={"null_threshold": 0.0})],
    "labels": [lambda config: config.update(multi_label={"thresholds": THRESHOLDS})],
}


def pairs(texts):
    return [tuple(text) if isinstance(text, list) else text for text in texts]


def floats(rows):
    """The bits of float32 numbers."""
    return base64.b64encode(rows.astype("<f4").tobytes()).decode()


def vectors(model, texts, poolings=("mean", "first")):
    names = {"mean": "mean", "first": "cls", "pooler": "pooler"}
    return {pooling: floats(model.encode(pairs(texts), pooling=names[pooling], normalize=True)) for pooling in poolings}


def classifier(model, texts=TEXTS):
    results = [one.as_dict() for one in model.predict(pairs(texts))]
    return {"texts": texts, "logits": floats(model.logits(pairs(texts))), "results": results, **vectors(model, texts)}


def embedder(model):
    return {"texts": TEXTS, **vectors(model, TEXTS, ("mean", "first", "pooler"))}


def tagger(model):
    texts = [text for text in TEXTS if isinstance(text, str)] + ["the film was good and we liked it " * 30]
    return {"texts": texts, "results": [model.predict(text).as_dict() for text in texts]}


def answerer(model):
    asked = [(question, context) for question in ("was it fun", "", "not " * 90) for context in CONTEXTS]
    return {"texts": asked, "results": [model.predict(pair).as_dict() for pair in asked]}


def sentences(count):
    source = random.Random(24)
    return [" ".join(source.choices(WORDS, k=source.randrange(1, 20))) for _ in range(count)]


def tokens(folder):
    """Of Hugging Face's tokenizers, for pieces of sentences of many languages and random characters."""
    source = random.Random(8)
    texts = [*SENTENCES, *islice(real_texts(source, 200), 200), *(random_text(source) for _ in range(300))]
    texts += [[random_text(source), random_text(source)] for _ in range(100)]
    with load(folder, num_threads=1) as model:
        found = [model.text.tokenizer.encode(*([text] if isinstance(text, str) else text)) for text in texts]
    return {"texts": texts, "ids": [one.ids for one in found], "types": [one.type_ids for one in found]}


def make_models(folder):
    """A .tbert and a .json for each kind of model."""
    folder.mkdir()
    head = "ForSequenceClassification"
    kinds = {
        "classifier": ({"head": head}, classifier),
        "labels": ({"head": head, "problem_type": "multi_label_classification"}, classifier),
        "number": ({"head": head, "problem_type": "regression"}, classifier),
        "reference": ({"head": head, "recipe": "reference"}, classifier),
        "distilbert": ({"head": head, "family": "DistilBert"}, classifier),
        "entities": ({"head": "ForTokenClassification", "id2label": {0: "O", 1: "B-PER", 2: "I-PER"}}, tagger),
        "answers": ({"head": "ForQuestionAnswering"}, answerer),
        "embedder": ({"head": "Model"}, embedder),
        "minilm": ({"head": head} | MINILM, lambda model: classifier(model, sentences(500))),
    }
    for name, (settings, expect) in kinds.items():
        save_student(folder / name, **settings)
        for section in SECTIONS.get(name, []):
            edit_config(folder / name, section)
        with load(folder / name, num_threads=1) as model, warnings.catch_warnings():
            warnings.simplefilter("ignore", TruncationWarning)
            (folder / f"{name}.json").write_text(json.dumps(expect(model)))
        write_bundle(folder / name, folder / f"{name}.tbert")

    save_student(folder / "tokens", head, vocab_size=30_000)
    rich_tokenizer(folder / "tokens")
    (folder / "tokens.json").write_text(json.dumps(tokens(folder / "tokens")))
    write_bundle(folder / "tokens", folder / "tokens.tbert")

    # A tokenizer that the C library refuses; the folder itself is sound.
    save_student(folder / "bpe", head)
    path = folder / "bpe" / "tokenizer.json"
    path.write_text(path.read_text().replace('"WordPiece"', '"BPE"', 1))
    write_bundle(folder / "bpe", folder / "bpe.tbert")
