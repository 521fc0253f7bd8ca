import pytest
from filelock import FileLock

from ternarybert.augment import Settings, augment_dataset, augment_rows
from ternarybert.augment import variants as pipeline
from ternarybert.data import GLUE, TaskData
from ternarybert.data.task import make_dataset
from ternarybert.errors import DataError
from tests.augment.circle import circle

RTE, COLA, STSB = (GLUE[name].task for name in ("rte", "cola", "stsb"))


@pytest.fixture
def source():
    return circle()


def rows(source, count=12):
    return [" ".join(source.words[i : i + 5]) for i in range(count)]


def data(source, task=RTE, labels=True):
    texts = [rows(source), list(reversed(rows(source)))][: 2 if task.pair else 1]
    numbers = [i / 4 if task.regression else i % 2 for i in range(12)]
    train = make_dataset(texts, numbers if labels else None)
    return TaskData(task, train, {"dev": train.select(range(3))})


@pytest.mark.parametrize("task", [RTE, COLA, STSB], ids=lambda task: task.name)
@pytest.mark.parametrize("labels", [True, False])
@pytest.mark.parametrize("cached", [True, False])
def test_every_row_is_followed_by_its_variants(tmp_path, source, task, labels, cached):
    given = data(source, task, labels)
    made = augment_dataset(given, source, seed=5, cache=tmp_path if cached else None)
    texts = list(zip(*(given.train[name] for name in ("text", "text_pair")[: len(task.text_columns)]), strict=True))
    settings = Settings(task.augment_variants, seed=5)
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
    assert len(augment_dataset(data(source), source, variants=0).train) == 12
    assert len(augment_dataset(data(source), source, variants=3).train) == 48
    assert len(augment_dataset(data(source), source, probability=0.0).train) == 12


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
    first = augment_dataset(data(source), counting, cache=tmp_path)
    asked = counting.asked
    again = augment_dataset(data(source), counting, cache=tmp_path)
    assert asked == counting.asked > 0
    assert again.train.to_dict() == first.train.to_dict()
    assert [path.suffix for path in tmp_path.iterdir()] == [".arrow"]


def test_anything_else_is_made_anew(tmp_path, source):
    augment_dataset(data(source), source, cache=tmp_path)
    augment_dataset(data(source), source, cache=tmp_path, seed=1)
    augment_dataset(data(source), source, cache=tmp_path, variants=2)
    augment_dataset(data(source), source, cache=tmp_path, probability=0.1)
    augment_dataset(data(source), circle(count=3), cache=tmp_path)
    augment_dataset(data(source, labels=False), source, cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == 6


@pytest.mark.parametrize("at", ["rows", "conversion"])
def test_stopped_and_continued(tmp_path, source, monkeypatch, at):
    monkeypatch.setattr(pipeline, "_STRETCH_WORDS", 20)
    whole = augment_dataset(data(source), source).train.to_dict()

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        if at == "conversion":
            patch.setattr("ternarybert.augment.training_data._convert", stop)
        progress = (lambda done, total: stop() if done > 5 else None) if at == "rows" else None
        augment_dataset(data(source), source, cache=tmp_path, progress=progress)
    seen = []
    made = augment_dataset(data(source), source, cache=tmp_path, progress=lambda done, total: seen.append(done))
    assert made.train.to_dict() == whole
    assert seen == [] if at == "conversion" else seen[0] > 3
    assert [path.suffix for path in tmp_path.iterdir()] == [".arrow"]


def test_what_cannot_be_continued_is_made_anew(tmp_path, source, monkeypatch):
    """Nothing else can have left it there: its name says which rows it holds."""
    monkeypatch.setattr(pipeline, "_STRETCH_WORDS", 20)

    def stop(done, total):
        if done > 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        augment_dataset(data(source), source, cache=tmp_path, progress=stop)
    (state,) = tmp_path.glob("*.part.json")
    state.write_text("")
    made = augment_dataset(data(source), source, cache=tmp_path)
    assert made.train.to_dict() == augment_dataset(data(source), source).train.to_dict()


def test_whoever_waits_for_another_process_says_so(tmp_path, source):
    made = augment_dataset(data(source), source, cache=tmp_path)
    (kept,) = tmp_path.iterdir()
    kept.unlink()
    said = []

    def say(line):
        said.append(line)
        other.release()

    with FileLock(kept.with_suffix(".lock"), is_singleton=False) as other:
        again = augment_dataset(data(source), source, cache=tmp_path, say=say)
    assert said == ["another process is making the same rows; waiting for it"]
    assert again.train.to_dict() == made.train.to_dict()


def test_stop_words_of_ones_own(tmp_path, source):
    few = augment_dataset(data(source), source, cache=tmp_path, stop_words=frozenset(source.words))
    assert len(few.train) == 12
    assert len(augment_dataset(data(source), source, cache=tmp_path).train) > 100


def test_many_rows_are_converted_in_batches(tmp_path, source, monkeypatch):
    whole = augment_dataset(data(source), source).train.to_dict()
    monkeypatch.setattr("ternarybert.augment.training_data._BATCH", 7)
    assert augment_dataset(data(source), source, cache=tmp_path).train.to_dict() == whole


def test_no_rows_to_augment(source):
    with pytest.raises(DataError, match="rte has no training rows"):
        augment_dataset(TaskData(RTE, None, {}), source)
