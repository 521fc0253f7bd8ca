"""Memory that is freed during training is not fetched from the system again, and goes back to it at the end."""

import platform
import re
from pathlib import Path

import pytest
import torch

from ternarybert.distill.allocator import memory_kept

MEBIBYTES = 64
glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only the GNU C library has this")


def use():
    """Write to a large tensor and free it; give the page faults that it took."""
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.zeros(MEBIBYTES << 18)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def resident():
    """Bytes of this process."""
    return int(re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[1]) * 1024


@glibc
def test_pages_are_faulted_in_once():
    assert use() > 10_000
    before = resident()
    with memory_kept():
        use()
        assert use() < 100
        assert resident() - before > MEBIBYTES << 19
    assert resident() - before < MEBIBYTES << 19
    assert use() > 10_000


@glibc
def test_an_error_ends_it_too():
    with pytest.raises(ZeroDivisionError), memory_kept():
        raise ZeroDivisionError
    assert use() > 10_000


def test_other_c_libraries_are_left_alone(monkeypatch):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    with memory_kept():
        assert torch.zeros(4).sum() == 0
