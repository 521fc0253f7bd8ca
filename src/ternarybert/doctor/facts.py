"""What is installed, and on what: told by the packages' own metadata, because importing torch takes seconds."""

from __future__ import annotations

import os
import platform
import re
from importlib import metadata
from typing import Any

import ternarybert
from ternarybert._native import cpu_name

_BASE = ("numpy", "tokenizers", "safetensors", "typer", "rich", "pyyaml")
_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+).*?extra\s*==\s*['\"](?P<extra>[\w-]+)['\"]")


def versions() -> dict[str, str | None]:
    """The package, Python, and what every installation needs; None for what is missing."""
    here: dict[str, str | None] = {"ternarybert": ternarybert.__version__, "python": platform.python_version()}
    return here | {name: _version(name) for name in _BASE}


def extras() -> dict[str, dict[str, str | None]]:
    """The packages of every extra with their versions; None for what is missing."""
    try:
        required = metadata.requires("ternarybert") or []
    except metadata.PackageNotFoundError:  # the sources alone, on Python's path
        return {}
    found: dict[str, dict[str, str | None]] = {}
    for line in required:
        if match := _REQUIREMENT.match(line):
            found.setdefault(match["extra"], {})[match["name"]] = _version(match["name"])
    return found


def machine() -> dict[str, Any]:
    """The processor and the system."""
    from ternarybert.runtime.engine import THREADS_VARIABLE

    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "cpu": cpu_name(),
        "usable cores": usable,
        THREADS_VARIABLE: os.environ.get(THREADS_VARIABLE),
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
