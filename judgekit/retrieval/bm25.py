"""Asks an index: which entries match, with what score, and which terms occur in each.

FTS5 says which entries have which term, the rarer ones where others are very frequent. Those with the most of
them are then scored in full: BM25 for the terms of the query, then what the best have in common.
"""

from __future__ import annotations

from judgekit.retrieval import confidence, index_file
from judgekit.retrieval.confidence import Candidate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, TypeAlias

    from judgekit.retrieval.index_file import Index
    from judgekit.retrieval.parts import Part
    from judgekit.retrieval.terms import Term

    # By stem or row of stems: the numbers of the terms that it stands for, and what one occurrence counts.
    Wanted: TypeAlias = dict[str, dict[int, float]]

POOL = 80  # hits that are scored; a page of results is far smaller
POSTINGS = (
    4_000  # occurrences that are asked for before more frequent terms are left to the scoring: 1 ms
)
QUICK_POOL = 30
QUICK_POSTINGS = 2_500  # the same for a prompt, of which three hits are shown at most
LEAST = 5  # hits of each of several parts
PROMINENT = 2  # columns: title and tags
_ENOUGH = 2  # times the pool that the terms chosen must occur, whatever they cost
_BODY = 8_000  # characters of a body's stems that are read
_FEW = 16  # words that are counted one by one: the quicker way, for as few

COLUMNS = "file.id, title, category, tags, path, updated, status"
_MATCHES = "SELECT group_concat(rowid) FROM text WHERE text MATCH ?"
_STARTING = "SELECT term, entries FROM term WHERE term >= ? AND term < ?"
_ENTRIES = f"""SELECT number, c0, c1, substr(c2, 1, {_BODY}), c3, problem IS NOT NULL, {COLUMNS}
    FROM text_content JOIN file ON number = text_content.id WHERE number IN """  # noqa: S608 - our names
_AMONG = "SELECT rowid FROM text WHERE text MATCH ? AND rowid IN "


class _Entry:
    """An entry: the stems of its columns, how often it has which term, and what its length makes of that."""

    __slots__ = ("candidate", "columns", "damping", "frequencies")

    def __init__(self, candidate: Candidate, columns: list[list[str]]) -> None:
        self.candidate = candidate
        self.columns = columns
        self.frequencies: dict[int, float] = {}
        self.damping = 0.0


def match(
    opened: Index, parts: Sequence[Part], pool: int = POOL, *, quick: bool = False
) -> list[Candidate]:
    """Return the best matches of any of `parts`, rated, best first.

    An entry has the confidence of the part that it answers best. A `quick` answer scores fewer hits, by the
    terms alone, and leaves frequent terms of a large store to the scoring: what is injected hardly changes.
    """
    wanted: Wanted = {}
    terms = list({term.text: term for part in parts for term in part.terms}.values())
    for number, term in enumerate(terms):
        _look_up(opened, number, term, wanted)
    share = len(parts) or 1
    pool = max(pool // share, min(pool, LEAST))
    limits = pool, _ENOUGH * pool, POSTINGS
    if quick:
        limits = min(pool, QUICK_POOL), 1, QUICK_POSTINGS // share
    postings: dict[int, list[str]] = {}
    asked = []
    for part in sorted(
        parts, key=lambda each: min([term.count or opened.size for term in each.terms])
    ):
        if quick and sum(map(len, postings.values())) > QUICK_POSTINGS:
            break  # what is left has frequent terms only
        asked.append((part, _likeliest(opened, part.terms, postings, limits)))
    found = sorted({number for _, likeliest in asked for number in likeliest})
    if not found:
        return []
    entries = _read(opened, terms, found)
    _count(opened, entries, wanted)
    rated: list[Candidate] = []
    for part, likeliest in asked:
        most = opened.profile.bm25["k1"] + 1
        likely = [number for number in entries if number in likeliest]
        own = {number: _hit(entries[number], part, most) for number in likely}
        ranked = sorted(own, key=lambda number: -own[number].bm25)
        if ranked:
            best = own[ranked[0]].bm25 or 1.0
        else:
            best = 1.0
        for hit in own.values():
            hit.score = hit.bm25 / best
        if not quick:
            _add_likeness(opened, [(own[number], entries[number]) for number in ranked])
        rated += confidence.order(list(own.values()), part.terms, opened.size, opened.profile)
    if len(parts) > 1:
        rated.sort(key=lambda hit: -hit.confidence)
    unique: dict[str, Candidate] = {}
    for hit in rated:
        unique.setdefault(hit.place, hit)
    return list(unique.values())


def _hit(entry: _Entry, part: Part, most: float) -> Candidate:
    hit = object.__new__(Candidate)
    hit.__dict__.update(entry.candidate.__dict__)
    frequencies = entry.frequencies
    titled = entry.candidate.titled
    hit.part = part
    hit.matched = set()
    hit.titled = set()
    hit.bm25 = 0.0
    for place, term in enumerate(part.terms):
        if term.number in frequencies:
            hit.matched.add(place)
            often = frequencies[term.number]
            hit.bm25 += term.rarity * often * most / (often + entry.damping)
            if term.number in titled:
                hit.titled.add(place)
    return hit


def candidate(opened: Index, row: Sequence[Any]) -> Candidate:
    """Return the candidate that a row of the index's table `file` stands for: the values of `COLUMNS`."""
    name, title, category, tags, path, updated, status = row
    own = tuple([tag for tag in tags.split(",") if tag])
    hit = Candidate(name, title, category, own, updated, opened.root, path, opened.profile.kind)
    hit.status = status or ""
    return hit


def _look_up(opened: Index, number: int, term: Term, wanted: Wanted) -> None:
    """Add to `wanted` what stands for a term; note in how many entries it occurs, or an upper bound."""
    count = 0
    for phrase in term.phrases:
        wanted.setdefault(phrase, {})[number] = 1.0
        if phrase == term.prefix:
            longer = dict(
                opened.connection.execute(_STARTING, (phrase, phrase + "\U0010ffff")).fetchall()
            )
            for stem in longer.keys() - {phrase}:
                wanted.setdefault(stem, {}).setdefault(number, opened.profile.bm25["prefix"])
            count += sum(longer.values())
        else:
            stems = phrase.split()
            found = index_file.frequencies(opened.connection, stems)
            count += min([found.get(stem, 0) for stem in stems], default=0)
    term.number = number
    term.count = min(count, opened.size)
    term.rarity = confidence.rarity(
        term.count, opened.size, opened.profile.background, common=term.common
    )


def _likeliest(
    opened: Index,
    terms: Sequence[Term],
    postings: dict[int, list[str]],
    limits: tuple[int, int, int],
) -> set[int]:
    """Return the entries in which the rarest terms occur; `limits`: entries, enough and most occurrences."""
    pool, enough, most = limits
    worth: dict[str, float] = {}
    seen = 0
    for term in sorted(terms, key=lambda term: term.count):
        if seen >= enough and seen + term.count > most:
            break
        if term.count:
            seen += term.count
            if term.number not in postings:
                (found,) = opened.connection.execute(_MATCHES, (term.expression,)).fetchone()
                if found:
                    postings[term.number] = found.split(",")
                else:
                    postings[term.number] = []
            for entry in postings[term.number]:
                worth[entry] = worth.get(entry, 0.0) + term.rarity
    return {int(entry) for entry in sorted(worth, key=worth.__getitem__, reverse=True)[:pool]}


def _read(opened: Index, terms: Sequence[Term], numbers: list[int]) -> dict[int, _Entry]:
    """Return entries by number; of a long one some stems are read, and for other terms FTS5 is asked."""
    execute = opened.connection.execute
    entries = {}
    cut = []
    for row in execute(f"{_ENTRIES}({','.join(map(str, numbers))})").fetchall():
        number, *columns, damaged = row[:6]
        hit = candidate(opened, row[6:])
        stems = [column.split() for column in columns]
        hit.damaged = bool(damaged)
        hit.text = " ".join(columns)
        hit.length = sum(map(len, stems))
        entries[number] = _Entry(hit, stems)
        if len(columns[2]) == _BODY:
            (sizes,) = execute("SELECT sz FROM text_docsize WHERE id = ?", (number,)).fetchone()
            hit.length = value = 0
            for byte in sizes:  # FTS5's numbers: seven bits a byte, the first bits first
                value = value << 7 | byte & 0x7F
                if byte < 0x80:  # noqa: PLR2004 - the bit that says that there is more
                    hit.length = hit.length + value
                    value = 0
            cut.append(number)
    for place, term in enumerate(terms if cut else ()):
        among = f"{_AMONG}({','.join(map(str, cut))})"
        for (number,) in execute(among, (term.expression,)).fetchall():
            entries[number].candidate.matched.add(place)
    return entries


def _count(opened: Index, entries: dict[int, _Entry], wanted: Wanted) -> None:
    """Note how often each entry has which term, where, and what its length makes of that."""
    bm25 = opened.profile.bm25
    profile = opened.profile
    total = index_file.frequencies(opened.connection, [index_file.TOTAL]).get(index_file.TOTAL, 0)
    average = total / (opened.size or 1) + bm25["padding"] or 1
    phrases = {phrase: _spaced(phrase) for phrase in wanted if " " in phrase}
    for entry in entries.values():
        hit = entry.candidate
        frequencies = entry.frequencies
        for place, (words, weight) in enumerate(
            zip(entry.columns, profile.weights.values(), strict=True)
        ):
            own = wanted.keys() & words
            if len(own) <= _FEW:
                counts = {word: words.count(word) for word in own}
            else:
                counts = dict.fromkeys(own, 0)
                for word in words:
                    if word in counts:
                        counts[word] += 1
            if phrases and words:
                spaced = _spaced(" ".join(words))
                counts |= {
                    phrase: spaced.count(row) for phrase, row in phrases.items() if row in spaced
                }
            for stem, count in counts.items():
                for term, share in wanted[stem].items():
                    frequencies[term] = frequencies.get(term, 0.0) + weight * share * count
                    if place < PROMINENT:
                        hit.titled.add(term)
        for term in hit.matched:
            frequencies.setdefault(term, profile.weights["body"])
        length = (hit.length + bm25["padding"]) / average
        entry.damping = bm25["k1"] * (1 - bm25["b"] + bm25["b"] * length)


def _spaced(row: str) -> str:
    """Return a row of stems of which each keeps its own spaces, so that neighbours are both found."""
    return f" {row.replace(' ', '  ')} "


def _add_likeness(opened: Index, ranked: list[tuple[Candidate, _Entry]]) -> None:
    """Let those move up that are like the best: that have their most typical words."""
    feedback = opened.profile.feedback
    profile = opened.profile
    first = ranked[: min(int(feedback["entries"]), len(ranked) // 2)]
    if not first or not first[0][0].bm25:
        return
    total = sum(hit.bm25 for hit, _ in first)
    shares: dict[str, float] = {}
    for hit, entry in first:
        share = hit.bm25 / (total * (hit.length + profile.bm25["padding"]))
        for column in entry.columns:
            for word in column[:300]:  # where its subject shows
                shares[word] = shares.get(word, 0.0) + share
    words = [word for word in shares if len(word) > 1][:300]  # whose rarity is looked up
    rarities = {}
    for word, count in index_file.frequencies(opened.connection, words).items():
        if count > 1:
            rarities[word] = confidence.rarity(count, opened.size, profile.background, common=False)
    typical = sorted(((shares[word] * rare, word) for word, rare in rarities.items()), reverse=True)
    subject = {word: weight * rarities[word] for weight, word in typical[: int(feedback["words"])]}
    alike = []
    for _, entry in ranked:
        own = set().union(*entry.columns)
        alike.append(
            sum([weight for word, weight in subject.items() if word in own]) / (1 + entry.damping)
        )
    most = max(alike)
    for (hit, _), likeness in zip(ranked, alike, strict=True) if most else ():
        hit.score = (1 - feedback["share"]) * hit.score + feedback["share"] * likeness / most
