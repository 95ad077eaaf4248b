"""`fedkge.train` and `fedkge.compare`: from sites and keywords to runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedkge.durable import json_text
from fedkge.errors import ConfigError, FedkgeError
from fedkge.front.options import Part, experiments
from fedkge.front.progress import progress as shown
from fedkge.front.run import Comparison, Run
from fedkge.front.sites import Sites, load, saved
from fedkge.front.training import Manner
from fedkge.front.training import load as loaded
from fedkge.front.training import train as trained
from fedkge.runtimes.loop import Interrupted
from fedkge.runtimes.progress import ignored

if TYPE_CHECKING:
    from fedkge.runs.data import Sources
    from fedkge.runs.experiment import Experiment


def train(
    data: Any,
    method: Part = "fedep",
    model: Part = "transe",
    *,
    name: str | None = None,
    folder: str | Path = "runs",
    device: str = "auto",
    progress: bool = True,
    **options: Any,
) -> Run:
    """Train one experiment and measure it; the run, whose folder has everything it made.

    `data` is what `load` takes. `options` are keywords: `seed`, `rounds`, `start`, `plugins`; a table of the
    experiment, as in `trainer={"lr": 0.01}`; or one option of model, method, trainer or data, as in `dim=32`.

    The run's folder is `folder/name`, and reports call the run so. Without a name the folder is called by a
    digest of its options and data, so that the same call finds its run again: one that is done is returned,
    an interrupted one goes on.
    """
    (made,) = experiments(_data(data, Path(folder)), [method], model, _kept(data, Path(folder), options))
    return _done([replace(made, name=name)], name, Path(folder), device, progress)[0]


def compare(
    data: Any,
    methods: Sequence[Part] = ("single", "fedep"),
    model: Part = "transe",
    *,
    seeds: Sequence[int] | None = None,
    name: str | None = None,
    folder: str | Path = "runs",
    device: str = "auto",
    progress: bool = True,
    **options: Any,
) -> Comparison:
    """Train one experiment by several methods with the same budget, with each of `seeds` if there are any.

    An option of `method` goes to the methods that have it. All else is as in `train`; runs that are done are
    not repeated, whoever has trained them.
    """
    kept = _kept(data, Path(folder), options)
    made = experiments(_data(data, Path(folder)), methods, model, kept)
    if seeds is not None:
        if "seed" in options:
            raise ConfigError("seed, seeds: expected one of the two")
        made = [replace(one, seed=int(seed)) for one in made for seed in seeds]
    return Comparison(_done(made, name, Path(folder), device, progress))


def _data(data: Any, folder: Path) -> dict[str, Any]:
    """Where an experiment finds its sites; what is in memory is written down first."""
    if isinstance(data, str | Path):
        if Path(data).exists():
            return {"path": str(Path(data).resolve())}
        return {"name": str(data)}
    return {"path": str(saved(load(data), folder))}


def _kept(data: Any, folder: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """Sites in memory have one account for all runs in a folder, whatever becomes of their triples.

    Sites that were loaded from files or by name have the account that these have.
    """
    if isinstance(data, str | Path):
        return dict(options)
    place = folder / ".fedkge"
    if isinstance(data, Sites) and data.origin is not None:
        from fedkge.runs.account import accounts_beside

        path = Path(data.origin)
        place = accounts_beside(path.resolve()) if path.exists() else accounts_beside(None, data.origin)
    return {"account": {"folder": str(place)}} | dict(options)


def _done(
    made: Sequence[Experiment], name: str | None, folder: Path, device: str, progress: bool
) -> list[Run]:
    if name is not None and (not name or Path(name).name != name or name in ("data", ".fedkge")):
        raise ConfigError(f"name: expected the name of a folder, and not 'data', got {name!r}")
    sources = loaded({Path(str(i)): one for i, one in enumerate(made)})
    folders = _folders(made, list(sources.values()), None if name is None else folder / name, folder)
    quiet: Any = (lambda place: nullcontext(ignored)) if not progress else shown
    how = Manner(device=device, notes=False, progress=quiet)
    try:
        data = dict(zip(folders, sources.values(), strict=True))
        failures = trained(dict(zip(folders, made, strict=True)), folder, how, data)
    except Interrupted as signal:
        raise KeyboardInterrupt(f"{signal}: the same call goes on where this one was") from None
    if failures:
        raise FedkgeError("; ".join(f"{where}: {why}" for where, why in failures.items()))
    return [Run(path) for path in folders]


def _folders(
    made: Sequence[Experiment], sources: Sequence[Sources], out: Path | None, folder: Path
) -> list[Path]:
    """A folder for each experiment: below `out` by method and seed, or called by a digest."""
    if out is not None and len(made) == 1:
        return [out]
    found = []
    for one, data in zip(made, sources, strict=True):
        config = one.config()
        method, model = config["method"]["name"], config["model"]["name"]
        digests = {site: graph.digest() for site, graph in data.named.items()}
        text = json_text([config, digests])
        digest = blake2b(text.encode(), digest_size=4).hexdigest()
        found.append((folder if out is None else out) / f"{method}-{model}-{digest}")
    if len(set(found)) < len(found):
        raise ConfigError("methods: the same experiment stands twice")
    return found


__all__ = ["Sites", "compare", "train"]
