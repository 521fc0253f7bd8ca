"""The server under load: requests per second, latencies, errors and memory, beside what its engine can do at most.

A native load generator, wrk, sends texts of a file to /predict or /embed as fast as it gets answers, one text per
request. Beside it, in one command: `Model.predict` or `Model.encode` on the same texts in a process of its own with the
same threads (the most that a server can reach), the time that an idle server adds to a call, ten times as much load as
the server can take, ONNX Runtime int8 behind the same HTTP stack, and infinity with torch.

    apt-get install wrk                                       # Debian
    pip install 'ternarybert[serve,bench,train]'
    python -m venv infinity && infinity/bin/pip install 'infinity-emb[server,torch]'   # its own: other versions
    python bench/serve.py FOLDER SENTENCES... --infinity infinity/bin/infinity_emb --json serve.json

FOLDER is a packed classifier or embedder. SENTENCES has one text per line; of a TSV file every column with more than 20
characters is a text (MRPC's and STS-B's files can be given as they are). With 60 seconds per point it takes some 9
minutes. Without --infinity that side is left out; --without leaves out others.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from ternarybert import load as load_model

OURS = "ternarybert"

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
    cores: float  # that the server's processes used
    generator_cores: float  # that the load generator used


def read_texts(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    if path.suffix == ".tsv":
        return [cell.strip() for line in lines[1:] for cell in line.split("\t") if len(cell) > 20]
    return [line.strip() for line in lines if line.strip()]


def memory(process: psutil.Process) -> float:
    """Megabytes of a process and its children; what they share counts once."""
    return float(sum(one.memory_full_info().pss for one in [process, *process.children(recursive=True)])) / 1e6


@contextmanager
def server(options: argparse.Namespace, *, onnx: Path | None = None) -> Iterator[tuple[str, psutil.Process]]:
    """A running server: its address and its process."""
    arguments = ["serve", f"m={options.folder}", "--port", "0", "--log-level", "warning"]
    arguments += ["--workers", str(options.workers), "--threads", str(options.threads)]
    arguments += ["--truncate", "--max-requests", str(options.max_requests)]
    if options.max_batch_tokens is not None:
        arguments += ["--max-batch-tokens", str(options.max_batch_tokens)]
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


@contextmanager
def infinity(options: argparse.Namespace, run: Path) -> Iterator[tuple[str, psutil.Process]]:
    """A running infinity with the same weights in float32.

    Its engine optimum, which would run int8, does not find ONNX files of a local folder (infinity-emb 0.0.78).
    """
    from ternarybert.bench.engines import PLAIN

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = ["v2", "--model-id", str(run / PLAIN), "--served-model-name", "m", "--engine", "torch"]
    arguments += ["--device", "cpu", "--port", str(port), "--host", "127.0.0.1", "--no-bettertransformer"]
    offline = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "INFINITY_ANONYMOUS_USAGE_STATS": "0"}
    threads = {"OMP_NUM_THREADS": str(options.threads * options.workers)}
    with (run / "infinity.log").open("w") as log:
        command = [str(options.infinity), *arguments]
        process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | offline | threads)
    try:
        address = f"http://127.0.0.1:{port}"
        end = time.monotonic() + 300
        while not _healthy(f"{address}/health"):
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"infinity did not start:\n{Path(log.name).read_text()[-3000:]}")
            time.sleep(0.5)
        yield address, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(60)


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


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


def cpu_seconds(process: psutil.Process) -> float:
    """Of a process and its children."""
    return float(sum(sum(one.cpu_times()[:2]) for one in [process, *process.children(recursive=True)]))


def generator_seconds() -> float:
    """CPU time of the load generators that have ended."""
    times = psutil.Process().cpu_times()
    return float(times.children_user + times.children_system)


def load(side: str, address: str, process: psutil.Process, bodies: Path, clients: int, seconds: float) -> Load:
    wrk(address, bodies, clients, min(2.0, seconds))  # warm-up
    before, used, generated = memory(process), cpu_seconds(process), generator_seconds()
    result = wrk(address, bodies, clients, seconds)
    cores = [
        (now - then) / result["seconds"]
        for now, then in ((cpu_seconds(process), used), (generator_seconds(), generated))
    ]
    times = (result["p50"], result["p95"], result["p99"])
    counts = (int(result["refused"]), int(result["errors"]))
    return Load(side, clients, result["requests"] / result["seconds"], *times, *counts, before, memory(process), *cores)


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

    def measured(clients: int, seconds: float) -> dict[str, Any]:
        probes = [Probe(address, texts) for _ in range(4)]
        until = time.monotonic() + seconds
        threads = [threading.Thread(target=probe.run, args=(until,)) for probe in probes]
        for thread in threads:
            thread.start()
        pause = 1000 * clients / (10 * rate) if clients > options.max_requests else 0.0
        sent = wrk(address, bodies, clients, seconds, pause)
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
    short, tenfold = min(options.seconds, 20.0), 10 * options.max_requests
    return {
        "full": measured(full, short),
        "tenfold": measured(tenfold, options.seconds),
        "after": measured(full, short),
    }


OFFLINE = """
import json, sys, time, warnings
from ternarybert import load
warnings.simplefilter("ignore")
folder, threads, seconds, method = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
texts = json.load(sys.stdin)
compute = getattr(load(folder, num_threads=threads), method)
compute(texts[:256])
done, start = 0, time.perf_counter()
while time.perf_counter() - start < seconds:
    compute(texts)
    done += len(texts)
print(done / (time.perf_counter() - start))
"""


def offline(options: argparse.Namespace, method: str, texts: list[str], seconds: float) -> float:
    """Texts per second without a server."""
    threads = str(options.threads * options.workers)
    command = [sys.executable, "-c", OFFLINE, str(options.folder), threads, str(seconds), method]
    return float(subprocess.run(command, input=json.dumps(texts), capture_output=True, text=True, check=True).stdout)


def added_latency(address: str, compute: Any, texts: list[str], seconds: float) -> dict[str, float]:
    """An idle server and the same call without one, by turns, text by text."""
    url = urlsplit(address)
    direct, served = list[float](), list[float]()
    with socket.create_connection((str(url.hostname), int(url.port or 80))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end = time.monotonic() + seconds
        for number, text in enumerate(cycle(texts)):
            body = json.dumps({"inputs": text}).encode()
            head = f"POST {url.path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            request = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
            start = time.perf_counter()
            compute(text)
            middle = time.perf_counter()
            connection.sendall(request)
            _receive(connection)
            if number >= 50:  # the first ones warm up
                direct.append(1000 * (middle - start))
                served.append(1000 * (time.perf_counter() - middle))
            if number >= 100 and time.monotonic() > end:
                break
    medians = statistics.median(served), statistics.median(direct)
    added = statistics.median(one - other for one, other in zip(served, direct, strict=True))
    return {"served_p50": medians[0], "direct_p50": medians[1], "added_p50": added, "calls": len(direct)}


def _receive(connection: socket.socket) -> None:
    """Read one response with a content-length."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(1 << 20)
    head, _, body = data.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        raise SystemExit(f"the server answered {head.splitlines()[0].decode()}")
    [length] = re.findall(rb"(?i)content-length: (\d+)", head)
    missing = int(length) - len(body)
    while missing > 0:
        missing -= len(connection.recv(1 << 20))


def is_embedder(folder: Path) -> bool:
    """Whether a packed model has no head."""
    from ternarybert.packed import read
    from ternarybert.runtime.load import network_of

    return network_of(read(folder)).head is None


def prepare_onnx(folder: Path, run: Path) -> None:
    """The same weights as float32, exported and quantized by ONNX Runtime."""
    from embedders import export  # type: ignore[import-not-found]  # beside this file
    from ternarybert.bench.engines import PLAIN, onnxruntime_int8
    from ternarybert.packed import read
    from ternarybert.packed.hf_folder import write_plain

    write_plain(run / PLAIN, read(folder), tokenizer=folder)
    if is_embedder(folder):
        export(run / PLAIN, run / "model.int8.onnx")
    else:
        onnxruntime_int8(run, 1)


def padded(sequences: list[Any]) -> dict[str, Any]:
    """Sequences of one token type as ONNX Runtime takes them."""
    import numpy as np

    shape = len(sequences), max(map(len, sequences))
    feed = {name: np.zeros(shape, np.int64) for name in ("input_ids", "token_type_ids", "attention_mask")}
    for row, ids in enumerate(sequences):
        feed["input_ids"][row, : len(ids)] = ids
        feed["attention_mask"][row, : len(ids)] = 1
    return feed


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
            self.sizes, self.kernel = runner.sizes, "onnxruntime"
            self._calls = {False: onnxruntime_int8(run, threads), True: onnxruntime_int8(run, 1)}

        def run(self, batch: Batch, output: Output, *, alone: bool = False) -> Any:
            # Padding costs, so what is about equally long runs together; ORT is slower on larger batches.
            order = np.argsort(batch.lengths, kind="stable")
            width = self.sizes.head or self.sizes.hidden
            starts, rows = batch.starts(), np.empty((len(order), width), np.float32)
            for first in range(0, len(order), 16):
                part = order[first : first + 16]
                feed = padded([batch.ids[starts[i] : starts[i + 1]] for i in part])
                rows[part] = self._pooled(self._calls[alone](feed)[0], feed["attention_mask"])
            return rows

        def _pooled(self, states: Any, mask: Any) -> Any:
            """An embedder's mean over tokens; logits are complete."""
            if states.ndim == 2:
                return states
            return np.matmul(mask[:, None, :].astype(np.float32), states)[:, 0] / mask.sum(1, keepdims=True)

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
    print(
        "| side | clients | requests/s | p50 ms | p95 | p99 | refused | errors | MB before | after | cores | of wrk |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for one in loads:
        times = [f"{value:.1f}" for value in (one.p50, one.p95, one.p99)]
        used = [f"{value:.0f}" for value in (one.memory_before, one.memory_after)]
        cores = [f"{value:.2f}" for value in (one.cores, one.generator_cores)]
        cells = (one.side, one.clients, f"{one.rate:.0f}", *times, one.refused, one.errors, *used, *cores)
        print(f"| {' | '.join(map(str, cells))} |")
    print(f"offline: {' and '.join(f'{rate:.0f}' for rate in result['offline'])} texts/s")
    print("idle server, ms: " + ", ".join(f"{name} {value:.2f}" for name, value in result["idle"].items()))
    for phase, values in result.get("overload", {}).items():
        print(f"{phase}: {json.dumps(rounded(values))}")
    for name, value in result["summary"].items():
        print(f"{name}: {value:.2f}")


def summary(loads: list[Load], result: dict[str, Any]) -> dict[str, float]:
    """The figures that claims are made of."""
    ours = [one for one in loads if one.side == OURS]
    most = next(one for one in ours if one.clients == max(result["clients"]))
    others = [one.rate for one in loads if one.side != OURS and one.clients == most.clients]
    figures = {
        "share of offline": most.rate / statistics.mean(result["offline"]),
        "added latency of an idle server, ms at p50": result["idle"]["added_p50"],
        "errors": sum(one.errors + one.refused for one in ours),
        "memory at the start, MB": ours[0].memory_before,
        "memory after all clients, MB": ours[-1].memory_after,
    }
    if others:
        figures["times the best other server"] = most.rate / max(others)
    if "overload" in result and result["overload"]["full"]["accepted_ms"].get("p99"):  # else it was too short
        full, tenfold, after = (result["overload"][phase] for phase in ("full", "tenfold", "after"))
        figures |= {
            "tenfold load: sent, times capacity": tenfold["sent_per_second"] / most.rate,
            "tenfold load: p99 of accepted requests, times that of a full queue": tenfold["accepted_ms"].get("p99", 0.0)
            / full["accepted_ms"]["p99"],
            "tenfold load: p50 of refusals, ms": tenfold["refused_ms"].get("p50", 0.0),
            "tenfold load: memory, MB": tenfold["memory"],
            "after it: requests/s, times those before": after["answered_per_second"]
            / max(full["answered_per_second"], 1e-9),
        }
    return figures


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: rounded(inner) for name, inner in value.items()}
    return round(value, 1)


def main() -> None:
    if sys.argv[1:2] == ["--serve-onnx"]:
        serve_onnx(Path(sys.argv[2]), sys.argv[4:])  # behind --
        return
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, help="packed classifier or embedder")
    parser.add_argument("sentences", type=Path, nargs="+", help="one text per line, or TSV")
    parser.add_argument("--texts", type=int, default=2000, help="how many of them, spread over the files")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of each worker's engine")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--max-requests", type=int, default=128)
    parser.add_argument("--max-batch-tokens", type=int, help="as of `ternarybert serve`")
    parser.add_argument("--infinity", type=Path, help="the command infinity_emb of its own environment")
    parser.add_argument("--without", nargs="+", default=[], choices=["onnx", "overload"])
    parser.add_argument("--json", type=Path, help="write the result to this file, too")
    options = parser.parse_args()
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is not installed (Debian: apt-get install wrk)")
    every = [text for path in options.sentences for text in read_texts(path)]
    texts = every[:: max(1, len(every) // options.texts)][: options.texts]
    with tempfile.TemporaryDirectory() as temporary:
        loads, result = measure(options, texts, Path(temporary))
    result["loads"], result["summary"] = [asdict(one) for one in loads], summary(loads, result)
    show(loads, result)
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def measure(options: argparse.Namespace, texts: list[str], run: Path) -> tuple[list[Load], dict[str, Any]]:
    embeds = is_embedder(options.folder)
    method, route, other_route = ("encode", "/embed", "/embeddings") if embeds else ("predict", "/predict", "/classify")
    bodies, other_bodies = run / "bodies", run / "other-bodies"
    bodies.write_text("\n".join(json.dumps({"inputs": text}) for text in texts), encoding="utf-8")
    lines = [json.dumps({"model": "m", "input": [text]}) for text in texts]
    other_bodies.write_text("\n".join(lines), encoding="utf-8")
    loads: list[Load] = []
    most, seconds = max(options.clients), options.seconds
    short = min(seconds, 10.0)  # enough for what has no load
    if "onnx" not in options.without or options.infinity:
        prepare_onnx(options.folder, run)
    result: dict[str, Any] = {"clients": options.clients, "settings": {k: str(v) for k, v in vars(options).items()}}
    result["offline"] = [offline(options, method, texts, short)]  # before and after the server, as machines change
    with server(options) as (address, process):
        address += route
        compute = getattr(load_model(options.folder, num_threads=options.threads), method)
        result["idle"] = added_latency(address, compute, texts, short)
        loads += [load(OURS, address, process, bodies, n, seconds) for n in options.clients]
        result["offline"].append(offline(options, method, texts, short))
        if "overload" not in options.without:
            result["overload"] = overload(address, process, bodies, texts, loads[-1].rate, options)
    if "onnx" not in options.without:
        with server(options, onnx=run) as (address, process):
            loads.append(load("ONNX Runtime int8, same stack", address + route, process, bodies, most, seconds))
    if options.infinity:
        with infinity(options, run) as (address, process):
            loads.append(load("infinity, torch float32", address + other_route, process, other_bodies, most, seconds))
    return loads, result


if __name__ == "__main__":
    main()
