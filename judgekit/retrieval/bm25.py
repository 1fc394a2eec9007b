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
MAX_POSTINGS = 4_000
QUICK_POOL = 30
QUICK_MAX_POSTINGS = 2_500  # the same for a prompt, for which at most three hits are shown
MAX_LEADING = 20  # long entries whose sections are read
QUICK_MAX_LEADING = 6  # the same for a prompt, by all its parts
MIN_LEADING = 2  # of each of several parts
SECTION_WEIGHT = 0.5  # weight of an entry's best section in the order; the whole entry weighs 1
SECOND_SECTION_SHARE = 0.7  # share of the best section's BM25 from which a second one is named
MIN_HITS_PER_PART = 5  # hits of each of several parts
_ENOUGH_POOLS = 2  # how often (in pools) the chosen terms must occur, whatever that costs
_MAX_BODY_CHARS = 8_000  # characters of a body's stems that are read
_BEGINNING_CHARS = 700  # of the body of a long entry that doesn't lead, searched for neighbours
_BEGINNING_WORDS = 300  # words at the start of a column that show an entry's subject
_MAX_WORDS = 300  # looked up for their rarity

COLUMNS = "file.id, title, category, tags, path, updated, status"
_LEADING_COLUMNS = 8  # how many columns of `_ENTRIES_IN` precede these
_MATCHES = "SELECT group_concat(rowid) FROM text WHERE text MATCH ?"
_STARTING = "SELECT total(entries) FROM term WHERE term >= ? AND term < ?"
_ENTRIES_IN = f"""SELECT number, c0, c1, substr(c2, 1, {_MAX_BODY_CHARS}), c3, problem IS NOT NULL, %s, %s,
    {COLUMNS} FROM text_content JOIN file ON number = text_content.id WHERE number IN """  # noqa: S608 - our names
# Substitutes for columns that an earlier index doesn't have.
_LANGUAGE_BEFORE = "'english'"
_SECTIONS_BEFORE = "0"
_BODY_COLUMN = 2
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
    """Return the best matches for any part of a query, rated and best first.

    A `quick` search, for a prompt, scores fewer hits and doesn't look up frequent terms in a large store.
    That hardly changes the result.
    """
    return merge_parts(match_parts(opened, parts, pool, quick=quick))


def merge_parts(hits_by_part: Sequence[tuple[Part, list[Candidate]]]) -> list[Candidate]:
    """Merge all parts' hits, best first, keeping each entry's most confident hit."""
    all_hits: list[Candidate] = []
    for _, hits in hits_by_part:
        all_hits += hits
    if len(hits_by_part) > 1:  # the hits of a single part are sorted already
        all_hits.sort(key=lambda hit: -hit.confidence)

    best_by_place: dict[str, Candidate] = {}
    for hit in all_hits:
        if hit.place not in best_by_place:
            best_by_place[hit.place] = hit
    return list(best_by_place.values())


def match_parts(
    opened: Index, parts: Sequence[Part], pool: int = POOL, *, quick: bool = False
) -> list[tuple[Part, list[Candidate]]]:
    """Search for each part of a query. Returns each part with its best hits, best first.

    A quick search may skip parts that have only frequent terms.
    """
    term_by_text: dict[str, Term] = {}  # parts can share terms
    for part in parts:
        for term in part.terms:
            term_by_text[term.text] = term

    terms = list(term_by_text.values())
    for number, term in enumerate(terms):
        _set_rarity(opened, number, term)

    numbers_by_part = _choose_entries(opened, parts, pool, quick=quick)
    all_numbers: set[int] = set()
    for _, entry_numbers in numbers_by_part:
        all_numbers |= entry_numbers
    if not all_numbers:
        return []

    # Read each entry and count its terms only once, even if it's found by multiple parts.
    entries = _read_entries(opened, terms, sorted(all_numbers))
    patterns = list_patterns(terms)
    _count_terms(opened, entries, patterns)

    leading_count = MAX_LEADING
    if quick:
        leading_count = max(QUICK_MAX_LEADING // len(numbers_by_part), MIN_LEADING)

    hits_by_part = []
    for part, entry_numbers in numbers_by_part:
        entries_of_part = [entry for number, entry in entries.items() if number in entry_numbers]
        hits = _rate_entries(opened, part, entries_of_part, patterns, leading_count, quick=quick)
        hits_by_part.append((part, hits))
    return hits_by_part


def _choose_entries(
    opened: Index, parts: Sequence[Part], pool: int, *, quick: bool
) -> list[tuple[Part, set[int]]]:
    """Choose the most promising entries for each part, up to `pool` entries in all.

    Parts with a rare term come first. A quick search leaves out the last parts if their terms, or those
    before, are very frequent.
    """
    # The limits for each part: how many entries to choose, and how many occurrences of its terms to look up,
    # at least and at most.
    part_count = len(parts) or 1
    pool_of_part = max(pool // part_count, min(pool, MIN_HITS_PER_PART))
    enough_occurrences = _ENOUGH_POOLS * pool_of_part
    most_occurrences = MAX_POSTINGS
    if quick:
        pool_of_part = min(pool_of_part, QUICK_POOL)
        enough_occurrences = 1
        most_occurrences = QUICK_MAX_POSTINGS // part_count

    def count_rarest(part: Part) -> int:
        """Count the entries with a part's rarest term."""
        # A term without any entries finds nothing, so treat it like one that's everywhere.
        return min([term.count or opened.size for term in part.terms])

    postings: Postings = {}  # of all terms looked up so far; `_weigh_entries` adds to it
    numbers_by_part: list[tuple[Part, set[int]]] = []
    for part in sorted(parts, key=count_rarest):
        occurrences = sum(map(len, postings.values()))  # of the terms looked up so far
        has_frequent_terms_only = count_rarest(part) > QUICK_MAX_POSTINGS
        is_too_costly = has_frequent_terms_only or occurrences > QUICK_MAX_POSTINGS
        # Search for the first part at any cost, so that a prompt of frequent words finds something.
        if quick and is_too_costly and numbers_by_part:
            break  # the remaining parts have even more frequent terms

        weight_by_entry = _weigh_entries(
            opened, part.terms, postings, enough_occurrences, most_occurrences
        )
        heaviest_first = sorted(weight_by_entry, key=weight_by_entry.__getitem__, reverse=True)
        # SQLite returned the entry numbers as strings.
        numbers_by_part.append((part, set(map(int, heaviest_first[:pool_of_part]))))
    return numbers_by_part


def _rate_entries(
    opened: Index,
    part: Part,
    entries: Sequence[_Entry],
    patterns: Sequence[Pattern],
    leading: int,
    *,
    quick: bool,
) -> list[Candidate]:
    """Convert entries to hits for one part of a query, rated and best first.

    For long entries, only the sections of the `leading` best ones are read.
    """
    saturation = opened.profile.bm25["k1"] + 1
    hits = [_make_hit(entry, part, saturation) for entry in entries]
    _add_passages(opened, part, hits, entries, patterns, leading)

    best_bm25 = max([hit.bm25 for hit in hits], default=0.0) or 1.0  # never divide by 0
    for hit in hits:
        hit.score = hit.bm25 / best_bm25
    # A hit also counts for more if it resembles the best hits.
    if not quick:
        pairs = list(zip(hits, entries, strict=True))
        pairs.sort(key=lambda pair: -pair[0].bm25)
        _add_likeness(opened, pairs)

    prompt_part = part if quick else None  # only a prompt can be mere talk
    return confidence.rank_hits(hits, part.terms, opened.size, opened.profile, prompt_part)


def _make_hit(entry: _Entry, part: Part, saturation: float) -> Candidate:
    """Convert an entry to a part's hit, with its BM25 and the indexes of its matching terms.

    `saturation` is k1 + 1 in the BM25 formula.
    """
    # Copy the attributes, since an entry can be a hit for multiple parts. `__init__` would reset some.
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
    """Build a candidate from the `COLUMNS` of a row in the index's `file` table."""
    entry_id, title, category, joined_tags, path, updated, status = row
    tags = tuple([tag for tag in joined_tags.split(",") if tag])
    kind = opened.profile.kind
    hit = Candidate(entry_id, title, category, tags, updated, opened.root, path, kind)
    hit.status = status or ""
    return hit


def _set_rarity(opened: Index, number: int, term: Term) -> None:
    """Count the entries that contain a term, and set the term's `number`, `count` and `rarity`.

    The count is an upper limit: an entry with multiple forms of the term is counted for each.
    """
    count = 0
    for phrase in term.phrases:
        if phrase == term.prefix:
            # Every word with this prefix sorts before this string.
            end = phrase + "\U0010ffff"
            (prefix_count,) = opened.connection.execute(_STARTING, (phrase, end)).fetchone()
            count += int(prefix_count)
        else:
            # At most as many entries have the phrase as have its rarest stem.
            stems = phrase.split()
            counts = index_file.count_entries_by_stem(opened.connection, stems)
            count += min([counts.get(stem, 0) for stem in stems], default=0)

    term.number = number
    term.count = min(count, opened.size)
    term.rarity = confidence.compute_rarity(
        term.count, opened.size, opened.profile.background, common=term.common
    )


def _weigh_entries(
    opened: Index, terms: Sequence[Term], postings: Postings, enough: int, limit: int
) -> dict[str, float]:
    """Look up a part's rarest terms, and return the sum of the rarities for each entry that has any.

    The terms have at least `enough` occurrences, if possible, and otherwise at most `limit`. The entries for
    each term are added to `postings`, for the next parts.
    """
    weight_by_entry: dict[str, float] = {}
    occurrences = 0
    for term in sorted(terms, key=lambda term: term.count):
        if occurrences >= enough and occurrences + term.count > limit:
            break
        if not term.count:  # it doesn't occur at all
            continue

        occurrences += term.count
        if term.number not in postings:
            (joined_numbers,) = opened.connection.execute(_MATCHES, (term.expression,)).fetchone()
            postings[term.number] = joined_numbers.split(",") if joined_numbers else []

        for entry in postings[term.number]:
            weight_by_entry[entry] = weight_by_entry.get(entry, 0.0) + term.rarity

    return weight_by_entry


def _read_entries(opened: Index, terms: Sequence[Term], numbers: list[int]) -> dict[int, _Entry]:
    """Read the entries with these numbers, and return them by number.

    For a very long entry, only the start of the body is read, and FTS5 finds the terms in the complete entry.
    """
    execute = opened.connection.execute
    has_languages = opened.version >= index_file.LANGUAGES_VERSION
    has_sections = opened.version >= index_file.SECTIONS_VERSION
    query = _ENTRIES_IN % (
        "language" if has_languages else _LANGUAGE_BEFORE,
        "sections" if has_sections else _SECTIONS_BEFORE,
    )
    joined_numbers = ",".join(map(str, numbers))
    entries = {}
    cut_numbers = []
    for row in execute(f"{query}({joined_numbers})").fetchall():
        leading_columns = row[:_LEADING_COLUMNS]
        number, title, tags, body, parts, is_damaged, language, section_count = leading_columns
        columns = [title, tags, body, parts]

        hit = make_candidate(opened, row[_LEADING_COLUMNS:])
        hit.damaged = bool(is_damaged)
        hit.text = f"{title} {body}"
        hit.wording = confidence.Wording(hit.text)
        hit.passage = " ".join(columns)
        # A column of three words contains two spaces, but an empty one has no words.
        hit.length = sum([column.count(" ") + 1 for column in columns if column])

        entry = _Entry(number, hit, columns)
        entries[number] = entry
        entry.has_stop_words = language != ""  # "" if the language isn't known
        entry.section_count = section_count
        entry.is_cut = len(body) == _MAX_BODY_CHARS  # the query doesn't return more
        if entry.is_cut:
            (sizes,) = execute("SELECT sz FROM text_docsize WHERE id = ?", (number,)).fetchone()
            hit.length = _add_up_sizes(sizes)
            cut_numbers.append(number)

    if cut_numbers:
        joined_numbers = ",".join(map(str, cut_numbers))
        query = f"{_MATCHES_IN}({joined_numbers})"
        for term in terms:
            for (number,) in execute(query, (term.expression,)).fetchall():
                entries[number].indexed_terms.add(term.number)

    return entries


def _add_up_sizes(sizes: bytes) -> int:
    """Add up numbers in FTS5's encoding: seven bits per byte, most significant first.

    If a byte's highest bit is set, the next byte belongs to the same number.
    """
    total = 0
    value = 0
    for byte in sizes:
        value = value << 7 | byte & 0x7F  # append the byte's lower seven bits
        is_last_of_number = byte < 0x80  # noqa: PLR2004 - the highest bit
        if is_last_of_number:
            total += value
            value = 0
    return total


def _count_terms(opened: Index, entries: dict[int, _Entry], patterns: Sequence[Pattern]) -> None:
    """Set each entry's term frequencies and positions, and its damping by length."""
    profile = opened.profile
    bm25 = profile.bm25
    padding = bm25["padding"]
    totals = index_file.count_entries_by_stem(opened.connection, [index_file.TOTAL])
    word_count = totals.get(index_file.TOTAL, 0)  # in all entries
    average_length = word_count / (opened.size or 1) + padding
    if not average_length:  # never divide by 0
        average_length = 1

    for entry in entries.values():
        _count_in_entry(entry, patterns, profile)
        relative_length = (entry.candidate.length + padding) / average_length
        entry.damping = bm25["k1"] * (1 - bm25["b"] + bm25["b"] * relative_length)


def _count_in_entry(entry: _Entry, patterns: Sequence[Pattern], profile: Profile) -> None:
    """Set an entry's weighted term frequencies, and with sections, the terms' positions."""
    entry.frequencies.clear()
    entry.title_frequencies.clear()
    entry.body_places.clear()

    title, tags, body, parts = entry.columns
    # Separate the columns by a line break, so that no phrase matches across columns.
    text = f" {title} \n {tags} \n {parts} \n {body} "
    tags_start = len(title) + 3  # two spaces and the line break
    parts_start = tags_start + len(tags) + 3
    body_start = parts_start + len(parts) + 3  # a position from here on is in the body

    weights = profile.weights
    frequencies = entry.frequencies
    for pattern in patterns:
        number, needle, _ = pattern
        if needle not in text:  # true of most patterns, and quicker than the call
            continue

        for position, weight in find_pattern(text, pattern, profile.bm25["prefix"]):
            if position >= body_start:
                weighted = weights["body"] * weight
                if entry.section_count:
                    # `- 1` because a space precedes the body in this text.
                    occurrence = (position - body_start - 1, weight)
                    entry.body_places.setdefault(number, []).append(occurrence)
            elif position >= parts_start:
                weighted = weights["parts"] * weight
            else:
                column = "title" if position < tags_start else "tags"
                weighted = weights[column] * weight
                frequency_before = entry.title_frequencies.get(number, 0.0)
                entry.title_frequencies[number] = frequency_before + weighted
                entry.title_terms.add(number)

            frequencies[number] = frequencies.get(number, 0.0) + weighted

    # FTS5 found these terms in the unread rest of the body.
    for number in entry.indexed_terms:
        if number not in frequencies:
            frequencies[number] = weights["body"]


def _add_passages(
    opened: Index,
    part: Part,
    hits: Sequence[Candidate],
    entries: Sequence[_Entry],
    patterns: Sequence[Pattern],
    limit: int,
) -> None:
    """Add the best section's score to the `limit` leading long entries.

    The other long entries are scored as if their sections didn't match.
    """
    long_pairs = []
    for hit, entry in zip(hits, entries, strict=True):
        if entry.section_count:
            long_pairs.append((hit, entry))

    if not long_pairs:
        return

    long_pairs.sort(key=lambda pair: -pair[0].bm25)
    leading_pairs = long_pairs[:limit]
    other_pairs = long_pairs[limit:]
    _read_sections(opened, [entry for _, entry in leading_pairs], patterns)

    lengths: list[int] = []
    for _, entry in leading_pairs:
        lengths += [passage.length for passage in entry.passages or ()]
    average_length = sum(lengths) / (len(lengths) or 1) + opened.profile.bm25["padding"]
    if not average_length:  # never divide by 0
        average_length = 1

    for hit, entry in other_pairs:
        hit.bm25 /= 1 + SECTION_WEIGHT  # as if the best section's score were 0
        hit.passage = _join_columns(entry, 0, _BEGINNING_CHARS)

    for hit, entry in leading_pairs:
        _add_best_passage(hit, entry, part, opened.profile, average_length)


def _read_sections(opened: Index, entries: Sequence[_Entry], patterns: Sequence[Pattern]) -> None:
    """Read entries' sections, and the rest of their bodies if only the start was read."""
    unread_entries = [entry for entry in entries if entry.passages is None]
    if not unread_entries:
        return

    from judgekit.retrieval import passages  # noqa: PLC0415 - many stores have short entries only

    numbers = [entry.number for entry in unread_entries]
    passages_by_entry = passages.read_passages(opened, numbers)
    for entry in unread_entries:
        if entry.is_cut:
            values = (_MAX_BODY_CHARS + 1, entry.number)  # SQLite counts characters from 1
            (unread_body,) = opened.connection.execute(_BODY_FROM, values).fetchone()
            entry.columns[_BODY_COLUMN] += unread_body
            entry.indexed_terms.clear()
            _count_in_entry(entry, patterns, opened.profile)
            entry.is_cut = False

        entry.passages = passages_by_entry.get(entry.number, [])
        # The body contains the headings, so terms that aren't in the body aren't in headings either.
        body_patterns = []
        for pattern in patterns:
            term_number, _, _ = pattern
            if term_number in entry.body_places:
                body_patterns.append(pattern)
        passages.count_in_passages(entry.passages, entry.body_places, body_patterns, opened.profile)


def _add_best_passage(
    hit: Candidate, entry: _Entry, part: Part, profile: Profile, average: float
) -> None:
    """Combine a hit's BM25 with its best section's, and make that section the hit's passage.

    A second section is listed if it's nearly as good and doesn't overlap.
    """
    from judgekit.retrieval import passages  # noqa: PLC0415 - many stores have short entries only

    sections = entry.passages or []
    scores = _score_passages(sections, entry, part, profile, average)
    best_score = max(scores, default=0.0)
    hit.bm25 = (hit.bm25 + SECTION_WEIGHT * best_score) / (1 + SECTION_WEIGHT)

    # Don't list sections that match only because of the entry's title.
    numbers = [number for number, section in enumerate(sections) if section.frequencies]
    if not numbers:
        return

    numbers.sort(key=lambda number: -scores[number])
    best_number, *other_numbers = numbers
    best_section = sections[best_number]
    hit.sections = [passages.name_section(best_section, best_number, hit.title)]
    for number in other_numbers:
        other_section = sections[number]
        overlaps = other_section.start < best_section.end and other_section.end > best_section.start
        if not overlaps and scores[number] >= SECOND_SECTION_SHARE * best_score:
            hit.sections.append(passages.name_section(other_section, number, hit.title))
            break

    # From here on, only count the terms in the title, tags and best section.
    hit.matched = set(hit.titled)
    hit.headed = set()
    for index, term in enumerate(part.terms):
        if term.number in best_section.frequencies:
            hit.matched.add(index)
        if term.number in best_section.title_terms:
            hit.headed.add(index)

    hit.passage_length = best_section.length
    hit.passage = _join_columns(entry, best_section.start, best_section.end, best_section.titles)


def _join_columns(entry: _Entry, start: int, end: int, titles: str = "") -> str:
    """Join an entry's title and tags, a section's headings, and part of the body."""
    title, tags, body, _ = entry.columns
    return " ".join([title, tags, titles, body[start:end]])


def _score_passages(
    passages: Sequence[Passage],
    entry: _Entry,
    part: Part,
    profile: Profile,
    average: float,
) -> list[float]:
    """Return each section's BM25, which includes matches in the entry's title and tags.

    `average` is the mean section length in words.
    """
    terms = []
    for term in part.terms:
        if term.number in entry.frequencies:
            title_frequency = entry.title_frequencies.get(term.number, 0.0)
            terms.append((term.number, term.rarity, title_frequency))

    k1 = profile.bm25["k1"]
    b = profile.bm25["b"]
    padding = profile.bm25["padding"]

    # Score each section like a document.
    scores = []
    for passage in passages:
        relative_length = (passage.length + padding) / average
        damping = k1 * (1 - b + b * relative_length)
        score = 0.0
        for number, rarity, title_frequency in terms:
            frequency = passage.frequencies.get(number, 0.0) + title_frequency
            score += rarity * frequency * (k1 + 1) / (frequency + damping)
        scores.append(score)

    return scores


def _add_likeness(opened: Index, ranked: Sequence[tuple[Candidate, _Entry]]) -> None:
    """Raise the scores of hits that share typical words with the best hits (pseudo-relevance feedback).

    `ranked` are the hits with their entries, best first.
    """
    feedback = opened.profile.feedback
    best_count = min(int(feedback["entries"]), len(ranked) // 2)
    best_pairs = ranked[:best_count]
    if not best_pairs:
        return

    first_hit, _ = best_pairs[0]
    if not first_hit.bm25:
        return
    if not all(entry.has_stop_words for _, entry in best_pairs):
        return  # in an unknown language, the shared words might be `the` and `of`

    typical_words = _find_typical_words(opened, best_pairs)
    likenesses = []
    for _, entry in ranked:
        words = set(" ".join(entry.columns).split())
        weight = sum([weight for word, weight in typical_words.items() if word in words])
        likenesses.append(weight / (1 + entry.damping))

    highest_likeness = max(likenesses)
    if not highest_likeness:
        return

    share = feedback["share"]  # of the likeness in the new score
    for (hit, entry), likeness in zip(ranked, likenesses, strict=True):
        if entry.has_stop_words:
            hit.score = (1 - share) * hit.score + share * likeness / highest_likeness


def _list_subject_words(hit: Candidate, entry: _Entry) -> list[str]:
    """List the first words of a hit's section, or of each column. They usually show the subject."""
    if hit.sections:  # then the passage is the text of the best section
        return hit.passage.split()[:_BEGINNING_WORDS]
    words: list[str] = []
    for column in entry.columns:
        # Limit the splits, since a column can be long. The last piece is the unsplit rest, so drop it.
        words += column.split(" ", _BEGINNING_WORDS)[:_BEGINNING_WORDS]
    return words


def _find_typical_words(
    opened: Index, best: Sequence[tuple[Candidate, _Entry]]
) -> dict[str, float]:
    """Find words that are frequent in the best hits but rare in the store, with their weights."""
    profile = opened.profile
    total = sum(hit.bm25 for hit, _ in best)
    shares: dict[str, float] = {}
    for hit, entry in best:
        length = hit.passage_length or hit.length
        # The better and shorter a hit, the more each of its words counts.
        share = hit.bm25 / (total * (length + profile.bm25["padding"]))
        for word in _list_subject_words(hit, entry):
            shares[word] = shares.get(word, 0.0) + share

    # Skip single characters, and pieces of Chinese, Thai and Korean words.
    words = [word for word in shares if len(word) > 1 and not has_runs(word)]
    words = words[:_MAX_WORDS]
    rarities = {}
    for word, count in index_file.count_entries_by_stem(opened.connection, words).items():
        if count > 1:  # a word in a single entry doesn't show that entries are alike
            rarities[word] = confidence.compute_rarity(
                count, opened.size, profile.background, common=False
            )

    # Typical words are both frequent in the best hits and rare in the store.
    ranked_words = [(shares[word] * rarity, word) for word, rarity in rarities.items()]
    ranked_words.sort(reverse=True)
    word_count = int(profile.feedback["words"])
    weights = {}
    for typicality, word in ranked_words[:word_count]:
        weights[word] = typicality * rarities[word]
    return weights
