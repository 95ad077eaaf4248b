"""What `language_data` carries of the Unicode CLDR: its supplemental data, languages and scripts by name."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from xml.etree import ElementTree

import langcodes


@cache
def supplemental() -> ElementTree.Element:
    """Territories with their languages, currencies and customs; languages with their scripts."""
    return _parsed("supplementalData.xml")


@cache
def language_matching() -> ElementTree.Element:
    """Which language serves the speakers of another when their own is not to be had."""
    return _parsed("languageInfo.xml")


@cache
def language(code: str) -> str:
    return f"language/{langcodes.Language.get(code).language_name('en')} ({code})"


@cache
def script(code: str) -> str:
    return f"script/{langcodes.Language.make(script=code).script_name('en')} ({code})"


def _parsed(name: str) -> ElementTree.Element:
    return ElementTree.fromstring((files("language_data") / "data" / name).read_text(encoding="utf-8"))
