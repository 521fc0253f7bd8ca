"""Logs: one JSON object per line on standard error. Never a text, and of an error only its class and place."""

from __future__ import annotations

import logging
import os
import sys
import time
import traceback
from pathlib import Path

import msgspec

log = logging.getLogger("ternarybert.serve")


class JsonFormatter(logging.Formatter):
    """Time, level, event, and what was passed as `extra={"fields": ...}`."""

    def format(self, record: logging.LogRecord) -> str:
        """A line."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry = {
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "pid": os.getpid(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[1] is not None:
            entry |= _without_message(record.exc_info[1])
        return msgspec.json.encode(entry).decode()


def set_up(level: str) -> None:
    """Log to standard error from this level on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    for logger in (log, logging.getLogger("uvicorn")):
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level.upper() if logger is log else max(logging.WARNING, getattr(logging, level.upper())))


def _without_message(error: BaseException) -> dict[str, object]:
    """A message may quote a text."""
    places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
    return {"error": type(error).__name__, "places": places[-8:]}
