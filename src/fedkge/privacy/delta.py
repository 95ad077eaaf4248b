"""What δ may be: by how much outcomes may be likelier than e^ε allows; far below one in the triples."""

from __future__ import annotations

from fedkge.errors import ConfigError

NEAR = 0.1  #: of one in the confidential triples: from here on δ is warned of


def check_delta(delta: float) -> None:
    """An error unless 0 < δ < 1."""
    if not 0 < delta < 1:
        raise ConfigError(f"delta: expected above 0 and below 1, got {delta}")


def check_share(delta: float, site: str, triples: int) -> None:
    """An error unless δ < 1 / triples, which is the δ of publishing one of them, drawn at random."""
    if delta * triples >= 1:
        raise ConfigError(
            f"delta: {delta:g} allows publishing one of the {triples:,} confidential triples of site "
            f"{site!r}, drawn at random; expected well below {1 / triples:.1g}"
        )


def caution(delta: float, site: str, triples: int) -> str | None:
    """What to say of a δ that is allowed and near to what is not."""
    if delta * triples < NEAR:
        return None
    return (
        f"δ = {delta:g} is {delta * triples:.2g} of one in the {triples:,} confidential triples of "
        f"{site}: publishing one of them, drawn at random, has δ = {1 / triples:.2g}; take far less"
    )
