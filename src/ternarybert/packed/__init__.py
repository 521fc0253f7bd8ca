"""The packed folder: what a ternary model is on disk. NumPy only; the format is described in `docs/format.md`."""
