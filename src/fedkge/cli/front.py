"""What holds for every command: options from environment variables, and output in any encoding."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import Any

import typer
from typer.core import TyperGroup

from fedkge.errors import suggest

PREFIX = "FEDKGE"
TAKEN = ("DATA", "CACHE", "KERNELS", "SOCKET", "MORPH_KGC")  #: variables that mean something else


class Group(TyperGroup):
    """Commands whose options can be set from outside.

    `FEDKGE_RUN_DEVICE` is `--device` of `fedkge run`, `FEDKGE_DEVICE` is `--device` of all commands. The
    command line wins, then the longer name.
    """

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = super().get_command(ctx, cmd_name)
        above = [] if ctx.parent is None else [ctx.info_name]
        own = "_".join([PREFIX, *above, cmd_name]).upper().replace("-", "_")
        for one in getattr(found, "params", ()):
            if one.param_type_name == "option" and one.name != "help":
                name = max(one.opts, key=len).lstrip("-").upper().replace("-", "_")
                one.envvar = [f"{own}_{name}"] + ([] if name in TAKEN else [f"{PREFIX}_{name}"])
                one.show_envvar = False
        if found is not None and not hasattr(found, "commands"):
            _check(own, [name for one in found.params for name in one.envvar or ()])
        return found


def _check(own: str, known: list[str]) -> None:
    """A variable that is meant for this command must name one of its options."""
    for name in os.environ:
        if name.startswith(f"{own}_") and name not in known:
            print(f"error: {name}: the command has no such option{suggest(name, known)}", file=sys.stderr)
            raise typer.Exit(2)


def any_encoding() -> None:
    """What the terminal or the file cannot show is written as an escape, and does not end the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
