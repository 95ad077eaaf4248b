"""What can be asked of a site's tables in Python: the same for runs and packs, as DataFrames."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedkge.front import questions as asking
from fedkge.front.cells import name_of
from fedkge.front.frames import frame
from fedkge.runs.held import Held, hold

if TYPE_CHECKING:
    from pandas import DataFrame


class Asked(ABC):
    """Answers by name. `site` can be left out where there is only one.

    `unrestricted` answers as if only unrestricted triples were known: for others to see. `data` are files
    with triples that have come since training, and are known now.
    """

    @abstractmethod
    def _held(self, site: str | None) -> Held: ...

    def predict(
        self,
        site: str | None = None,
        *,
        head: object = None,
        relation: object = None,
        tail: object = None,
        questions: Any = None,
        top: int = 10,
        known: bool = False,
        unrestricted: bool = False,
        data: Sequence[str | Path] = (),
    ) -> DataFrame:
        """The `top` likeliest names for the one of head, relation and tail that is not given.

        `questions` asks many at once: a table or a file with the columns head, relation and tail, in which
        what is asked for is missing or `?`. `known` keeps what the graph already states, and marks it.
        """
        held = self._held(site).knowing([Path(path) for path in data])
        if questions is None:
            h, r, t = (None if name is None else name_of(name, "predict") for name in (head, relation, tail))
            asked: dict[str, asking.Question] = {"": (h, r, t)}
        elif isinstance(questions, str | Path):
            asked = asking.read_questions(Path(questions))
        else:
            asked = asking.questions_of(_rows(questions), "questions")
        return frame(asking.answered(held, asked, top, known, unrestricted))

    def missing(
        self,
        site: str | None = None,
        relation: object = None,
        *,
        top: int = 100,
        unrestricted: bool = False,
        data: Sequence[str | Path] = (),
    ) -> DataFrame:
        """The `top` likeliest triples that the graph does not state, of one relation or of all."""
        held = self._held(site).knowing([Path(path) for path in data])
        return frame(
            asking.missing(
                held, None if relation is None else name_of(relation, "missing"), top, unrestricted
            )
        )

    def neighbours(
        self, entity: object, site: str | None = None, *, top: int = 10, unrestricted: bool = False
    ) -> DataFrame:
        """The `top` entities whose vectors have the largest cosine with this one's."""
        return frame(asking.neighbours(self._held(site), name_of(entity, "neighbours"), top, unrestricted))


class Pack(Asked):
    """A site's tables and what it knows, without the run that made them."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._own = hold(self.path)

    @property
    def site(self) -> str:
        return self._own.site

    def _held(self, site: str | None) -> Held:
        return self._own if site is None else hold(self.path, site)

    def __repr__(self) -> str:
        return f"Pack({self.site}, {self.path})"


def _rows(table: Any) -> list[dict[str, Any]]:
    """Of a DataFrame of pandas or polars, or a list of dictionaries."""
    if hasattr(table, "to_dicts"):
        return list(table.to_dicts())
    return list(table.to_dict("records")) if hasattr(table, "to_dict") else list(table)
