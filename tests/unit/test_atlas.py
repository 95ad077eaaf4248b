"""The embedded federation `atlas`: four sites, one owner per fact, one name per thing."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
import zlib
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from itertools import combinations
from pathlib import Path

import pytest

import fedkge

Triple = tuple[str, str, str]

ATLAS = Path(fedkge.__file__).parent / "graphs" / "atlas"
BUILD = Path(__file__).parents[2] / "tools" / "build_atlas.py"
SITES = ("airline", "government", "languages", "mapping")
PARTS = ("train", "valid", "test")
PAIRS_OF_SITES = list(combinations(SITES, 2))


def read(path: Path) -> list[Triple]:
    lines = gzip.decompress(path.read_bytes()).decode("utf-8").splitlines()
    rows = [tuple(line.split("\t")) for line in lines]
    assert all(len(row) == 3 and all(name and name == name.strip() for name in row) for row in rows)
    return rows  # type: ignore[return-value]


@pytest.fixture(scope="module")
def atlas() -> dict[str, dict[str, list[Triple]]]:
    return {site: {part: read(ATLAS / site / f"{part}.tsv.gz") for part in PARTS} for site in SITES}


@pytest.fixture(scope="module")
def known(atlas: dict[str, dict[str, list[Triple]]]) -> dict[str, list[Triple]]:
    """Every triple of a site."""
    return {site: [row for part in parts.values() for row in part] for site, parts in atlas.items()}


def entities(triples: list[Triple]) -> set[str]:
    return {name for head, _, tail in triples for name in (head, tail)}


@pytest.fixture(scope="module")
def names(known: dict[str, list[Triple]]) -> set[str]:
    return set().union(*map(entities, known.values()))


def test_four_sites_of_thousands_of_triples_in_under_a_megabyte(known):
    assert sorted(path.name for path in ATLAS.iterdir() if path.is_dir()) == list(SITES)
    assert 30_000 <= sum(map(len, known.values())) <= 45_000
    assert all(len(triples) >= 7_000 for triples in known.values())
    assert sum(path.stat().st_size for path in ATLAS.rglob("*") if path.is_file()) < 600_000


@pytest.mark.parametrize("site", SITES)
def test_split_is_8_1_1_sorted_and_without_repetition(atlas, known, site):
    sizes = {part: len(rows) for part, rows in atlas[site].items()}
    assert sizes["valid"] == sizes["test"] == len(known[site]) // 10
    assert len(set(known[site])) == len(known[site])
    assert all(rows == sorted(rows) for rows in atlas[site].values())


@pytest.mark.parametrize("site", SITES)
def test_train_has_every_entity_and_relation(atlas, known, site):
    assert entities(atlas[site]["train"]) == entities(known[site])
    assert {r for _, r, _ in atlas[site]["train"]} == {r for _, r, _ in known[site]}


@pytest.mark.parametrize("site", SITES)
def test_an_entity_has_at_least_two_triples_at_its_site(known, site):
    degree = Counter(name for head, _, tail in known[site] for name in (head, tail))
    assert min(degree.values()) >= 2


@pytest.mark.parametrize(("one", "other"), PAIRS_OF_SITES)
def test_relations_are_private_to_a_site(known, one, other):
    assert not {r for _, r, _ in known[one]} & {r for _, r, _ in known[other]}


@pytest.mark.parametrize(("one", "other"), PAIRS_OF_SITES)
def test_no_two_things_are_linked_at_two_sites(known, one, other):
    def linked(site: str) -> set[frozenset[str]]:
        return {frozenset((head, tail)) for head, _, tail in known[site]}

    assert not linked(one) & linked(other)


@pytest.mark.parametrize("site", SITES)
def test_two_things_are_linked_once_within_a_site(known, site):
    """Else a held-out triple would stand in train, inverted or under another relation."""
    assert len({frozenset((head, tail)) for head, _, tail in known[site]}) == len(known[site])
    assert all(head != tail for head, _, tail in known[site])


@pytest.mark.parametrize(("one", "other"), PAIRS_OF_SITES)
def test_every_two_sites_share_cities(known, one, other):
    common = entities(known[one]) & entities(known[other])
    assert sum(name.startswith("city/") for name in common) >= 500


@pytest.mark.parametrize("site", SITES)
def test_held_out_triples_concern_what_others_know_and_each_site_has_its_own(atlas, known, site):
    elsewhere = set().union(*(entities(known[other]) for other in SITES if other != site))
    about = [head in elsewhere or tail in elsewhere for head, _, tail in atlas[site]["test"]]
    assert sum(about) > len(about) / 2
    assert len(entities(known[site]) - elsewhere) >= 200


def test_homonyms_are_apart(names):
    assert {"city/Paris (FR)", "country/Georgia", "region/Georgia (US.GA)"} <= names
    assert {"city/Singapore (SG)", "country/Singapore"} <= names
    assert {"city/Birmingham (GB)", "city/Birmingham, AL (US)"} <= names
    assert {"city/Hyderabad (IN)", "city/Hyderabad (PK)"} <= names
    assert {"city/Suzhou, 01 (CN)", "city/Suzhou, 04 (CN)"} <= names


def test_names_say_what_they_name_and_carry_its_code(names):
    shapes = {
        "city": r"city/.+ \([A-Z]{2}\)( #\d+)?",
        "region": r"region/.+ \([A-Z]{2}\.\w+\)",
        "airport": r"airport/[A-Z0-9]{3} .+",
        "language": r"language/.+ \([a-z]{2,3}\)",
        "script": r"script/.+ \([A-Z][a-z]{3}\)",
        "currency": r"currency/[A-Z]{3}",
    }
    for kind, shape in shapes.items():
        named = [name for name in names if name.startswith(f"{kind}/")]
        assert named
        assert [name for name in named if not re.fullmatch(shape, name)] == []
    codes = Counter(
        re.findall(r"\(([A-Z]{2}\.\w+)\)$", name)[0] for name in names if name.startswith("region/")
    )
    assert set(codes.values()) == {1}, "a region under two names"


def test_a_city_lies_in_a_region_of_the_country_in_its_name(known):
    for head, relation, tail in known["mapping"]:
        if relation == "in_region":
            country = re.findall(r"\(([A-Z]{2})\)", head)[-1]
            assert f"({country}." in tail, (head, tail)


@pytest.mark.parametrize(
    ("site", "fact"),
    [
        ("airline", ("airport/CDG Charles de Gaulle International Airport", "serves", "city/Paris (FR)")),
        ("government", ("country/France", "capital", "city/Paris (FR)")),
        ("government", ("region/Texas (US.TX)", "largest_city", "city/Houston (US)")),
        ("languages", ("country/Georgia", "official_language", "language/Georgian (ka)")),
        ("languages", ("country/Japan", "currency", "currency/JPY")),
        ("mapping", ("country/Germany", "borders", "country/Poland")),
        ("mapping", ("region/Georgia (US.GA)", "region_of_country", "country/United States")),
    ],
)
def test_well_known_facts(known, site, fact):
    assert fact in known[site]


@pytest.mark.parametrize("site", SITES)
def test_readme_counts_what_is_there(known, site):
    text = (ATLAS / "README.md").read_text(encoding="utf-8")
    relations = Counter(relation for _, relation, _ in known[site])
    row = f"| {site} | {len(known[site]):,} | {len(entities(known[site])):,} | {len(relations)} |"
    assert row in text
    for relation, count in relations.items():
        assert f"| `{relation}` | {count:,} | " in text


def test_readme_gives_the_credit_that_the_licences_ask_for():
    text = (ATLAS / "README.md").read_text(encoding="utf-8")
    for credit in (
        "GeoNames",
        "CC BY 4.0",
        "It was changed",
        "Unicode License",
        "Mike Borsetti",
        "Porimol Chandro",
    ):
        assert credit in text


def test_build_script_makes_the_committed_files(tmp_path):
    text = (ATLAS / "README.md").read_text(encoding="utf-8")
    releases = dict(re.findall(r"^\| (\w+) \| ([\d.]+) \| MIT", text, re.MULTILINE))
    assert len(releases) == 5
    for package, release in releases.items():
        try:
            installed = version(package)
        except PackageNotFoundError:
            pytest.skip(f"{package} is not installed; pip install 'fedkge[atlas]'")
        if installed != release:
            pytest.skip(f"atlas was built with {package} {release}, found {installed}")

    subprocess.run([sys.executable, str(BUILD), str(tmp_path)], check=True, timeout=120)
    committed = {path.relative_to(ATLAS): path for path in ATLAS.rglob("*") if path.is_file()}
    built = {path.relative_to(tmp_path): path for path in tmp_path.rglob("*") if path.is_file()}
    assert built.keys() == committed.keys()
    same_deflate = "ng" not in zlib.ZLIB_RUNTIME_VERSION  # zlib-ng packs the same text into other bytes
    for name, path in committed.items():
        if name.suffix == ".gz":
            assert gzip.decompress(built[name].read_bytes()) == gzip.decompress(path.read_bytes())
        if name.suffix != ".gz" or same_deflate:
            assert built[name].read_bytes() == path.read_bytes(), name
