"""Normal forms of names: NFC, and the rules of IRIs."""

from __future__ import annotations

import unicodedata
from urllib.parse import urljoin, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkge.graphs.normal import normal

SAME = {
    "RFC 3986, 6.2.2": ("eXAMPLE://a/./b/../b/%63/%7bfoo%7d", "example://a/b/c/%7Bfoo%7D"),
    "RFC 3986, 6.2.2.1": ("HTTP://www.EXAMPLE.com/", "http://www.example.com/"),
    "RFC 3987, 5.3.2.3": ("http://example.org/~user", "http://example.org/%7euser"),
    "RFC 3987, 3.1": ("http://www.example.org/red%09ros%C3%A9#red", "http://www.example.org/red%09rosé#red"),
    "a tilde and capitals": ("http://a.b/%7eSMITH%2f", "http://a.b/~SMITH%2F"),
    "a user keeps case": ("http://User@HOST:80/", "http://User@host:80/"),
    "capitals in a host": ("http://H%c3%96ST/", "http://hÖst/"),
    "a query": ("http://a/?q=%41%26%3d", "http://a/?q=A%26%3D"),
    "a fragment": ("http://a/#%7E%23", "http://a/#~%23"),
    "decomposed": ("http://a/Cafe%CC%81", "http://a/Caf%C3%A9"),
    "a name that is none": ("Zu\u0308rich", "Z\u00fcrich"),
    "kelvin": ("300 \u212a", "300 K"),
    "Hangul": ("\u1112\u1161\u11ab", "\ud55c"),
}
APART = {
    "case of a path": ("http://a/B", "http://a/b"),
    "an encoded slash": ("http://a/b%2Fc", "http://a/b/c"),
    "a port": ("http://a:80/", "http://a/"),
    "no slash": ("http://a", "http://a/"),
    "case of names": ("Berlin", "berlin"),
    "compatible letters": ("ﬁsh", "fish"),
    "no scheme": ("a/../b", "b"),
    "a blank": ("http://a/b c/../d", "http://a/d"),
    "an encoded greek question mark": ("http://a/%CD%BE", "http://a/;"),
    "a delimiter that would melt": ("http://a/?x=%CC%B8", "http://a/?x\u2260"),
    "bytes that are no text": ("http://a/%C3", "http://a/%A9"),
}


@pytest.mark.parametrize(("one", "other"), SAME.values(), ids=SAME.keys())
def test_two_spellings_of_one_name_are_equal(one: str, other: str) -> None:
    assert one != other
    assert normal(one) == normal(other)


@pytest.mark.parametrize(("one", "other"), APART.values(), ids=APART.keys())
def test_other_names_stay_apart(one: str, other: str) -> None:
    assert normal(one) != normal(other)


def test_what_stays_encoded_has_capital_digits() -> None:
    assert normal("http://a/%c3%e2%82") == "http://a/%C3%E2%82"
    assert normal("http://a/%zz%e") == "http://a/%zz%e"


PIECES = st.lists(
    st.sampled_from(
        ["/", "..", ".", "a", "B", "%2e", "%2E%2e", "%41", "%c3%a9", "%cc%81", "é", "e", "\u0301", "?",
         "#", "%", "@", ":", "=", "%2A", "\u037e", "\u212a", "%E2%84%AA", "🙂", "%F0%9F%99%82",
         "\u0338", "%ff"]
    ),
    max_size=12,
).map("".join)  # fmt: skip


@given(PIECES, st.sampled_from(["", "http://H.x", "HTTP://", "urn:", "x:"]))
@settings(deadline=None, max_examples=500)
def test_a_normal_form_is_normal(text: str, before: str) -> None:
    found = normal(before + text)
    assert normal(found) == found
    assert unicodedata.is_normalized("NFC", found)
    assert normal(unicodedata.normalize("NFD", before + text)) == found


@given(st.lists(st.sampled_from(["a", "b", "..", ".", ""]), max_size=8).map(lambda of: "/" + "/".join(of)))
@settings(deadline=None, max_examples=300)
def test_dot_segments_go_as_urllib_removes_them(path: str) -> None:
    """`urljoin` of an absolute path removes dots by RFC 3986; empty segments it treats otherwise."""
    if "//" not in path:
        expected = urlsplit(urljoin("http://a/", path)).path
        assert normal(f"http://a{path}") == f"http://a{expected}"
