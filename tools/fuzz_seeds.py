"""Writes the seeds of native/fuzz: small models as bundles, the same without their hashes, and sentences.

Run it in the root of the repository: PYTHONPATH=src:. python tools/fuzz_seeds.py
"""

import tempfile
from pathlib import Path

from tests.native.texts import SENTENCES
from tests.runtime.folders import save_student

from ternarybert.packed.bundle import write_bundle

FUZZ = Path(__file__).parent.parent / "native" / "fuzz"
SEEDS = FUZZ / "corpus"
SMALL = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}

HEADS = {
    "model": ("ForSequenceClassification", ["LABEL_0", "LABEL_1", "LABEL_2"]),
    "words": ("ForTokenClassification", ["O", "B-PER", "I-PER", "E-PER"]),
    "answers": ("ForQuestionAnswering", ["LABEL_0", "LABEL_1"]),
}


def main() -> None:
    """Write the files."""
    for name in ("open", "tokenize"):
        (SEEDS / name).mkdir(parents=True, exist_ok=True)
    for name, (head, labels) in HEADS.items():
        with tempfile.TemporaryDirectory() as temporary:
            folder = save_student(Path(temporary) / "model", head, id2label=dict(enumerate(labels)), **SMALL)
            write_bundle(folder, FUZZ / f"{name}.tbert", force=True)
        (SEEDS / "open" / name).write_bytes((FUZZ / f"{name}.tbert").read_bytes()[40:])
    for number, sentence in enumerate(SENTENCES):
        (SEEDS / "tokenize" / f"{number:02}").write_text(sentence, encoding="utf-8", newline="")


if __name__ == "__main__":
    main()
