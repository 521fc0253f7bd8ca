"""The server under load: requests per second, latencies, errors and memory, beside what its engine can do at most.

For each number of clients a native load generator, wrk, sends texts of a file to /predict as fast as it gets answers,
one text per request. Beside it: `Model.predict` on the same texts in a process of its own with the same threads (the
most that a server can reach), the time that an idle server adds to a call, ONNX Runtime int8 behind the same HTTP
stack, other servers that run already (--other), and ten times as much load as the server can take.

    apt-get install wrk                          # Debian
    pip install 'ternarybert[serve,bench,train]'
    python bench/serve.py FOLDER SENTENCES [--seconds 60] [--clients 1 8 64] [--threads 2] [--workers 1] [--json FILE]
        [--other infinity=http://127.0.0.1:7997/classify --other-body '{"model": "m", "input": [TEXT]}']
        [--without onnx overload]

FOLDER is a packed classifier. SENTENCES has one text per line; of a TSV file every column with more than 20 characters
is a text (MRPC's and STS-B's files can be given as they are).
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

SCRIPT = """
local bodies = {}
for line in io.lines(os.getenv("BODIES")) do bodies[#bodies + 1] = line end
local pause, at, seed = tonumber(os.getenv("PAUSE")), 0, 0
function setup(thread) seed = seed + 1; thread:set("number", seed) end
function init(args) at = (number * 7919) % #bodies end
function request()
  at = at % #bodies + 1
  return wrk.format("POST", nil, {["content-type"] = "application/json"}, bodies[at])
end
if pause > 0 then function delay() return math.random() * 2 * pause end end
function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(
    'RESULT {"requests": %d, "seconds": %f, "p50": %f, "p95": %f, "p99": %f, "refused": %d, "errors": %d}\\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(95) / 1e3,
    latency:percentile(99) / 1e3, e.status, e.connect + e.read + e.write + e.timeout))
end
"""


@dataclass(frozen=True)
class Load:
    """What one phase of load measured; times in milliseconds, memory in MB."""

    side: str
    clients: int
    rate: float  # requests per second
    p50: float
    p95: float
    p99: float
    refused: int  # answered with an error status
    errors: int  # not answered
    memory_before: float
    memory_after: float


def read_texts(path: Path, count: int) -> list[str]:
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    if path.suffix == ".tsv":
        texts = [cell.strip() for line in lines[1:] for cell in line.split("\t") if len(cell) > 20]
    else:
        texts = [line.strip() for line in lines if line.strip()]
    return texts[:count]


def memory(process: psutil.Process) -> float:
    """Megabytes of a process and its children; what they share counts once."""
    return float(sum(one.memory_full_info().pss for one in [process, *process.children(recursive=True)])) / 1e6


@contextmanager
def server(options: argparse.Namespace, *, onnx: Path | None = None) -> Iterator[tuple[str, psutil.Process]]:
    """A running server: its address and its process."""
    arguments = ["serve", f"m={options.folder}", "--port", "0", "--log-level", "warning"]
    arguments += ["--workers", str(options.workers), "--threads", str(options.threads)]
    arguments += ["--truncate", "--max-requests", str(options.max_requests)]
    start = ["-m", "ternarybert"] if onnx is None else [__file__, "--serve-onnx", str(onnx), "--"]
    process = subprocess.Popen([sys.executable, *start, *arguments], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if line.startswith("serving on "):
                break
        else:
            raise SystemExit("the server did not start")
        threading.Thread(target=sys.stderr.writelines, args=(process.stderr,), daemon=True).start()
        yield line.split()[2], psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(60)


def wrk(address: str, bodies: Path, clients: int, seconds: float, pause: float = 0.0) -> dict[str, float]:
    """Run the load generator; with a pause each client waits that many milliseconds, on average, between requests."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(SCRIPT)
        script.flush()
        command = [
            "wrk",
            "-t",
            "1",
            "-c",
            str(clients),
            "-d",
            f"{seconds:g}s",
            "--timeout",
            "30s",
            "-s",
            script.name,
            address,
        ]
        environment = os.environ | {"BODIES": str(bodies), "PAUSE": str(pause)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    [line] = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    result: dict[str, float] = json.loads(line.removeprefix("RESULT "))
    return result


def load(side: str, address: str, process: psutil.Process | None, bodies: Path, clients: int, seconds: float) -> Load:
    wrk(address, bodies, clients, min(2.0, seconds))  # warm-up
    before = memory(process) if process else 0.0
    result = wrk(address, bodies, clients, seconds)
    times = (result["p50"], result["p95"], result["p99"])
    counts = (int(result["refused"]), int(result["errors"]))
    after = memory(process) if process else 0.0
    return Load(side, clients, result["requests"] / result["seconds"], *times, *counts, before, after)


class Probe:
    """One client that measures every request of its own, by its status."""

    def __init__(self, address: str, texts: list[str]) -> None:
        url = urlsplit(address)
        assert url.hostname is not None
        self.times: dict[int, list[float]] = {}
        self._host, self._port, self._path, self._texts = url.hostname, url.port, url.path, texts
        self._connection = http.client.HTTPConnection(self._host, self._port)

    def send(self, number: int) -> int:
        """Send a text and give the status of the answer."""
        body = json.dumps({"inputs": self._texts[number % len(self._texts)]})
        start = time.perf_counter()
        self._connection.request("POST", self._path, body, {"content-type": "application/json"})
        response = self._connection.getresponse()
        response.read()
        self.times.setdefault(response.status, []).append(1000 * (time.perf_counter() - start))
        return response.status

    def run(self, until: float) -> None:
        """Send one text after the other."""
        number = id(self) // 64
        while time.monotonic() < until:
            number += 1
            if self.send(number) == 429:
                time.sleep(0.05)


def percentiles(times: list[float]) -> dict[str, float]:
    if len(times) < 2:
        return {"count": len(times)}
    cuts = statistics.quantiles(times, n=100)
    return {"count": len(times), "p50": cuts[49], "p95": cuts[94], "p99": cuts[98], "max": max(times)}


def overload(
    address: str, process: psutil.Process, bodies: Path, texts: list[str], rate: float, options: Any
) -> dict[str, Any]:
    """Ten times as many requests as the server can answer; some clients measure what happens to theirs."""

    def measured(clients: int) -> dict[str, Any]:
        probes = [Probe(address, texts) for _ in range(4)]
        until = time.monotonic() + options.seconds
        threads = [threading.Thread(target=probe.run, args=(until,)) for probe in probes]
        for thread in threads:
            thread.start()
        pause = 1000 * clients / (10 * rate) if clients > options.max_requests else 0.0
        sent = wrk(address, bodies, clients, options.seconds, pause)
        for thread in threads:
            thread.join()
        by_status = {status: [t for probe in probes for t in probe.times.get(status, [])] for status in (200, 429)}
        answered = (sent["requests"] - sent["refused"]) / sent["seconds"]
        return {
            "sent_per_second": sent["requests"] / sent["seconds"],
            "answered_per_second": answered,
            "errors": sent["errors"],
            "accepted_ms": percentiles(by_status[200]),
            "refused_ms": percentiles(by_status[429]),
            "memory": memory(process),
        }

    full = max(1, options.max_requests - 8)  # the queue is full, but nobody is refused
    return {"full": measured(full), "tenfold": measured(10 * options.max_requests), "after": measured(full)}


OFFLINE = """
import json, sys, time
from ternarybert import load
folder, threads, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
texts = json.load(sys.stdin)
import warnings; warnings.simplefilter("ignore")
model = load(folder, num_threads=threads)
model.predict(texts[:256])
one = []
for text in texts[:300]:
    start = time.perf_counter(); model.predict(text); one.append(1000 * (time.perf_counter() - start))
done, start = 0, time.perf_counter()
while time.perf_counter() - start < seconds:
    model.predict(texts); done += len(texts)
print(json.dumps({"rate": done / (time.perf_counter() - start), "p50_single": sorted(one)[len(one) // 2]}))
"""


def offline(options: argparse.Namespace, texts: list[str]) -> dict[str, float]:
    command = [sys.executable, "-c", OFFLINE, str(options.folder), str(options.threads * options.workers)]
    done = subprocess.run(
        [*command, str(options.seconds)], input=json.dumps(texts), capture_output=True, text=True, check=True
    )
    result: dict[str, float] = json.loads(done.stdout)
    return result


def added_latency(address: str, texts: list[str], direct: float) -> dict[str, float]:
    """One request after the other to an idle server, beside the same calls without one."""
    probe = Probe(address, texts)
    for number in range(700):
        probe.send(number if number < 400 else number - 400)
    p50 = sorted(probe.times[200][400:])[150]
    return {"p50": p50, "direct_p50": direct, "added": p50 - direct}


def prepare_onnx(folder: Path, run: Path) -> None:
    """The same weights as float32, exported and quantized by ONNX Runtime."""
    from ternarybert.bench.engines import PLAIN, onnxruntime_int8
    from ternarybert.packed import read
    from ternarybert.packed.hf_folder import write_plain

    write_plain(run / PLAIN, read(folder), tokenizer=folder)
    onnxruntime_int8(run, 1)


def serve_onnx(run: Path, arguments: list[str]) -> None:
    """`ternarybert serve`, but ONNX Runtime computes. Only the engine is another."""
    import numpy as np

    from ternarybert.bench.engines import onnxruntime_int8
    from ternarybert.cli import make_app
    from ternarybert.runtime.network import Batch, Output
    from ternarybert.serve.served_model import ServedModel

    class OrtRunner:
        """Padded batches for ONNX Runtime."""

        def __init__(self, runner: Any, threads: int) -> None:
            self.sizes, self.kernel, self._call = runner.sizes, "onnxruntime", onnxruntime_int8(run, threads)

        def run(self, batch: Batch, output: Output) -> Any:
            # Padding costs, so what is about equally long runs together; ORT is slower on larger batches.
            order = np.argsort(batch.lengths, kind="stable")
            starts, rows = batch.starts(), np.empty((len(order), self.sizes.head), np.float32)
            for first in range(0, len(order), 16):
                part = order[first : first + 16]
                longest = int(batch.lengths[part].max())
                feed = {
                    n: np.zeros((len(part), longest), np.int64)
                    for n in ("input_ids", "token_type_ids", "attention_mask")
                }
                for row, index in enumerate(part):
                    length = batch.lengths[index]
                    feed["input_ids"][row, :length] = batch.ids[starts[index] : starts[index] + length]
                    feed["attention_mask"][row, :length] = 1
                rows[part] = self._call(feed)[0]
            return rows

        def close(self) -> None:
            """Nothing to free."""

    original = ServedModel.load

    def load_with_onnx(self: ServedModel) -> Any:
        model = original(self)
        model.runner = OrtRunner(model.runner, model.num_threads)
        return model

    ServedModel.load = load_with_onnx  # type: ignore[method-assign]
    make_app(["serve", "doctor"])(arguments, prog_name="ternarybert")


def show(loads: list[Load], result: dict[str, Any]) -> None:
    print("| side | clients | requests/s | p50 ms | p95 | p99 | refused | errors | MB before | after |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for one in loads:
        times = [f"{value:.1f}" for value in (one.p50, one.p95, one.p99)]
        used = [f"{value:.0f}" for value in (one.memory_before, one.memory_after)]
        cells = (one.side, one.clients, f"{one.rate:.0f}", *times, one.refused, one.errors, *used)
        print(f"| {' | '.join(map(str, cells))} |")
    most = max(one.rate for one in loads if one.side == "ternarybert" and one.clients == max(result["clients"]))
    reached = 100 * most / result["offline"]["rate"]
    print(f"offline: {result['offline']['rate']:.0f} texts/s; the server reaches {reached:.0f} %")
    print("idle server, ms: " + ", ".join(f"{name} {value:.2f}" for name, value in result["idle"].items()))
    for phase, values in result.get("overload", {}).items():
        print(f"{phase}: {json.dumps(rounded(values))}")


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: rounded(inner) for name, inner in value.items()}
    return round(value, 1)


def main() -> None:
    if sys.argv[1:2] == ["--serve-onnx"]:
        serve_onnx(Path(sys.argv[2]), sys.argv[4:])  # behind --
        return
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, help="packed classifier")
    parser.add_argument("sentences", type=Path, help="one text per line, or TSV")
    parser.add_argument("--texts", type=int, default=2000, help="how many of them")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of each worker's engine")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--max-requests", type=int, default=128)
    parser.add_argument("--other", action="append", default=[], metavar="NAME=URL", help="another server's route")
    parser.add_argument("--other-body", default='{"inputs": TEXT}', help="its request; TEXT is replaced")
    parser.add_argument("--without", nargs="+", default=[], choices=["onnx", "overload"])
    parser.add_argument("--json", type=Path, help="write the result to this file, too")
    options = parser.parse_args()
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is not installed (Debian: apt-get install wrk)")
    texts = read_texts(options.sentences, options.texts)
    result: dict[str, Any] = {"clients": options.clients, "settings": {k: str(v) for k, v in vars(options).items()}}
    loads: list[Load] = []
    with tempfile.TemporaryDirectory() as temporary:
        bodies = Path(temporary) / "bodies"
        bodies.write_text("\n".join(json.dumps({"inputs": text}) for text in texts), encoding="utf-8")
        if "onnx" not in options.without:
            prepare_onnx(options.folder, Path(temporary))
        result["offline"] = offline(options, texts)
        with server(options) as (address, process):
            address += "/predict"
            result["idle"] = added_latency(address, texts, result["offline"]["p50_single"])
            loads += [load("ternarybert", address, process, bodies, n, options.seconds) for n in options.clients]
            if "overload" not in options.without:
                result["overload"] = overload(address, process, bodies, texts, loads[-1].rate, options)
        if "onnx" not in options.without:
            with server(options, onnx=Path(temporary)) as (address, process):
                side = "ONNX Runtime int8, same stack"
                loads += [
                    load(side, f"{address}/predict", process, bodies, n, options.seconds) for n in options.clients
                ]
        for other in options.other:
            name, _, address = other.partition("=")
            lines = [options.other_body.replace("TEXT", json.dumps(text)) for text in texts]
            bodies.write_text("\n".join(lines), encoding="utf-8")
            loads += [load(name, address, None, bodies, n, options.seconds) for n in options.clients]
    result["loads"] = [asdict(one) for one in loads]
    show(loads, result)
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
