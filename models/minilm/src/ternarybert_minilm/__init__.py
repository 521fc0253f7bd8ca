"""The ternary all-MiniLM-L6-v2 as data: the packed folder `model`, found by ternarybert.load("minilm")."""
