"""What δ may be: by how much outcomes may be likelier than e^ε allows; far below one in the triples."""

from __future__ import annotations

from fedkge.errors import ConfigError

NEAR = 0.1  #: of one in the confidential triples: from here on δ is warned of


def check_delta(delta: float) -> None:
    """An error unless 0 < δ < 1."""
    if not 0 < delta < 1:
        raise ConfigError(f"delta: expected above 0 and below 1, got {delta}")


def check_share(delta: float, site: str, count: int, what: str = "confidential triples") -> None:
    """An error unless δ < 1 / count, which is the δ of publishing one of them, drawn at random."""
    if delta * count >= 1:
        raise ConfigError(
            f"delta: {delta:g} allows publishing one of the {count:,} {what} of site {site!r}, drawn at "
            f"random; expected well below {1 / count:.1g}"
        )


def fitting(delta: float, count: int) -> float:
    """The same δ, or where it is no bound for so many of them, one far below one in the count."""
    return delta if delta * count < 1 else NEAR / count


def caution(delta: float, site: str, count: int, what: str = "confidential triples") -> str | None:
    """What to say of a δ that is allowed and near to what is not."""
    if delta * count < NEAR:
        return None
    return (
        f"δ = {delta:g} is {delta * count:.2g} of one in the {count:,} {what} of {site}: publishing one of "
        f"them, drawn at random, has δ = {1 / count:.2g}; take far less"
    )
