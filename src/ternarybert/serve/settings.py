"""Everything that can be set about a server, as one frozen value."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ternarybert.errors import OptionError
from ternarybert.runtime.installed import is_hub_id

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class ServerSettings:
    """What a server runs, where it listens and what it accepts. Sizes are in bytes, times in seconds."""

    models: tuple[tuple[str, str], ...]  # name and folder; the first is the default
    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1
    threads: int | None = None  # of each worker's engine; None: the cores divided among the workers
    kernel: str | None = None
    max_length: int | None = None
    pooling: str | None = None  # None: as the folder of an embedder says, else the mean
    truncate: bool = False  # what happens to texts that are too long, if a request does not say
    max_batch_tokens: int = 512
    max_requests: int = 128  # accepted at a time, running and waiting, by each worker
    max_texts: int = 1024
    max_tokens: int = 65536
    max_body: int = 2_000_000
    timeout: float = 60.0
    read_timeout: float = 10.0
    shutdown_timeout: float = 30.0
    api_key: str | None = None
    cors_origins: tuple[str, ...] = ()
    log_level: str = "info"

    @property
    def max_buffered(self) -> int:
        """Bytes of requests' bodies and of unread large answers that are in memory at a time, but for one answer."""
        return max(32 * self.max_body, 1 << 24)


def named_folders(given: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """FOLDER and NAME=FOLDER as names and folders; one without a name has its own last part as name."""
    named: dict[str, str] = {}
    for one in given:
        name, sign, folder = one.partition("=")
        if not sign or "/" in name:  # a path may contain =
            folder = one
            # user/model@revision is called model.
            name = Path(one.partition("@")[0] if is_hub_id(one) else one).resolve().name
        if not _NAME.fullmatch(name):
            raise OptionError(
                f"'{name}' cannot be a model's name; use letters, digits, '.', '_' and '-', as in NAME=FOLDER: {one}"
            )
        if name in named:
            raise OptionError(f"two models are named '{name}'; name one of them differently: NAME={folder}")
        named[name] = folder
    return tuple(named.items())
