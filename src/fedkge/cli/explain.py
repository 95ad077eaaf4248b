"""`fedkge list` and `fedkge explain`: what can be named in an experiment, and what it means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedkge.cli.arguments import Json, Trust
from fedkge.cli.output import check, command, print_json, reflowed, show

if TYPE_CHECKING:
    from fedkge.front.described import Described, Option

KINDS = {
    "methods": "method",
    "models": "model",
    "codecs": "codec",
    "selections": "select",
    "aggregations": "aggregate",
    "losses": "loss",
    "optimizers": "optimizer",
    "data": "data set",
    "attacks": "attack",
}


def list_(
    what: Annotated[
        str | None, typer.Argument(help=f"{', '.join(KINDS)}; unset, all.", show_default=False)
    ] = None,
    trust: Trust = [],  # noqa: B006
    json: Json = False,
) -> None:
    """What can be named in an experiment, and what can be tried on its run."""
    with command(trust):
        from fedkge.front.described import attacks, parts

        if what is not None:
            check("list", what, list(KINDS))
        kinds = list(KINDS.values()) if what is None else [KINDS[what]]
        rows = [
            ({"kind": part.kind} if what is None else {}) | {"name": part.name, "about": part.about}
            for part in (*parts(), *attacks())
            if part.kind in kinds
        ]
        show(rows, json)


def explain(
    name: Annotated[
        str, typer.Argument(help="A method, model, codec, attack, ..., or an option: trainer.lr")
    ],
    trust: Trust = [],  # noqa: B006
    json: Json = False,
) -> None:
    """What something that an experiment names means: its source's words, and every option."""
    with command(trust):
        from fedkge.front.naming import find

        found, keys = find(name)
        if json:
            print_json(_plain(found, keys))
            return
        for part in found:
            _print_part(part)
        if keys:
            _print_options(keys)


def _plain(found: Sequence[Described], keys: Sequence[Option]) -> list[dict[str, Any]]:
    return [asdict(part) for part in found] + [{"kind": "option", **asdict(option)} for option in keys]


def _print_part(part: Described) -> None:
    print(f"{part.name}: {part.kind}\n{reflowed(part.about)}")
    if part.text:
        print(f"\n{reflowed(part.text)}")
    print()
    if part.options:
        show([_row(option) for option in part.options], False, "Options")
    print(f"example: {part.example}")


def _row(option: Option) -> dict[str, Any]:
    return {"option": option.path, "type": option.type, "default": option.default, "about": option.about}


def _print_options(keys: Sequence[Option]) -> None:
    """Options that are the same for several methods, models or codecs stand on one line."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for option in keys:
        alike.setdefault(tuple(_row(option).values()), []).append(option.of)
    rows = []
    for (path, kind, default, about), owners in alike.items():
        of = {"of": ", ".join(owners)} if any(option.of for option in keys) else {}
        rows.append({"option": path, **of, "type": kind, "default": default, "about": about})
    show(rows, False)
    for option in {option.path: option for option in reversed(keys)}.values():
        table, _, key = option.path.rpartition(".")
        value = "..." if option.default == "unset" else option.default
        line = f"{key} = {value}"
        if table:
            chosen = f'name = "{option.of}", ' if option.of else ""
            line = f"{table} = {{ {chosen}{line} }}"
        print(f"example: {line}    or --set {option.path}={value}")
