"""`python -m vauban`: the command line."""

from vauban.cli import main

main()
