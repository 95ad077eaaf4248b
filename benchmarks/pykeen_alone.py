"""PyKEEN in a process of its own, as its users run it: nothing of fedkge is imported here.

    python benchmarks/pykeen_alone.py train transe FOLDER --dim 256

FOLDER has a site's train.tsv.gz, valid.tsv.gz and test.tsv.gz. Each line on standard input asks for a turn,
which is answered by a JSON line; `turns.py` asks. A turn of `train` is two batches of 1024 triples with 256
negatives each, of `rank` the filtered ranks of `--triples` test triples, heads and tails.
"""

from __future__ import annotations

import argparse
import gzip
import json
import logging
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pykeen.triples import TriplesFactory

from peak import own_peak

BATCH, NEGATIVES = 1024, 256
NAMES = {"transe": "TransE", "rotate": "RotatE", "complex": "ComplEx"}
BATCHES = (32, 256)  #: of ranking; the faster one counts


def read(folder: Path) -> tuple[TriplesFactory, dict[str, torch.Tensor]]:
    """The whole training graph, and the triples of all splits over its ids and those of names train lacks."""
    texts = {}
    for split in ("train", "valid", "test"):
        with gzip.open(folder / f"{split}.tsv.gz", "rt", encoding="utf-8") as file:
            texts[split] = [line.rstrip("\n").split("\t") for line in file]
    entities: dict[str, int] = {}
    relations: dict[str, int] = {}
    triples = {}
    for split, rows in texts.items():
        ids = [
            (
                entities.setdefault(h, len(entities)),
                relations.setdefault(r, len(relations)),
                entities.setdefault(t, len(entities)),
            )
            for h, r, t in rows
        ]
        triples[split] = torch.from_numpy(np.array(ids, np.int64))
    return TriplesFactory(triples["train"], entities, relations), triples


def made(name: str, whole: TriplesFactory, dim: int) -> Any:
    from pykeen.losses import NSSALoss
    from pykeen.models import model_resolver

    options = {"scoring_fct_norm": 1} if name == "transe" else {}
    return model_resolver.make(
        NAMES[name],
        triples_factory=whole,
        embedding_dim=dim,
        loss=NSSALoss(margin=9.0),
        random_seed=0,
        **options,
    )


def training(name: str, folder: Path, dim: int) -> Callable[[], dict[str, float]]:
    """Triples per second; a triple counts once with its negatives."""
    from pykeen.sampling import BasicNegativeSampler
    from pykeen.training import SLCWATrainingLoop

    whole, triples = read(folder)
    part = TriplesFactory(triples["train"][: 2 * BATCH], whole.entity_to_id, whole.relation_to_id)
    model = made(name, whole, dim)
    loop = SLCWATrainingLoop(
        model=model,
        triples_factory=part,
        optimizer=torch.optim.Adam(model.get_grad_params(), lr=1e-4),
        negative_sampler=BasicNegativeSampler,
        negative_sampler_kwargs={"num_negs_per_pos": NEGATIVES},
    )

    def turn() -> dict[str, float]:
        start = time.perf_counter()
        loop.train(part, num_epochs=1, batch_size=BATCH, use_tqdm=False, use_tqdm_batch=False)
        return {"per_s": 2 * BATCH / (time.perf_counter() - start)}

    return turn


def ranking(name: str, folder: Path, dim: int, count: int) -> Callable[[], dict[str, float]]:
    """Triples per second, with the batch size that was faster in the first turn."""
    from pykeen.evaluation import RankBasedEvaluator

    whole, triples = read(folder)
    model = made(name, whole, dim)
    some, known = triples["test"][:count], list(triples.values())
    chosen: list[int] = []

    def timed(batch: int) -> float:
        start = time.perf_counter()
        RankBasedEvaluator().evaluate(
            model, some, additional_filter_triples=known, batch_size=batch, use_tqdm=False
        )
        return time.perf_counter() - start

    def turn() -> dict[str, float]:
        seconds = {batch: timed(batch) for batch in chosen or BATCHES}
        batch = min(seconds, key=lambda size: seconds[size])
        chosen[:] = [batch]
        return {"per_s": len(some) / seconds[batch], "batch": batch, "test": len(triples["test"])}

    return turn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("train", "rank"))
    parser.add_argument("model", choices=sorted(NAMES))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--triples", type=int, default=256, help="how many are ranked in a turn")
    asked = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    if asked.what == "train":
        turn = training(asked.model, asked.folder, asked.dim)
    else:
        turn = ranking(asked.model, asked.folder, asked.dim, asked.triples)
    for _ in sys.stdin:
        print(json.dumps({**turn(), "gb": own_peak()}), flush=True)


if __name__ == "__main__":
    main()
