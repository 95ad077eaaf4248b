"""How near translated rows come to the host's own: PPAT beside a random rotation and Procrustes, on `atlas`.

    python benchmarks/translation.py [--data FOLDER --pairs HOST,CLIENT ...]

Sites train alone, then two talk once. Each line has the mean cosine of a translated row and
the host's row of the same entity, and the mean CSLS of these pairs.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fedkge.exchange.hops import introduced
from fedkge.graphs.graph import Axis
from fedkge.methods.conversation import converse
from fedkge.methods.ends import End
from fedkge.methods.fkge import FKGE
from fedkge.methods.ppat import csls
from fedkge.methods.translating import vectors
from fedkge.runs.data import load
from fedkge.runs.experiment import Experiment
from fedkge.runs.folder import RunFolder
from fedkge.runtimes.meeting import Meeting
from fedkge.runtimes.simulate import Simulation

PAIRS = ["government,mapping", "airline,mapping"]  #: host and client
GENTLE = {"step": 0.002, "orthogonal": 0.01}
WAYS: dict[str, dict[str, Any]] = {
    "random rotation": {"translate": "random"},
    "PPAT, 3 passes": {"passes": 3, **GENTLE},
    "PPAT, 20 passes": {"passes": 20, **GENTLE},
    "PPAT, 20 passes, the paper's step": {"passes": 20},
    "Procrustes": {"translate": "procrustes"},
}
CONFIG: dict[str, Any] = {
    "rounds": 24,
    "model": {"name": "transe", "dim": 64, "margin": 8.0},
    "trainer": {"epochs": 1, "batch_size": 1024, "negatives": 32, "lr": 3e-3},
    "method": {"name": "fkge", "first": 12, "judge": "accuracy"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, help="a folder of sites; atlas, if not given")
    parser.add_argument("--pairs", nargs="+", default=PAIRS)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    where = {"name": "atlas"} if given.data is None else {"path": str(given.data)}
    experiment = Experiment.parse({**CONFIG, "data": where})
    assert isinstance(experiment.method, FKGE)
    with tempfile.TemporaryDirectory() as folder:
        made = RunFolder.create(Path(folder) / "run", experiment, resume=False)
        run = Meeting(experiment, load(experiment), made, torch.device("cpu"), Simulation(tables=False))
        for peer in run.peers.values():
            peer.work()  # the first rounds
        print("| host, client | way | cosine | CSLS |\n|---|---|---|---|")
        for names in (pair.split(",") for pair in given.pairs):
            for way, options in WAYS.items():
                method = replace(experiment.method, virtual=0, **options)
                ends = [_end(run, name, method) for name in names]
                heard, _ = introduced(converse(ends[0], True), converse(ends[1], False))
                own = vectors(ends[0].tables, Axis.ENTITY, heard.taken[Axis.ENTITY])
                found = heard.rows[Axis.ENTITY]
                near = float(torch.nn.functional.cosine_similarity(found, own).mean())
                print(f"| {', '.join(names)} | {way} | {near:.3f} | {csls(found, own):.3f} |", flush=True)


def _end(run: Meeting, name: str, method: FKGE) -> End:
    peer = run.peers[name]
    graph = peer.learner.member.graph
    return End(method, peer.own.best, graph, peer.identity.ids, peer.keys, f"nonce of {name}")


if __name__ == "__main__":
    main()
