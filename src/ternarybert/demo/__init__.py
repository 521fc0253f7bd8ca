"""The whole way on real weights and real texts: teacher, ternary student, and both measured side by side.

`sources.py` says where the weights and the reviews come from, `jobs.py` trains whatever is not there yet, `measure.py`
compares. Everything takes its folders and rows as arguments, so that a tiny model goes the same way in seconds.
"""
