"""`python -m groundspeed`: the command line if its script is not on the PATH."""

from groundspeed.cli import main

main()
