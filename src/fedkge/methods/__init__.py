"""How sites cooperate: one paper, one file, both halves together."""

from fedkge.methods.base import METHODS, Companion, Hub, Member, Method, Pair, Shared, Site, View

__all__ = ["METHODS", "Companion", "Hub", "Member", "Method", "Pair", "Shared", "Site", "View"]
