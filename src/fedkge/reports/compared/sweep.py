"""A sweep as plain rows: one per grid point, seeds aggregated, and what each swept key is seen against."""

from __future__ import annotations

from collections.abc import Sequence

from fedkge.reports.compared.choosing import best_groups
from fedkge.reports.compared.details import Row, time_row
from fedkge.reports.compared.experiments import Group, experiments
from fedkge.reports.compared.tables import mean, told
from fedkge.reports.folders.options import METHOD, START, chosen, same, spoken, swept_keys
from fedkge.reports.folders.run import Run

__all__ = ["lines_of", "sweep_rows", "swept", "swept_keys"]


def sweep_rows(runs: Sequence[Run], asked: Sequence[str] = (), show_test: bool = False) -> list[Row]:
    """One row per grid point: the swept keys' values, validation and test over all sites, what they took.

    Keys that were `asked` for are there whether or not points differ in them. `best` marks points that are
    chosen by validation; `mrr` and `hits@10` are test metrics, None of other points unless `show_test`.
    `mrr_std` is there when a point has several seeds; `bytes` is both directions; None is not known (yet).
    """
    groups = experiments(runs)
    best = [group for group in best_groups(groups) if group.valid() is not None]
    keys = dict.fromkeys((*asked, *_telling(runs, groups)))
    several = any(len(group.runs) > 1 for group in groups)
    rows = []
    for group in groups:
        options = chosen(group.first)
        row: Row = {key: options.get(key) for key in keys}
        shown = show_test or group in best
        row |= {"seeds": len(group.runs), "best": group in best} | told("valid_mrr", group.valid(), several)
        row |= told("mrr", group.test() if shown else None, several)
        row |= told("hits@10", group.test("hits@10") if shown else None, False)
        row |= {
            "trained" if "rounds" in keys else "rounds": mean(run.last_round for run in group.runs),
            "up_bytes": mean(run.traffic.up_bytes for run in group.runs),
            "down_bytes": mean(run.traffic.down_bytes for run in group.runs),
            "bytes": mean(run.traffic.bytes for run in group.runs),
            "seconds": mean(time_row(run)["seconds"] for run in group.runs),
        }
        rows.append(row)
    return rows


def swept(runs: Sequence[Run]) -> list[str]:
    """The keys to show as a sweep: a comparison of methods, and of what they go on from, is none."""
    keys = _telling(runs, experiments(runs))
    return keys if any(key not in (METHOD, START) for key in keys) else []


def _telling(runs: Sequence[Run], groups: Sequence[Group]) -> list[str]:
    """The swept keys; a start only where the approach does not tell it, as `single after fedep` may."""
    return [key for key in swept_keys(runs) if key != START or not _follows(START, METHOD, groups)]


def lines_of(key: str, groups: Sequence[Group], keys: Sequence[str]) -> dict[str, list[Group]]:
    """The experiments that have `key`, by the values of the other swept keys: the lines of its plot.

    A key whose values follow from `key`'s tells no lines apart.
    """
    having = [group for group in groups if key in chosen(group.first)]
    others = [other for other in keys if other != key and not _follows(other, key, having)]
    lines: dict[str, list[Group]] = {}
    for group in having:
        options = chosen(group.first)
        own = [spoken(other, options[other], others) for other in others if other in options]
        lines.setdefault(" · ".join(own) or group.approach, []).append(group)
    return lines


def _follows(other: str, key: str, groups: Sequence[Group]) -> bool:
    """Whether `key`'s value decides `other`'s."""
    seen: dict[str, set[str]] = {}
    for group in groups:
        options = chosen(group.first)
        seen.setdefault(same(options.get(key)), set()).add(same(options.get(other)))
    return all(len(values) == 1 for values in seen.values())
