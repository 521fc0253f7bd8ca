"""Everything that `ternarybert doctor` says: facts, and problems with what to do about them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from ternarybert.doctor import facts
from ternarybert.errors import TernaryBertError

_REINSTALL = "reinstall it: pip install --force-reinstall --no-deps ternarybert"


@dataclass
class Finding:
    """What was found out; `problems` is empty where all is well."""

    versions: dict[str, str | None] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    engine: dict[str, Any] = field(default_factory=dict)
    extras: dict[str, dict[str, str | None]] = field(default_factory=dict)
    selftest: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def examine(*, selftest: bool = True) -> Finding:
    """Look at the installation; what is broken becomes a problem, never an exception."""
    found = Finding(facts.versions(), facts.machine(), extras=facts.extras())
    missing = [name for name, version in found.versions.items() if version is None]
    found.problems += [f"{name} is missing: pip install {name}" for name in missing]
    try:
        found.engine = _engine()
        if selftest:
            found.selftest = _selftest(found)
    except TernaryBertError as error:
        found.problems.append(str(error))
    except Exception as error:  # whatever an unsound installation can do
        found.problems.append(f"{type(error).__name__}: {error}; {_REINSTALL}")
    return found


def _engine() -> dict[str, Any]:
    from ternarybert import _native
    from ternarybert.runtime.engine import chosen_kernel, kernels, thread_count

    return {
        "native library": _native.version(),
        "cpu features": sorted(_native.cpu_features()),
        "kernels": kernels(),
        "chosen": chosen_kernel(),
        "threads": thread_count(),
    }


def _selftest(found: Finding) -> dict[str, Any]:
    from ternarybert.doctor.selftest import speed, wrong_kernels

    begin = time.perf_counter()
    wrong = list(wrong_kernels())
    found.problems += [f"{problem}; please report it, with this page" for problem in wrong]
    threads = sorted({1, found.engine["threads"]})
    measured = [speed(count) for count in threads]
    return {"bits": not wrong, "speed": measured, "seconds": round(time.perf_counter() - begin, 1)}
