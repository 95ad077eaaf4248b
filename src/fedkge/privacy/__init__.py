"""Privacy that adds up: what was released, what it costs, and what that means in words.

Nothing here trains or adds noise. A private trainer takes `Privacy` for its options, asks it for the noise,
and calls `Spending.spend` before every release; `costs` and `explained` read the ledger afterwards.
"""

from __future__ import annotations

from fedkge.privacy.account import Account
from fedkge.privacy.accountants import ACCOUNTANTS, Accountant
from fedkge.privacy.budget import Budget
from fedkge.privacy.costs import Cost, costs, over_epochs
from fedkge.privacy.ledger import Entry, Ledger, read_ledger, whole_ledger
from fedkge.privacy.options import Privacy
from fedkge.privacy.releases import MECHANISMS, SAMPLINGS, Release
from fedkge.privacy.spending import BudgetSpent, Spending
from fedkge.privacy.words import explained, headline, unprotected

__all__ = [
    "ACCOUNTANTS",
    "MECHANISMS",
    "SAMPLINGS",
    "Account",
    "Accountant",
    "Budget",
    "BudgetSpent",
    "Cost",
    "Entry",
    "Ledger",
    "Privacy",
    "Release",
    "Spending",
    "costs",
    "explained",
    "headline",
    "over_epochs",
    "read_ledger",
    "unprotected",
    "whole_ledger",
]
