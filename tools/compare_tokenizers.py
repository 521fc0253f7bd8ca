"""Compare the C library's tokens with those of Hugging Face `tokenizers` on every line of text files.

Ids, types, words, offsets and truncation must be equal, for each line alone (at most 64 tokens) and as a pair with
the line before it (at most 32). Run it in the root of the repository:

    PYTHONPATH=. python tools/compare_tokenizers.py FOLDER FILE...
"""

import sys
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path

from tests.native.test_c_library import check_texts

AT_ONCE = 10_000


def lines(paths: list[str]) -> Iterator[str]:
    """Those of the files that are UTF-8, without the empty ones."""
    for path in paths:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            yield from (line.rstrip("\n") for line in file if line.strip())


def main() -> None:
    """Raises an AssertionError that shows the first text with other tokens."""
    folder, *paths = sys.argv[1:]
    given, count = lines(paths), 0
    while chunk := list(islice(given, AT_ONCE)):
        count += len(chunk)
        check_texts(Path(folder), chunk, 64)
        check_texts(Path(folder), list(pairwise(chunk)), 32)
        sys.stdout.write(f"{count:,} texts, equal\n")


if __name__ == "__main__":
    main()
