"""The packed folder: what a ternary model is on disk.

`codec` turns codes into bytes, `tensor` and `model` say what a folder holds, `file` reads and writes it. NumPy and the
standard library only, so that whoever serves a model needs no torch. The format: docs/reference/format.md.
"""

from ternarybert.packed.folder import is_packed, read, write
from ternarybert.packed.model import PackedModel
from ternarybert.packed.tensor import PackedTensor

__all__ = ["PackedModel", "PackedTensor", "is_packed", "read", "write"]
