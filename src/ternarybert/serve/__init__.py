"""`ternarybert serve`: packed models over HTTP, with the routes of text-embeddings-inference, OpenAI and Cohere.

A request passes `protocol.py` (the connection), `app.py` (key, limits, log), a route of `routes.py` (its JSON is
defined in `schemas.py`), the tokenizer threads of `served_model.py` and the queue of `batching.py`, whose thread runs
the engine. `server.py` starts it all, in one process or several. Never imports torch. Documentation:
docs/how-to/serve.md.
"""

from __future__ import annotations

from importlib.util import find_spec

from ternarybert.errors import MissingExtraError

_NEEDED = ("httptools", "msgspec", "starlette", "uvicorn")


def require_extra() -> None:
    """Say which packages are missing, if the extra `serve` is not installed."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise MissingExtraError(f"serve needs {', '.join(missing)}: pip install 'ternarybert[serve]'")
