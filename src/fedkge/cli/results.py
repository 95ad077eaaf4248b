"""What runs found, for people: tables of rows that `reports` makes, and sentences."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedkge.reports.compared.baseline import Difference, Differences
    from fedkge.reports.folders.run import Run

WHOLE = ("rounds", "best_round", "triples_per_s", "seeds", "queries")
NAMED = 4  #: sites that are named in a sentence
HIDDEN = ";\ntest only of the points that validation chooses (--show-test: of all)"
CHUNK, BATCH = "trainer.chunk", "trainer.batch_size"
TENTHS = ("mr", "seconds", "train_seconds", "R@CG")


def readable(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Deviations beside their means, bytes in units, whole rounds, a dash for what is not known."""
    return [
        {
            key.removesuffix("_bytes"): _written(key, value, row.get(f"{key}_std"))
            for key, value in row.items()
            if not key.endswith("_std")
        }
        for row in rows
    ]


def _written(key: str, value: Any, deviation: float | None) -> Any:
    from rich.filesize import decimal

    if value is None or isinstance(value, str | bool):
        return value
    if key == "bytes" or key.endswith("_bytes"):
        return decimal(round(value))
    if key in WHOLE:
        return f"{value:,.0f}"
    if not isinstance(value, float):
        return value
    form = ".1f" if key in TENTHS else ".4f"
    return f"{value:{form}}" + ("" if deviation is None else f" ± {deviation:{form}}")


def beside_alone(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of `site_rows` with each difference from every site alone in brackets beside its number."""
    found = []
    for row in rows:
        cells = readable([{k: v for k, v in row.items() if k not in ("queries", "gains")}])[0]
        known = {name: gain for name, gain in row["gains"].items() if gain is not None}
        found.append(cells | {name: f"{cells[name]} ({gain:+.3f})" for name, gain in known.items()})
    return found


def brackets(rows: Sequence[dict[str, Any]]) -> str:
    """What a title says about `beside_alone`."""
    return "; in brackets, against every site alone" if rows[0]["gains"] else ""


def point_rows(rows: Sequence[dict[str, Any]], keys: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of `sweep_rows`: options as they are written, and columns that say something."""
    from fedkge.reports.folders.options import valued

    idle = {"bytes", "best"} | ({"seeds"} if all(row["seeds"] == 1 for row in rows) else set())
    idle |= set() if any(row["bytes"] for row in rows) else {"up_bytes", "down_bytes"}
    found = []
    for row in rows:
        point = {key: None if row.get(key) is None else valued(row[key]) for key in keys if key in row}
        rest = {key: value for key, value in row.items() if key not in point and key not in idle}
        found.append(point | {"best": "best" if row["best"] else ""} | readable([rest])[0])
    return found


def show_tables(runs: Sequence[Run]) -> None:
    """Print the metrics over all sites of each table, where a method measures several."""
    from fedkge.cli.output import show
    from fedkge.reports.compared.experiments import experiments
    from fedkge.reports.compared.tables import view_rows

    rows = view_rows(runs)
    idle = {"hits@5", "hits@5_std"} | ({"run"} if len(experiments(runs)) == 1 else set())
    if rows:
        shown = [{key: value for key, value in row.items() if key not in idle} for row in rows]
        show(readable(shown), False, "By table, over all sites")


def cost_rows(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """What each experiment took, for people."""
    from fedkge.reports.compared.tables import metric_rows

    names = ("run", "seeds", "rounds", "up_bytes", "down_bytes", "seconds")
    rows = [{name: row[name] for name in names if name in row} for row in metric_rows(runs)]
    return [{"method": row.pop("run"), **row} for row in readable(rows)]


def sent(runs: Sequence[Run]) -> str:
    """One line about what was exchanged; nothing where nothing is."""
    rows = cost_rows(runs)
    if not any(run.traffic.bytes for run in runs):
        return ""
    each = " by each seed, on average" if len(runs) > 1 else ""
    return "\n".join(f"sent: {r['up']} up, {r['down']} down in {r['rounds']} rounds{each}" for r in rows)


def joining(runs: Sequence[Run], beyond: Mapping[str, Differences]) -> list[str]:
    """A sentence per experiment: how many sites gain and lose against alone, and how many beyond chance."""
    from fedkge.reports.compared.experiments import experiments
    from fedkge.reports.compared.tables import joining_rows

    sentences = []
    for row in joining_rows(experiments(runs), beyond):
        lost = ", ".join(f"{site} ({gain:+.3f})" for site, gain in list(row["lost"].items())[:NAMED])
        lost += f" and {row['losers'] - NAMED} more" if row["losers"] > NAMED else ""
        sentences.append(
            f"{row['run']}: {row['winners']} of {row['sites']} sites gain, "
            f"{row['losers']} lose{'s' * (row['losers'] == 1)}{f': {lost}' if lost else ''}; "
            f"over all {row['gain']:+.4f} against every site alone{_beyond(row)}"
        )
    return sentences


def _beyond(row: dict[str, Any]) -> str:
    if row["better_off"] is None:
        return ""
    worse = row["worse_off"]
    named = f" ({', '.join(worse[:NAMED])}{', …' * (len(worse) > NAMED)})" if worse else ""
    return f"; beyond chance {len(row['better_off'])} better off, {len(worse) or 'none'} worse off{named}"


def show_differences(runs: Sequence[Run], beyond: Mapping[str, Differences]) -> None:
    """Print each site's difference from alone with its interval, and a mark where zero is outside."""
    from fedkge.cli.output import show
    from fedkge.reports.compared.baseline import unknown
    from fedkge.reports.compared.experiments import experiments

    known = {label: found for label, found in beyond.items() if found}
    sites = dict.fromkeys(site for found in known.values() for site in found)
    rows = [
        {"site": site, **{label: _interval(found.get(site)) for label, found in known.items()}}
        for site in sites
    ]
    if rows:
        title = (
            "Test MRR minus alone, with the 95 % interval of a paired bootstrap over the site's test queries"
        )
        show(rows, False, title)
    if missing := unknown(experiments(runs)):
        print(missing)


def _interval(found: Difference | None) -> str | None:
    if found is None:
        return None
    return f"{found.mean:+.4f} [{found.low:+.4f}, {found.high:+.4f}] {found.verdict}".rstrip()


def warn(runs: Sequence[Run]) -> None:
    """Say what makes a comparison doubtful, as other budgets or other seeds."""
    from fedkge.reports.compared.experiments import experiments
    from fedkge.reports.pages.findings import doubts

    for text in doubts(experiments(runs)):
        print(f"warning: {text}", file=sys.stderr)


def show_reference(runs: Sequence[Run], reference: str | None) -> None:
    """Print what each experiment took to converge and to come near the reference, as ratios."""
    from fedkge.cli.output import show
    from fedkge.reports.compared.reference import reference_rows

    if reference is None:
        return
    names = ["run", "seeds", "valid_mrr", "R@CG"]
    names += [f"{kind}@{level}" for kind in "PB" for level in ("CG", "99", "98")]
    rows = [
        {key: row[key] for name in names for key in (name, f"{name}_std") if key in row}
        for row in reference_rows(runs, reference)
    ]
    title = (
        "Rounds (R) until converged (CG); values (P) and bytes (B) sent until then, and until first at 99 % "
        f"and 98 % of\nthe best validation MRR of {reference}, as multiples of what {reference} sent for it"
    )
    show(readable(rows), False, title)


def reference_json(runs: Sequence[Run], reference: str | None) -> dict[str, Any]:
    """The same for machines; with several seeds, of each as well."""
    from fedkge.reports.compared.reference import each_reference_rows, reference_rows

    if reference is None:
        return {}
    rows = reference_rows(runs, reference)
    each = {"reference_seeds": each_reference_rows(runs, reference)} if "seeds" in rows[0] else {}
    return {"reference": rows} | each


def say_spent(runs: Sequence[Run]) -> None:
    """What all runs of a site have cost together, as its account had it when the last of these ended."""
    from fedkge.privacy.words import number

    latest: dict[tuple[str, str, str], Mapping[str, Any]] = {}
    for run in runs:
        for row in (run.summary or {}).get("accounts", []):
            key = (row["account"], row["site"], row["unit"])
            if key not in latest or row["releases"] >= latest[key]["releases"]:
                latest[key] = row
    units = {row["unit"] for row in latest.values()}
    for row in latest.values():
        those = f" by {row['unit']}" if len(units) > 1 else ""
        which = f"all {row['runs']} runs{those} together" if row["runs"] > 1 else f"its first run{those}"
        limit = "" if row["limit"] is None else f"; limit {row['limit']:g}"
        print(
            f"note: {row['site']}, {which}: ε = {number(row['epsilon'])} at "
            f"δ = {row['delta']:g} (unit: {row['unit']}; neighbours: {row['neighbours']}; "
            f"accountant: {row['accountant']}; guarantee: {row['guarantee']}{limit})",
            file=sys.stderr,
        )
    if len(units) > 1:
        print(f"note: the sums by {' and by '.join(sorted(units))} do not cover each other", file=sys.stderr)


def say_edges(rows: Sequence[Mapping[str, Any]], keys: Sequence[str], batch_size: int) -> None:
    """Say which chosen values are the smallest or largest of at least three: better ones may lie beyond.

    `batch_size` is that of rows that do not name their own.
    """
    for key in keys:
        tried = sorted({row[key] for row in rows if type(row[key]) in (int, float)})
        for row in rows:
            if row["best"] and len(tried) > 2 and row[key] in _edges(key, tried, row.get(BATCH, batch_size)):
                which, more = ("smallest", "smaller") if row[key] == tried[0] else ("largest", "larger")
                who = f"{row['method.name']}: " if row.get("method.name") else ""
                text = f"validation chose the {which} {key} that was tried, {row[key]:g}"
                print(f"note: {who}{text}; {more} ones may do better", file=sys.stderr)


def _edges(key: str, tried: Sequence[float], batch_size: int) -> list[float]:
    """The smallest and the largest value; a chunk has nothing beyond 1 and beyond its whole batch."""
    if key != CHUNK:
        return [tried[0], tried[-1]]
    return [*(tried[:1] if tried[0] > 1 else ()), *(tried[-1:] if tried[-1] < batch_size else ())]


def write_best(runs: Sequence[Run], folder: Path) -> str | None:
    """Write the experiment that validation chooses, to be run or compared as it is, and say where."""
    from fedkge.config import to_toml
    from fedkge.nodes.store import write_whole
    from fedkge.reports.compared.choosing import best_config

    config = best_config(runs)
    if config is None:
        return None
    write_whole(folder / "best.toml", to_toml(config).encode())
    return str(folder / "best.toml")


def write_page(
    runs: Sequence[Run], path: Path, reference: str | None = None, show_test: bool = False
) -> str | None:
    """Write the report and say where; a machine without plotly still trains, and says that there is none."""
    from fedkge.errors import MissingPackage
    from fedkge.reports.pages.html import write_report
    from fedkge.reports.pages.sections import Shown

    try:
        write_report(runs, path, Shown(reference, show_test=show_test))
    except MissingPackage as error:
        print(f"warning: {error}; `fedkge report` makes the page where it is installed", file=sys.stderr)
        return None
    return str(path)


def said_page(page: str | None) -> str:
    """The end of the line that says where things are."""
    return "" if page is None else f"    report: {page}"
