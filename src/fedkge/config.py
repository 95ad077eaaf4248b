"""Build parts from plain mappings: the fields of a dataclass are its options."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from fedkge.errors import ConfigError, suggest
from fedkge.registry import Registry

T = TypeVar("T")


def read_toml(path: Path) -> dict[str, Any]:
    """The file's tables; a file that is no TOML is an error with its line."""
    if path.exists() and not path.is_file():
        raise ConfigError(f"{path}: expected a file, found a folder, pipe or device")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 at byte {error.start}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {error}") from None


AFTER, START = "after", "start"


def variant(config: Mapping[str, Any], name: str | None) -> dict[str, Any]:
    """The options of a file without its `[variants.NAME]` tables, changed by the one of this name.

    A table of the variant that names a part (`method = { name = ... }`) replaces the file's table. Any other
    table changes only the keys that it has.
    """
    plain = deepcopy(dict(config))
    known = plain.pop("variants", {})
    if not isinstance(known, dict) or not all(isinstance(one, dict) for one in known.values()):
        raise ConfigError("variants: expected tables, as in [variants.fedep]")
    if name is None:
        if known:
            raise ConfigError(f"variants: which of {', '.join(known)}? name one with --variant")
        return plain
    if name not in known:
        found = f" (known: {', '.join(known)})" if known else "; the file has no variants"
        raise ConfigError(f"variants.{name}: no such variant{suggest(name, known)}{found}")
    for key, value in known[name].items():
        whole = not isinstance(value, dict) or "name" in value or not isinstance(plain.get(key), dict)
        plain[key] = value if whole else plain[key] | value
    after = plain.get(AFTER)
    if after is not None and (after == name or after not in known):
        others = ", ".join(other for other in known if other != name)
        raise ConfigError(
            f"variants.{name}.{AFTER}: expected another variant of the file ({others}), got {after!r}"
        )
    return plain


def following(options: Mapping[str, Any], beside: Path) -> dict[str, Any]:
    """A variant that goes on from another (`after = "single"`) starts from its run in the folder `beside`."""
    found = dict(options)
    after = found.pop(AFTER, None)
    if after is not None:
        if START in found:
            raise ConfigError(f"{AFTER}: the variant has {START} too; expected one of them")
        found[START] = str(beside.resolve() / after)
    return found


def variants(config: Mapping[str, Any]) -> dict[str | None, dict[str, Any]]:
    """The options of every variant of a file, under its name; of a file without variants under None."""
    names: list[str | None] = list(config.get("variants", {})) or [None]
    return {name: variant(config, name) for name in names}


def as_variants(configs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Whole experiments as one file: what they have in common, and a variant for each.

    `variants` gives the experiments again.
    """
    common: dict[str, Any] = {}
    own: dict[str, dict[str, Any]] = {name: {} for name in configs}
    for key in dict.fromkeys(key for config in configs.values() for key in config):
        values = [config.get(key) for config in configs.values()]
        alike = _alike(values)
        if alike is not None:
            common[key] = alike
        for name, value in zip(configs, values, strict=True):
            if isinstance(alike, Mapping) and isinstance(value, Mapping) and alike != value:
                own[name][key] = {inner: of for inner, of in value.items() if inner not in alike}
            elif value is not None and value != alike:
                own[name][key] = value
    return {**common, "variants": own}


def _alike(values: Sequence[Any]) -> Any:
    """What all have: the value, or of tables that name no part the keys with equal values; else None."""
    first, *others = values
    if all(value == first for value in others):
        return first
    if not all(isinstance(value, Mapping) and "name" not in value for value in values):
        return None
    common = {key: of for key, of in first.items() if all(key in o and o[key] == of for o in others)}
    return common or None


def choose(registry: Registry[T], options: Mapping[str, Any], path: str) -> T:
    """Build the part that `options["name"]` names, from the other options."""
    named = dict(options)
    name = named.pop("name", None)
    if not isinstance(name, str):
        raise ConfigError(f"{path}.name: which {registry.kind}? one of {', '.join(registry)}")
    try:
        cls = registry[name]
    except ConfigError as error:
        raise ConfigError(f"{path}.name: {error}") from None
    return build(cls, named, path)


def build(cls: type[T], options: Mapping[str, Any], path: str) -> T:
    """Build the dataclass `cls`; every option must be one of its fields and of its type."""
    known = {field.name for field in fields(cls) if field.init}  # type: ignore[arg-type]
    types = get_type_hints(cls)
    checked = {}
    for name, value in options.items():
        where = f"{path}.{name}" if path else name
        if name not in known:
            raise ConfigError(
                f"{where}: no such option{suggest(name, known)} (known: {', '.join(sorted(known))})"
            )
        checked[name] = _fit(types[name], value, where)
    try:
        return cls(**checked)
    except ConfigError as error:
        raise ConfigError(f"{path}.{error}" if path else str(error)) from None
    except TypeError as error:
        raise ConfigError(f"{path or cls.__name__}: {error}") from None


def _fit(kind: Any, value: Any, where: str) -> Any:
    """`value` as a value of type `kind`, or an error that says what was expected."""
    if type(value) is int and value.bit_length() > 63:  # counts and seeds are kept in 64 bits
        raise ConfigError(
            f"{where}: expected a number that fits into 64 bits, got one of {value.bit_length()} bits"
        )
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        choices = [choice for choice in get_args(kind) if choice is not NoneType]
        if value is None and NoneType in get_args(kind):
            return None
        for choice in choices:
            try:
                return _fit(choice, value, where)
            except ConfigError:
                continue
        raise ConfigError(f"{where}: expected {_described(kind)}, got {value!r}")
    if origin is Literal:
        if any(value == choice and type(value) is type(choice) for choice in get_args(kind)):
            return value
        hint = suggest(str(value), map(str, get_args(kind)))
        raise ConfigError(f"{where}: expected {_described(kind)}, got {value!r}{hint}")
    if origin is tuple and isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(_fit(get_args(kind)[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin is Mapping and isinstance(value, Mapping):
        return {str(name): _fit(get_args(kind)[1], item, f"{where}.{name}") for name, item in value.items()}
    if is_dataclass(kind) and isinstance(kind, type) and isinstance(value, Mapping):
        return build(kind, value, where)
    if kind is float and type(value) is int:
        return float(value)
    if origin is None and isinstance(kind, type) and type(value) is kind:
        return value
    if kind is Path and isinstance(value, str):
        return Path(value)
    if isinstance(kind, type) and isinstance(value, kind) and not isinstance(value, bool):
        return value
    raise ConfigError(f"{where}: expected {_described(kind)}, got {value!r}")


def _described(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(map(repr, get_args(kind)))
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(_described(choice) for choice in get_args(kind) if choice is not NoneType)
    return getattr(kind, "__name__", str(kind))


def options(part: Any) -> dict[str, Any]:
    """The fields of a dataclass as plain values; what is unset (None) is left out, as TOML has no null."""
    plain = {}
    for field in fields(part):
        value = getattr(part, field.name)
        if value is not None and field.init:
            plain[field.name] = options(value) if is_dataclass(value) else _plain(value)
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {name: options(one) if is_dataclass(one) else _plain(one) for name, one in value.items()}
    return list(value) if isinstance(value, tuple) else value


def override(config: dict[str, Any], assignments: Sequence[str]) -> dict[str, Any]:
    """`config` with `--set a.b=value` applied; a value is TOML, and a bare word is a string."""
    result = deepcopy(config)
    for assignment in assignments:
        dotted, equals, text = assignment.partition("=")
        if not equals:
            raise ConfigError(f"--set {assignment}: expected KEY=VALUE, as in model.dim=64")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text
        *parents, last = dotted.strip().split(".")
        table = result
        for parent in parents:
            table = table.setdefault(parent, {})
            if not isinstance(table, dict):
                raise ConfigError(f"--set {assignment}: {parent} is not a table")
        table[last] = value
    return result


def to_toml(config: Mapping[str, Any]) -> str:
    """A TOML document: plain values first, then one `[table]` per mapping; of variants, one for each."""
    lines = [f"{_key(name)} = {_value(v)}" for name, v in config.items() if not isinstance(v, Mapping)]
    for name, table in config.items():
        if name == "variants":
            for own, changes in table.items():
                lines += _section(f"variants.{_key(own)}", changes)
        elif isinstance(table, Mapping):
            lines += _section(_key(name), table)
    return "\n".join(lines) + "\n"


def _section(name: str, table: Mapping[str, Any]) -> list[str]:
    return ["", f"[{name}]", *(f"{_key(inner)} = {_value(value)}" for inner, value in table.items())]


def _key(name: str) -> str:
    return name if name.replace("-", "").replace("_", "").isalnum() and name.isascii() else _value(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return {"inf": "inf", "-inf": "-inf", "nan": "nan"}.get(str(value), repr(value))
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    # TOML's basic strings are JSON's, except that DEL must be escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
