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
    from collections.abc import Mapping, Sequence
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
# For each entry to choose, this many occurrences are looked up, whatever that costs.
_MIN_OCCURRENCES_PER_ENTRY = 2
_MAX_BODY_CHARS = 8_000  # characters of a body's stems that are read
_BEGINNING_CHARS = 700  # of the body of a long entry that doesn't lead, searched for neighbours
_BEGINNING_WORDS = 300  # words at the start of a column that show an entry's subject
_MAX_WORDS = 300  # looked up for their rarity

COLUMNS = "file.id, title, category, tags, path, updated, status"
_LEADING_COLUMN_COUNT = 8  # how many columns of `_ENTRIES_QUERY` precede these
_MATCHES_QUERY = "SELECT group_concat(rowid) FROM text WHERE text MATCH ?"
_PREFIX_COUNT_QUERY = "SELECT total(entries) FROM term WHERE term >= ? AND term < ?"
_ENTRIES_QUERY = f"""SELECT number, c0, c1, substr(c2, 1, {_MAX_BODY_CHARS}), c3, problem IS NOT NULL, %s, %s,
    {COLUMNS} FROM text_content JOIN file ON number = text_content.id WHERE number IN """  # noqa: S608 - our names
# Substitutes for columns that an earlier index doesn't have.
_OLD_INDEX_LANGUAGE = "'english'"
_OLD_INDEX_SECTIONS = "0"
_BODY_COLUMN = 2
_REST_OF_BODY_QUERY = "SELECT substr(c2, ?) FROM text_content WHERE id = ?"
_MATCHES_AMONG_QUERY = "SELECT rowid FROM text WHERE text MATCH ? AND rowid IN "


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
        "indexed_terms",
        "is_cut",
        "is_language_known",
        "number",
        "passages",
        "section_count",
        "title_frequencies",
        "title_terms",
    )

    def __init__(self, number: int, candidate: Candidate, columns: list[str]) -> None:
        self.number = number
        self.candidate = candidate
        self.columns = columns  # the stems of its title, tags, body and parts of compound words
        self.section_count = 0
        self.passages: list[Passage] | None = None  # its sections, once they're read
        self.is_cut = False  # whether only the start of its long body is read
        self.damping = 0.0  # the part of BM25's divisor that grows with its length
        # If not, stop words such as `the` are still among the stems.
        self.is_language_known = True

        # These map a term's number to its weighted frequency.
        self.frequencies: dict[int, float] = {}  # in all columns
        self.title_frequencies: dict[int, float] = {}  # in the title and tags
        # The positions and weights of each term in the body. It's empty without sections.
        self.body_places: dict[int, list[tuple[int, float]]] = {}

        # These contain the numbers of terms.
        self.title_terms: set[int] = set()  # in the title or tags
        # Terms that FTS5 finds in the complete entry, unread text included; only set if the entry is cut.
        self.indexed_terms: set[int] = set()


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
        if hit.relative_path not in best_by_place:
            best_by_place[hit.relative_path] = hit
    return list(best_by_place.values())


def match_parts(
    opened: Index, parts: Sequence[Part], pool: int = POOL, *, quick: bool = False
) -> list[tuple[Part, list[Candidate]]]:
    """Search for each part of a query. Returns each part with its best hits, best first.

    A quick search may skip parts that have only frequent terms.
    """
    terms = _number_terms(opened, parts)
    numbers_by_part = _choose_entries(opened, parts, pool, quick=quick)
    all_numbers: set[int] = set()
    for _, entry_numbers in numbers_by_part:
        all_numbers.update(entry_numbers)
    if not all_numbers:
        return []

    # Read each entry and count its terms only once, even if it's found by multiple parts.
    entries = _read_entries(opened, terms, sorted(all_numbers))
    patterns = list_patterns(terms)
    _count_terms(opened, entries, patterns)

    # For each part, the sections of only so many long entries are read.
    long_entry_limit = _limit_long_entries(len(numbers_by_part), quick=quick)
    hits_by_part = []
    for part, entry_numbers in numbers_by_part:
        entries_of_part = [entry for number, entry in entries.items() if number in entry_numbers]
        hits = _rate_entries(opened, part, entries_of_part, patterns, long_entry_limit, quick=quick)
        hits_by_part.append((part, hits))
    return hits_by_part


def _number_terms(opened: Index, parts: Sequence[Part]) -> list[Term]:
    """List the distinct terms of all parts, and set each one's number, count and rarity."""
    # If two parts have a term with the same text, it's the same object, so it needs only one number.
    term_by_text: dict[str, Term] = {}
    for part in parts:
        for term in part.terms:
            term_by_text[term.text] = term

    terms = list(term_by_text.values())
    for number, term in enumerate(terms):
        _set_rarity(opened, number, term)
    return terms


def _limit_long_entries(part_count: int, *, quick: bool) -> int:
    """Return the number of long entries for each part whose sections are read."""
    if not quick:
        return MAX_LEADING
    return max(QUICK_MAX_LEADING // part_count, MIN_LEADING)


def _choose_entries(
    opened: Index, parts: Sequence[Part], pool: int, *, quick: bool
) -> list[tuple[Part, set[int]]]:
    """Choose the most promising entries for each part, up to about `pool` entries in all.

    Parts with a rare term come first. A quick search stops at the first part that's too costly.
    """
    limits = _set_limits(len(parts) or 1, pool, quick=quick)
    postings: Postings = {}  # of all terms looked up so far; `_weigh_entries` adds to it
    numbers_by_part: list[tuple[Part, set[int]]] = []
    for part in sorted(parts, key=lambda part: _count_rarest(opened, part)):
        # Always search for the first part, so that a prompt of frequent words finds something.
        is_first = not numbers_by_part
        if quick and not is_first and _is_too_costly(opened, part, postings):
            break  # the remaining parts are at least as costly

        weight_by_entry = _weigh_entries(opened, part.terms, postings, limits)
        heaviest_first = sorted(weight_by_entry, key=weight_by_entry.__getitem__, reverse=True)
        # SQLite returned the entry numbers as strings.
        entry_numbers = set(map(int, heaviest_first[: limits.max_entries]))
        numbers_by_part.append((part, entry_numbers))
    return numbers_by_part


class _Limits:
    """The limits for one part: entries to choose, and occurrences of its terms to look up."""

    __slots__ = ("enough_occurrences", "max_entries", "max_occurrences")

    def __init__(self, *, entries: int, enough_occurrences: int, max_occurrences: int) -> None:
        self.max_entries = entries
        # With so many occurrences found, a term isn't looked up if it would exceed the maximum.
        self.enough_occurrences = enough_occurrences
        self.max_occurrences = max_occurrences


def _set_limits(part_count: int, pool: int, *, quick: bool) -> _Limits:
    """Share `pool` entries between the parts, and limit the occurrences to look up for each.

    Each part gets at least `MIN_HITS_PER_PART` entries, or the whole pool if that's smaller.
    """
    fair_share = pool // part_count
    least_share = min(pool, MIN_HITS_PER_PART)
    entries = max(fair_share, least_share)
    if quick:
        return _Limits(
            entries=min(entries, QUICK_POOL),
            enough_occurrences=1,  # only the rarest term is looked up at any cost
            max_occurrences=QUICK_MAX_POSTINGS // part_count,
        )
    return _Limits(
        entries=entries,
        # More than the entries to choose, so that there's a choice.
        enough_occurrences=_MIN_OCCURRENCES_PER_ENTRY * entries,
        max_occurrences=MAX_POSTINGS,
    )


def _count_rarest(opened: Index, part: Part) -> int:
    """Count the entries with a part's rarest term."""
    # A term without any entries finds nothing, so treat it like one that's everywhere.
    return min([term.entry_count or opened.entry_count for term in part.terms])


def _is_too_costly(opened: Index, part: Part, postings: Postings) -> bool:
    """Whether a part's terms, or those looked up so far, are too frequent for a quick search."""
    occurrences = sum(map(len, postings.values()))
    has_frequent_terms_only = _count_rarest(opened, part) > QUICK_MAX_POSTINGS
    return has_frequent_terms_only or occurrences > QUICK_MAX_POSTINGS


def _rate_entries(
    opened: Index,
    part: Part,
    entries: Sequence[_Entry],
    patterns: Sequence[Pattern],
    long_entry_limit: int,
    *,
    quick: bool,
) -> list[Candidate]:
    """Convert entries to hits for one part of a query, rated and best first.

    Sections are read only for the best `long_entry_limit` long entries. A `quick` search is for a prompt.
    """
    saturation = opened.profile.bm25["k1"] + 1
    hits = [_make_hit(entry, part, saturation) for entry in entries]
    _add_passages(opened, part, hits, entries, patterns, long_entry_limit)

    best_bm25 = max([hit.bm25 for hit in hits], default=0.0) or 1.0  # never divide by 0
    for hit in hits:
        hit.score = hit.bm25 / best_bm25

    if not quick:
        ranked = list(zip(hits, entries, strict=True))
        ranked.sort(key=lambda pair: -pair[0].bm25)
        _add_likeness(opened, ranked)

    # A part of a prompt can be mere talk, which lowers the confidence. A query never is.
    prompt_part = part if quick else None
    return confidence.rank_hits(hits, part.terms, opened.entry_count, opened.profile, prompt_part)


def _make_hit(entry: _Entry, part: Part, saturation: float) -> Candidate:
    """Convert an entry to a part's hit, with its BM25 and the indexes of its matching terms.

    `saturation` is k1 + 1 in the BM25 formula.
    """
    # Copy the attributes, since an entry can be a hit for multiple parts. `__init__` would reset some.
    hit = object.__new__(Candidate)
    hit.__dict__.update(entry.candidate.__dict__)
    hit.part = part
    hit.matched_terms = set()
    hit.title_terms = set()
    hit.bm25 = 0.0

    for index, term in enumerate(part.terms):
        frequency = entry.frequencies.get(term.number)
        if frequency is None:
            continue
        hit.matched_terms.add(index)
        hit.bm25 += term.rarity * frequency * saturation / (frequency + entry.damping)
        if term.number in entry.title_terms:
            hit.title_terms.add(index)

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
            count += _count_prefix(opened, phrase)
        else:
            count += _count_phrase(opened, phrase)

    term.number = number
    term.entry_count = min(count, opened.entry_count)
    term.rarity = confidence.compute_rarity(
        term.entry_count, opened.entry_count, opened.profile.background, common=term.is_common
    )


def _count_prefix(opened: Index, prefix: str) -> int:
    """Add up the numbers of entries with each word that starts with this prefix."""
    end = prefix + "\U0010ffff"  # every word with this prefix sorts before this string
    (count,) = opened.connection.execute(_PREFIX_COUNT_QUERY, (prefix, end)).fetchone()
    return int(count)


def _count_phrase(opened: Index, phrase: str) -> int:
    """Return an upper limit for the number of entries with a phrase: the number with its rarest stem."""
    stems = phrase.split()
    counts = index_file.count_entries_by_stem(opened.connection, stems)
    return min([counts.get(stem, 0) for stem in stems], default=0)


def _weigh_entries(
    opened: Index, terms: Sequence[Term], postings: Postings, limits: _Limits
) -> dict[str, float]:
    """Look up a part's terms, and return the sum of their rarities for each entry found.

    The rarest terms come first. The most frequent ones are left out if they'd exceed the limits. The entries
    for each term are added to `postings`, for the next parts.
    """
    weight_by_entry: dict[str, float] = {}
    occurrences = 0
    occurring_terms = [term for term in terms if term.entry_count]
    for term in sorted(occurring_terms, key=lambda term: term.entry_count):
        has_enough = occurrences >= limits.enough_occurrences
        occurrences += term.entry_count
        exceeds_limit = occurrences > limits.max_occurrences
        if has_enough and exceeds_limit:
            break  # the remaining terms are at least as frequent

        for entry in _look_up_entries(opened, term, postings):
            weight_by_entry[entry] = weight_by_entry.get(entry, 0.0) + term.rarity

    return weight_by_entry


def _look_up_entries(opened: Index, term: Term, postings: Postings) -> list[str]:
    """Return the numbers of the entries with a term, from `postings` if they're there already."""
    if term.number not in postings:
        (joined_numbers,) = opened.connection.execute(_MATCHES_QUERY, (term.expression,)).fetchone()
        postings[term.number] = joined_numbers.split(",") if joined_numbers else []
    return postings[term.number]


def _read_entries(opened: Index, terms: Sequence[Term], numbers: list[int]) -> dict[int, _Entry]:
    """Read the entries with these numbers, and return them by number.

    For a very long entry, only the start of the body is read, and FTS5 finds the terms in the complete entry.
    """
    joined_numbers = ",".join(map(str, numbers))
    query = f"{_choose_entries_query(opened.version)}({joined_numbers})"
    entries = {}
    for row in opened.connection.execute(query).fetchall():
        entry = _make_entry(opened, row)
        entries[entry.number] = entry

    cut_numbers = [number for number, entry in entries.items() if entry.is_cut]
    if cut_numbers:
        _add_indexed_terms(opened, entries, cut_numbers, terms)
    return entries


def _choose_entries_query(version: int) -> str:
    """Return the query for entries in an index of this version. Earlier ones lack some columns."""
    has_languages = version >= index_file.LANGUAGES_VERSION
    has_sections = version >= index_file.SECTIONS_VERSION
    return _ENTRIES_QUERY % (
        "language" if has_languages else _OLD_INDEX_LANGUAGE,
        "sections" if has_sections else _OLD_INDEX_SECTIONS,
    )


def _make_entry(opened: Index, row: Sequence[Any]) -> _Entry:
    """Make an entry and its candidate from a row that `_ENTRIES_QUERY` found."""
    leading_columns = row[:_LEADING_COLUMN_COUNT]
    number, title, tags, body, parts, is_damaged, language, section_count = leading_columns
    columns = [title, tags, body, parts]

    hit = make_candidate(opened, row[_LEADING_COLUMN_COUNT:])
    hit.is_damaged = bool(is_damaged)
    hit.text = f"{title} {body}"
    hit.wording = confidence.Wording(hit.text)
    hit.passage = " ".join(columns)

    entry = _Entry(number, hit, columns)
    entry.is_language_known = language != ""
    entry.section_count = section_count
    entry.is_cut = len(body) == _MAX_BODY_CHARS  # the query doesn't return more
    hit.stem_count = _read_length(opened, number) if entry.is_cut else _count_words(columns)
    return entry


def _count_words(columns: Sequence[str]) -> int:
    """Count the words in all columns, which have one space between words."""
    # A column of three words contains two spaces, but an empty one has no words.
    return sum([column.count(" ") + 1 for column in columns if column])


def _read_length(opened: Index, number: int) -> int:
    """Read the number of words in a complete entry, which FTS5 stores."""
    query = "SELECT sz FROM text_docsize WHERE id = ?"
    (sizes,) = opened.connection.execute(query, (number,)).fetchone()
    return _add_up_sizes(sizes)


def _add_indexed_terms(
    opened: Index, entries: dict[int, _Entry], cut_numbers: Sequence[int], terms: Sequence[Term]
) -> None:
    """Set the terms that FTS5 finds in each cut entry, including those in its unread rest."""
    joined_numbers = ",".join(map(str, cut_numbers))
    query = f"{_MATCHES_AMONG_QUERY}({joined_numbers})"
    for term in terms:
        for (number,) in opened.connection.execute(query, (term.expression,)).fetchall():
            entries[number].indexed_terms.add(term.number)


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
    average_length = _average_padded_length(opened)
    for entry in entries.values():
        _count_in_entry(entry, patterns, opened.profile)
        entry.damping = _compute_damping(entry.candidate.stem_count, average_length, opened.profile)


def _average_padded_length(opened: Index) -> float:
    """Return the mean length of the store's entries in words, plus BM25's padding. It's never 0."""
    # Beside the count for each stem, the index has the number of words in all entries.
    counts = index_file.count_entries_by_stem(opened.connection, [index_file.TOTAL])
    word_count = counts.get(index_file.TOTAL, 0)
    average_length = word_count / (opened.entry_count or 1) + opened.profile.bm25["padding"]
    return average_length or 1  # it's a divisor


def _compute_damping(length: int, average: float, profile: Profile) -> float:
    """Return the part of BM25's divisor that grows with the length, so that long texts don't win by it.

    `average` is the mean length in words, plus the padding.
    """
    k1 = profile.bm25["k1"]
    b = profile.bm25["b"]
    relative_length = (length + profile.bm25["padding"]) / average
    return k1 * (1 - b + b * relative_length)


def _count_in_entry(entry: _Entry, patterns: Sequence[Pattern], profile: Profile) -> None:
    """Set an entry's weighted term frequencies. If it has sections, also set the terms' positions."""
    entry.frequencies.clear()
    entry.title_frequencies.clear()
    entry.body_places.clear()

    text, starts = _join_for_patterns(entry.columns)
    for pattern in patterns:
        number, needle, _ = pattern
        if needle in text:  # false for most patterns, and quicker than the calls
            matches = find_pattern(text, pattern, profile.bm25["prefix"])
            _count_matches(entry, number, matches, starts, profile.weights)

    # A term that FTS5 found, but that isn't in the text, must be in the unread rest of the body.
    # Count it once.
    for number in entry.indexed_terms:
        entry.frequencies.setdefault(number, profile.weights["body"])


def _join_for_patterns(columns: Sequence[str]) -> tuple[str, tuple[int, int, int]]:
    """Join an entry's columns, with spaces around each.

    Returns the text, and the positions in it where the tags, the parts and the body start.
    """
    title, tags, body, parts = columns
    # Separate the columns by a line break, so that no phrase matches across columns.
    text = f" {title} \n {tags} \n {parts} \n {body} "
    # Each start is that of the space before the column.
    tags_start = len(title) + 3  # two spaces and the line break
    parts_start = tags_start + len(tags) + 3
    body_start = parts_start + len(parts) + 3
    return text, (tags_start, parts_start, body_start)


def _count_matches(
    entry: _Entry,
    number: int,
    matches: Sequence[tuple[int, float]],
    starts: tuple[int, int, int],
    weights: Mapping[str, float],
) -> None:
    """Add a pattern's matches to an entry's frequencies of term `number`.

    Each match has a position and a weight, which is multiplied by its column's weight.
    """
    tags_start, parts_start, body_start = starts
    for position, match_weight in matches:
        if position < tags_start:
            column = "title"
        elif position < parts_start:
            column = "tags"
        elif position < body_start:
            column = "parts"
        else:
            column = "body"

        frequency = weights[column] * match_weight
        entry.frequencies[number] = entry.frequencies.get(number, 0.0) + frequency
        if column in ("title", "tags"):
            frequency_before = entry.title_frequencies.get(number, 0.0)
            entry.title_frequencies[number] = frequency_before + frequency
            entry.title_terms.add(number)
        elif column == "body" and entry.section_count:
            # Sections are found by the position in the body, which a space precedes here.
            position_in_body = position - body_start - 1
            entry.body_places.setdefault(number, []).append((position_in_body, match_weight))


def _add_passages(
    opened: Index,
    part: Part,
    hits: Sequence[Candidate],
    entries: Sequence[_Entry],
    patterns: Sequence[Pattern],
    limit: int,
) -> None:
    """Rescore the hits for long entries by their sections.

    Sections are read only for the best `limit` hits. The others are scored as if no section matched.
    """
    long_pairs = _sort_long_entries(hits, entries)
    if not long_pairs:
        return

    leading_pairs = long_pairs[:limit]
    leading_entries = [entry for _, entry in leading_pairs]
    _read_sections(opened, leading_entries, patterns)
    average_length = _average_section_length(leading_entries, opened.profile)
    for hit, entry in leading_pairs:
        _add_best_passage(hit, entry, part, opened.profile, average_length)

    for hit, entry in long_pairs[limit:]:
        hit.bm25 /= 1 + SECTION_WEIGHT  # as if the best section's score were 0
        hit.passage = _join_columns(entry, 0, _BEGINNING_CHARS)


def _sort_long_entries(
    hits: Sequence[Candidate], entries: Sequence[_Entry]
) -> list[tuple[Candidate, _Entry]]:
    """Pair each hit with its entry, keep the long entries, and sort the pairs best first."""
    long_pairs = []
    for hit, entry in zip(hits, entries, strict=True):
        if entry.section_count:  # only long entries have sections
            long_pairs.append((hit, entry))
    long_pairs.sort(key=lambda pair: -pair[0].bm25)
    return long_pairs


def _average_section_length(entries: Sequence[_Entry], profile: Profile) -> float:
    """Return the mean length of the entries' sections in words, plus BM25's padding. It's never 0."""
    lengths: list[int] = []
    for entry in entries:
        lengths += [passage.word_count for passage in entry.passages or ()]
    mean_length = sum(lengths) / (len(lengths) or 1)
    average_length = mean_length + profile.bm25["padding"]
    return average_length or 1  # it's a divisor


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
            _read_rest(opened, entry, patterns)
        entry.passages = passages_by_entry.get(entry.number, [])
        body_patterns = _select_in_body(patterns, entry)
        passages.count_in_passages(entry.passages, entry.body_places, body_patterns, opened.profile)


def _read_rest(opened: Index, entry: _Entry, patterns: Sequence[Pattern]) -> None:
    """Read the rest of an entry's body, and count the terms in the complete entry."""
    rest_start = _MAX_BODY_CHARS + 1  # SQLite counts characters from 1
    (rest,) = opened.connection.execute(_REST_OF_BODY_QUERY, (rest_start, entry.number)).fetchone()
    entry.columns[_BODY_COLUMN] += rest
    entry.indexed_terms.clear()  # they stood for the terms in the rest
    _count_in_entry(entry, patterns, opened.profile)
    entry.is_cut = False


def _select_in_body(patterns: Sequence[Pattern], entry: _Entry) -> list[Pattern]:
    """Return the patterns of terms in an entry's body.

    The body contains the headings, so terms that aren't in the body aren't in headings either.
    """
    body_patterns = []
    for pattern in patterns:
        term_number, _, _ = pattern
        if term_number in entry.body_places:
            body_patterns.append(pattern)
    return body_patterns


def _add_best_passage(
    hit: Candidate, entry: _Entry, part: Part, profile: Profile, average: float
) -> None:
    """Combine a hit's BM25 with its best section's, and make that section the hit's passage.

    `average` is the mean section length in words, plus the padding.
    """
    sections = entry.passages or []
    scores = _score_passages(sections, entry, part, profile, average)
    best_score = max(scores, default=0.0)  # maybe of a section that matches only by the title
    hit.bm25 = (hit.bm25 + SECTION_WEIGHT * best_score) / (1 + SECTION_WEIGHT)

    # Don't list sections that match only because of the entry's title.
    matching_numbers = [number for number, section in enumerate(sections) if section.frequencies]
    if not matching_numbers:
        return

    matching_numbers.sort(key=lambda number: -scores[number])
    best_section = sections[matching_numbers[0]]
    _list_sections(hit, sections, matching_numbers, scores)
    _limit_matches(hit, part, best_section)
    hit.passage_stem_count = best_section.word_count
    hit.passage = _join_columns(
        entry, best_section.start, best_section.end, best_section.heading_stems
    )


def _list_sections(
    hit: Candidate, sections: Sequence[Passage], numbers: Sequence[int], scores: Sequence[float]
) -> None:
    """Set a hit's best section, and a second one that's nearly as good and doesn't overlap.

    `numbers` are those of the sections to choose from, best first.
    """
    from judgekit.retrieval import passages  # noqa: PLC0415 - many stores have short entries only

    best_number, *other_numbers = numbers
    best_section = sections[best_number]
    hit.sections = [passages.name_section(best_section, best_number, hit.title)]
    least_score = SECOND_SECTION_SHARE * max(scores)
    for number in other_numbers:
        section = sections[number]
        overlaps = section.start < best_section.end and section.end > best_section.start
        is_nearly_as_good = scores[number] >= least_score
        if is_nearly_as_good and not overlaps:
            hit.sections.append(passages.name_section(section, number, hit.title))
            return


def _limit_matches(hit: Candidate, part: Part, section: Passage) -> None:
    """Limit a hit's matched terms to those in its title, its tags and this section."""
    hit.matched_terms = set(hit.title_terms)
    hit.heading_terms = set()
    for index, term in enumerate(part.terms):
        if term.number in section.frequencies:
            hit.matched_terms.add(index)
        if term.number in section.title_terms:
            hit.heading_terms.add(index)


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
    """Return each section's BM25 score, as if it were a document with the entry's title and tags.

    `average` is the mean section length in words, plus the padding.
    """
    saturation = profile.bm25["k1"] + 1  # the most that a term's frequency multiplies its rarity by
    matched_terms = []  # each with its frequency in the entry's title and tags
    for term in part.terms:
        if term.number in entry.frequencies:
            title_frequency = entry.title_frequencies.get(term.number, 0.0)
            matched_terms.append((term, title_frequency))

    scores = []
    for passage in passages:
        damping = _compute_damping(passage.word_count, average, profile)
        score = 0.0
        for term, title_frequency in matched_terms:
            frequency = passage.frequencies.get(term.number, 0.0) + title_frequency
            score += term.rarity * frequency * saturation / (frequency + damping)
        scores.append(score)

    return scores


def _add_likeness(opened: Index, ranked: Sequence[tuple[Candidate, _Entry]]) -> None:
    """Raise the scores of hits that share typical words with the best hits (pseudo-relevance feedback).

    `ranked` are the hits with their entries, best first.
    """
    feedback = opened.profile.feedback
    # Of few hits, only the better half can say which words are typical.
    best_count = min(int(feedback["entries"]), len(ranked) // 2)
    best_pairs = ranked[:best_count]
    if not _show_subject(best_pairs):
        return

    typical_words = _find_typical_words(opened, best_pairs)
    likenesses = [_measure_likeness(entry, typical_words) for _, entry in ranked]
    highest_likeness = max(likenesses)
    if not highest_likeness:
        return

    # The new score is a weighted mean of the old one and the likeness.
    likeness_share = feedback["share"]
    for (hit, entry), likeness in zip(ranked, likenesses, strict=True):
        # An entry in an unknown language isn't comparable, so it keeps its score.
        if entry.is_language_known:
            old_part = (1 - likeness_share) * hit.score
            hit.score = old_part + likeness_share * likeness / highest_likeness


def _show_subject(best_pairs: Sequence[tuple[Candidate, _Entry]]) -> bool:
    """Whether the words of the best hits can show what the query is about."""
    if not best_pairs:
        return False
    first_hit, _ = best_pairs[0]
    if not first_hit.bm25:  # then no hit has a score to weight its words by
        return False
    # In an unknown language, the shared words might be `the` and `of`.
    return all(entry.is_language_known for _, entry in best_pairs)


def _measure_likeness(entry: _Entry, typical_words: Mapping[str, float]) -> float:
    """Add up the weights of the typical words in an entry. They count for less in a long one."""
    words = set(" ".join(entry.columns).split())
    weight = sum([weight for word, weight in typical_words.items() if word in words])
    return weight / (1 + entry.damping)


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
    share_by_word = _share_out(best, opened.profile.bm25["padding"])
    # Skip single characters, and pieces of Chinese, Thai and Korean words.
    words = [word for word in share_by_word if len(word) > 1 and not has_runs(word)]
    rarities = _compute_rarities(opened, words[:_MAX_WORDS])

    # A word's typicality is its TF-IDF weight: its share in the best hits times its rarity in the store.
    ranked_words = [(share_by_word[word] * rarity, word) for word, rarity in rarities.items()]
    ranked_words.sort(reverse=True)
    word_count = int(opened.profile.feedback["words"])
    weights = {}
    for typicality, word in ranked_words[:word_count]:
        # An entry's likeness stands for a product of TF-IDF weights, the best hits' and its own, so the
        # rarity counts twice.
        weights[word] = typicality * rarities[word]
    return weights


def _share_out(best: Sequence[tuple[Candidate, _Entry]], padding: float) -> dict[str, float]:
    """Return the share of each subject word in the best hits, weighted by the hits' BM25."""
    total = sum(hit.bm25 for hit, _ in best)
    shares: dict[str, float] = {}
    for hit, entry in best:
        length = hit.passage_stem_count or hit.stem_count
        # The better and shorter a hit, the more each of its words counts.
        share = hit.bm25 / (total * (length + padding))
        for word in _list_subject_words(hit, entry):
            shares[word] = shares.get(word, 0.0) + share
    return shares


def _compute_rarities(opened: Index, words: list[str]) -> dict[str, float]:
    """Compute the rarities of words that occur in at least two entries of the store."""
    rarities = {}
    for word, count in index_file.count_entries_by_stem(opened.connection, words).items():
        if count > 1:  # a word in a single entry doesn't show that entries are alike
            rarities[word] = confidence.compute_rarity(
                count, opened.entry_count, opened.profile.background, common=False
            )
    return rarities
