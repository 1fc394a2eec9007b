"""Time grows with a text, never with its square: public functions that take one are given hostile ones."""

from __future__ import annotations

import ast
import importlib
import json
import resource
import subprocess
import sys
import time
import tomllib
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from package import PACKAGE, trees
from pydantic import BaseModel
from told import first_prompt

from judgekit.config.patterns import MAX_PATTERN_CHARS
from judgekit.config.yamlfile import CONFIG_BYTES
from judgekit.data.cells import CellError
from judgekit.errors import JudgekitError
from judgekit.providers.decisions import DecisionQuestion
from judgekit.retrieval import compiled
from judgekit.rubric.loader import find_rubric

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LARGE = 4_000  # characters
LARGER = 30_000
SHARE = 8  # the smaller text is this many times smaller
MOST = 24.0  # times as much CPU for eight times the text: a square would take 64
FLOOR = 0.03  # seconds of CPU below which nothing is compared: a square of LARGE steps takes longer
TRIES = 3
SECONDS = 20  # of CPU that a command may take: without bounds these take minutes

DATA = tomllib.loads((Path(__file__).parent / "support" / "bounds.toml").read_text("utf-8"))
MARKS = "\u0301\u0323\u0327\u0334"  # of several classes, which normalising puts in order
REPEATED = (*DATA["hostile"], f"e{MARKS * 40}", "\ud800", "é a" + "a" * 60, "0" * 40 + " ")
HOSTILE = [("", piece, "") for piece in REPEATED]  # a beginning, a repeated middle, and an end
HEADER = "-----BEGIN PRIVATE KEY-----\n"
SECRETS = [
    *(("", piece, "") for piece in DATA["secrets"]),
    *(("\u00e9 ", "a", ""), ("a", "\u0301", ""), (HEADER, "\n", "A" * 40_000)),
    *(("://", "a:", ""), ("xoxb-", "1-", ""), ("", "token_", " = x")),
]
OWN = {*DATA["own"].split()}
RUBRIC = find_rubric("kls").rubric
PROFILE = compiled.Profiles(compiled.get_bundled_data()).by_kind["claude-memory"]
GERMAN = PROFILE.languages["german"]
HOOK = "retrieval: {enabled: true}\n"


class Scores(BaseModel):
    semantic: int
    pragmatic: int


class Answer(BaseModel):
    scores: Scores
    reasoning: str = ""


REPLY = '{"scores": {"semantic": 1, "pragmatic": 2}}'


def of(place: str) -> Callable[..., Any]:
    module, _, name = place.rpartition(".")
    found: Callable[..., Any] = getattr(importlib.import_module(f"judgekit.{module}"), name)
    return found


def as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def entry(text: str) -> None:
    made = of("retrieval.sources.Entry")("a", text, "note", tags=[text] * 3, body=text)
    of("retrieval.update.stem_entry")(made, PROFILE.language)


def memory(text: str) -> None:
    deep: Any = [text[:10]] * (len(text) // 10)
    for _ in range(300):
        deep = [deep]
    of("retrieval.sources.claude_memory.read_body_text")(
        {"content": {"a": text, "b": deep}}, ["b", "a"], 200_000
    )


def header(text: str) -> None:
    """Read a text as the header of a note: on one line, on many, and as a value that has no end."""
    read = of("retrieval.sources.front_matter.read_front_matter")
    lines = "\n".join(text[place : place + 20] for place in range(0, min(len(text), 90_000), 20))
    for value in (text[:90_000], lines, f'title: "{lines}', f"tags: [{lines}"):
        read(f"---\n{value}\n---\n")


def passage(text: str) -> None:
    table = of("retrieval.index_file.connect")(":memory:")
    table.execute(of("retrieval.search._CREATE_BODY_TABLE_STATEMENT"))
    terms = of("retrieval.terms.parse")("the jwt, jwt-jwt and aa a1 9 aB", PROFILE.language)
    of("retrieval.search._find_passage")(table, text, terms)
    table.close()


def patterns(text: str) -> None:
    with suppress(ValueError):
        of("config.patterns.Patterns")([f"{text[: MAX_PATTERN_CHARS - 2]}b"]).match("a" * 200)
    of("config.patterns.Patterns")(["*a*a*a*a*a*a*b", "**/a/**/b"]).match(text)
    rules = of("retrieval.scan.parse_ignore_patterns")(["*a*a*a*a*a*a*b", "**/a/**/b"])
    of("retrieval.scan.is_ignored")(rules, text, folder=False)


def failure(text: str) -> None:
    for start in ("", " ssl:<", "sk-abc"):
        of("providers.failures.classify_exception")(RuntimeError(start + text), ["sk-abcdefgh"])


def in_parts(text: str) -> None:
    of("providers.chat.normalise")(200, as_bytes(text))
    body = {"choices": [{"message": {"content": [text, {"type": "thinking", "thinking": text}]}}]}
    of("providers.chat.normalise")(200, as_bytes(json.dumps(body)))


def hooks_of_a_client(text: str) -> None:
    for hook in ({"command": text}, {"command": "env", "args": text[: len(text) // 4].split(" ")}):
        for each in (hook, dict.fromkeys(hook, "judgekit")):
            of("hooks.entries.is_ours")({"type": "command", **each})


def named(text: str) -> None:
    own = {"tags": (), "updated": 0.0, "root": "/r", "place": text, "kind": PROFILE.kind}
    of("hooks.repeats.is_named")(
        of("retrieval.confidence.Candidate")(text, text, "a", **own), text + text
    )


def candidates(text: str) -> None:
    shown = of("judging.documents.PromptCandidate")("a", text, text[:100], (text,) * 3, text[:300])
    of("judging.prompt.write_candidate_text")(shown)
    own = {"tags": (text,), "updated": 0.0, "root": "/r", "place": "a.json", "kind": PROFILE.kind}
    candidate: Any = of("retrieval.confidence.Candidate")("a", text, text, **own)
    of("hooks.context.render_context")(
        [candidate], ([candidate], [candidate]), "/p", {"/r": {text: text}}
    )


def asked_of_models(text: str) -> None:
    fence = of("judging.fence.Fence")()
    shown = of("judging.documents.PromptCandidate")("a", text, text[:100], (text,) * 3, text)
    part = of("judging.documents.VisibleFile")("A", text, len(text))
    query = of("judging.documents.Query")(text, (text,))
    of("judging.prompt.write_candidate_context")(fence, shown, query)
    of("judging.prompt.pair_context")(fence, text, [part])
    select = of("rubric.loader.find_rubric")("memory-relevance").rubric
    candidates = of("judging.documents.Candidates")(query, (shown,))
    first_prompt(select, candidates)
    compare = of("rubric.loader.find_rubric")("answer-preference").rubric
    file_of = of("judging.documents.make_file")
    pair = of("judging.documents.ComparisonInput")(text, (file_of("A", text), file_of("B", "b")))
    first_prompt(compare, pair)


def printed(text: str) -> None:
    texts = dict.fromkeys(("id", "title", "path", "category", "text", "snippet"), text)
    for raw in (text, f'{{"id": "{text}"}}\n{text}', json.dumps({**texts, "tags": [text] * 3})):
        with suppress(JudgekitError):
            for item in of("retrieval.command._parse_items")(raw):
                of("retrieval.command._build_candidate")(item, "candidate 1", "/r", PROFILE.labels)


def read(text: str) -> None:
    for raw in (text, f"{REPLY} {text}", f"{text} {REPLY}", f'{REPLY[:-1]}, "reasoning": "{text}'):
        for held in (False, True):
            with suppress(JudgekitError):
                of("replies.extract.read_answer")(raw, Answer, schema_enforced=held)


def differing(text: str) -> None:
    found, own = of("replies.scan.scan")(REPLY), Answer(scores=Scores(semantic=1, pragmatic=2))
    of("replies.extract._find_contradiction")(REPLY + text, found, own, nested=True)


def places(text: str) -> None:
    lower = text.lower()
    for each in (lower, f"kind: secret\n{lower}"):
        [
            *of("redaction.blocks.find_block_secrets")(
                each, [*of("redaction.secret_search._find_keyword_spans")(each)]
            )
        ]


def settings(text: str) -> None:
    """Read a text as lines that set passwords: behind a name, in quotes, in a list, in XML."""
    for line in (text, f"password={text}", f'password: "{text}', f"api_keys: [{text}"):
        list(of("redaction.setting_lines.find_in_settings")(line, 0, len(line)))


def tables(text: str) -> None:
    for lower in (
        f"||password||user||\n{text}",
        f"|_. password|\n{text}",
        f"{{|\n! password\n{text}",
    ):
        end = len(lower)
        stop = lower.find("\n")
        list(of("redaction.secret_tables.find_in_marked_tables")(f"|===\n|user|password\n{lower}"))
        list(of("redaction.secret_tables.find_in_wiki_table")(lower, 0, stop))
        list(of("redaction.secret_tables.find_wiki_pairs")(lower, 0, end))
        list(of("redaction.secret_tables.find_in_table")(lower.replace("||", "|"), 0, stop))


def regions(text: str) -> None:
    for quote in (f"{text} b", "  ".join([*text.split(), "b"]), f"  {text} "):
        of("cli.formats.handed_on.find_region")(quote, text)


def rows(text: str) -> None:
    given = find_rubric("groundedness").rubric.given  # type: ignore[union-attr]
    said = [
        {"role": text, "content": text},
        {"role": "tool", "name": text, "content": [text, text]},
    ]
    calls = [
        {
            "role": "assistant",
            "content": text,
            "tool_calls": [{"function": {"name": text, "arguments": text}}],
        }
    ]
    cells = (
        {"text": text, "question": said, "sources": text},
        {"messages": said + calls},
        {"messages": text},
    )
    for cell in (
        *cells,
        {"messages": [{"role": "user", "content": [*text]}] * 2},
        {text: text, "text": text},
    ):
        found = of("data.fields.choose_fields")("judge", [*cell], {}, "rows.jsonl")
        found.describe()
        with suppress(JudgekitError):
            of("data.fields.read_document")(found, SimpleNamespace(columns=cell), text, given)


def pairs(text: str) -> None:
    cells: tuple[dict[str, Any], ...] = (
        {"texts": text},
        {"a": text, "b": text, "winner": text, "author_a": text},
    )
    for cell in cells:
        found = of("data.fields.choose_fields")("compare", [*cell], {}, "rows.jsonl")
        of("data.fields.read_winner")(found, SimpleNamespace(columns=cell))
        with suppress(JudgekitError):
            of("data.fields.read_comparison")(found, SimpleNamespace(columns=cell), text)


def cell(text: str) -> None:
    with suppress(CellError):
        of("data.cells.check_text")(text)


QUESTION = DecisionQuestion("holds", "predicate", "Does it hold?")

# Calls of functions that want more than a text, and of things that take texts without being functions of one.
GIVEN: dict[str, Callable[[str], object]] = {
    "providers.decision_bodies.read_body": lambda text: of("providers.decision_bodies.read_body")(
        text.encode("utf-8", "replace"), (QUESTION,)
    ),
    "evaluation.row_views.mark_quotes": lambda text: of("evaluation.row_views.mark_quotes")(
        text, [text, f"{text}, and more"]
    ),
    "providers.base.choose_answering_name": lambda text: of("providers.base.choose_answering_name")(
        text, text
    ),
    "replies.layout.find_exact_end": lambda text: of("replies.layout.find_exact_end")(text, 0),
    "providers.decisions.read_answers": lambda text: of("providers.decisions.read_answers")(
        text, (QUESTION,)
    ),
    "judging.panel.list_writer_families": lambda text: of("judging.panel.list_writer_families")(
        [f"{text} <{text}>", f"claude <{text}"], [f"Co-Authored-By: {text}"]
    ),
    "cli.formats.handed_on.find_region": regions,
    "data.cells.check_text": cell,
    "config.yaml_text.parse_yaml": lambda text: of("config.yaml_text.parse_yaml")(
        text[: CONFIG_BYTES // 8]
    ),
    "judging.documents.decode": lambda text: of("judging.documents.decode")("a.md", as_bytes(text)),
    "data.fields.read_comparison": pairs,
    "data.fields.read_document": rows,
    "gate.github.parse_address": lambda text: of("gate.github.parse_address")(f"a@{text}", {}),
    "judging.review.is_quoted": lambda text: of("judging.review.is_quoted")(text[:2_000], text),
    "judging.fence.assign_labels": lambda text: of("judging.fence.assign_labels")(
        text, [*"abcdefgh"], text
    ),
    "providers.failures.classify_exception": failure,
    "providers.chat.normalise": in_parts,
    "config.patterns.Patterns": patterns,
    "retrieval.scan.parse_ignore_patterns": patterns,
    "retrieval.scan.is_ignored": patterns,
    "hooks.context.render_context": candidates,
    "hooks.entries.is_ours": hooks_of_a_client,
    "hooks.files.mentions_in_code": lambda text: of("hooks.files.mentions_in_code")(
        as_bytes(text), "judgekit"
    ),
    "hooks.git_hook.identify_owner": lambda text: of("hooks.git_hook.identify_owner")(
        as_bytes(text)
    ),
    "hooks.repeats.is_named": named,
    "judging.writing.make_messages": asked_of_models,
    "redaction.private_keys.find_private_keys": lambda text: of(
        "redaction.private_keys.find_private_keys"
    )(HEADER + text, (HEADER + text).lower()),
    "redaction.secret_search.find": lambda text: of("redaction.secret_search.find")(HEADER + text),
    "ledger.importing.import_lines": lambda text: of("ledger.importing._read_record")(
        as_bytes(text), text=True
    ),
    "replies.extract._find_contradiction": differing,
    "replies.extract.read_answer": read,
    "judging.prompt.write_query_context": lambda text: of("judging.prompt.shorten_to_line")(
        text, 200
    ),
    "retrieval.command.ask": printed,
    "retrieval.update.stem_entry": entry,
    "retrieval.search.list_passages": passage,
    "retrieval.sources.auto_memory.read": lambda text: of(
        "retrieval.sources.auto_memory._read_list_text"
    )("/nowhere", "MEMORY.md", text, None),
    "retrieval.sources.front_matter.read_front_matter": header,
    "retrieval.sources.yaml_flow.find_quote_end": lambda text: of(
        "retrieval.sources.yaml_flow.find_quote_end"
    )(text, '"', 0),
    "retrieval.sources.yaml_flow.unquote": lambda text: of("retrieval.sources.yaml_flow.unquote")(
        [text, text], '"'
    ),
    "retrieval.sources.force.find_status": lambda text: of("retrieval.sources.force.find_status")(
        {}, text
    ),
    "retrieval.sources.decode_file": lambda text: of("retrieval.sources.decode_file")(
        as_bytes(text), whole=True
    ),
    "retrieval.sources.claude_memory.read_body_text": memory,
    "redaction.blocks.find_block_secrets": places,
    "redaction.setting_lines.find_in_settings": settings,
    "git.normalise_address": lambda text: of("git.normalise_address")(text[:4_000], "/"),
    **dict.fromkeys(
        (
            "redaction.secret_tables.find_in_table",
            "redaction.secret_tables.find_in_wiki_table",
            "redaction.secret_tables.find_wiki_pairs",
            "redaction.secret_tables.find_in_marked_tables",
        ),
        tables,
    ),
    "retrieval.sources.split_file_name": lambda text: of("retrieval.sources.split_file_name")(
        text, text
    ),
    "retrieval.terms.find_pattern": lambda text: of("retrieval.terms.find_pattern")(
        text, (0, f" {text[:2]}", True), 0.5
    ),
    "retrieval.scripts.list_index_forms": lambda text: of("retrieval.scripts.list_index_forms")(
        7, text
    ),
    "retrieval.scripts.list_query_forms": lambda text: of("retrieval.scripts.list_query_forms")(
        7, text
    ),
    "rubric.search_path.heads": lambda text: [
        *of("rubric.search_path._HEAD_LINE_PATTERN").findall(f"title: {text}b")  # type: ignore[attr-defined]
    ],
}
# Functions of a text, with their further arguments.
BEHIND: dict[str, tuple[Any, ...]] = {
    "markdown.wrap": (300,),
    "hooks.entries.parse_settings": ("settings.json",),
    "replies.extract.extract": (Answer,),
    "judging.findings.mentions": (RUBRIC,),
    "ledger.records.hash_quote": (b"key",),
    "rubric.terms.parse": ("words.txt",),
    "providers.command.find_error_message": (SimpleNamespace(reply="json", reply_key="result"),),
    "providers.base.hide_secrets": (["sk-abcdefgh"],),
    "retrieval.terms.collect_hidden_words": (PROFILE.language,),
    **dict.fromkeys(("retrieval.terms.parse", "retrieval.terms.stem_word"), (PROFILE.language,)),
    "retrieval.terms.stem_text": (PROFILE.language,),
    **dict.fromkeys(
        ("retrieval.parts.parse", "retrieval.parts.make_single_part"), (PROFILE.language,)
    ),
    "retrieval.terms.make_terms": (PROFILE.language,),
    "retrieval.terms.choose_language": ([PROFILE.language, GERMAN],),
    "retrieval.terms.choose_languages": ([PROFILE.language], [GERMAN]),
    "retrieval.terms.cut_endings": (GERMAN.endings,),
    "retrieval.scripts.split_words": ((" .", "/."),),
    "retrieval.scripts.split_tokens": ("_-./:", (" .", "/.")),
    "text.shorten_to_line": (200,),
}
GIVEN |= {
    place: lambda text, place=place, more=more: of(place)(text, *more)  # type: ignore[misc]
    for place, more in BEHIND.items()
}

NOT_ASKED = {
    place: reason for reason, places in DATA["not_asked"].items() for place in places.split()
}


def public() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for path, tree in trees().items():
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        for node in tree.body:
            if isinstance(
                node, ast.FunctionDef | ast.AsyncFunctionDef
            ) and not node.name.startswith("_"):
                yield f"{module}.{node.name}", node


def texts(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    """Return the parameters of a function that are texts of others."""
    given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return [
        each
        for each in given
        if each.annotation is not None and each.arg not in OWN
        if ast.unparse(each.annotation) in ("str", "bytes", "str | None", "bytes | None")
    ]


def alone(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    wanted = len(node.args.posonlyargs) + len(node.args.args) - len(node.args.defaults)
    return wanted == 1 and None not in node.args.kw_defaults and (node.args.args[0] in texts(node))


def plainly(place: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Callable[[str], object]:
    """Return a call of a function with nothing but a text, as bytes if it takes bytes."""
    takes_bytes = "bytes" in ast.unparse(node.args.args[0])
    return lambda text: of(place)(as_bytes(text) if takes_bytes else text)


ASKED = GIVEN | {
    place: plainly(place, node)
    for place, node in public()
    if texts(node) and alone(node) and place not in NOT_ASKED and place not in GIVEN
}


def test_every_function_that_takes_a_text_is_asked_or_says_why_not() -> None:
    found = {place for place, node in public() if texts(node)}
    assert found <= {*ASKED, *NOT_ASKED}, (
        "put it into GIVEN, or say in NOT_ASKED why it is not measured"
    )
    assert not set(ASKED) & set(NOT_ASKED)
    assert set(NOT_ASKED) <= {place for place, _ in public()}


def test_a_call_is_one_that_the_function_takes() -> None:
    for call in GIVEN.values():
        with suppress(JudgekitError, ValueError, CellError):
            found: Any = call("plain words")
            list(found if hasattr(found, "__next__") else ())


def cpu(call: Callable[[str], object], text: str) -> float:
    """Return the seconds of CPU that a call takes, whatever it says of the text."""
    start = time.process_time()
    try:
        found = call(text)
        if hasattr(found, "__next__"):
            for _ in found:  # type: ignore[attr-defined]  # a generator
                pass
    except (
        JudgekitError,
        CellError,
        ValueError,
        TypeError,
        ArithmeticError,
        LookupError,
        RecursionError,
        UnicodeError,
    ):
        pass
    return time.process_time() - start


@pytest.mark.parametrize("size", [LARGE, pytest.param(LARGER, marks=pytest.mark.slow)])
@pytest.mark.parametrize("place", sorted(ASKED))
def test_time_grows_with_a_text_and_not_with_its_square(place: str, size: int) -> None:
    call = ASKED[place]
    cpu(call, "a")  # one-time imports and preparations
    for start, piece, end in HOSTILE + SECRETS * place.startswith(
        ("redaction.redact.", "redaction.lookalikes.", "judging.fence.")
    ):
        large, small = (
            f"{start}{piece * (length // len(piece) + 1)}{end}" for length in (size, size // SHARE)
        )
        took = cpu(call, large)
        if took <= FLOOR:
            continue
        less = min(cpu(call, small) for _ in range(TRIES))
        if took > MOST * less + FLOOR:  # perhaps by chance
            took = min(cpu(call, large) for _ in range(TRIES))
        told = f"{piece[:20]!r}: {less:.3f} s, then {took:.3f} s for {SHARE} times as much"
        assert took <= MOST * less + FLOOR, told


def doors(folder: Path) -> Iterator[tuple[list[str], str, dict[str, str]]]:
    """Yield words of the command line, the input, and the files on the way, in a project at `folder`."""
    store = ".claude/memory"
    index = "- [DECISION] jwt -> decisions/a.json #tags:a\n"
    asked = json.dumps({"prompt": "How do we refresh the jwt?", "cwd": str(folder)})
    title = json.dumps(
        {"title": f"jwt {MARKS * 100_000}", "content": {"decision": "jwt"}}, ensure_ascii=False
    )
    deep = "[" * 900 + json.dumps(["jwt"] * 600_000) + "]" * 900
    record = f'{{"title": "jwt", "content": {{"decision": {deep}}}}}'
    bomb = [
        f"a{at}: [{', '.join([f'*a{at - 1}'] * 9)}]".replace(": ", f": &a{at} ")
        for at in range(1, 12)
    ]
    yield ["hook"], asked, {f"{store}/decisions/a.json": title, f"{store}/index.md": index}
    named = {f"{store}/decisions/{'a' * 200}.json": '{"title": "jwt"}', f"{store}/index.md": index}
    yield ["hook"], asked, {**named, f"{store}/.judgekitignore": "*a" * 12 + "b\n"}
    yield ["hook"], asked, {**named, f"{store}/.judgekitignore": ("*a" * 2000 + "b\n") * 1000}
    yield ["hook"], asked, {**named, ".judgekit/config.yaml": "\n" * 1_000_000 + "x: ["}
    yield ["search", "jwt", "--root", "docs"], "", {"docs/a.md": "jwt " * 1_000_000}
    yield ["search", "jwt", "--root", "docs"], "", {"docs/a.md": MARKS * 500_000}
    yield (
        ["search", "jwt", "--root", "docs"],
        "",
        {"docs/MEMORY.md": "](a)" * 240_000, "docs/t.md": "jwt"},
    )
    records = {f"{store}/decisions/a.json": record, f"{store}/index.md": index}
    yield ["search", "jwt", "--root", store], "", records
    yield ["rubric", "check", "a.yaml"], "", {"a.yaml": "\n".join(["a0: &a0 [x, x]", *bomb])}
    yield ["rubric", "list"], "", {".judgekit/rubrics/a@1.0.0.yaml": f"title: a{' ' * 900_000}b"}
    yield ["judge", "a.md", "--show-prompt"], "", {"a.md": MARKS * 500_000}
    yield (
        ["index", "rebuild", "--root", "docs"],
        "",
        {"docs/a.md": f"---\ntitle: {MARKS * 45_000}\n---\njwt"},
    )


@pytest.mark.slow
@pytest.mark.parametrize("case", range(12))
def test_no_file_holds_up_a_command(tmp_path: Path, case: int) -> None:
    words, said, files = [*doors(tmp_path)][case]
    (tmp_path / ".git").mkdir()
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "judgekit", *words],
        cwd=tmp_path,
        input=said.encode(),
        capture_output=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS)),
    )
    assert done.returncode >= 0, f"{words}: more than {SECONDS} s of CPU"
    assert b"fault of judgekit" not in done.stderr
