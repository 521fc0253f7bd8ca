"""Search in texts by meaning: `search("notes/", "how do I choose a recipe")`.

Files become passages (`passages.py`), passages become vectors that are kept beside the files (`index.py`), and a
question is compared with all of them: small and exact. For millions of texts see docs/how-to/search.md.
"""

from __future__ import annotations

from ternarybert.search.index import SearchResult, VectorIndex, search

__all__ = ["SearchResult", "VectorIndex", "search"]
