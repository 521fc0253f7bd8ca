"""Questions about a text: SQuAD, and data of the same form."""
