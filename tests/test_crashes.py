"""Killed at any file event, or out of space there: nothing that was complete is lost, and the next run mends the rest.

Predictions, vectors, tables, reports, pictures, model cards, packed and plain folders, bundles, exports, the index of a
search, submissions, the augmentation's cache, comparisons; checkpoints: training/test_trainer.py.
"""

import shutil

import numpy as np
import pytest

from ternarybert import packed
from ternarybert.augment.neighbors import embedding_neighbors
from ternarybert.augment.training_data import augment_dataset
from ternarybert.bench.report import draw as draw_times
from ternarybert.compare.cells import make_cells
from ternarybert.compare.run import ComparisonFolder
from ternarybert.data import load_table
from ternarybert.data.readers import read_table
from ternarybert.data.submission import add_to_archive, check_archive
from ternarybert.data.writers import write_table
from ternarybert.export import export_model
from ternarybert.packed.bundle import read_bundle, write_bundle
from ternarybert.packed.hf_folder import tokenizer_files, unpack_to_float, write_plain
from ternarybert.report.build import link_figures
from ternarybert.report.page import Page, Picture, write_page
from ternarybert.report.weights import draw as draw_weights
from ternarybert.runtime import load
from ternarybert.runtime import predict_file as prediction
from ternarybert.runtime.encode_file import encode_file
from ternarybert.search import VectorIndex
from tests.crashes import at_every_event, at_sizes
from tests.embedders import packed_embedder
from tests.packed.models import random_model
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


@pytest.mark.parametrize("kind", ["inspect", "bench"])
def test_pictures(tmp_path, crashes, kind):
    """The picture of `--plot` is the older one or the new one."""
    out = tmp_path / "out" / "plot.png"
    model = random_model()
    engine = {"name": "ternarybert", "failed": None, "ratios": {"1x8": None}, "ms": {"1x8": 2.5}}
    timed = {"model": "tiny", "threads": 1, "batches": ["1x8"], "engines": [engine]}

    def work():
        if kind == "inspect":
            draw_weights(out, model, unpack_to_float(model), "tiny")
        else:
            draw_times(timed, out)

    work()
    new = out.read_bytes()
    assert len(new) > 1000
    out.write_bytes(b"old")
    ended = 0
    for _ in crashes(work, out.parent):
        ended += 1
        assert out.read_bytes() in (b"old", new)
        out.write_bytes(b"old")
    work()
    assert ended
    assert names(out.parent) == ["plot.png"]


def test_model_cards(tmp_path, crashes):
    """`report` adds links to a card that people have written in."""
    folder = tmp_path / "model"
    (folder / "report").mkdir(parents=True)
    card, pictures = folder / "README.md", [Picture("weights", "Weights", "", "", b"", 100)]
    card.write_text("my words " * 100)
    linked = None
    for _ in crashes(lambda: link_figures(folder, folder / "report", pictures), folder):
        assert card.read_text().startswith("my words my words")
        assert card.read_text() == "my words " * 100 or "weights.png" in card.read_text()
        card.write_text("my words " * 100)
    link_figures(folder, folder / "report", pictures)
    linked = card.read_text()
    assert "weights.png" in linked and names(folder) == ["README.md"]


@pytest.fixture(scope="module")
def two_models(tmp_path_factory):
    place = tmp_path_factory.mktemp("two")
    return [save_student(place / name, "ForSequenceClassification", seed=seed) for seed, name in enumerate("ab")]


@pytest.mark.parametrize("kind", ["packed", "plain"])
def test_folders_of_models(two_models, tmp_path, crashes, kind):
    """At every moment the output is the old model or the new one, under its name or, after a crash, as soon as the
    next run begins.
    """
    out = tmp_path / "out" / "model"

    def write(source):
        if kind == "plain":
            write_plain(out, packed.read(source), tokenizer=source, force=True)
        else:
            packed.write(out, packed.read(source), extra_files=tokenizer_files(source), force=True)

    def content():
        return {path.name: path.read_bytes() for path in out.iterdir()}

    states = []
    for source in two_models:
        write(source)
        states.append(content())
    write(two_models[0])
    for _ in crashes(lambda: write(two_models[1]), out.parent):
        assert content() in states
        write(two_models[0])
        assert [path.name for path in out.parent.iterdir()] == ["model"]
    write(two_models[1])
    assert content() == states[1]


def test_bundles(two_models, tmp_path, crashes):
    out = tmp_path / "out" / "m.tbert"
    wanted = []
    for folder in two_models:
        write_bundle(folder, out, force=True)
        wanted.append(read_bundle(out))
    write_bundle(two_models[0], out, force=True)
    for _ in crashes(lambda: write_bundle(two_models[1], out, force=True), out.parent):
        assert read_bundle(out) in wanted
        write_bundle(two_models[0], out, force=True)
        assert names(out.parent) == ["m.tbert"]


def test_exports(two_models, tmp_path, crashes):
    """A file of an engine is complete or not there; the next run makes the rest."""
    source, out = two_models[0], tmp_path / "out"
    texts = ["the film was good"]
    export_model(source, "onnx", texts=texts, output=tmp_path / "wanted")
    wanted = {name: (tmp_path / "wanted" / name).read_bytes() for name in names(tmp_path / "wanted")}

    def work():
        export_model(source, "onnx", texts=texts, output=out, force=True)

    for _ in crashes(work, out):
        whole = [name for name in names(out) if name in wanted] if out.exists() else []
        assert all((out / name).read_bytes() == wanted[name] for name in whole)
    work()
    assert {name: (out / name).read_bytes() for name in names(out)} == wanted


def test_the_index_of_a_search(tmp_path, crashes):
    """A search is answered whatever is left of the index, and makes it whole again."""
    notes = tmp_path / "notes"
    notes.mkdir()
    with load(packed_embedder(tmp_path / "model", max_length=48), num_threads=1) as embedder:

        def write(text):
            (notes / "a.txt").write_text(text)
            return VectorIndex(notes)

        def work():
            index = VectorIndex(notes)
            if index.update(embedder) == 0 or index.messages:
                raise OSError("not kept")

        write("the film was good and we liked it\n").update(embedder)
        write("the plot was dull and we hated it\n" * 30)
        ended = 0
        for _ in crashes(work, f"{notes}/."):
            ended += 1
            index = VectorIndex(notes)
            index.update(embedder)
            assert not index.messages
            assert "dull" in index.search(embedder, "dull")[0].text
            write("the film was good and we liked it\n").update(embedder)
            assert names(notes) == [".ternarybert-index", "a.txt"]
            write("the plot was dull and we hated it\n" * 30)
    assert ended


def test_submissions(tmp_path, crashes):
    """The predictions of the tasks before stay in the archive."""
    out = tmp_path / "out" / "glue.zip"
    out.parent.mkdir()
    add_to_archive(out, {"RTE": ["entailment"] * 300})
    before = out.read_bytes()
    for _ in crashes(lambda: add_to_archive(out, {"CoLA": [str(i % 2) for i in range(1000)]}), out.parent):
        check_archive(out)
        out.write_bytes(before)
    assert add_to_archive(out, {"CoLA": ["0"]}) == ["CoLA.tsv", "RTE.tsv"]
    assert names(out.parent) == ["glue.zip"]


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
