"""The HTTP connection: uvicorn's protocol with limits of time and size, and refusals that cost next to nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ternarybert.serve.app import CONNECTION, Headers

_HEADER_BYTES = 65536
_REST_BYTES = 1 << 26  # of a body that is still arriving when its request is answered
_AT_ONCE = 16  # requests that a client may send without waiting for the answers


class ServeProtocol(HttpToolsProtocol):
    """One connection.

    It ends when a client sends headers, or the rest of an answered request, too slowly or without end, when it sends
    request after request without reading, or does not read at all. What `refusal` has a reply for is refused at once:
    no task, no turn of the event loop.
    """

    def __init__(
        self,
        *args: Any,
        refusal: Callable[[bytes, str, Headers, Headers], bytes | None],
        read_seconds: float = 10.0,
        write_seconds: float = 60.0,
        **more: Any,
    ) -> None:
        super().__init__(*args, **more)
        self._refusal = refusal
        self._read_seconds, self._write_seconds = read_seconds, write_seconds
        self._read_timer: asyncio.TimerHandle | None = None  # for headers, or the rest of an answered request
        self._write_timer: asyncio.TimerHandle | None = None
        self._message_open = False  # from the first byte of a request to its last
        self._silent = 0  # bytes since the parser last had something to say: of an endless line
        self._rest = 0  # bytes that came after the answer
        self._refused = 0  # requests of the bytes at hand
        self.on_disconnect: Callable[[], None] | None = None  # set while a request waits for its answer
        self._answering: Any = None  # uvicorn's `cycle` is the newest request, which may wait for older ones

    def connection_made(self, transport: Any) -> None:
        """Expect a request."""
        super().connection_made(JoinedWrites(transport, self.loop))  # type: ignore[arg-type]
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing more, and tell the request that waits for its answer."""
        self._stop_read_timer()
        self._stop_write_timer()
        if self._answering is not None and not self._answering.response_complete:
            self._answering.disconnected = True
        super().connection_lost(exc)
        if self.on_disconnect is not None:
            self.on_disconnect()

    async def drained(self) -> None:
        """Wait until the client has read most of what was written, or has gone."""
        await asyncio.sleep(0)  # see JoinedWrites
        await self.flow.drain()

    def data_received(self, data: bytes) -> None:
        """Bytes of requests."""
        self._silent += len(data)
        self._refused = 0
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._silent > _HEADER_BYTES:
            self.transport.close()
        elif self.cycle is not None and self.cycle.response_complete:
            self._await_rest(len(data))

    def _await_rest(self, size: int) -> None:
        """Of a request that is answered before its end, or of the time until the next one."""
        if not self._message_open:
            if self.timeout_keep_alive_task is None:
                idle, handler = self.timeout_keep_alive, self.timeout_keep_alive_handler
                self.timeout_keep_alive_task = self.loop.call_later(idle, handler)
            return
        self._rest += size
        if self._rest > _REST_BYTES:
            self.transport.close()
        elif self._read_timer is None:
            self._read_timer = self.loop.call_later(self._read_seconds, self.transport.close)

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        super().on_message_begin()
        scope: Any = self.scope
        scope[CONNECTION] = self
        self._message_open, self._silent, self._rest = True, 0, 0
        self._expect_headers()

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > _HEADER_BYTES:
            self.transport.close()
            return
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """All headers are there."""
        self._stop_read_timer()
        self._silent = 0
        if self._refused >= _AT_ONCE or len(self.pipeline) >= _AT_ONCE:
            self.transport.close()
        if self.transport.is_closing():
            self.cycle = _REFUSED  # what follows is not read
        elif not self._refuse():
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of a request's body."""
        self._silent = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The last byte of a request."""
        self._stop_read_timer()
        self._message_open, self._silent = False, 0
        super().on_message_complete()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def _refuse(self) -> bool:
        """Whether the request was refused; its body is then ignored, as that of every answered request is.

        Only where the connection stays open and nothing else is being answered on it: all else is uvicorn's.
        """
        busy = self.cycle is not None and not self.cycle.response_complete
        if busy or self.flow.write_paused or self.expect_100_continue:
            return False
        if self.parser.should_upgrade() or not self.parser.should_keep_alive():
            return False
        if self.parser.get_http_version() != "1.1":
            return False
        target, more = self.url.decode("latin-1"), self.server_state.default_headers
        response = self._refusal(self.parser.get_method(), target, self.headers, more)
        if response is None:
            return False
        self.transport.write(response)
        self.cycle = _REFUSED
        self._refused += 1
        self.server_state.total_requests += 1
        return True

    def pause_writing(self) -> None:
        """The client reads more slowly than it is answered."""
        super().pause_writing()
        self._stop_write_timer()
        self._look_again(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """The client has read."""
        super().resume_writing()
        self._stop_write_timer()

    def _look_again(self, unsent: int) -> None:
        self._write_timer = self.loop.call_later(self._write_seconds, self._disconnect_if_not_below, unsent)

    def _disconnect_if_not_below(self, before: int) -> None:
        """A slow client may take as long as it needs, one that reads nothing may not."""
        if (unsent := self.transport.get_write_buffer_size()) < before:
            self._look_again(unsent)
        else:
            self.transport.abort()

    def _stop_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _expect_headers(self) -> None:
        self._stop_read_timer()
        self._header_bytes = 0
        self._read_timer = self.loop.call_later(self._read_seconds, self.transport.close)


class RefusedCycle:
    """What a connection keeps of a request that was refused at once, for uvicorn: it is answered."""

    response_complete = True
    message_event = asyncio.Event()  # that nobody waits for


_REFUSED: Any = RefusedCycle()


class JoinedWrites:
    """A transport that sends at once what one turn of the event loop writes.

    uvicorn writes the head of a response and its body one after the other. Sending is what costs most of a short
    request in this process, and the client would wake twice.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Send it with everything else that is written before the loop goes on."""
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)

    def close(self) -> None:
        """Close it when all is sent."""
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _flush(self) -> None:
        parts, self._parts = self._parts, []
        if parts and not self._transport.is_closing():  # the client may have gone meanwhile
            self._transport.write(b"".join(parts))
