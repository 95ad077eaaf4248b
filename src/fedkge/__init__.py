"""Knowledge-graph embeddings trained across organisations that cannot share their graphs."""

__version__ = "0.1.0"
