"""Round trips through a hub on this machine, in processes: huggingface_hub reads its settings when it is imported."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests import embedders, hub_server
from tests.runtime.folders import save_student
from tests.serve.running import RunningServer

TEXT = "a good film"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("hub") / "packed"
    save_student(path, "ForSequenceClassification")
    (path / "README.md").write_text("---\nlicense: mit\n---\n# A model\n")
    (path / "notes.bin").write_bytes(b"pickled")
    return path


@pytest.fixture
def hub():
    with hub_server.running() as running:
        yield running


def run(address, cache, *arguments, token=hub_server.TOKEN, **settings):
    """A `ternarybert` command with this hub."""
    environment = {
        **os.environ,
        "HF_ENDPOINT": address,
        "HF_HOME": str(cache),
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        **({} if token is None else {"HF_TOKEN": token}),
        **settings,
    }
    command = [sys.executable, "-m", "ternarybert", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=cache, check=False)


def publish(hub, folder, name="user/small"):
    """Put a folder onto the hub without a process."""
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    hub[0].commit(name, "main", files)


def one_line(done, *words):
    assert done.returncode == 2, done.stdout + done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("ternarybert: ")]
    assert len(lines) == 1 and "Traceback" not in done.stderr, done.stderr
    for word in words:
        assert word in lines[0]


def test_what_was_pushed_answers_as_the_folder(hub, folder, tmp_path):
    done = run(hub[1], tmp_path, "push", folder, "user/small")
    assert done.returncode == 0, done.stderr
    files = hub[0].files("user/small")
    assert files["ternarybert.safetensors"] == (folder / "ternarybert.safetensors").read_bytes()
    assert "README.md" in files and "notes.bin" not in files  # pickled files stay where they are
    files["onnx/model_q2.onnx"] = files["training_args.json"] = b"{}"  # not needed to run
    here, there = (run(hub[1], tmp_path, "predict", name, "--json", TEXT) for name in (folder, "user/small"))
    assert here.returncode == there.returncode == 0, there.stderr
    assert json.loads(here.stdout) == json.loads(there.stdout)
    fetched = {path.rpartition("/")[2] for method, path in hub[0].requests if method == "GET" and "resolve" in path}
    assert {"config.json", "ternarybert.safetensors", "tokenizer.json"} <= fetched
    assert not fetched & {"model_q2.onnx", "training_args.json", "README.md"}


def test_a_second_load_needs_no_network(hub, folder, tmp_path):
    publish(hub, folder)
    assert run(hub[1], tmp_path, "predict", "user/small", TEXT).returncode == 0
    before = len(hub[0].requests)
    done = run(hub[1], tmp_path, "predict", "user/small", TEXT, HF_HUB_OFFLINE="1")
    assert done.returncode == 0, done.stderr
    assert len(hub[0].requests) == before


def test_revisions_are_branches_and_commits(hub, folder, tmp_path):
    publish(hub, folder)
    commit = hub[0].models["user/small"]["refs"]["main"]
    hub[0].commit("user/small", "main", {})
    assert run(hub[1], tmp_path, "predict", f"user/small@{commit}", TEXT).returncode == 0
    one_line(run(hub[1], tmp_path, "predict", "user/small@missing", TEXT), "user/small", "missing")


@pytest.mark.parametrize(
    "command",
    [
        ("inspect",),
        ("unpack", "plain"),
        ("bundle", "one.tbert"),
        ("pack", "dense"),
        ("export", "--to", "onnx"),
        ("evaluate", "--engine", "native", "--eval", "rows.csv"),
        ("report", "--output", "page"),
        ("bench", "--engine", "ternarybert", "--rounds", "1", "--seconds", "0.01", "--batch", "1x8"),
    ],
    ids=lambda command: command[0],
)
def test_commands_take_ids(hub, folder, tmp_path, command):
    publish(hub, folder)
    (tmp_path / "rows.csv").write_text("text,label\na good film,LABEL_0\ndull,LABEL_1\nfun,LABEL_2\n")
    name, *more = command
    done = run(hub[1], tmp_path, name, "user/small", *more)
    assert done.returncode == 0, done.stderr
    if name == "export":  # here, and not in the hub's cache
        assert {path.name for path in (tmp_path / "small" / "onnx").iterdir()} == {"model_q2.onnx", "model_int8.onnx"}


@pytest.mark.parametrize("command", [("encode", "rows.txt", "--output", "rows.npy"), ("search", "rows.txt", "fun")])
def test_embedders_are_named_by_ids(hub, tmp_path, command):
    embedders.packed_embedder(tmp_path / "embedder")
    publish(hub, tmp_path / "embedder")
    (tmp_path / "rows.txt").write_text("a good film\ndull\n")
    done = run(hub[1], tmp_path, *command, "--model", "user/small")
    assert done.returncode == 0, done.stderr


def test_the_server_takes_ids(hub, folder, tmp_path):
    publish(hub, folder)
    commit = hub[0].models["user/small"]["refs"]["main"]
    environment = {"HF_ENDPOINT": hub[1], "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}
    with RunningServer(f"user/small@{commit}", environment=environment) as server:
        assert [one["id"] for one in server.send("GET", "/v1/models")[2]["data"]] == ["small"]


def test_a_wrong_token_is_one_line(hub, folder, tmp_path):
    publish(hub, folder)
    one_line(run(hub[1], tmp_path, "predict", "user/small", TEXT, token="hf_wrong"), "HF_TOKEN", "user/small")
    one_line(run(hub[1], tmp_path, "push", folder, "user/other", token="hf_wrong"), "HF_TOKEN", "user/other")


def test_an_unknown_model_is_one_line(hub, tmp_path):
    one_line(run(hub[1], tmp_path, "predict", "user/none", TEXT), "user/none")


def test_a_broken_download_is_one_line_and_mends_itself(hub, folder, tmp_path):
    publish(hub, folder)
    hub[0].broken = True
    one_line(run(hub[1], tmp_path, "predict", "user/small", TEXT), "user/small")
    hub[0].broken = False
    assert run(hub[1], tmp_path, "predict", "user/small", TEXT).returncode == 0


def test_offline_without_a_cache_is_one_line(hub, tmp_path):
    one_line(run(hub[1], tmp_path, "predict", "user/small", TEXT, HF_HUB_OFFLINE="1"), "HF_HUB_OFFLINE", "user/small")
    assert not hub[0].requests


def test_a_hub_that_is_not_there_is_one_line(tmp_path):
    one_line(run("http://127.0.0.1:9", tmp_path, "predict", "user/small", TEXT), "user/small")


def test_a_model_that_is_not_packed_is_not_downloaded(hub, tmp_path):
    hub[0].commit("user/plain", "main", {"config.json": b'{"model_type": "bert"}', "model.safetensors": b"0" * 9999})
    one_line(run(hub[1], tmp_path, "predict", "user/plain", TEXT), "user/plain", "not a packed model")
    assert not any("safetensors" in path for _, path in hub[0].requests)


def test_a_damaged_folder_is_not_pushed(hub, folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    weights = copy / "ternarybert.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    one_line(run(hub[1], tmp_path, "push", copy, "user/copy"), "copy")
    one_line(run(hub[1], tmp_path, "push", folder, "no-slash"), "no-slash")
    assert not hub[0].requests
