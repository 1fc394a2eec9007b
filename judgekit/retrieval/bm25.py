"""Asks an index: which entries match, with what score, and which terms occur in each.

FTS5 says which entries have which term, the rarer ones where others are very frequent. Those with the most of
them are then scored in full: BM25 for the terms of the query, then what the best have in common.
"""

from __future__ import annotations

from judgekit.retrieval import confidence, index_file
from judgekit.retrieval.confidence import Candidate
from judgekit.retrieval.terms import has_runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, TypeAlias

    from judgekit.retrieval.index_file import Index
    from judgekit.retrieval.parts import Part
    from judgekit.retrieval.terms import Term

    # By stem or row of stems: the numbers of the terms that it stands for, and what one occurrence counts.
    TermWeights: TypeAlias = dict[str, dict[int, float]]
    # By the number of a term: the numbers of the entries that have it, as texts.
    Postings: TypeAlias = dict[int, list[str]]

POOL = 80  # hits that are scored; a page of results is far smaller
# Occurrences that are asked for before more frequent terms are left to the scoring: 1 ms.
POSTINGS = 4_000
QUICK_POOL = 30
QUICK_POSTINGS = 2_500  # the same for a prompt, of which three hits are shown at most
LEAST = 5  # hits of each of several parts
PROMINENT = 2  # columns: title and tags
_ENOUGH = 2  # times the pool that the terms chosen must occur, whatever they cost
_MAX_BODY = 8_000  # characters of a body's stems that are read
_FEW = 16  # words that are counted one by one: the quicker way, for as few
_BEGINNING = 300  # words of a column where the subject of an entry shows
_MOST_WORDS = 300  # whose rarity is looked up

COLUMNS = "file.id, title, category, tags, path, updated, status"
_LEADING_COLUMNS = 7  # that stand before these in `_ENTRIES_IN`
_MATCHES = "SELECT group_concat(rowid) FROM text WHERE text MATCH ?"
_STARTING = "SELECT term, entries FROM term WHERE term >= ? AND term < ?"
_LANGUAGE = "language"
_ENGLISH = "'english'"  # what every entry counts as in an index of version 4
_ENTRIES_IN = f"""SELECT number, c0, c1, substr(c2, 1, {_MAX_BODY}), c3, problem IS NOT NULL, %s, {COLUMNS}
    FROM text_content JOIN file ON number = text_content.id WHERE number IN """  # noqa: S608 - our names
_MATCHES_IN = "SELECT rowid FROM text WHERE text MATCH ? AND rowid IN "


class _Entry:
    """An entry: the stems of its columns, how often it has which term, and what its length makes of that.

    Terms go by their numbers here, while the sets of a hit hold places among the terms of one part.
    """

    __slots__ = (
        "candidate",
        "columns",
        "damping",
        "frequencies",
        "has_stop_words",
        "indexed_terms",
        "title_terms",
    )

    def __init__(self, candidate: Candidate, columns: list[list[str]]) -> None:
        self.candidate = candidate
        self.columns = columns
        self.frequencies: dict[int, float] = {}
        self.indexed_terms: set[int] = set()  # what FTS5 says of an entry that is not read whole
        self.title_terms: set[int] = set()  # in its title or tags
        self.damping = 0.0
        self.has_stop_words = (
            True  # of a language that's known, so that what it has else is its subject
        )


def match(
    opened: Index, parts: Sequence[Part], pool: int = POOL, *, quick: bool = False
) -> list[Candidate]:
    """Return the best matches of any of `parts`, rated, best first.

    An entry has the confidence of the part that it answers best. A `quick` answer scores fewer hits, by the
    terms alone, and leaves frequent terms of a large store to the scoring: what is injected hardly changes.
    """
    terms_by_text: dict[str, Term] = {}
    for part in parts:
        terms_by_text.update({term.text: term for term in part.terms})
    terms = list(terms_by_text.values())
    term_weights: TermWeights = {}
    for number, term in enumerate(terms):
        _look_up(opened, number, term, term_weights)
    likeliest_by_part = _choose_entries(opened, parts, pool, quick=quick)
    numbers: set[int] = set()
    for _, likeliest in likeliest_by_part:
        numbers |= likeliest
    if not numbers:
        return []
    entries = _read_entries(opened, terms, sorted(numbers))
    _count(opened, entries, term_weights)
    rated: list[Candidate] = []
    for part, likeliest in likeliest_by_part:
        likely = [entry for number, entry in entries.items() if number in likeliest]
        rated += _rate(opened, part, likely, quick=quick)
    if len(parts) > 1:
        rated.sort(key=lambda hit: -hit.confidence)
    unique: dict[str, Candidate] = {}
    for hit in rated:
        unique.setdefault(hit.place, hit)
    return list(unique.values())


def _choose_entries(
    opened: Index, parts: Sequence[Part], pool: int, *, quick: bool
) -> list[tuple[Part, set[int]]]:
    """Return the parts with the rarest terms first, and for each the likeliest entries."""
    part_count = len(parts) or 1
    pool = max(pool // part_count, min(pool, LEAST))
    enough = _ENOUGH * pool
    most = POSTINGS
    if quick:
        pool = min(pool, QUICK_POOL)
        enough = 1
        most = QUICK_POSTINGS // part_count

    def count_rarest(part: Part) -> int:
        return min([term.count or opened.size for term in part.terms])

    postings: Postings = {}
    likeliest_by_part = []
    for part in sorted(parts, key=count_rarest):
        if quick and sum(map(len, postings.values())) > QUICK_POSTINGS:
            break  # what is left has frequent terms only
        worth = _weigh_entries(opened, part.terms, postings, enough, most)
        likeliest = sorted(worth, key=worth.__getitem__, reverse=True)[:pool]
        likeliest_by_part.append((part, set(map(int, likeliest))))
    return likeliest_by_part


def _rate(opened: Index, part: Part, entries: Sequence[_Entry], *, quick: bool) -> list[Candidate]:
    """Return entries as hits of one part, rated, best first."""
    saturation = opened.profile.bm25["k1"] + 1
    hits = [_score(entry, part, saturation) for entry in entries]
    best = max([hit.bm25 for hit in hits], default=0.0) or 1.0
    for hit in hits:
        hit.score = hit.bm25 / best
    if not quick:
        pairs = zip(hits, entries, strict=True)
        _add_likeness(opened, sorted(pairs, key=lambda pair: -pair[0].bm25))
    return confidence.order(hits, part.terms, opened.size, opened.profile)


def _score(entry: _Entry, part: Part, saturation: float) -> Candidate:
    """Return an entry as a hit of one part, with its BM25 and the places of the terms that it has."""
    # A copy of all values, since an entry may be a hit of several parts; `__init__` would set other ones.
    hit = object.__new__(Candidate)
    hit.__dict__.update(entry.candidate.__dict__)
    hit.part = part
    hit.matched = set()
    hit.titled = set()
    hit.bm25 = 0.0
    for place, term in enumerate(part.terms):
        frequency = entry.frequencies.get(term.number)
        if frequency is None:
            continue
        hit.matched.add(place)
        hit.bm25 += term.rarity * frequency * saturation / (frequency + entry.damping)
        if term.number in entry.title_terms:
            hit.titled.add(place)
    return hit


def make_candidate(opened: Index, row: Sequence[Any]) -> Candidate:
    """Return the candidate that a row of the index's table `file` stands for: the values of `COLUMNS`."""
    name, title, category, joined_tags, path, updated, status = row
    tags = tuple([tag for tag in joined_tags.split(",") if tag])
    hit = Candidate(name, title, category, tags, updated, opened.root, path, opened.profile.kind)
    hit.status = status or ""
    return hit


def _look_up(opened: Index, number: int, term: Term, term_weights: TermWeights) -> None:
    """Set a term's number, count (or an upper bound) and rarity; add what stands for it to `term_weights`."""
    count = 0
    for phrase in term.phrases:
        term_weights.setdefault(phrase, {})[number] = 1.0
        if phrase == term.prefix:
            last = phrase + "\U0010ffff"
            longer = dict(opened.connection.execute(_STARTING, (phrase, last)).fetchall())
            for stem in longer.keys() - {phrase}:
                term_weights.setdefault(stem, {}).setdefault(number, opened.profile.bm25["prefix"])
            count += sum(longer.values())
        else:
            stems = phrase.split()
            counts = index_file.frequencies(opened.connection, stems)
            count += min([counts.get(stem, 0) for stem in stems], default=0)
    term.number = number
    term.count = min(count, opened.size)
    term.rarity = confidence.rarity(
        term.count, opened.size, opened.profile.background, common=term.common
    )


def _weigh_entries(
    opened: Index, terms: Sequence[Term], postings: Postings, enough: int, most: int
) -> dict[str, float]:
    """Return the entries in which the rarest terms occur, with what these are worth.

    Terms are asked for until they have `enough` occurrences, and further ones while these stay below `most`.
    `postings` keeps what was asked for.
    """
    worth: dict[str, float] = {}
    occurrences = 0
    for term in sorted(terms, key=lambda term: term.count):
        if occurrences >= enough and occurrences + term.count > most:
            break
        if not term.count:
            continue
        occurrences += term.count
        if term.number not in postings:
            (numbers,) = opened.connection.execute(_MATCHES, (term.expression,)).fetchone()
            postings[term.number] = numbers.split(",") if numbers else []
        for entry in postings[term.number]:
            worth[entry] = worth.get(entry, 0.0) + term.rarity
    return worth


def _read_entries(opened: Index, terms: Sequence[Term], numbers: list[int]) -> dict[int, _Entry]:
    """Return entries by number; of a long one some stems are read, and for other terms FTS5 is asked."""
    execute = opened.connection.execute
    entries = {}
    cut = []
    query = _ENTRIES_IN % (_ENGLISH if opened.is_earlier else _LANGUAGE)
    for row in execute(f"{query}({','.join(map(str, numbers))})").fetchall():
        number, title, tags, body, parts, is_damaged, language = row[:_LEADING_COLUMNS]
        columns = (title, tags, body, parts)
        stems = [column.split() for column in columns]
        hit = make_candidate(opened, row[_LEADING_COLUMNS:])
        hit.damaged = bool(is_damaged)
        hit.text = " ".join(columns)
        hit.length = sum(map(len, stems))
        entries[number] = _Entry(hit, stems)
        entries[number].has_stop_words = language != ""
        is_cut = len(body) == _MAX_BODY
        if is_cut:
            (sizes,) = execute("SELECT sz FROM text_docsize WHERE id = ?", (number,)).fetchone()
            hit.length = _add_up(sizes)
            cut.append(number)
    if cut:
        query = f"{_MATCHES_IN}({','.join(map(str, cut))})"
        for term in terms:
            for (number,) in execute(query, (term.expression,)).fetchall():
                entries[number].indexed_terms.add(term.number)
    return entries


def _add_up(sizes: bytes) -> int:
    """Return the sum of numbers as FTS5 writes them: seven bits a byte, the first bits first."""
    total = 0
    value = 0
    for byte in sizes:
        value = value << 7 | byte & 0x7F
        is_last_of_number = byte < 0x80  # noqa: PLR2004 - the bit that says that there is more
        if is_last_of_number:
            total += value
            value = 0
    return total


def _count(opened: Index, entries: dict[int, _Entry], term_weights: TermWeights) -> None:
    """Note how often each entry has which term, where, and what its length makes of that."""
    profile = opened.profile
    bm25 = profile.bm25
    totals = index_file.frequencies(opened.connection, [index_file.TOTAL])
    average = totals.get(index_file.TOTAL, 0) / (opened.size or 1) + bm25["padding"] or 1
    spaced_phrases = {phrase: _spaced(phrase) for phrase in term_weights if " " in phrase}
    for entry in entries.values():
        frequencies = entry.frequencies
        columns = zip(entry.columns, profile.weights.values(), strict=True)
        for place, (words, column_weight) in enumerate(columns):
            counts = _count_words(words, term_weights.keys() & words)
            if spaced_phrases and words:
                spaced_words = _spaced(" ".join(words))
                for phrase, spaced_phrase in spaced_phrases.items():
                    if spaced_phrase in spaced_words:
                        counts[phrase] = spaced_words.count(spaced_phrase)
            for stem, count in counts.items():
                for number, weight in term_weights[stem].items():
                    worth = column_weight * weight * count
                    frequencies[number] = frequencies.get(number, 0.0) + worth
                    if place < PROMINENT:
                        entry.title_terms.add(number)
        for number in entry.indexed_terms:
            frequencies.setdefault(number, profile.weights["body"])
        length = (entry.candidate.length + bm25["padding"]) / average
        entry.damping = bm25["k1"] * (1 - bm25["b"] + bm25["b"] * length)


def _count_words(words: list[str], counted: set[str]) -> dict[str, int]:
    """Return how often each of the words `counted` is among `words`."""
    if len(counted) <= _FEW:
        return {word: words.count(word) for word in counted}
    counts = dict.fromkeys(counted, 0)
    for word in words:
        if word in counts:
            counts[word] += 1
    return counts


def _spaced(row: str) -> str:
    """Return a row of stems of which each keeps its own spaces, so that neighbours are both found."""
    return f" {row.replace(' ', '  ')} "


def _add_likeness(opened: Index, ranked: Sequence[tuple[Candidate, _Entry]]) -> None:
    """Let those move up that are like the best: that have their most typical words."""
    feedback = opened.profile.feedback
    best = ranked[: min(int(feedback["entries"]), len(ranked) // 2)]
    if not best or not best[0][0].bm25:
        return
    if not all(entry.has_stop_words for _, entry in best):
        return  # the words that they have in common are as likely to be `the` and `of`
    typical_words = _find_typical_words(opened, best)
    likenesses = []
    for _, entry in ranked:
        words = set().union(*entry.columns)
        weight = sum([weight for word, weight in typical_words.items() if word in words])
        likenesses.append(weight / (1 + entry.damping))
    most = max(likenesses)
    if not most:
        return
    share = feedback["share"]
    for (hit, entry), likeness in zip(ranked, likenesses, strict=True):
        if entry.has_stop_words:
            hit.score = (1 - share) * hit.score + share * likeness / most


def _find_typical_words(
    opened: Index, best: Sequence[tuple[Candidate, _Entry]]
) -> dict[str, float]:
    """Return the words that are frequent in the best hits and rare in the store, with their weights."""
    profile = opened.profile
    total = sum(hit.bm25 for hit, _ in best)
    shares: dict[str, float] = {}
    for hit, entry in best:
        share = hit.bm25 / (total * (hit.length + profile.bm25["padding"]))
        for column in entry.columns:
            for word in column[:_BEGINNING]:
                shares[word] = shares.get(word, 0.0) + share
    words = [word for word in shares if len(word) > 1 and not has_runs(word)]
    words = words[:_MOST_WORDS]
    rarities = {}
    for word, count in index_file.frequencies(opened.connection, words).items():
        if count > 1:
            rarities[word] = confidence.rarity(count, opened.size, profile.background, common=False)
    typical = sorted(
        ((shares[word] * rarity, word) for word, rarity in rarities.items()), reverse=True
    )
    most_typical = typical[: int(profile.feedback["words"])]
    return {word: worth * rarities[word] for worth, word in most_typical}
