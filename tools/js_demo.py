"""Put the demo page, the npm package and a model into one folder that any web server can serve.

make wasm && python tools/js_demo.py EMBEDDER build/js-demo
python -m http.server --directory build/js-demo
"""

import hashlib
import shutil
import sys
from pathlib import Path

from ternarybert.packed.bundle import write_bundle

JS = Path(__file__).parents[1] / "js"


def make_demo(model: Path, target: Path) -> int:
    """Returns the bytes of everything."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(JS / "demo", target)
    package = target / "ternarybert"
    package.mkdir()
    for name in ("index.js", "engine.js", "errors.js", "source.js"):
        shutil.copy(JS / name, package)
    shutil.copytree(JS / "wasm", package / "wasm")
    write_bundle(model, target / "model.tbert")
    files = sorted(path for path in target.rglob("*") if path.is_file())
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    worker = target / "sw.js"
    worker.write_text(worker.read_text().replace("demo-CONTENT", f"demo-{digest[:16]}"))
    return sum(path.stat().st_size for path in files)


if __name__ == "__main__":
    size = make_demo(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.stdout.write(f"{size:,} bytes; try it: python -m http.server --directory {sys.argv[2]}\n")
