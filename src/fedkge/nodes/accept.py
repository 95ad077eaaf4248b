"""What a site accepts: its own limits on what a hub may ask for. A hub that asks for more is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fedkge.config import build, read_toml
from fedkge.errors import ConfigError
from fedkge.graphs.graph import Axis
from fedkge.methods import METHODS
from fedkge.models import MODELS
from fedkge.nodes.terms import Terms


@dataclass(frozen=True)
class Accept:
    """A site's policy. What is unset has no limit."""

    methods: tuple[str, ...] | None = None  #: names of methods that the site accepts
    models: tuple[str, ...] | None = None  #: names of models that the site accepts
    entity_width: int | None = None  #: largest width of entity rows that are sent; 0: none may be sent
    relation_width: int | None = None  #: largest width of relation rows that are sent; 0: none may be sent
    share: float = 1.0  #: largest share of the site's entities that may be shared with others
    rounds: int | None = None  #: largest number of rounds of a run
    epochs: int | None = None  #: largest number of epochs of a round
    privacy: tuple[str, ...] | None = None  #: accepted modes of privacy, as in ["strict", "u-only"]
    epsilon: float | None = None  #: the run must have a budget of at most this, with a proven guarantee
    delta: float | None = None  #: largest δ of that budget
    units: tuple[str, ...] | None = None  #: what the budget must protect: triple, or entity (a person)
    pseudonyms: bool = False  #: true: rows are announced under pseudonyms only, never under names

    def __post_init__(self) -> None:
        for name, known in (("methods", METHODS), ("models", MODELS)):
            for one in getattr(self, name) or ():
                try:
                    known[one]
                except ConfigError as error:
                    raise ConfigError(f"{name}: {error}") from None
        for name in ("entity_width", "relation_width", "rounds", "epochs", "epsilon", "delta"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ConfigError(f"{name}: expected a number of at least 0, got {value}")
        if not 0 <= self.share <= 1:
            raise ConfigError(f"share: expected a number from 0 to 1, got {self.share}")

    def refuses(self, terms: Terms) -> str | None:
        """Why a site with this policy takes no part in a run on these terms; None: it does."""
        return "; ".join(self._exceeded(terms)) or None

    def refuses_rows(self, shared: int, own: int) -> str | None:
        """Why a site that has so many entities does not share so many of them."""
        if shared <= self.share * own:
            return None
        return f"{shared:,} of {own:,} entities are to be shared, the site accepts a share of {self.share:g}"

    def _exceeded(self, terms: Terms) -> Iterator[str]:
        widths = terms.widths
        asked = {
            "method": (METHODS.name_of(terms.method), self.methods),
            "model": (MODELS.name_of(terms.model), self.models),
            "privacy.mode": (terms.privacy.mode, self.privacy),
            "privacy.unit": (terms.privacy.unit, self.units),
        }
        for what, (found, allowed) in asked.items():
            if allowed is not None and found not in allowed:
                yield f"{what} is {found!r}, the site accepts {', '.join(allowed) or 'none'}"
        limits = {
            "numbers of an entity row": (widths.get(Axis.ENTITY, 0), self.entity_width),
            "numbers of a relation row": (widths.get(Axis.RELATION, 0), self.relation_width),
            "rounds": (terms.rounds, self.rounds),
            "trainer.epochs": (terms.trainer.epochs, self.epochs),
        }
        for what, (count, most) in limits.items():
            if most is not None and count > most:
                yield f"{what}: {count:,}, the site accepts at most {most:,}"
        yield from self._overspent(terms)

    def _overspent(self, terms: Terms) -> Iterator[str]:
        """What is wrong with the privacy budget; `u-only` trains on nothing that needs one."""
        privacy = terms.privacy
        if privacy.mode == "u-only" or (self.epsilon is None and self.delta is None):
            return
        if not privacy.strict:
            yield f"privacy.mode {privacy.mode!r} has no proven guarantee, the site accepts budgets with one"
            return
        for name in ("epsilon", "delta"):
            found, most = getattr(privacy, name), getattr(self, name)
            if most is not None and (found is None or found > most):
                told = "without a limit" if found is None else f"{found:g}"
                yield f"privacy.{name} is {told}, the site accepts at most {most:g}"


def read_accept(path: Path) -> Accept:
    """The table `[accept]` of a site's file; a file without one has no limits."""
    return build(Accept, read_toml(path).get("accept", {}), "accept")
