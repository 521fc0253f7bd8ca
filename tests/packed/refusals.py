"""The statuses of the C library that correspond to the errors of the Python reader."""

from ternarybert.errors import (
    ContainerError,
    FormatVersionError,
    NotPackedError,
    PackedConfigError,
    PackedTensorError,
    UnsafeFileError,
)

STATUS_OF = {
    NotPackedError: "not packed",
    FormatVersionError: "version",
    UnsafeFileError: "file",
    PackedConfigError: "config",
    ContainerError: "container",
    PackedTensorError: "tensor",
}
