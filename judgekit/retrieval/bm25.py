"""Queries an index: finds the matching entries, their scores, and the terms that occur in each.

FTS5 finds the entries for each term; if some terms are very frequent, only those for the rarer ones. The
entries with the most terms are then scored in full: BM25 over the query's terms, then their likeness to the
best.
"""

from __future__ import annotations

from judgekit.retrieval import confidence, index_file
from judgekit.retrieval.confidence import Candidate
from judgekit.retrieval.terms import find_pattern, has_runs, list_patterns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, TypeAlias

    from judgekit.retrieval.compiled import Profile
    from judgekit.retrieval.index_file import Index
    from judgekit.retrieval.parts import Part
    from judgekit.retrieval.passages import Passage
    from judgekit.retrieval.terms import Pattern, Term

    # By the number of a term, the numbers (as texts) of the entries it occurs in.
    Postings: TypeAlias = dict[int, list[str]]

POOL = 80  # hits that are scored; a page of results is far smaller
# Terms are looked up until they have this many occurrences; the more frequent rest only counts in scoring: 1
# ms.
POSTINGS = 4_000
QUICK_POOL = 30
QUICK_POSTINGS = 2_500  # the same for a prompt, for which at most three hits are shown
LEADING = 20  # long entries whose sections are read
QUICK_LEADING = 6  # the same for a prompt, by all its parts
LEAST_LEADING = 2  # of each of several parts
PASSAGE = 0.5  # weight of an entry's best section in the order; the whole entry weighs 1
SECOND = 0.7  # share of the best section's BM25 from which a second one is named
LEAST = 5  # hits of each of several parts
PROMINENT = 2  # columns: title and tags
_ENOUGH = 2  # how often (in pools) the chosen terms must occur, whatever that costs
_MAX_BODY = 8_000  # characters of a body's stems that are read
_BEGINNING_CHARS = 700  # of the body of a long entry that doesn't lead, searched for neighbours
_BEGINNING = 300  # words at the start of a column that show an entry's subject
_MOST_WORDS = 300  # looked up for their rarity

COLUMNS = "file.id, title, category, tags, path, updated, status"
_LEADING_COLUMNS = 8  # how many columns of `_ENTRIES_IN` precede these
_MATCHES = "SELECT group_concat(rowid) FROM text WHERE text MATCH ?"
_STARTING = "SELECT total(entries) FROM term WHERE term >= ? AND term < ?"
_ENTRIES_IN = f"""SELECT number, c0, c1, substr(c2, 1, {_MAX_BODY}), c3, problem IS NOT NULL, %s, %s,
    {COLUMNS} FROM text_content JOIN file ON number = text_content.id WHERE number IN """  # noqa: S608 - our names
# Substitutes for columns that an earlier index doesn't have.
_LANGUAGE_BEFORE = "'english'"
_SECTIONS_BEFORE = "0"
_BODY = 2
_BODY_FROM = "SELECT substr(c2, ?) FROM text_content WHERE id = ?"
_MATCHES_IN = "SELECT rowid FROM text WHERE text MATCH ? AND rowid IN "


class _Entry:
    """An entry: the stems of its columns, the frequency of each term, and the damping for its length.

    Terms are identified by their numbers here, while the sets of a hit hold indexes into one part's terms.
    """

    __slots__ = (
        "body_places",
        "candidate",
        "columns",
        "damping",
        "frequencies",
        "has_stop_words",
        "indexed_terms",
        "is_cut",
        "number",
        "passages",
        "section_count",
        "title_frequencies",
        "title_terms",
    )

    def __init__(self, number: int, candidate: Candidate, columns: list[str]) -> None:
        self.number = number
        self.candidate = candidate
        self.columns = columns
        self.section_count = 0
        self.passages: list[Passage] | None = None  # unless they're read
        self.is_cut = False  # whether only a part of its long body is read
        self.frequencies: dict[int, float] = {}
        self.title_frequencies: dict[int, float] = {}
        self.body_places: dict[int, list[tuple[int, float]]] = {}
        # As reported by FTS5, for an entry that isn't read whole
        self.indexed_terms: set[int] = set()
        self.title_terms: set[int] = set()  # in its title or tags
        self.damping = 0.0
        self.has_stop_words = True  # its language is known, so its other words show its subject


def match(
    opened: Index, parts: Sequence[Part], pool: int = POOL, *, quick: bool = False
) -> list[Candidate]:
    """Return the best matches of any of `parts`, rated, best first.

    An entry gets the confidence of the part it answers best. A `quick` search is for a prompt: it scores
    fewer hits, by their terms alone, and in a large store it leaves frequent terms to the scoring. That
    hardly changes what gets injected.
    """
    return merge_parts(match_parts(opened, parts, pool, quick=quick))


def merge_parts(hits_by_part: Sequence[tuple[Part, list[Candidate]]]) -> list[Candidate]:
    """Return the hits of all parts, each entry once, best first."""
    rated: list[Candidate] = []
    for _, hits in hits_by_part:
        rated += hits
    if len(hits_by_part) > 1:
        rated.sort(key=lambda hit: -hit.confidence)
    unique: dict[str, Candidate] = {}
    for hit in rated:
        unique.setdefault(hit.place, hit)
    return list(unique.values())


def match_parts(
    opened: Index, parts: Sequence[Part], pool: int = POOL, *, quick: bool = False
) -> list[tuple[Part, list[Candidate]]]:
    """Return the best matches of each part that's searched, rated, best first."""
    terms_by_text: dict[str, Term] = {}
    for part in parts:
        terms_by_text.update({term.text: term for term in part.terms})
    terms = list(terms_by_text.values())
    for number, term in enumerate(terms):
        _look_up(opened, number, term)
    likeliest_by_part = _choose_entries(opened, parts, pool, quick=quick)
    numbers: set[int] = set()
    for _, likeliest in likeliest_by_part:
        numbers |= likeliest
    if not numbers:
        return []
    entries = _read_entries(opened, terms, sorted(numbers))
    patterns = list_patterns(terms)
    _count(opened, entries, patterns)
    leading = LEADING
    if quick:
        leading = max(QUICK_LEADING // len(likeliest_by_part), LEAST_LEADING)
    hits_by_part = []
    for part, likeliest in likeliest_by_part:
        likely = [entry for number, entry in entries.items() if number in likeliest]
        hits = _rate(opened, part, likely, patterns, leading, quick=quick)
        hits_by_part.append((part, hits))
    return hits_by_part


def _choose_entries(
    opened: Index, parts: Sequence[Part], pool: int, *, quick: bool
) -> list[tuple[Part, set[int]]]:
    """Order the parts by their rarest terms, and choose the likeliest entries for each."""
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
            break  # all that's left are parts with frequent terms only
        worth = _weigh_entries(opened, part.terms, postings, enough, most)
        likeliest = sorted(worth, key=worth.__getitem__, reverse=True)[:pool]
        likeliest_by_part.append((part, set(map(int, likeliest))))
    return likeliest_by_part


def _rate(
    opened: Index,
    part: Part,
    entries: Sequence[_Entry],
    patterns: Sequence[Pattern],
    leading: int,
    *,
    quick: bool,
) -> list[Candidate]:
    """Turn entries into rated hits of one part, best first."""
    saturation = opened.profile.bm25["k1"] + 1
    hits = [_score(entry, part, saturation) for entry in entries]
    _add_passages(opened, part, hits, entries, patterns, leading)
    best = max([hit.bm25 for hit in hits], default=0.0) or 1.0
    for hit in hits:
        hit.score = hit.bm25 / best
    if not quick:
        pairs = zip(hits, entries, strict=True)
        _add_likeness(opened, sorted(pairs, key=lambda pair: -pair[0].bm25))
    prompt_part = part if quick else None
    return confidence.order(hits, part.terms, opened.size, opened.profile, prompt_part)


def _score(entry: _Entry, part: Part, saturation: float) -> Candidate:
    """Turn an entry into a hit of one part, with its BM25 and the indexes of the terms it contains."""
    # Copy all values, since an entry may be a hit of several parts; `__init__` would reset some of them.
    hit = object.__new__(Candidate)
    hit.__dict__.update(entry.candidate.__dict__)
    hit.part = part
    hit.matched = set()
    hit.titled = set()
    hit.bm25 = 0.0
    for index, term in enumerate(part.terms):
        frequency = entry.frequencies.get(term.number)
        if frequency is None:
            continue
        hit.matched.add(index)
        hit.bm25 += term.rarity * frequency * saturation / (frequency + entry.damping)
        if term.number in entry.title_terms:
            hit.titled.add(index)
    return hit


def make_candidate(opened: Index, row: Sequence[Any]) -> Candidate:
    """Build the candidate for a row of the index's table `file`, given as the values of `COLUMNS`."""
    name, title, category, joined_tags, path, updated, status = row
    tags = tuple([tag for tag in joined_tags.split(",") if tag])
    hit = Candidate(name, title, category, tags, updated, opened.root, path, opened.profile.kind)
    hit.status = status or ""
    return hit


def _look_up(opened: Index, number: int, term: Term) -> None:
    """Set a term's number, count (or an upper bound) and rarity."""
    count = 0
    for phrase in term.phrases:
        if phrase == term.prefix:
            last = phrase + "\U0010ffff"
            (longer,) = opened.connection.execute(_STARTING, (phrase, last)).fetchone()
            count += int(longer)
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
    """Map the entries that contain the rarest terms to the summed rarity of these terms.

    Terms are looked up until they have `enough` occurrences, and further ones while the sum stays below
    `most`. `postings` caches the look-ups.
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
    """Read entries by number. Of a long one only some stems are read; FTS5 is asked about the other terms."""
    execute = opened.connection.execute
    entries = {}
    cut = []
    has_languages = opened.version >= index_file.LANGUAGES_VERSION
    has_sections = opened.version >= index_file.SECTIONS_VERSION
    query = _ENTRIES_IN % (
        "language" if has_languages else _LANGUAGE_BEFORE,
        "sections" if has_sections else _SECTIONS_BEFORE,
    )
    for row in execute(f"{query}({','.join(map(str, numbers))})").fetchall():
        number, title, tags, body, parts, is_damaged, language, section_count = row[
            :_LEADING_COLUMNS
        ]
        columns = [title, tags, body, parts]
        hit = make_candidate(opened, row[_LEADING_COLUMNS:])
        hit.damaged = bool(is_damaged)
        hit.text = f"{title} {body}"
        hit.wording = confidence.Wording(hit.text)
        hit.passage = " ".join(columns)
        hit.length = sum([column.count(" ") + (column != "") for column in columns])
        entry = _Entry(number, hit, columns)
        entries[number] = entry
        entry.has_stop_words = language != ""
        entry.section_count = section_count
        entry.is_cut = len(body) == _MAX_BODY
        if entry.is_cut:
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
    """Add up numbers in FTS5's encoding: seven bits a byte, most significant first."""
    total = 0
    value = 0
    for byte in sizes:
        value = value << 7 | byte & 0x7F
        is_last_of_number = byte < 0x80  # noqa: PLR2004 - the bit that says that more bytes follow
        if is_last_of_number:
            total += value
            value = 0
    return total


def _count(opened: Index, entries: dict[int, _Entry], patterns: Sequence[Pattern]) -> None:
    """Set each entry's term frequencies, their places, and the damping for its length."""
    profile = opened.profile
    bm25 = profile.bm25
    totals = index_file.frequencies(opened.connection, [index_file.TOTAL])
    average = totals.get(index_file.TOTAL, 0) / (opened.size or 1) + bm25["padding"] or 1
    for entry in entries.values():
        _count_in_entry(entry, patterns, profile)
        length = (entry.candidate.length + bm25["padding"]) / average
        entry.damping = bm25["k1"] * (1 - bm25["b"] + bm25["b"] * length)


def _count_in_entry(entry: _Entry, patterns: Sequence[Pattern], profile: Profile) -> None:
    """Count the terms in an entry, and note their places in its body if it has sections."""
    entry.frequencies.clear()
    entry.title_frequencies.clear()
    entry.body_places.clear()
    title, tags, body, parts = entry.columns
    # Columns are separated by a line break, so that no phrase can match across two of them.
    text = f" {title} \n {tags} \n {parts} \n {body} "
    tags_start = len(title) + 3
    parts_start = tags_start + len(tags) + 3
    body_start = parts_start + len(parts) + 3
    weights = profile.weights
    frequencies = entry.frequencies
    for pattern in patterns:
        number, needle, _ = pattern
        if needle not in text:  # cheaper than the call, and usually true
            continue
        for place, weight in find_pattern(text, pattern, profile.bm25["prefix"]):
            if place >= body_start:
                worth = weights["body"] * weight
                if entry.section_count:
                    occurrence = (place - body_start - 1, weight)
                    entry.body_places.setdefault(number, []).append(occurrence)
            elif place >= parts_start:
                worth = weights["parts"] * weight
            else:
                worth = weights["title" if place < tags_start else "tags"] * weight
                known = entry.title_frequencies.get(number, 0.0)
                entry.title_frequencies[number] = known + worth
                entry.title_terms.add(number)
            frequencies[number] = frequencies.get(number, 0.0) + worth
    for number in entry.indexed_terms:
        frequencies.setdefault(number, weights["body"])


def _add_passages(
    opened: Index,
    part: Part,
    hits: Sequence[Candidate],
    entries: Sequence[_Entry],
    patterns: Sequence[Pattern],
    most: int,
) -> None:
    """Add the best sections' scores to the `most` leading long entries.

    Other long entries count as if none of their sections contained anything from the query.
    """
    long_pairs = [pair for pair in zip(hits, entries, strict=True) if pair[1].section_count]
    if not long_pairs:
        return
    long_pairs.sort(key=lambda pair: -pair[0].bm25)
    leading = long_pairs[:most]
    _read_sections(opened, [entry for _, entry in leading], patterns)
    lengths = [passage.length for _, entry in leading for passage in entry.passages or ()]
    average = sum(lengths) / (len(lengths) or 1) + opened.profile.bm25["padding"] or 1
    for hit, entry in long_pairs[most:]:
        hit.bm25 /= 1 + PASSAGE
        hit.passage = _join_columns(entry, 0, _BEGINNING_CHARS)
    for hit, entry in leading:
        _add_best_passage(hit, entry, part, opened.profile, average)


def _read_sections(opened: Index, entries: Sequence[_Entry], patterns: Sequence[Pattern]) -> None:
    """Read the sections of entries, and the parts of their bodies that weren't read yet."""
    unread = [entry for entry in entries if entry.passages is None]
    if not unread:
        return
    from judgekit.retrieval import passages  # noqa: PLC0415 - many stores have short entries only

    passages_by_entry = passages.read_passages(opened, [entry.number for entry in unread])
    for entry in unread:
        if entry.is_cut:
            query = (_MAX_BODY + 1, entry.number)
            (rest,) = opened.connection.execute(_BODY_FROM, query).fetchone()
            entry.columns[_BODY] += rest
            entry.indexed_terms.clear()
            _count_in_entry(entry, patterns, opened.profile)
            entry.is_cut = False
        entry.passages = passages_by_entry.get(entry.number, [])
        # A heading's words occur in the body as well.
        found_patterns = [pattern for pattern in patterns if pattern[0] in entry.body_places]
        passages.count_in_passages(
            entry.passages, entry.body_places, found_patterns, opened.profile
        )


def _add_best_passage(
    hit: Candidate, entry: _Entry, part: Part, profile: Profile, average: float
) -> None:
    """Combine the BM25 of a hit's entry and its best section, and set the features its confidence needs."""
    from judgekit.retrieval import passages  # noqa: PLC0415 - many stores have short entries only

    sections = entry.passages or []
    scores = _score_passages(sections, entry, part, profile, average)
    best = max(scores, default=0.0)
    hit.bm25 = (hit.bm25 + PASSAGE * best) / (1 + PASSAGE)
    # Sections that match only because of their entry's title aren't named.
    numbers = [number for number, passage in enumerate(sections) if passage.frequencies]
    numbers.sort(key=lambda number: -scores[number])
    if not numbers:
        return
    passage = sections[numbers[0]]
    hit.sections = [passages.name_section(passage, numbers[0], hit.title)]
    for number in numbers[1:]:
        other = sections[number]
        is_apart = other.start >= passage.end or other.end <= passage.start
        if is_apart and scores[number] >= SECOND * best:
            hit.sections.append(passages.name_section(other, number, hit.title))
            break
    hit.matched = set(hit.titled)
    hit.headed = set()
    for index, term in enumerate(part.terms):
        if term.number in passage.frequencies:
            hit.matched.add(index)
        if term.number in passage.title_terms:
            hit.headed.add(index)
    hit.passage_length = passage.length
    hit.passage = _join_columns(entry, passage.start, passage.end, passage.titles)


def _join_columns(entry: _Entry, start: int, end: int, titles: str = "") -> str:
    """Join an entry's titles and tags, those of a section, and some characters of its body."""
    title, tags, body, _ = entry.columns
    return " ".join([title, tags, titles, body[start:end]])


def _score_passages(
    passages: Sequence[Passage],
    entry: _Entry,
    part: Part,
    profile: Profile,
    average: float,
) -> list[float]:
    """Return the BM25 of each section, with the titles and tags of its entry."""
    terms = []
    for term in part.terms:
        if term.number in entry.frequencies:
            terms.append((term.number, term.rarity, entry.title_frequencies.get(term.number, 0.0)))
    k1 = profile.bm25["k1"]
    b = profile.bm25["b"]
    padding = profile.bm25["padding"]
    scores = []
    for passage in passages:
        damping = k1 * (1 - b + b * (passage.length + padding) / average)
        score = 0.0
        for number, rarity, in_titles in terms:
            frequency = passage.frequencies.get(number, 0.0) + in_titles
            score += rarity * frequency * (k1 + 1) / (frequency + damping)
        scores.append(score)
    return scores


def _add_likeness(opened: Index, ranked: Sequence[tuple[Candidate, _Entry]]) -> None:
    """Move hits up that resemble the best ones, that is, share their most typical words."""
    feedback = opened.profile.feedback
    best = ranked[: min(int(feedback["entries"]), len(ranked) // 2)]
    if not best or not best[0][0].bm25:
        return
    if not all(entry.has_stop_words for _, entry in best):
        return  # the words they share may as well be `the` and `of`
    typical_words = _find_typical_words(opened, best)
    likenesses = []
    for _, entry in ranked:
        words = set(" ".join(entry.columns).split())
        weight = sum([weight for word, weight in typical_words.items() if word in words])
        likenesses.append(weight / (1 + entry.damping))
    most = max(likenesses)
    if not most:
        return
    share = feedback["share"]
    for (hit, entry), likeness in zip(ranked, likenesses, strict=True):
        if entry.has_stop_words:
            hit.score = (1 - share) * hit.score + share * likeness / most


def _list_subject_words(hit: Candidate, entry: _Entry) -> list[str]:
    """List the words that show a hit's subject: those of its section, or of the start of its columns."""
    if hit.sections:
        return hit.passage.split()[:_BEGINNING]
    words: list[str] = []
    for column in entry.columns:
        words += column.split(" ", _BEGINNING)[:_BEGINNING]
    return words


def _find_typical_words(
    opened: Index, best: Sequence[tuple[Candidate, _Entry]]
) -> dict[str, float]:
    """Weigh the words that are frequent in the best hits and rare in the store."""
    profile = opened.profile
    total = sum(hit.bm25 for hit, _ in best)
    shares: dict[str, float] = {}
    for hit, entry in best:
        length = hit.passage_length or hit.length
        share = hit.bm25 / (total * (length + profile.bm25["padding"]))
        for word in _list_subject_words(hit, entry):
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
