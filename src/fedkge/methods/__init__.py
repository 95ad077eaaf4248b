"""How sites cooperate: one paper, one file, both halves together."""

from fedkge.methods.base import METHODS, Dials, Kept, Member, Method, Second, View
from fedkge.methods.state import Hub, Pair, Shared, Site

__all__ = ["METHODS", "Dials", "Hub", "Kept", "Member", "Method", "Pair", "Second", "Shared", "Site", "View"]
