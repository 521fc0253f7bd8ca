"""Packed folders of every kind, small but not tiny, for runs/fuzz_folders.py.

They are about half a megabyte, so that what the allocator rounds up is small beside the ten times that are allowed.
"""

import json

from tests.embedders import add_modules

from .folders import save_student

WORDS = 4000
HEADS = {
    "classifier": "ForSequenceClassification",
    "tagger": "ForTokenClassification",
    "answerer": "ForQuestionAnswering",
    "embedder": "Model",
    "word-list": "ForSequenceClassification",
}


def make_folders(place):
    """Folders of every head, one with a word list instead of a tokenizer, and an embedder with its modules."""
    made = {name: _saved(place / name, head) for name, head in HEADS.items()}
    add_modules(made["embedder"], dense=16, max_length=48, width=128, settings={"prompts": {"query": "the "}})
    listed = made["word-list"]
    words = json.loads((listed / "tokenizer.json").read_text())["model"]["vocab"]
    (listed / "tokenizer.json").unlink()
    (listed / "vocab.txt").write_text("\n".join(words) + "\n")
    (listed / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, "model_max_length": 64}))
    return list(made.values())


def _saved(folder, head):
    save_student(folder, head, vocab_size=WORDS, hidden_size=128, intermediate_size=256)
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    known = content["model"]["vocab"]
    known |= {f"word{number}": number for number in range(len(known), WORDS)}
    path.write_text(json.dumps(content))
    return folder
