"""Is this installation sound? Facts about it, and a self-test of the native engine. Never imports torch."""

from ternarybert.doctor.examine import Finding, examine

__all__ = ["Finding", "examine"]
