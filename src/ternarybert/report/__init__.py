"""A model as one page that needs no network, and as pictures: how good, how small, and what happened inside it."""
