"""`fedkge unlearn`: a run forgets triples, or a site leaves it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedkge.cli.arguments import Device, Json, Resume, Threads, Trust
from fedkge.cli.output import command, print_json, show

if TYPE_CHECKING:
    from fedkge.methods.unlearn import Unlearn
    from fedkge.runs.holdings import Holdings
    from fedkge.runs.requests import Erasure

PAGE = "erasure.html"

Run = Annotated[Path, typer.Argument(help="A run's folder.", show_default=False)]
Site = Annotated[
    list[str],
    typer.Option(
        "--site", help="A site that forgets; again for another, with its --forget.", show_default=False
    ),
]
Forget = Annotated[
    list[Path],
    typer.Option(
        "--forget",
        help="A file of what the site forgets; without --site a folder with SITE/forget.tsv.",
        show_default=False,
    ),
]
Of = Annotated[str, typer.Option("--of", help="What the files list: triples, entities or relations.")]
Withdraw = Annotated[
    list[str],
    typer.Option(
        "--withdraw",
        help="A site that leaves; rows that it shared begin anew.",
        show_default=False,
    ),
]
Options = Annotated[
    list[str],
    typer.Option("--set", help="An option of unlearning: --set confusion.soft=0", show_default=False),
]
IgnoreMissing = Annotated[bool, typer.Option("--ignore-missing", help="Leave out what a site does not have.")]


def unlearn(
    run: Run,
    out: Annotated[Path, typer.Option(help="The folder of the new run.", show_default=False)],
    site: Site = [],  # noqa: B006 - typer copies it
    forget: Forget = [],  # noqa: B006
    of: Of = "triples",
    withdraw: Withdraw = [],  # noqa: B006
    mode: Annotated[str, typer.Option(help="target, paper or exact.")] = "target",
    set_: Options = [],  # noqa: B006
    key: Annotated[
        Path | None,
        typer.Option(
            help="The key of the digests; a file that is not there is made.", show_default="OUT.key"
        ),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(help="A re-trained run (mode exact) to compare with.", show_default=False),
    ] = None,
    write_data: Annotated[
        Path | None, typer.Option(help="Where the retained graphs go.", show_default="OUT/data")
    ] = None,
    ignore_missing: IgnoreMissing = False,
    erase: Annotated[bool, typer.Option("--erase", help="Remove the old run's folder in the end.")] = False,
    no_audit: Annotated[bool, typer.Option("--no-audit", help="Leave the measurements out.")] = False,
    device: Device = "auto",
    threads: Threads = None,
    resume: Resume = False,
    trust: Trust = [],  # noqa: B006
    json: Json = False,
) -> None:
    """Make a run forget triples, or a site leave it: a new run folder with a report of the erasure."""
    with command(trust):
        from fedkge.audits.account import account
        from fedkge.cli.results import said_page
        from fedkge.cli.training import device_named, interruptible
        from fedkge.errors import ConfigError
        from fedkge.front.progress import progress
        from fedkge.reports.pages.audits import sentence
        from fedkge.runs.folder import RunFolder
        from fedkge.runs.requests import read_key
        from fedkge.runtimes.unlearning import unlearn as work

        old, erasure = asked(run, site, forget, of, withdraw, ignore_missing)
        how = options(mode, set_)
        named = out if out.name.strip(".") else out.resolve()
        secret = _outside(key or named.with_name(f"{named.name}.key"), out)
        for option, path in (("--out", out), ("--write-data", write_data), ("--key", secret)):
            if path is not None and path.resolve().is_relative_to(run.resolve()):
                raise ConfigError(
                    f"{option}: {path} lies in {run}, which stays as it is; choose another place"
                )
        if run.resolve().is_relative_to(out.resolve()):
            raise ConfigError(f"--out: {run} lies in {out}, which would remember; choose another --out")
        if against is not None:
            RunFolder.open(against).summary()  # what is wrong with it is said before any work
        if secret.exists():
            read_key(secret)  # what is wrong with it is said before any work
        with interruptible(out), progress(out.name) as watch:
            done = work(old, out, erasure, how, device_named(device), write_data, resume, watch)
        found = account(done, read_key(secret), against, not no_audit)
        page = _write(out, found)
        if erase:
            rmtree(run.resolve())
            if (data := old.experiment.data.path) is not None and data.exists():
                print(f"warning: {data}: the old run's data still has what was forgotten", file=sys.stderr)
        if json:
            print_json({"run": str(out), "erased": erase, "page": page, **found})
            return
        print(sentence(found))
        if found["audit"]:
            show(rows(found["audit"]), False, "Hits@1 and MRR, filtered by what is retained")
        for one in found["derived"]:
            print(f"warning: {one['run']}: {one['why']}", file=sys.stderr)
        print(f"run: {out}{said_page(page)}" + (f"    removed: {run}" if erase else ""))


def yardsticks(
    run: Run,
    out: Annotated[Path, typer.Option(help="A folder for all the runs.", show_default=False)],
    site: Site = [],  # noqa: B006 - typer copies it
    forget: Forget = [],  # noqa: B006
    of: Of = "triples",
    withdraw: Withdraw = [],  # noqa: B006
    only: Annotated[
        str | None, typer.Option(help="Some of them, as in target,exact; unset, all.", show_default=False)
    ] = None,
    ignore_missing: IgnoreMissing = False,
    device: Device = "auto",
    threads: Threads = None,
    trust: Trust = [],  # noqa: B006
    json: Json = False,
) -> None:
    """Forget the same triples in every way there is, re-training included, and show them side by side."""
    with command(trust):
        from fedkge.audits.yardsticks import chosen
        from fedkge.audits.yardsticks import yardsticks as measured
        from fedkge.cli.experiments import listed
        from fedkge.cli.training import device_named, interruptible
        from fedkge.durable import json_text
        from fedkge.front.progress import in_turn
        from fedkge.nodes.store import write_whole

        sticks = chosen([] if only is None else listed("--only", only, "target,exact"))
        old, erasure = asked(run, site, forget, of, withdraw, ignore_missing)
        with interruptible(out), in_turn() as watch:
            found = measured(old, erasure, out, sticks, device_named(device), watch)
        write_whole(out / "yardsticks.json", json_text(found, indent=1).encode())
        if json:
            print_json(found)
            return
        keys = dict.fromkeys(key for row in found for key in row if "hits@1" in key or "mrr" in key)
        for view in dict.fromkeys(key.rsplit(" ", 2)[0] for key in keys):
            mine = [key for key in keys if key.rsplit(" ", 2)[0] == view]
            shown = [
                {"run": row["run"], **{key.removeprefix(f"{view} "): row.get(key) for key in mine}}
                for row in found
            ]
            show(shown, False, f"{view} tables")
        show(
            [{key: row[key] for key in ("run", "what", "rounds", "seconds", "bytes")} for row in found], False
        )


def asked(
    run: Path,
    sites: Sequence[str],
    files: Sequence[Path],
    of: str,
    withdrawn: Sequence[str],
    ignore_missing: bool,
) -> tuple[Holdings, Erasure]:
    """The run, and what is to be taken out of it."""
    from fedkge.cli.output import check
    from fedkge.errors import ConfigError
    from fedkge.runs.erased import under_way
    from fedkge.runs.holdings import Holdings
    from fedkge.runs.requests import Erasure, Request

    check("--of", of, ("triples", "entities", "relations"))
    if under_way(run) is not None:
        raise ConfigError(
            f"{run}: its own unlearning has no report yet; give that request again with --resume first"
        )
    old = Holdings.open(run)
    pairs = list(zip(sites, files, strict=False))
    if not sites and len(files) == 1 and files[0].is_dir():
        found = {folder.name: sorted(folder.glob("forget.*")) for folder in sorted(files[0].iterdir())}
        pairs = [(name, of[0]) for name, of in found.items() if of]
        if not pairs:
            raise ConfigError(f"--forget: {files[0]}: no SITE/forget.tsv or the like in this folder")
    elif len(sites) != len(files):
        raise ConfigError(
            f"--site, --forget: {len(sites)} sites and {len(files)} files, expected one for each"
        )
    if not pairs and not withdrawn:
        raise ConfigError(
            "--forget, --withdraw: expected a file of what is to be forgotten, or a site that leaves"
        )
    requests = [Request.read(name, path, of) for name, path in pairs]  # type: ignore[arg-type]
    return old, Erasure.of(old.sources.named, requests, withdrawn, ignore_missing)


def options(mode: str, set_: Sequence[str]) -> Unlearn:
    """How it is unlearned, by the command's options."""
    from fedkge.config import build, override
    from fedkge.methods.unlearn import Unlearn

    return build(Unlearn, override({"mode": mode}, set_), "")


def rows(audit: dict[str, Any]) -> list[dict[str, Any]]:
    """A line for each of the tables that were asked."""
    found = []
    for when, views in audit.get("standing", {}).items():
        for view, splits in views.items():
            line: dict[str, Any] = {"tables": f"{view}, {when}"}
            for split in ("forget", "test"):
                own = splits.get(split, {"count": 0})
                for metric in ("hits@1", "mrr"):
                    line[f"{split} {metric}"] = own[metric] if own["count"] else None
            found.append(line)
    return found


def _outside(key: Path, out: Path) -> Path:
    from fedkge.errors import ConfigError

    if key.resolve().is_relative_to(out.resolve()):
        raise ConfigError(f"--key: {key} lies in the run's folder; whoever asked keeps the key, nobody else")
    return key


def _write(out: Path, found: dict[str, Any]) -> str | None:
    from fedkge.errors import MissingPackage
    from fedkge.reports.pages.audits import erasure_page
    from fedkge.reports.pages.html import write_page

    try:
        write_page(erasure_page(f"Erasure in {out.name}", found), out / PAGE)
    except MissingPackage as error:
        print(f"warning: {error}", file=sys.stderr)
        return None
    return str(out / PAGE)
