"""A server in a process of its own, as the command starts it, and plain clients."""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil

from tests.runtime.folders import save_student

NER = {"id2label": {0: "O", 1: "B-PER", 2: "I-PER"}, "label2id": {"O": 0, "B-PER": 1, "I-PER": 2}}
ONE = {"id2label": {0: "LABEL_0"}, "label2id": {"LABEL_0": 0}}
TWO = {"id2label": {0: "no", 1: "yes"}, "label2id": {"no": 0, "yes": 1}}
MODELS = {
    "embedder": ("Model", {}),
    "classes": ("ForSequenceClassification", {}),
    "two": ("ForSequenceClassification", TWO),
    "ranker": ("ForSequenceClassification", ONE),
    "names": ("ForTokenClassification", NER),
    "answers": ("ForQuestionAnswering", {}),
}


def save_models(folder):
    for name, (head, changes) in MODELS.items():
        save_student(folder / name, head, seed=4, **changes)  # the tagger of this seed finds entities


class RunningServer:
    """`ternarybert serve ARGUMENTS` on a free port."""

    def __init__(self, *arguments, environment=None, wait=True):
        command = [sys.executable, "-m", "ternarybert", "serve", *map(str, arguments), "--port", "0"]
        whole = os.environ | {"TERNARYBERT_THREADS": "1"} | (environment or {})
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=whole)
        self.lines, self.started = [], threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if wait:
            assert self.started.wait(60), self.lines
            self.address = next(line for line in self.lines if line.startswith("serving on ")).split()[2]
            self.port = int(self.address.rpartition(":")[2])

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))
            if line.startswith("serving on "):
                self.started.set()
        self.started.set()

    @property
    def logs(self):
        return [json.loads(line) for line in self.lines if line.startswith("{")]

    def send(self, method, path, body=None, headers=None, timeout=30):
        """Status, headers and body (decoded, if it is JSON)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            given = {"content-type": "application/json"} if data is not None else {}
            connection.request(method, path, data, given | (headers or {}))
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        found = {name.lower(): value for name, value in response.getheaders()}
        return response.status, found, json.loads(content) if "json" in found.get("content-type", "") else content

    def post(self, path, body, **more):
        return self.send("POST", path, body, **more)

    def ok(self, path, body):
        status, _, content = self.post(path, body)
        assert status == 200, content
        return content

    def metric(self, name, headers=None):
        """The sum of a metric over its labels."""
        text = self.send("GET", "/metrics", headers=headers)[2].decode()
        return sum(
            float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.split("{")[0].split(" ")[0] == name
        )

    def memory(self):
        process = psutil.Process(self.process.pid)
        return sum(each.memory_info().rss for each in [process, *process.children(recursive=True)])

    def stop(self, timeout=30):
        """The exit code after SIGTERM."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout)
        finally:
            if self.process.poll() is None:
                self.process.kill()
            self._reader.join(5)
            self.process.stderr.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def folder_arguments(folder: Path):
    return [f"{name}={folder / name}" for name in MODELS]
