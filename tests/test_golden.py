"""Requests to models and output for programs stay the same, byte for byte, and so does output for people.

Two sets of recordings are in tests/golden. `machine`: requests, keys of the reply cache, JSON, SARIF, JUnit,
ledger lines, hashes, exit codes. `prose`: tables and errors (docs/cli.md holds the help).
`JUDGEKIT_TEST_GOLDEN=record` writes them again.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from deciding import DecisionServer
from git_repo import GitRepo
from golden import FORMS, World
from recordings import GOLDEN, same

if TYPE_CHECKING:
    from pathlib import Path

    from golden import Run

SCORING = (
    "agent-task",
    "answer-correctness",
    "answer-quality",
    "code-review",
    "commit-message",
    "groundedness",
    "kls",
)
SELECTING = ("memory-relevance", "memory-two-criteria")
MODES = ("strict", "lenient")
# Quick's outcome must be confirmed, and deep's differs: every tier is asked.
CONTESTED = {
    "strict": {"quick": "accept", "deep": "reject", "tiebreaker": "accept"},
    "lenient": {"quick": "reject", "deep": "accept", "tiebreaker": "reject"},
}
KEPT = {
    mode: {tier: {"accept": "keep", "reject": "drop"}[word] for tier, word in said.items()}
    for mode, said in CONTESTED.items()
}
JUDGE = ("judge", "good.md", "--no-engine", "--format", "json")
CALIBRATE = ("--rubric", "kls", "--mode", "strict")
DATES = {"GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z"}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def machine(name: str, run: Run) -> None:
    # Lines: JSON that varies only in its order of keys is another text.
    told = {"code": run.code, "calls": run.calls, "cached": run.cached, "out": run.out.split("\n")}
    same(
        "machine",
        f"{name}.json",
        json.dumps(told, indent=1, ensure_ascii=False, sort_keys=True) + "\n",
    )


def prose(name: str, *runs: Run) -> None:
    same("prose", f"{name}.txt", "\n".join(f"{run.code}\n{run.out}--\n{run.err}" for run in runs))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rubric", SCORING)
def test_documents(world: World, rubric: str, mode: str) -> None:
    world.panel("json-schema", **CONTESTED[mode])
    task = (
        "--description",
        "A guide.",
        "--acceptance",
        "It can be followed.",
        "--task-id",
        "guide",
    )
    reference = ("--reference", "It says how.")  # which only one of these rubrics shows
    done = world.run(*JUDGE, "damaged.md", *task, *reference, "--rubric", rubric, "--mode", mode)
    machine(f"judge-{rubric}-{mode}", done)


WAYS = [("form", form, form.replace("_", "-"), ("--mode", "strict")) for form in FORMS]


@pytest.mark.parametrize(
    ("name", "form", "provider", "mode"), [*WAYS, ("pointwise", "", "pointwise", ())]
)
@pytest.mark.parametrize("task", ["score", "select", "compare"])
def test_output_forms_and_small_models(
    world: World, name: str, form: str, provider: str, mode: tuple[str, ...], task: str
) -> None:
    if task == "score":
        world.panel(provider, quick="accept", deep="improve", tiebreaker="accept")
        words = (*JUDGE, *mode)
    elif task == "select":
        world.panel(provider, **KEPT["strict" if form else "lenient"])
        words = ("search", "the JWT refresh", "--judge", *mode, "--no-engine", "--json")
    else:
        world.panel(provider, quick="first", deep="second", tiebreaker="first")
        words = (
            "compare",
            "good.md",
            "damaged.md",
            "--prompt",
            "Write a guide.",
            "--format",
            "json",
        )
    machine("-".join(filter(None, (name, task, form))), world.run(*words))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rubric", SELECTING)
def test_memories(world: World, rubric: str, mode: str) -> None:
    settings = f"retrieval: {{rubric: {rubric}, tiers: [quick, deep, tiebreaker]}}\n"
    (world.home / "config.yaml").write_text(settings)
    world.panel("json-schema", **KEPT[mode])
    words = ("search", "email queue outage and the JWT refresh", "--judge", "--mode", mode)
    machine(f"search-{rubric}-{mode}", world.run(*words, "--no-engine", "--json"))


def test_several_texts(world: World) -> None:
    (world.folder / "third.md").write_text("# Third\n\nA short one.\n")
    world.panel("json-schema", quick="accept", deep="accept", tiebreaker="accept")
    words = ("--prompt", "Write a guide.", "--rubric", "answer-quality", "--format", "json")
    machine("compare-three", world.run("compare", "good.md", "damaged.md", "third.md", *words))


@pytest.mark.parametrize("setting", ["samples: 3", "criteria: each", "redact: false"])
def test_ways_of_asking(world: World, setting: str) -> None:
    (world.home / "config.yaml").write_text(f"judge: {{{setting}}}\n")
    world.panel("json-schema", quick="accept", deep="reject", tiebreaker="improve")
    machine(f"asking-{setting.partition(':')[0]}", world.run(*JUDGE))


RECORDED = {
    "score": JUDGE,
    "select": ("search", "the JWT refresh", "--judge", "--no-engine"),
    "compare": ("compare", "good.md", "damaged.md", "--prompt", "Write a guide."),
}


@pytest.mark.parametrize("provider", ["json-schema", "pointwise"])
@pytest.mark.parametrize("task", RECORDED)
def test_keys_of_recordings(
    world: World, monkeypatch: pytest.MonkeyPatch, provider: str, task: str
) -> None:
    """Recordings are found again by these, so nobody pays twice for them."""
    words = {"score": "improve", "select": "keep", "compare": "first"}
    world.panel(provider, **dict.fromkeys(("quick", "deep", "tiebreaker"), words[task]))
    recording = world.folder / "recording.jsonl"
    monkeypatch.setenv("JUDGEKIT_RECORD", str(recording))
    world.run(*RECORDED[task])
    keys = []
    for line in recording.read_text(encoding="utf-8").splitlines():
        recorded = json.loads(line)
        # A candidate's label is drawn anew for each query; what it stands for is the same.
        recorded["labels"] = sorted(recorded["labels"].values())
        keys.append(json.dumps(recorded | {"reply": None}, sort_keys=True))
    same("machine", f"keys-{task}-{provider}.json", "\n".join(sorted(keys)) + "\n")


DECIDED = {
    "score": JUDGE,
    "claims": (*JUDGE, "damaged.md", "--task-id", "t", "--rubric", "groundedness"),
    "select": RECORDED["select"],
    "compare": RECORDED["compare"],
}


@pytest.mark.parametrize("task", DECIDED)
def test_requests_to_decision_models(
    world: World, monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    with DecisionServer() as server:
        monkeypatch.setenv("JUDGEKIT_DECISIONS_BASE", f"{server.base}/v1")
        monkeypatch.setenv("JUDGEKIT_QUICK_MODEL", "vllm-decisions/decider")
        world.run(*DECIDED[task])
        bodies = [world.same(json.dumps(asked.body, sort_keys=True)) for asked in server.requests]
    sent = [json.loads(body) for body in sorted(bodies)]
    same("machine", f"decided-{task}.json", json.dumps(sent, indent=1, sort_keys=True) + "\n")


@pytest.mark.parametrize("form", ["jsonl", "sarif", "junit"])
def test_formats(world: World, form: str) -> None:
    world.panel("json-schema", quick="reject", deep="reject", tiebreaker="reject")
    machine(
        f"format-{form}",
        world.run("judge", "good.md", "damaged.md", "--no-engine", "--format", form),
    )


def test_a_calibration(world: World) -> None:
    world.panel("json-schema", quick="accept", deep="accept", tiebreaker="accept")
    cases = [
        {"id": f"case-{place}", "text": f"Text {place} says how.", "label": "accept"}
        for place in range(80)
    ]
    (world.folder / "labels.jsonl").write_text("".join(f"{json.dumps(case)}\n" for case in cases))
    words = ("calibrate", "labels.jsonl", *CALIBRATE, "--out", "learned.json", "--json")
    done = world.run(*words)
    done.calls, done.cached = [], []
    machine("calibrate", done)


def test_the_gate(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in DATES.items():
        monkeypatch.setenv(name, value)
    world.panel("json-schema", quick="accept", deep="reject", tiebreaker="accept")
    repository = GitRepo(world.folder)
    repository("init", "--quiet", "--initial-branch=main")
    repository.commit("first", README_md="# Shop\n")
    repository.commit("second", guide_md="# Guide\n\nIt says how.\n", other_md="# Other\n\nTODO\n")
    done = world.run("gate", "--base", "HEAD~1", "--no-engine", "--format", "json")
    ledger = sorted((world.home / "state").rglob("*.jsonl"))
    lines = [
        line for file in ledger for line in world.same(file.read_text()).splitlines(keepends=True)
    ]
    # Files are judged at the same time; whose verdict is first is chance.
    done.out += "".join(sorted(lines, key=lambda line: str(json.loads(line)["task_id"])))
    machine("gate", done)
    prose("gate", world.run("gate", "--base", "HEAD~1", "--no-engine"), world.run("kpi"))


def test_the_hook(world: World) -> None:
    found = []
    asked = (
        "Why does the JWT refresh fail for the web client?",
        "Drain the email queue",
        "hello there you",
    )
    for prompt in asked:
        given = json.dumps({"prompt": prompt, "cwd": str(world.folder), "session_id": "s"})
        words = [sys.executable, "-m", "judgekit", "hook"]
        done = subprocess.run(words, input=given, capture_output=True, text=True, check=False)
        found.append({"code": done.returncode, "out": world.same(done.stdout), "err": done.stderr})
    same("machine", "hook.json", json.dumps(found, indent=1, ensure_ascii=False) + "\n")


@pytest.mark.parametrize(
    "name", ["verdict", "rubric", "provider", "retrieval", "config", "comparison"]
)
def test_schemas(world: World, name: str) -> None:
    done = world.run("schema", name)
    text = json.dumps(
        _shape(json.loads(done.out)) if done.code == 0 else done.err, indent=1, sort_keys=True
    )
    same("machine", f"schema-{name}.json", text + "\n")


def _shape(schema: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return a schema without the parts that may change: titles, descriptions, and names of definitions."""
    names = {name: f"#{place}" for place, name in enumerate(schema.get("$defs", {}))}

    def walk(value: Any, *, named: bool = False) -> Any:  # noqa: ANN401 - any JSON
        if isinstance(value, list):
            return [walk(each) for each in value]
        if not isinstance(value, dict):
            return value
        kept = (
            value
            if named
            else {k: v for k, v in value.items() if k not in {"title", "description"}}
        )
        if "$ref" in kept:
            kept = kept | {"$ref": names.get(str(kept["$ref"]).rpartition("/")[2], kept["$ref"])}
        if "$defs" in kept and not named:
            kept = kept | {"$defs": {names[k]: v for k, v in kept["$defs"].items()}}
        return {key: walk(each, named=key in {"properties", "$defs"}) for key, each in kept.items()}

    return walk(schema)


ERRORS = """judge none.md
judge good.md --rubric kl
judge good.md --mode loose
compare good.md --prompt Which?
search x --root nowhere
gate --base HEAD~1
calibrate none.jsonl --rubric kls --mode strict
eval judge none.jsonl
eval retrieval nowhere
rubric check none.yaml
rubric show none
override none.md --verdict accept --reason x
label none accept
promote
triage
ledger import none.jsonl
engine status
index status
provider check none
schema none"""


def test_errors(world: World) -> None:
    prose("errors", *(world.run(*line.split()) for line in ERRORS.split("\n")))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("judge", "judge good.md damaged.md --no-engine"),
        ("compare", "compare good.md damaged.md --prompt Which?"),
        ("search", "search|JWT refresh"),
        ("rubrics", "rubric list"),
        ("rubric", "rubric show kls"),
    ],
)
def test_what_people_read(world: World, name: str, words: str) -> None:
    said = dict.fromkeys(
        ("quick", "deep", "tiebreaker"), "first" if name == "compare" else "improve"
    )
    world.panel("json-schema", **said)
    prose(name, world.run(*words.split("|" if "|" in words else " ")))


# Files that an earlier version wrote stay as they are, as those on users' disks do. A new version of a format
# adds a file of its own.
WRITTEN = GOLDEN / "written"


def put(name: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    path.write_bytes((WRITTEN / name).read_bytes())
    path.chmod(0o600)


def test_files_of_an_earlier_version_are_used(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.panel("json-schema", quick="accept", deep="accept", tiebreaker="accept")
    replies = world.home / "cache" / "replies.sqlite"
    put("replies.sqlite", replies)
    with closing(
        sqlite3.connect(replies, isolation_level=None)
    ) as connection:  # as if kept yesterday
        connection.execute("UPDATE reply SET at = ?", (time.time() - 86_400,))
    done = world.run(*JUDGE, "--mode", "lenient", forget=False)
    assert (done.calls, done.code) == ([], 0)
    with monkeypatch.context() as patch:
        patch.setenv("JUDGEKIT_REPLAY", str(WRITTEN / "recording.jsonl"))
        done = world.run(*JUDGE, "--mode", "lenient")
    assert (done.calls, done.code) == ([], 0)
    assert json.loads(done.out)[0]["scores"] == {"semantic": 5, "pragmatic": 5, "syntactic": 5}
    name = json.loads((WRITTEN / "calibration.json").read_text())["id"]
    put("calibration.json", world.home / "calibrations" / f"{name}.json")
    done = world.run(*JUDGE, "--mode", "strict")
    # It doesn't say which model answered, so it has expired: deep confirms what quick accepts.
    assert json.loads(done.out)[0]["calibration"] is None
    assert len(done.calls) == 2
    assert "calibration not used" in json.loads(done.out)[0]["degraded"]
    project = json.loads((WRITTEN / "ledger.jsonl").read_text().split("\n")[0])["project"]
    put("ledger.jsonl", world.home / "state" / "ledger" / project / "2026-11-22.jsonl")
    exported = world.run("ledger", "export").out.strip().split("\n")
    assert [json.loads(line)["verdict"] for line in exported] == ["accept", "reject"]


def test_an_index_of_an_earlier_version_is_replaced(world: World) -> None:
    words = ("search", "JWT refresh flow", "--json")
    first = world.run(*words)
    [path] = (world.home / "cache").rglob("v*.sqlite")
    assert path.name == "v6.0.sqlite"
    path.unlink()
    earlier = path.with_name("v4.0.sqlite")
    put("index.sqlite", earlier)
    with closing(
        sqlite3.connect(earlier)
    ) as connection:  # as if it had been written for this folder
        root = str(world.folder / ".claude" / "memory")
        connection.execute("UPDATE about SET value = ? WHERE key = 'root'", (root,))
        connection.commit()
    assert world.run(*words, forget=False).out == first.out
    assert sorted(each.name for each in path.parent.glob("v*.sqlite")) == [earlier.name, path.name]
