"""Draws what a finished demo measured as the picture of docs/images/demo.svg, from its results.json and nothing else.

python runs/demo_picture.py ternarybert-demo docs/images/demo.svg
"""

from __future__ import annotations

import sys
from io import StringIO
from pathlib import Path

from rich.console import Console

from ternarybert.cli.demo import show_results
from ternarybert.demo.demo import Place

if __name__ == "__main__":
    folder, picture = map(Path, sys.argv[1:])
    results = Place(folder).results()
    if results is None:
        raise SystemExit(f"{folder} holds no finished demo")
    console = Console(record=True, width=110, file=StringIO(), highlight=False)
    show_results(console, results)
    console.save_svg(str(picture), title="ternarybert demo")
