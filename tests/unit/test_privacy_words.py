"""Privacy in words: ε never stands alone, and what is not protected is not said to be."""

from __future__ import annotations

from dataclasses import replace
from math import exp, inf

import pytest

from fedkge.privacy import Cost, Entry, Release, costs, explained, headline, over_epochs, unprotected
from fedkge.privacy.accountants import Rdp
from fedkge.privacy.releases import Everything, Gaussian, Poisson, Shuffled, TouchedRows
from fedkge.privacy.words import most_found, number

STEPS = Release(Gaussian(1.0), Poisson(0.01), 10)
PAPER = Release(TouchedRows(0.7, 20.0), Shuffled(0.01), 10)


def cost(*releases: Release, epsilon: float = 2.0) -> Cost:
    return Cost("north", epsilon, 1e-6, "rdp-paper" if releases[0].flaws else "pld", releases)


def test_epsilon_is_printed_with_all_it_means() -> None:
    assert headline(cost(STEPS)) == (
        "north: ε = 2 at δ = 1e-06 (unit: one confidential triple; neighbours: zero out one; "
        "accountant: privacy loss distributions (PLD); guarantee: formal)"
    )


def test_a_guarantee_says_whose_against_whom_and_by_what() -> None:
    text = " ".join(explained([cost(STEPS)]))
    for said in (
        "Protected: each confidential",
        "Against: whoever",
        "one that also sends what it likes",
        "Assuming: ",
    ):
        assert said in text
    for assumption in ("are public", "clipped together with its negatives", "a key that only the site has"):
        assert assumption in text
    assert "e^ε = 7.39" in text
    assert "Not protected: unrestricted triples" in text
    assert "use all triples" not in text
    assert "use all triples" in " ".join(explained([cost(STEPS, Release(Gaussian(9.0), Everything()))]))


def test_delta_is_what_is_added_to_a_probability() -> None:
    text = " ".join(explained([cost(STEPS)]))
    assert "at most e^ε = 7.39 times the probability, plus δ, if a triple of north was in the graph" in text
    assert "only if the triple was there is seen with a probability of at most δ" in text
    assert "chance" not in text
    assert "odds" not in text


@pytest.mark.parametrize("text", [explained([cost(STEPS)]), unprotected("u-only")], ids=["strict", "u-only"])
def test_files_that_epsilon_does_not_cover_are_named(text: list[str]) -> None:
    (kept,) = (said for said in text if said.startswith("Not protected, and to be kept at the site"))
    for file, of in {
        "summary.json": "`digest`, a hash of the graph",
        "clustering": "`metrics`",
        "run.jsonl": "the last metrics",
        "sites/*/ranks.safetensors": "test triples, and their ranks among what all triples leave open",
        "run.json:": "the digest again",
        "sites/*/metrics.json": "the site's metrics",
        "sites/*/kit.checkpoint": "the graph itself",
    }.items():
        assert of in kept[kept.index(file) :]
    assert ("losses" in kept) == (text[0].startswith("north")), "u-only trains on no confidential triple"


@pytest.mark.parametrize(
    ("epsilon", "empty"), [(3.0, False), (4.5, False), (4.6, True), (24.0, True), (1e4, True)]
)
def test_an_epsilon_that_rules_out_nothing_says_so(epsilon: float, empty: bool) -> None:
    said = explained([cost(STEPS, epsilon=epsilon), cost(STEPS, epsilon=0.1)])
    warned = [line for line in said if line.startswith("Warning")]
    assert len(warned) == empty
    for line in warned:
        assert line.startswith("Warning: the ε of north alone rules out practically nothing")
    (means,) = (line for line in said if line.startswith("That is"))
    assert ("e^ε = " in means) == ("finds at most" in means) == (not empty)


def test_no_guarantee_says_why_in_one_line() -> None:
    head, why = explained([cost(PAPER)])
    assert head.endswith("guarantee: none)")
    assert why.startswith("guarantee: none, because noise on touched rows alone tells which rows changed; ")
    assert "batches are shuffled" in why
    assert "Protected" not in why
    assert explained([cost(STEPS, PAPER)])[0].endswith("guarantee: none)"), "one flaw is enough"


def test_several_sites_are_said_once_by_the_worst() -> None:
    south = Cost("south", 3.0, 1e-6, "pld", (STEPS,))
    said = explained([cost(STEPS), south])
    assert [line.split(":")[0] for line in said[:3]] == ["north", "south", "Protected"]
    assert "triple of north, south, one by one" in said[2]
    assert sum("e^ε = 20.1" in line for line in said) == 1
    mixed = explained([cost(PAPER), south])
    assert mixed[2].startswith("guarantee: none, because")
    assert "triple of south, one by one" in mixed[3]


def test_a_release_without_noise_protects_nothing() -> None:
    head, why = explained([cost(Release(Gaussian(0.0), Everything()), epsilon=inf)])
    assert "ε = ∞" in head
    assert why == "guarantee: none, because something was released without noise."


def test_runs_without_releases() -> None:
    assert unprotected("off")[0] == "guarantee: none, because training added no noise (privacy.mode is off)."
    assert "Nothing is protected" in unprotected("off")[1]
    assert "ε = 0 (unit: one confidential triple" in unprotected("u-only")[0]
    assert (
        "ε = 0 (unit: one person; neighbours: two graphs, equal except" in unprotected("u-only", "person")[0]
    )
    assert unprotected("strict")[0].startswith("Nothing has been released yet (privacy.mode is strict)")


@pytest.mark.parametrize(
    ("value", "shown"),
    [(2.0, "2"), (1.9999, "2.00"), (7.001, "7.01"), (0.0, "0"), (inf, "∞"), (1234.0, "1240")],
)
def test_epsilon_is_rounded_up(value: float, shown: str) -> None:
    assert number(value) == shown


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 8.0])
def test_what_a_test_finds_is_bounded_from_both_sides(epsilon: float) -> None:
    found = most_found(cost(STEPS, epsilon=epsilon))
    assert 0.05 < found < 1
    assert found <= exp(epsilon) * 0.05 + 1e-6 + 1e-12  # true positives against false alarms
    assert exp(epsilon) * (1 - found) + 1e-6 + 1e-12 >= 0.95  # true negatives against misses
    assert most_found(cost(STEPS, epsilon=1000.0)) == 1.0


def test_accounts_and_curves() -> None:
    pytest.importorskip("dp_accounting")
    entries = [
        Entry(site, epoch, STEPS, 10 * (epoch - 1)) for epoch in range(1, 101) for site in ("north", "south")
    ]
    del entries[-1]  # south lacks an epoch
    north, south = costs(entries, 1e-5, "rdp")
    assert north.site == "north"
    assert north.epsilon == Rdp().epsilon([Release(Gaussian(1.0), Poisson(0.01), 1000)], 1e-5)
    assert north.releases == (Release(Gaussian(1.0), Poisson(0.01), 1000),)
    assert south.epsilon < north.epsilon
    curve = over_epochs(entries, "north", 1e-5, Rdp())
    assert (min(curve), max(curve)) == (0, 100)
    assert 20 <= len(curve) <= 26
    assert list(curve.values()) == sorted(curve.values())
    assert (curve[0], curve[100]) == (0.0, north.epsilon)


def test_an_epoch_that_was_repeated_after_a_kill_counts_twice() -> None:
    pytest.importorskip("dp_accounting")
    entries = [Entry("a", epoch, STEPS, 10 * i) for i, epoch in enumerate((1, 2, 2, 3))]
    curve = over_epochs(entries, "a", 1e-5, Rdp())
    assert curve[2] == Rdp().epsilon([STEPS] * 3, 1e-5)
    assert curve[3] == costs(entries, 1e-5, "rdp")[0].epsilon
    killed = [Entry("a", epoch, STEPS, 10 * i) for i, epoch in enumerate((1, 2, 3, 2))]
    curve = over_epochs(killed, "a", 1e-5, Rdp())
    assert curve[2] < curve[3] == costs(killed, 1e-5, "rdp")[0].epsilon


def test_tables_with_persons_are_not_said_to_be_covered_as_they_are() -> None:
    said = explained([cost(replace(STEPS, unit="person"))])
    (covered,) = (line for line in said if line.startswith("Covered by ε"))
    (others,) = (line for line in said if line.startswith("Not protected: "))
    assert "entities.safetensors" not in covered
    assert "entities.safetensors" in others
