"""Requests that are not answered: one class, with the status codes and error bodies of text-embeddings-inference.

Messages never contain a text, a path or a stack trace.
"""

from __future__ import annotations

from typing import Any

# TEI's names of causes, and ours for what it does not have.
STATUS = {
    "Empty": 400,
    "Unauthorized": 401,
    "NotFound": 404,
    "Timeout": 408,
    "Validation": 413,
    "Tokenizer": 422,
    "Backend": 424,
    "Overloaded": 429,
    "Unhealthy": 503,
}
_METRIC = {
    "Unauthorized": "unauthorized",
    "Timeout": "timeout",
    "Validation": "validation",
    "Empty": "validation",
    "Tokenizer": "tokenizer",
    "Backend": "backend",
    "Overloaded": "overloaded",
    "Unhealthy": "unhealthy",
}


class RequestFailure(Exception):
    """A request that gets an error instead of an answer."""

    def __init__(self, kind: str, message: str, status: int | None = None, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.kind, self.message, self.retry_after = kind, message, retry_after
        self.status = STATUS[kind] if status is None else status

    @property
    def metric(self) -> str:
        """Its label in te_request_failure."""
        return _METRIC.get(self.kind, "unknown")

    def body(self, path: str) -> dict[str, Any]:
        """TEI's error body; on the routes of OpenAI and Cohere also theirs."""
        if path.startswith(("/v1/", "/v2/")):
            inner = {"message": self.message, "type": self.kind, "param": None, "code": self.status}
            return {"error": inner, "message": self.message, "code": self.status, "error_type": self.kind}
        return {"error": self.message, "error_type": self.kind}
