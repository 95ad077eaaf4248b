"""A triple in two splits: an error, or left out of the later one with a warning."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedkge.errors import DataError, DataWarning
from fedkge.graphs.files import read_graph


def test_leaks_are_refused_or_left_out_of_the_later_split(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("a\tr\tb\nb\tr\tc\nc\tr\ta\n")
    (tmp_path / "valid.tsv").write_text("a\tr\tc\nb\tr\tc\n")
    (tmp_path / "test.tsv").write_text("a\tr\tb\na\tr\tc\nc\tr\tb\n")
    with pytest.raises(DataError, match="1 triple also in"):
        read_graph(tmp_path)
    with pytest.warns(DataWarning, match="left out of the later split") as warned:
        graph = read_graph(tmp_path, drop_leaks=True)
    assert len(warned) == 3  # train and valid, train and test, valid and test
    assert [len(graph.train), len(graph.valid), len(graph.test)] == [3, 1, 1]
    h, r, t = graph.test[0].tolist()
    assert (graph.entities[h], graph.relations[r], graph.entities[t]) == ("c", "r", "b")


def test_a_digest_tells_any_difference(tmp_path: Path) -> None:
    path = tmp_path / "train.tsv"
    path.write_text("a\tr\tb\nb\tr\tc\n")
    first = read_graph(path).digest()
    assert read_graph(path).digest() == first
    for other in ("b\tr\tc\na\tr\tb\n", "a\tr\tb\nb\tr\td\n", "a\tr\tb\n", "a\tr\tb\t1\nb\tr\tc\t0\n"):
        path.write_text(other)
        assert read_graph(path).digest() != first
