"""The examples in docs/how-to/transformers.md run as they stand."""

import re
from pathlib import Path

from ternarybert.packed import is_packed
from tests import tiny
from tests.hf.students import random_student, write_student

DOCUMENT = Path(__file__).parents[2] / "docs" / "how-to" / "transformers.md"


def test_the_examples(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_student("my-model-ternary", random_student())
    tiny.tokenizer().save_pretrained("my-model-ternary")
    examples = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    names = {}
    for example in examples:
        exec(compile(example, DOCUMENT.name, "exec"), names)
    assert is_packed("my-model-trained-on")
