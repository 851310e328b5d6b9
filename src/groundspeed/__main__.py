"""`python -m groundspeed`: the command line where its script is not on the PATH."""

from groundspeed.cli import main

main()
