"""The ASGI application: what happens to every request before and after its route.

A request gets an id, is refused without the key, is read within limits of size and time, is counted, and waits for its
answer until it is there, the time is up or the client has gone. No error says more than its cause.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import time
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from importlib.resources import files
from random import getrandbits
from typing import Any, TypeAlias

import msgspec
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ternarybert.serve.failures import RequestFailure
from ternarybert.serve.logs import log
from ternarybert.serve.metrics import ServerMetrics
from ternarybert.serve.openapi import openapi_document
from ternarybert.serve.routes import ROUTES, Api
from ternarybert.serve.served_model import RequestRecord
from ternarybert.serve.settings import ServerSettings

_PREFIX = re.compile(r"/models/([^/]+)(/.*)?")
_REQUEST_ID = re.compile(r"[\w.-]{1,128}", re.ASCII)
_ONE_MODEL = "/v1/models/"
_JSON = b"application/json"
CONNECTION = "ternarybert.connection"  # key of the scope: the request's ServeProtocol
_LARGE = 1 << 16  # bytes of an answer that counts until its client has read it
Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
_TIMED = ("embed", "predict", "rerank")
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:"


def with_cors(app: ServeApp) -> ASGIApp:
    """The application, with the headers that let pages of other origins call it, if the settings name some."""
    if not (origins := app.settings.cors_origins):
        return app
    return CORSMiddleware(app, allow_origins=origins, allow_methods=["GET", "POST"], allow_headers=["*"], max_age=600)


class ServeApp:
    """Takes every request."""

    def __init__(self, api: Api, settings: ServerSettings, metrics: ServerMetrics) -> None:
        self.api, self.settings, self.metrics = api, settings, metrics
        self.accepted = 0  # requests that have been read and wait for their answer
        self.buffered = 0  # bytes of bodies in memory, and of large answers
        page = files("ternarybert.serve").joinpath("page.html").read_bytes()
        document = msgspec.json.encode(openapi_document())
        self._posts = {route.path: PostEndpoint(self, route.body, route.handler) for route in ROUTES}
        self._posts["/"] = PostEndpoint(self, msgspec.Raw, Api.any)
        self._refusals = {path: EncodedReply(Reply.of(_overloaded(), path)) for path in self._posts}
        gets: dict[str, Callable[[Scope], Any]] = {
            "/": lambda _: Reply(page, "text/html; charset=utf-8", {"content-security-policy": _POLICY}),
            "/health": self._health,
            "/info": lambda scope: api.info(scope["record"]),
            "/metrics": lambda _: Reply(metrics.exposition().encode(), "text/plain; version=0.0.4"),
            "/openapi.json": lambda _: Reply(document, "application/json"),
            "/v1/models": lambda scope: api.list_models(scope["record"]),
        }
        self._gets = {path: GetEndpoint(function) for path, function in gets.items()}
        self._show_model = GetEndpoint(lambda s: api.show_model(s["record"], s["path"].removeprefix(_ONE_MODEL)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. (server.py starts neither websockets nor lifespan events.)"""
        start = time.perf_counter()
        headers = dict(scope["headers"])
        identity, record = _request_id(headers), RequestRecord()
        status, begun = 499, False

        async def answer(message: Message) -> None:
            nonlocal status, begun
            if message["type"] == "http.response.start":
                status, begun = message["status"], True
                message["headers"] = [*message["headers"], (b"x-request-id", identity.encode())]
            await send(message)

        failure: RequestFailure | None = None
        scope["record"], scope["app"], scope["start"] = record, self, start
        try:
            self._choose_path(scope, record)
            self._check_key(scope["path"], headers)
            scope["endpoint"] = endpoint = self._endpoint(scope["path"], scope["method"])
            await endpoint(scope, receive, answer)
        except ClientGone:
            record.gone = True
        except asyncio.CancelledError:  # the time for a graceful end is up
            record.stop()
            failure = RequestFailure("Timeout", "the server is stopping", 503, retry_after=1)
        except Exception as error:
            failure = _failure_of(error, identity)
        if failure is not None and not begun and not record.gone:
            await Reply.of(failure, scope["path"]).send(answer, scope["method"])
        self._note(scope, record, failure, status, identity, time.perf_counter() - start)
        if record.unread:
            await self._wait_until_read(scope, record)

    async def _wait_until_read(self, scope: Scope, record: RequestRecord) -> None:
        """A large answer counts until its client has read it: clients that read nothing must not fill the memory."""
        try:
            await scope[CONNECTION].drained()
        except asyncio.CancelledError:
            pass  # the time for a graceful end is up
        finally:
            self.buffered -= record.unread

    def refusal(self, method: bytes, target: str, headers: Headers, reply_headers: Headers) -> bytes | None:
        """The response to a request that is one too many, if its headers say so; it is noted in metrics and log.

        So the protocol can refuse it without a task and a turn of the event loop: these are what accepted requests
        would miss under overload. None: the application has to look at the request, and may still refuse it.
        """
        endpoint = self._posts.get(target)
        if method != b"POST" or endpoint is None or not self.is_full or self.settings.cors_origins:
            return None
        start, by_name = time.perf_counter(), dict(headers)
        try:
            self._check_key(target, by_name)
        except RequestFailure:
            return None
        identity = _request_id(by_name)
        scope = {"method": "POST", "path": target, "endpoint": endpoint}
        self._note(scope, RequestRecord(), _overloaded(), 429, identity, time.perf_counter() - start)
        return self._refusals[target].with_headers([*reply_headers, (b"x-request-id", identity.encode())])

    @property
    def is_full(self) -> bool:
        """Whether as many requests wait for their answer as may."""
        return self.accepted >= self.settings.max_requests

    def _choose_path(self, scope: Scope, record: RequestRecord) -> None:
        """/models/NAME/embed is /embed for the model NAME."""
        if scope["path"].startswith("/models/") and (match := _PREFIX.fullmatch(scope["path"])):
            record.model = match[1]
            scope["path"] = match[2] or "/"
            scope["raw_path"] = scope["path"].encode()

    def _endpoint(self, path: str, method: str) -> Endpoint:
        """What answers. A table: a router would try one pattern after the other, which takes a short request's time."""
        get = self._gets.get(path)
        if get is None and path.startswith(_ONE_MODEL) and "/" not in path[len(_ONE_MODEL) :]:
            get = self._show_model
        post = self._posts.get(path)
        endpoint = post if method == "POST" else get if method in ("GET", "HEAD") else None
        if endpoint is None:
            known = get is not None or post is not None
            raise RequestFailure("NotFound", "there is no such route, or not with this method", 405 if known else 404)
        return endpoint

    def _check_key(self, path: str, headers: Mapping[bytes, bytes]) -> None:
        key = self.settings.api_key
        if key is None or path == "/health":
            return
        scheme, _, given = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        if scheme.lower() == "basic":  # browsers ask for it; the name does not matter
            try:
                given = b64decode(given).decode().partition(":")[2]
            except ValueError:  # not Base64, not ASCII, not UTF-8
                given = ""
        elif scheme.lower() != "bearer":
            given = headers.get(b"x-api-key", b"").decode("latin-1")
        if not hmac.compare_digest(given.strip().encode(), key.encode()):
            raise RequestFailure("Unauthorized", "a valid API key is needed")

    def _health(self, scope: Scope) -> Reply:
        if not all(model.version.queue.alive for model in self.api.models.values()):
            raise RequestFailure("Unhealthy", "unhealthy")
        return Reply(b"", "text/plain")

    def _note(
        self,
        scope: Scope,
        record: RequestRecord,
        failure: RequestFailure | None,
        status: int,
        identity: str,
        total: float,
    ) -> None:
        """Metrics and the log's line."""
        metrics = self.metrics
        if scope["method"] == "POST":
            method = "batch" if record.batch else "single"
            metrics.add("te_request_count", 1, method)
            if record.task:
                metrics.add(f"te_{record.task}_count", record.texts)
            if failure is None and status < 400:
                metrics.add("te_request_success", 1, method)
                self._note_success(record, total)
            else:
                metrics.add("te_request_failure", 1, failure.metric if failure else "cancelled")
        if log.isEnabledFor(20):
            known = scope.get("endpoint") is not None  # other paths may contain anything
            route = _ONE_MODEL + "{name}" if scope["path"].startswith(_ONE_MODEL) else scope["path"]
            fields: dict[str, Any] = {
                "id": identity,
                "method": scope["method"],
                "route": route if known else "unknown",
                "status": status,
                "ms": round(1000 * total, 3),
            }
            if record.task:
                fields |= {"model": record.model, "texts": record.texts, "tokens": record.tokens}
                fields |= {"queue_ms": round(1000 * record.queue, 3), "inference_ms": round(1000 * record.inference, 3)}
            log.info("request", extra={"fields": fields})

    def _note_success(self, record: RequestRecord, total: float) -> None:
        self.metrics.add(f"te_{record.task}_success", record.texts)
        times = {
            "duration": total,
            "tokenization_duration": record.tokenization,
            "queue_duration": record.queue,
            "inference_duration": record.inference,
        }
        for prefix in ("request", record.task) if record.task in _TIMED else ("request",):
            for name, seconds in times.items():
                self.metrics.observe(f"te_{prefix}_{name}", seconds)


def _request_id(headers: Mapping[bytes, bytes]) -> str:
    """The client's, if it gave one that can be logged."""
    given = headers.get(b"x-request-id", b"").decode("latin-1")
    return given if given and _REQUEST_ID.fullmatch(given) else f"{getrandbits(128):032x}"


def _overloaded() -> RequestFailure:
    return RequestFailure("Overloaded", "the server is overloaded; try again later", retry_after=1)


def _failure_of(error: Exception, identity: str) -> RequestFailure:
    """What the client is told of an error."""
    if isinstance(error, RequestFailure):
        return error
    log.error("internal error", exc_info=error, extra={"fields": {"id": identity}})
    return RequestFailure("Backend", "internal error", 500)


class Reply:
    """A complete response."""

    def __init__(self, body: bytes, kind: str, headers: Mapping[str, str] | None = None, status: int = 200) -> None:
        self.body, self.status = body, status
        self.headers = [
            (b"content-type", kind.encode()),
            (b"content-length", str(len(body)).encode()),
            *((name.encode(), value.encode()) for name, value in (headers or {}).items()),
        ]

    @classmethod
    def of(cls, failure: RequestFailure, path: str) -> Reply:
        """The response to a request that failed."""
        headers = {}
        if failure.retry_after is not None:
            headers["retry-after"] = str(failure.retry_after)
        if failure.status == 401:
            headers["www-authenticate"] = 'Basic realm="ternarybert"' if path == "/" else "Bearer"
        return cls(msgspec.json.encode(failure.body(path)), "application/json", headers, failure.status)

    async def send(self, send: Send, method: str = "POST") -> None:
        """Send it."""
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": b"" if method == "HEAD" else self.body})


class EncodedReply:
    """A reply as HTTP/1.1 for a connection that stays open, encoded once."""

    def __init__(self, reply: Reply) -> None:
        self._start = f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}\r\n".encode() + _lines(reply.headers)
        self._body = reply.body

    def with_headers(self, headers: Headers) -> bytes:
        """Its bytes with some more headers."""
        return b"%b%b\r\n%b" % (self._start, _lines(headers), self._body)


def _lines(headers: Headers) -> bytes:
    return b"".join([b"%b: %b\r\n" % header for header in headers])


class GetEndpoint:
    """A route without a body."""

    def __init__(self, function: Callable[[Scope], Any]) -> None:
        self._function = function

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        result = self._function(scope)
        reply = result if isinstance(result, Reply) else Reply(msgspec.json.encode(result), "application/json")
        await reply.send(send, scope["method"])


class PostEndpoint:
    """A route with a JSON body."""

    def __init__(self, app: ServeApp, body: type, handler: Callable[..., Awaitable[Any]]) -> None:
        self._app, self._handler = app, handler
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read, decode, answer."""
        app, record = self._app, scope["record"]
        self._admit()
        with RequestWatch(scope) as watch:
            watch.limit(app.settings.read_timeout)
            try:
                body = await self._read(scope, receive)
            except asyncio.CancelledError:
                raise watch.failure("the body did not arrive in time", 408) from None
            watch.limit(app.settings.timeout)
            try:
                content = await self._accept(record, body)
            except asyncio.CancelledError:
                record.stop()
                raise watch.failure("there was no answer in time", 503) from None
            finally:
                app.buffered -= len(body)
        total = time.perf_counter() - scope["start"]
        headers = {
            "x-compute-type": "cpu",
            "x-compute-tokens": str(record.tokens),
            "x-total-time": f"{1000 * total:.3f}",
            "x-tokenization-time": f"{1000 * record.tokenization:.3f}",
            "x-queue-time": f"{1000 * record.queue:.3f}",
            "x-inference-time": f"{1000 * record.inference:.3f}",
        }
        if len(content) >= _LARGE:
            self._check_buffered()
            record.unread = len(content)
            app.buffered += record.unread
        await Reply(content, "application/json", headers).send(send)

    def _check_buffered(self) -> None:
        if self._app.buffered > self._app.settings.max_buffered:
            raise _overloaded()

    async def _accept(self, record: RequestRecord, body: bytes) -> bytes:
        self._admit()
        self._app.accepted += 1
        try:
            return await self._answer(record, body)
        finally:
            self._app.accepted -= 1

    def _admit(self) -> None:
        if self._app.is_full:
            raise _overloaded()

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        headers, limit = dict(scope["headers"]), self._app.settings.max_body
        if headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != _JSON:
            raise RequestFailure("Tokenizer", "expected content-type: application/json", 415)
        if (length := headers.get(b"content-length", b"0")).isdigit() and int(length) > limit:
            raise RequestFailure("Validation", f"the body has more than {limit} bytes")
        return await self._receive_all(receive, limit)

    async def _receive_all(self, receive: Receive, limit: int) -> bytes:
        app, parts, size = self._app, list[bytes](), 0
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                part = message.get("body", b"")
                size += len(part)
                app.buffered += len(part)
                if size > limit:
                    raise RequestFailure("Validation", f"the body has more than {limit} bytes")
                self._check_buffered()
                parts.append(part)
                if not message.get("more_body"):
                    return parts[0] if len(parts) == 1 else b"".join(parts)
        except BaseException:
            app.buffered -= size
            raise

    async def _answer(self, record: RequestRecord, body: bytes) -> bytes:
        try:
            decoded = self._decoder.decode(body)
            reply = await self._handler(self._app.api, record, decoded)
        except msgspec.ValidationError as error:
            raise RequestFailure("Tokenizer", f"invalid request: {_shape(error)}") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise RequestFailure("Tokenizer", "the body is not valid JSON", 400) from None
        return msgspec.json.encode(reply)


Endpoint: TypeAlias = GetEndpoint | PostEndpoint


class ClientGone(Exception):
    """There is nobody to answer."""


class RequestWatch:
    """Cancels a request's task when its time is up or its client goes away."""

    def __init__(self, scope: Scope) -> None:
        self._loop, self._scope = asyncio.get_running_loop(), scope
        self._task, self._reason = asyncio.current_task(), ""
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> RequestWatch:
        self._scope[CONNECTION].on_disconnect = partial(self._stop, "disconnect")
        return self

    def __exit__(self, *_: object) -> None:
        self._scope[CONNECTION].on_disconnect = None
        if self._timer is not None:
            self._timer.cancel()

    def limit(self, seconds: float) -> None:
        """So much time from now on."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._stop, "timeout")

    def failure(self, message: str, status: int) -> BaseException:
        """Why the task was cancelled."""
        if self._reason == "timeout":
            return RequestFailure("Timeout", message, status, retry_after=1 if status == 503 else None)
        return ClientGone() if self._reason else asyncio.CancelledError()

    def _stop(self, reason: str) -> None:
        if not self._reason and self._task is not None:
            self._reason = reason
            self._task.cancel()


def _shape(error: msgspec.ValidationError) -> str:
    """What was expected and where. Only the shape: msgspec quotes no text, but does quote values of enums."""
    message = str(error)
    return (
        "an unknown value" + message[message.rfind(" - at") :] if message.startswith("Invalid enum value") else message
    )
