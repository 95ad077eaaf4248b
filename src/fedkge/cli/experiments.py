"""From a file, `--set`, `--method` and `--seeds` to experiments, each with the folder of its run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedkge.config import AFTER, following, override, read_toml, variant
from fedkge.errors import ConfigError, suggest
from fedkge.plugins import load_files, repeated

if TYPE_CHECKING:
    from fedkge.runs.experiment import Experiment


@dataclass(frozen=True)
class Origin:
    """Where options come from, so that an error can name the place to mend."""

    path: Path
    assignments: Sequence[str] = ()  #: of `--set`
    flag: str = ""  #: what varies the experiment: `--method` or `--grid`
    variant: str | None = None  #: which of the file's `[variants.NAME]`
    beside: Path = Path("runs")  #: the folder with a run of each variant

    def options(self) -> dict[str, Any]:
        tables = read_toml(self.path)
        try:
            chosen = following(variant(tables, self.variant), self.beside)
        except ConfigError as error:
            raise ConfigError(f"{self.path}: {error}") from None
        return override(chosen, self.assignments)

    def flag_of(self, key: str, varied: Mapping[str, str]) -> str | None:
        """The argument that gave this key, or one below it; None if the file did."""
        given = {assignment.partition("=")[0].strip(): "--set" for assignment in self.assignments}
        given |= dict.fromkeys(varied, self.flag)
        return next((flag for one, flag in given.items() if f"{one}.".startswith(f"{key}.")), None)

    def gives(self, key: str, varied: Mapping[str, str]) -> bool:
        """Whether an argument gave this very option, or the table that it is in."""
        given = [*(assignment.partition("=")[0].strip() for assignment in self.assignments), *varied]
        return any(f"{key}.".startswith(f"{one}.") for one in given)

    def blamed(self, error: ConfigError, varied: Mapping[str, str]) -> ConfigError:
        """The error, with the file or the argument that it is about."""
        message = str(error).removeprefix("--set ")
        flag = self.flag_of(message.split(":")[0].split("=")[0], varied)
        if flag is not None:
            return ConfigError(f"{flag} {message}")
        arguments = [f"--set {one}" for one in self.assignments]
        for key, value in varied.items():
            arguments.append(f"{self.flag} {value if self.flag == '--method' else f'{key}={value}'}")
        if not arguments or self._alone() == message:
            return ConfigError(f"{self.path}: {message}")
        return ConfigError(f"{self.path} with {' '.join(arguments)}: {message}")

    def _alone(self) -> str | None:
        """What is wrong with the file by itself."""
        from fedkge.runs.experiment import Experiment

        try:
            options = following(variant(read_toml(self.path), self.variant), self.beside)
            options.pop("plugins", None)  # loaded already
            Experiment.parse(options)
        except ConfigError as error:
            return str(error)
        return None


def one(
    path: Path, assignments: Sequence[str], chosen: str | None = None, beside: Path = Path("runs")
) -> Experiment:
    """The experiment of a file, or of one of its variants, changed by `--set`.

    Runs of other variants are in the folder `beside`.
    """
    ((_, experiment),) = varied(Origin(path, assignments, variant=chosen, beside=beside), [{}])
    return experiment


def by_method(
    path: Path, assignments: Sequence[str], methods: str, chosen: str | None, beside: Path
) -> dict[str, Experiment]:
    """The experiment by each of several methods, under the method's name."""
    names = listed("--method", methods, "single,fede")
    points = [{"method.name": name} for name in names]
    found = varied(Origin(path, assignments, "--method", chosen, beside), points)
    return dict(zip(names, (experiment for _, experiment in found), strict=True))


def by_variant(
    path: Path, assignments: Sequence[str], chosen: str | None, beside: Path
) -> dict[str, Experiment]:
    """Each variant of a file, or those that `chosen` lists, under its name, by which tables call its run.

    Their runs are in the folder `beside`, in which a variant finds the one that it goes on from.
    """
    if chosen is None:
        names = list(read_toml(path).get("variants", ()))
    else:
        names = listed("--variant", chosen, "single,fedep")
    if not names:
        raise ConfigError(
            f"{path}: has no [variants.NAME]; name methods to compare, as in --method single,fede"
        )
    tables = read_toml(path).get("variants", {})
    for place, name in enumerate(names):
        after = tables[name].get(AFTER) if name in tables else None
        if after in names[place + 1 :]:
            raise ConfigError(f"{path}: {name} goes on from {after}; name {after} before it")
    origin = Origin(path, assignments, beside=beside)
    found = varied(origin, [{}] * len(names), [replace(origin, variant=name) for name in names])
    return {name: called(experiment, name) for name, (_, experiment) in zip(names, found, strict=True)}


def called(experiment: Experiment, name: str) -> Experiment:
    """The same experiment by this name, unless it has one of its own."""
    return experiment if experiment.name is not None else replace(experiment, name=name)


def varied(
    origin: Origin, points: Sequence[Mapping[str, str]], origins: Sequence[Origin] = ()
) -> Iterator[tuple[Mapping[str, str], Experiment]]:
    """Each point, which sets keys to TOML values, with its experiment; all are checked before the first.

    Where points choose different methods, models or codecs, an option goes to those that have it. `origins`:
    one for each point where they differ.
    """
    from fedkge.front.options import PATHS
    from fedkge.runs.experiment import Experiment

    origins = origins or [origin] * len(points)
    bases, tables = [one.options() for one in origins], []
    for base, point in zip(bases, points, strict=True):
        try:
            options = override(base, [f"{key}={value}" for key, value in point.items()])
        except ConfigError as error:
            raise origin.blamed(error, point) from None
        if named := _plugins(options.get("plugins", []), origin, point):
            options["plugins"] = named
        for part, key in PATHS:
            table = options.get(part) if part else options
            if isinstance(table, dict) and isinstance(table.get(key), str):
                given = origin.gives(f"{part}.{key}" if part else key, point)  # then from where one stands
                table[key] = str((Path() if given else origin.path.parent).joinpath(table[key]).resolve())
        tables.append(options)
    _share_out(tables, points, origin)
    found = []
    for point, options in zip(points, tables, strict=True):
        try:
            found.append((point, Experiment.parse(options)))
        except ConfigError as error:
            raise origin.blamed(error, point) from None
    return iter(found)


def _plugins(named: Any, origin: Origin, point: Mapping[str, str]) -> list[str]:
    """Run the files that the experiment names; a run's own configuration names none."""
    given = origin.gives("plugins", point)
    if not given and (origin.path.parent / "run.jsonl").exists():
        return repeated(named)  # to be found by digest, as whenever a run is opened
    try:
        return load_files(repeated(named), Path() if given else origin.path.parent)
    except ConfigError as error:
        raise origin.blamed(error, point) from None


def _share_out(tables: Sequence[dict[str, Any]], points: Sequence[Mapping[str, str]], origin: Origin) -> None:
    """Leave each chosen part the options that it has; one that none of those chosen has is an error."""
    from fedkge.runs.experiment import PARTS

    for part, registry in PARTS.items():
        names = [table[part].get("name") for table in tables if isinstance(table.get(part), dict)]
        chosen = list(dict.fromkeys(name for name in names if isinstance(name, str)))
        if len(chosen) < 2 or len(names) < len(tables) or not all(isinstance(name, str) for name in names):
            continue  # nothing to share out, or an error that parsing will name
        try:
            known = {name: {field.name for field in fields(registry[name])} for name in chosen}
        except ConfigError as error:
            raise ConfigError(f"{origin.flag} {part}.name: {error}") from None
        every = set().union(*known.values())
        for options, point in zip(tables, points, strict=True):
            for key in set(options[part]) - {"name"} - every:
                place = origin.flag_of(f"{part}.{key}", point) or f"{origin.path}:"
                raise ConfigError(
                    f"{place} {part}.{key}: no such option of {', '.join(chosen)}{suggest(key, every)} "
                    f"(known: {', '.join(sorted(every))})"
                )
            own = known[options[part]["name"]] | {"name"}
            options[part] = {key: value for key, value in options[part].items() if key in own}


def seeded(experiments: Mapping[Path, Experiment], seeds: str | None) -> dict[Path, Experiment]:
    """Each experiment in its folder, or with seeds each of its repetitions in a folder below."""
    if seeds is None:
        return dict(experiments)
    return {
        folder / f"seed-{seed}": replace(experiment, seed=seed)
        for folder, experiment in experiments.items()
        for seed in numbers(seeds)
    }


def numbers(seeds: str) -> list[int]:
    """What `--seeds` lists, none of them twice."""
    found: list[int] = []
    for text in listed("--seeds", seeds, "0,1,2"):
        try:
            found.append(int(text))
        except ValueError:
            raise ConfigError(f"--seeds: expected whole numbers, as in 0,1,2, got {text!r}") from None
        if found.count(found[-1]) > 1:
            raise ConfigError(f"--seeds: {found[-1]} stands twice")
    return found


def listed(flag: str, text: str, example: str) -> list[str]:
    """The words between commas, none of them twice."""
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise ConfigError(f"{flag}: expected a list, as in {example}, got {text!r}")
    for word in words:
        if words.count(word) > 1:
            raise ConfigError(f"{flag}: {word} stands twice")
    return words
