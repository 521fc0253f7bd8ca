"""The command `serve`: packed models over HTTP. Never imports torch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ternarybert.cli.options import ENGINE, OptionGroup, option, with_options
from ternarybert.errors import OptionError, suggest

EXAMPLE = (
    "Example: ternarybert serve my-model-ternary   or   ternarybert serve mail=mail-ternary names=ner-ternary --port 80"
)

API_KEY_VARIABLE = "TERNARYBERT_API_KEY"
NETWORK, LIMITS = "Network", "Limits"
_LEVELS = ("debug", "info", "warning", "error")


class NetworkOptions(OptionGroup):
    """Where the server listens, and to whom."""

    host: str = option(NETWORK, "Address to listen on; 0.0.0.0 for all.", "ADDRESS", default="127.0.0.1")
    port: int = option(NETWORK, "Port to listen on; 0 for any free one.", default=8080, min=0, max=65535)
    api_key: str | None = option(
        NETWORK,
        f"Key that requests must have. ps shows it; better use --api-key-file or the variable {API_KEY_VARIABLE}.",
        "KEY",
    )
    api_key_file: Path | None = option(NETWORK, "File that contains the key.", "FILE")
    cors_origin: list[str] | None = option(
        NETWORK, "Origin whose pages may call the server from a browser; can be repeated. By default none.", "ORIGIN"
    )
    log_level: str = option(
        NETWORK, "Least important log entries: debug, info, warning or error.", "LEVEL", default="info"
    )

    def key(self) -> str | None:
        """The key, wherever it is."""
        given = [self.api_key, os.environ.get(API_KEY_VARIABLE)]
        if self.api_key is not None and self.api_key_file is not None:
            raise OptionError("--api-key and --api-key-file exclude each other")
        if self.api_key_file is not None:
            try:
                given = [self.api_key_file.read_text(encoding="utf-8")]
            except (OSError, UnicodeDecodeError) as error:
                raise OptionError(f"cannot read --api-key-file {self.api_key_file}: {error}") from None
        key = next((one.strip() for one in given if one is not None), None)  # files and secrets end in a newline
        if key is not None and (not key or not key.isascii()):
            raise OptionError("the API key is empty or not ASCII")
        return key


class ServeLimits(OptionGroup):
    """What a server accepts."""

    max_batch_tokens: int = option(LIMITS, "Tokens computed together.", default=512, min=1)
    max_requests: int = option(
        LIMITS, "Requests that each worker accepts at a time; others get status 429.", default=128, min=1
    )
    max_texts: int = option(LIMITS, "Texts per request.", default=1024, min=1)
    max_tokens: int = option(LIMITS, "Tokens per request.", default=65536, min=1)
    max_body: int = option(LIMITS, "Bytes per request.", "BYTES", default=2_000_000, min=1)
    timeout: float = option(
        LIMITS, "Seconds after which a request gets status 503.", "SECONDS", default=60.0, min=0.001
    )
    read_timeout: float = option(
        LIMITS, "Seconds that a client has to send its headers, and its body.", "SECONDS", default=10.0, min=0.001
    )
    shutdown_timeout: float = option(
        LIMITS, "Seconds that accepted requests have when the server is to end.", "SECONDS", default=30.0, min=0
    )


class ServeEngine(OptionGroup):
    """How the models are run."""

    workers: int = option(ENGINE, "Number of processes.", default=1, min=1, max=256)
    threads: int | None = option(ENGINE, "CPU threads of each worker. By default all usable cores, divided.", min=1)
    kernel: str | None = option(
        ENGINE, "Kernel to use, by name. By default the fastest that this CPU supports.", "NAME"
    )
    max_length: int | None = option(
        ENGINE, "Tokens of a text that are read. By default as many as the model can.", "TOKENS"
    )
    pooling: str | None = option(
        ENGINE, "Vector of a text: mean, cls or pooler. By default as an embedder's folder says, else mean.", "NAME"
    )
    truncate: bool = option(
        ENGINE, "Truncate texts that are too long, also where a request does not ask for it.", default=False
    )


@with_options
def serve(
    models: Annotated[
        list[str],
        typer.Argument(
            help="Packed model (a folder or a hub id), or NAME=FOLDER. The first is the default.",
            metavar="[NAME=]FOLDER...",
        ),
    ],
    *,
    network: NetworkOptions,
    limits: ServeLimits,
    engine: ServeEngine,
) -> None:
    """Serve packed models over HTTP, with the routes of text-embeddings-inference and OpenAI, and a page to try."""
    from ternarybert.serve import require_extra
    from ternarybert.serve.settings import ServerSettings, named_folders

    require_extra()
    if network.log_level not in _LEVELS:
        raise OptionError(f"unknown --log-level '{network.log_level}'{suggest(network.log_level, _LEVELS)}")
    settings = ServerSettings(
        models=named_folders(models),
        host=network.host,
        port=network.port,
        api_key=network.key(),
        cors_origins=tuple(network.cors_origin or ()),
        log_level=network.log_level,
        **{name: getattr(limits, name) for name in ServeLimits.options()},
        **{name: getattr(engine, name) for name in ServeEngine.options()},
    )
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy's own threads are of no use here
    from ternarybert.serve.server import run_server

    run_server(settings, ready=lambda address: typer.echo(f"serving on {address} (Ctrl-C ends)", err=True))
