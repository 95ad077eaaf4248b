"""How one speaks of what is protected: a confidential triple, or a person."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Unit:
    """The words for one kind of it."""

    one: str
    all: str  #: that a site has
    many: str  #: that a test tries
    neighbours: str  #: empty: as the ledger calls them
    protected: str  #: with the names of sites
    was: str  #: what is in one of two neighbours, with the name of a site
    there: str
    clipped: str
    drawn: str
    covered: str  #: of what a run writes
    others: str  #: what is not protected


TRIPLE = Unit(
    one="one confidential triple",
    all="confidential triples",
    many="triples",
    neighbours="",
    protected="each confidential training triple of {}, one by one: whether it was in the graph or not.",
    was="a triple of {} was in the graph",
    there="the triple was there",
    clipped="a triple's gradient is clipped together with its negatives, which do not depend on other "
    "confidential triples",
    drawn="triple by triple",
    covered="the embeddings of sites/ (entities.safetensors, relations.safetensors), as they are or exported "
    "as TSV or Parquet.",
    others="unrestricted triples; how many confidential ones there are; that an entity or relation exists; "
    "what follows from unrestricted triples. k triples about one person together have up to k·ε, and a "
    "larger δ. A triple that several sites hold is released by each: add their ε.",
)
PERSON = Unit(
    one="one person",
    all="persons",
    many="persons",
    neighbours="two graphs, equal except that one says nothing about one person",
    protected="each person of {}, one by one: everything that training triples say about that person.",
    was="anything about a person of {} was in the graph",
    there="something was said about the person",
    clipped="the sum of a person's gradients in a step is clipped, with their negatives, which do not depend "
    "on other persons; a triple about two persons is not trained on",
    drawn="person by person",
    covered="the embeddings of sites/ that are not persons' own, as `fedkge embeddings` exports them.",
    others="triples about nobody; how many persons there are; that another entity or a relation exists, also "
    "one that only triples of persons mention; what follows from triples about nobody. Rows and names of "
    "persons never leave the site, so entities.safetensors, entities.tsv and checkpoints/, which have them, "
    "must not either. A person that several sites know is released by each: add their ε.",
)
ROW = Unit(**{**TRIPLE.__dict__, "one": "one row", "all": "rows", "many": "rows"})
UNITS = {"triple": TRIPLE, "person": PERSON, "row": ROW}


def unit_of(name: str) -> Unit:
    """The words for a unit of the ledger."""
    return UNITS[name]
