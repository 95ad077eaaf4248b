"""`python -m fedkge`, where the package runs from source."""

from fedkge.cli.main import main

main()
