"""Constructions that the style guide bans, each with a replacement."""

from __future__ import annotations

import re
from typing import NamedTuple


class Rule(NamedTuple):
    """A banned construction.

    ``pattern`` is a case-insensitive expression. For speed, it is searched only in text that contains one of ``words``.
    ``advice`` is printed with each match.
    """

    name: str
    words: str
    pattern: str
    advice: str


RULES = (
    Rule("pronoun", "whoever whomever whom nobody somebody everybody anybody",
         r"\b(?:whoever|whomever|whom|nobody|somebody|everybody|anybody)\b",
         "name the replica, broker, client or caller"),
    Rule("he", "he him his himself",
         r"\b(?:he|him|his|himself)\b", "use 'it' or the noun"),
    Rule("who-clause", "who",
         r"(?:^|[.:;(]\s+|\band\s+)who\s+(?!\w+\s+you\b)[^?]*$", "use the noun as the subject"),
    Rule("tell", "told tell tells telling",
         r"\b(?:told|tells?|telling)\b", "notify, return, report, send, show, distinguish"),
    Rule("anew", "anew afresh",
         r"\b(?:anew|afresh)\b", "again"),
    Rule("no more", "more",
         r"(?<!there are )(?<!there is )\bno more\b(?! than)", "no longer"),
    Rule("go on", "on",
         r"\b(?:go|goes|going|went|gone) on\b", "continue, resume, happen"),
    Rule("so many", "so",
         r"\bso (?:many|much|long|often|few)\b", "name the number or the limit"),
    Rule("of which", "which where whose",
         r"\b(?:of|with) which\b|\bup to where\b|\bof whose\b", "split the sentence"),
    Rule("what-clause", "what",
         r"\bwhat (?:is|was|are|were|has|have|had|may|must|can|could|would|should|came|comes|becomes|"
         r"became|goes|they|it|its|we|others?|all|follows|belongs|remains|takes|makes|does|did)\b(?![^.]*\?)",
         "use a noun"),
    Rule("what-fragment", "what",
         r"(?:^|[.:;]\s+)what\s(?![^.]*\?)", "start with the noun or the verb"),
    Rule("is no", "no",
         r"(?<!there )\b(?:is|are|was|were|be|been) no\b(?! longer)", "is not a, does not exist"),
    Rule("stand", "stand stands stood standing",
         r"\b(?:stands?|stood|standing)\b(?! (?:for|alone)\b)", "is, contains, has the state"),
    Rule("lie", "lie lies lay lain lying",
         r"\b(?:lie|lies|lay|lain|lying)\b", "is at, is stored in"),
    Rule("is to be", "be have",
         r"\b(?:is|are|was|were|not) to (?:be|have)\b", "must, will"),
    Rule("archaic", "nought naught till upon hitherto thereof therein wherein whereupon thereupon none hereafter ever "
         "erstwhile betimes forthwith oftener seldom mend mends mended",
         r"\b(?:nought|naught|till|upon|hitherto|thereof|therein|wherein|whereupon|thereupon|none the less|"
         r"hereafter|as ever|erstwhile|betimes|forthwith|oftener|seldom|mends?|mended)\b", "use the modern word"),
    Rule("but for", "but other",
         r"\bbut for\b|\ball but\b|\bnone but\b|\bnothing but\b|\bno other than\b", "except, only"),
    Rule("also if", "also",
         r"\balso (?:if|when|while|after|before|without|during)\b", "even if, even after"),
    Rule("without end", "end limit again",
         r"\bwithout (?:end|limit)\b|\bagain and again\b", "indefinitely, without a limit, repeatedly"),
    Rule("had", "had",
         r"\b(?:to be had|can be had|may be had|is had|are had)\b", "is available"),
    Rule("metaphor",
         "room rooms diary diaries burial office papers neighbour neighbours tellings newcomers chronicle seat seats",
         r"\b(?:rooms?(?! for)|diary|diaries|burial|takes? office|in office|papers|neighbours?|tellings?|"
         r"newcomers|chronicle|seats?)\b", "use the technical term"),
    Rule("dispatch", "dispatch",
         r"\b(?:a|an|the|this|its|one|each|every|whose|full) dispatch\b",
         "the component is a dispatcher; the activity is dispatching"),
    Rule("fragment", "of that so up wherewith which as whose to by with in from for",
         r"^(?:Of|That|So|Up to where|Wherewith|Which|As|Whose|To which|By which|With which|In which|"
         r"From which|For which)\s", "write a sentence, or a noun phrase that is complete"),
)  # fmt: skip

NAMES = Rule(
    "name",
    "",
    r"(?:^|_)(?:told|tell|tells|telling|tellings|anew|whoever|nobody|somebody|everybody|known_again|no_more|goes_on|"
    r"so_many|burial|diary|neighbours?|newcomers|papers|stands|stood|standing|lies|nought|office|wherewith|"
    r"who|whom|whose|what_is|seldom|mend)(?:$|_)",
    "name it by what it is or does",
)
"""Parts of identifiers in snake case."""

FRAGMENT_RULES = frozenset({"fragment"})
"""Rules for the first line of a docstring only."""

PRODUCT_NAMES = Rule(
    "name",
    "",
    r"(?:^|_)(?:ask|asks|refusals?|refuses)(?:$|_)",
    "request, fetch, send; reject (only connections are refused)",
)
"""Parts of identifiers in snake case, in ``kreplica`` only."""

JAVASCRIPT_NAMES = Rule(
    "name",
    "",
    r"(?:^|_)(?:told|tells?|said|asked|asking|made|wanted|words|news|gone|meant|worded|hurry|whole)(?:$|_)",
    "name it by what it is or does",
)
"""Parts of identifiers in snake case, in scripts."""

COMPILED = tuple((rule, frozenset(rule.words.split()), re.compile(rule.pattern, re.IGNORECASE)) for rule in RULES)
NAME_PATTERN = re.compile(NAMES.pattern)
PRODUCT_NAME_PATTERN = re.compile(PRODUCT_NAMES.pattern)
JAVASCRIPT_NAME_PATTERN = re.compile(JAVASCRIPT_NAMES.pattern)
