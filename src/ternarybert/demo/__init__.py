"""The whole workflow on real weights and real texts: a teacher, its ternary student, and both measured side by side.

`sources.py` locates the weights and the reviews, `demo.py` trains what is missing, `measure.py` compares. All functions
take folders and rows as arguments, so that tests run the same code with a tiny model in seconds.
"""
