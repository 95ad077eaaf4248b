"""Names in their normal form, in which two spellings of one name are equal.

Every name is brought to Unicode's NFC. An IRI, which is a name with a scheme and `://`, is also normalised by
its syntax (RFC 3986, section 6.2.2; RFC 3987, section 5.3.2): scheme and host in lower case, `%7e` as `~` and
`%c3%a9` as `é`, other percent-encodings with capital digits, no dot segments. What depends on the scheme, as
default ports, stays as it is.
"""

from __future__ import annotations

import re
import unicodedata
from string import ascii_lowercase, ascii_uppercase

IRI = re.compile(
    r'([A-Za-z][A-Za-z0-9+.-]*)://([^/?#\x00-\x20<>"{}|\\^`]*)([^?#\x00-\x20<>"{}|\\^`]*)'
    r'((?:\?[^#\x00-\x20<>"{}|\\^`]*)?(?:#[^\x00-\x20<>"{}|\\^`]*)?)'
)  #: scheme, authority, path, query with fragment; names with other characters are none
ENCODED = re.compile("(?:%[0-9A-Fa-f]{2})+")
STRAY = re.compile("%(?![0-9A-Fa-f]{2})")  #: begins no encoding: a name that has one is no IRI
UNRESERVED = frozenset(f"{ascii_lowercase}{ascii_uppercase}0123456789-._~")
UCSCHAR = (
    (0xA0, 0xD7FF),
    (0xF900, 0xFDCF),
    (0xFDF0, 0xFFEF),
    *((plane << 16, (plane << 16) + 0xFFFD) for plane in range(1, 14)),
    (0xE1000, 0xEFFFD),
)  #: code points that an IRI need not encode
UNSEEN = ("Cc", "Cf", "Zs", "Zl", "Zp")  #: categories that stay encoded: readers would take them for nothing
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)


def normal(name: str) -> str:
    """The normal form of a name; of a normal form it is the same."""
    if name.isascii() and "://" not in name:
        return name
    name = unicodedata.normalize("NFC", name)
    found = IRI.fullmatch(name)
    return name if found is None or STRAY.search(name) else _normal_iri(*found.groups())


def _normal_iri(scheme: str, authority: str, path: str, rest: str) -> str:
    user, at, host = authority.rpartition("@")
    host = _decoded(host).translate(_LOWER)
    host = ENCODED.sub(lambda run: run[0].upper(), host)
    parts = (scheme.translate(_LOWER), "://", _decoded(user), at, host, _without_dots(_decoded(path)))
    return unicodedata.normalize("NFC", "".join(parts) + _decoded(rest))


def _decoded(text: str) -> str:
    """Percent-encodings of unreserved characters decoded, and others in capitals."""
    return ENCODED.sub(lambda run: _run(run[0], text[: run.start()][-1:]), text) if "%" in text else text


def _run(encoded: str, before: str) -> str:
    """A run of percent-encoded bytes; `before` is the character in front of it."""
    found: list[str] = []
    for char in bytes.fromhex(encoded.replace("%", "")).decode("utf-8", "surrogateescape"):
        if _is_unreserved(char) and not _would_melt(found[-1] if found else before, char):
            found.append(char)
        else:
            found.append("".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogateescape")))
    return "".join(found)


def _is_unreserved(char: str) -> bool:
    if char.isascii():
        return char in UNRESERVED
    allowed = any(first <= ord(char) <= last for first, last in UCSCHAR)
    return allowed and unicodedata.category(char) not in UNSEEN and unicodedata.normalize("NFC", char) == char


def _would_melt(before: str, char: str) -> bool:
    """Whether a combining character would become one with a delimiter, or with what stays encoded."""
    return bool(unicodedata.combining(char)) and not (len(before) == 1 and _is_unreserved(before))


def _without_dots(path: str) -> str:
    """RFC 3986, section 5.2.4, of a path that is empty or begins with a slash."""
    kept: list[str] = []
    segments = path.split("/")
    for segment in segments:
        if segment == ".." and len(kept) > 1:
            kept.pop()
        elif segment not in (".", ".."):
            kept.append(segment)
    if segments[-1] in (".", "..") and path:
        kept.append("")
    return "/".join(kept)
