"""Malformed requests, by hand and by schemathesis: no 500, no hang, no leak, and nothing in an error but its cause."""

import json
import os
import socket
import time

import hypothesis
import psutil
import pytest
import schemathesis
from schemathesis.generation import GenerationMode

from .running import RunningServer, folder_arguments

SECRET = "dreadful"
LONE = b'{"inputs": "' + SECRET.encode() + b' \\ud800"}'
DEEP = b'{"inputs": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
UNKNOWN_DEEP = b'{"inputs": "x", "more": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}"

BODIES = {
    "empty": (b"", 400),
    "no JSON": (b"inputs=" + SECRET.encode(), 400),
    "cut": (b'{"inputs": "' + SECRET.encode(), 400),
    "deep": (DEEP, 422),
    "deep in an unknown field": (UNKNOWN_DEEP, 400),
    "a lone surrogate": (LONE, 400),
    "a cut UTF-8 sequence": (b'{"inputs": "\xc3"}', 400),
    "UTF-16": ('{"inputs": "x"}'.encode("utf-16"), 400),
    "NaN": (b'{"inputs": NaN}', 400),
    "infinity": (b'{"inputs": [1e999]}', 422),
    "a huge number": (b'{"inputs": [' + b"9" * 400 + b"]}", 422),
    "a negative id": (b'{"inputs": [-1]}', 422),
    "an id beyond the vocabulary": (b'{"inputs": [4000000000]}', 422),
    "no ids": (b'{"inputs": [[]]}', 422),
    "mixed": (b'{"inputs": ["x", 1]}', 422),
    "a list": (b"[]", 422),
    "null": (b"null", 422),
    "the field is missing": (b"{}", 422),
    "an unknown value": (b'{"inputs": "x", "truncation_direction": "dreadful"}', 422),
    "a flag is a string": (b'{"inputs": "x", "truncate": "dreadful"}', 422),
    "an empty list": (b'{"inputs": []}', 400),
    "an unknown prompt": (b'{"inputs": "x", "prompt_name": "dreadful"}', 422),
    "no letters": (b'{"inputs": ""}', 200),
    "control characters": (b'{"inputs": "\\u0000\\u0001"}', 200),
    "a byte order mark": (b'\xef\xbb\xbf{"inputs": "x"}', 400),
    "duplicate keys": (b'{"inputs": 1, "inputs": "x"}', 422),
}


@pytest.mark.parametrize("name", BODIES)
def test_malformed_bodies(server, name):
    body, wanted = BODIES[name]
    status, headers, reply = server.post("/embed", body)
    assert status == wanted and headers["content-type"] == "application/json"
    if status != 200:
        assert set(reply) == {"error", "error_type"}
        text = json.dumps(reply)
        assert (
            SECRET not in text and "/" not in reply["error"].replace("application/json", "") and "Traceback" not in text
        )


def test_a_body_that_is_too_large(server):
    assert server.post("/embed", b'{"inputs": "' + b"x" * 2_000_000 + b'"}')[0] == 413
    chunks = (b"x" * 100_000 for _ in range(40))  # without a content-length
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    connection.sendall(
        b"POST /embed HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    try:
        for chunk in chunks:
            connection.sendall(b"%x\r\n%s\r\n" % (len(chunk), chunk))
    except ConnectionError:
        pass
    assert b" 413 " in connection.recv(4096)
    connection.close()


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""])
def test_wrong_content_types(server, kind):
    assert server.post("/embed", b'{"inputs": "x"}', headers={"content-type": kind})[0] == 415
    assert (
        server.post("/embed", b'{"inputs": "x"}', headers={"content-type": "Application/JSON; charset=utf-8"})[0] == 200
    )


def test_wrong_methods_and_paths(server):
    for method, path, wanted in [
        ("GET", "/embed", 405),
        ("DELETE", "/embed", 405),
        ("POST", "/health", 405),
        ("GET", "/embed/", 404),
        ("GET", "/..%2f..%2fetc%2fpasswd", 404),
        ("GET", "//", 404),
        ("GET", "/models/", 404),
        ("GET", "/page.html", 404),
    ]:
        status, _, reply = server.send(method, path)
        assert status == wanted, path
        assert "passwd" not in json.dumps(reply)


HEAD = b"POST /embed HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
RAW = {
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
    "an endless line": b"GET /" + b"a" * 200_000,
    "a wrong length": HEAD + b"content-length: -5\r\n\r\n",
    "two lengths": b"POST /embed HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
    "many headers": b"GET /health HTTP/1.1\r\n"
    + b"".join(b"x-%d: %s\r\n" % (i, b"v" * 1000) for i in range(200))
    + b"\r\n",
    "half a request": HEAD + b"content-length: 50\r\n\r\n{",
}


@pytest.mark.parametrize("name", RAW)
def test_broken_connections(server, name):
    """Sent and half closed: the server answers or hangs up, soon, and goes on."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        try:
            connection.sendall(RAW[name])
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
        except OSError:  # it has hung up
            pass
    assert server.ok("/embed", {"inputs": "x"})


def test_slow_clients_are_disconnected_and_hold_up_nobody(served_folder):
    """Half a head, or half a body, and then nothing."""
    with RunningServer(served_folder / "embedder", "--read-timeout", 2) as server:
        slow = [socket.create_connection(("127.0.0.1", server.port), timeout=30) for _ in range(200)]
        for number, connection in enumerate(slow):
            connection.sendall(RAW["half a request"] if number % 2 else RAW["half a request"][:30])
        assert server.ok("/embed", {"inputs": "x"})
        answers = [connection.recv(4096) for connection in slow]
        assert all(answer == b"" for answer in answers[::2]) and all(b" 408 " in answer for answer in answers[1::2])
        for connection in slow:
            connection.close()


def silent_clients(server, count):
    """Ask for answers of megabytes and read nothing."""
    body = json.dumps({"inputs": ["the film was good " * 10] * 190, "truncate": True}).encode()
    request = HEAD + b"content-length: %d\r\n\r\n" % len(body) + body
    for _ in range(count):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", server.port))
        client.sendall(request.replace(b"/embed ", b"/embed_all "))
        yield client


def test_unread_answers_count(served_folder):
    """Their sizes are limited together, so clients that read nothing cannot fill the memory."""
    with RunningServer(served_folder / "embedder", "--max-body", 100_000) as server:  # 16 MB for bodies and answers
        clients = list(silent_clients(server, 12))
        end = time.monotonic() + 30
        while server.metric("te_request_failure") < 4:
            assert time.monotonic() < end
        for client in clients:
            client.close()
        while server.post("/embed", {"inputs": "x"})[0] != 200:  # it is as before
            assert time.monotonic() < end


def test_clients_that_do_not_read_are_disconnected(served_folder):
    """Answers of megabytes that nobody takes do not stay in memory."""
    with RunningServer(served_folder / "embedder", "--timeout", 5) as server:
        clients = list(silent_clients(server, 4))
        process = psutil.Process(server.process.pid)
        connections = lambda: [c for c in process.net_connections("tcp") if c.status == psutil.CONN_ESTABLISHED]  # noqa: E731
        end = time.monotonic() + 30
        while server.metric("te_embed_success") < 4 * 190:
            assert time.monotonic() < end
        assert len(connections()) >= 4
        while connections():
            assert time.monotonic() < end
            time.sleep(0.1)
        assert server.ok("/embed", {"inputs": "x"})
        for client in clients:
            client.close()


def test_a_websocket_is_refused_like_any_other_request(served_folder):
    upgrade = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
    upgrade["sec-websocket-key"] = "dGhlIHNhbXBsZSBub25jZQ=="
    with RunningServer(served_folder / "embedder", "--api-key", "k") as server:
        for path in ("/", "/embed", "/info"):
            assert server.send("GET", path, headers=upgrade)[0] == 401
        assert server.send("GET", "/embed", headers=upgrade | {"authorization": "Bearer k"})[0] == 405
        assert [entry for entry in server.logs if entry["level"] == "error"] == []


def fuzz(server, examples):
    """Requests by the OpenAPI document, valid and invalid, to every route; returns how many were sent."""
    document = server.send("GET", "/openapi.json")[2]
    schema = schemathesis.openapi.from_dict(document)
    schema.config.generation.update(modes=[GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
    schema.config.update(base_url=server.address)
    operations = [result.ok() for result in schema.get_all_operations()]
    posts = [operation for operation in operations if operation.method.upper() == "POST"]
    sent = 0
    for operation in posts:
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

            @hypothesis.settings(
                max_examples=max(1, examples // (2 * len(posts))),
                deadline=None,
                derandomize=True,
                database=None,
                suppress_health_check=list(hypothesis.HealthCheck),
                phases=[hypothesis.Phase.generate],
            )
            @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
            def send(case):
                nonlocal sent
                sent += 1
                response = case.call()
                assert response.status_code < 500, (case.path, response.status_code)
                assert response.status_code in KNOWN, (case.path, response.status_code)

            send()
    return sent


KNOWN = {200, 400, 404, 405, 413, 415, 422, 424}


@pytest.mark.filterwarnings("ignore")
def test_schemathesis_some_hundreds(server):
    assert fuzz(server, 220) >= 200
    assert server.metric("te_queue_size") == 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_schemathesis_ten_thousand(served_folder):
    """The same, longer, and memory stays where it is."""
    with RunningServer(*folder_arguments(served_folder), "--log-level", "warning") as server:
        fuzz(server, 1000)
        before = server.memory()
        assert fuzz(server, int(os.environ.get("SERVE_FUZZ", "10000"))) >= 9000
        assert server.memory() - before < 30e6
        assert [entry for entry in server.logs if entry["level"] == "error"] == []


def test_memory_stays_flat(served_folder):
    """Big and small, good and bad requests, again and again."""
    with RunningServer(served_folder / "embedder", "--log-level", "warning") as server:

        def round_of_requests():
            for body, _ in BODIES.values():
                server.post("/embed", body)
            server.ok("/embed", {"inputs": ["the film was good " * 10] * 200})
            server.ok("/tokenize", {"inputs": "x " * 20_000})

        for _ in range(5):
            round_of_requests()
        before = server.memory()
        for _ in range(10):
            round_of_requests()
        assert server.memory() - before < 20e6
