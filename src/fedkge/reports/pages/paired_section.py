"""The page's table of who is better or worse off than alone, beyond chance."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from fedkge.reports.compared.details import Row
from fedkge.reports.compared.paired import BETTER, WORSE, Difference, Differences
from fedkge.reports.pages.markup import Column, difference, table, words

CAPTION = (
    "Test MRR minus alone with its 95 % interval: a paired bootstrap over the site's test queries. A site is "
    "better or worse off whose interval lies on one side of zero. Of 40 sites that are as well off as alone, "
    "one is called worse off by chance."
)


def chances(beyond: Mapping[str, Differences], unknown: str = "") -> str:
    """A row per site and a column per experiment, then what is not known."""
    known = {label: found for label, found in beyond.items() if found}
    sites = dict.fromkeys(site for found in known.values() for site in found)
    rows: list[Row] = [
        {"site": site, **{label: found.get(site) for label, found in known.items()}} for site in sites
    ]
    columns = [Column("site", "Site", words), *(Column(label, label, interval) for label in known)]
    note = f'<p class="soft">{escape(unknown)}</p>' if unknown else ""
    return (table(rows, columns, CAPTION) if rows else "") + note


def interval(found: Difference) -> str:
    """A difference, its interval, and in words what that says."""
    ends = f"[{found.low:+.4f}, {found.high:+.4f}]".replace("-", "−")
    kind = {BETTER: "gain", WORSE: "loss"}.get(found.verdict)
    verdict = f' <strong class="{kind}">{found.verdict}</strong>' if kind else ""
    return f'{difference(found.mean)} <span class="std">{ends}</span>{verdict}'
