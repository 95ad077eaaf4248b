"""When to validate, what sites have measured on their validation triples, whose best it is, when to stop."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from typing import Any

from fedkge.methods import Method
from fedkge.nodes.notes import Measured, mrr_of
from fedkge.nodes.terms import Terms
from fedkge.training import Stopping

TOGETHER = ""  #: whose stopping it is where all sites stop at once; no site has this name


@dataclass(frozen=True)
class Plan:
    """When a federation validates and when it ends."""

    rounds: int
    every: int = 5  #: rounds between validations
    stopping: Stopping = field(default_factory=Stopping)  #: as it is before the first validation
    seed: int = 0
    each: bool = False  #: sites that stop together keep each its own best, and go on while any gains
    first: bool = False  #: validates before the first round too, as tables that were trained may be the best
    sure: float = 0.0  #: times 1 / sqrt(questions): by more than that a round must beat those tables

    @classmethod
    def of(cls, terms: Terms, first: bool = False) -> Plan:
        evaluate = terms.evaluate
        stopping = Stopping(evaluate.patience, evaluate.rule)
        each, sure = evaluate.keep == "each", evaluate.sure
        return cls(terms.rounds, evaluate.every, stopping, terms.seed, each, first, sure)


class Judge:
    """The hub's: metrics come in one by one, and are judged when all are heard or time is up.

    `each`: sites that stop together keep what is best for each of them, and go on while any of them gains.
    `sure`: what a round must gain over the starting tables to be kept, times the root of the questions.
    """

    def __init__(
        self,
        method: Method,
        sites: Iterable[str],
        stopping: Stopping,
        each: bool = False,
        sure: float = 0.0,
    ) -> None:
        self.sure = sure
        self.together = method.together
        own = {name: deepcopy(stopping) for name in sites}
        self.stopping = {TOGETHER: deepcopy(stopping)} if self.together else own
        self.keeping = own if each else self.stopping  # whose best is kept
        self.metrics: dict[str, dict[str, Any]] = {}  # site -> whose triples -> metrics, the latest
        self.views: dict[str, dict[str, Any]] = {
            view.name: {} for view in method.views() if view.watched
        }  # the same of each
        self.best: dict[str, dict[str, int]] = {}  # site -> view -> the round that is its best, to be told
        self.heard: set[str] = set()
        self.measured: set[str] = set()  # those heard whose metrics are some

    @property
    def begun(self) -> bool:
        return any(stopping.last_at >= 0 for stopping in self.stopping.values())

    def begin(self) -> None:
        self.heard, self.measured = set(), set()

    def hear(self, site: str, found: Measured, views: Mapping[str, Measured]) -> None:
        """Take a site's metrics in."""
        self.heard.add(site)
        self.metrics[site] = dict(found)
        for view, of in views.items():
            self.views[view][site] = dict(of)
        self.measured.add(site)

    def judge(self, round: int) -> tuple[float, dict[str, float]]:
        """Stop and keep by the mean over all sites, weighed by their queries, or each by its own.

        The MRR over all sites, and that of what else was validated.
        """
        gained = False  # somebody's own best
        for name, stopping in (self.keeping | self.stopping).items():
            sites = self.measured if name == TOGETHER else self.measured & {name}
            of = self.metrics if name == TOGETHER else sites
            told = gained and name == TOGETHER
            sure = self._sure(of) if name in self.keeping else 0.0
            better = sites and stopping.check(round, *self._mrr(of), gained=told, sure=sure)
            if better and name in self.keeping:
                for site in sites:
                    self.best[site] = self.best.get(site, {}) | dict.fromkeys(sorted(better), round)
            gained = gained or bool(better)
        return self._mrr(self.metrics)

    def _mrr(self, sites: Collection[str]) -> tuple[float, dict[str, float]]:
        return mrr_of(self.metrics, sites), {view: mrr_of(found, sites) for view, found in self.views.items()}

    def _sure(self, sites: Collection[str]) -> float:
        """A gain of the MRR over these sites' questions that is hardly chance."""
        questions = sum(int(m["count"]) for site in sites for m in self.metrics[site].values())
        return self.sure / max(1, questions) ** 0.5

    def latest(self) -> dict[str, Any]:
        """By whose triples, of the sites that measured now."""
        return {view: m for site in sorted(self.measured) for view, m in self.metrics[site].items()}

    def finished(self, site: str) -> bool:
        return self.stopping[TOGETHER if self.together else site].done

    def courses(self, sites: Sequence[str]) -> dict[str, Any]:
        """How far each that stops by one validation came, and its best round."""
        names = {TOGETHER: sites[0] if len(sites) == 1 else "federation"}
        return {
            names.get(name, name): {
                "rounds": one.last_at,
                "best_round": one.best_at,
                "best_rounds": dict(one.beside_at),
            }
            for name, one in self.keeping.items()
        }

    def plain(self) -> dict[str, Any]:
        return deepcopy(
            {
                "metrics": self.metrics,
                "views": self.views,
                "best": self.best,
                "stopping": {name: asdict(one) for name, one in (self.stopping | self.keeping).items()},
            }
        )

    def load(self, plain: Mapping[str, Any]) -> None:
        self.metrics, self.views = deepcopy(plain["metrics"]), deepcopy(plain["views"])
        self.best = {site: dict(views) for site, views in plain["best"].items()}
        judged = {name: Stopping(**values) for name, values in plain["stopping"].items()}
        self.stopping = {name: judged[name] for name in self.stopping}
        self.keeping = {name: judged[name] for name in self.keeping}
