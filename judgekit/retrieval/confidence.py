"""What a search returns, in which order, and how likely each hit is to be relevant.

Hits are ordered by score and confidence, then by the category's priority, then by age; the noise is cut. A
score says how much of a text is about the query's words, and a confidence knows titles and neighbours: a page
whose title is the query may be a long one.

Near duplicates share one place, which the newest of them takes. Notes are written twice by agents, and copied
from store to store. Each copy would take the place of another memory, and be a rival of the others, so that
none of them would be sure enough.

A confidence answers two questions, each by a logistic regression, and is the product of both probabilities.
Their coefficients are data (`confidence` and `request` in retrieval/*.yaml), fitted by bench/confidence.py;
docs/decisions/confidence.md says on what, and what else was tried.

If something is asked for here, is this entry meant?

- `odds`: logarithm of the odds that this entry is meant and no other one, -12..12.
- `titled`: of the query's terms that any hit has in its title or tags, the share that this one has there,
  weighted by rarity, 0..1.
- `near`: the share of the query's successive words that stand together in it too, 0..1.
- `alone`: 1 over the number of hits, itself included, with as much evidence: of several that fit equally well
  not all are meant. A single word in common is no distinction: it counts as one hit more.
- `coverage`: the share of the query's terms that occur in it, weighted by rarity, 0..1.

Is something asked for here at all? People talk in prompts, too, and of many sentences one has words of some
entry by chance. What is searched for is a request, so this is asked about the parts of a prompt alone.

- `parts`: logarithm of the number of parts that the prompt has: each is one more chance to be wrong.
- `statements`: logarithm of the number of the prompt's sentences, if the part's one ends in a full stop:
  among others it's likelier talk than one that asks, or an item of a list.
- `matched`: how many of the part's terms its likeliest entry has, 5 at most, without the language's common
  words.
"""

from __future__ import annotations

import os
import time
from math import exp, log

from judgekit.text import encodable, visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from judgekit.retrieval.compiled import Profile
    from judgekit.retrieval.parts import Part
    from judgekit.retrieval.terms import Term

# Evidence (natural logarithm of a likelihood ratio) that differs by less is taken for equal.
SAME_EVIDENCE = 1.0
HEADED = 0.8  # what a heading in a text counts where its title counts 1
SURE = 2.0  # what a confidence counts for the order, where the best score counts 1
SEVERAL_TERMS = 2  # words in common
NEAR = 3  # words apart, at most, that still stand together
PAIRS = 6  # of a query that are asked for: a long prompt need not be repeated whole
MOST_MATCHED = 5  # terms: as good as more
ASKED = 0.8  # the probability from which a part of a prompt is clearly a request
ONE_WORD = 0.4  # of a part's words, by their rarity, that one word of a title counts at least
AHEAD = 1.25  # times the BM25 of any other hit that one has which stands out
LONG = 25  # words of a body, beyond which some of the query's occur in it by chance
NEAR_CHARS = 4_000  # characters of an entry in which `near` is looked for
MAX_ODDS = 12.0  # of `odds`, either way
UNKNOWN = 0.5  # `titled` where no title has any word of the query
COMMAND = "command"  # the kind of what a program of the user's found
UNRATED = "unrated"  # its label, where the program gave no confidence
# Hits of a prompt that are rated: on labelled prompts as good as five times as many.
PROMPT_POOL = 15
INJECTED_LABEL = "high"
# Of the different words of two texts, the share that both have if they say the same. Pages of real
# documentation that are about different things share up to .784 (how to install a program with two package
# managers); a note of twenty words in which two were replaced shares .82.
SAME_WORDS = 0.8
LEAST_KEPT = (
    0.6  # of the words of a text that is an older one with an addition, the share of the older one
)
_SAMPLED = 12  # words of a text, spread over it, by which most pairs are told apart
_MOST_MISSING = 4  # of these in the other text
OLD_DAYS = 90  # beyond which an entry says its age
_DAY = 86_400  # seconds
_MONTH = 365.25 / 12  # days
_MONTHS_SAID = 24  # from which an age is said in years
# 2 January 1980, in seconds: archives and builds that keep no times give files earlier ones.
_EARLIEST = 315_619_200
_DIGITS = 6  # of a score relative to the best: what is equal up to here is a tie


class FoundSection:
    """A section that was found: its number in its text, from 0, its headings, and the line where it begins.

    The line is 0 if lines of the text aren't lines of its file.
    """

    __slots__ = ("heading", "line", "number")

    def __init__(self, number: int, heading: str, line: int) -> None:
        self.number = number
        self.heading = heading
        self.line = line

    def shown(self) -> dict[str, Any]:
        """Return the values of a search result that name this section."""
        shown: dict[str, Any] = {"section": visible(self.heading)}
        if self.line:
            shown["line"] = self.line
        return shown


class Candidate:
    """A memory or document that may answer the query.

    `path` is as shown: relative to the project where it is inside. `file` is the absolute path, `place` the
    path relative to the real folder `root`. `bm25` is comparable within one store only (points, where the
    keyword scorer ranked); hits are ordered by `score`. `confidence` is the probability that it is relevant.
    A `damaged` file could not be read: it may be retired, so it is never more than mentioned. `updated` is in
    seconds since the epoch. `matched` are the numbers of the query's terms in it, `titled` those in its title
    or tags. `text` holds the stems of its title and body, and `length` is how many it has in all; `part` of
    the prompt found it. Of a long text `sections` are those that answer best, two at most, and the terms
    `headed` are in the headings of the first. `passage` holds the stems of that, `passage_length` of them, or
    of a short text all. What a pin named keeps the values that it begins with. What a program of the user's
    found is of kind `COMMAND`: `root` is the program, `text` the text, and unless it gave a confidence it is
    not `rated`.
    A `status` (superseded, deprecated, rejected) says that it is not in force: it comes last, marked. `alike`
    are older hits that say nearly the same, and share its place. One that `stands_out` among the hits of a
    prompt's part is worth mentioning whatever its confidence.
    """

    def __init__(
        self,
        id: str,  # noqa: A002 - the published name of the attribute
        title: str,
        category: str,
        tags: tuple[str, ...],
        updated: float,
        root: str,
        place: str,
        kind: str,
    ) -> None:
        self.id = id
        self.title = title
        self.category = category
        self.tags = tags
        self.updated = updated
        self.root = root
        self.place = place
        self.kind = kind
        self.path = self.file = os.path.join(root, *place.split("/"))
        self.snippet = ""
        self.damaged = False
        self.score = self.bm25 = 0.0
        self.confidence = 1.0
        self.confidence_label = "high"
        self.worth_mentioning = True
        self.stands_out = False
        self.features: dict[str, float] = {}
        self.matched: set[int] = set()
        self.titled: set[int] = set()
        self.headed: set[int] = set()
        self.text = ""
        self.length = 0
        self.part: Part | None = None
        self.rated = True
        self.status = ""
        self.alike: tuple[Candidate, ...] = ()
        self.wording: Wording | None = None  # of the text, for hits of several parts
        self.sections: list[FoundSection] = []
        self.passage = ""
        self.passage_length = 0

    def name_section(self) -> str:
        """Return the headings of the best section; "" if there's none, or if it's the title."""
        if not self.sections or self.sections[0].heading == self.title:
            return ""
        return self.sections[0].heading

    def add_line(self, path: str) -> str:
        """Return a path of this hit with the line of the best section behind it, if that's known."""
        if self.sections and self.sections[0].line:
            return f"{path}:{self.sections[0].line}"
        return path

    def shown(self) -> dict[str, Any]:
        """Return what a search shows of it, in printable texts; null for a number that there is not."""
        is_from_program = self.kind == COMMAND
        shown: dict[str, Any] = {
            "id": encodable(self.id),
            "path": encodable(self.path),
            "title": visible(self.title),
            "category": visible(self.category),
            "tags": [visible(tag) for tag in self.tags],
            "snippet": visible(self.snippet),
            "bm25": None if is_from_program else self.bm25,
            "confidence": self.confidence if self.rated else None,
            "confidence_label": self.confidence_label,
            "kept_by": COMMAND if is_from_program else "bm25",
        }
        if self.status:
            shown["status"] = self.status
        age = self.describe_age()
        if age:
            shown["age"] = age
        if self.alike:
            shown["alike"] = len(self.alike)
            shown["alike_paths"] = [encodable(hit.path) for hit in self.alike]
        if self.sections:
            best, *others = [section.shown() for section in self.sections]
            shown |= best
            if others:
                shown["also"] = others
        return shown

    def describe_age(self, now: float | None = None) -> str:
        """Return its age ("7 months", "2 years"); "" if it's of the last 90 days, or of an unknown time."""
        if now is None:
            now = time.time()
        days = (now - self.updated) / _DAY
        if days <= OLD_DAYS or self.updated < _EARLIEST:
            return ""
        months = round(days / _MONTH)
        if months < _MONTHS_SAID:
            return f"{months} months"
        return f"{months // 12} years"


class RankedCandidates:
    """The answer to a query, best first, and `notes`, one line each for stderr.

    `pinned` were asked for by name and are no `candidates`, `repeated` the conversation has already.
    `searched_roots` are the real folders of stores; `empty_roots` have no file that is read: whoever searches
    is told, and the hook is silent about it. `pin_by_note` has the pins without a memory, by their notes.
    A judge saw `judged` of the candidates and let `dropped` of them go.
    `fallback` says why the index was not used, `degraded` why a program of the user's was asked in vain.
    """

    def __init__(
        self, candidates: list[Candidate], notes: list[str], fallback: str | None = None
    ) -> None:
        self.candidates = candidates
        self.notes = notes
        self.fallback = fallback
        self.pinned: list[Candidate] = []
        self.degraded: str | None = None
        self.repeated: list[Candidate] = []
        self.empty_roots: list[str] = []
        self.searched_roots: list[str] = []
        self.pin_by_note: dict[str, str] = {}
        self.judged = 0
        self.dropped = 0


def in_force(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the candidates without what is superseded, deprecated or rejected: an agent would act on it."""
    return [candidate for candidate in candidates if not candidate.status]


def choose_shown(
    candidates: Iterable[Candidate],
    *,
    max_inject: int,
    inject: str = "tiered",
    hint_on_zero: bool = False,
) -> tuple[list[Candidate], list[Candidate]]:
    """Return which candidates a prompt gets in full, and which are only mentioned, where no model decides.

    `inject` is "tiered" (by confidence) or "top_k" (the first ones). With `hint_on_zero` something is
    mentioned even where nothing is worth it.
    """
    usable = in_force(candidates)
    if inject == "top_k":
        sound = [candidate for candidate in usable if not candidate.damaged]
        return sound[:max_inject], []
    sure = [candidate for candidate in usable if candidate.confidence_label == INJECTED_LABEL]
    injected = sure[:max_inject]
    rest = [candidate for candidate in usable if candidate not in injected]
    mentioned = [candidate for candidate in rest if candidate.worth_mentioning]
    if hint_on_zero and not injected and not mentioned:
        return [], rest
    return injected, mentioned


def rarity(matches: int, documents: int, background: Mapping[str, float], *, common: bool) -> float:
    """Return the inverse document frequency of a term, smoothed by an imagined collection."""
    imagined = background["documents"]
    having = matches + imagined * background["common" if common else "plain"]
    return log(1 + (documents + imagined - having + 0.5) / (having + 0.5))


def measure_nearness(words: Sequence[str], tokens: Iterable[str]) -> float:
    """Return the share of successive `words` of a query that stand at most `NEAR` apart in `tokens`, 0..1."""
    if len(words) <= 1:
        return 0.0
    numbers = {word: number for number, word in enumerate(words)}
    # Where each word was last. One more, which is nowhere, follows the last and, as -1, precedes the first.
    last_places = [-NEAR - 1] * (len(words) + 1)
    pairs_together = set()
    for place, token in enumerate(tokens):
        number = numbers.get(token)
        if number is None:
            continue
        last_places[number] = place
        if place - last_places[number - 1] <= NEAR:
            pairs_together.add(number - 1)
        if place - last_places[number + 1] <= NEAR:
            pairs_together.add(number)
    pairs = min(len(words) - 1, PAIRS)
    return min(len(pairs_together) / pairs, 1.0)


def order(
    hits: Sequence[Candidate],
    terms: Sequence[Term],
    size: int,
    profile: Profile,
    prompt_part: Part | None = None,
) -> list[Candidate]:
    """Return the hits of a store of `size` documents, rated, best first, without those that are noise.

    What was found by a part of a prompt may have been found in mere talk; without `prompt_part` the terms are
    those of a search, and something is asked for.
    """
    floor = profile.noise_floor * max([hit.bm25 for hit in hits], default=0.0)
    kept = fold_alike([hit for hit in hits if hit.bm25 >= floor])
    rate(kept, terms, size, profile)
    best = max([hit.score for hit in kept], default=0.0) or 1
    recent = time.time() - profile.recent_days * 86_400
    priorities = {name: place for place, name in enumerate(profile.categories)}

    def rank(hit: Candidate) -> tuple[float, ...]:
        is_out_of_force = hit.status != ""
        score = round(hit.score / best + SURE * hit.confidence, _DIGITS)
        priority = priorities.get(hit.category, len(priorities))
        is_old = hit.updated < recent
        return is_out_of_force, -score, priority, is_old, -hit.updated

    kept.sort(key=rank)
    _settle(kept, prompt_part, profile)
    return kept


def rate(
    hits: Sequence[Candidate], terms: Sequence[Term], documents: int, profile: Profile
) -> None:
    """Give each of the hits of one query its features and its confidence.

    The evidence for an entry is the logarithm of a likelihood ratio: each of its terms counts its rarity
    (Robertson and Spärck Jones, "Relevance weighting of search terms", 1976), one in the body alone
    `body_share` of it, less in a long body. The odds follow by Bayes' rule: every entry of the store may be
    meant, and any of an imagined collection. Rivals have a term in common; all others have no evidence.
    """
    rarities = [term.rarity for term in terms]
    first_phrases = [term.phrases[0] for term in terms]
    words = list(dict.fromkeys(phrase for phrase in first_phrases if " " not in phrase))
    titled_anywhere = set().union(*[hit.titled | hit.headed for hit in hits])
    most_titled = _add_rarities(rarities, titled_anywhere)
    evidences = [_weigh_evidence(hit, rarities, profile) for hit in hits]
    rival_evidences = _find_rivals(hits, evidences)
    for hit, evidence in zip(hits, evidences, strict=True):
        rivals = rival_evidences[frozenset(hit.matched)]  # its own evidence is one of them
        if hit.status:
            rivals = [*rivals, evidence]
        silent = max(documents - len(rivals), 0) + profile.background["documents"]
        others = max(sum(map(exp, rivals)) - exp(evidence), 0.0)
        odds = evidence - log(others + silent)
        has_several_terms = len(hit.matched) >= SEVERAL_TERMS
        as_good = sum([other > evidence - SAME_EVIDENCE for other in rivals])
        if not has_several_terms:
            as_good += 1
        features = {
            "odds": min(max(odds, -MAX_ODDS), MAX_ODDS),
            "titled": UNKNOWN,
            "near": 0.0,
            "alone": 1 / as_good,
        }
        if most_titled:
            features["titled"] = _weigh_titles(hit, rarities) / most_titled
        if has_several_terms:
            text = hit.passage or hit.text
            features["near"] = measure_nearness(words, text[:NEAR_CHARS].split())
        features["coverage"] = _add_rarities(rarities, hit.matched) / (sum(rarities) or 1)
        hit.features = features
        _set_confidence(hit, combine(profile.confidence, features), profile)


def estimate_request(hits: Sequence[Candidate], part: Part, profile: Profile) -> float:
    """Return how likely something is asked for in the part of a prompt that found these rated hits, 0..1."""
    likeliest = max(hits, key=lambda hit: hit.confidence)
    return combine(profile.request, describe_request(likeliest, part))


def describe_request(likeliest: Candidate, part: Part) -> dict[str, float]:
    """Return the features that tell a request from talk, by the likeliest hit of a prompt's part."""
    return {
        "parts": log(part.count),
        "statements": log(part.sentences) if part.is_statement else 0.0,
        "matched": float(min(_count_uncommon(likeliest, part), MOST_MATCHED)),
    }


def _count_uncommon(hit: Candidate, part: Part) -> int:
    return sum([not part.terms[place].common for place in hit.matched])


def combine(coefficients: Mapping[str, float], features: Mapping[str, float]) -> float:
    """Return the probability that a logistic regression gives for these features."""
    logit = coefficients["intercept"]
    for name, value in features.items():
        logit += coefficients[name] * value
    return 1 / (1 + exp(-logit))


def _settle(ranked: Sequence[Candidate], prompt_part: Part | None, profile: Profile) -> None:
    """Multiply confidences by how likely something is asked for, and let none contradict the order.

    A first hit that stands out is mentioned at least.
    """
    request = 1.0
    if prompt_part is not None and ranked:
        request = estimate_request(ranked, prompt_part, profile)
    in_order = in_force(ranked)  # what isn't in force stands last whatever its confidence
    for hit, confidence in zip(in_order, level([hit.confidence for hit in in_order]), strict=True):
        hit.confidence = confidence
    for hit in ranked:
        if prompt_part is not None:
            hit.features["request"] = request
        _set_confidence(hit, hit.confidence * request, profile)
    if prompt_part is None or not ranked or request < ASKED:
        return
    if _stands_out(ranked, prompt_part):
        ranked[0].stands_out = True
        ranked[0].worth_mentioning = True


def level(confidences: Iterable[float]) -> list[float]:
    """Return confidences that never rise: neighbours in the wrong order get their mean.

    What else the order goes by, BM25 for one, is evidence, too, so the truth is between both (isotonic
    regression by pooling adjacent violators; Ayer and others, 1955).
    """
    pools: list[tuple[float, int]] = []  # the sum of neighbours, and how many they are
    for confidence in confidences:
        total = confidence
        count = 1
        while pools and pools[-1][0] / pools[-1][1] < total / count:
            total_before, count_before = pools.pop()
            total += total_before
            count += count_before
        pools.append((total, count))
    levelled = []
    for total, count in pools:
        levelled += [total / count] * count
    return levelled


def _stands_out(ranked: Sequence[Candidate], part: Part) -> bool:
    """Whether the first hit of a part is far ahead of all others, by two words or by the one that matters."""
    first = ranked[0]
    if first.status:
        return False
    if _count_uncommon(first, part) < SEVERAL_TERMS:
        is_titled = any(not part.terms[place].common for place in first.titled)
        if not is_titled or first.features["coverage"] < ONE_WORD:
            return False
    return all(first.bm25 >= AHEAD * hit.bm25 for hit in ranked[1:])


def _add_rarities(rarities: Sequence[float], numbers: Iterable[int]) -> float:
    return sum([rarities[number] for number in numbers])


def _weigh_titles(hit: Candidate, rarities: Sequence[float]) -> float:
    """Return the rarities of the terms in an entry's titles, added up; one in a heading alone counts less."""
    in_headings = _add_rarities(rarities, hit.headed - hit.titled)
    return _add_rarities(rarities, hit.titled) + HEADED * in_headings


def _weigh_evidence(hit: Candidate, rarities: Sequence[float], profile: Profile) -> float:
    """Return the rarities of an entry's terms, added up; one in the body alone counts less."""
    length = hit.passage_length or hit.length
    chance = log(length / LONG) if length > LONG else 0.0
    body_terms = hit.matched - hit.titled - hit.headed
    in_body = [max(rarities[number] - chance, 0.0) for number in body_terms]
    return _weigh_titles(hit, rarities) + profile.confidence["body_share"] * sum(in_body)


def _find_rivals(
    hits: Sequence[Candidate], evidences: Sequence[float]
) -> dict[frozenset[int], list[float]]:
    """Map each set of matched terms to the evidence of every hit in force that has one of them.

    What was superseded is not meant, so it is no rival of what replaced it.
    """
    evidences_by_terms: dict[frozenset[int], list[float]] = {}
    for hit, evidence in zip(hits, evidences, strict=True):
        of_terms = evidences_by_terms.setdefault(frozenset(hit.matched), [])
        if not hit.status:
            of_terms.append(evidence)
    rivals: dict[frozenset[int], list[float]] = {}
    for matched in evidences_by_terms:
        rivals[matched] = []
        for other, other_evidences in evidences_by_terms.items():
            if not matched.isdisjoint(other):
                rivals[matched] += other_evidences
    return rivals


def _set_confidence(hit: Candidate, confidence: float, profile: Profile) -> None:
    """Give a hit its confidence, and the label of that; one that can't be read is never sure."""
    hit.confidence = confidence
    if hit.damaged:
        hit.confidence = min(hit.confidence, profile.labels["medium"])
    hit.confidence_label = label_of(hit.confidence, profile.labels)
    if hit.damaged and hit.confidence_label == "high":  # where both labels begin at the same value
        hit.confidence_label = "medium"
    hit.worth_mentioning = hit.confidence >= profile.labels["mention"]


def label_of(confidence: float, labels: Mapping[str, float]) -> str:
    """Return the label of a confidence, by the values from which the labels begin."""
    if confidence >= labels["high"]:
        return "high"
    return "medium" if confidence >= labels["medium"] else "low"


def fold_alike(hits: Sequence[Candidate]) -> list[Candidate]:
    """Leave out each hit that says nearly the same as a newer one, and note it in the newer one's `alike`.

    A hit with a term of the query that the newer one lacks stays, since the query tells them apart. The order
    stays, too.
    """
    leaders: list[tuple[Candidate, set[str]]] = []  # with the terms of the query that each has
    folded: set[int] = set()
    for hit in sorted(hits, key=lambda hit: -hit.updated):
        if hit.part is None or hit.damaged:  # its text isn't known
            continue
        terms = {hit.part.terms[place].text for place in hit.matched}
        for newer, newer_terms in leaders:
            if newer.status != hit.status or not terms <= newer_terms:
                continue
            if _says_the_same(newer, hit, same_terms=terms == newer_terms):
                _add_to(newer, hit)
                folded.add(id(hit))
                break
        else:
            leaders.append((hit, terms))
    return [hit for hit in hits if id(hit) not in folded]


def unfold(hits: Iterable[Candidate]) -> list[Candidate]:
    """Return the hits with those that were left out for each behind it."""
    unfolded = []
    for hit in hits:
        unfolded += [hit, *hit.alike]
    return unfolded


def _says_the_same(newer: Candidate, older: Candidate, *, same_terms: bool) -> bool:
    """Whether the newer text is the older one with an addition, or most words of both are in both.

    The latter counts only if both have the `same_terms` of the query: it may be about one of two servers.
    """
    shorter, longer = sorted((newer.length, older.length))
    if shorter < LEAST_KEPT * longer:
        return False
    for hit in (newer, older):
        if hit.wording is None:
            hit.wording = Wording(hit.text)
    assert newer.wording is not None and older.wording is not None  # noqa: S101, PT018 - just made
    overlap = newer.wording.compare(older.wording)
    return overlap.is_addition or (same_terms and overlap.is_alike)


class Overlap:
    """Whether two texts have most words in common, and whether the newer one has all of the older one."""

    __slots__ = ("is_addition", "is_alike")

    def __init__(self, *, is_alike: bool = False, is_addition: bool = False) -> None:
        self.is_alike = is_alike
        self.is_addition = is_addition


_NO_OVERLAP = Overlap()


class Wording:
    """The words of an entry's text; each pair is compared once, however many parts of a prompt find it."""

    __slots__ = ("_overlaps", "_words", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._words: set[str] | None = None
        self._overlaps: dict[int, Overlap] = {}  # by the `id` of an older wording

    @property
    def words(self) -> set[str]:
        if self._words is None:
            self._words = set(self.text.split())
        return self._words

    def compare(self, older: Wording) -> Overlap:
        """Compare this text with an older one, which lives as long as this one."""
        overlap = self._overlaps.get(id(older))
        if overlap is None:
            overlap = self._compare_words(older)
            self._overlaps[id(older)] = overlap
        return overlap

    def _compare_words(self, older: Wording) -> Overlap:
        if not _may_say_the_same(self.text, older.text):
            return _NO_OVERLAP
        in_both = len(self.words & older.words)
        in_either = len(self.words) + len(older.words) - in_both
        keeps_all = in_both == len(older.words)
        return Overlap(
            is_alike=in_both >= SAME_WORDS * in_either > 0,
            is_addition=keeps_all and in_both >= LEAST_KEPT * len(self.words) > 0,
        )


def _may_say_the_same(newer: str, older: str) -> bool:
    """Whether most of some words of the older text are in the newer one; to look for these is quick."""
    older_text = f" {older} "
    newer_text = f" {newer} "
    missing = 0
    for number in range(_SAMPLED):
        start = older_text.find(" ", number * len(older) // _SAMPLED)
        end = older_text.find(" ", start + 1)
        word = older_text[start : end + 1]
        if word not in newer_text and not word.isspace():
            missing += 1
            if missing > _MOST_MISSING:
                return False
    return True


def _add_to(leader: Candidate, hit: Candidate) -> None:
    """Note a hit as one that says the same; the leader is as sure as the surest of them."""
    leader.alike = (*leader.alike, hit, *hit.alike)
    if hit.confidence > leader.confidence:
        leader.confidence = hit.confidence
        leader.confidence_label = hit.confidence_label
        leader.worth_mentioning = hit.worth_mentioning
