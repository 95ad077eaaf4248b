"""Graphs that differ in one confidential triple (DPKGE, section 4.7): does its rank give it away?

    python examples/neighbouring_graphs.py examples/atlas.toml --site languages --triples 3
    python examples/neighbouring_graphs.py CONFIG --site S --protect privacy.mode=strict ...

Trains on the whole graph, again with another seed, and once without each triple; with `--protect`, all of
that a second time with these options. Where the rank without the triple is no further away than the rank
under another seed, the rank does not tell.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

from fedkge.audits.neighbours import draw, neighbours
from fedkge.cli.experiments import one
from fedkge.cli.output import command, show
from fedkge.runs.data import load


def main() -> None:
    """Print a row per triple and way of training."""
    given = _arguments()
    ways = {"plain": given.set}
    if given.protect:
        ways["protected"] = [*given.set, *given.protect]
    rows = []
    for way, options in ways.items():
        experiment = one(given.config, options)
        federation = load(experiment).named
        triples = draw(federation[given.site], given.triples, given.seed)
        with TemporaryDirectory() as home:
            found = neighbours(experiment, federation, given.site, triples, Path(home))
        rows += [{"training": way, **neighbour.plain()} for neighbour in found]
    show(rows, given.json, "Rank of the true tail")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--site", required=True)
    parser.add_argument("--triples", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0, help="of the triples that are drawn")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--protect", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    with command():
        main()
