"""The page in real Chromium (Debian: chromium), light and dark, wide and narrow, by mouse and keyboard."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from .running import MODELS, RunningServer

PROGRAM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync"]
WINDOWS = {"desktop": (1280, 800), "phone": (390, 844)}


@pytest.fixture(scope="module")
def browser():
    assert PROGRAM, "install Chromium (Debian: apt-get install chromium)"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PROGRAM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser, server):
    """Opens the page; in the end there was no message in the console and no request to another host."""
    problems, contexts = [], []

    def opened(device="desktop", scheme="light"):
        width, height = WINDOWS[device]
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "request", lambda request: request.url.startswith((server.address, "data:")) or problems.append(request.url)
        )
        page.goto(server.address)
        page.wait_for_selector("textarea")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert problems == []


def ask(page, **fields):
    for name, text in fields.items():
        page.fill(f"textarea[name={name}]", text)
    page.click("#run")
    page.wait_for_selector("#run:enabled")  # only then the answer is there
    page.wait_for_selector("#time:not([hidden])")


def test_every_kind_of_model(open_page, direct):
    page = open_page()
    assert page.locator("#model option").count() == len(MODELS)
    ask(page, text="good film", texts="a dull plot\ngood film\nfun")
    shown = page.locator(".bars li").all_inner_texts()
    assert shown[0].split("\n")[0] == "good film" and len(shown) == 3  # the nearest first
    page.select_option("#model", "two")
    ask(page, text="a good film")
    best = direct["two"].predict("a good film")
    assert page.locator(".bars li").first.inner_text().split() == [best.label, f"{100 * best.score:.1f}", "%"]
    page.select_option("#model", "ranker")
    ask(page, text="good", texts="a\nfilm")
    assert page.locator(".bars li").count() == 2
    page.select_option("#model", "answers")
    context = "\U0001f600 the film was good <b>"  # the first character counts as one
    ask(page, text="was it fun", context=context)
    answer = direct["answers"].predict(("was it fun", context))
    assert page.locator("mark").first.evaluate("m => m.firstChild.textContent") == answer.text
    page.select_option("#model", "names")
    text = "we liked the film and hated it"
    ask(page, text=text)
    entities = direct["names"].predict(text).entities
    assert entities
    assert page.locator("mark").evaluate_all("all => all.map(m => m.firstChild.textContent)") == [
        e.text for e in entities
    ]
    assert "ms in the engine" in page.inner_text("#time")


def test_the_same_call_as_curl_python_and_javascript(open_page):
    """What the page shows is run as it stands and gives the same answer."""
    page = open_page()
    page.select_option("#model", "two")
    ask(page, text='it\'s a "good" film \\ $HOME `x` \u00e9')
    found = {}
    for name in ("curl", "python", "javascript"):
        page.click(f"[data-language={name}]")
        code = page.inner_text("#code")
        environment = os.environ | {"HOME": "wrong"}
        if name == "javascript":
            found[name] = page.evaluate(
                f"(async () => {{ let r; const console = {{log: (x) => r = x}}; {code}\nreturn r; }})()"
            )
        else:
            start = ["bash", "-c", f"{code} -s"] if name == "curl" else [sys.executable, "-c", code]
            done = subprocess.run(start, capture_output=True, text=True, check=True, env=environment)
            found[name] = json.loads(done.stdout.replace("'", '"'))
    assert found["curl"] == found["python"] == found["javascript"] and found["curl"][0]["label"] in ("yes", "no")


def test_the_same_call_to_a_server_with_a_key(browser, served_folder):
    with RunningServer(served_folder / "two", "--api-key", "k3y") as locked:
        page = browser.new_page(http_credentials={"username": "any", "password": "k3y"})
        page.goto(locked.address)
        page.wait_for_selector("textarea")
        for name, start in {"curl": ["bash", "-c"], "python": [sys.executable, "-c"]}.items():
            page.click(f"[data-language={name}]")
            code = page.inner_text("#code") + (" -s" if name == "curl" else "")
            environment = os.environ | {"TERNARYBERT_API_KEY": "k3y"}
            done = subprocess.run([*start, code], capture_output=True, text=True, check=True, env=environment)
            assert {one["label"] for one in json.loads(done.stdout.replace("'", '"'))} == {"yes", "no"}
        page.click("[data-language=javascript]")
        assert "TERNARYBERT_API_KEY" in page.inner_text("#code") and "k3y" not in page.content()
        page.close()


def test_keyboard_only(open_page):
    page = open_page()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "model"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "text"
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".bars li")
    page.focus("[data-language=curl]")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.language") == "python"
    assert "urllib" in page.inner_text("#code")


@pytest.mark.parametrize("device", WINDOWS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_appearance(open_page, tmp_path, device, scheme):
    """Nothing is wider than the window, and text has contrast. TERNARYBERT_SCREENSHOTS=FOLDER keeps the pictures."""
    page = open_page(device, scheme)
    for model in ("two", "names", "answers", "embedder"):
        page.select_option("#model", model)
        page.click("#run")
        page.wait_for_selector("#time:not([hidden])")
        assert page.evaluate("document.documentElement.scrollWidth") <= WINDOWS[device][0]
        folder = Path(os.environ.get("TERNARYBERT_SCREENSHOTS") or tmp_path)
        page.screenshot(path=folder / f"{model}-{device}-{scheme}.png", full_page=True)
    colors = page.evaluate(
        "['color', 'backgroundColor'].map(n => getComputedStyle(document.body)[n].match(/\\d+/g).map(Number))"
    )
    text, back = (sum(color[:3]) for color in colors)
    assert (text < back) == (scheme == "light") and abs(text - back) > 400


def test_an_error_is_shown(browser, server):
    """Chromium itself notes the status in its console, so this is not opened by `open_page`."""
    page = browser.new_page()
    page.goto(server.address)
    page.wait_for_selector("textarea")
    ask(page, texts="")
    assert page.inner_text(".error").startswith("422: ")
    ask(page, texts="x")
    assert page.locator(".bars li").count() == 1
    page.close()
