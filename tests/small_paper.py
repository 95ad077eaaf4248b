"""A checkout with a paper of its own, and presets that are run in seconds."""

from __future__ import annotations

import json
from pathlib import Path

PRESET = """
rounds = 30
data     = { path = "%s" }
model    = { name = "transe", dim = 6, margin = 4.0 }
trainer  = { epochs = 1, batch_size = 64, negatives = 4, lr = 2e-2 }
evaluate = { every = 2, patience = 0 }
[variants.single]
method = { name = "single" }
[variants.fedep]
method = { name = "fedep" }
[variants.fedprox]
method = { name = "fedprox", mu = 0.01 }
"""
CATALOGUE = """
[p-table1]
title = "Small"
protocol = "p-2020"
metrics = ["mrr"]
costs = true
runs = [
  { presets = ["p-2020-*"] },
  { presets = ["p-2020-*"], variants = ["fedep"], grid = { "trainer.lr" = [0.01] } },
]
[p-table9]
title = "Not to be had"
protocol = "p-2020"
instead = "its data needs credentials"
"""
VALUES = {
    "p-2020": {
        "paper": "P (2020)",
        "note": "Both sides.",
        "presets": ["p-2020-*.toml"],
        "options": {"fedprox": {"method.mu": 0.1}},
        "rows": [
            {
                "data": "federation",
                "model": "transe",
                "method": "fedep",
                "named": "FedE",
                "table": "Table 1",
                "mrr": 90.0,
            }
        ],
    }
}


def write_checkout(root: Path, federation: Path) -> None:
    """The presets, the catalogue and the paper's values, in a folder that is made."""
    (root / "papers").mkdir(parents=True)
    (root / "examples").mkdir()
    (root / "examples" / "p-2020-small-transe.toml").write_text(PRESET % federation.resolve())
    (root / "papers" / "catalogue.toml").write_text(CATALOGUE)
    (root / "papers" / "values.json").write_text(json.dumps(VALUES))
