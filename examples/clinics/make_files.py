"""Make up the files of three clinics, as CSV and as RDF: nobody in them exists."""

from __future__ import annotations

import csv
import random
import sys
from pathlib import Path

WARDS = ("cardiology", "oncology", "surgery", "neurology")
GROUPS = "ICGJ"  #: of diagnoses, one for each ward
CODES = [f"{group}{number:02}" for group in GROUPS for number in range(10, 22)]
DRUGS = [
    f"{first}{middle}{last}"
    for first in ("Abi", "Cor", "Den", "Fla", "Lor", "Mer")
    for middle in ("ba", "lo", "ni", "vo")
    for last in ("mab", "pril", "stat", "zole")
]
RDF = """@prefix {clinic}: <https://{clinic}.example/> .
@prefix drug: <https://{clinic}.example/drug/> .
@prefix code: <https://codes.example/> .

"""


def rows(clinic: str, patients: int) -> list[tuple[str, str, str]]:
    """What a clinic knows, as patient, what it is about, and the value. All clinics treat alike."""
    world, chance = random.Random("clinics"), random.Random(clinic)
    given = {code: world.sample(DRUGS, 4) for code in CODES}  # which drugs a diagnosis calls for
    kinds = {code: f"test-{code[0]}-{int(code[1:]) % 5}" for code in CODES}
    found = []
    for number in range(1, patients + 1):
        patient, ward = f"{clinic}-{number:03}", chance.randrange(len(WARDS))
        codes = chance.sample([code for code in CODES if code[0] == GROUPS[ward]], 3)
        found += [(patient, "ward", WARDS[ward]), (patient, "age", str(chance.randrange(18, 95)))]
        found += [(patient, "diagnosis", code) for code in codes]
        found += [(patient, "test", test) for test in sorted({kinds[code] for code in codes})]
        found += [(patient, "takes", drug) for drug in sorted({chance.choice(given[code]) for code in codes})]
    return found


def main(folder: Path, patients: int) -> None:
    """Write clinics/*.csv of all three and clinics-rdf/*.ttl of two; the same every time."""
    (folder / "clinics").mkdir(parents=True, exist_ok=True)
    (folder / "clinics-rdf").mkdir(exist_ok=True)
    for clinic in ("north", "south", "east"):
        with (folder / "clinics" / f"{clinic}.csv").open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file, delimiter=";")
            table.writerow(["patient", "what", "value"])
            table.writerows(rows(clinic, patients))
    for clinic in ("north", "south"):
        text = RDF.format(clinic=clinic) + "".join(_line(clinic, *row) for row in rows(clinic, patients))
        (folder / "clinics-rdf" / f"{clinic}.ttl").write_text(text, encoding="utf-8")


def _line(clinic: str, patient: str, what: str, value: str) -> str:
    """A row as Turtle. Codes are common; each clinic has its own names of drugs, the south small letters."""
    if what == "age":
        return f"{clinic}:{patient} {clinic}:age {value} .\n"
    kind = "drug" if what == "takes" else "code"
    name = value.lower() if kind == "drug" and clinic == "south" else value
    return f"{clinic}:{patient} code:{what} {kind}:{name} .\n"


if __name__ == "__main__":
    main(Path(), int(sys.argv[1]) if len(sys.argv) > 1 else 150)
