"""Which objects and requests a rule is meant for: match and exclude, compiled once."""

from reconciler.engine.match.kinds import KindSelector, parse_kind
from reconciler.engine.match.matcher import (
    Decision,
    KindScope,
    Listing,
    Matcher,
    Verdict,
    compile_match,
)
from reconciler.engine.match.subject import Subject, UserInfo

__all__ = [
    "Decision",
    "KindScope",
    "KindSelector",
    "Listing",
    "Matcher",
    "Subject",
    "UserInfo",
    "Verdict",
    "compile_match",
    "parse_kind",
]
