"""Decides what a search returns, in which order, and how likely each hit is to be relevant.

Hits are ordered by score and confidence, then by the category's priority, then by age; the noise is cut. A
score measures how much of a text is about the query's words, while a confidence also knows titles and
neighbours: a page whose title is the query may be a long one.

Near duplicates share one place, which the newest of them takes. Agents write the same note twice, and copy
notes from store to store. Each copy would take the place of another memory and compete with the others, so
that none of them would be confident enough.

A confidence answers two questions, each by a logistic regression, and is the product of both probabilities.
Their coefficients are data (`confidence` and `request` in retrieval/*.yaml), fitted by bench/confidence.py;
docs/decisions/confidence.md says on what data, and lists alternatives that were tried.

If something is requested here, is this the entry?

- `odds`: logarithm of the odds that this entry is meant and no other one, -12..12.
- `titled`: of the query's terms that any hit has in its title or tags, the share that this one has there,
  weighted by rarity, 0..1.
- `near`: the share of the query's successive words that occur close together in it too, 0..1.
- `alone`: 1 over the number of hits, itself included, with as much evidence: if several fit equally well, not
  all are meant. A single shared word doesn't distinguish a hit: it counts as one hit more.
- `coverage`: the share of the query's terms that occur in it, weighted by rarity, 0..1.

Is something requested here at all? People also just talk in prompts, and among many sentences one will share
words with some entry by chance. A search always requests something, so this question is only for the parts of
a prompt.

- `parts`: logarithm of the number of the prompt's parts: each is one more chance to be wrong.
- `statements`: logarithm of the number of the prompt's sentences if the part's own ends in a full stop: among
  other sentences, it's likelier talk than one that asks, or than an item of a list.
- `matched`: how many of the part's terms its likeliest entry has, 5 at most, without the language's common
  words.
"""

from __future__ import annotations

import os
import time
from math import exp, log

from judgekit.text import remove_invisible, replace_surrogates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from judgekit.retrieval.compiled import Profile
    from judgekit.retrieval.parts import Part
    from judgekit.retrieval.terms import Term

# Evidence (natural logarithm of a likelihood ratio) that differs by less counts as equal.
SAME_EVIDENCE = 1.0
HEADING_WEIGHT = 0.8  # weight of a match in a text's heading; one in its title weighs 1
CONFIDENCE_WEIGHT = 2.0  # weight of a confidence in the order; the best score weighs 1
SEVERAL_TERMS = 2  # words in common
NEAR_WORDS = 3  # words apart, at most, to count as close together
MAX_PAIRS = 6  # pairs required at most: no text repeats a long prompt
MAX_MATCHED = 5  # terms: as good as more
CLEAR_REQUEST = 0.8  # the probability from which a part of a prompt is clearly a request
TITLE_WORD_SHARE = 0.4  # least share of a part's rarity for one title word to suffice
STANDS_OUT_FACTOR = 1.25  # how many times any other hit's BM25 a hit needs to stand out
LONG_BODY_WORDS = 25  # words of a body, beyond which it has some query words by chance
NEAR_CHARS = 4_000  # characters of an entry that are searched for `near`
MAX_ODDS = 12.0  # of `odds`, either way
UNKNOWN_TITLED = 0.5  # `titled` if no title has any word of the query
COMMAND_KIND = "command"  # the kind of candidates from a user's program
UNRATED = "unrated"  # their label, if the program gave no confidence
# Hits of a prompt that are rated: on labelled prompts as good as five times as many.
PROMPT_POOL = 15
INJECTED_LABEL = "high"
# Two texts say the same if they share this many of their distinct words. Pages of real documentation about
# different things share up to .784 (how to install a program with two package managers); a note of twenty
# words in which two were replaced shares .82.
SAME_WORDS_SHARE = 0.8
MIN_KEPT_SHARE = 0.6  # share of the older text in a newer one that only adds to it
_SAMPLE_WORDS = 12  # words sampled across a text, enough to distinguish most pairs
_MAX_MISSING_WORDS = 4  # sampled words that may be missing from the other text
OLD_DAYS = 90  # an older entry says its age
_DAY_SECONDS = 86_400  # seconds
_MONTH_DAYS = 365.25 / 12  # days
_MAX_MONTHS = 24  # from here on an age is given in years
# 2 January 1980, in seconds: archives and builds that don't keep times give files earlier ones.
_EARLIEST_TIME = 315_619_200
_SCORE_DIGITS = 6  # of a score relative to the best: equal up to here is a tie


class FoundSection:
    """A section that was found: its number in the text (from 0), its headings, and its first line.

    The line is 0 if the text's lines aren't the file's.
    """

    __slots__ = ("heading", "line_number", "number")

    def __init__(self, number: int, heading: str, line: int) -> None:
        self.number = number
        self.heading = heading
        self.line_number = line

    def build_result_fields(self) -> dict[str, Any]:
        """Return the fields for this section in a search result."""
        fields: dict[str, Any] = {"section": remove_invisible(self.heading)}
        if self.line_number:
            fields["line"] = self.line_number
        return fields


class Candidate:
    """A memory or document that may answer the query.

    `bm25` is comparable within one store only (the keyword scorer gives points instead); hits are ordered by
    `score`. `confidence` is the probability that the candidate is relevant. If the file `is_damaged`, it may
    be retired, so it's mentioned at most. A pinned candidate keeps the initial values. A candidate from a
    user's program is of kind `COMMAND_KIND`. One that's out of force comes last, marked. `near_duplicates`
    share its place. A hit that `stands_out` is worth mentioning whatever its confidence.
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
        # What the store says about it
        self.id = id
        self.title = title
        self.category = category
        self.tags = tags
        self.updated = updated  # in seconds since the epoch
        self.root = root  # a real folder, or the user's program
        self.relative_path = place  # the path relative to `root`, with `/`
        self.kind = kind  # the store's kind; `COMMAND_KIND` for the user's program
        self.file = os.path.join(root, *place.split("/"))
        self.path = self.file  # for display: relative to the project if it's inside
        self.is_damaged = False  # whether it couldn't be read
        self.status = ""  # superseded, deprecated or rejected; "" if it's in force
        self.text = ""  # the stems of its title and body; a program's text as it is
        self.stem_count = 0  # the number of stems

        # How well it answers the query
        self.bm25 = 0.0
        self.score = 0.0
        self.features: dict[str, float] = {}  # the confidence is computed from these
        self.confidence = 1.0
        self.confidence_label = "high"
        self.has_confidence = True  # a program may give none
        self.worth_mentioning = True
        self.stands_out = False  # whether it's far ahead of the part's other hits
        self.part: Part | None = None  # the part of the prompt whose search found it

        # The numbers of the part's terms that it has
        self.matched_terms: set[int] = set()  # anywhere
        self.title_terms: set[int] = set()  # in its title or tags
        self.heading_terms: set[int] = set()  # in its best section's headings

        # What is shown
        self.snippet = ""
        self.sections: list[FoundSection] = []  # the best ones of a long text, two at most
        self.passage = ""  # the stems of the best section, or of the whole text if it's short
        self.passage_stem_count = 0  # the number of stems in the best section

        # Older hits that say the same. They're shown with this one.
        self.near_duplicates: tuple[Candidate, ...] = ()
        # The text's words, for comparing it with others. All hits for an entry share them.
        self.wording: Wording | None = None

    def name_section(self) -> str:
        """Return the best section's headings; "" if there are none, or if they equal the title."""
        if not self.sections:
            return ""
        heading = self.sections[0].heading
        return "" if heading == self.title else heading

    def append_line_number(self, path: str) -> str:
        """Append the best section's line number, if known, to a path of this hit: `notes.md:12`."""
        if not self.sections:
            return path
        line = self.sections[0].line_number
        return f"{path}:{line}" if line else path

    def build_result_fields(self) -> dict[str, Any]:
        """Build this candidate's JSON for search results, with printable strings.

        Numbers that a program didn't give are null.
        """
        is_from_program = self.kind == COMMAND_KIND
        fields: dict[str, Any] = {
            "id": replace_surrogates(self.id),
            "path": replace_surrogates(self.path),
            "title": remove_invisible(self.title),
            "category": remove_invisible(self.category),
            "tags": [remove_invisible(tag) for tag in self.tags],
            "snippet": remove_invisible(self.snippet),
            "bm25": None if is_from_program else self.bm25,
            "confidence": self.confidence if self.has_confidence else None,
            "confidence_label": self.confidence_label,
            "kept_by": COMMAND_KIND if is_from_program else "bm25",
        }

        # The other fields are only present if they say something.
        if self.status:
            fields["status"] = self.status
        age = self.describe_age()
        if age:
            fields["age"] = age
        if self.near_duplicates:
            fields["alike"] = len(self.near_duplicates)
            fields["alike_paths"] = [replace_surrogates(hit.path) for hit in self.near_duplicates]

        if self.sections:
            best_section, *other_sections = [
                section.build_result_fields() for section in self.sections
            ]
            fields |= best_section
            if other_sections:
                fields["also"] = other_sections

        return fields

    def describe_age(self, now: float | None = None) -> str:
        """Describe the candidate's age, such as "7 months" or "2 years"; "" if it's recent or unknown."""
        if now is None:
            now = time.time()
        days = (now - self.updated) / _DAY_SECONDS
        is_unknown = self.updated < _EARLIEST_TIME
        if is_unknown or days <= OLD_DAYS:
            return ""
        months = round(days / _MONTH_DAYS)
        if months < _MAX_MONTHS:
            return f"{months} months"
        return f"{months // 12} years"


class RankedCandidates:
    """The answer to a query: the candidates, and what to say about the search.

    People who search are told about `empty_roots`, and the hook keeps quiet about them.
    """

    def __init__(
        self, candidates: list[Candidate], notes: list[str], fallback: str | None = None
    ) -> None:
        self.candidates = candidates  # best first
        self.notes = notes  # problems, one line each for stderr
        self.fallback_reason = fallback  # why the index wasn't used, if it wasn't
        self.degraded: str | None = None  # why the user's program failed, if it did
        self.pinned: list[Candidate] = []  # requested by name, and not among the candidates
        self.pin_by_note: dict[str, str] = {}  # pins that name no memory, each by the note about it
        self.repeated: list[Candidate] = []  # in the conversation already
        self.searched_roots: list[str] = []  # the real folders of stores
        self.empty_roots: list[str] = []  # searched roots without a readable file
        self.judged_count = 0  # how many candidates a judge saw
        self.dropped_count = 0  # how many of the judged ones it dropped


def select_in_force(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Drop superseded, deprecated and rejected candidates, since an agent would act on them."""
    return [candidate for candidate in candidates if not candidate.status]


def choose_shown(
    candidates: Iterable[Candidate],
    *,
    max_inject: int,
    inject: str = "tiered",
    hint_on_zero: bool = False,
) -> tuple[list[Candidate], list[Candidate]]:
    """Choose the candidates to inject in full and those to mention, without asking a model.

    `inject` is "tiered" (by confidence) or "top_k" (the first ones). If "tiered" would show nothing,
    `hint_on_zero` mentions all that are in force.
    """
    in_force = select_in_force(candidates)
    if inject == "top_k":
        readable = [candidate for candidate in in_force if not candidate.is_damaged]
        return readable[:max_inject], []

    # These are readable too, because a damaged file is never labelled "high".
    confident = [hit for hit in in_force if hit.confidence_label == INJECTED_LABEL]
    injected = confident[:max_inject]
    others = [candidate for candidate in in_force if candidate not in injected]
    mentioned = [candidate for candidate in others if candidate.worth_mentioning]
    shows_any = injected or mentioned
    if hint_on_zero and not shows_any:
        return [], others
    return injected, mentioned


def compute_rarity(
    matches: int, documents: int, background: Mapping[str, float], *, common: bool
) -> float:
    """Return a term's inverse document frequency, if `matches` of a store's `documents` contain it.

    `common` means that it's an everyday word of its language. `background` describes an imagined collection.
    """
    # In a small store, the number of matches is mostly due to chance. So add the imagined collection, in
    # which a typical fraction of the documents contains the term.
    imagined_documents = background["documents"]
    typical_share = background["common"] if common else background["plain"]
    all_documents = documents + imagined_documents
    all_matches = matches + imagined_documents * typical_share
    return log(1 + (all_documents - all_matches + 0.5) / (all_matches + 0.5))


def measure_nearness(words: Sequence[str], tokens: Iterable[str]) -> float:
    """Return the fraction of adjacent query `words` that are near each other in `tokens`, 0..1.

    In a long query, `MAX_PAIRS` near pairs are enough for 1.
    """
    if len(words) <= 1:  # a single word has no neighbour
        return 0.0

    number_by_word = {word: number for number, word in enumerate(words)}
    last_positions: dict[int, int] = {}  # in `tokens`, by the word's number
    near_pairs = set()  # the number of each pair's first word
    for position, token in enumerate(tokens):
        number = number_by_word.get(token)
        if number is None:
            continue
        last_positions[number] = position
        for neighbour in (number - 1, number + 1):
            last_position = last_positions.get(neighbour)
            is_near = last_position is not None and position - last_position <= NEAR_WORDS
            if is_near:
                near_pairs.add(min(number, neighbour))

    pair_count = min(len(words) - 1, MAX_PAIRS)
    return min(len(near_pairs) / pair_count, 1.0)


def rank_hits(
    hits: Sequence[Candidate],
    terms: Sequence[Term],
    size: int,
    profile: Profile,
    prompt_part: Part | None = None,
) -> list[Candidate]:
    """Rate a store's hits, and return them best first. Hits with a low score are dropped.

    `size` is the store's number of documents. A `prompt_part` may be mere talk, which lowers the confidences.
    """
    ranked = fold_alike(_drop_noise(hits, profile))
    rate_hits(ranked, terms, size, profile)

    best_score = max([hit.score for hit in ranked], default=0.0) or 1  # never divide by 0
    recent_since = time.time() - profile.recent_days * _DAY_SECONDS
    # The first category of the profile is the most important one.
    priorities = {name: number for number, name in enumerate(profile.categories)}
    ranked.sort(key=lambda hit: _make_sort_key(hit, best_score, priorities, recent_since))
    _finish_confidences(ranked, prompt_part, profile)
    return ranked


def _drop_noise(hits: Sequence[Candidate], profile: Profile) -> list[Candidate]:
    """Return the hits whose BM25 is at least the profile's fraction of the best one."""
    best_bm25 = max([hit.bm25 for hit in hits], default=0.0)
    floor = profile.noise_floor * best_bm25
    return [hit for hit in hits if hit.bm25 >= floor]


def _make_sort_key(
    hit: Candidate, best_score: float, priorities: Mapping[str, int], recent_since: float
) -> tuple[float, ...]:
    """Return a key that sorts hits in force first, then by score and confidence, category and age.

    In `priorities`, the most important category is 0.
    """
    is_out_of_force = hit.status != ""
    score = round(hit.score / best_score + CONFIDENCE_WEIGHT * hit.confidence, _SCORE_DIGITS)
    priority = priorities.get(hit.category, len(priorities))  # an unknown category comes last
    is_old = hit.updated < recent_since
    return is_out_of_force, -score, priority, is_old, -hit.updated


def rate_hits(
    hits: Sequence[Candidate], terms: Sequence[Term], documents: int, profile: Profile
) -> None:
    """Set the features and confidence of each hit for a query. The store has `documents` entries.

    A hit's evidence is the logarithm of a likelihood ratio: the sum of its terms' rarities (Robertson and
    Spärck Jones, "Relevance weighting of search terms", 1976). A term that's only in the body counts less.
    """
    rarities = [term.rarity for term in terms]
    words = _list_single_words(terms)
    query_weight = sum(rarities) or 1  # never divide by 0
    titled_anywhere = set().union(*[hit.title_terms | hit.heading_terms for hit in hits])
    titles_weight = _add_rarities(rarities, titled_anywhere)  # 0 if no hit has a term in a title
    evidences = [_weigh_evidence(hit, rarities, profile) for hit in hits]
    rivals_by_terms = _find_rivals(hits, evidences)

    for hit, evidence in zip(hits, evidences, strict=True):
        # The evidence of all hits in force that share a term with this one.
        rivals = rivals_by_terms[frozenset(hit.matched_terms)]
        if hit.status:
            # The functions below expect the hit itself among them, and it's not in force.
            rivals = [*rivals, evidence]

        hit.features = {
            "odds": _compute_odds(evidence, rivals, documents, profile),
            "titled": _rate_titles(hit, rarities, titles_weight),
            "near": _rate_nearness(hit, words),
            "alone": 1 / _count_as_good(hit, evidence, rivals),
            "coverage": _add_rarities(rarities, hit.matched_terms) / query_weight,
        }
        _set_confidence(hit, compute_probability(profile.confidence, hit.features), profile)


def _list_single_words(terms: Sequence[Term]) -> list[str]:
    """List the terms' first phrases that are one word, each once."""
    first_phrases = [term.phrases[0] for term in terms]
    single_words = [phrase for phrase in first_phrases if " " not in phrase]
    return list(dict.fromkeys(single_words))


def _compute_odds(
    evidence: float, rivals: Sequence[float], documents: int, profile: Profile
) -> float:
    """Return the logarithm of the odds that a hit is the entry meant, within `MAX_ODDS` either way.

    `rivals` is the evidence of each hit that shares a term with it, including its own.
    """
    # By Bayes' rule, the odds are its likelihood ratio divided by the sum of all other entries' ratios.
    rival_ratios = sum(map(exp, rivals))
    other_rival_ratios = max(rival_ratios - exp(evidence), 0.0)  # rounding may make it negative
    # Any other entry has no evidence, so its ratio is 1. Those of an imagined collection count as well.
    non_rivals = max(documents - len(rivals), 0) + profile.background["documents"]
    odds = evidence - log(other_rival_ratios + non_rivals)
    return min(max(odds, -MAX_ODDS), MAX_ODDS)


def _rate_titles(hit: Candidate, rarities: Sequence[float], titles_weight: float) -> float:
    """Return the hit's share of the terms in any hit's title, or `UNKNOWN_TITLED` if there are none."""
    if not titles_weight:
        return UNKNOWN_TITLED
    return _weigh_titles(hit, rarities) / titles_weight


def _rate_nearness(hit: Candidate, words: Sequence[str]) -> float:
    """Return the fraction of the query's adjacent words that are near each other in a hit, 0..1."""
    if len(hit.matched_terms) < SEVERAL_TERMS:
        return 0.0
    text = hit.passage or hit.text
    return measure_nearness(words, text[:NEAR_CHARS].split())


def _count_as_good(hit: Candidate, evidence: float, rivals: Sequence[float]) -> int:
    """Count the entries with about the same evidence as the hit, or more. It counts itself."""
    as_good_count = sum([rival > evidence - SAME_EVIDENCE for rival in rivals])
    if len(hit.matched_terms) < SEVERAL_TERMS:  # a single shared word doesn't distinguish a hit
        as_good_count += 1
    return as_good_count


def estimate_request(hits: Sequence[Candidate], part: Part, profile: Profile) -> float:
    """Estimate the probability that the part of a prompt that found these hits is a request."""
    likeliest = max(hits, key=lambda hit: hit.confidence)
    return compute_probability(profile.request, describe_request(likeliest, part))


def describe_request(likeliest: Candidate, part: Part) -> dict[str, float]:
    """Compute the features that show whether a prompt's part is a request, or mere talk.

    `likeliest` is the part's likeliest hit. The module's docstring explains the features.
    """
    # A statement among several sentences is probably talk. Alone, it may be a request: then this is 0.
    statements = log(part.sentence_count) if part.is_statement else 0.0
    matched = min(_count_uncommon(likeliest, part), MAX_MATCHED)
    return {
        "parts": log(part.part_count),  # of the whole prompt
        "statements": statements,
        "matched": float(matched),
    }


def _count_uncommon(hit: Candidate, part: Part) -> int:
    """Count a hit's matching terms, except the language's common words."""
    matched_terms = [part.terms[number] for number in hit.matched_terms]
    return sum([not term.is_common for term in matched_terms])


def compute_probability(coefficients: Mapping[str, float], features: Mapping[str, float]) -> float:
    """Return the probability from a logistic regression on these features."""
    logit = coefficients["intercept"]
    for name, value in features.items():
        logit += coefficients[name] * value
    return 1 / (1 + exp(-logit))


def _finish_confidences(
    ranked: Sequence[Candidate], prompt_part: Part | None, profile: Profile
) -> None:
    """Make confidences agree with the hits' order, and lower them if the prompt probably asks for nothing."""
    if not ranked:
        return

    request_probability = 1.0
    if prompt_part is not None:
        request_probability = estimate_request(ranked, prompt_part, profile)

    _smooth_in_force(ranked)
    for hit in ranked:
        _set_confidence(hit, hit.confidence * request_probability, profile)

    if prompt_part is not None:
        _finish_prompt(ranked, prompt_part, request_probability)


def _smooth_in_force(ranked: Sequence[Candidate]) -> None:
    """Make the confidences of the hits in force decrease. The other hits come last in any case."""
    hits_in_force = select_in_force(ranked)
    smoothed = smooth_confidences([hit.confidence for hit in hits_in_force])
    for hit, confidence in zip(hits_in_force, smoothed, strict=True):
        hit.confidence = confidence


def _finish_prompt(ranked: Sequence[Candidate], prompt_part: Part, request: float) -> None:
    """Note the probability of a request in each hit, and mention the first hit if it stands out."""
    for hit in ranked:
        hit.features["request"] = request

    is_clear_request = request >= CLEAR_REQUEST
    if is_clear_request and _stands_out(ranked, prompt_part):
        first_hit, *_ = ranked
        first_hit.stands_out = True
        first_hit.worth_mentioning = True


def smooth_confidences(confidences: Iterable[float]) -> list[float]:
    """Make sure that no confidence exceeds the one before. Neighbours in the wrong order get their mean.

    This is isotonic regression by pooling adjacent violators (Ayer and others, 1955).
    """
    pools: list[tuple[float, int]] = []  # the sum and number of pooled neighbours
    for confidence in confidences:
        pools.append((confidence, 1))
        while len(pools) > 1 and _end_in_wrong_order(pools):
            last_total, last_count = pools.pop()
            total, count = pools.pop()
            pools.append((total + last_total, count + last_count))

    smoothed = []
    for total, count in pools:
        smoothed += [total / count] * count
    return smoothed


def _end_in_wrong_order(pools: Sequence[tuple[float, int]]) -> bool:
    """Whether the last pool's mean is higher than that of the one before."""
    total, count = pools[-2]
    last_total, last_count = pools[-1]
    return last_total / last_count > total / count


def _stands_out(ranked: Sequence[Candidate], part: Part) -> bool:
    """Whether a part's first hit is far ahead of the others and fits the part well enough."""
    first_hit, *other_hits = ranked
    if first_hit.status:  # it's out of force
        return False

    # A single uncommon word isn't enough, unless it's the part's main word and in the hit's title.
    has_several_words = _count_uncommon(first_hit, part) >= SEVERAL_TERMS
    fits = has_several_words or _has_main_word_in_title(first_hit, part)
    if not fits:
        return False
    return all(first_hit.bm25 >= STANDS_OUT_FACTOR * hit.bm25 for hit in other_hits)


def _has_main_word_in_title(hit: Candidate, part: Part) -> bool:
    """Whether the title has an uncommon word of the part, and the hit has much of what the part says."""
    has_uncommon_title_word = any(not part.terms[number].is_common for number in hit.title_terms)
    return has_uncommon_title_word and hit.features["coverage"] >= TITLE_WORD_SHARE


def _add_rarities(rarities: Sequence[float], numbers: Iterable[int]) -> float:
    """Add up the rarities of the terms with these numbers."""
    return sum([rarities[number] for number in numbers])


def _weigh_titles(hit: Candidate, rarities: Sequence[float]) -> float:
    """Add up the rarities of an entry's title terms and, with less weight, its heading terms."""
    in_headings = _add_rarities(rarities, hit.heading_terms - hit.title_terms)
    return _add_rarities(rarities, hit.title_terms) + HEADING_WEIGHT * in_headings


def _weigh_evidence(hit: Candidate, rarities: Sequence[float], profile: Profile) -> float:
    """Add up the rarities of an entry's terms. Terms that are only in the body count less."""
    length = hit.passage_stem_count or hit.stem_count
    # A long body contains some words by chance.
    discount = log(length / LONG_BODY_WORDS) if length > LONG_BODY_WORDS else 0.0
    body_terms = hit.matched_terms - hit.title_terms - hit.heading_terms
    in_body = sum([max(rarities[number] - discount, 0.0) for number in body_terms])
    return _weigh_titles(hit, rarities) + profile.confidence["body_share"] * in_body


def _find_rivals(
    hits: Sequence[Candidate], evidences: Sequence[float]
) -> dict[frozenset[int], list[float]]:
    """Collect, for each set of matched terms, the evidence of all hits with any of these terms."""
    evidences_by_terms = _group_by_terms(hits, evidences)
    rivals: dict[frozenset[int], list[float]] = {}
    for matched in evidences_by_terms:
        rivals[matched] = []
        for other_matched, other_evidences in evidences_by_terms.items():
            shares_a_term = not matched.isdisjoint(other_matched)
            if shares_a_term:
                rivals[matched] += other_evidences
    return rivals


def _group_by_terms(
    hits: Sequence[Candidate], evidences: Sequence[float]
) -> dict[frozenset[int], list[float]]:
    """Group the evidence of the hits in force by their matched terms. The others get a group as well."""
    evidences_by_terms: dict[frozenset[int], list[float]] = {}
    for hit, evidence in zip(hits, evidences, strict=True):
        # A hit out of force needs a group too, even an empty one, because its rivals are looked up by it.
        group = evidences_by_terms.setdefault(frozenset(hit.matched_terms), [])
        is_in_force = not hit.status
        if is_in_force:  # a prompt doesn't mean a superseded entry
            group.append(evidence)
    return evidences_by_terms


def _set_confidence(hit: Candidate, confidence: float, profile: Profile) -> None:
    """Set a hit's confidence and label. A damaged file never gets the label "high"."""
    thresholds = profile.labels
    if hit.is_damaged:
        hit.confidence = min(confidence, thresholds["medium"])
    else:
        hit.confidence = confidence

    label = choose_label(hit.confidence, thresholds)
    # If a profile has the same threshold for "medium" and "high", the lowered confidence still reaches
    # "high".
    if hit.is_damaged and label == "high":
        label = "medium"
    hit.confidence_label = label
    hit.worth_mentioning = hit.confidence >= thresholds["mention"]


def choose_label(confidence: float, thresholds: Mapping[str, float]) -> str:
    """Label a confidence as "high", "medium" or "low". `thresholds` are the lower limits of the first two."""
    if confidence >= thresholds["high"]:
        return "high"
    if confidence >= thresholds["medium"]:
        return "medium"
    return "low"


def fold_alike(hits: Sequence[Candidate]) -> list[Candidate]:
    """Fold each near-duplicate of a newer hit into the newer hit's `alike`.

    A hit stays if it has a query term that the newer hit lacks, since the query may be about that difference.
    """
    kept_hits: list[tuple[Candidate, set[str]]] = []  # with their query terms
    folded_ids: set[int] = set()
    newest_first = sorted(hits, key=lambda hit: -hit.updated)
    for hit in newest_first:
        if hit.part is None or hit.is_damaged:  # the hit's text isn't known
            continue
        terms = {hit.part.terms[number].text for number in hit.matched_terms}
        newer = _find_newer(hit, terms, kept_hits)
        if newer is None:
            kept_hits.append((hit, terms))
        else:
            _fold_into(newer, hit)
            folded_ids.add(id(hit))

    return [hit for hit in hits if id(hit) not in folded_ids]


def _find_newer(
    hit: Candidate, terms: set[str], newer_hits: Iterable[tuple[Candidate, set[str]]]
) -> Candidate | None:
    """Find a newer hit that says the same and has all of the hit's query terms; None if there's none."""
    for newer, newer_terms in newer_hits:
        has_all_terms = terms.issubset(newer_terms)
        is_comparable = has_all_terms and newer.status == hit.status
        if is_comparable and _says_the_same(newer, hit, same_terms=terms == newer_terms):
            return newer
    return None


def unfold_alike(hits: Iterable[Candidate]) -> list[Candidate]:
    """Return the hits, each followed by the older hits that were folded into it."""
    unfolded = []
    for hit in hits:
        unfolded += [hit, *hit.near_duplicates]
    return unfolded


def _says_the_same(newer: Candidate, older: Candidate, *, same_terms: bool) -> bool:
    """Whether the newer text makes the older one superfluous.

    It does if it only adds to it. If both hits have the same query terms (`same_terms`), it's enough that
    they share most words.
    """
    shorter, longer = sorted((newer.stem_count, older.stem_count))
    if shorter < MIN_KEPT_SHARE * longer:  # their lengths already differ too much
        return False

    overlap = _get_wording(newer).compare(_get_wording(older))
    if overlap.is_addition:
        return True
    # With different query terms, similar texts may be about different things, such as two servers.
    return same_terms and overlap.is_alike


def _get_wording(hit: Candidate) -> Wording:
    """Return a hit's wording, which is made when it's first needed."""
    if hit.wording is None:
        hit.wording = Wording(hit.text)
    return hit.wording


class Overlap:
    """Whether two texts share most words, and whether the newer one contains all of the older one."""

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
        """The distinct words in the text, cached."""
        if self._words is None:
            self._words = set(self.text.split())
        return self._words

    def compare(self, older: Wording) -> Overlap:
        """Compare this text with an older one. The result is cached by `id`, so keep the older text alive."""
        overlap = self._overlaps.get(id(older))
        if overlap is None:
            overlap = self._compare_words(older)
            self._overlaps[id(older)] = overlap
        return overlap

    def _compare_words(self, older: Wording) -> Overlap:
        """Compare this text with an older one by their distinct words."""
        if not _may_say_the_same(self.text, older.text):
            return _NO_OVERLAP
        if not self.words:
            return _NO_OVERLAP

        in_both = len(self.words & older.words)
        in_either = len(self.words) + len(older.words) - in_both
        keeps_all_words = in_both == len(older.words)
        is_mostly_older = in_both >= MIN_KEPT_SHARE * len(self.words)
        return Overlap(
            is_alike=in_both >= SAME_WORDS_SHARE * in_either,
            is_addition=keeps_all_words and is_mostly_older,
        )


def _may_say_the_same(newer: str, older: str) -> bool:
    """Check with a sample of words whether the newer text can contain most of the older one."""
    # `_find_word` includes the spaces around a word, so that only whole words match.
    older_text = f" {older} "
    newer_text = f" {newer} "
    missing_count = 0
    for number in range(_SAMPLE_WORDS):
        position = number * len(older) // _SAMPLE_WORDS  # evenly distributed
        spaced_word = _find_word(older_text, position)
        # There's no word: an empty title or body leaves two spaces.
        is_blank = spaced_word.isspace()
        is_missing = spaced_word not in newer_text and not is_blank
        if is_missing:
            missing_count += 1
        if missing_count > _MAX_MISSING_WORDS:
            return False
    return True


def _find_word(text: str, position: int) -> str:
    """Return the next complete word from a position on, with the spaces around it."""
    start = text.find(" ", position)
    end = text.find(" ", start + 1)
    return text[start : end + 1]


def _fold_into(newer: Candidate, hit: Candidate) -> None:
    """Fold a hit into a newer duplicate, which gets the higher confidence of the two."""
    newer.near_duplicates = (*newer.near_duplicates, hit, *hit.near_duplicates)
    if hit.confidence > newer.confidence:
        newer.confidence = hit.confidence
        newer.confidence_label = hit.confidence_label
        newer.worth_mentioning = hit.worth_mentioning
