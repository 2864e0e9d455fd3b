"""The rehearsal model's rule for "does this payload match the criterion?". Pure and stated in :data:`RULES`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

RULES = (
    'Terms of the criterion in double quotes ("…", “…” or «…») must all occur in the payload or its headers, as whole '
    "words, upper and lower case being equal.",
    "Of terms joined by or, oppure, o, one is enough.",
    "Terms introduced by not, non, without, senza, except or unless must not occur.",
    "Without a term in quotes, 60 % of the criterion's words of four letters and more must occur, leaving out common "
    "English and Italian words.",
)
ENOUGH = 0.6

_QUOTED = re.compile(r'"([^"\n]{1,200})"|“([^”\n]{1,200})”|«([^»\n]{1,200})»')
_CLAUSE = re.compile(r"[.,;:!?()\n]")
_WORD = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_OR = re.compile(r"[\s,]*(?:or|nor|oppure|o|né)[\s]*", re.IGNORECASE)
_NEGATING = "not non no never without senza except unless excluding tranne eccetto escluso esclusa esclusi escluse mai"
_COMMON = """\
about above after again also always another anything because been before being below between both cannot could does
doing down during each either else event events every from further have having here into its itself just kind like
matches match more most much must need only other ours over payload same should some someone something such than
that their them then there these they this those through under until upon very want what whatever when whenever
where whether which while whom whose will with within would your
agli alla alle allo altra altre altri altro anche ancora avere aveva chiunque come cosa cosi così dagli dalla dalle
dallo degli della delle dello dentro dopo dove essere evento eventi fino hanno loro mentre molto negli nella nelle
nello ogni oppure perche perché però poco prima quale quali quando quanto quella quelle quelli quello questa queste
questi questo riguarda senza siano sono sotto stata stati stato sugli sulla sulle sullo tanto tutta tutte tutti
tutto verso viene vengono
"""
_NEGATING_WORDS = frozenset(_NEGATING.split())
_COMMON_WORDS = frozenset(_COMMON.split())


@dataclass(frozen=True, slots=True)
class Group:
    """Quoted terms of which one has to occur, or, negated, none may."""

    terms: tuple[str, ...]
    negated: bool


def answer(criterion: str, data: str) -> str:
    """``yes (rehearsal: ...)`` or ``no (rehearsal: ...)``."""
    wanted = groups(criterion)
    if wanted:
        return _by_terms(wanted, data)
    words = significant_words(criterion)
    if not words:
        return "no (rehearsal: the criterion has no word to look for)"
    there = frozenset(_words(data))
    present = sum(word in there for word in words)
    verdict = "yes" if present >= ENOUGH * len(words) else "no"
    return f"{verdict} (rehearsal: {present} of {len(words)} words occur)"


def groups(criterion: str) -> tuple[Group, ...]:
    """The quoted terms of a criterion, those joined by "or" together."""
    found: list[Group] = []
    end = 0
    for quote in _QUOTED.finditer(criterion):
        term = (quote[1] or quote[2] or quote[3]).strip().casefold()
        between = criterion[end : quote.start()]
        if term:
            if found and _OR.fullmatch(between):
                found[-1] = Group((*found[-1].terms, term), found[-1].negated)
            else:
                found.append(Group((term,), _negates(_CLAUSE.split(between)[-1])))
        end = quote.end()
    return tuple(found)


def significant_words(criterion: str) -> tuple[str, ...]:
    """The words of four letters and more that are not common, each once, in order."""
    words = (word.casefold() for word in _WORD.findall(criterion))
    return tuple(dict.fromkeys(word for word in words if len(word) >= 4 and word not in _COMMON_WORDS))


def _negates(introduction: str) -> bool:
    words = [word.casefold().replace("’", "'") for word in re.findall(r"[^\W_]+(?:['’]t)?", introduction)]
    return any(word in _NEGATING_WORDS or word.endswith("n't") for word in words)


def _by_terms(wanted: tuple[Group, ...], data: str) -> str:
    text = data.casefold()
    for group in wanted:
        occurs = any(_occurs(term, text) for term in group.terms)
        if occurs == group.negated:
            return f"no (rehearsal: a quoted term is {'present that must not be' if occurs else 'missing'})"
    return "yes (rehearsal: all quoted terms are as they should be)"


def _occurs(term: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(term)}(?!\w)", text) is not None


def _words(data: str) -> Iterator[str]:
    for word in _WORD.findall(data):
        yield word.casefold()
        for part in _CAMEL.split(word):
            yield part.casefold()
