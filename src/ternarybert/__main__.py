"""`python -m ternarybert` is the `ternarybert` command, also under torchrun."""

from ternarybert.cli import main

main()
