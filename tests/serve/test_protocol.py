"""The connection by itself: what is refused at once, and clients that send without end or read too little."""

import asyncio
from contextlib import asynccontextmanager

import pytest
import uvicorn
from uvicorn.server import ServerState

from ternarybert.serve.app import ServeApp
from ternarybert.serve.metrics import ServerMetrics
from ternarybert.serve.protocol import ServeProtocol
from ternarybert.serve.routes import Api
from ternarybert.serve.settings import ServerSettings

pytestmark = pytest.mark.anyio

SETTINGS = ServerSettings((("m", "nowhere"),), max_requests=1)
EMBED = b"POST /embed HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"


@pytest.fixture
def anyio_backend():
    return "asyncio"


class Recorded(asyncio.Transport):
    """Keeps what is written; its client reads nothing more while `reads` is false."""

    def __init__(self):
        super().__init__()
        self.written, self.closed, self.unsent = b"", False, 0

    def write(self, data):
        if self.closed:
            raise RuntimeError("the transport is closed")  # as uvloop's
        self.written += data

    def close(self):
        self.closed = True

    abort = close

    def is_closing(self):
        return self.closed

    def get_write_buffer_size(self):
        return self.unsent

    def pause_reading(self):
        pass

    def resume_reading(self):
        pass

    @property
    def statuses(self):
        return [int(part.split()[0]) for part in self.written.split(b"HTTP/1.1 ")[1:]]


@asynccontextmanager
async def connected(settings=SETTINGS, *, full=True, **seconds):
    """A protocol of a server that is full, its transport, and uvicorn's state."""
    app = ServeApp(Api({}, settings), settings, ServerMetrics(("m",)))
    app.accepted = settings.max_requests if full else 0
    config = uvicorn.Config(app, log_config=None, lifespan="off", timeout_keep_alive=75)
    config.load()
    state, transport = ServerState(), Recorded()
    loop = asyncio.get_running_loop()
    protocol = ServeProtocol(
        config=config, server_state=state, app_state={}, _loop=loop, refusal=app.refusal, **seconds
    )
    protocol.connection_made(transport)
    yield protocol, transport, state
    protocol.connection_lost(None)
    await asyncio.sleep(0)


async def test_a_refusal_is_written_without_a_task():
    async with connected() as (protocol, transport, state):
        for count in (1, 2):
            protocol.data_received(EMBED)
            assert not state.tasks
            await asyncio.sleep(0)
            assert transport.statuses == [429] * count
        assert protocol.timeout_keep_alive_task is not None


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /health HTTP/1.1\r\n\r\n",
        EMBED.replace(b"1.1", b"1.0"),
        EMBED.replace(b"host: x", b"expect: 100-continue"),
        EMBED.replace(b"host: x", b"connection: close"),
        EMBED.replace(b"/embed", b"/nothing"),
        EMBED.replace(b"/embed", b"/models/m/embed"),
    ],
)
async def test_all_else_is_for_the_application(request_):
    async with connected() as (protocol, _, state):
        protocol.data_received(request_)
        assert len(state.tasks) == 1


async def test_only_a_full_server_without_other_origins_refuses():
    async with connected(full=False) as (protocol, _, state):
        protocol.data_received(EMBED)
        assert len(state.tasks) == 1
    origins = ServerSettings(SETTINGS.models, max_requests=1, cors_origins=("https://a.example",))
    async with connected(origins) as (protocol, _, state):
        protocol.data_received(EMBED)
        assert len(state.tasks) == 1  # the middleware has headers to add


@pytest.mark.parametrize("full", [True, False])
async def test_requests_without_end_that_wait_for_no_answer(full):
    async with connected(full=full) as (protocol, transport, _):
        protocol.data_received(EMBED * 1000)
        await asyncio.sleep(0)
        assert transport.closed and len(transport.statuses) <= 16 and len(protocol.pipeline) <= 16


@pytest.mark.parametrize("more", [0, 2])
async def test_a_client_that_goes_away_is_no_error(more):
    """Nor is one that has sent further requests: the one that is being answered is told."""
    errors = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    async with connected(full=False) as (protocol, _, state):
        protocol.data_received(EMBED.replace(b"length: 2", b"length: 9") + b"{" if not more else EMBED * (1 + more))
        [task] = state.tasks
        await asyncio.sleep(0)
        protocol.connection_lost(None)
        await asyncio.wait([task], timeout=5)
        assert task.done() and task.exception() is None
    await asyncio.sleep(0.01)
    assert not errors


async def test_an_answer_whose_client_has_gone_is_not_written():
    errors = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    async with connected() as (protocol, transport, _):
        protocol.data_received(EMBED)  # refused, and written when the loop goes on
        transport.closed = True
        await asyncio.sleep(0)
        assert not transport.written
    assert not errors


@pytest.mark.parametrize("start", [b"GET /", b"GET / HTTP/1.1\r\nx: ", b"GET / HTTP/1.1\r\nx"])
async def test_a_line_without_end(start):
    async with connected() as (protocol, transport, _):
        protocol.data_received(start)
        for _ in range(3):
            assert not transport.closed
            protocol.data_received(b"a" * 30_000)
        assert transport.closed


async def test_a_trailer_without_end():
    async with connected() as (protocol, transport, _):
        protocol.data_received(EMBED.replace(b"content-length: 2", b"transfer-encoding: chunked").removesuffix(b"{}"))
        protocol.data_received(b"0\r\nx: ")
        for _ in range(3):
            assert not transport.closed
            protocol.data_received(b"a" * 30_000)
        assert transport.closed


async def test_the_rest_of_a_refused_request_has_a_time():
    async with connected(read_seconds=0.1) as (protocol, transport, _):
        protocol.data_received(EMBED.replace(b"length: 2", b"length: 200000"))
        for _ in range(20):
            protocol.data_received(b"a")
            await asyncio.sleep(0.01)
        assert transport.closed
    async with connected(read_seconds=0.1) as (protocol, transport, _):
        protocol.data_received(EMBED.replace(b"length: 2", b"length: 20"))
        protocol.data_received(b"a" * 18)
        await asyncio.sleep(0.2)
        assert not transport.closed  # it came


async def test_a_client_may_read_slowly_but_not_nothing():
    async with connected(write_seconds=0.05) as (protocol, transport, _):
        transport.unsent = 1000
        protocol.pause_writing()
        for _ in range(6):
            transport.unsent -= 100
            await asyncio.sleep(0.03)
        assert not transport.closed
        await asyncio.sleep(0.15)
        assert transport.closed


async def test_a_client_that_does_not_read_is_not_refused_again_and_again():
    async with connected() as (protocol, transport, state):
        protocol.pause_writing()
        protocol.data_received(EMBED)
        assert len(state.tasks) == 1 and not transport.written  # it waits until the client reads
