"""Who plays a method: a hub and its sites. They receive messages and return messages, and do no I/O."""

from fedkge.parties.base import Participation, Party, Plan
from fedkge.parties.hub import HubParty
from fedkge.parties.site import SiteParty

__all__ = ["HubParty", "Participation", "Party", "Plan", "SiteParty"]
