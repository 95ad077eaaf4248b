"""Knowledge-graph embeddings trained across organisations that cannot share their graphs."""

import os

__version__ = "0.1.0"

# Read by torch at its first tensor: large tables are then made of large pages, which Linux gives out faster.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
