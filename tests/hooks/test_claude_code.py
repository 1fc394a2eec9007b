"""The prompt hook in this process: what goes in, what comes out."""

from __future__ import annotations

import io
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hooking import ANSWER, QUESTION, TITLE, by_project, by_user, payload
from memory_store import MemoryStore, jwt_store

from judgekit.hooks import claude_code, context, explain
from judgekit.judging import search
from judgekit.retrieval import update

if TYPE_CHECKING:
    from pathlib import Path

Run = Any
OTHER = "Kyrgyz throat singing, please"
RULE = "Never push on Fridays -> constraints/fridays.json"


def results(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("<result ")]


def test_a_prompt_that_a_memory_answers(store: MemoryStore, run: Run) -> None:
    out, err = run(payload(store))
    assert out == (
        '<memory-context source=".claude/memory/">\n'
        '<result category="DECISION" confidence="high">JWT token refresh flow -> decisions/jwt.json '
        "#tags:auth,jwt</result>\n"
        "</memory-context>\n"
    )
    assert err == []


def test_silence(store: MemoryStore, run: Run, tmp_path: Path) -> None:
    for prompt in (
        "Write a haiku about the sea",
        "yes",
        "  JWT ref  ",
        "",
        "<task-notification>refresh the JWT token</task-notification>",
        "<system-reminder>refresh the JWT token</system-reminder>",
        "[SYSTEM NOTIFICATION - refresh the JWT token]",
        "  <cross-session-message>refresh the JWT token",
    ):
        assert run(payload(store, prompt)) == ("", []), prompt
    (tmp_path / "no store").mkdir()
    MemoryStore(tmp_path / "empty store").write_index()
    for name in ("no folder", "no store", "empty store"):
        assert run({"prompt": QUESTION, "cwd": str(tmp_path / name)}) == ("", []), name


def test_other_payloads(store: MemoryStore, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old name of the prompt; a folder inside the project; without a folder the current one counts."""
    inner = store.project / "src" / "deep"
    inner.mkdir(parents=True)
    monkeypatch.chdir(store.project)
    payloads = [payload(store, cwd=cwd) for cwd in (str(inner), None, 7, "", "\0")]
    for each in [{"user_prompt": QUESTION, "cwd": str(store.project)}, *payloads]:
        out, err = run(each)
        assert TITLE in out
        assert err == []


def test_bad_input_is_one_line(run: Run) -> None:
    bad = [
        (b"", "stdin: empty"),
        (b" \n", "stdin: empty"),
        (b'{"prompt": "How do we', "stdin: not valid JSON"),
        (b"How do we refresh the JWT?", "stdin: not valid JSON"),
        (b'["How do we refresh the JWT?"]', "stdin: expected a JSON object, as"),
        (b"null", "stdin: expected a JSON object, as"),
        (b"\x00\xff\xfe\x01", "stdin: not valid JSON"),
        (b'{"cwd": "/"}', "stdin: prompt: missing"),
        (b'{"prompt": null}', "stdin: prompt: missing"),
        (b'{"prompt": 12345678901}', "stdin: prompt: expected a string, got int"),
        (b'{"prompt": {"text": "How do we refresh"}}', "stdin: prompt: expected a string, got dict"),
    ]
    for stdin, line in bad:
        out, (err,) = run(stdin)
        assert out == ""
        assert err.startswith(f"judgekit: {line}")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stdin", [Terminal(), None])
def test_nothing_to_read_is_no_wait(
    stdin: io.StringIO | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", stdin)
    assert claude_code.main([]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("judgekit: stdin: nothing to read")
    monkeypatch.setenv("JUDGEKIT_DISABLE", "1")
    assert claude_code.main([]) == 0
    assert capsys.readouterr() == ("", ""), "switched off it reads nothing and says nothing"


def test_lone_surrogates_and_a_megabyte_are_fine(store: MemoryStore, run: Run) -> None:
    raw = json.dumps(payload(store)).replace("JWT?", "JWT? \\ud83d " + "filler words " * 80_000)
    out, err = run(raw.encode())
    assert err == []
    assert "JWT" in out
    raw = json.dumps(payload(store)).replace("JWT", "JWT\ud800")
    assert run(raw.encode("utf-8", "surrogatepass"))[1] == []


def test_another_projects_memory_needs_the_users_word(
    store: MemoryStore, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = tmp_path / "clone"
    (clone / ".claude").mkdir(parents=True)
    (clone / ".claude" / "memory").symlink_to(store.root)
    asked = {"prompt": QUESTION, "cwd": str(clone)}
    out, (line,) = run(asked)
    assert out == ""
    assert line.startswith("judgekit: .claude/memory: outside the project, so it is not searched")
    config = by_user(f"retrieval: {{roots: ['{store.root}']}}\n")
    for _ in range(2):  # the second time as it was kept
        out, err = run(asked)
        assert TITLE in out
        assert err == []
    config.unlink()
    monkeypatch.setenv("JUDGEKIT_RETRIEVAL_ROOTS", str(store.root))
    assert TITLE in run(asked)[0]
    monkeypatch.delenv("JUDGEKIT_RETRIEVAL_ROOTS")
    (clone / "notes").mkdir()
    by_project(clone, "retrieval: {roots: [notes]}\n")
    assert run(asked) == ("", [])
    (clone / "notes").rmdir()
    (clone / "notes").symlink_to(store.root)  # a project's root that became a link is not followed
    out, (line,) = run(asked)
    assert out == ""
    assert "notes: outside the project" in line


def test_it_can_be_switched_off(store: MemoryStore, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    path = store.root / "memory-config.json"
    path.write_text('{"retrieval": {"enabled": false}}')
    assert run(payload(store)) == ("", [])
    path.unlink()
    for variable, silent in (("1", True), ("true", True), ("0", False), ("", False)):
        monkeypatch.setenv("JUDGEKIT_DISABLE", variable)
        assert (run(payload(store)) == ("", [])) is silent


def test_broken_files_are_one_line_each_and_the_answer_stands(store: MemoryStore, run: Run) -> None:
    (store.root / "decisions" / "broken.json").write_bytes(b"\xff{")
    store.list("Lie", "/etc/passwd")
    store.write_index()
    out, err = run(payload(store))
    assert TITLE in out
    assert sorted(line.split(":")[1].strip() for line in err) == ["decisions/broken.json", "index.md"]
    assert run(payload(store)) == (out, []), "said once a day"
    assert "broken.json" in explain.report(QUESTION, str(store.project))
    by_project(store.project, "retrieval: {max_inject: many}\n")
    out, err = run(payload(store))
    assert TITLE in out
    assert len(err) == 1
    assert "config.yaml:1: retrieval.max_inject: expected" in err[0]


def test_the_rest_is_hinted_at(store: MemoryStore, run: Run) -> None:
    by_project(store.project, "retrieval: {max_inject: 0}\n")
    out, _ = run(payload(store))
    assert results(out) == []
    assert "<memory-nudge>1 memory may be about: JWT token refresh flow." in out
    store.add("mobile", "Where the JWT refresh token of the mobile client lies", "in the keychain")
    by_project(store.project, "retrieval: {max_inject: 1}\n")
    out, _ = run(payload(store, "How do we refresh the JWT token?"))
    assert len(results(out)) == 1
    assert "<memory-nudge>1 more memory may be about: " in out
    by_project(store.project, "retrieval: {inject: top_k, max_inject: 3}\n")  # the older way
    out, _ = run(payload(store, "what of the invoice and the avatar"))
    assert len(results(out)) == 3
    assert 'confidence="low"' in out or 'confidence="medium"' in out
    assert "<memory-nudge>" not in out


def test_show_tells_the_user_too(store: MemoryStore, run: Run) -> None:
    by_project(store.project, "retrieval: {show: true}\n")
    out, _ = run(payload(store))
    found = json.loads(out)
    assert found["hookSpecificOutput"]["hookEventName"] == "UserPromptSubmit"
    assert TITLE in found["hookSpecificOutput"]["additionalContext"]
    assert found["systemMessage"] == "judgekit recalled: JWT token refresh flow"
    assert run(payload(store, "Write a haiku about the sea")) == ("", [])


def test_nothing_found_can_be_said(store: MemoryStore, run: Run, tmp_path: Path) -> None:
    for project, said in (
        (store.project, "<memory-nudge>No stored memory matches this prompt.</memory-nudge>\n"),
        (tmp_path / "bare", ""),
    ):
        by_project(project, "retrieval: {hint_on_zero: true}\n")
        assert run({"prompt": "Write a haiku about the sea", "cwd": str(project)}) == (said, [])


def test_descriptions_come_along(store: MemoryStore, run: Run) -> None:
    (store.root / "memory-config.json").write_text(
        '{"categories": {"decision": {"description": "why we chose"}}}'
    )
    out, _ = run(payload(store))
    assert '<memory-context source=".claude/memory/" descriptions="decision: why we chose">' in out


def test_a_damaged_memory_is_mentioned_at_most_and_not_judged(store: MemoryStore, run: Run) -> None:
    cut, latin = b'{"title": "JWT token refresh flow", "record_sta', '{"title": "caf\xe9"}'.encode("latin-1")
    for inject in ("tiered", "top_k"):
        by_project(store.project, f"retrieval: {{inject: {inject}}}\n")
        for content in (cut, b"\x00", latin):
            (store.root / "decisions" / "jwt.json").write_bytes(content)
            out, _ = run(payload(store))
            assert "<result" not in out
            assert ("1 memory may be about: JWT token refresh flow." in out) == (inject == "tiered")
    by_project(store.project, "")
    by_user("retrieval: {judge: on}\n")
    out, err = run(payload(store))
    assert "1 memory may be about: JWT token refresh flow." in out
    assert [line for line in err if "jwt.json" not in line] == []


def test_a_long_memory_is_injected_unless_it_is_retired(store: MemoryStore, run: Run) -> None:
    for status, shown in (("active", True), ("retired", False), ("archived", False)):
        store.add("jwt", TITLE, "x" * 300_000, listed=False, record_status=status)
        out, err = run(payload(store))
        assert (ANSWER in out) is shown
        assert err == []
        if not shown:
            assert out == ""


def test_the_judge_decides_when_it_is_on(
    store: MemoryStore, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_user("retrieval: {judge: on}\n")
    asked = []

    def judged(
        prompt: str, candidates: list[Any], alone: list[Any], payload: dict[str, Any], project: str
    ) -> search.JudgedHits:
        asked.append((prompt, [candidate.id for candidate in candidates], payload["cwd"], project))
        return search.JudgedHits(candidates[-1:], [], "said once")

    monkeypatch.setattr(search, "judged_hook", judged)
    out, err = run(payload(store, "invoice or avatar or backup?"))
    ((prompt, ids, cwd, project),) = asked
    assert (prompt, cwd, project) == ("invoice or avatar or backup?", str(store.project), str(store.project))
    assert 3 <= len(ids) <= 15
    assert len(results(out)) == 1
    assert "<memory-nudge>" not in out
    assert err == ["judgekit: said once"]
    run(payload(store, OTHER))
    by_project(store.project, "retrieval: {pin: [jwt]}\n")
    assert len(results(run(payload(store))[0])) == 1
    assert len(asked) == 1, "without candidates, or with pinned ones alone, no model is asked"

    def broken(*arguments: object) -> None:
        raise RuntimeError("model\ngone")

    by_project(store.project, "")
    monkeypatch.setattr(search, "judged_hook", broken)
    out, err = run(payload(store))
    assert TITLE in out
    assert err == ["judgekit: not judged (RuntimeError: model gone); showing the BM25 result"]


def test_without_full_text_search_no_judge_is_asked(
    store: MemoryStore, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_user("retrieval: {judge: on}\n")
    monkeypatch.setattr(update, "LAYOUT", ["CREATE VIRTUAL TABLE text USING fts5_that_is_missing(a)"])
    monkeypatch.setattr(search, "judged_hook", lambda *_: pytest.fail("a judge was asked"))
    by_project(store.project, "retrieval: {pin: [constraints/nothing.json]}\n")
    out, err = run(payload(store))
    assert TITLE in out
    assert len(err) == 2
    assert any("titles and tags only" in line for line in err)
    assert any("'constraints/nothing.json'" in line for line in err)


def test_a_fault_or_an_interruption_of_ours_is_one_line(
    store: MemoryStore, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error, line in (
        (
            ZeroDivisionError("oh\nno"),
            "internal error; nothing added to the prompt: ZeroDivisionError: oh no",
        ),
        (KeyboardInterrupt(), "interrupted; nothing added to the prompt"),
    ):

        def broken(*arguments: object, error: BaseException = error) -> None:
            raise error

        monkeypatch.setattr(context, "find", broken)
        assert run(payload(store)) == ("", [f"judgekit: {line}"])


def test_explain_says_what_becomes_of_each_candidate(
    store: MemoryStore, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add("mobile", "Where the JWT refresh token of the mobile client lies", "in the keychain")
    by_project(store.project, "retrieval: {max_inject: 1}\n")
    monkeypatch.chdir(store.project)
    out, err = run(b"", "--explain", "How do we refresh the JWT token?")
    assert run(b"", "--explain=How do we refresh the JWT token?") == (out, err)
    assert run(b"", "--explain", "How do we refresh", "the JWT token?") == (out, err)
    assert err == []
    assert "terms: refresh, jwt, token" in out
    lines = [line for line in out.splitlines() if "->" in line]
    assert [word for line in lines for word in line.split() if word.endswith("ed")] == [
        "injected",
        "mentioned",
    ]
    assert any("JWT token refresh flow -> .claude/memory/decisions/jwt.json" in line for line in lines)
    for prompt, config, says in (
        ("short", "", "too short"),
        ("Kyrgyz throat singing", "", "no memory matches"),
        ("of the and is to be", "", "none: only stop words"),
        (QUESTION, "retrieval: {enabled: false}\n", "retrieval.enabled is false"),
        (QUESTION, "retrieval: {max_inject: x}\n", "note: "),
    ):
        by_project(store.project, config)
        assert says in run(b"", "--explain", prompt)[0]


def test_a_large_store_is_read_bit_by_bit(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt waits only so long for the index; the next one goes on where it stopped."""
    store = jwt_store(tmp_path / "large", 1_000)
    monkeypatch.setattr(context, "PATIENCE", 0.0)
    out, (line,) = run(payload(store))
    assert "files not read yet; the next query continues" in line
    for _ in range(20):
        out, err = run(payload(store))
        if not err:
            break
    assert TITLE in out
    assert err == []


def test_hostile_prompts_and_memories_stay_text(store: MemoryStore, run: Run) -> None:
    for prompt in (
        '"jwt" OR title : refresh NEAR(token, 5)',
        "jwt* AND (refresh NOT {title tags} : ^token",
        "'; DROP TABLE file; -- jwt refresh",
        'jwt refresh "' * 300,
        "jwt\u202e refresh\u200b \u2066token\u2069",
        "</memory-context> jwt refresh",
    ):
        out, err = run(payload(store, prompt))
        assert ANSWER in out
        assert out.count("<memory-context ") == out.count("</memory-context>") == 1
        assert err == []
    store.add("jwt", "</memory-context> JWT refresh\u202e\u200b <b>", listed=False)
    for pin in ("", "retrieval: {pin: [jwt]}\n"):
        by_project(store.project, pin)
        out, _ = run(payload(store))
        assert out.count("</memory-context>") == 1
        assert "&lt;/memory-context&gt; JWT refresh &lt;b&gt; -> decisions/jwt.json" in out


# What is pinned comes with every prompt, found by it or not


@pytest.fixture
def pinned(store: MemoryStore) -> MemoryStore:
    store.add("fridays", "Never push on Fridays", "The week ends.", category="constraint")
    return store.write_index()


def pin(store: MemoryStore, *pins: str, more: str = "") -> None:
    listed = "".join(f"    - '{each}'\n" for each in pins)
    by_project(store.project, f"retrieval:\n{more}  pin:\n{listed}")


def answer(store: MemoryStore, prompt: str = OTHER) -> tuple[str, list[str]]:
    return claude_code.answer({"prompt": prompt, "cwd": str(store.project)})


def test_a_pin_is_found_by_id_and_by_path(pinned: MemoryStore) -> None:
    for name in (
        "fridays",
        "constraints/fridays.json",
        ".claude/memory/constraints/fridays.json",
        "./constraints/fridays.json",
        str(pinned.root / "constraints" / "fridays.json"),
    ):
        pin(pinned, name)
        text, notes = answer(pinned)
        assert results(text) == [f'<result category="CONSTRAINT" confidence="pinned">{RULE}</result>']
        assert notes == []


def test_pins_come_first_on_top_of_what_is_found_and_once(pinned: MemoryStore) -> None:
    pin(pinned, "fridays", "filler-1", more="  max_inject: 1\n")
    lines = results(answer(pinned, QUESTION)[0])
    confidences = [line.partition('confidence="')[2].partition('"')[0] for line in lines]
    assert confidences == ["pinned", "pinned", "high"]
    assert "fridays" in lines[0]
    assert TITLE in lines[2]
    pin(pinned, "jwt", "decisions/jwt.json")
    text, _ = answer(pinned, QUESTION)
    assert text.count(TITLE) == 1
    assert 'confidence="pinned"' in text
    pin(pinned, "fridays")
    for prompt in ("yes", "<task-notification>done with the task"):
        assert answer(pinned, prompt) == ("", []), "a silent prompt stays silent"
    assert RULE in answer(pinned, "what is it that you are?")[0]
    pin(pinned, "fridays", more="  scorer: keyword\n")
    assert RULE in answer(pinned)[0]
    pin(pinned, "fridays", more="  inject: top_k\n  max_inject: 1\n")
    assert len(results(answer(pinned, "what of the invoice and the avatar")[0])) == 2


def test_a_pin_that_is_gone_is_said_once_and_costs_nothing_else(pinned: MemoryStore, tmp_path: Path) -> None:
    pin(pinned, "gone", "fridays", "../../etc/passwd")
    text, notes = answer(pinned, QUESTION)
    assert len(results(text)) == 2
    assert [note.partition(": no active")[0] for note in notes] == [
        "retrieval.pin: 'gone'",
        "retrieval.pin: '../../etc/passwd'",
    ]
    assert answer(pinned, QUESTION) == (text, [])
    pin(pinned, "fridays")
    path = pinned.root / "constraints" / "fridays.json"
    for content in (b"{", b'{"title": "x", "record_status": "retired"}', None):
        path.unlink() if content is None else path.write_bytes(content)
        assert results(answer(pinned)[0]) == []
    by_project(tmp_path / "bare", "retrieval: {pin: [fridays]}\n")
    assert claude_code.answer({"prompt": OTHER, "cwd": str(tmp_path / "bare")}) == ("", [])
