"""Compare methods and bit widths: a grid of students of one teacher, as a table and a figure of size and score."""
