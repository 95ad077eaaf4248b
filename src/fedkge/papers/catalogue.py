"""Tables and figures of the papers: which runs each consists of, or why it cannot be run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from functools import cache
from itertools import product
from pathlib import Path
from re import sub
from typing import Any

from fedkge.config import build, override, read_toml, variant
from fedkge.errors import ConfigError, suggest
from fedkge.papers.protocols import Protocol
from fedkge.papers.records import Record, but_sharing, key_of, of_key, portable
from fedkge.reports.folders.options import valued
from fedkge.runs.experiment import Experiment
from fedkge.training import Trainer

CATALOGUE = Path("papers") / "catalogue.toml"
SEEN = "seen"  #: the one entry of the catalogue that is no table: papers.seen
SHOWN = 6  #: rows that an error names
CHUNK = "trainer.chunk"  #: the option that may differ from a preset's in a run of the same row


@dataclass(frozen=True)
class Batch:
    """Variants of presets, at every point of a grid of options."""

    presets: tuple[str, ...]  #: patterns of names of files in examples/, without `.toml`
    variants: tuple[str, ...] = ()  #: none: all that a preset has
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)  #: key -> values

    def points(self) -> Iterator[tuple[str, ...]]:
        """Assignments, as `--set` takes them."""
        axes = [[f"{key}={valued(value)}" for value in values] for key, values in self.grid.items()]
        yield from product(*axes)


@dataclass(frozen=True)
class Table:
    """A table or figure of a paper."""

    name: str  #: `fedlu-table1`
    title: str
    protocol: str
    metrics: tuple[str, ...] = ()  #: in the order of the paper's columns
    costs: bool = False  #: rounds, values and bytes until convergence, in units of `fedep`
    curves: bool = False  #: its rows are drawn over rounds and bytes, on its own page
    note: str = ""
    alternatives: tuple[str, ...] = ()  #: variants of which validation chooses the one that is shown
    beside: tuple[str, ...] = ()  #: tables with the same methods and other settings
    runs: tuple[Batch, ...] = ()
    instead: str = ""  #: where there are no runs: what makes it, or why nothing can


@dataclass(frozen=True)
class Job:
    """One run: plain values, so that other processes can be told."""

    key: str
    protocol: str
    name: str  #: of its row
    preset: Path
    variant: str
    assignments: tuple[str, ...]
    seed: int
    chunk: int | None = None  #: positives that share negatives; None: as the preset has it

    @property
    def row(self) -> str:
        """`fedlu-2023-fb15k237-c3-transe/fedlu`."""
        return f"{self.preset.stem}/{self.name}"

    def matches(self, pattern: str) -> bool:
        """Whether it is meant: with a slash to the end of the row, else anywhere in it."""
        return fnmatch(self.row, f"*{pattern}" if "/" in pattern else f"*{pattern}*")

    @property
    def place(self) -> Path:
        """The run's folder below that of all runs; one for each kind of negatives."""
        chunk = self.experiment().trainer.chunk
        kind = f"-chunk-{chunk}" if chunk > 1 else ""
        row = sub(r"[^A-Za-z0-9_.=+-]+", "_", self.name)
        return Path(self.preset.stem) / row / f"seed-{self.seed}{kind}"

    def recorded(self, records: Mapping[str, Record]) -> list[Record]:
        """Records that fill the row with this seed, first the one that pages show.

        That is a run whose validation is recorded, if there is one; of two such runs, the one with own
        negatives. None of them has other options than the preset has now, but for `trainer.chunk`.
        """
        if not (found := of_key(records, self.key)):
            return []
        wanted = but_sharing(portable(self.experiment().config()))
        alike = [record for record in found if _options(record) == wanted]
        return sorted(alike, key=lambda record: "valid" not in record)

    def experiment(self) -> Experiment:
        given = (*self.assignments, f"seed={self.seed}")
        if self.chunk is not None:
            given = (*given, f"{CHUNK}={self.chunk}")
        return _experiment(self.preset, self.variant, given)


def _options(record: Record) -> Mapping[str, Any] | None:
    """What makes a row; None if there are no such options any more."""
    try:
        return but_sharing(Experiment.parse(record["config"]).config())
    except ConfigError:
        return None


@cache
def _experiment(preset: Path, name: str, given: tuple[str, ...]) -> Experiment:
    return Experiment.parse(override(variant(_toml(preset), name), given))


@cache
def _toml(path: Path) -> dict[str, Any]:
    return read_toml(path)


@cache
def read_tables(root: Path) -> dict[str, Table]:
    """Every table and figure, by name."""
    found = {}
    for name, options in read_toml(root / CATALOGUE).items():
        if name == SEEN:
            continue
        runs = tuple(
            Batch(tuple(one["presets"]), tuple(one.get("variants", ())), one.get("grid", {}))
            for one in options.pop("runs", ())
        )
        found[name] = replace(build(Table, {"name": name, **options}, name), runs=runs)
        if bool(runs) == bool(found[name].instead):
            raise ConfigError(f"{root / CATALOGUE}: {name}: expected runs, or what there is instead")
    for name, table in found.items():
        for other in table.beside:
            if other not in found:
                raise ConfigError(f"{root / CATALOGUE}: {name}: beside: there is no table {other!r}")
    return found


def chosen_tables(tables: Mapping[str, Table], names: Sequence[str]) -> list[Table]:
    """Those of these names, which may be patterns; one that cannot be run is an error that says why."""
    found: dict[str, Table] = {}
    for name in names:
        matches = [table for table in tables.values() if fnmatch(table.name, name)]
        if not matches:
            raise ConfigError(
                f"no table or figure is named {name!r}{suggest(name, tables)}; `fedkge paper list` shows all"
            )
        if name in tables and tables[name].instead:
            raise ConfigError(f"{name}: {tables[name].instead}")
        found |= {table.name: table for table in matches if table.runs}
    return list(found.values())


def jobs(table: Table, protocol: Protocol, seeds: Sequence[int]) -> list[Job]:
    """The runs that a table consists of, seed by seed."""
    every = dict.fromkeys(job for batch in table.runs for job in _of_batch(table, batch, protocol))
    return [replace(job, seed=seed, key=f"{job.key}{seed}") for seed in seeds for job in every]


def recorded(table: Table, protocol: Protocol, records: Mapping[str, Record]) -> tuple[int, int]:
    """How many of a table's runs with seed 0 are recorded, and how many there are."""
    every = jobs(table, protocol, [0]) if table.runs else []
    return sum(is_recorded(job.recorded(records), table.curves) for job in every), len(every)


def is_recorded(found: Sequence[Record], drawn: bool) -> bool:
    """Whether there is a record; of a run that is drawn, one that has points to draw."""
    return any("curve" in record or "spent" in record for record in found) if drawn else bool(found)


def matching(every: Sequence[Job], patterns: Sequence[str]) -> list[Job]:
    """The runs that patterns mean, in the order of seeds, then of patterns; all if there are none."""
    for pattern in patterns:
        if not any(job.matches(pattern) for job in every):
            rows = list(dict.fromkeys(job.row for job in every))
            shown = f"{', '.join(rows[:SHOWN])}{', ...' * (len(rows) > SHOWN)}"
            raise ConfigError(f"--rows: nothing matches {pattern} (there are: {shown}; --dry-run shows all)")
    found = {
        job.key: job
        for seed in dict.fromkeys(job.seed for job in every)
        for pattern in patterns or ["*"]
        for job in every
        if job.seed == seed and job.matches(pattern)
    }
    return list(found.values())


def with_negatives(every: Sequence[Job], assignments: Sequence[str]) -> list[Job]:
    """The same runs with the negatives that `--set trainer.chunk=N` asks for; other keys are errors."""
    for assignment in assignments:
        key = assignment.partition("=")[0].strip()
        if key != CHUNK:
            raise ConfigError(
                f"--set {assignment}: expected {CHUNK}, as in {CHUNK}=128; any other option would make "
                f"another row: `fedkge run` takes it, and a grid in {CATALOGUE} makes it a row of a table"
            )
    if not assignments:
        return list(every)
    trainer = build(Trainer, override({}, assignments)["trainer"], "--set trainer")
    return [replace(job, chunk=trainer.chunk) for job in every]


def _of_batch(table: Table, batch: Batch, protocol: Protocol) -> Iterator[Job]:
    """Without their seeds, which the keys end in."""
    for pattern in batch.presets:
        files = sorted((protocol.root / "examples").glob(f"{pattern}.toml"))
        if not files:
            raise ConfigError(f"{table.name}: no preset of examples/ is {pattern!r}")
        for path, point in product(files, batch.points()):
            own = _toml(path).get("variants", {})
            names = [name for name in own if not batch.variants or name in batch.variants]
            yield from (_job(path, name, point, protocol) for name in names)


@cache
def _job(path: Path, name: str, point: tuple[str, ...], protocol: Protocol) -> Job:
    job = Job("", protocol.key, "", path, name, point, 0)
    config = job.experiment().config()
    row, data = protocol.name(config), config["data"]
    subject = {"dataset": Path(data.get("name") or data["path"]).name, "model": config["model"]["name"]}
    return replace(
        job, name=row, key=key_of({"protocol": protocol.key, "method": row, "seed": "", **subject})
    )
