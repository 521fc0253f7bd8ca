"""Data sets in one shape, and the scores they are judged by. Nothing here imports torch."""
