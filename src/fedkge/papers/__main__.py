"""`python -m fedkge.papers`: runs what tables lack where the packages of the command line are not installed.

A GPU machine often has torch and little else. Records go into a file, which `fedkge paper add` takes in.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from fedkge.errors import FedkgeError, visible
from fedkge.machine import prepare


def main() -> None:
    """Exit code 2: something was wrong, or a run failed."""
    parser = argparse.ArgumentParser(
        prog="python -m fedkge.papers", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("names", nargs="+", metavar="NAME", help="tables or patterns, as in fedlu-table1")
    parser.add_argument("--records", type=Path, required=True, help="a JSON Lines file for new records")
    parser.add_argument("--rows", nargs="+", default=[], help="patterns, as in 'c3-*/fedlu' r3-rotate")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--set", action="append", default=[], help="trainer.chunk=128 shares negatives")
    parser.add_argument("--curves", action="store_true", help="run what is recorded without its curve, too")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--lanes", type=int, default=1, help="runs at a time, which share the device")
    parser.add_argument("--seconds", type=float, help="stop after this long; the same command goes on later")
    parser.add_argument("--out", type=Path, default=Path("runs") / "papers", help="the folder of run folders")
    parser.add_argument("--dry-run", action="store_true", help="show what would be run, in this order")
    asked = parser.parse_args()
    if asked.lanes < 1:
        parser.error(f"--lanes: expected at least 1, got {asked.lanes}")
    prepare()
    from fedkge.papers.incoming import gone_on_with
    from fedkge.papers.missing import Asked, fill, missing
    from fedkge.papers.protocols import checkout, read_protocols
    from fedkge.papers.records import read_records
    from fedkge.papers.running import How

    try:
        root = checkout()
        known = read_records(root) | gone_on_with(root, asked.records)
        what = Asked(asked.names, asked.rows, asked.seeds, asked.set, asked.curves)
        found = missing(root, read_protocols(root), known, what)
        if asked.dry_run:
            print("\n".join(f"{job.row}, seed {job.seed}" for job in found.jobs))
            return
        until = None if asked.seconds is None else time.time() + asked.seconds
        failed = fill(found, root, asked.records, How(asked.out, asked.device, until), asked.lanes)
    except (FedkgeError, OSError) as error:
        failed = [f"error: {visible(str(error))}"]
        print(failed[0], file=sys.stderr)
    sys.exit(2 if failed else 0)


if __name__ == "__main__":
    main()
