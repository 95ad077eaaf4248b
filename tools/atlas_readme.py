"""The README of `atlas`, with its tables counted from the triples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from string import Template

Triple = tuple[str, str, str]
Federation = Mapping[str, Sequence[Triple]]

TITLES = {
    "airline": "The airline: airports and what is around them",
    "government": "The government: how countries, regions and cities are run and counted",
    "languages": "The language and currency office: who speaks, writes, pays and counts days how",
    "mapping": "The mapping agency: where things lie",
}
MEANING = {
    "airport_in_region": "the airport's subdivision",
    "airspace_of": "country of most airports of an ICAO area",
    "alternate_airport": "one of the two nearest airports, within 500 km (computed; symmetric, written once)",
    "elevation_class": "elevation of the airport, in classes",
    "ground_transport_to": "one of the three nearest other cities of 100,000, within 150 km (computed)",
    "in_icao_area": "first messages of the airport's ICAO code",
    "runs_on_time_of": "time zone of the airport",
    "serves": "the city that the airport names as its own",
    "area_class": "area, in classes",
    "calling_zone": "world numbering zone: first digit of the telephone prefix",
    "capital": "capital",
    "census_class": "population of the city, in classes",
    "in_subregion": "United Nations subregion",
    "income_class": "gross domestic product per head, in classes (computed)",
    "keeps_time_zone": "a time zone of the country",
    "largest_city": "largest city of a region that has several in the atlas (computed)",
    "legal_time": "time zone of most cities of the region (computed)",
    "population_class": "population of the country, in classes",
    "principal_city_of": "one of the fifteen largest cities of a country, not its capital (computed)",
    "urban_population_class": "people in the region's cities of 15,000, in classes (computed)",
    "utc_offset": "an offset in use in the country",
    "also_written_in": "a script in secondary use",
    "currency": "legal tender today",
    "former_currency": "legal tender once",
    "literacy_class": "share of people who read, in classes",
    "minority_language": "spoken by under 5 %, without official status",
    "name_recorded_in": "a name of the city is recorded in this script, which its country writes (computed)",
    "official_language": "official by law or in fact",
    "regional_language": "official in a part of the country",
    "spelling_standard": "the standard that its English, Spanish or Portuguese follows",
    "understood_through": "a language that serves when one's own is not to be had",
    "uses_calendars": "calendars in order of preference",
    "week_begins_on": "first day of the week",
    "widely_spoken_language": "spoken by 5 % or more, without official status",
    "writes_hours_as": "hour formats in use, in CLDR's messages",
    "written_in": "a script in primary use",
    "borders": "land border (symmetric, written once)",
    "in_region": "first-level region of the city",
    "neighbour_city": "one of the two nearest cities, within 400 km (computed; symmetric, written once)",
    "on_continent": "continent",
    "on_map_sheet": "cell of five degrees, named by its south-west corner (computed)",
    "region_of_country": "country of the region",
}


def readme(federation: Federation, versions: Mapping[str, str]) -> str:
    """`atlas_readme.md` with its blanks filled in."""
    template = Template(Path(__file__).with_suffix(".md").read_text(encoding="utf-8"))
    return template.substitute(
        versions,
        total=f"{sum(map(len, federation.values())):,}",
        sites=_sites(federation),
        relations="\n".join(_relations(site, triples) for site, triples in federation.items()),
        overlap=_overlap(federation),
        shared=_shared_share(federation),
    )


def _sites(federation: Federation) -> str:
    rows = ["| site | triples | entities | relations |", "|---|---:|---:|---:|"]
    for site, triples in federation.items():
        relations = {relation for _, relation, _ in triples}
        rows.append(f"| {site} | {len(triples):,} | {len(_entities(triples)):,} | {len(relations)} |")
    return "\n".join(rows) + "\n"


def _relations(site: str, triples: Sequence[Triple]) -> str:
    rows = [f"### {TITLES[site]}\n", "| relation | triples | meaning | example |", "|---|---:|---|---|"]
    for relation, count in sorted(Counter(relation for _, relation, _ in triples).items()):
        having = [(head, tail) for head, known, tail in triples if known == relation]
        head, tail = having[len(having) // 2]
        rows.append(f"| `{relation}` | {count:,} | {MEANING[relation]} | `{head}` → `{tail}` |")
    return "\n".join(rows) + "\n"


def _overlap(federation: Federation) -> str:
    rows = ["| sites | entities in common | cities | regions | countries |", "|---|---:|---:|---:|---:|"]
    for one, other in combinations(federation, 2):
        common = _entities(federation[one]) & _entities(federation[other])
        kinds = Counter(name.partition("/")[0] for name in common)
        counts = (len(common), kinds["city"], kinds["region"], kinds["country"])
        rows.append(f"| {one}, {other} | " + " | ".join(f"{count:,}" for count in counts) + " |")
    return "\n".join(rows) + "\n"


def _shared_share(federation: Federation) -> str:
    sites = Counter(entity for triples in federation.values() for entity in _entities(triples))
    everything = [triple for triples in federation.values() for triple in triples]
    touching = sum(sites[head] > 1 or sites[tail] > 1 for head, _, tail in everything)
    return f"{touching / len(everything):.0%}"


def _entities(triples: Sequence[Triple]) -> set[str]:
    return {entity for head, _, tail in triples for entity in (head, tail)}
