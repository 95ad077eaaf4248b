"""What can be named in an experiment, described from its source: docstrings, fields, and their `#:` lines."""

from __future__ import annotations

import ast
import inspect
import io
import sys
import textwrap
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from fedkge.config import to_toml

UNSET = "unset"


@dataclass(frozen=True)
class Option:
    """A key of an experiment."""

    path: str  #: as `--set` takes it: `method.mu`
    of: str  #: the method, model or codec that has it; empty where all experiments have it
    type: str
    default: str  #: as TOML has it, or `unset`
    about: str


@dataclass(frozen=True)
class Described:
    """Something that an experiment or a command names, or a table of options."""

    name: str
    kind: str
    about: str  #: one line
    text: str  #: the rest of what its source says
    options: tuple[Option, ...]
    example: str  #: a line of TOML, or a command


def parts() -> Iterator[Described]:
    """Everything that has a name."""
    from fedkge.runs.experiment import PARTS
    from fedkge.training.losses import LOSSES
    from fedkge.training.optimizers import OPTIMIZERS

    for part, registry in PARTS.items():
        for name in registry:
            yield _registered(part, name, registry[name])
    for kind, known in (("loss", LOSSES), ("optimizer", OPTIMIZERS)):
        for name, found in known.items():
            about, text = _split(found.__doc__)
            yield Described(name, kind, about, text, (), toml("trainer", {kind: name}))
    yield from _datasets()
    yield from _tables()


def attacks() -> Iterator[Described]:
    """What can be tried on runs; its options are those of the command."""
    from fedkge.audits.base import ATTACKS

    for name in ATTACKS:
        part = _registered("attack", name, ATTACKS[name])
        own = tuple(replace(one, path=one.path.replace("attack.", "--")) for one in part.options)
        yield replace(part, options=own, example=f"fedkge attack RUN --name {name}")


def options() -> Iterator[Option]:
    """Every key of an experiment; one of a method, model or codec once for each that has it."""
    from fedkge.runs.experiment import Experiment

    for option in options_of(Experiment):
        if option.path in ("seed", "rounds", "start", "plugins"):
            yield option
    for part in parts():
        yield from part.options


def _registered(kind: str, name: str, cls: type) -> Described:
    """A class of a file of its own is introduced by the file, which names the paper."""
    about, text = _split(cls.__doc__)
    if cls.__module__.endswith(f".{name}"):
        about, text = _split(sys.modules[cls.__module__].__doc__)[0], inspect.cleandoc(cls.__doc__ or "")
    own = tuple(options_of(cls, kind, name))
    defaults = {field.name: default_of(field) for field in fields(cls) if field.init}
    set_ = {key: value for key, value in defaults.items() if value is not None}
    return Described(name, kind, about, text, own, toml(kind, {"name": name, **set_}))


def _datasets() -> Iterator[Described]:
    from fedkge.graphs.catalogue import ATLAS, DATASETS

    for dataset in DATASETS.values():
        counts = dataset.counts
        size = "" if counts is None else f"{'/'.join(f'{n:,}' for n in counts)} triples, "
        where = "downloaded when it is first used" if dataset.sources else "to be put into FEDKGE_DATA"
        about = f"{size}{'part of the package' if dataset is ATLAS else where}"
        yield Described(dataset.name, "data set", about, "", (), toml("data", {"name": dataset.name}))


def _tables() -> Iterator[Described]:
    """The tables of an experiment."""
    from fedkge.runs.experiment import PARTS, Data, Experiment

    for name, cls in get_type_hints(Experiment).items():
        about, text = _split(cls.__doc__)
        if name in PARTS:
            known = list(PARTS[name])
            yield Described(
                name, "table", about, f"name: {', '.join(known)}", (), toml(name, {"name": known[0]})
            )
        elif is_dataclass(cls) and isinstance(cls, type):
            plain = {f.name: default_of(f) for f in fields(cls) if default_of(f) is not None}
            named = {"name": "atlas"} if cls is Data else {}  # needs a name or a path
            yield Described(
                name, "table", about, text, tuple(options_of(cls, name)), toml(name, named | plain)
            )


def options_of(cls: type, table: str = "", of: str = "") -> Iterator[Option]:
    """The fields of a dataclass as options of `table`."""
    types, notes = get_type_hints(cls), explanations(cls)
    for field in fields(cls):
        if field.init:
            default = default_of(field)
            written = UNSET if default is None else to_toml({"x": default})[4:].strip()
            path = f"{table}.{field.name}" if table else field.name
            yield Option(path, of, spelled(types[field.name]), written, notes.get(field.name, ""))


def default_of(field: Field[Any]) -> Any:
    """A field's default; None where there is none, or it is unset."""
    if field.default is not MISSING and not is_dataclass(field.default):
        return list(field.default) if isinstance(field.default, tuple) else field.default
    return None


def explanations(cls: type) -> dict[str, str]:
    """The `#:` lines beside each field of a class, or of the class that it has the field from."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if is_dataclass(base):
            found |= _own_explanations(base)
    return found


@cache
def _own_explanations(cls: type) -> Mapping[str, str]:
    """Of the fields that the class itself declares."""
    try:
        source = textwrap.dedent(inspect.getsource(cls))
    except (OSError, TypeError):  # of a cell, which has no file
        return {}
    comments = {
        token.start[0]: token.string.removeprefix("#:").strip()
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT and token.string.startswith("#:")
    }
    (tree,) = ast.parse(source).body
    assert isinstance(tree, ast.ClassDef)
    lines = {
        line.target.id: range(line.lineno, (line.end_lineno or line.lineno) + 1)
        for line in tree.body
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
    }
    notes = {name: " ".join(comments[at] for at in own if at in comments) for name, own in lines.items()}
    return {name: note for name, note in notes.items() if note}


def spelled(kind: Any) -> str:
    """A type as a user reads it."""
    if get_origin(kind) is Literal:
        return " or ".join(to_toml({"x": choice})[4:].strip() for choice in get_args(kind))
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(spelled(choice) for choice in get_args(kind) if choice is not NoneType)
    if get_origin(kind) is tuple:
        return f"list of {spelled(get_args(kind)[0])}"
    names = {"int": "whole number", "float": "number", "str": "text", "bool": "true or false"}
    name = getattr(kind, "__name__", str(kind))
    return names.get(name, name.lower())


def toml(table: str, values: Mapping[str, Any]) -> str:
    """One line: `method = { name = "fedprox", mu = 0.1 }`."""
    return f"{table} = {{ {', '.join(to_toml(values).splitlines())} }}"


def _split(docstring: str | None) -> tuple[str, str]:
    """The first line, and the rest."""
    first, _, rest = inspect.cleandoc(docstring or "").partition("\n")
    return first, rest.strip()
