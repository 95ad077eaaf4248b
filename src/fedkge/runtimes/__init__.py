"""Where training runs: processes, files and clocks only here."""
