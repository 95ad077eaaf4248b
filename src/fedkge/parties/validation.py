"""What sites have measured on their validation statements: whose best it is, and when to stop."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from copy import deepcopy
from dataclasses import asdict
from typing import Any

from fedkge.methods import Method
from fedkge.parties.notes import are_by_site, mrr_of
from fedkge.training import Stopping

TOGETHER = ""  #: whose stopping it is where all sites stop at once; no site has this name


class Validation:
    """The hub's: metrics come in one by one, and are judged when all are heard or time is up.

    `each`: sites that stop together keep what is best for each of them, and stop when all would have stopped.
    """

    def __init__(self, method: Method, sites: Iterable[str], stopping: Stopping, each: bool = False) -> None:
        self.together = method.together
        whose = [TOGETHER] if self.together and not each else sites
        self.stopping = {name: deepcopy(stopping) for name in whose}
        self.metrics: dict[str, dict[str, Any]] = {}  # site -> whose statements -> metrics, the latest
        self.views: dict[str, dict[str, Any]] = {view: {} for view in method.watches}  # the same of each
        self.best: dict[str, set[str]] = {}  # what a site measured last that is its best; it is not told yet
        self.heard: set[str] = set()
        self.measured: set[str] = set()  # those heard whose metrics are some

    @property
    def begun(self) -> bool:
        return any(stopping.last_at >= 0 for stopping in self.stopping.values())

    def begin(self) -> None:
        self.heard, self.measured = set(), set()

    def hear(self, site: str, note: Mapping[str, Any]) -> bool:
        """Take a site's metrics in, if that is what it sent."""
        self.heard.add(site)
        found, views = note.get("metrics"), note.get("views", {})
        watched = isinstance(views, Mapping) and views.keys() == self.views.keys()
        if not (watched and are_by_site(found) and all(map(are_by_site, views.values()))):
            return False
        self.metrics[site] = dict(found)
        for view, of in views.items():
            self.views[view][site] = dict(of)
        self.measured.add(site)
        return True

    def judge(self, round: int) -> tuple[float, dict[str, float]]:
        """Stop and keep by the mean over all sites, weighed by their queries, or each by its own.

        The MRR over all sites, and that of what else was validated.
        """
        standing = self.metrics.keys() if self.together else self.measured  # of who is absent, the last ones
        for name, stopping in self.stopping.items() if self.measured else ():
            sites = [site for site in standing if name in (TOGETHER, site)]
            if sites and (better := stopping.check(round, *self._mrr(sites))):
                now = self.measured.intersection(sites)
                self.best |= {site: self.best.get(site, set()) | better for site in now}
        return self._mrr(self.metrics)

    def _mrr(self, sites: Collection[str]) -> tuple[float, dict[str, float]]:
        return mrr_of(self.metrics, sites), {view: mrr_of(found, sites) for view, found in self.views.items()}

    def latest(self) -> dict[str, Any]:
        """By whose statements, of the sites that measured now."""
        return {view: m for site in sorted(self.measured) for view, m in self.metrics[site].items()}

    def finished(self, site: str) -> bool:
        """Who was never heard is not waited for."""
        if not self.together:
            return self.stopping[site].done
        return self.begun and all(one.done for one in self.stopping.values() if one.last_at >= 0)

    def plain(self) -> dict[str, Any]:
        return deepcopy(
            {
                "metrics": self.metrics,
                "views": self.views,
                "best": {site: sorted(views) for site, views in self.best.items()},
                "stopping": {name: asdict(one) for name, one in self.stopping.items()},
            }
        )

    def load(self, plain: Mapping[str, Any]) -> None:
        self.metrics, self.views = deepcopy(plain["metrics"]), deepcopy(plain["views"])
        self.best = {site: set(views) for site, views in plain["best"].items()}
        judged = {name: Stopping(**values) for name, values in plain["stopping"].items()}
        self.stopping = {name: judged[name] for name in self.stopping}
