"""What a mistyped path was perhaps meant to be.

MERGED-DOCS:
What can go wrong, one class per cause.

Every message says what was seen and what to do next. The command line prints it as one line and exits with 2.

"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path


class TernaryBertError(Exception):
    """Base of every error this package raises on purpose."""


class RecipeError(TernaryBertError, ValueError):
    """A recipe has an unknown field, a bad value or a combination that cannot work."""


class QuantizationError(TernaryBertError, ValueError):
    """A tensor cannot be quantized as asked."""


class NonFiniteError(QuantizationError):
    """A tensor to quantize holds NaN, infinity, or values whose sum overflows."""


class NativeLibraryError(TernaryBertError, RuntimeError):
    """The native library is missing or does not belong to this version of the package."""


class MissingExtraError(TernaryBertError, ImportError):
    """Something needs an optional part of the package that is not installed."""


class UnsupportedModelError(TernaryBertError, ValueError):
    """A model's family cannot be ternarized, or the model lacks what the job needs."""


class OutputError(TernaryBertError, RuntimeError):
    """An output or work folder holds something that would be lost, or cannot be used."""


class DivergedError(TernaryBertError, RuntimeError):
    """Training produced a loss that is not a number."""


class DataError(TernaryBertError, ValueError):
    """A data file is missing, unreadable, empty, or does not hold what was asked of it."""


class LabelError(DataError):
    """The labels in the data do not fit the task or the teacher."""


class HubError(TernaryBertError, ConnectionError):
    """Something was to come from the Hugging Face hub, and the hub cannot be reached."""


class InputError(TernaryBertError, ValueError):
    """A text, a pair of texts or token ids that a model cannot take."""


class KernelError(TernaryBertError, ValueError):
    """The kernel that was asked for does not exist, or this CPU cannot run it."""


class DemoError(TernaryBertError, RuntimeError):
    """Something that the demo started did not come to its end."""


class OutOfMemoryError(TernaryBertError, MemoryError):
    """The native engine did not get the memory that it needs."""


class TruncationWarning(UserWarning):
    """Texts were longer than the model, and only their beginnings were read."""


def suggest(wrong: object, allowed: Iterable[str]) -> str:
    """End of a message about an unknown name: the nearest allowed one, then all of them."""
    names = sorted(allowed)
    near = get_close_matches(str(wrong), names, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    return f"{hint} Allowed: {', '.join(names)}" if hint else f"; allowed: {', '.join(names)}"


class PackedError(TernaryBertError, ValueError):
    """Base of what can be wrong with a packed folder."""


class NotPackedError(PackedError):
    """The folder is not one that this package wrote."""


class FormatVersionError(PackedError):
    """The folder was written in a version of the format that this package does not read."""


class UnsafeFileError(PackedError):
    """A file leads out of the folder, is not a regular file, or could run code when loaded."""


class PackedConfigError(PackedError):
    """A JSON file of the folder is malformed, or says something that does not fit the tensors."""


class ContainerError(PackedError):
    """`model.safetensors` is truncated, has an impossible header, or its bytes are not those that were written."""


class PackedTensorError(PackedError):
    """One tensor is missing, not expected, or has a wrong type, shape, code, padding or scale."""


class NotTernaryError(TernaryBertError, ValueError):
    """A float tensor that should hold ternary values holds others."""


class FolderExistsError(OutputError, FileExistsError):
    """The place to write to is taken, and overwriting it was not asked for or would lose something else."""


class OptionError(TernaryBertError, ValueError):
    """Options of a command that do not go together, or not with what they are used on."""


def nearby(path: Path) -> str:
    """End of a message about a path that leads nowhere: what lies there under a like name, if anything does."""
    names: list[str] = []
    with suppress(OSError):  # a parent that is not there, or that we may not look into
        names = [entry.name for entry in path.parent.iterdir()]
    near = get_close_matches(path.name, names, n=1)
    return f"; did you mean '{path.parent / near[0]}'?" if near else ""
