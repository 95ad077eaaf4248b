"""Knowledge-graph embeddings trained across organisations that cannot share their graphs."""

__version__ = "0.1.0"

_HOMES = {
    "Comparison": "fedkge.front.run",
    "ConfigError": "fedkge.errors",
    "DataError": "fedkge.errors",
    "DataWarning": "fedkge.errors",
    "FedkgeError": "fedkge.errors",
    "Graph": "fedkge.graphs.graph",
    "Pack": "fedkge.front.asking",
    "Run": "fedkge.front.run",
    "Sites": "fedkge.front.sites",
    "available": "fedkge.front.naming",
    "compare": "fedkge.front.learning",
    "explain": "fedkge.front.naming",
    "load": "fedkge.front.sites",
    "open_run": "fedkge.front.run",
    "train": "fedkge.front.learning",
}  # imported when they are first asked for (PEP 562); `__init__.pyi` has their types

__all__ = [
    "Comparison",
    "ConfigError",
    "DataError",
    "DataWarning",
    "FedkgeError",
    "Graph",
    "Pack",
    "Run",
    "Sites",
    "__version__",
    "available",
    "compare",
    "explain",
    "load",
    "open_run",
    "train",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'fedkge' has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
