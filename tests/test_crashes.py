"""Killed at any file event, or out of space there: nothing that was complete is lost, and the next run mends the rest.

Predictions, vectors, tables, reports, the augmentation's cache, comparisons; checkpoints: training/test_trainer.py.
"""

import shutil

import numpy as np
import pytest

from ternarybert.augment.neighbors import embedding_neighbors
from ternarybert.augment.training_data import augment_dataset
from ternarybert.compare.cells import make_cells
from ternarybert.compare.run import ComparisonFolder
from ternarybert.data import load_table
from ternarybert.data.readers import read_table
from ternarybert.data.writers import write_table
from ternarybert.report.page import Page, write_page
from ternarybert.runtime import load
from ternarybert.runtime import predict_file as prediction
from ternarybert.runtime.encode_file import encode_file
from tests.crashes import at_every_event, at_sizes
from tests.embedders import packed_embedder
from tests.runtime.folders import save_student

pytestmark = pytest.mark.linux_only("processes are forked and limited")

WAYS = {
    "killed": lambda work, folder: at_every_event(work, folder),
    "full": lambda work, folder: at_every_event(work, folder, full=True),
    "cut off": lambda work, folder: at_sizes(work, (0, 1, 20, 100, 400, 1000)),
    "too long": lambda work, folder: at_sizes(work, (0, 1, 20, 100, 400, 1000), full=True),
}


@pytest.fixture(params=WAYS)
def crashes(request):
    return WAYS[request.param]


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_crashing_is_noticed(tmp_path):
    """The tests below would pass if nothing ever ended early."""

    def work():
        (tmp_path / "x").write_text("y" * 10)
        (tmp_path / "x").rename(tmp_path / "z")

    for way, least in (("killed", 2), ("full", 1), ("cut off", 2), ("too long", 2)):
        assert len(list(WAYS[way](work, tmp_path))) >= least
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    with load(save_student(tmp_path_factory.mktemp("model") / "m", "ForSequenceClassification")) as loaded:
        yield loaded


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_predictions(model, tmp_path, monkeypatch, crashes, kind):
    """Resumed after every crash, the output is that of a run alone; nothing is left beside it."""
    monkeypatch.setattr(prediction, "_STEP_ROWS", 4)
    source, out = tmp_path / "in.csv", tmp_path / "out" / f"out.{kind}"
    source.write_text("text\n" + "".join(f"the film was good {i}\n" for i in range(12)) + "a,b\n")
    wanted = tmp_path / f"wanted.{kind}"

    def work():
        prediction.predict_file(model, source, out, bad_rows=out.with_name("bad.csv"))

    prediction.predict_file(model, source, wanted)
    ended = 0
    for _ in crashes(work, out.parent):
        ended += 1
        assert not out.exists() or out.read_bytes() == wanted.read_bytes()
        if out.exists():  # finished before the crash; the next one starts over
            shutil.rmtree(out.parent)
    if not out.exists():
        work()
    assert ended >= 2
    assert out.read_bytes() == wanted.read_bytes()
    assert names(out.parent) == ["bad.csv", out.name]


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_vectors(tmp_path, crashes, precision):
    """Old vectors with their own ranges, new ones with theirs, or none; the next run cleans up and writes all."""
    source, out = tmp_path / "in.txt", tmp_path / "out" / "vectors.npy"
    ranges, wanted = out.with_name("vectors.npy.ranges.npy"), tmp_path / "wanted.npy"
    folder = packed_embedder(tmp_path / "model", max_length=48)
    out.parent.mkdir()
    with load(folder, num_threads=1) as embedder:

        def work(target=out):
            encode_file(embedder, source, target, precision=precision, force=True)

        def state():
            return [path.read_bytes() if path.exists() else None for path in (out, ranges)]

        source.write_text("".join(f"the film was good {i}\n" for i in range(12)))
        work()
        old = state()
        source.write_text("".join(f"bad {i * i} times\n" for i in range(40)))
        work(wanted)
        for _ in crashes(work, out.parent):
            made = state()
            assert made[0] in (None, old[0], wanted.read_bytes())
            assert made[0] is None or made[1] != (None if precision == "int8" else b"")
            assert made != [old[0], ranges_of(wanted)] or precision == "float32"
        work()
    assert state() == [wanted.read_bytes(), ranges_of(wanted)]
    assert names(out.parent) == [path.name for path in (out, ranges) if path.exists()]


def ranges_of(vectors):
    path = vectors.with_name(f"{vectors.name}.ranges.npy")
    return path.read_bytes() if path.exists() else None


def test_tables(tmp_path, crashes):
    path = tmp_path / "out" / "t.csv"
    path.parent.mkdir()
    write_table(path, {"text": ["old"]})
    new = {"text": [f"a text {i}" for i in range(100)]}
    for _ in crashes(lambda: write_table(path, new), path.parent):
        assert read_table(path).columns in ({"text": ["old"]}, new)
        write_table(path, {"text": ["old"]})
        assert names(path.parent) == ["t.csv"]


def test_reports(tmp_path, crashes):
    folder, old = tmp_path / "out" / "report", Page("old", "x", [])
    write_page(folder, old)
    before = (folder / "report.html").read_bytes()
    for _ in crashes(lambda: write_page(folder, Page("new", "x" * 2000, [])), folder.parent):
        page = (folder / "report.html").read_bytes()
        assert page == before or b"</html>" in page
        write_page(folder, old)
        assert names(folder.parent) == ["report/report.html"]
        assert (folder / "report.html").read_bytes() == before


def test_comparison_folders(tmp_path, crashes):
    """A cell has a complete result or none."""
    cell = make_cells(["gobo"], [])[0]
    place = ComparisonFolder(tmp_path / "out")

    def work():
        place.claim({"teacher": "x"})
        place.seconds = 5.0
        place.save(cell, {"scores": {"accuracy": 1.0}, "more": "x" * 2000})

    for _ in crashes(work, place.folder):
        place.claim({"teacher": "x"})
        result = place.result(cell)
        assert result is None or result["scores"] == {"accuracy": 1.0}
        if result is not None:
            shutil.rmtree(place.folder)
    work()
    assert place.is_done(cell)


def test_the_cache_of_augmented_rows(tmp_path, crashes):
    """Whatever a crash leaves there, the next run has the same rows."""
    (tmp_path / "t.csv").write_text("text,label\n" + "a good film,1\na bad film,0\n" * 4)
    data, cache = load_table(tmp_path / "t.csv", eval_share=0), tmp_path / "cache"
    words = {word: i for i, word in enumerate(["[UNK]", "good", "bad", "film", "fine", "nice"])}
    source = embedding_neighbors(words, np.array([[float(i), 1.0] for i in range(len(words))], np.float32), "made")
    wanted = augment_dataset(data, source, variants=2).train[:]

    def work():
        augment_dataset(data, source, variants=2, cache=cache)

    ended = 0
    for _ in crashes(work, cache):
        ended += 1
        if any(path.suffix == ".arrow" for path in cache.glob("*.arrow")):
            assert augment_dataset(data, source, variants=2, cache=cache).train[:] == wanted
            shutil.rmtree(cache)
    assert augment_dataset(data, source, variants=2, cache=cache).train[:] == wanted
    assert ended
