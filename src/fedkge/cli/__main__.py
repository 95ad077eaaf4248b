"""`python -m fedkge.cli`, where the package runs from source."""

from fedkge.cli.main import main

main()
