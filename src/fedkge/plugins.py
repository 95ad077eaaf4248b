"""Parts of one's own: Python files and installed packages that register methods, models, losses and more.

Running a plugin is running its code, so that only a person decides which file that is. A configuration names
a plugin by the digest of its content. A file that the user has named once is kept under that digest in the
user's state folder, from where a run that needs it loads it again. Nothing in a run folder is ever run.
"""

from __future__ import annotations

import re
import sys
import traceback
import warnings
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

from fedkge.durable import state_folder, write_whole
from fedkge.errors import ConfigError, DataWarning

GROUP = "fedkge.plugins"  #: of entry points
MODULES = "fedkge_plugins"  #: a file is the module fedkge_plugins.STEM
MARK = " sha256:"  #: between a plugin's name and its digest
STORED = re.compile(rf"[^/\\]+{MARK}[0-9a-f]{{64}}")  #: as a run's configuration names a plugin

_running: dict[str, str] = {}  # module -> digest of the content that it was last made of
_trusted: list[str] = []  # names and digests of files that stand for whatever a run names
_warned: set[tuple[str, ...]] = set()  # digests that a run names, and those trusted instead: said once
_installed = False


def load_file(path: Path) -> str:
    """Run a file that the user names, and keep it; its name and digest, as configurations have them."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"plugins: {path}: {error.strerror}") from None
    digest = sha256(content).hexdigest()
    kept = _kept(digest)
    if not kept.is_file():
        write_whole(kept, content)
    _run(path, digest, content)
    return f"{path.name}{MARK}{digest}"


def load_files(named: Any, beside: Path) -> list[str]:
    """Run the files of an experiment that the user has written; paths are relative to where it is."""
    if not isinstance(named, list | tuple) or not all(isinstance(one, str) for one in named):
        raise ConfigError(f"plugins: expected a list of files, as in ['my_methods.py'], got {named!r}")
    return [one if MARK in one else load_file(beside / one) for one in named]


def trust(paths: Iterable[Path]) -> None:
    """Run these files; they stand for the plugins of every run that is opened from now on."""
    _trusted.extend(load_file(path) for path in paths)


def repeated(named: Any) -> Any:
    """The plugins of a new run by the options of another: those that it names, or those trusted instead."""
    stored = isinstance(named, list) and all(STORED.fullmatch(str(one)) for one in named)
    if not _trusted or not stored or (named and set(map(_digest, named)) <= set(map(_digest, _trusted))):
        return named
    return list(_trusted)


def load_known(named: Any) -> None:
    """Run what a configuration names, if the user has named that very content before, or trusts files now."""
    for one in named if isinstance(named, list | tuple) else [named]:
        digest = _digest(one)
        if not STORED.fullmatch(str(one)):
            raise ConfigError("plugins: expected a name and the digest of a file, as runs write them")
        if digest in map(_digest, _trusted):
            continue
        if _trusted:
            text = "a run was made with another plugin than the trusted one; its results may not be the same"
            if (digest, *_trusted) not in _warned:
                _warned.add((digest, *_trusted))
                warnings.warn(text, DataWarning, stacklevel=3)
            continue
        try:
            content = _kept(digest).read_bytes()
        except OSError:
            content = b""
        if sha256(content).hexdigest() != digest:
            raise ConfigError(
                f"plugins: a plugin with the digest {digest[:12]}... is needed, and was never used here; if "
                "you have a copy that you trust, name it with --trust"
            )
        _run(Path(one.rpartition(MARK)[0]), digest, content)


def load_installed() -> None:
    """Import the plugins of installed packages, once."""
    global _installed
    if _installed:
        return
    from importlib.metadata import entry_points

    _installed = True
    for entry in entry_points(group=GROUP):
        try:
            entry.load()
        except Exception as error:
            _installed = False
            raise ConfigError(f"plugin {entry.name} ({entry.value}): {_told(error)}") from error


def installed() -> dict[str, str]:
    """The packages that have plugins, with their versions."""
    from importlib.metadata import entry_points

    found = [entry.dist for entry in entry_points(group=GROUP)]
    return {dist.name: dist.version for dist in found if dist is not None}


def _digest(named: Any) -> str:
    return str(named).rpartition(MARK)[2]


def _kept(digest: str) -> Path:
    return state_folder() / "plugins" / f"{digest}.py"


def _run(path: Path, digest: str, content: bytes) -> None:
    """As a module of the file's name; content that is that module already is not run again."""
    name = f"{MODULES}.{path.stem}"
    if _running.get(name) == digest:
        return
    module = ModuleType(name)
    module.__file__ = str(_kept(digest))  # where `inspect` finds its source
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        exec(compile(content, module.__file__, "exec"), module.__dict__)
    except Exception as error:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        raise ConfigError(f"{path}: {_told(error, module.__file__)}") from error
    _running[name] = digest


def _told(error: Exception, file: str = "") -> str:
    """What went wrong, and in which line of the plugin."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {error.msg}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    where = f"line {lines[-1]}: " if lines else ""
    return f"{where}{error}" if isinstance(error, ConfigError) else f"{where}{type(error).__name__}: {error}"
