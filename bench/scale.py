"""A table scored on Spark, Ray Data, Dask, DuckDB and Polars, beside `predict --input` alone.

Every engine gets the same rows (an `id` and a real sentence) from the same folder of parquet files and writes its
answers as parquet. `predict --input` with the same number of cores runs before and after each of them, on the first
--alone rows; an engine's rows per second are compared with the mean of the two. Then the answers are read back: every
id must be there once, with the label of `predict` and a score with the same bits. `--kill` ends a worker of Spark, Ray
and Dask with SIGKILL in the middle of the run.

    apt-get install openjdk-17-jre-headless                   # Debian, for Spark
    make test-integrations                                    # makes the environment build/integrations
    build/integrations/bin/python bench/scale.py FOLDER SENTENCES --rows 1000000 --engine spark ray dask
    build/integrations/bin/python bench/scale.py FOLDER SENTENCES --rows 200000 --engine spark ray dask --kill
    build/integrations/bin/python bench/scale.py FOLDER SENTENCES --rows 100000 --engine duckdb polars

FOLDER is a packed classifier. SENTENCES has one text per line; those of 3 to 6 words are used, at most as many as
--alone, each once and then again from the beginning until there are enough rows. Tables are kept in --out.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import dataset as ds
from pyarrow import parquet as pq

from ternarybert.scale import Scorer, add_to_duckdb, score_dask, score_polars, score_ray, score_spark

ALONE = "predict"  # what the engines are compared with
KILLED = ("spark", "ray", "dask")  # engines that have workers
WORDS = 3, 6  # of a sentence
PARTS = 50  # files of the table; the last one of a worker is then at most 2 % of its work
MEASURED = 1.0  # seconds between two looks at the memory


@dataclass
class Outcome:
    """What was seen of an engine."""

    engine: str
    rows: int
    start: float = 0.0  # seconds until its workers were there
    seconds: float = 0.0  # from the first row to the last file
    memory: dict[str, float] = field(default_factory=dict)  # largest MB of a process of each kind
    busy: dict[str, float] = field(default_factory=dict)  # CPU seconds of all processes of each kind
    killed: str | None = None  # the worker that was ended
    share: float = 1.0  # of the rows per second of `predict` alone
    equal: bool = False  # every row once, with the answer of `predict`

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows / self.seconds


# --- The engines: each is a function that starts its cluster, runs `job` and ends it --------------------------------


@dataclass
class Job:
    """What a process of an engine has to do."""

    folder: str
    rows: Path
    output: Path
    cores: int
    outcome: Outcome
    kill_after: float | None

    @contextmanager
    def measured(self, kind: Callable[[psutil.Process], str | None], victim: str) -> Iterator[None]:
        """Take the time and the memory of the block, and end a worker in the middle of it if that is asked for."""
        ended = threading.Event()
        watch = threading.Thread(target=self._watch, args=(kind, victim, ended))
        self.outcome.start = time.monotonic() - STARTED
        watch.start()
        begun = time.monotonic()
        try:
            yield
            self.outcome.seconds = time.monotonic() - begun
        finally:
            ended.set()
            watch.join()

    def _watch(self, kind: Callable[[psutil.Process], str | None], victim: str, ended: threading.Event) -> None:
        begun = time.monotonic()
        peaks: dict[str, float] = defaultdict(float)
        used: dict[tuple[str, int], float] = {}
        while not ended.wait(MEASURED):
            found = [(name, each) for each in psutil.Process().children(recursive=True) if (name := _kind(kind, each))]
            for name, process in found:
                megabytes, seconds = _used(process)
                peaks[name] = max(peaks[name], megabytes)
                used[name, process.pid] = max(used.get((name, process.pid), 0.0), seconds)
            late = self.kill_after is not None and time.monotonic() - begun > self.kill_after
            workers = [process for name, process in found if name == victim]
            if late and workers and self.outcome.killed is None:
                os.kill(workers[0].pid, signal.SIGKILL)
                self.outcome.killed = f"{victim}, after {time.monotonic() - begun:.0f} s"
        self.outcome.memory = {name: round(peak) for name, peak in sorted(peaks.items())}
        for (name, _), seconds in sorted(used.items()):
            self.outcome.busy[name] = round(self.outcome.busy.get(name, 0.0) + seconds, 1)


def _kind(kind: Callable[[psutil.Process], str | None], process: psutil.Process) -> str | None:
    try:
        return kind(process)
    except psutil.Error:  # it has ended
        return None


def _used(process: psutil.Process) -> tuple[float, float]:
    """The memory of a process in MB, and its CPU seconds so far."""
    try:
        times = process.cpu_times()
        return process.memory_info().rss / 1e6, times.user + times.system
    except psutil.Error:
        return 0.0, 0.0


def run_spark(job: Job) -> None:
    """Two executors, each with its share of the cores, in a cluster on this machine."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    executors = min(2, job.cores)
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "1g",
        "spark.sql.files.minPartitionNum": str(PARTS),  # a task for each file; a lost one costs little
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }
    builder = SparkSession.builder.master(f"local-cluster[{executors},{job.cores // executors},1024]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    known = session.sparkContext._jsc.sc().getExecutorMemoryStatus
    while known().size() <= executors:  # the driver is one of them
        time.sleep(0.1)

    def kind(process: psutil.Process) -> str | None:
        command = " ".join(process.cmdline())
        if "CoarseGrainedExecutorBackend" in command and "/bin/java" in command:
            return "executor (JVM)"
        return "Python worker" if "pyspark.daemon" in command else None

    with job.measured(kind, "executor (JVM)"):
        frame = session.read.parquet(str(job.rows))
        score_spark(frame, Scorer(job.folder)).write.parquet(str(job.output))
    session.stop()


def run_ray(job: Job) -> None:
    """An actor per core, and a core that does not exist for the tasks that read and write, which need little."""
    import ray

    ray.init(num_cpus=job.cores + 1, include_dashboard=False, log_to_driver=False, object_store_memory=500 << 20)
    ray.data.DataContext.get_current().enable_progress_bars = False

    def kind(process: psutil.Process) -> str | None:
        return "actor" if "MapWorker" in " ".join(process.cmdline()) else None

    with job.measured(kind, "actor"):
        dataset = ray.data.read_parquet(str(job.rows))
        score_ray(dataset, Scorer(job.folder), workers=(job.cores, job.cores)).write_parquet(str(job.output))
    ray.shutdown()


def run_dask(job: Job) -> None:
    """A process with one thread per core."""
    import dask.dataframe as dd
    from dask.distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=job.cores, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(job.cores)
        workers = set(client.run(os.getpid).values())

        def kind(process: psutil.Process) -> str | None:
            return "worker" if process.pid in workers else None

        with job.measured(kind, "worker"):
            frame = dd.read_parquet(str(job.rows))
            score_dask(frame, Scorer(job.folder)).to_parquet(str(job.output), write_index=False)


def run_duckdb(job: Job) -> None:
    """One query; the model has all cores."""
    import duckdb

    connection = duckdb.connect()
    add_to_duckdb(connection, Scorer(job.folder, threads=job.cores))
    job.output.mkdir()
    answers = f"SELECT id, text, predict(text) AS p FROM '{job.rows}/*.parquet'"
    query = f"SELECT id, text, p.prediction AS prediction, p.score AS score FROM ({answers})"
    with job.measured(lambda _: None, ""):
        connection.execute(f"COPY ({query}) TO '{job.output}/answers.parquet' (FORMAT parquet)")
    job.outcome.memory = {"process": round(_peak())}


def run_polars(job: Job) -> None:
    """One query; the model has all cores."""
    import polars

    job.output.mkdir()
    with job.measured(lambda _: None, ""):
        lazy = polars.scan_parquet(f"{job.rows}/*.parquet").pipe(score_polars, Scorer(job.folder, threads=job.cores))
        lazy.collect().write_parquet(job.output / "answers.parquet")
    job.outcome.memory = {"process": round(_peak())}


def run_predict(job: Job) -> None:
    """The command, with all cores."""
    output = job.output.with_suffix(".draft.parquet")
    command = ["predict", job.folder, "--input", str(job.rows), "--output", str(output), "--text", "text", "--force"]
    with job.measured(lambda process: "process" if "predict" in process.cmdline() else None, ""):
        subprocess.run([sys.executable, "-m", "ternarybert", *command, "--threads", str(job.cores)], check=True)
    job.output.mkdir()
    output.rename(job.output / "answers.parquet")


ENGINES: dict[str, Callable[[Job], None]] = {
    ALONE: run_predict,
    "spark": run_spark,
    "ray": run_ray,
    "dask": run_dask,
    "duckdb": run_duckdb,
    "polars": run_polars,
}


def _peak() -> float:
    """The largest memory of this process so far, in MB."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


# --- The rows, and the comparison of the answers --------------------------------------------------------------------


def read_sentences(path: Path, most: int) -> list[str]:
    """The different texts of a file that are neither short nor long."""
    low, high = WORDS
    lines = path.read_text(encoding="utf-8").splitlines()
    return list(islice(dict.fromkeys(line.strip() for line in lines if low <= len(line.split()) <= high), most))


def write_rows(texts: list[str], folder: Path, rows: int) -> Path:
    """The folder with the table, written unless it is there."""
    if folder.is_dir():
        return folder
    draft = Path(tempfile.mkdtemp(dir=folder.parent))
    size, filled = -(-rows // PARTS), cycle(texts)
    for part, first in enumerate(range(0, rows, size)):
        last = min(first + size, rows)
        table = pa.table({"id": pa.array(range(first, last), pa.int64()), "text": list(islice(filled, last - first))})
        pq.write_table(table, draft / f"part-{part:04}.parquet")
    return draft.rename(folder)


def read_answers(folder: Path) -> pa.Table:
    """The answers of an engine in the order of their ids."""
    kinds = {"id": pa.int64(), "text": pa.string(), "prediction": pa.string(), "score": pa.float64()}
    return ds.dataset(folder).to_table(columns=list(kinds)).sort_by("id").cast(pa.schema(list(kinds.items())))


def same(expected: pa.Table, found: pa.Table, texts: int, rows: int) -> bool:
    """Whether every row is there once, with the text, label and bits of the score that `predict` has for the text."""
    numbers = np.arange(rows)
    if not np.array_equal(found["id"].to_numpy(), numbers):
        return False
    wanted = expected.take(pa.array(numbers % texts))
    return all(wanted[name].equals(found[name]) for name in ("text", "prediction", "score"))


# --- The command ------------------------------------------------------------------------------------------------------


def run_engine(name: str, options: argparse.Namespace, rows: Path, count: int, kill_after: float | None) -> Outcome:
    """Run an engine in a process of its own."""
    output = options.out / name
    shutil.rmtree(output, ignore_errors=True)
    command = [sys.executable, __file__, str(options.folder), str(options.sentences), "--child", str(rows), str(output)]
    command += ["--rows", str(count), "--engine", name, "--cores", str(options.cores)]
    if kill_after is not None:
        command += ["--kill-after", str(kill_after)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONWARNINGS": "ignore"})
    return Outcome(**json.loads(output.with_suffix(".json").read_text()))


def run_child(options: argparse.Namespace) -> None:
    """Run one engine and save what was seen."""
    rows, output = (Path(path).resolve() for path in options.child)
    [name] = options.engine
    folder, outcome = str(options.folder.resolve()), Outcome(name, options.rows)
    ENGINES[name](Job(folder, rows, output, options.cores, outcome, options.kill_after))
    output.with_suffix(".json").write_text(json.dumps(asdict(outcome)))


def show(outcomes: list[Outcome], alone: list[Outcome]) -> None:
    """The outcomes as a table."""
    print(
        "\n| engine | rows | rows/s | of `predict` | start, s | memory of a process, MB | CPU, s | killed | answers |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for one in [alone[0], *outcomes]:
        memory = ", ".join(f"{name} {size:,.0f}" for name, size in one.memory.items())
        share = f"{one.share:.0%}" if one in outcomes else "-"
        equal = "equal" if one.equal or one is alone[0] else "DIFFERENT"
        used = ", ".join(f"{name} {seconds:,.0f}" for name, seconds in one.busy.items())
        cells = [
            one.engine,
            f"{one.rows:,}",
            f"{one.rate:,.0f}",
            share,
            f"{one.start:.1f}",
            memory,
            used,
            one.killed or "-",
        ]
        print(f"| {' | '.join([*cells, equal])} |")
    print("\n`predict` before and after each: " + ", ".join(f"{one.rate:,.0f}" for one in alone) + " rows/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("sentences", type=Path)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--alone", type=int, default=100_000, help="rows of `predict` before and after each engine")
    parser.add_argument("--engine", nargs="+", choices=list(ENGINES), default=["spark", "ray", "dask"])
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--kill", action="store_true", help="end a worker after a third of the time")
    parser.add_argument("--out", type=Path, default=Path("build/scale"))
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--kill-after", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        run_child(options)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    alone_rows = min(options.alone, options.rows)
    texts = read_sentences(options.sentences, alone_rows)
    words = sum(len(text.split()) for text in texts) / len(texts)
    print(
        f"{options.rows:,} rows of {len(texts):,} different texts, {words:.1f} words, {options.cores} cores", flush=True
    )
    table = write_rows(texts, options.out / f"rows-{options.rows}-of-{len(texts)}", options.rows)
    first = write_rows(texts, options.out / f"rows-{alone_rows}-of-{len(texts)}", alone_rows)
    alone, outcomes = [run_engine(ALONE, options, first, alone_rows, None)], []
    expected = read_answers(options.out / ALONE)
    for name in options.engine:
        # A third of the time that the rows take on all cores.
        late = options.rows / alone[-1].rate / 3 if options.kill and name in KILLED else None
        outcome = run_engine(name, options, table, options.rows, late)
        alone.append(run_engine(ALONE, options, first, alone_rows, None))
        outcome.share = 2 * outcome.rate / (alone[-2].rate + alone[-1].rate)
        outcome.equal = same(expected, read_answers(options.out / name), len(texts), options.rows)
        outcomes.append(outcome)
        print(f"{name}: {outcome.rate:,.0f} rows/s, {outcome.share:.0%} of `predict`", flush=True)
    show(outcomes, alone)
    if not all(one.equal for one in outcomes):
        sys.exit("some answers are missing, doubled or different")


STARTED = time.monotonic()

if __name__ == "__main__":
    main()
