"""Two runs that write to one place: the second is refused at once, by the name of the output, and mixes nothing."""

import os
import time

import pytest

from tests.cli.conftest import COLUMNS, start
from tests.embedders import packed_embedder
from tests.runtime.folders import save_student

ANSWERS = {"id2label": {0: "joy", 1: "anger", 2: "so so"}, "label2id": {"joy": 0, "anger": 1, "so so": 2}}


@pytest.fixture(scope="session")
def student(tmp_path_factory):
    return save_student(tmp_path_factory.mktemp("packed") / "model", "ForSequenceClassification", **ANSWERS)


@pytest.fixture(scope="session")
def embedder(tmp_path_factory):
    return packed_embedder(tmp_path_factory.mktemp("embedder") / "model", max_length=48)


COMMANDS = {
    "predict": lambda table, out, model, **_: ["predict", model, "-i", table, "-o", out, *COLUMNS[:2]],
    "finetune": lambda table, out, encoder, **_: ["finetune", encoder, "--train", table, "-o", out, *COLUMNS],
    "ternarize": lambda table, out, teacher, **_: ["ternarize", teacher, "--train", table, "-o", out, *COLUMNS],
    "pack": lambda out, model, **_: ["pack", model, out],
    "export": lambda out, model, **_: ["export", model, "--to", "onnx", "-o", out],
    "unpack": lambda out, model, **_: ["unpack", model, out],
    "augment": lambda table, out, encoder, **_: ["augment", out, "--train", table, "--embeddings", encoder, *COLUMNS],
    "compare": lambda table, out, teacher, **_: ["compare", teacher, "--train", table, "-o", out, *COLUMNS],
    "reproduce": lambda out, encoder, **_: ["reproduce", "main", "--model", encoder, "--task", "rte", "-o", out],
    "report": lambda out, model, **_: ["report", model, "-o", out],
    "bench": lambda out, model, **_: ["bench", model, "--engine", "ternarybert", "--plot", out],
    "inspect": lambda out, model, teacher, **_: ["inspect", model, "--against", teacher, "--plot", out],
    "encode": lambda table, out, embedder, **_: ["encode", table, "--model", embedder, "-o", out, *COLUMNS[:2]],
    "bundle": lambda out, model, **_: ["bundle", model, out],
    "evaluate": lambda out, model, **_: ["evaluate", model, "--task", "rte", "--submission", out],
    "demo": lambda out, **_: ["demo", "--quick", "-o", out],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_second_of_two_runs_is_refused(fails, busy, tmp_path, table, encoder, teacher, student, embedder, name):
    suffixes = {"predict": ".csv", "augment": ".csv", "inspect": ".png", "bench": ".png"}
    suffix = (suffixes | {"encode": ".npy", "evaluate": ".zip"}).get(name, "")
    out = tmp_path / f"taken{suffix}"
    busy(out)
    before = sorted(path.name for path in tmp_path.rglob("*"))
    models = {"encoder": encoder, "teacher": teacher, "model": student, "embedder": embedder}
    arguments = COMMANDS[name](table=table, out=out, **models)
    assert str(out) in fails(*arguments)
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_two_predictions_at_the_same_time(student, tmp_path):
    """Started within milliseconds of each other, again and again: one of them writes all rows."""
    source, out, alone = tmp_path / "in.csv", tmp_path / "out.csv", tmp_path / "alone.csv"
    source.write_text("text\n" + "".join(f"the film was good {i}\n" for i in range(3000)))
    command = ["-m", "ternarybert", "predict", student, "-i", source, "-o"]
    start(*command, alone).communicate(timeout=60)
    for delay in (0, 0.1):
        out.unlink(missing_ok=True)
        first = start(*command, out)
        time.sleep(delay)
        second = start(*command, out)
        texts = [process.communicate(timeout=60) for process in (first, second)]
        codes = sorted((first.returncode, second.returncode))
        assert codes == [0, 2], texts
        assert out.read_bytes() == alone.read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["alone.csv", "in.csv", "out.csv"]
