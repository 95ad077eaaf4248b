"""Make up the tables of two hospitals (SQLite) and a pharmacy (CSV): nobody in them exists."""

from __future__ import annotations

import csv
import random
import sqlite3
import sys
from pathlib import Path

SCHEMA = """
CREATE TABLE hospital (name TEXT);
CREATE TABLE patient (id INTEGER PRIMARY KEY, ward TEXT, physician INTEGER, age INTEGER);
CREATE TABLE diagnosis (patient INTEGER REFERENCES patient, code TEXT);
CREATE TABLE examination (patient INTEGER REFERENCES patient, test TEXT);
CREATE TABLE prescription (patient INTEGER REFERENCES patient, drug TEXT);
"""
WARDS = ("cardiology", "oncology", "surgery", "neurology")
GROUPS = "ICGJ"  #: of diagnoses, one for each ward
CODES = [f"{group}{number:02}" for group in GROUPS for number in range(10, 22)]
DRUGS = [f"drug-{number:03}" for number in range(96)]


def main(folder: Path) -> None:
    """Write north.sqlite, south.sqlite and drugs.csv; the same every time."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(6)
    given = {code: chance.sample(DRUGS, 4) for code in CODES}  # which drugs a diagnosis calls for
    for name in ("north", "south"):
        _hospital(folder / f"{name}.sqlite", name, given, chance)
    with (folder / "drugs.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["drug", "class", "diagnosis", "maker"])
        for code, drugs in given.items():
            for drug in drugs:
                rows.writerow([drug, f"class-{int(drug[-3:]) % 12}", code, f"maker-{int(drug[-3:]) % 7}"])


def _hospital(path: Path, name: str, given: dict[str, list[str]], chance: random.Random) -> None:
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as tables:
        tables.executescript(SCHEMA)
        tables.execute("INSERT INTO hospital VALUES (?)", (name,))
        for patient in range(1, 241):
            ward = chance.randrange(len(WARDS))
            physician = 5 * ward + chance.randrange(5)
            tables.execute(
                "INSERT INTO patient VALUES (?, ?, ?, ?)",
                (patient, WARDS[ward], physician, chance.randrange(18, 95)),
            )
            codes = chance.sample([code for code in CODES if code[0] == GROUPS[ward]], 3)
            tables.executemany("INSERT INTO diagnosis VALUES (?, ?)", [(patient, code) for code in codes])
            tests = {f"{code[0]}-test-{int(code[1:]) % 5}" for code in codes}
            tables.executemany(
                "INSERT INTO examination VALUES (?, ?)", [(patient, test) for test in sorted(tests)]
            )
            drugs = {chance.choice(given[code]) for code in codes for _ in range(2)}
            tables.executemany(
                "INSERT INTO prescription VALUES (?, ?)", [(patient, drug) for drug in sorted(drugs)]
            )
    tables.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "tables")
