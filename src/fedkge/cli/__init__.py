"""The command line: `fedkge --help`. Heavy imports happen inside the commands."""
