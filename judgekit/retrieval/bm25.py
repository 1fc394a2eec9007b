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
    from judgekit.retrieval.terms import Term

    # By stem or row of stems: the numbers of the terms that it stands for, and what one occurrence counts.
    Wanted: TypeAlias = dict[str, dict[int, float]]

POOL = 80  # hits that are scored; a page of results is far smaller
POSTINGS = 4_000  # occurrences that are asked for before more frequent terms are left to the scoring: 1 ms
QUICK_POOL, QUICK_POSTINGS = 30, 2_500  # the same for a prompt, of which three hits are shown at most
PROMINENT = 2  # columns: title and tags
_ENOUGH = 2  # times the pool that the terms chosen must occur, whatever they cost
_BODY = 8_000  # characters of a body's stems that are read
_READ = 300  # words of a column that are looked at for its subject
_FEEDBACK_WORDS = 300  # words of the best entries whose rarity is looked up
_MOST = 0.5  # of the hits may be taken for the best ones
_FEW = 16  # words that are counted one by one: the quicker way, for as few
_AFTER_ALL = "\U0010ffff"

COLUMNS = "file.id, title, category, tags, path, updated"
_MATCHES = "SELECT group_concat(rowid) FROM text WHERE text MATCH ?"
_STARTING = "SELECT term, entries FROM term WHERE term >= ? AND term < ?"
_ENTRIES = f"""SELECT number, c0, c1, substr(c2, 1, {_BODY}), c3, problem IS NOT NULL, {COLUMNS}
    FROM text_content JOIN file ON number = text_content.id WHERE number IN """  # noqa: S608 - our names
_AMONG = "SELECT rowid FROM text WHERE text MATCH ? AND rowid IN "
_SIZE = "SELECT sz FROM text_docsize WHERE id = ?"


def match(opened: Index, terms: Sequence[Term], pool: int = POOL, *, quick: bool = False) -> list[Candidate]:
    """Return the best matches of any of `terms`, rated, best first.

    A candidate's score is about 1 for the best one, its `bm25` is the sum over its terms. A `quick` answer
    scores fewer hits, by the terms alone (on labelled prompts that hardly changed what is injected). In a
    large store it leaves frequent terms to the scoring as soon as a rarer one occurs.
    """
    wanted: Wanted = {}
    counts = [_look_up(opened, number, term, wanted) for number, term in enumerate(terms)]
    limits = (min(pool, QUICK_POOL), 1, QUICK_POSTINGS) if quick else (pool, _ENOUGH * pool, POSTINGS)
    numbers = _likeliest(opened, terms, counts, limits)
    if not numbers:
        return []
    entries = _read(opened, terms, numbers)
    dampings = _rate(opened, terms, entries, wanted)
    ranked = sorted(entries, key=lambda number: -entries[number][0].bm25)
    best = entries[ranked[0]][0].bm25 or 1.0
    for candidate, _ in entries.values():
        candidate.score = candidate.bm25 / best
    if not quick:
        _add_likeness(opened, [(*entries[number], dampings[number]) for number in ranked])
    return confidence.order([entries[number][0] for number in ranked], terms, opened.size, opened.profile)


def candidate(opened: Index, row: Sequence[Any]) -> Candidate:
    """Return the candidate that a row of the index's table `file` stands for: the values of `COLUMNS`."""
    name, title, category, tags, path, updated = row
    return Candidate(
        name,
        title,
        category,
        tags=tuple([tag for tag in tags.split(",") if tag]),
        updated=updated,
        root=opened.root,
        place=path,
        kind=opened.profile.kind,
    )


def _look_up(opened: Index, number: int, term: Term, wanted: Wanted) -> int:
    """Add to `wanted` what stands for a term; return in how many entries it occurs, or an upper bound."""
    count = 0
    for phrase in term.phrases:
        wanted.setdefault(phrase, {})[number] = 1.0
        if phrase == term.prefix:
            longer = dict(opened.connection.execute(_STARTING, (phrase, phrase + _AFTER_ALL)).fetchall())
            for stem in longer.keys() - {phrase}:
                wanted.setdefault(stem, {}).setdefault(number, opened.profile.bm25["prefix"])
            count += sum(longer.values())
        else:
            stems = phrase.split()
            found = index_file.frequencies(opened.connection, stems)
            count += min([found.get(stem, 0) for stem in stems], default=0)
    count = min(count, opened.size)
    term.rarity = confidence.rarity(count, opened.size, opened.profile.background, common=term.common)
    return count


def _likeliest(
    opened: Index, terms: Sequence[Term], counts: list[int], limits: tuple[int, int, int]
) -> list[int]:
    """Return the entries in which the rarest terms occur, by what these are worth.

    `limits` are the number of entries, and of occurrences: that which is enough to leave out a term which
    would go beyond the last number.
    """
    pool, enough, postings = limits
    worth: dict[str, float] = {}
    seen = 0
    for number in sorted(range(len(terms)), key=counts.__getitem__):
        if seen >= enough and seen + counts[number] > postings:
            break
        if counts[number]:
            seen += counts[number]
            term = terms[number]
            (found,) = opened.connection.execute(_MATCHES, (term.expression,)).fetchone()
            for entry in found.split(",") if found else ():
                worth[entry] = worth.get(entry, 0.0) + term.rarity
    return [int(entry) for entry in sorted(worth, key=worth.__getitem__, reverse=True)[:pool]]


def _read(
    opened: Index, terms: Sequence[Term], numbers: list[int]
) -> dict[int, tuple[Candidate, list[list[str]]]]:
    """Return entries by number, each with the stems of its columns.

    Of a long one not all stems are read: what it `matched` beyond them is asked for.
    """
    execute = opened.connection.execute
    entries, cut = {}, []
    for number, *columns, damaged, name, title, category, tags, path, updated in execute(
        f"{_ENTRIES}({','.join(map(str, numbers))})"
    ).fetchall():
        hit = candidate(opened, (name, title, category, tags, path, updated))
        stems = [column.split() for column in columns]
        hit.damaged, hit.text, hit.length = bool(damaged), " ".join(columns), sum(map(len, stems))
        entries[number] = hit, stems
        if len(columns[2]) == _BODY:
            (sizes,) = execute(_SIZE, (number,)).fetchone()
            hit.length = sum(_varints(sizes))
            cut.append(number)
    for place, term in enumerate(terms if cut else ()):
        among = f"{_AMONG}({','.join(map(str, cut))})"
        for (number,) in execute(among, (term.expression,)).fetchall():
            entries[number][0].matched.add(place)
    return entries


def _varints(raw: bytes) -> list[int]:
    """Return the numbers in a record of FTS5: seven bits a byte, the first bits first."""
    numbers, value = [], 0
    for byte in raw:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:  # noqa: PLR2004 - the bit that says that there is more
            numbers.append(value)
            value = 0
    return numbers


def _rate(
    opened: Index,
    terms: Sequence[Term],
    entries: dict[int, tuple[Candidate, list[list[str]]]],
    wanted: Wanted,
) -> dict[int, float]:
    """Score entries and note which terms each has; return what damps frequencies in each: its length.

    A term known to be in an entry, although what was read of it does not show it, counts once in the body.
    """
    profile, bm25 = opened.profile, opened.profile.bm25
    total = index_file.frequencies(opened.connection, [index_file.TOTAL]).get(index_file.TOTAL, 0)
    average = total / (opened.size or 1) + bm25["padding"] or 1
    phrases = {phrase: _spaced(phrase) for phrase in wanted if " " in phrase}
    dampings = {}
    for number, (hit, columns) in entries.items():
        frequencies: dict[int, float] = {}
        for place, (words, weight) in enumerate(zip(columns, profile.weights.values(), strict=True)):
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
                counts |= {phrase: spaced.count(row) for phrase, row in phrases.items() if row in spaced}
            for stem, count in counts.items():
                for term, share in wanted[stem].items():
                    frequencies[term] = frequencies.get(term, 0.0) + weight * share * count
                    if place < PROMINENT:
                        hit.titled.add(term)
        for term in hit.matched:
            frequencies.setdefault(term, profile.weights["body"])
        hit.matched.update(frequencies)
        length = (hit.length + bm25["padding"]) / average
        dampings[number] = damping = bm25["k1"] * (1 - bm25["b"] + bm25["b"] * length)
        most = bm25["k1"] + 1
        hit.bm25 = sum([terms[term].rarity * f * most / (f + damping) for term, f in frequencies.items()])
    return dampings


def _spaced(row: str) -> str:
    """Return a row of stems of which each keeps its own spaces, so that neighbours are both found."""
    return f" {row.replace(' ', '  ')} "


def _add_likeness(opened: Index, ranked: list[tuple[Candidate, list[list[str]], float]]) -> None:
    """Let those that are like the best, 1 for the most alike, move up. Each has its columns and its damping.

    What the best are about are their most typical words, each with its weight.
    """
    profile, feedback = opened.profile, opened.profile.feedback
    first = ranked[: min(int(feedback["entries"]), int(len(ranked) * _MOST))]
    if not first or not first[0][0].bm25:
        return
    total = sum(hit.bm25 for hit, _, _ in first)
    shares: dict[str, float] = {}
    for hit, columns, _ in first:
        share = hit.bm25 / (total * (hit.length + profile.bm25["padding"]))
        for column in columns:
            for word in column[:_READ]:
                shares[word] = shares.get(word, 0.0) + share
    words = [word for word in shares if len(word) > 1][:_FEEDBACK_WORDS]
    rarities = {
        word: confidence.rarity(count, opened.size, profile.background, common=False)
        for word, count in index_file.frequencies(opened.connection, words).items()
        if count > 1
    }
    typical = sorted(((shares[word] * rare, word) for word, rare in rarities.items()), reverse=True)
    subject = {word: weight * rarities[word] for weight, word in typical[: int(feedback["words"])]}
    alike = []
    for _, columns, damping in ranked:
        own = set().union(*columns)
        alike.append(sum([weight for word, weight in subject.items() if word in own]) / (1 + damping))
    most = max(alike)
    for (hit, _, _), likeness in zip(ranked, alike, strict=True) if most else ():
        hit.score = (1 - feedback["share"]) * hit.score + feedback["share"] * likeness / most
