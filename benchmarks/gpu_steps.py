"""Whole steps on a CUDA device with other tiles and graphs, in turns: JSON lines as in docs/gpu-steps.jsonl.

    FEDKGE_DATA=... python benchmarks/gpu_steps.py --model complex

The steps are those of train.py with negatives shared by 128. A variant changes one of the constants below.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from fedkge.machine import prepare

prepare()  # before torch is imported

import torch  # noqa: E402

from fedkge.graphs.files import read_graph  # noqa: E402
from fedkge.models import MODELS  # noqa: E402
from fedkge.training import loop  # noqa: E402
from train import BATCH, CHUNK, DIM, MODELS_MEASURED, ours  # noqa: E402

TURNS = 9
#: a variant's name -> module, constant, value; a dictionary's value is that of the model's similarity
VARIANTS: dict[str, tuple[str, str, Any]] = {
    "as it is": ("", "", None),
    "tiles of products 32 x 64, 2 warps": ("products", "TILE", (32, 64, 2)),
    "tiles of products 64 x 32, 2 warps": ("products", "TILE", (64, 32, 2)),
    "tiles of products 32 x 32, 1 warp": ("products", "TILE", (32, 32, 1)),
    "products by 32 rows at a time": ("products", "STEP", 32),
    "similarities in half as many programs": ("meeting", "PROGRAMS", 1024),
    "similarities of 4 queries at a time": ("meeting", "TILES", (4, 128, 1)),
    "contrast of 4 queries at a time": ("sharing", "TILES", (4, 4)),
    "rows catch up by 2 warps": ("waiting", "WARPS", 2),
    "rows catch up by 8 warps": ("waiting", "WARPS", 8),
    "promised steps by half as many warps": ("waiting", "NUMBERS", 256),
    "promised steps by twice as many warps": ("waiting", "NUMBERS", 64),
    "32 steps in a graph": ("loop", "TOGETHER", 32),
    "128 steps in a graph": ("loop", "TOGETHER", 128),
}


@contextmanager
def changed(variant: str, model: str) -> Iterator[None]:
    """The constant of a variant while kernels are chosen, and while steps are put into graphs."""
    where, name, value = VARIANTS[variant]
    if not where:
        yield
        return
    module = loop if where == "loop" else import_module(f"fedkge.kernels.gpu.{where}")
    before = getattr(module, name)
    own = {MODELS[model](dim=DIM).similarity: value}
    setattr(module, name, {**before, **own} if isinstance(before, dict) else value)
    try:
        yield
    finally:
        setattr(module, name, before)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", default="complex", choices=MODELS_MEASURED)
    parser.add_argument("--only", action="append", choices=VARIANTS, metavar="VARIANT", help="unset: all")
    parser.add_argument("--turns", type=int, default=TURNS)
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("no CUDA device")
    if "FEDKGE_DATA" not in os.environ:
        sys.exit("set FEDKGE_DATA to the folder that holds fb15k-237-C3")
    graph = read_graph(Path(os.environ["FEDKGE_DATA"]) / "fb15k-237-C3" / "2")
    made, steps = {}, {}
    for name in asked.only or VARIANTS:
        with changed(name, asked.model):
            made[name] = ours(asked.model, graph, "cuda", CHUNK)
            made[name]()  # puts the last steps of an epoch into a graph
            steps[name] = loop.TOGETHER
    speeds: dict[str, list[float]] = {name: [] for name in made}
    for _ in range(asked.turns):
        for name, measure in made.items():
            with changed(name, asked.model):
                speeds[name].append(measure())
    for name, found in speeds.items():
        micros = sorted(1e6 * BATCH / speed for speed in found)
        values = {
            "model": asked.model,
            "state": name,
            "us_per_step": round(statistics.median(micros), 2),
            "from_to": [round(micros[0], 2), round(micros[-1], 2)],
            "turns": asked.turns,
            "steps_in_a_graph": steps[name],
            "machine": torch.cuda.get_device_name(),
            "date": datetime.now(UTC).date().isoformat(),
        }
        print(json.dumps(values), flush=True)


if __name__ == "__main__":
    main()
