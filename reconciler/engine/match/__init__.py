"""Matching of objects and requests, common to all policy languages."""

from reconciler.engine.match.kinds import KindSelector, parse_kind
from reconciler.engine.match.scopes import KindScope, Listing, MatchNeeds, has_lists
from reconciler.engine.match.selectors import LabelRequirement
from reconciler.engine.match.subject import Subject, UserInfo
from reconciler.engine.match.verdict import Decision, Verdict

__all__ = [
    "Decision",
    "KindScope",
    "KindSelector",
    "LabelRequirement",
    "Listing",
    "MatchNeeds",
    "Subject",
    "UserInfo",
    "Verdict",
    "has_lists",
    "parse_kind",
]
