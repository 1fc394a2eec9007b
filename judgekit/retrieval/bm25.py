"""Asks an index: which entries match, with what score, and which terms occur in each.

FTS5 says which entries have which term, the rarer ones where others are very frequent. Those with the most of
them are then scored in full: BM25 for the terms of the query, then what the best have in common.
"""

from __future__ import annotations

from judgekit.retrieval import confidence, index_file
from judgekit.retrieval.confidence import Candidate, Hit, Statistics

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from sqlite3 import Connection
    from typing import Any

    from judgekit.retrieval.compiled import Profile
    from judgekit.retrieval.index_file import Index
    from judgekit.retrieval.query import Term

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

COLUMNS = "id, title, category, tags, path, updated"
_MATCHES = "SELECT group_concat(rowid) FROM text WHERE text MATCH ?"
_STARTING = "SELECT term, entries FROM term WHERE term >= ? AND term < ?"
_TEXTS = f"SELECT id, c0, c1, substr(c2, 1, {_BODY}), c3 FROM text_content WHERE id IN "  # noqa: S608 - a number
_FILES = f"SELECT number, problem IS NOT NULL, {COLUMNS} FROM file WHERE number IN "  # noqa: S608 - our names
_AMONG = "SELECT rowid FROM text WHERE text MATCH ? AND rowid IN "
_SIZE = "SELECT sz FROM text_docsize WHERE id = ?"


class Text:
    """The stems of an entry by column, and how many there are in all: of a long one not all may be here."""

    __slots__ = ("columns", "distinct", "length")

    def __init__(self, columns: Sequence[str], length: int | None = None) -> None:
        self.columns = [column.split() for column in columns]
        self.distinct = [set(words) for words in self.columns]
        self.length = sum(map(len, self.columns)) if length is None else length


class Scorer:
    """Rates the entries of one store for what one query looks for.

    A stem or a row of stems stands for terms, each by its number and with what one occurrence counts.
    `rarities` are those of the terms, `average` is the mean length of the store's entries.
    """

    __slots__ = ("_phrases", "_words", "average", "profile", "rarities")

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self._words: dict[str, dict[int, float]] = {}
        self._phrases: list[tuple[int, str]] = []
        self.rarities: Sequence[float] = ()
        self.average = 0.0

    def seek(self, number: int, phrase: str, share: float = 1.0) -> None:
        """Look for a stem or a row of stems as the term `number`; an occurrence counts `share`."""
        if " " in phrase:
            self._phrases.append((number, _spaced(phrase)))
        else:
            terms = self._words.setdefault(phrase, {})
            terms[number] = max(share, terms.get(number, 0.0))

    def damping(self, text: Text) -> float:
        """Return what is added to a frequency below the line: more in a long entry."""
        bm25 = self.profile.bm25
        length = (text.length + bm25["padding"]) / (self.average + bm25["padding"] or 1)
        return bm25["k1"] * (1 - bm25["b"] + bm25["b"] * length)

    def rate(self, text: Text, surely: Iterable[int] = ()) -> tuple[float, set[int], set[int]]:
        """Return the score of an entry, the numbers of the terms in it, and of those in its title or tags.

        Terms that are `surely` in it, although its `text` does not show them, count once in the body.
        """
        frequencies: dict[int, float] = {}
        titled: set[int] = set()
        for place, (column, weight) in enumerate(
            zip(text.columns, self.profile.weights.values(), strict=True)
        ):
            found = [
                (number, share * often)
                for stem, often in _counts(column, text.distinct[place] & self._words.keys())
                for number, share in self._words[stem].items()
            ]
            if self._phrases and column:
                spaced = _spaced(" ".join(column))
                found += [(number, spaced.count(row)) for number, row in self._phrases if row in spaced]
            for number, often in found:
                frequencies[number] = frequencies.get(number, 0.0) + weight * often
            if place < PROMINENT:
                titled.update([number for number, _ in found])
        for number in surely:
            frequencies.setdefault(number, self.profile.weights["body"])
        most, damping = self.profile.bm25["k1"] + 1, self.damping(text)
        score = sum([self.rarities[term] * f * most / (f + damping) for term, f in frequencies.items()])
        return score, set(frequencies), titled


def _counts(words: list[str], wanted: set[str]) -> Iterable[tuple[str, int]]:
    """Return how often each of some words occurs."""
    if len(wanted) <= _FEW:
        return [(word, words.count(word)) for word in wanted]
    counts = dict.fromkeys(wanted, 0)
    for word in words:
        if word in counts:
            counts[word] += 1
    return counts.items()


def _spaced(row: str) -> str:
    """Return a row of stems of which each keeps its own spaces, so that neighbours are both found."""
    return f" {row.replace(' ', '  ')} "


def match(
    index: Index, terms: list[Term], pool: int = POOL, *, quick: bool = False
) -> tuple[list[Hit], Statistics]:
    """Return the best matches of any of `terms`, and how common each term is in the store.

    A hit's score is about 1 for the best one; its candidate's `bm25` is the sum over its terms. Those below
    the profile's noise floor are left out. A `quick` answer scores fewer hits, by the terms alone (on
    labelled prompts that hardly changed what is injected), and in a large store it leaves frequent terms to
    the scoring as soon as a rarer one occurs: what has frequent words alone would not be shown with a prompt.
    """
    connection, profile, scorer = index.connection, index.profile, Scorer(index.profile)
    counts = [_look_up(index, number, term, scorer) for number, term in enumerate(terms)]
    statistics = Statistics(terms, counts, index.size, profile)
    scorer.rarities = statistics.rarities
    limits = (min(pool, QUICK_POOL), 1, QUICK_POSTINGS) if quick else (pool, _ENOUGH * pool, POSTINGS)
    numbers = _likeliest(connection, terms, counts, statistics.rarities, limits)
    if not numbers:
        return [], statistics
    texts = _texts(connection, numbers)
    total = index_file.frequencies(connection, [index_file.TOTAL]).get(index_file.TOTAL, 0)
    scorer.average = total / (index.size or 1)
    hidden = _hidden(connection, terms, texts)
    rated = {number: scorer.rate(text, hidden.get(number, ())) for number, text in texts.items()}
    ranked = sorted(texts, key=lambda number: -rated[number][0])
    alike = [] if quick else _likenesses(index, [(texts[each], rated[each][0]) for each in ranked], scorer)
    best = rated[ranked[0]][0] or 1.0
    kept = [number for number in ranked if rated[number][0] >= profile.noise_floor * best]
    rows = {row[0]: row[1:] for row in connection.execute(_FILES + _among(kept)).fetchall()}
    share = profile.feedback["share"] if alike else 0.0
    hits = []
    for place, number in enumerate(kept):
        score, matched, titled = rated[number]
        damaged, *row = rows[number]
        found = candidate(index, row)
        found.bm25, found.damaged = score, bool(damaged)
        hit = Hit(found, (1 - share) * score / best + (share * alike[place] if alike else 0.0))
        hit.matched, hit.titled = matched, titled
        hit.text = " ".join([" ".join(words) for words in texts[number].columns])
        hit.length = texts[number].length
        hits.append(hit)
    return hits, statistics


def candidate(index: Index, row: Sequence[Any]) -> Candidate:
    """Return the candidate that a row of the index's table `file` stands for: the values of `COLUMNS`."""
    name, title, category, tags, path, updated = row
    return Candidate(
        name,
        title,
        category,
        tags=tuple([tag for tag in tags.split(",") if tag]),
        updated=updated,
        root=index.root,
        place=path,
        kind=index.profile.kind,
    )


def _look_up(index: Index, number: int, term: Term, scorer: Scorer) -> int:
    """Say what is to be sought for a term; return in how many entries it occurs, or an upper bound."""
    count = 0
    for phrase in term.phrases:
        scorer.seek(number, phrase)
        if phrase == term.prefix:
            longer = dict(index.connection.execute(_STARTING, (phrase, phrase + _AFTER_ALL)).fetchall())
            for stem in longer.keys() - {phrase}:
                scorer.seek(number, stem, index.profile.bm25["prefix"])
            count += sum(longer.values())
        else:
            stems = phrase.split()
            found = index_file.frequencies(index.connection, stems)
            count += min([found.get(stem, 0) for stem in stems], default=0)
    return min(count, index.size)


def _likeliest(
    connection: Connection,
    terms: list[Term],
    counts: list[int],
    rarities: list[float],
    limits: tuple[int, int, int],
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
            (found,) = connection.execute(_MATCHES, (terms[number].expression,)).fetchone()
            rarity = rarities[number]
            for entry in found.split(",") if found else ():
                worth[entry] = worth.get(entry, 0.0) + rarity
    return [int(entry) for entry in sorted(worth, key=worth.__getitem__, reverse=True)[:pool]]


def _among(numbers: Iterable[int]) -> str:
    return f"({','.join(map(str, numbers))})"


def _texts(connection: Connection, numbers: list[int]) -> dict[int, Text]:
    texts = {}
    for number, *stems in connection.execute(_TEXTS + _among(numbers)).fetchall():
        length = None
        if len(stems[2]) == _BODY:
            (sizes,) = connection.execute(_SIZE, (number,)).fetchone()
            length = sum(_varints(sizes))
        texts[number] = Text(stems, length)
    return texts


def _varints(raw: bytes) -> list[int]:
    """Return the numbers in a record of FTS5: seven bits a byte, the first bits first."""
    numbers, value = [], 0
    for byte in raw:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:  # noqa: PLR2004 - the bit that says that there is more
            numbers.append(value)
            value = 0
    return numbers


def _hidden(connection: Connection, terms: list[Term], texts: dict[int, Text]) -> dict[int, set[int]]:
    """Return the numbers of the terms in those entries whose text was too long to read in full."""
    long = [number for number, text in texts.items() if text.length > sum(map(len, text.columns))]
    hidden: dict[int, set[int]] = {}
    for number, term in enumerate(terms if long else ()):
        for (entry,) in connection.execute(_AMONG + _among(long), (term.expression,)).fetchall():
            hidden.setdefault(entry, set()).add(number)
    return hidden


def _likenesses(index: Index, ranked: list[tuple[Text, float]], scorer: Scorer) -> list[float]:
    """Return how alike each text is to the best of them, 1 for the most alike; nothing without hits.

    What the best (with their scores) are about are their most typical words, each with its weight.
    """
    profile = index.profile
    first = ranked[: min(int(profile.feedback["entries"]), int(len(ranked) * _MOST))]
    if not first or not first[0][1]:
        return []
    total = sum(score for _, score in first)
    shares: dict[str, float] = {}
    for text, score in first:
        share = score / (total * (text.length + profile.bm25["padding"]))
        for column in text.columns:
            for word in column[:_READ]:
                shares[word] = shares.get(word, 0.0) + share
    words = [word for word in shares if len(word) > 1][:_FEEDBACK_WORDS]
    rarities = {
        word: confidence.rarity(count, index.size, profile.background, common=False)
        for word, count in index_file.frequencies(index.connection, words).items()
        if count > 1
    }
    typical = sorted(((shares[word] * rare, word) for word, rare in rarities.items()), reverse=True)
    subject = {word: weight * rarities[word] for weight, word in typical[: int(profile.feedback["words"])]}
    alike = []
    for text, _ in ranked:
        own = set().union(*text.distinct)
        weight = sum([weight for word, weight in subject.items() if word in own])
        alike.append(weight / (1 + scorer.damping(text)))
    most = max(alike)
    return [each / most for each in alike] if most else []
