"""Load a packed model and classify texts from standard input or a list, without torch.

python examples/predict.py small "a fine film" "dull"
cat reviews.txt | python examples/predict.py small

One JSON object per text. Texts from standard input are streamed: memory does not grow with their number.
"""

from __future__ import annotations

import argparse
import json
import sys

import ternarybert


def main() -> None:
    """Parse, load, print an answer per text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="a packed folder, as `ternarybert ternarize` writes it")
    parser.add_argument("texts", nargs="*", help="texts; without any, lines of standard input")
    arguments = parser.parse_args()

    texts = arguments.texts or (line.rstrip("\n") for line in sys.stdin)
    with ternarybert.load(arguments.folder) as model:
        for answer in model.stream(texts):
            print(json.dumps(answer.as_dict(), ensure_ascii=False))


if __name__ == "__main__":
    main()
