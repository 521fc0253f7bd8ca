"""The package and its demo page in real Chromium (Debian: chromium): the same bits, both kernels, and offline."""

import base64
import functools
import http.server
import json
import os
import shutil
import threading
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright
from tools.js_demo import make_demo

from tests.serve.test_page import FLAGS, PROGRAM, WINDOWS

# The bits of rows, as tests/js/models.py writes them.
BITS = """async ([name, kernel, texts]) => {
  const { load } = await import("./ternarybert/index.js");
  const model = await load(`models/${name}.tbert`, { kernel });
  const bits = (rows) => btoa(rows.map((row) => String.fromCharCode(...new Uint8Array(row.buffer))).join(""));
  return [model.kernel, bits(model.logits(texts)), bits(model.embed(texts))];
}"""
# Of what cannot be loaded, the names; then an answer.
REFUSALS = """async () => {
  const { load } = await import("./ternarybert/index.js");
  const good = new Uint8Array(await (await fetch("models/classifier.tbert")).arrayBuffer());
  const damaged = good.slice();
  damaged[300] ^= 1;
  const sources = [good.subarray(0, 500), damaged, "models/bpe.tbert", "models/nothing.tbert", "http://[", undefined];
  const names = await Promise.all(sources.map((source) => load(source).catch((error) => error.name)));
  return [...names, (await load(good)).labels.length];
}"""


def rows(text, count):
    data = base64.b64decode(text)
    width = len(data) // count
    return [data[i * width : (i + 1) * width] for i in range(count)]


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class Site:
    """A folder over HTTP, until it is stopped."""

    def __init__(self, folder):
        handler = functools.partial(QuietHandler, directory=str(folder))
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def site(models, tmp_path):
    make_demo(models / "embedder", tmp_path / "site")
    (tmp_path / "site" / "models").mkdir()
    for path in models.glob("*.tbert"):
        shutil.copy(path, tmp_path / "site" / "models")
    site = Site(tmp_path / "site")
    yield site
    site.stop()


@pytest.fixture(scope="module")
def browser():
    assert PROGRAM, "install Chromium (Debian: apt-get install chromium)"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PROGRAM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_demo(browser, site):
    """Opens the page and waits for its answers; in the end there was no message and no request to another host."""
    problems, contexts = [], []

    def opened(device="desktop", scheme="light"):
        width, height = WINDOWS[device]
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "request", lambda request: request.url.startswith((site.address, "data:")) or problems.append(request.url)
        )
        page.goto(site.address)
        page.wait_for_selector("#classes li")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert problems == []


@pytest.mark.parametrize("kernel", ["simd128", "relaxed-simd"])
@pytest.mark.parametrize("count", [40, pytest.param(500, marks=pytest.mark.slow)])
def test_bits(browser, site, models, kernel, count):
    wanted = json.loads((models / "minilm.json").read_text())
    page = browser.new_page()
    page.goto(f"{site.address}style.css")  # any file: only the package is used
    found, logits, vectors = page.evaluate(BITS, ["minilm", kernel, wanted["texts"][:count]])
    page.close()
    assert found == kernel
    assert rows(logits, count) == rows(wanted["logits"], len(wanted["texts"]))[:count]
    assert rows(vectors, count) == rows(wanted["mean"], len(wanted["texts"]))[:count]


def test_what_cannot_be_loaded(browser, site):
    page = browser.new_page()
    page.goto(f"{site.address}style.css")
    names = page.evaluate(REFUSALS)
    page.close()
    refusals = ["ContainerError", "ContainerError", "UnsupportedModelError", "ReadError", "ReadError", "ArgumentError"]
    assert names == [*refusals, 3]


def test_a_server_that_does_not_know_webassembly(browser, site, models, monkeypatch):
    """It is compiled from its bytes then; a browser compiles while it loads only what is called application/wasm."""
    monkeypatch.setitem(QuietHandler.extensions_map, ".wasm", "application/octet-stream")
    wanted = json.loads((models / "classifier.json").read_text())
    page = browser.new_page()
    page.goto(f"{site.address}style.css")
    _, logits, _ = page.evaluate(BITS, ["classifier", "simd128", wanted["texts"]])
    page.close()
    assert logits == wanted["logits"]


def test_search_and_classes(open_demo, models):
    page = open_demo()
    assert "MB loaded, ready after" in page.inner_text("#status")
    assert "kernel relaxed-simd" in page.inner_text("#status")
    page.fill("#passages", "a dull plot\ngood film\nfun")
    page.fill("#query", "good film")
    page.wait_for_function("document.querySelector('#found li')?.innerText.startsWith('good film')")
    assert page.locator("#found li").count() == 3
    assert page.locator("#found li").first.inner_text().split()[-1] == "1.000"
    assert "3 passages in" in page.inner_text("#search-time")
    page.fill("#labels", "fun, dull")
    page.fill("#text", "dull")
    page.wait_for_function("document.querySelector('#classes li')?.innerText.startsWith('dull')")
    assert "ms" in page.inner_text("#classify-time")


def test_offline_after_the_first_visit(open_demo, site):
    page = open_demo()
    page.wait_for_selector("body[data-offline=ready]")
    site.stop()
    page.reload()
    page.wait_for_selector("#classes li")
    assert "MB loaded" in page.inner_text("#status")


@pytest.mark.parametrize("device", WINDOWS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_appearance(open_demo, tmp_path, device, scheme):
    """Nothing is wider than the window, and text has contrast. TERNARYBERT_SCREENSHOTS=FOLDER keeps the pictures."""
    page = open_demo(device, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= WINDOWS[device][0]
    folder = Path(os.environ.get("TERNARYBERT_SCREENSHOTS") or tmp_path)
    page.screenshot(path=folder / f"browser-{device}-{scheme}.png", full_page=True)
    colors = page.evaluate(
        "['color', 'backgroundColor'].map(n => getComputedStyle(document.body)[n].match(/\\d+/g).map(Number))"
    )
    text, back = (sum(color[:3]) for color in colors)
    assert (text < back) == (scheme == "light") and abs(text - back) > 400
