"""What attacks found, in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedkge.audits.roc import allowed

Row = Mapping[str, Any]
FEW = 0.01  #: false alarms at which sentences speak of hits
SMALL = 1e-3  #: a part of an answer that need not be taken off: rows are wrong by about as much with it
STRONG, WEAK = 0.7, 0.55  #: areas from which triples leak, and up to which next to nothing is seen


def explained(name: str, rows: Sequence[Row]) -> str:
    """One or two sentences about an attack, a line each."""
    return {"membership": _membership, "ranks": _ranks, "pairs": _pairs}[name](rows)


def _membership(rows: Sequence[Row]) -> str:
    lines = []
    for run in dict.fromkeys(row["run"] for row in rows):
        best = max((row for row in rows if row["run"] == run and row["site"] is None), key=lambda r: r["auc"])
        kind = "confidential" if best["confidential"] else "training"
        says = (
            "whoever has the tables learns much about what was trained on"
            if best["auc_low"] >= STRONG
            else "next to nothing is seen by these attacks; others may do better"
            if best["auc_high"] <= WEAK
            else "something is seen"
        )
        lines.append(
            f"{run}: {kind} triples are told from held-out ones of the same relations with AUC "
            f"{best['auc']:.3f} ({_range(best, 'auc')}) by {best['signal']}, the best of three: {says}."
            + _bound(best)
        )
    return "\n".join(lines)


def _bound(row: Row) -> str:
    if "allowed" not in row:
        return ""
    most = allowed(row["epsilon"], row["delta"], FEW)
    return (
        f" ε = {row['epsilon']:.3g} at δ = {row['delta']:g} leaves at most {most:.1%} to find at {FEW:.0%} "
        f"false alarms, by any attack; found were {row['tpr@1%']:.1%}."
    )


def _range(row: Row, key: str) -> str:
    return f"95 % from {row[f'{key}_low']:.3f} to {row[f'{key}_high']:.3f}"


def _ranks(rows: Sequence[Row]) -> str:
    lines = []
    for row in rows:
        if row["first"].startswith("members") and row["second"].startswith("members"):
            p = f"= {row['p']:.2g}" if row["p"] else "< 1e-300"
            lines.append(
                f"The paper's comparison: median ranks {row['median_1']:,.1f} and {row['median_2']:,.1f}, "
                f"p {p}. It says which model ranks better, not whether membership shows."
            )
        else:
            lines.append(
                f"{row['first'].removeprefix('members, ')}: a member's tail ranks above a non-member's with "
                f"chance {row['below']:.3f} ({_range(row, 'below')}); 0.5 hides it."
            )
    return "\n".join(lines)


def _pairs(rows: Sequence[Row]) -> str:
    lines = []
    for row in rows:
        things = "entities" if row["axis"] == "entity" else "relations"
        if not row["names"]:
            lines.append(
                f"{row['run']}: no {things} are at exactly two sites: no row can be computed this way."
            )
            continue
        if not row["rows"]:
            lines.append(
                f"{row['run']}, {row['codec']}: {row['names']:,} {things} are at exactly two sites, but none "
                f"of those sites was told the other's row in {row['rounds']} "
                f"round{'s' if row['rounds'] > 1 else ''}: try more --rounds."
            )
            continue
        lines.append(
            f"{row['run']}, {row['codec']}: {row['names']:,} {things} are at exactly two sites, and each of "
            f"the two computes the other's rows with a median error of {row['error']:.2g} of their norm; "
            f"{row['recovered']:.1%} are recovered to 1 %. {_taken_off(row['own_part'])}"
        )
    return (
        "\n".join(dict.fromkeys(lines)) or "The hub does not answer with means: there is nothing to subtract."
    )


def _taken_off(part: float) -> str:
    """What the attacker has to know of the hub's weights, where its own row is at most this part."""
    if part <= SMALL:
        own = f", but for {part:.1g} of them at most, which is a site's own" if part else ""
        return f"The answers are the other's rows as they are{own}: nothing need be known to read them."
    return (
        f"A site's own row, up to {part:.2g} of an answer, is taken off: the attacker is taken to know how "
        "much, that is how the hub weighs and who took part."
    )
