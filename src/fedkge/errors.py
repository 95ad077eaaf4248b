"""Failures that a user can mend: each says where, what was found, what was expected, what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f]")  #: all control characters but the end of a line


class FedkgeError(Exception):
    """Base of every error whose message is meant for the user; the command line exits with 2."""


class DataError(FedkgeError):
    """A graph, or a file that holds one, that cannot be right."""


class ConfigError(FedkgeError):
    """An experiment, or an option, that cannot be right."""


class MissingPackage(FedkgeError):  # noqa: N818 - reads as what it says
    """An optional package that this feature needs is not installed."""

    def __init__(self, package: str, feature: str, extra: str = "", remedy: str = "") -> None:
        remedy = remedy or f"pip install 'fedkge[{extra}]'"
        super().__init__(f"{feature} needs {package}, which is not installed; {remedy}")


class DataWarning(UserWarning):
    """Something odd in the data that does not stop the work: duplicates dropped, unseen entities."""


def suggest(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'mu'?`, or nothing when no known name is close."""
    close = get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def near(name: str, known: Sequence[str], most: int = 5) -> str:
    """`; near it are 'a', 'b'`: names that are spelt alike or contain it, or else some that exist."""
    small = name.lower()
    alike = get_close_matches(name, known, n=most)
    holding = [one for one in known if small and small in one.lower() and one not in alike]
    if found := [*alike, *sorted(holding, key=len)][:most]:
        return f"; did you mean {' or '.join(map(repr, found))}?"
    some = ", ".join(map(repr, known[:most]))
    return f" (there are {len(known):,}: {some}{', ...' * (len(known) > most)})"


def visible(text: str) -> str:
    """The text with control characters written out: a name must not steer the terminal."""
    return CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
