"""Keys, limits, overload, disconnects, shutdown, reload, workers, logs and metrics, each with a real server."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from ternarybert.cli.serve import API_KEY_VARIABLE
from ternarybert.errors import OptionError
from ternarybert.serve.settings import named_folders
from tests.cli.shell import command

from .running import RunningServer
from .test_batching import sentences

HEAVY = {"inputs": sentences(900), "truncate": True}


def until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


KEY = "s3cret-key"
ROUTES = [
    *(
        ("GET", path)
        for path in ("/", "/info", "/metrics", "/openapi.json", "/v1/models", "/v1/models/embedder", "/nothing")
    ),
    *(
        ("POST", path)
        for path in ("/", "/embed", "/embed_all", "/predict", "/rerank", "/similarity", "/tokenize", "/ner")
    ),
    *(("POST", path) for path in ("/qa", "/v1/embeddings", "/v1/rerank", "/v2/rerank", "/models/embedder/embed")),
]


@pytest.fixture(scope="module", params=["option", "variable", "file"])
def locked(request, served_folder, tmp_path_factory):
    """A server with a key, given in each way."""
    arguments, environment = [served_folder / "embedder"], {}
    if request.param == "option":
        arguments += ["--api-key", KEY]
    elif request.param == "variable":
        environment[API_KEY_VARIABLE] = f"{KEY}\n"  # as secrets often end
    else:
        path = tmp_path_factory.mktemp("key") / "key"
        path.write_text(f"{KEY}\n")
        arguments += ["--api-key-file", path]
    with RunningServer(*arguments, environment=environment) as running:
        yield running


def test_without_the_key_every_route_but_health_is_401(locked):
    assert locked.send("GET", "/health")[0] == 200
    given = ("Bearer wrong", f"Bearer {KEY}x", "Basic ???", "Basic \u00e9", "Basic /w==", "Digest x", "Basic")
    wrong = [{}, *({"authorization": value} for value in given)]
    for method, path in ROUTES:
        for headers in wrong:
            status, found, error = locked.send(method, path, {"inputs": "x"} if method == "POST" else None, headers)
            assert status == 401 and "www-authenticate" in found, path
            assert KEY not in json.dumps(error)
    basic = b64encode(f"any:{KEY}".encode()).decode()
    for headers in ({"authorization": f"Bearer {KEY}"}, {"authorization": f"Basic {basic}"}, {"x-api-key": KEY}):
        assert locked.post("/embed", {"inputs": "x"}, headers=headers)[0] == 200
        assert locked.send("GET", "/", headers=headers)[0] == 200


def test_limits(served_folder):
    limits = ["--max-texts", 3, "--max-tokens", 40, "--max-body", 1000]
    with RunningServer(served_folder / "embedder", *limits) as server:
        assert server.post("/embed", {"inputs": ["x"] * 3})[0] == 200
        for body in ({"inputs": ["x"] * 4}, {"inputs": ["x " * 20] * 2}, {"inputs": "x" * 1000}):
            status, _, error = server.post("/embed", body)
            assert (status, error["error_type"]) == (413, "Validation")
        assert server.post("/tokenize", {"inputs": "x " * 41})[0] == 413
        assert server.post("/embed_all", {"inputs": "x " * 10})[0] == 413  # an eighth of the tokens
        assert server.post("/embed", {"inputs": []})[0] == 400


def test_overload_is_refused_quickly_and_forgotten(slow_folder):
    with RunningServer(slow_folder, "--max-requests", 4) as server:
        statuses, refused = [], []

        def ask(_):
            start = time.perf_counter()
            status, headers, error = server.post("/embed", HEAVY)
            statuses.append(status)
            if status == 429:
                refused.append(time.perf_counter() - start)
                assert int(headers["retry-after"]) >= 1 and error["error_type"] == "Overloaded"

        with ThreadPoolExecutor(40) as pool:
            list(pool.map(ask, range(160)))
        assert set(statuses) == {200, 429}
        assert server.post("/embed", {"inputs": "x"})[0] == 200
        assert server.metric("te_queue_size") == 0
        assert server.metric("te_request_failure") == len(refused)


@contextmanager
def full_server(folder, *arguments, **headers):
    """A server that answers one request and takes no other meanwhile."""
    slow = ["--max-requests", 1, "--max-batch-tokens", 16]
    with RunningServer(folder, *slow, *arguments) as server, ThreadPoolExecutor(1) as pool:
        long = pool.submit(server.post, "/embed", HEAVY, headers=headers)
        until(lambda: server.metric("te_queue_size", headers) > 0)
        yield server
        assert not long.done(), "the request that fills the server was answered too soon for this test"


def test_a_refused_request_leaves_its_connection_open(slow_folder):
    """Its body is read and ignored, however it is cut; what comes after it is answered."""
    with full_server(slow_folder) as server:
        sent = (
            b"POST /embed HTTP/1.1\r\nhost: x\r\nx-request-id: a.1\r\ncontent-length: 18\r\n\r\n",
            b'{"inputs"',
            b': "text"}',
            b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n",
            b"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}",
            b"POST /nothing HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}",
            b"POST /embed HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}",
        )
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            for part in sent:
                client.sendall(part)
                time.sleep(0.02)
            with client.makefile("rb") as stream:
                heads = re.findall(r"HTTP/1.1 .*?\r\n\r\n.*?(?=HTTP|$)", stream.read().decode(), re.S)
    assert [head.split()[1] for head in heads] == ["429", "200", "429", "404", "429"]
    assert "x-request-id: a.1\r\n" in heads[0] and "retry-after: 1\r\n" in heads[0] and "date: " in heads[0]
    assert heads[0].endswith('{"error":"the server is overloaded; try again later","error_type":"Overloaded"}')
    assert '"code":429' in heads[2]
    [line] = [line for line in server.logs if line.get("id") == "a.1"]
    assert (line["status"], line["route"]) == (429, "/embed")


def test_a_full_server_still_asks_for_the_key(slow_folder, tmp_path):
    (tmp_path / "key").write_text(KEY)
    right = {"authorization": f"Bearer {KEY}"}
    with full_server(slow_folder, "--api-key-file", tmp_path / "key", **right) as server:
        for wrong in ("Bearer wrong", "Basic \u00e9"):
            assert server.post("/embed", {"inputs": "x"}, headers={"authorization": wrong})[0] == 401
        assert server.post("/embed", {"inputs": "x"}, headers=right)[0] == 429


def test_a_request_that_takes_too_long(slow_folder):
    with RunningServer(slow_folder, "--timeout", 0.05) as server:
        status, headers, error = server.post("/embed", HEAVY)
        assert (status, error["error_type"]) == (503, "Timeout") and "retry-after" in headers
        until(lambda: server.metric("te_queue_size") == 0)
        assert server.post("/embed", {"inputs": "x"})[0] == 200


@pytest.mark.parametrize("more", [b"", b"P", b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"])
def test_a_disconnect_cancels_what_is_queued(slow_folder, more):
    with RunningServer(slow_folder, "--max-batch-tokens", 64) as server:
        body = json.dumps(HEAVY).encode()
        request = (
            b"POST /embed HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
            % len(body)
        )
        for _ in range(5):
            client = socket.create_connection(("127.0.0.1", server.port))
            client.sendall(request + body + more)
            time.sleep(0.05)
            client.close()
        until(lambda: server.metric("te_queue_size") == 0)
        assert server.metric("te_request_failure") == 5
        assert server.metric("te_batch_next_size_sum") < 5 * 900


def test_sigterm_finishes_what_was_accepted(slow_folder):
    with RunningServer(slow_folder, "--max-batch-tokens", 64) as server, ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(server.post, "/embed", HEAVY) for _ in range(4)]
        until(lambda: server.metric("te_queue_size") > 100)
        assert server.stop() == 0
        assert [answer.result()[0] for answer in answers] == [200] * 4
        assert server.logs[-1]["event"] == "stop"


def test_what_is_not_ready_at_the_end_of_the_time_is_refused(slow_folder):
    slow = ["--max-batch-tokens", 16, "--shutdown-timeout", 0]
    with RunningServer(slow_folder, *slow) as server, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(server.post, "/embed", HEAVY, headers={"x-request-id": "a"})
        until(lambda: server.metric("te_queue_size") > 100)
        assert server.stop() == 0
        status, headers, error = answer.result()
        assert (status, error["error_type"], headers["x-request-id"]) == (503, "Timeout", "a")
        [line] = [line for line in server.logs if line.get("id") == "a"]
        assert line["status"] == 503


def copied(source, target):
    """Replace a folder's content, the way a deployment does it."""
    fresh = target.with_name("fresh")
    shutil.copytree(source, fresh)
    if target.exists():
        target.rename(target.with_name("old"))
    fresh.rename(target)
    shutil.rmtree(target.with_name("old"), ignore_errors=True)


@pytest.mark.parametrize("workers", [1, 2])
def test_reload_loses_no_request_and_a_damaged_folder_changes_nothing(served_folder, direct, tmp_path, workers):
    text, folder = "a good film", tmp_path / "model"
    copied(served_folder / "two", folder)
    old, new = (direct[name].predict(text).scores for name in ("two", "classes"))
    with RunningServer(f"m={folder}", "--workers", workers, "--threads", 1) as server:
        seen, stop = [], threading.Event()

        def ask():
            while not stop.is_set():
                status, _, reply = server.post("/predict", {"inputs": text})
                seen.append(status == 200 and {one["label"]: one["score"] for one in reply})

        clients = [threading.Thread(target=ask) for _ in range(4)]
        for client in clients:
            client.start()
        try:
            until(lambda: old in seen)
            whole = (folder / "ternarybert.safetensors").read_bytes()
            copied(served_folder / "two", folder)
            (folder / "ternarybert.safetensors").write_bytes(whole[:-10])
            server.process.send_signal(signal.SIGHUP)
            until(lambda: server.metric("tb_reload_failure") >= 1)
            failed = []
            until(lambda: failed or failed.extend(e for e in server.logs if e["event"].startswith("reload failed")))
            assert failed[0]["error"] == "ContainerError" and failed[0]["model"] == "m"
            count = len(seen)
            until(lambda: len(seen) > count + 20)
            assert new not in seen
            copied(served_folder / "classes", folder)
            server.process.send_signal(signal.SIGHUP)
            until(lambda: server.metric("tb_reload_success") >= workers)
            until(lambda: seen[-20:] == [new] * 20)
        finally:
            stop.set()
            for client in clients:
                client.join()
        assert all(one in (old, new) for one in seen)


def test_a_damaged_folder_does_not_keep_workers_from_loading_the_others(served_folder, direct, tmp_path):
    text, good, bad = "a good film", tmp_path / "good", tmp_path / "bad"
    copied(served_folder / "two", good)
    copied(served_folder / "two", bad)
    with RunningServer(f"good={good}", f"bad={bad}", "--workers", 2, "--threads", 1) as server:
        copied(served_folder / "classes", good)
        (bad / "config.json").write_text("{")
        server.process.send_signal(signal.SIGHUP)
        labels = set(direct["classes"].predict(text).scores)
        seen = []

        def loaded():
            reply = server.ok("/models/good/predict", {"inputs": text})
            seen.append({one["label"] for one in reply} == labels)
            return seen[-20:] == [True] * 20

        until(loaded)
        assert {one["label"] for one in server.ok("/models/bad/predict", {"inputs": text})} == {"no", "yes"}


@pytest.mark.linux_only("reads /proc")
def test_a_killed_worker_is_replaced_and_the_others_go_on(served_folder):
    with RunningServer(served_folder / "embedder", "--workers", 2, "--threads", 1) as server:
        supervisor = psutil.Process(server.process.pid)
        until(lambda: len(supervisor.children()) == 2)
        workers = [child.pid for child in supervisor.children()]
        for _ in range(10):
            assert server.post("/embed", {"inputs": "x"})[0] == 200
        until(lambda: server.metric("te_embed_success") == 10)  # summed over the workers
        os.kill(workers[0], signal.SIGKILL)
        for _ in range(20):
            assert server.post("/embed", {"inputs": "x"})[0] == 200
        until(lambda: workers[0] not in {c.pid for c in supervisor.children()} and len(supervisor.children()) == 2)
        assert server.metric("tb_worker_restarts") == 1
        assert server.metric("te_embed_success") == 30  # nothing counted is lost
        assert server.stop() == 0
        assert not any(psutil.pid_exists(pid) for pid in workers[1:])


@pytest.mark.linux_only("reads /proc")
def test_a_worker_that_dies_again_and_again_takes_no_other_with_it(served_folder):
    with RunningServer(served_folder / "embedder", "--workers", 2, "--threads", 1) as server:
        supervisor = psutil.Process(server.process.pid)

        def workers():
            return {child.pid for child in supervisor.children()}

        until(lambda: len(workers()) == 2)
        steady, unlucky = sorted(workers())
        time.sleep(2.1)  # both can start
        for _ in range(7):
            os.kill(unlucky, signal.SIGKILL)
            while not (fresh := workers() - {steady, unlucky}):
                time.sleep(0.01)
            [unlucky] = fresh
            assert steady in workers()
        assert server.ok("/embed", {"inputs": "x"})
        assert server.stop() == 0


@pytest.mark.linux_only("reads /proc")
def test_workers_that_cannot_start_end_the_server(served_folder, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(served_folder / "embedder", folder)
    with RunningServer(folder, "--workers", 2, "--threads", 2) as server:  # so each worker reads the folder
        supervisor = psutil.Process(server.process.pid)
        until(lambda: server.ok("/embed", {"inputs": "x"}) and len(supervisor.children()) == 2)
        time.sleep(2.1)
        shutil.rmtree(folder)
        for child in supervisor.children():
            child.kill()
        assert server.process.wait(30) != 0
        until(lambda: any("end as soon as they start" in line for line in server.lines))


def test_logs_have_ids_and_no_texts(served_folder):
    with RunningServer(served_folder / "embedder") as server:
        _, headers, _ = server.post("/embed", {"inputs": "dreadful secret"}, headers={"x-request-id": "abc-1"})
        assert headers["x-request-id"] == "abc-1"
        assert float(headers["x-total-time"]) >= float(headers["x-inference-time"]) > 0
        _, headers, _ = server.post("/secret", {"inputs": "dreadful"}, headers={"x-request-id": "not valid\u00e9"})
        assert len(headers["x-request-id"]) == 32
        server.post("/embed?q=secret", {"inputs": ["dreadful " * 500]})
        assert server.send("GET", "/v1/models/secret")[0] == 404
        server.stop()
        requests = [entry for entry in server.logs if entry["event"] == "request"]
        assert [(entry["route"], entry["status"]) for entry in requests] == [
            ("/embed", 200),
            ("unknown", 404),
            ("/embed", 413),
            ("/v1/models/{name}", 404),
        ]
        assert requests[0]["id"] == "abc-1" and requests[0]["texts"] == 1 and requests[0]["tokens"] > 2
        assert "secret" not in "".join(server.lines) and "dreadful" not in "".join(server.lines)


def test_metrics_have_teis_names(server):
    server.ok("/embed", {"inputs": ["x", "y"]})
    text = server.send("GET", "/metrics")[2].decode()
    families = {family.name for family in text_string_to_metric_families(text)}
    assert {"te_queue_size", "te_batch_next_tokens", "te_batch_next_size", "te_request_duration"} <= families
    assert {f"te_request_{part}_duration" for part in ("tokenization", "queue", "inference")} <= families
    assert {f"te_embed_{part}" for part in ("count", "success", "duration", "queue_duration")} <= families
    assert {f"te_request_{part}" for part in ("count", "success", "failure")} <= families
    assert '\nte_request_count{method="batch"} ' in text and "_total" not in text  # the parser appends it


def test_cors_is_off_unless_asked_for(server, served_folder):
    headers = {"origin": "https://a.example", "access-control-request-method": "POST"}
    status, found, _ = server.send("OPTIONS", "/embed", headers=headers)
    assert status == 405 and "access-control-allow-origin" not in found
    with RunningServer(
        served_folder / "embedder", "--cors-origin", "https://a.example", "--api-key", KEY
    ) as open_server:
        status, found, _ = open_server.send("OPTIONS", "/embed", headers=headers)
        assert status == 200 and found["access-control-allow-origin"] == "https://a.example"
        other = open_server.send("OPTIONS", "/embed", headers=headers | {"origin": "https://b.example"})
        assert "access-control-allow-origin" not in other[1]


def test_torch_is_not_imported(served_folder):
    code = (
        "import sys; from ternarybert.serve import server, app; from ternarybert.serve.metrics import ServerMetrics;"
        "from ternarybert.serve.routes import Api; from ternarybert.serve.settings import ServerSettings;"
        "from ternarybert.serve.served_model import ServedModel;"
        f"s = ServerSettings((('m', {str(served_folder / 'answers')!r}),));"
        "m = ServedModel('m', s.models[0][1], s, ServerMetrics()); m.start();"
        "app.ServeApp(Api({'m': m}, s), s, ServerMetrics()); m.version.model.predict(('was it fun', 'it was good'));"
        "print({'torch', 'transformers', 'pydantic', 'fastapi'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_names_of_models():
    assert named_folders(["a/b", "x=c/d", "./e=f/g"]) == (("b", "a/b"), ("x", "c/d"), ("g", "./e=f/g"))
    for given in (["a/b", "c/b"], ["a b=c"], ["=x"]):
        with pytest.raises(OptionError):
            named_folders(given)


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["nowhere"], "nowhere"),
        (["{m}", "--pooling", "men"], "men"),
        (["{m}", "--log-level", "loud"], "loud"),
        (["{m}", "--api-key", "k", "--api-key-file", "f"], "--api-key-file"),
        (["{m}", "--api-key", " "], "key"),
        (["{m}", "--host", "256.0.0.1"], "256.0.0.1"),
    ],
)
def test_mistakes_on_the_command_line(served_folder, arguments, wanted):
    code, _, err = command("serve", *(one.format(m=served_folder / "embedder") for one in arguments))
    assert code == 2 and wanted in err


def test_the_extra_is_named_if_it_is_missing(monkeypatch):
    monkeypatch.setattr("ternarybert.serve.find_spec", lambda name: None)
    code, _, err = command("serve", "folder")
    assert code == 2 and "ternarybert[serve]" in err and "uvicorn" in err
