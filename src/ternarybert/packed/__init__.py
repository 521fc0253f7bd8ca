"""The packed folder: what a ternary model is on disk.

`folder` reads and writes it, `tensor` and `model` are its content, `codec` turns codes into bytes. Needs only NumPy and
the standard library, so that serving a model needs no torch. The format: docs/reference/format.md.
"""

from ternarybert.packed.folder import is_packed, read, write
from ternarybert.packed.model import PackedModel
from ternarybert.packed.tensor import PackedTensor

__all__ = ["PackedModel", "PackedTensor", "is_packed", "read", "write"]
