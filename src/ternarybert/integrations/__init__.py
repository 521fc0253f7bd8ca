"""Packed models in the libraries that people use: one file per library, which is imported only with its file."""
