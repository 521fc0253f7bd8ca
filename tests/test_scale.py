"""One scorer in every engine: the same answers as the model alone, however the rows are cut into partitions."""

import pickle
import subprocess
import sys
from itertools import pairwise

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ternarybert
from ternarybert import scale
from ternarybert.errors import DataError, UnsupportedModelError
from ternarybert.scale import Scorer, add_to_duckdb, score_polars
from tests import embedders, tiny
from tests.runtime.folders import save_student

TEXTS = [f"{tiny.WORDS[i % 7]} {' '.join(tiny.WORDS[: i % 11])} {tiny.WORDS[-1 - i % 5]}" for i in range(60)]
TEXTS[7], TEXTS[20] = None, "  "


@pytest.fixture(scope="module")
def folder(shared_folder):
    names = {0: "bad", 1: "fair", 2: "good"}
    labels = {"id2label": names, "label2id": {name: i for i, name in names.items()}}
    return shared_folder("scale", lambda path: save_student(path, "ForSequenceClassification", **labels))


@pytest.fixture(scope="module")
def embedder(shared_folder):
    return shared_folder("scale-embedder", embedders.packed_embedder)


@pytest.fixture(scope="module")
def table():
    return pa.table({"id": range(len(TEXTS)), "text": TEXTS})


@pytest.fixture(scope="module")
def expected(folder):
    """What the model itself answers, by row."""
    model = ternarybert.load(folder)
    answers = []
    for i, text in enumerate(TEXTS):
        answer = model.predict(text) if text and text.strip() else None
        fields = {"prediction": answer and answer.label, "score": answer and answer.score}
        answers.append({"id": i, "text": text, **fields})
    return answers


def test_answers_are_those_of_the_model(folder, table, expected):
    answered = Scorer(folder)(table)
    assert answered.schema.names == ["id", "text", "prediction", "score"]
    assert answered.to_pylist() == expected
    assert answered.slice(0, 0).schema == Scorer(folder)(table.slice(0, 0)).schema


@given(cuts=st.sets(st.integers(0, len(TEXTS)), max_size=12))
@settings(max_examples=15)
def test_answers_do_not_depend_on_the_partitions(folder, table, expected, cuts):
    ends = sorted({0, len(TEXTS), *cuts})
    scorer = Scorer(folder, threads=1)
    parts = [scorer(table.slice(a, b - a)) for a, b in pairwise(ends)]
    assert pa.concat_tables(parts).to_pylist() == expected


def test_record_batches_stay_record_batches(folder, table, expected):
    (batch,) = table.to_batches()
    answered = Scorer(folder)(batch)
    assert isinstance(answered, pa.RecordBatch)
    assert answered.to_pylist() == expected


def test_a_scorer_is_small_and_loads_once_per_process(folder, table, monkeypatch):
    loads = []
    monkeypatch.setattr(scale, "_models", {})
    monkeypatch.setattr(scale, "load", lambda *args, **more: loads.append(args) or ternarybert.load(*args, **more))
    scorer = Scorer(folder)
    copy = pickle.loads(pickle.dumps(scorer))
    assert len(pickle.dumps(scorer)) < 1000
    scorer(table), copy(table), copy(table)
    assert len(loads) == 1


def test_a_scorer_runs_in_another_process_without_torch(folder, table, expected, tmp_path):
    (tmp_path / "scorer").write_bytes(pickle.dumps(Scorer(str(folder))))
    code = (
        "import pickle, sys, json, pathlib, pyarrow\n"
        "scorer = pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())\n"
        "rows = scorer(pyarrow.table({'text': ['good fun', None]})).to_pylist()\n"
        "assert 'torch' not in sys.modules\n"
        "print(json.dumps(rows))"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "scorer"], capture_output=True, text=True, check=True)
    answer = ternarybert.load(folder).predict("good fun")
    assert f'"prediction": "{answer.label}", "score": {answer.score!r}' in done.stdout
    assert '"prediction": null' in done.stdout


def test_taken_names_all_scores_and_pairs(folder):
    given_rows = pa.table({"prediction": ["x"], "a": ["good"], "b": ["the film"]})
    scorer = Scorer(folder, text="a", text_pair="b", all_scores=True)
    (row,) = scorer(given_rows).to_pylist()
    answer = ternarybert.load(folder).predict(("good", "the film"))
    assert row["prediction 2"] == answer.label
    assert {name: row[f"score {name}"] for name in answer.scores} == answer.scores


def test_vectors_entities_and_answers(embedder, tmp_path):
    texts = pa.table({"text": ["good", None, "it was fun"]})
    rows = Scorer(embedder)(texts).to_pylist()
    vectors = ternarybert.load(embedder).encode(["good", "it was fun"]).tolist()
    assert [row["vector"] for row in rows] == [vectors[0], None, vectors[1]]
    tagger = save_student(tmp_path / "tagger", "ForTokenClassification")
    entities = [one.as_dict() for one in ternarybert.load(tagger).predict("it was fun").entities]
    assert Scorer(tagger)(texts).to_pylist()[2]["prediction"] == entities
    answerer = save_student(tmp_path / "answerer", "ForQuestionAnswering")
    asked = pa.table({"question": ["was it fun"], "context": ["the film was great fun"]})
    answer = ternarybert.load(answerer).predict(("was it fun", "the film was great fun"))
    (row,) = Scorer(answerer)(asked).to_pylist()
    assert (row["prediction"], row["score"], row["start"]) == (answer.text, answer.score, answer.start)


def test_errors_come_before_the_work(folder, table, tmp_path):
    with pytest.raises(DataError, match=r"'txt'.*'text'"):
        Scorer(folder, text="txt")(table)
    bare = save_student(tmp_path / "bare", "Model")
    with pytest.raises(UnsupportedModelError, match="no task head"):
        Scorer(bare)(table)


def test_polars_eager_and_lazy(folder, table, expected):
    frame = pl.from_arrow(table)
    assert frame.pipe(score_polars, Scorer(folder)).to_dicts() == expected
    lazy = frame.lazy().pipe(score_polars, Scorer(folder))
    assert lazy.collect_schema().names() == ["id", "text", "prediction", "score"]
    assert lazy.filter(pl.col("id") > 3).collect().to_dicts() == expected[4:]


def test_duckdb_function(folder, embedder, table, expected):
    connection = duckdb.connect()
    connection.register("mails", table)
    add_to_duckdb(connection, Scorer(folder))
    add_to_duckdb(connection, Scorer(folder))  # again: replaced
    query = "SELECT id, text, p.prediction, p.score FROM (SELECT *, predict(text) AS p FROM mails) ORDER BY id"
    assert connection.sql(query).to_arrow_table().to_pylist() == expected
    add_to_duckdb(connection, Scorer(embedder), "embed")
    ((vector,),) = connection.execute("SELECT embed('good')").fetchall()
    assert list(vector) == ternarybert.load(embedder).encode("good").tolist()


@pytest.mark.integrations
@pytest.mark.filterwarnings("ignore")  # of the engines, about themselves
class TestEngines:
    def test_dask_partitions_and_processes(self, folder, table, expected):
        import dask.dataframe as dd
        from dask.distributed import Client, LocalCluster

        frame = dd.from_pandas(table.to_pandas(), npartitions=7)
        with (
            LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
            Client(cluster),
        ):
            answered = scale.score_dask(frame, Scorer(str(folder))).compute()
        rows = pa.Table.from_pandas(answered, preserve_index=False).to_pylist()
        assert [(row["id"], row["prediction"], row["score"]) for row in rows] == [
            (row["id"], row["prediction"], row["score"]) for row in expected
        ]

    def test_ray_data_with_two_actors(self, folder, table, expected):
        import ray

        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
        try:
            dataset = ray.data.from_arrow(table).repartition(6)
            answered = scale.score_ray(dataset, Scorer(str(folder)), workers=2, batch_size=7).take_all()
        finally:
            ray.shutdown()
        assert sorted(answered, key=lambda row: row["id"]) == expected

    def test_spark_with_two_executors(self, folder, table, expected, spark):
        frame = spark.createDataFrame(table.to_pandas().astype(object).where(lambda f: f.notna(), None)).repartition(5)
        answered = scale.score_spark(frame, Scorer(str(folder))).orderBy("id").collect()
        assert [row.asDict() for row in answered] == expected
        with pytest.raises(DataError, match="'txt'"):
            scale.score_spark(frame, Scorer(str(folder), text="txt"))


@pytest.fixture(scope="module")
def spark():
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
    session = builder.config("spark.driver.host", "127.0.0.1").config("spark.python.worker.reuse", "true").getOrCreate()
    yield session
    session.stop()
