"""Training on variants of the rows: how they are generated and cached, and what is rejected."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from filelock import FileLock
from transformers import AutoTokenizer, BertForMaskedLM, BertForSequenceClassification

from ternarybert.augment import VariantOptions, augment_dataset, augment_rows, load_embeddings
from ternarybert.augment import variants as variants_module
from ternarybert.augment.training_data import Augmentation, augmented, cache_folder, teacher_embeddings
from ternarybert.data import GLUE, TaskData
from ternarybert.data.task import make_dataset
from ternarybert.errors import DataError, OutputError, RecipeError
from ternarybert.recipe import PRESETS
from ternarybert.training.options import TrainingOptions
from ternarybert.training.ternarize import ternarize
from tests import tiny
from tests.augment.circle import circle
from tests.processes import fork
from tests.training.test_ternarize import StopAt

RTE, COLA, STSB = (GLUE[name].task for name in ("rte", "cola", "stsb"))


@pytest.fixture
def source():
    return circle()


def rows(source, count=12):
    return [" ".join(source.words[i : i + 5]) for i in range(count)]


def task_data(source, task=RTE, labels=True):
    texts = [rows(source), list(reversed(rows(source)))][: 2 if task.pair else 1]
    numbers = [i / 4 if task.regression else i % 2 for i in range(12)]
    train = make_dataset(texts, numbers if labels else None)
    return TaskData(task, train, {"dev": train.select(range(3))})


@pytest.mark.parametrize("task", [RTE, COLA, STSB], ids=lambda task: task.name)
@pytest.mark.parametrize("labels", [True, False])
@pytest.mark.parametrize("cached", [True, False])
def test_every_row_is_followed_by_its_variants(tmp_path, source, task, labels, cached):
    given = task_data(source, task, labels)
    made = augment_dataset(given, source, seed=5, cache=tmp_path if cached else None)
    texts = list(zip(*(given.train[name] for name in ("text", "text_pair")[: len(task.text_columns)]), strict=True))
    settings = VariantOptions(task.augment_variants, seed=5)
    expected = [row for stretch in augment_rows(texts, source, settings) for row in stretch]
    assert made.train["text"] == [row[0] for variants in expected for row in variants]
    if task.pair:
        assert made.train["text_pair"] == [row[1] for variants in expected for row in variants]
    if labels:
        numbers = zip(given.train["label"], expected, strict=True)
        assert made.train["label"] == [label for label, variants in numbers for _ in variants]
    assert made.train.features == given.train.features
    assert made.task is given.task
    assert made.evals is given.evals


def test_variants_and_probability_may_be_given(source):
    assert len(augment_dataset(task_data(source), source, variants=0).train) == 12
    assert len(augment_dataset(task_data(source), source, variants=3).train) == 48
    assert len(augment_dataset(task_data(source), source, probability=0.0).train) == 12


class Counting:
    """A source that counts what it is asked."""

    def __init__(self, inner):
        self.inner, self.asked = inner, 0
        self.description, self.fingerprint = inner.description, inner.fingerprint

    def candidates(self, places, done):
        self.asked += len(places)
        return self.inner.candidates(places, done)


def test_the_same_is_made_once(tmp_path, source):
    counting = Counting(source)
    first = augment_dataset(task_data(source), counting, cache=tmp_path)
    asked = counting.asked
    again = augment_dataset(task_data(source), counting, cache=tmp_path)
    assert asked == counting.asked > 0
    assert again.train.to_dict() == first.train.to_dict()
    assert [path.suffix for path in tmp_path.iterdir()] == [".arrow"]


def test_anything_else_is_made_anew(tmp_path, source):
    augment_dataset(task_data(source), source, cache=tmp_path)
    augment_dataset(task_data(source), source, cache=tmp_path, seed=1)
    augment_dataset(task_data(source), source, cache=tmp_path, variants=2)
    augment_dataset(task_data(source), source, cache=tmp_path, probability=0.1)
    augment_dataset(task_data(source), circle(count=3), cache=tmp_path)
    augment_dataset(task_data(source, labels=False), source, cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == 6


@pytest.mark.parametrize("at", ["rows", "conversion"])
def test_stopped_and_continued(tmp_path, source, monkeypatch, at):
    monkeypatch.setattr(variants_module, "_CHUNK_WORDS", 20)
    whole = augment_dataset(task_data(source), source).train.to_dict()

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        if at == "conversion":
            patch.setattr("ternarybert.augment.training_data._convert", stop)
        progress = (lambda done, total: stop() if done > 5 else None) if at == "rows" else None
        augment_dataset(task_data(source), source, cache=tmp_path, progress=progress)
    seen = []
    made = augment_dataset(task_data(source), source, cache=tmp_path, progress=lambda done, total: seen.append(done))
    assert made.train.to_dict() == whole
    assert seen == [] if at == "conversion" else seen[0] > 3
    assert [path.suffix for path in tmp_path.iterdir()] == [".arrow"]


def test_what_cannot_be_continued_is_made_anew(tmp_path, source, monkeypatch):
    """Nothing else can have left it there: its name says which rows it holds."""
    monkeypatch.setattr(variants_module, "_CHUNK_WORDS", 20)

    def stop(done, total):
        if done > 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        augment_dataset(task_data(source), source, cache=tmp_path, progress=stop)
    (state,) = tmp_path.glob("*.part.json")
    state.write_text("")
    made = augment_dataset(task_data(source), source, cache=tmp_path)
    assert made.train.to_dict() == augment_dataset(task_data(source), source).train.to_dict()


def test_whoever_waits_for_another_process_says_so(tmp_path, source):
    made = augment_dataset(task_data(source), source, cache=tmp_path)
    (kept,) = tmp_path.iterdir()
    kept.unlink()
    messages = []

    def on_message(line):
        messages.append(line)
        other.release()

    with FileLock(kept.with_suffix(".lock"), is_singleton=False) as other:
        again = augment_dataset(task_data(source), source, cache=tmp_path, on_message=on_message)
    assert len(messages) == 1
    assert again.train.to_dict() == made.train.to_dict()


def test_stop_words_of_ones_own(tmp_path, source):
    few = augment_dataset(task_data(source), source, cache=tmp_path, stop_words=frozenset(source.words))
    assert len(few.train) == 12
    assert len(augment_dataset(task_data(source), source, cache=tmp_path).train) > 100


def test_many_rows_are_converted_in_batches(tmp_path, source, monkeypatch):
    whole = augment_dataset(task_data(source), source).train.to_dict()
    monkeypatch.setattr("ternarybert.augment.training_data._BATCH", 7)
    assert augment_dataset(task_data(source), source, cache=tmp_path).train.to_dict() == whole


def test_no_rows_to_augment(source):
    with pytest.raises(DataError, match="rte"):
        augment_dataset(TaskData(RTE, None, {}), source)


RECIPE = PRESETS["default"].override({"schedule.stretch": 1, "schedule.learning_rate": "1e-3"})
QUICK = TrainingOptions(device="cpu", evaluations=2)


@pytest.fixture
def how(tmp_path):
    return Augmentation(variants=3, cache=tmp_path / "cache")


@pytest.fixture
def glove(tmp_path):
    path = tmp_path / "glove.txt"
    path.write_text("".join(f"{word} {i} 1\n" for i, word in enumerate(tiny.WORDS)))
    return path


def embeddings_of(teacher):
    return lambda: load_embeddings(teacher)


@pytest.fixture
def masked_model(tmp_path):
    torch.manual_seed(0)
    known = tiny.tokenizer()
    BertForMaskedLM(tiny.config(vocab_size=len(known))).save_pretrained(tmp_path / "masked")
    known.save_pretrained(tmp_path / "masked")
    return str(tmp_path / "masked")


def test_one_epoch_on_every_row_and_its_variants(data, teacher, tmp_path, how):
    metrics = ternarize(teacher, data, tmp_path / "out", RECIPE, QUICK, augment=how)
    rows = len(augment_dataset(data, load_embeddings(teacher), variants=3).train)
    assert metrics.train_rows == rows > 150
    assert metrics.steps == -(-rows // 8)  # the task says two epochs, augmented data are seen once
    note = metrics.augmentation
    assert (note["variants"], note["rows_before"]) == (3, 64)
    assert note["source"] == "the 15 nearest words of the word embeddings of teacher"
    assert json.loads((tmp_path / "out" / "metrics.json").read_text())["augmentation"] == note
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".arrow"]  # and no token ids beside it


def test_the_recipe_may_ask_for_more_epochs(data, teacher, tmp_path, how):
    twice = RECIPE.override({"schedule.epochs": "2"})
    metrics = ternarize(teacher, data, tmp_path / "out", twice, QUICK, augment=how)
    assert metrics.steps == 2 * -(-metrics.train_rows // 8)


@pytest.mark.parametrize(
    ("recipe", "epochs"),
    [
        (PRESETS["default"], 1),
        (PRESETS["default"].override({"schedule.learning_rate": "1e-3"}), 1),
        (PRESETS["paper"].override({"schedule.stretch": 2}), 1),
        (PRESETS["default"].override({"schedule.epochs": 3}), 3),
    ],
)
def test_a_stretch_does_not_count_beside_variants(data, teacher, tmp_path, how, recipe, epochs):
    few = replace(data, train=data.train.select(range(16)))
    metrics = ternarize(teacher, few, tmp_path / "out", recipe, QUICK, augment=how)
    assert metrics.steps == epochs * -(-metrics.train_rows // 8)


def test_without_it_nothing_changes(data, teacher, tmp_path):
    metrics = ternarize(teacher, data, tmp_path / "out", RECIPE, QUICK)
    assert (metrics.train_rows, metrics.steps, metrics.augmentation) == (64, 16, None)


@pytest.mark.parametrize(
    ("named", "first"),
    [
        ((), "the 15 nearest words of the word embeddings of teacher"),
        (("glove",), "the 15 nearest words of GloVe (glove.txt)"),
        (("masked_model",), "the 15 best words of the masked-language model masked"),
        (("masked_model", "glove"), "the 15 best words of the masked-language model masked; for the other words, the"),
    ],
)
def test_sources(request, data, teacher, how, named, first):
    chosen = replace(how, **{name: request.getfixturevalue(name) for name in named})
    made, note = augmented(data, chosen, embeddings_of(teacher), seed=1, device="cpu")
    assert note["source"].startswith(first)
    assert len(made.train) > 64
    assert made.evals is data.evals


def test_the_loaded_teachers_words_are_those_of_its_files(teacher):
    network = BertForSequenceClassification.from_pretrained(teacher)
    loaded = teacher_embeddings(teacher, network, AutoTokenizer.from_pretrained(teacher))
    assert loaded.fingerprint == load_embeddings(teacher).fingerprint
    assert loaded.description == load_embeddings(teacher).description


@pytest.mark.parametrize("file", ["bfloat16", "pickle"])
def test_a_teacher_whose_file_numpy_cannot_read(data, teacher, tmp_path, how, file):
    network = BertForSequenceClassification.from_pretrained(teacher)
    if file == "bfloat16":
        network.bfloat16().save_pretrained(teacher)
    else:
        torch.save(network.state_dict(), Path(teacher) / "pytorch_model.bin")
        (Path(teacher) / "model.safetensors").unlink()
    metrics = ternarize(teacher, data, tmp_path / "out", RECIPE, QUICK, augment=how)
    assert metrics.train_rows > 150


def test_several_masks(data, teacher, how, masked_model):
    _, note = augmented(
        data, replace(how, masked_model=masked_model, masks=3), embeddings_of(teacher), seed=1, device="cpu"
    )
    assert note["source"].endswith("(3 masks at a time)")


def test_variants_are_those_of_the_task_and_labels_are_copied(data, teacher, how):
    task = replace(data.task, augment_variants=5)
    made, note = augmented(
        replace(data, task=task), replace(how, variants=None), embeddings_of(teacher), seed=1, device="cpu"
    )
    assert note["variants"] == 5
    rows = list(zip(made.train["text"], made.train["label"], strict=True))
    rest = iter(rows)
    assert all(row in rest for row in zip(data.train["text"], data.train["label"], strict=True))  # in their order
    assert len({text for text, _ in rows}) > 100


def test_unlabeled_pairs(data, teacher, how):
    texts = data.train["text"]
    train = data.train.remove_columns("label").add_column("text_pair", list(reversed(texts)))
    task = replace(data.task, text_columns=("a", "b"), label_column=None)
    made, _ = augmented(TaskData(task, train, data.evals), how, embeddings_of(teacher), seed=1, device="cpu")
    assert made.train.column_names == ["text", "text_pair"]
    assert len(made.train) > 200


def test_strange_texts_are_trained_on_as_they_are(data, teacher, tmp_path, how):
    strange = [
        "",
        "film",
        "and it is not what it was",
        "😀👩‍👩‍👧 🏳️‍🌈",
        "\x00 film \u200b",
        " ".join(["film", "plot"] * 2500),
    ]
    train = Dataset.from_dict({"text": strange * 2, "label": [0, 1] * len(strange)})
    metrics = ternarize(teacher, replace(data, train=train), tmp_path / "out", RECIPE, QUICK, augment=how)
    assert metrics.augmentation["rows_before"] == 12
    assert metrics.train_rows > 12


def test_runs_share_what_was_made_and_other_seeds_do_not(data, teacher, tmp_path, how, monkeypatch):
    seen = []
    watched = replace(how, progress=lambda done, total: seen.append(done))
    ternarize(teacher, data, tmp_path / "a", RECIPE, QUICK, augment=watched)
    assert seen[-1] == 64
    seen.clear()
    ternarize(teacher, data, tmp_path / "b", RECIPE.with_bits("8-8-8"), QUICK, augment=watched)
    assert seen == []
    ternarize(teacher, data, tmp_path / "c", RECIPE, replace(QUICK, seed=7), augment=watched)
    assert seen[-1] == 64
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_stopped_while_augmenting_and_run_again(data, teacher, tmp_path, how, monkeypatch):
    monkeypatch.setattr("ternarybert.augment.variants._CHUNK_WORDS", 20)
    whole = ternarize(teacher, data, tmp_path / "whole", RECIPE, QUICK, augment=replace(how, cache=tmp_path / "other"))

    def stop(done, total):
        if done > 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ternarize(teacher, data, tmp_path / "part", RECIPE, QUICK, augment=replace(how, progress=stop))
    assert not (tmp_path / "part.work").exists()
    seen = []
    watched = replace(how, progress=lambda done, total: seen.append(done))
    part = ternarize(teacher, data, tmp_path / "part", RECIPE, QUICK, augment=watched)
    assert seen[0] > 20
    assert part.evaluations == whole.evaluations
    written = [(tmp_path / name / "ternarybert.safetensors").read_bytes() for name in ("whole", "part")]
    assert written[0] == written[1]


def test_stopped_while_training_and_resumed(data, teacher, tmp_path, how):
    whole = ternarize(teacher, data, tmp_path / "whole", RECIPE, QUICK, augment=how)
    with pytest.raises(KeyboardInterrupt):
        ternarize(teacher, data, tmp_path / "part", RECIPE, replace(QUICK, callbacks=(StopAt(20),)), augment=how)
    again = replace(QUICK, resume=True)
    with pytest.raises(OutputError, match="data, augmentation"):
        ternarize(teacher, data, tmp_path / "part", RECIPE, again)
    with pytest.raises(OutputError, match="data, augmentation"):
        ternarize(teacher, data, tmp_path / "part", RECIPE, again, augment=replace(how, variants=2))
    part = ternarize(teacher, data, tmp_path / "part", RECIPE, again, augment=how)
    assert part.evaluations == whole.evaluations


@pytest.mark.parametrize("name", ["stsb", "mnli", "qqp"])
def test_what_the_paper_does_not_augment_is_refused_before_any_work(data, tmp_path, how, name):
    given = replace(data, task=GLUE[name].task)
    with pytest.raises(RecipeError, match=f"{name}.*--augment"):
        ternarize("no such teacher", given, tmp_path / "out", RECIPE, QUICK, augment=how)
    assert list(tmp_path.iterdir()) == []


def test_the_cache_is_where_the_system_says(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "ternarybert" / "augment"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert cache_folder() == tmp_path / "me" / ".cache" / "ternarybert" / "augment"


def test_a_cache_that_cannot_be_written(data, teacher, tmp_path, how):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=re.escape(str(tmp_path / "file" / "cache"))):
        augmented(data, replace(how, cache=tmp_path / "file" / "cache"), embeddings_of(teacher), seed=1, device="cpu")


SCRIPT = """
import sys
from ternarybert.augment import load_embeddings, augment_dataset, training_data
from ternarybert.data import load_table
made = training_data._write_lines
training_data._write_lines = lambda *given: (print("made"), made(*given))
augment_dataset(load_table(sys.argv[2]), load_embeddings(sys.argv[1]), cache=sys.argv[3])
"""


def test_processes_that_want_the_same_make_it_once(teacher, tmp_path):
    lines = [f"the film was {word} and the plot was {other}" for word in tiny.WORDS for other in tiny.WORDS]
    table = tmp_path / "texts.txt"
    table.write_text("\n".join(lines))
    started = [fork("-c", SCRIPT, teacher, table, tmp_path / "cache") for _ in range(2)]
    said = [process.communicate()[0] for process in started]
    assert [process.returncode for process in started] == [0, 0]
    assert sorted(said) == ["", "made\n"]
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".arrow"]
