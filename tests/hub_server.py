"""A hub on this machine: the part of the Hugging Face Hub's HTTP interface that huggingface_hub uses to load and push.

Models are dictionaries of commits; every commit is a dictionary of files. Weights take the way of large files: a hash
in the commit, the bytes in a request of their own, checked against the hash.
"""

import base64
import hashlib
import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

TOKEN = "hf_right"


class Hub:
    """The content of the server, and what it was asked for."""

    def __init__(self):
        self.models = {}  # id -> {"private": .., "refs": {branch: commit}, "commits": {commit: {path: bytes}}}
        self.large = {}  # hash -> bytes
        self.requests = []
        self.broken = False  # close the connection in the middle of a file

    def commit(self, model, branch, files):
        entry = self.models.setdefault(model, {"private": False, "refs": {}, "commits": {}})
        digest = hashlib.sha1(repr((branch, sorted(files), len(entry["commits"]))).encode()).hexdigest()
        entry["commits"][digest] = files
        entry["refs"][branch] = digest
        return digest

    def files(self, model, revision="main"):
        entry = self.models[model]
        return entry["commits"].get(entry["refs"].get(revision, revision))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_):
        pass

    def handle_any(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = self._chunks() if self.headers.get("Transfer-Encoding") == "chunked" else self.rfile.read(length)
        path = unquote(self.path.partition("?")[0])
        self.hub.requests.append((self.command, path))
        for method, pattern, action in ROUTES:
            match = re.fullmatch(pattern, path)
            if match and self.command in method:
                if not self._may(match.groupdict().get("id"), self.command):
                    return self.reply(401, {"error": "Invalid username or password."})
                return getattr(self, action)(body=body, **match.groupdict())
        return self.reply(404, {"error": f"no route {self.command} {path}"})

    do_GET = do_HEAD = do_POST = do_PUT = handle_any

    def _chunks(self):
        data = b""
        while size := int(self.rfile.readline(), 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def _may(self, model, command):
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        private = self.hub.models.get(model, {}).get("private", False)
        writes = command == "POST"
        return token == TOKEN if writes or private else token in ("", TOKEN)

    def reply(self, status, value=None, headers=None, data=None):
        content = json.dumps(value).encode() if data is None else data
        self.send_response(status)
        for name, text in (headers or {}).items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            if self.hub.broken and data is not None and len(content) > 2000:
                self.wfile.write(content[:1000])
                self.close_connection = True
                return
            self.wfile.write(content)

    def missing(self, kind, message):
        self.reply(404, {"error": message}, {"X-Error-Code": kind, "X-Error-Message": message})

    def _revision(self, model, revision):
        if model not in self.hub.models:
            self.missing("RepoNotFound", "Repository not found")
            return None
        entry = self.hub.models[model]
        commit = entry["refs"].get(revision, revision)
        if commit not in entry["commits"]:
            self.missing("RevisionNotFound", f"Invalid rev id: {revision}")
            return None
        return commit

    def resolve(self, id, revision, file, body):
        commit = self._revision(id, revision)
        if commit is None:
            return
        data = self.hub.models[id]["commits"][commit].get(file)
        if data is None:
            self.missing("EntryNotFound", "Entry not found")
            return
        digest = hashlib.sha256(data).hexdigest()
        self.reply(200, None, {"ETag": f'"{digest}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}, data)

    def info(self, id, body, revision="main"):
        commit = self._revision(id, revision)
        if commit is not None:
            files = [{"rfilename": name} for name in self.hub.models[id]["commits"][commit]]
            self.reply(200, {"id": id, "modelId": id, "sha": commit, "siblings": files, "private": False, "tags": []})

    def tree(self, id, revision, body):
        commit = self._revision(id, revision)
        if commit is not None:
            files = self.hub.models[id]["commits"][commit]
            rows = [
                {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                for name, data in files.items()
            ]
            self.reply(200, rows)

    def whoami(self, body):
        self.reply(200, {"name": "user", "type": "user", "orgs": []})

    def create(self, body):
        wanted = json.loads(body)
        name = f"{wanted.get('organization') or 'user'}/{wanted['name']}"
        if name in self.hub.models:
            self.reply(409, {"error": "You already created this model repo", "url": f"/{name}"})
            return
        self.hub.commit(name, "main", {})
        self.hub.models[name]["private"] = bool(wanted.get("private"))
        self.reply(200, {"url": f"http://{self.headers['Host']}/{name}", "name": name, "id": "1"})

    def check_card(self, body):
        self.reply(200, {"errors": [], "warnings": []})

    def preupload(self, id, revision, body):
        files = json.loads(body)["files"]
        large = (".safetensors", ".onnx", ".gguf")
        self.reply(200, {"files": [
            {"path": f["path"], "uploadMode": "lfs" if f["path"].endswith(large) else "regular", "shouldIgnore": False}
            for f in files
        ]})  # fmt: skip

    def batch(self, id, body):
        wanted = json.loads(body)["objects"]
        url = f"http://{self.headers['Host']}/large"
        self.reply(200, {"transfer": "basic", "objects": [
            {"oid": o["oid"], "size": o["size"], "actions": {"upload": {"href": f"{url}/{o['oid']}", "header": {}}}}
            for o in wanted
        ]}, {"Content-Type": "application/vnd.git-lfs+json"})  # fmt: skip

    def upload(self, oid, body):
        assert hashlib.sha256(body).hexdigest() == oid
        self.hub.large[oid] = body
        self.reply(200, {})

    def make_commit(self, id, revision, body):
        if self._revision(id, revision) is None:
            return
        files = dict(self.hub.files(id, revision))
        for line in body.decode().splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                files[value["path"]] = self.hub.large[value["oid"]]
        commit = self.hub.commit(id, revision, files)
        url = f"http://{self.headers['Host']}/{id}"
        self.reply(200, {"success": True, "commitOid": commit, "commitUrl": f"{url}/commit/{commit}", "hookOutput": ""})


_NAME = r"(?P<id>[\w.\-]+/[\w.\-]+)"
ROUTES = (
    ("POST", r"/api/repos/create", "create"),
    ("POST", r"/api/validate-yaml", "check_card"),
    ("GET", r"/api/whoami-v2", "whoami"),
    ("POST", rf"/api/models/{_NAME}/preupload/(?P<revision>[^/]+)", "preupload"),
    ("POST", rf"/api/models/{_NAME}/commit/(?P<revision>[^/]+)", "make_commit"),
    ("POST", rf"/{_NAME}\.git/info/lfs/objects/batch", "batch"),
    ("PUT", r"/large/(?P<oid>\w+)", "upload"),
    ("GET", rf"/api/models/{_NAME}/revision/(?P<revision>[^/]+)", "info"),
    ("GET", rf"/api/models/{_NAME}/tree/(?P<revision>[^/]+)", "tree"),
    ("GET", rf"/api/models/{_NAME}", "info"),
    (("GET", "HEAD"), rf"/{_NAME}/resolve/(?P<revision>[^/]+)/(?P<file>.+)", "resolve"),
)


@contextmanager
def running():
    """A hub and its address."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("BoundHandler", (Handler,), {"hub": hub}))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
