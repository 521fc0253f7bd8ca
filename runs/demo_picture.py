"""Draw the results of a finished demo as the picture docs/images/demo.svg, from its results.json only.

python runs/demo_picture.py ternarybert-demo docs/images/demo.svg
"""

from __future__ import annotations

import sys
from io import StringIO
from pathlib import Path

from rich.console import Console

from ternarybert.cli.demo import show_results
from ternarybert.demo.demo import DemoFolder

if __name__ == "__main__":
    folder, picture = map(Path, sys.argv[1:])
    results = DemoFolder(folder).results()
    if results is None:
        raise SystemExit(f"{folder} has no results of a finished demo")
    console = Console(record=True, width=110, file=StringIO(), highlight=False)
    show_results(console, results)
    console.save_svg(str(picture), title="ternarybert demo")
