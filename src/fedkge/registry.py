"""Names for interchangeable parts: `MODELS["transe"]`, `LOSSES["margin"]`."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, MutableMapping
from typing import Generic, TypeVar

from fedkge.errors import ConfigError, suggest
from fedkge.plugins import load_installed

T = TypeVar("T")


def claim(kind: str, package: str, known: MutableMapping[str, T], name: str, part: T) -> None:
    """Put a part under a name.

    A name of `package` stays what it is. Another one can be claimed again by the module that has it: a cell
    of a notebook that is run twice, a plugin that was edited.
    """
    before = known.get(name)
    if before is not None and (_within(before, package) or before.__module__ != part.__module__):
        raise ConfigError(f"{before.__module__} has a {kind} named {name!r} already; choose another name")
    known[name] = part


def _within(part: object, package: str) -> bool:
    return f"{part.__module__}.".startswith(f"{package}.")


class Registry(Generic[T]):
    """Classes by name. Every module of `package` is imported on first use, so a new part is one new file."""

    def __init__(self, kind: str, package: str) -> None:
        self.kind, self.package = kind, package
        self._classes: dict[str, type[T]] = {}
        self._loaded = False

    def register(self, name: str) -> Callable[[type[T]], type[T]]:
        def add(cls: type[T]) -> type[T]:
            if not _within(cls, self.package):
                self._load_own()  # a plugin's name must not be one that we have
                if "__dataclass_params__" not in vars(cls):
                    raise ConfigError(
                        f"{cls.__name__} is no dataclass; write @dataclass(frozen=True) between "
                        "@...register and the class"
                    )
            claim(self.kind, self.package, self._classes, name, cls)
            return cls

        return add

    def __getitem__(self, name: str) -> type[T]:
        self._load()
        if name not in self._classes:
            raise ConfigError(
                f"no {self.kind} is named {name!r}{suggest(name, self)} (known: {', '.join(self)})"
            )
        return self._classes[name]

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(sorted(self._classes))

    def name_of(self, part: object) -> str:
        """The name that `part`'s class was registered under."""
        self._load()
        for name, cls in self._classes.items():
            if cls is type(part):
                return name
        raise ConfigError(
            f"{type(part).__qualname__} is no registered {self.kind} (known: {', '.join(self)})"
        )

    def _load(self) -> None:
        self._load_own()
        load_installed()

    def _load_own(self) -> None:
        if not self._loaded:
            root = importlib.import_module(self.package)
            for module in pkgutil.iter_modules(root.__path__):
                importlib.import_module(f"{self.package}.{module.name}")
            self._loaded = True  # only now: after a failed import, the next use says why again
