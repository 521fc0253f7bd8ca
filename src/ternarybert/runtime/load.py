"""From a packed folder to a model that answers: read, checked, handed to the engine. Takes milliseconds."""

from __future__ import annotations

from pathlib import Path

from ternarybert import packed
from ternarybert._nearby import nearby
from ternarybert.errors import NotPackedError, OptionError, suggest
from ternarybert.runtime.build import network_of
from ternarybert.runtime.engine import Engine, thread_count
from ternarybert.runtime.families import Kind, family_of, kind_of
from ternarybert.runtime.heads import Classifier, Tagger
from ternarybert.runtime.model import Model
from ternarybert.runtime.network import Network, Runner
from ternarybert.runtime.oracle import Oracle
from ternarybert.runtime.text import TextEncoder

ENGINES = ("native", "oracle")


def load(
    folder: str | Path,
    *,
    num_threads: int | None = None,
    kernel: str | None = None,
    engine: str = "native",
    max_length: int | None = None,
) -> Model:
    """Load a packed folder to run it without torch.

    `num_threads` is how many threads a call may use (else TERNARYBERT_THREADS, else all usable cores), `kernel` names
    one instead of the best (else TERNARYBERT_KERNEL), `engine="oracle"` computes in slow NumPy. Texts are cut at
    `max_length` tokens, or at what the model can read.
    """
    place, threads = _existing(Path(folder)), thread_count(num_threads)
    content = packed.read(place)
    network = network_of(content)
    family = family_of(content.config)
    text = TextEncoder(
        place, network.sizes.max_tokens, has_types=family.has_types and network.sizes.types > 1, max_length=max_length
    )
    kind, runner = kind_of(content.config), _runner(network, engine, threads, kernel)
    if kind == Kind.QUESTIONS:
        from ternarybert.runtime.answerer import Answerer  # late: other models need nothing of tasks/

        return Answerer(runner, text, content.config, threads)
    classes: dict[Kind, type[Model]] = {Kind.SEQUENCES: Classifier, Kind.TOKENS: Tagger}
    return classes.get(kind, Model)(runner, text, content.config, threads)


def _runner(network: Network, engine: str, threads: int, kernel: str | None) -> Runner:
    if engine not in ENGINES:
        raise OptionError(f"unknown engine '{engine}'{suggest(engine, ENGINES)}")
    return Oracle(network) if engine == "oracle" else Engine(network, num_threads=threads, kernel=kernel)


def _existing(folder: Path) -> Path:
    if folder.is_dir():
        return folder
    raise NotPackedError(f"there is no folder '{folder}'{nearby(folder)}")
