"""What the language and currency office of `atlas` knows: who speaks, writes, pays and counts days how."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterator

from atlas_bands import Bands
from atlas_cldr import language, language_matching, script, supplemental
from atlas_places import City, Gazetteer

Triple = tuple[str, str, str]

CALENDARS = "calendarPreferenceData/calendarPreference"
WIDELY_SPOKEN_PERCENT = 5.0
LITERACY = Bands("literacy", (40, 60, 75, 85, 92, 96, 99), " %")
SPELLING_STANDARDS = frozenset({"en", "es", "pt"})
OFFICIAL = {
    "official": "official_language",
    "de_facto_official": "official_language",
    "official_regional": "regional_language",
}
SCRIPTS = {  # the first word of a character's Unicode name, and the ISO 15924 code
    "ARABIC": "Arab",
    "ARMENIAN": "Armn",
    "BENGALI": "Beng",
    "CJK": "Hani",
    "CYRILLIC": "Cyrl",
    "DEVANAGARI": "Deva",
    "ETHIOPIC": "Ethi",
    "GEORGIAN": "Geor",
    "GREEK": "Grek",
    "GUJARATI": "Gujr",
    "GURMUKHI": "Guru",
    "HANGUL": "Hang",
    "HEBREW": "Hebr",
    "KANNADA": "Knda",
    "KATAKANA": "Kana",
    "KHMER": "Khmr",
    "LAO": "Laoo",
    "MALAYALAM": "Mlym",
    "MYANMAR": "Mymr",
    "ORIYA": "Orya",
    "SINHALA": "Sinh",
    "TAMIL": "Taml",
    "TELUGU": "Telu",
    "THAI": "Thai",
    "TIBETAN": "Tibt",
}
SINGLE_SCRIPTS = {"Hans": ("Hani",), "Hant": ("Hani",), "Jpan": ("Hani", "Kana"), "Kore": ("Hang", "Hani")}


def language_office(places: Gazetteer) -> Iterator[Triple]:
    """Everything the office holds."""
    yield from languages_of_countries(places)
    yield from currencies_of_countries(places)
    yield from customs_of_countries(places)
    yield from spelling_of_countries(places)
    yield from languages_and_scripts()
    yield from names_of_cities(places)


def languages_of_countries(places: Gazetteer) -> Iterator[Triple]:
    """One triple per country and language: the first of its entries, which is the most spoken."""
    for territory in supplemental().iterfind("territoryInfo/territory"):
        code = territory.attrib["type"]
        if code not in places:
            continue
        stated = set()
        for entry in territory.iterfind("languagePopulation"):
            spoken = entry.attrib["type"].split("_")[0]  # az_Cyrl is az, written otherwise
            wide = float(entry.attrib["populationPercent"]) >= WIDELY_SPOKEN_PERCENT
            unofficial = "widely_spoken_language" if wide else "minority_language"
            if spoken not in stated:
                relation = OFFICIAL.get(entry.attrib.get("officialStatus", ""), unofficial)
                yield places.country(code), relation, language(spoken)
            stated.add(spoken)
        yield places.country(code), "literacy_class", LITERACY.of(float(territory.attrib["literacyPercent"]))


def currencies_of_countries(places: Gazetteer) -> Iterator[Triple]:
    """Legal tender today, and what was before."""
    for territory in supplemental().iterfind("currencyData/region"):
        code = territory.attrib["iso3166"]
        if code not in places:
            continue
        tender = [c.attrib for c in territory.iterfind("currency") if c.attrib.get("tender") != "false"]
        current = {c["iso4217"] for c in tender if "to" not in c}
        for currency in sorted({c["iso4217"] for c in tender}):
            relation = "currency" if currency in current else "former_currency"
            yield places.country(code), relation, f"currency/{currency}"


def customs_of_countries(places: Gazetteer) -> Iterator[Triple]:
    """How hours are written, which calendars are used, when a week begins, where CLDR names the country."""
    for path, codes, value, relation, kind in (
        ("timeData/hours", "regions", "allowed", "writes_hours_as", "hours"),
        (
            "calendarPreferenceData/calendarPreference",
            "territories",
            "ordering",
            "uses_calendars",
            "calendars",
        ),
        ("weekData/firstDay", "territories", "day", "week_begins_on", "weekday"),
    ):
        for row in supplemental().iterfind(path):
            for code in row.attrib[codes].split():
                if code in places and "alt" not in row.attrib:
                    yield places.country(code), relation, f"{kind}/{row.attrib[value]}"


def spelling_of_countries(places: Gazetteer) -> Iterator[Triple]:
    """The common standard that a country's variety of English, Spanish or Portuguese follows."""
    for row in supplemental().iterfind("parentLocales/parentLocale"):
        standard = f"locale/{row.attrib['parent'].replace('_', '-')}"
        for locale in row.attrib["locales"].split():
            spoken, _, code = locale.partition("_")
            if code in places and spoken in SPELLING_STANDARDS:
                yield places.country(code), "spelling_standard", standard


def languages_and_scripts() -> Iterator[Triple]:
    """Scripts in use and in secondary use, and the language that serves the speakers of another."""
    for row in supplemental().iterfind("languageData/language"):
        relation = "also_written_in" if "alt" in row.attrib else "written_in"
        for code in row.attrib.get("scripts", "").split():
            yield language(row.attrib["type"]), relation, script(code)
    served = set()
    for row in language_matching().iter("languageMatch"):
        desired, supported = row.attrib["desired"], row.attrib["supported"]
        plain = desired.isalpha() and supported.isalpha()  # not patterns such as $enUS or zh_Hant
        if plain and (supported, desired) not in served:  # Malay and Indonesian serve each other: stated once
            served.add((desired, supported))
            yield language(desired), "understood_through", language(supported)


def names_of_cities(places: Gazetteer) -> Iterator[Triple]:
    """The scripts in which GeoNames records a name of the city, out of those that its country writes."""
    local = scripts_of_countries()
    for city in places.cities:
        for code in scripts_of_names(city):
            if code in local[city.country]:
                yield places.city(city), "name_recorded_in", script(code)


def scripts_of_countries() -> dict[str, set[str]]:
    """ISO 15924 codes of the scripts of all languages that CLDR counts in a territory."""
    scripts: defaultdict[str, set[str]] = defaultdict(set)  # of a language
    for row in supplemental().iterfind("languageData/language"):
        for code in row.attrib.get("scripts", "").split():
            scripts[row.attrib["type"]] |= set(SINGLE_SCRIPTS.get(code, (code,)))
    return {
        territory.attrib["type"]: {
            code
            for entry in territory.iterfind("languagePopulation")
            for code in scripts[entry.attrib["type"].split("_")[0]]
        }
        for territory in supplemental().iterfind("territoryInfo/territory")
    }


def scripts_of_names(city: City) -> list[str]:
    """ISO 15924 codes of the scripts, other than Latin, of the city's recorded names."""
    messages = {message for name in city.other_names for message in name if ord(message) > 0x36F}
    words = {unicodedata.name(message, "").partition(" ")[0] for message in messages}
    return sorted(SCRIPTS[word] for word in words if word in SCRIPTS)
