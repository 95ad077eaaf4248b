"""How safe a run is: attacks on what it made and on what it sends, each with how well it does."""
