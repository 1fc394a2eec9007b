"""Asks an index: which entries match, with what score, and which terms occur in each.

FTS5 says which entries have which term, the rarer ones where others are very frequent; those with the most of
them are then scored in full.
"""

from __future__ import annotations

from judgekit.retrieval import columns, confidence, scoring
from judgekit.retrieval.candidate import Candidate
from judgekit.retrieval.rank import Hit, Statistics
from judgekit.retrieval.scoring import Scorer, Sought, Text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from sqlite3 import Connection

    from judgekit.retrieval.index_file import Index
    from judgekit.retrieval.query import Term

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
    average = columns.total(connection) / (index.size or 1)
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
            longer = columns.beginning(connection, phrase)
            for stem in longer.keys() - {phrase}:
                sought.add(number, stem, index.profile.bm25["prefix"])
            count += sum(longer.values())
        else:
            stems = phrase.split()
            found = columns.frequencies(connection, stems)
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
        found = columns.frequencies(index.connection, words[:_FEEDBACK_WORDS])
        return {
            word: confidence.rarity(count, index.size, background, common=False)
            for word, count in found.items()
            if count > 1
        }

    padding = index.profile.bm25["padding"]
    subject = scoring.subject(first, rarity, most=int(settings["words"]), padding=padding)
    alike = [scoring.likeness(text, subject) / (1 + scorer.damping(text)) for text, _ in ranked]
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
