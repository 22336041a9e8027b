"""`python -m wayfare` is the command `wayfare`."""

from wayfare.cli import main

main()
