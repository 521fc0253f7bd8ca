"""Runs the application: one process, or several that share a socket and a supervisor.

With several workers the supervisor loads the models, opens the socket and forks; so the workers share the memory of the
weights. It starts a worker again that ended unexpectedly, while the others go on. SIGTERM ends the server when the
accepted requests are answered; SIGHUP loads the folders of the models again.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import uvicorn

from ternarybert.errors import OptionError, TernaryBertError
from ternarybert.runtime.engine import thread_count
from ternarybert.serve import logs
from ternarybert.serve.app import ServeApp, with_cors
from ternarybert.serve.logs import log
from ternarybert.serve.metrics import ServerMetrics
from ternarybert.serve.protocol import ServeProtocol
from ternarybert.serve.routes import Api
from ternarybert.serve.served_model import ServedModel
from ternarybert.serve.settings import ServerSettings

_SWITCH_SECONDS = 0.0005  # the engine's thread must not wait 5 ms, Python's default, for the event loop's
_QUICK_DEATH, _MOST_QUICK_DEATHS = 2.0, 5
_PAUSE, _LONGEST_PAUSE = 0.1, 1.0  # before a worker is started again that died quickly


def run_server(settings: ServerSettings, ready: Callable[[str], None] = lambda _: None) -> None:
    """Serve until SIGTERM or SIGINT; `ready` is called with the address before the first request is accepted."""
    logs.set_up(settings.log_level)
    if hasattr(signal, "SIGHUP"):  # until it can be handled it waits; it would end the process
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    settings = replace(
        settings, threads=max(1, thread_count(settings.threads) // (1 if settings.threads else settings.workers))
    )
    names = tuple(name for name, _ in settings.models)
    metrics = ServerMetrics(names, rows=settings.workers + 1)
    models = {name: ServedModel(name, folder, settings, metrics) for name, folder in settings.models}
    listening = _listen(settings)
    host, port = listening.getsockname()[:2]
    ready(f"http://{f'[{host}]' if ':' in host else host}:{port}")
    log.info(
        "start", extra={"fields": {"models": list(names), "workers": settings.workers, "threads": settings.threads}}
    )
    if settings.workers == 1:
        serve_requests(settings, models, metrics, listening)
    else:
        WorkerSupervisor(settings, models, metrics, listening).run()
    log.info("stop")


def serve_requests(
    settings: ServerSettings, models: Mapping[str, ServedModel], metrics: ServerMetrics, listening: socket.socket
) -> None:
    """Serve in this process."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.freeze()  # what exists now stays; no collection need look at it
    for model in models.values():
        model.start()
    app = ServeApp(Api(models, settings), settings, metrics)
    config = uvicorn.Config(
        with_cors(app),
        http=partial(  # type: ignore[arg-type]
            ServeProtocol,
            refusal=app.refusal,
            read_seconds=settings.read_timeout,
            write_seconds=settings.timeout,
        ),
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # the client's address is used nowhere
        ws="none",  # an upgrade is refused like any other request
        timeout_keep_alive=75,  # longer than most proxies keep theirs: the side that sends must be the one that closes
        timeout_graceful_shutdown=int(settings.shutdown_timeout),
        backlog=2048,
    )
    server = uvicorn.Server(config)

    def end(*_: object) -> None:
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn raises a signal again when all is done
        signal.signal(number, end)

    async def main() -> None:
        if hasattr(signal, "SIGHUP"):
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _reload_in_thread, models, metrics)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
        await server.serve([listening])
        if tasks := set(server.server_state.tasks):  # cancelled by the end of --shutdown-timeout; they say so
            await asyncio.wait(tasks, timeout=1)
            await asyncio.sleep(0.1)  # for what they wrote to leave

    loop = (config.get_loop_factory() or asyncio.new_event_loop)()
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


def reload_models(models: Mapping[str, ServedModel], metrics: ServerMetrics, use: Callable[..., None]) -> bool:
    """Load all folders again and hand the models to `use`; whether any could be. One that cannot stays as it was."""
    successes = 0
    for name, model in models.items():
        try:
            use(model, model.load())
        except (TernaryBertError, OSError) as error:
            metrics.add("tb_reload_failure", 1, name)
            fields = {"model": name, "error": type(error).__name__, "message": str(error)}
            log.error("reload failed, the old model stays", extra={"fields": fields})
        else:
            successes += 1
            metrics.add("tb_reload_success", 1, name)
            log.info("reloaded", extra={"fields": {"model": name}})
    return successes > 0


def _reload_in_thread(models: Mapping[str, ServedModel], metrics: ServerMetrics) -> None:
    """While a folder is read, requests go on with the old model."""
    loop = asyncio.get_running_loop()

    def use(model: ServedModel, loaded: Any) -> None:
        loop.call_soon_threadsafe(model.start, loaded)

    threading.Thread(target=reload_models, args=(models, metrics, use), name="reload", daemon=True).start()


class WorkerSupervisor:
    """Forks workers, starts those again that die, and passes signals on."""

    def __init__(
        self,
        settings: ServerSettings,
        models: Mapping[str, ServedModel],
        metrics: ServerMetrics,
        listening: socket.socket,
    ) -> None:
        if not hasattr(os, "fork"):
            raise OptionError("--workers needs a system with fork; start one worker")
        self._settings, self._models, self._metrics, self._listening = settings, models, metrics, listening
        self._workers: dict[int, tuple[int, float]] = {}  # process id: its row of the metrics, when it started
        self._quick_deaths, self._failed = 0, False
        metrics.use_row(settings.workers)
        if settings.threads != 1:  # an engine's threads do not exist in a forked process: each worker loads by itself
            for model in models.values():
                model.loaded = None

    def run(self) -> None:
        """Until a signal ends it."""
        signals = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        for row in range(self._settings.workers):
            self._start(row, before)
        stopping = False
        while self._workers:
            received = signal.sigwait(signals)
            if received == signal.SIGCHLD:
                self._collect(before, stopping or self._failed)
            elif received == signal.SIGHUP:
                self._reload()
            else:
                stopping = True
                self._signal(signal.SIGTERM)
        if self._failed:
            raise TernaryBertError("the workers end as soon as they start; the log says why")

    def _start(self, row: int, mask: Any) -> None:
        process = os.fork()
        if process == 0:
            self._work(row, mask)
        self._workers[process] = row, time.monotonic()

    def _work(self, row: int, mask: Any) -> NoReturn:
        code = 1
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            self._metrics.use_row(row)
            serve_requests(self._settings, self._models, self._metrics, self._listening)
            code = 0
        except BaseException as error:
            log.error("the worker failed", exc_info=error)
        finally:
            sys.stderr.flush()
            os._exit(code)

    def _collect(self, mask: Any, stopping: bool) -> None:
        while self._workers:
            process, status = os.waitpid(-1, os.WNOHANG)
            if not process:
                return
            row, started = self._workers.pop(process)
            if stopping:
                continue
            log.error("a worker ended", extra={"fields": {"worker": process, "status": status}})
            now = time.monotonic()
            quick = now - started < _QUICK_DEATH
            self._quick_deaths = self._quick_deaths + 1 if quick else 0
            lives = any(now - other > _QUICK_DEATH for _, other in self._workers.values())
            if self._quick_deaths >= _MOST_QUICK_DEATHS and not lives:  # none can start
                self._failed = True
                self._signal(signal.SIGTERM)
                stopping = True
                continue
            if quick:
                time.sleep(min(_LONGEST_PAUSE, _PAUSE * self._quick_deaths))
            self._metrics.add("tb_worker_restarts")
            self._start(row, mask)

    def _reload(self) -> None:
        """Check the folders here first: if all are damaged, no worker has to find out."""

        def use(model: ServedModel, loaded: Any) -> None:
            if self._settings.threads == 1:
                model.loaded = loaded

        if reload_models(self._models, self._metrics, use):
            self._signal(signal.SIGHUP)

    def _signal(self, number: signal.Signals) -> None:
        for process in self._workers:
            os.kill(process, number)


def _listen(settings: ServerSettings) -> socket.socket:
    try:
        family = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((settings.host, settings.port))
        listening.listen(2048)
    except (OSError, OverflowError) as error:
        raise OptionError(f"cannot listen on {settings.host}:{settings.port}: {error}") from None
    listening.set_inheritable(True)
    return listening
