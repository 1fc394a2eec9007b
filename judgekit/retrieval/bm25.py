"""Asks an index: which entries match, with what score, and which terms occur in each.

FTS5 says which entries have which term, the rarer ones where others are very frequent; those with the most
of them are then scored in full.

Scores the entries that a search found: BM25 for the terms of the query, then what the best have in common.
"""

from __future__ import annotations

from judgekit.retrieval import confidence, schema
from judgekit.retrieval.confidence import Candidate, Hit, Statistics

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from sqlite3 import Connection

    from judgekit.retrieval.compiled import Profile
    from judgekit.retrieval.index_file import Index
    from judgekit.retrieval.query import Term


PROMINENT = 2  # columns: title and tags
_FEW = 16  # words that are counted one by one: the quicker way, for as few
_READ = 300  # words of a column that are looked at for its subject


class Text:
    """The stems of an entry by column, and how many there are in all: of a long one not all may be here."""

    __slots__ = ("columns", "distinct", "length")

    def __init__(self, columns: Sequence[str], length: int | None = None) -> None:
        self.columns = [column.split() for column in columns]
        self.distinct = [set(words) for words in self.columns]
        self.length = sum(map(len, self.columns)) if length is None else length

    def words(self) -> str:
        """Return the stems of all columns in a row."""
        return " ".join([" ".join(words) for words in self.columns])


class Sought:
    """What a query looks for in texts: `words` by stem, and rows of stems.

    A stem stands for terms, each by its number and with what one occurrence counts.
    """

    __slots__ = ("phrases", "words")

    def __init__(self) -> None:
        self.words: dict[str, dict[int, float]] = {}
        self.phrases: list[tuple[int, str]] = []

    def add(self, number: int, phrase: str, share: float = 1.0) -> None:
        """Look for a stem or a row of stems as the term `number`; an occurrence counts `share`."""
        if " " in phrase:
            self.phrases.append((number, _spaced(phrase)))
        else:
            terms = self.words.setdefault(phrase, {})
            terms[number] = max(share, terms.get(number, 0.0))


class Scorer:
    """Rates the entries of one store for what one query looks for.

    `rarities` are those of the terms, `average` is the mean length of the store's entries.
    """

    __slots__ = ("_profile", "_rarities", "_scale", "_sought", "_stems", "_weights")

    def __init__(self, sought: Sought, rarities: Sequence[float], average: float, profile: Profile) -> None:
        self._sought, self._stems, self._rarities = sought, frozenset(sought.words), rarities
        self._profile, self._weights = profile, list(profile.weights.values())
        self._scale = average + profile.bm25["padding"]

    def damping(self, text: Text) -> float:
        """Return what is added to a frequency below the line: more in a long entry."""
        bm25 = self._profile.bm25
        length = (text.length + bm25["padding"]) / (self._scale or 1)
        return bm25["k1"] * (1 - bm25["b"] + bm25["b"] * length)

    def rate(self, text: Text, surely: frozenset[int] = frozenset()) -> tuple[float, set[int], set[int]]:
        """Return the score of an entry, the numbers of the terms in it, and of those in its title or tags.

        Terms that are `surely` in it, although its `text` does not show them, count once in the body.
        """
        frequencies, titled = self._frequencies(text)
        for number in surely - frequencies.keys():
            frequencies[number] = self._profile.weights["body"]
        most, damping = self._profile.bm25["k1"] + 1, self.damping(text)
        rarities = self._rarities
        score = sum([rarities[term] * f * most / (f + damping) for term, f in frequencies.items()])
        return score, set(frequencies), titled

    def _frequencies(self, text: Text) -> tuple[dict[int, float], set[int]]:
        frequencies: dict[int, float] = {}
        titled: set[int] = set()
        sought, phrases = self._sought.words, self._sought.phrases
        for place, column in enumerate(text.columns):
            weight = self._weights[place]
            found = [
                (number, share * often)
                for stem, often in _counts(column, text.distinct[place] & self._stems)
                for number, share in sought[stem].items()
            ]
            if phrases and column:
                spaced = _spaced(" ".join(column))
                found += [(number, spaced.count(phrase)) for number, phrase in phrases if phrase in spaced]
            for number, often in found:
                frequencies[number] = frequencies.get(number, 0.0) + weight * often
            if place < PROMINENT:
                titled.update([number for number, _ in found])
        return frequencies, titled


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


def subject(
    best: Sequence[tuple[Text, float]],
    rarity: Callable[[list[str]], dict[str, float]],
    *,
    most: int,
    padding: float,
) -> dict[str, float]:
    """Return the `most` typical words of the best entries (with their scores), each with its weight.

    `rarity` gives the rarity of each of some words, and leaves out those of one entry only.
    """
    total = sum(score for _, score in best)
    shares: dict[str, float] = {}
    for text, score in best:
        share = score / (total * (text.length + padding))
        for column in text.columns:
            for word in column[:_READ]:
                shares[word] = shares.get(word, 0.0) + share
    rarities = rarity([word for word in shares if len(word) > 1])
    weighed = sorted(((shares[word] * rare, word) for word, rare in rarities.items()), reverse=True)
    return {word: weight * rarities[word] for weight, word in weighed[:most]}


def likeness(text: Text, subject: dict[str, float]) -> float:
    """Return the weight of the words of the subject that an entry has."""
    own = set().union(*text.distinct)
    return sum([weight for word, weight in subject.items() if word in own])


POOL = 80  # hits that are scored; a page of results is far smaller
POSTINGS = (
    4_000  # occurrences that FTS5 is asked for before more frequent terms are left to the scoring: 1 ms
)
QUICK_POOL, QUICK_POSTINGS = 30, 2_500  # the same for a prompt, of which three hits are shown at most
_ENOUGH = 2  # times the pool that the terms chosen must occur, whatever they cost
_BODY = 8_000  # characters of a body's stems that are read
_FEEDBACK_WORDS = 300  # words of the best entries whose rarity is looked up
_MOST = 0.5  # of the hits may be taken for the best ones

_MATCHES = "SELECT group_concat(rowid) FROM text WHERE text MATCH ?"
_TEXTS = f"SELECT id, c0, c1, substr(c2, 1, {_BODY}), c3 FROM text_content WHERE id IN "  # noqa: S608 - a number
_FILES = """SELECT number, id, title, category, tags, path, updated, problem IS NOT NULL FROM file
    WHERE number IN """
_AMONG = "SELECT rowid FROM text WHERE text MATCH ? AND rowid IN "
_SIZE = "SELECT sz FROM text_docsize WHERE id = ?"


def match(
    index: Index, terms: list[Term], pool: int = POOL, *, quick: bool = False
) -> tuple[list[Hit], Statistics]:
    """Return the best matches of any of `terms`, and how common each term is in the store.

    A hit's score is about 1 for the best one; its candidate's `bm25` is what scoring.py says. Those below the
    profile's noise floor are left out. A `quick` answer scores fewer hits, by the terms alone (on labelled
    prompts that hardly changed what is injected), and in a large store it leaves frequent terms to the
    scoring as soon as a rarer one occurs: what has frequent words alone would not be shown with a prompt.
    """
    connection, profile = index.connection, index.profile
    sought = Sought()
    counts = [_look_up(connection, number, term, sought, index) for number, term in enumerate(terms)]
    statistics = Statistics(terms, counts, index.size, profile)
    limits = (min(pool, QUICK_POOL), 1, QUICK_POSTINGS) if quick else (pool, _ENOUGH * pool, POSTINGS)
    numbers = _likeliest(connection, terms, counts, statistics.rarities, limits)
    if not numbers:
        return [], statistics
    texts = _texts(connection, numbers)
    average = schema.total(connection) / (index.size or 1)
    scorer = Scorer(sought, statistics.rarities, average, profile)
    hidden = _hidden(connection, terms, texts)
    rated = {number: scorer.rate(text, hidden.get(number, frozenset())) for number, text in texts.items()}
    ranked = sorted(texts, key=lambda number: -rated[number][0])
    scored = [(texts[number], rated[number][0]) for number in ranked]
    alike = [] if quick else _likenesses(index, scored, scorer)
    best = rated[ranked[0]][0] or 1.0
    kept = [number for number in ranked if rated[number][0] >= profile.noise_floor * best]
    candidates = _candidates(index, kept)
    share = profile.feedback["share"] if alike else 0.0
    hits = []
    for place, number in enumerate(kept):
        score, matched, titled = rated[number]
        candidate = candidates[number]
        candidate.bm25 = score
        hit = Hit(candidate, (1 - share) * score / best + (share * alike[place] if alike else 0.0))
        hit.matched, hit.titled = matched, titled
        hit.text, hit.length = texts[number].words(), texts[number].length
        hits.append(hit)
    return hits, statistics


def _look_up(connection: Connection, number: int, term: Term, sought: Sought, index: Index) -> int:
    """Say what is to be sought for a term; return in how many entries it occurs, or an upper bound."""
    count = 0
    for phrase in term.phrases:
        sought.add(number, phrase)
        if phrase == term.prefix:
            longer = schema.beginning(connection, phrase)
            for stem in longer.keys() - {phrase}:
                sought.add(number, stem, index.profile.bm25["prefix"])
            count += sum(longer.values())
        else:
            stems = phrase.split()
            found = schema.frequencies(connection, stems)
            count += min([found.get(stem, 0) for stem in stems], default=0)
    return min(count, index.size)


def expression(terms: Sequence[Term]) -> str:
    """Return the FTS5 expression that any of `terms` satisfies."""
    return " OR ".join(term.expression for term in terms)


def add_snippets(index: Index, terms: list[Term], candidates: list[Candidate], limit: int) -> None:
    """Give each candidate the passage of its body where most terms stand, `limit` characters at most."""
    from judgekit.retrieval import excerpts  # noqa: PLC0415 - reads files, which the hook does without

    excerpts.add(index, terms, candidates, limit)


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


def _texts(connection: Connection, numbers: list[int]) -> dict[int, Text]:
    texts = {}
    for number, *stems in connection.execute(_TEXTS + _among(numbers)).fetchall():
        length = None
        if len(stems[2]) == _BODY:
            (sizes,) = connection.execute(_SIZE, (number,)).fetchone()
            length = sum(_varints(sizes))
        texts[number] = Text(stems, length)
    return texts


def _among(numbers: Iterable[int]) -> str:
    return f"({','.join(map(str, numbers))})"


def _varints(raw: bytes) -> list[int]:
    """Return the numbers in a record of FTS5: seven bits a byte, the first bits first."""
    numbers, value = [], 0
    for byte in raw:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:  # noqa: PLR2004 - the bit that says that there is more
            numbers.append(value)
            value = 0
    return numbers


def _hidden(connection: Connection, terms: list[Term], texts: dict[int, Text]) -> dict[int, frozenset[int]]:
    """Return the numbers of the terms in those entries whose text was too long to read in full."""
    long = [number for number, text in texts.items() if text.length > sum(map(len, text.columns))]
    if not long:
        return {}
    query = _AMONG + _among(long)
    found: dict[int, set[int]] = {}
    for number, term in enumerate(terms):
        for (entry,) in connection.execute(query, (term.expression,)).fetchall():
            found.setdefault(entry, set()).add(number)
    return {entry: frozenset(numbers) for entry, numbers in found.items()}


def _likenesses(index: Index, ranked: list[tuple[Text, float]], scorer: Scorer) -> list[float]:
    """Return how alike each text is to the best of them, 1 for the most alike; nothing without hits."""
    settings, background = index.profile.feedback, index.profile.background
    first = ranked[: min(int(settings["entries"]), int(len(ranked) * _MOST))]
    if not first or not first[0][1]:
        return []

    def rarity(words: list[str]) -> dict[str, float]:
        found = schema.frequencies(index.connection, words[:_FEEDBACK_WORDS])
        return {
            word: confidence.rarity(count, index.size, background, common=False)
            for word, count in found.items()
            if count > 1
        }

    padding = index.profile.bm25["padding"]
    topic = subject(first, rarity, most=int(settings["words"]), padding=padding)
    alike = [likeness(text, topic) / (1 + scorer.damping(text)) for text, _ in ranked]
    most = max(alike)
    return [each / most for each in alike] if most else []


def _candidates(index: Index, numbers: list[int]) -> dict[int, Candidate]:
    found = {}
    rows = index.connection.execute(_FILES + _among(numbers)).fetchall()
    for number, name, title, category, tags, path, updated, damaged in rows:
        found[number] = candidate = Candidate(
            name,
            title,
            category,
            tags=tuple(tag for tag in tags.split(",") if tag),
            updated=updated,
            root=index.root,
            place=path,
            kind=index.profile.kind,
        )
        candidate.damaged = bool(damaged)
    return found
