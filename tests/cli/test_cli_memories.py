"""`judgekit eval memories`: prompts, answers, figures, the judge's part in them, and fitted thresholds."""

from __future__ import annotations

import hashlib
import json
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hooking import by_user
from loopback import Loopback, fails, says
from memory_store import write_topics

from judgekit import environment
from judgekit.hooks import claude_code, fitting, relevance, trial
from judgekit.retrieval import compiled, profiles
from judgekit.rubric import search_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from loopback import Asked
    from outcome import Run, Use

HIGH = compiled.Profiles(compiled.get_bundled_data()).by_kind["claude-memory"].labels["high"]
TOPICS: tuple[str, ...] = (
    *(
        "lantern wick",
        "harbour crane",
        "violin varnish",
        "glacier survey",
        "orchard grafting",
        "kiln glaze",
    ),
    *(
        "beehive smoker",
        "canal lock",
        "telescope mirror",
        "windmill sail",
        "saddle stitch",
        "anchor chain",
    ),
    *(
        "printing plate",
        "cheese rennet",
        "clock escapement",
        "rope splice",
        "falcon hood",
        "tannery bark",
    ),
    *("organ pipe", "quarry blast", "loom shuttle", "ferry ramp", "silo auger", "forge bellows"),
)
TOPICS += (
    "pottery wheel",
    "vineyard trellis",
    "sluice gate",
    "barrel hoop",
    "chimney flue",
    "plough share",
)
COMMAND = ("eval", "memories", "--prompts", "prompts.txt")


def prompt(topic: str) -> str:
    return f"How do we handle the {topic} here?"


def memory(topic: str) -> str:
    return f".claude/memory/decisions/{topic.replace(' ', '-')}.json"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project with a memory for each topic, and a prompt about each; it is the current folder."""
    write_topics(tmp_path, TOPICS)
    (tmp_path / "prompts.txt").write_text(
        "\n".join([*map(prompt, TOPICS), "ok", prompt(TOPICS[0])])
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answered(relevant: int, irrelevant: int = 0) -> tuple[str, ...]:
    """Write labels about the first topics, and return the options that read them."""
    words = [True] * relevant + [False] * irrelevant
    lines = [
        {"prompt": prompt(topic), "memory": memory(topic), "relevant": word}
        for topic, word in zip(TOPICS, words, strict=False)
    ]
    Path("labels.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return "--labels", "labels.jsonl"


@pytest.mark.parametrize(
    ("relevant", "irrelevant", "code", "said"),
    [
        (30, 0, 0, "its interval are above the bar"),
        (26, 4, 0, "reaches the bar, its interval does not"),
        (20, 10, 1, "is below the bar"),
        (19, 0, 2, "1 more are needed"),
    ],
)
@pytest.mark.usefixtures("world")
def test_the_exit_code_says_whether_the_bar_is_reached(
    judgekit: Run, relevant: int, irrelevant: int, code: int, said: str
) -> None:
    labels = answered(relevant, irrelevant)
    done = judgekit(*COMMAND, *labels)
    assert (done.code, said in done.out) == (code, True)
    found = judgekit(*COMMAND, *labels, "--json").json
    assert (found["prompts"], found["hook"]["injected"], found["judge"]) == (30, 30, None)
    of = relevant + irrelevant
    assert found["hook"]["precision"]["of"] == of
    assert found["hook"]["precision"]["value"] == relevant / of
    assert (found["hook"]["coverage"]["count"], found["unanswered"]) == (relevant, 30 - of)
    row = found["injections"][0]
    wanted = {
        "prompt": prompt(TOPICS[0]),
        "memory": memory(TOPICS[0]),
        "relevant": True,
        "plain": True,
    }
    assert wanted.items() <= row.items()


def test_the_interval_is_the_exact_one() -> None:
    found = trial.measure_share(17, 20)
    assert found is not None
    assert (round(found.low, 3), round(found.high, 3)) == (0.621, 0.968)  # as R's binom.test says
    assert trial.measure_share(0, 0) is None
    assert fitting.estimate_more_labels(found) is not None


def test_each_answer_is_kept_at_once_and_none_is_asked_twice(
    world: Path, judgekit: Run, press: Callable[..., None]
) -> None:
    press("xyn", KeyboardInterrupt)
    done = judgekit(*COMMAND)
    assert (done.code, "2 new answers are kept" in done.err) == (130, True)
    for shown in (
        prompt(TOPICS[0]),
        f"Handling of the {TOPICS[0]} -> {memory(TOPICS[0])}",
        "1 of 30",
    ):
        assert shown in done.err
    path = relevance.get_answers_path(environment.find_project_root())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert str(path).startswith(environment.state_home())
    text = path.read_text()
    assert [json.loads(line)["relevant"] for line in text.splitlines()] == [True, False]
    assert TOPICS[0] not in text
    press("sq")
    done = judgekit(*COMMAND)
    assert (done.code, "1 of 28" in done.err) == (2, True)
    assert "0.500" in done.out  # skipped ones are in no precision
    press("y" * 27)
    done = judgekit(*COMMAND)
    assert (done.code, "of 29" in done.out, "no answer yet" in done.err) == (0, True, False)
    press("", KeyboardInterrupt)
    assert judgekit(*COMMAND).code == 0, "nothing is left to ask"


def test_the_text_of_a_memory_is_shown_with_the_question(
    world: Path, judgekit: Run, press: Callable[..., None]
) -> None:
    press("q")
    assert f"Each {TOPICS[0]} is kept dry." in judgekit(*COMMAND).err


@pytest.fixture
def silent(world: Path) -> Path:
    """Let the hook show nothing: no hit is sure enough."""
    own = Path(environment.config_home()) / "retrieval" / "claude-memory.yaml"
    own.parent.mkdir(parents=True)
    bundled = profiles.find("claude-memory", None).read_text()
    labels = "labels: {high: 0.9999, medium: 0.9998, mention: 0.9997}"
    own.write_text(re.sub(r"(?m)^labels: \{[^}]*\}", labels, bundled))
    return world


@pytest.mark.usefixtures("silent")
def test_a_silent_hook_is_measured_by_its_best_hits(judgekit: Run) -> None:
    found = judgekit(*COMMAND, *answered(20, 10), "--json").json
    assert found["hook"]["injected"] == 0
    assert found["best_hits"]["relevant"]["value"] == 20 / 30


@pytest.mark.usefixtures("silent")
def test_a_person_is_asked_about_the_best_hits_of_a_silent_hook(
    judgekit: Run, press: Callable[..., None]
) -> None:
    press("y" * 30)
    done = judgekit(*COMMAND)
    assert "Nothing is injected, and 30 prompts have a hit that isn't sure enough" in done.out


def test_what_cannot_be_measured_is_refused_with_a_remedy(
    world: Path, judgekit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("wrong.jsonl").write_text('{"prompt": "a", "memory": "b", "relevant": "yes"}\n')
    Path("short.txt").write_text("ok\n<task-notification>x\n")
    cases: list[tuple[tuple[str, ...], int, str]] = [
        (COMMAND, 64, "--labels FILE (--json prints what to label)"),
        (
            ("eval", "memories"),
            65,
            "no prompt that the hook answers; use --from log, or --prompts FILE",
        ),
        (("eval", "memories", "--from", "log"), 65, "log of "),
        (
            ("eval", "memories", "--prompts", "short.txt"),
            65,
            "short.txt: no prompt that the hook answers",
        ),
        (
            (*COMMAND, "--labels", "wrong.jsonl"),
            65,
            "wrong.jsonl:1: relevant: expected true or false",
        ),
        ((*COMMAND, "--labels", "gone.jsonl"), 65, "gone.jsonl: cannot be read"),
    ]
    for words, code, said in cases:
        done = judgekit(*words)
        assert (done.code, done.out, said in done.err) == (code, "", True), done.err
    assert judgekit(*COMMAND, "--json").code == 2
    by_user("retrieval: {inject: top_k}\n")
    assert "no threshold decides" in judgekit(*COMMAND, "--fit").err
    by_user("retrieval: {enabled: false}\n")
    assert "retrieval.enabled is false" in judgekit(*COMMAND).err
    by_user("")
    empty = world / "empty"
    (empty / ".git").mkdir(parents=True)
    monkeypatch.chdir(empty)
    assert "no store found (.claude/memory); run this in a project" in judgekit(*COMMAND).err


@pytest.mark.usefixtures("world")
def test_the_judges_part_is_measured_beside(judgekit: Run, use: Use) -> None:
    def answer(asked: Asked) -> Any:  # noqa: ANN401 - an answer of the server
        form = json.dumps(asked.body["response_format"])
        labels = json.loads(re.findall(r'"enum": (\[.*?\])', form)[0])
        return says(
            json.dumps({"keep": [] if f"{prompt(TOPICS[0])}" in asked.text else labels[:1]})
        )

    Path("prompts.txt").write_text("\n".join(map(prompt, TOPICS[:3])))
    labels = (*answered(0, 3), "--json")
    with Loopback(answer) as server:
        use(server)
        assert judgekit(*COMMAND, *labels).json["judged"] is None
        assert server.requests == [], "without the user's consent nothing is sent"
        by_user("retrieval: {judge: on, deadline: 20, timeout: 20}\nengine: {use: false}\n")
        found = judgekit(*COMMAND, *labels).json
        assert len(server.requests) == 3
        assert (
            judgekit(*COMMAND, *labels[:-1]).out.count("relevant, share of what is injected") == 2
        )
        assert len(server.requests) == 3, "replies are kept"
    assert (found["hook"]["injected"], found["judged"]["injected"]) == (3, 2)
    assert found["judge"]["dropped"] == {"memories": 1, "relevant": 0, "irrelevant": 1}
    assert (found["judge"]["prompts"], found["judge"]["unjudged"]) == (3, 0)
    # The hook asks one tier.
    assert {row["because"] for row in found["injections"]} == {"the only tier decides"}
    with Loopback(fails(401)) as server:
        use(server)
        Path("one.txt").write_text("What about the lantern wick, then?\n")
        done = judgekit("eval", "memories", "--prompts", "one.txt", "--labels", "labels.jsonl")
    assert "models did not decide all about 1 prompt" in done.err


@pytest.mark.usefixtures("world")
def test_the_judge_sees_no_memory_that_another_one_replaced(judgekit: Run, use: Use) -> None:
    path = Path(memory(TOPICS[0]))
    record = json.loads(path.read_text())
    path.write_text(
        json.dumps({**record, "content": {**record["content"], "status": "superseded"}})
    )
    Path("prompts.txt").write_text(prompt(TOPICS[0]))
    by_user("retrieval: {judge: on, deadline: 20, timeout: 20}\nengine: {use: false}\n")
    with Loopback(says(json.dumps({"keep": []}))) as server:
        use(server)
        judgekit(*COMMAND, *answered(1), "--json")
    sent = "".join(asked.text for asked in server.requests)
    assert f"Each {TOPICS[0]} is kept dry." not in sent


def test_labels_choose_the_thresholds_and_a_copy_of_the_old_is_kept(
    world: Path, judgekit: Run, press: Callable[..., None]
) -> None:
    own = Path(environment.config_home()) / "retrieval" / "claude-memory.yaml"
    own.parent.mkdir(parents=True)
    bundled = profiles.find("claude-memory", None).read_text()
    own.write_text(re.sub(r"(?m)^labels: \{high: [0-9.]+", "labels: {high: 0.995", bundled))
    before = own.read_text()
    few = answered(8)
    done = judgekit(*COMMAND, *few, "--fit")
    assert "no threshold has an answer about each injection" in done.out
    assert own.read_text() == before
    press("y" * 90)
    done = judgekit(*COMMAND, "--fit", "--json")
    assert done.out, done.err
    (fit,) = done.json["fits"]
    assert (fit["refused"], fit["before"]["high"], fit["written"][0]) == (None, 0.995, str(own))
    assert fit["after"]["high"] < 0.995
    assert Path(fit["written"][1]).read_text() == before
    changed = profiles.read_profile("claude-memory")
    assert changed.labels.model_dump() == fit["after"]
    assert "# The order is mixed from BM25" in own.read_text()
    done = judgekit(*COMMAND, "--fit")
    assert (done.code, "no other threshold does better" in done.out) == (0, True)
    project = world / ".judgekit" / "retrieval" / own.name
    project.parent.mkdir(parents=True)
    project.write_text(before)
    done = judgekit(*COMMAND, "--fit")
    assert (done.code, "comes before yours" in done.err, project.read_text()) == (78, True, before)
    assert next(search_path.list_folders("retrieval", world)) == ("project", project.parent)


@pytest.mark.usefixtures("world")
def test_a_fit_is_refused_with_its_numbers(judgekit: Run) -> None:
    Path("few.txt").write_text("\n".join(map(prompt, TOPICS[:12])))
    few = ("eval", "memories", "--prompts", "few.txt", "--fit")
    done = judgekit(*few, *answered(12))
    assert f"too few labels for high: {HIGH:g}; about 8 more labels would do" in done.out
    done = judgekit(*few, *answered(6, 6))
    assert "not changed: no threshold reaches a precision of 0.80; the best is high: " in done.out
    assert not (Path(environment.config_home()) / "retrieval").exists()


def user(text: object, when: int = 0, /, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    at = f"2026-03-20T12:00:{when:02}Z"
    return {"type": "user", "timestamp": at, "message": {"role": "user", "content": text}, **more}


def test_prompts_come_from_the_transcripts_of_this_project(
    world: Path, judgekit: Run, isolated: Path
) -> None:
    here, digest = {"cwd": str(world / "src")}, hashlib.sha256(str(world).encode()).hexdigest()
    results = user([{"type": "tool_result", "content": "x"}], **here)
    unwanted = [user("short", **here), user("<task-notification>x", **here), results]
    unwanted += [
        user("an agent asks an agent", isSidechain=True, **here),
        user("a meta text", isMeta=True),
    ]
    unwanted += [
        user("[Request interrupted by user]"),
        user("This continues", isCompactSummary=True),
    ]
    text = [{"type": "input_text", "text": prompt(TOPICS[2])}]
    message = {"type": "message", "role": "user", "content": text}
    codex: list[dict[str, Any]] = [
        {"type": "session_meta", "payload": {"cwd": str(world), "source": "cli"}}
    ]
    codex += [{"timestamp": "2026-03-20T12:00:30Z", "type": "response_item", "payload": message}]
    meta: dict[str, Any] = {"cwd": str(world), "source": {"subagent": "review"}}
    gemini: list[dict[str, Any]] = [{"projectHash": digest, "kind": "main"}]
    gemini += [
        {
            "type": "user",
            "content": [{"text": prompt(TOPICS[3])}],
            "timestamp": "2026-03-20T12:00:40Z",
        }
    ]
    files: dict[str, list[Any]] = {
        ".claude/projects/-x/a.jsonl": [
            {"type": "summary"},
            user(prompt(TOPICS[0]), 10, **here),
            *unwanted,
        ],
        ".claude/projects/-x/b.jsonl": [
            user(prompt(TOPICS[1]), 20, **here),
            user(prompt(TOPICS[0]), 1),
        ],
        ".claude/projects/-y/c.jsonl": [user("of another project, long ago", cwd="/elsewhere")],
        ".codex/sessions/2026/03/20/rollout-1.jsonl": codex,
        ".codex/sessions/2026/03/20/rollout-2.jsonl": [{"payload": meta}, codex[1]],
        ".gemini/tmp/x/chats/session-1.jsonl": gemini,
    }
    for name, lines in files.items():
        path = isolated / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    def tried(*more: str) -> list[str]:
        found = judgekit("eval", "memories", "--json", *more).json
        return [row["prompt"] for row in found["injections"]]

    assert tried() == [prompt(TOPICS[number]) for number in (3, 2, 1, 0)]
    assert tried("--limit", "2") == [prompt(TOPICS[number]) for number in (3, 2)]


def test_the_log_gives_prompts_and_no_session_is_read_or_written(
    world: Path, judgekit: Run
) -> None:
    by_user("retrieval: {log: true}\n")
    for topic in TOPICS[:3]:
        claude_code.answer_prompt({"prompt": prompt(topic), "cwd": str(world), "session_id": "s"})
    state = Path(environment.state_home())
    before = {path: path.read_bytes() for path in state.rglob("*") if path.is_file()}
    assert len(before) == 2
    found = judgekit("eval", "memories", "--from", "log", "--json").json
    assert [row["prompt"] for row in found["injections"]] == [
        prompt(topic) for topic in TOPICS[2::-1]
    ]
    assert {path: path.read_bytes() for path in state.rglob("*") if path.is_file()} == before


VERSIONS = (
    "We ship with make release on Tuesday.",
    "Ships happen every week, by make release.",
    "Call make release to ship; tell the channel.",
    "To ship, first run the smoke tests.",
    "Shipping takes an hour, and needs two people.",
)
CROWDED_PROMPT = "How do we ship to production?"


@pytest.fixture
def crowded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a store of notes on the same subject, none of which stands out, and prompts about it."""
    store = tmp_path / ".claude" / "memory"
    store.mkdir(parents=True)
    for number, text in enumerate(VERSIONS):
        (store / f"ship-{number}.md").write_text(f"# Shipping to production\n\n{text}\n")
    (tmp_path / "prompts.txt").write_text(f"{CROWDED_PROMPT}\nWhere is the zeppelin kept?\n")
    monkeypatch.chdir(tmp_path)
    answered(1)
    return store


def evaluate(judgekit: Run) -> Any:  # noqa: ANN401 - any JSON
    return judgekit(*COMMAND, "--labels", "labels.jsonl", "--json").json


@pytest.mark.usefixtures("crowded")
def test_memories_in_each_others_way_are_named(judgekit: Run) -> None:
    found = evaluate(judgekit)
    assert found["hook"]["injected"] == 0
    (prompt,) = found["crowded"]
    assert prompt["prompt"] == CROWDED_PROMPT
    assert len(prompt["memories"]) == len(VERSIONS)


@pytest.mark.usefixtures("crowded")
def test_people_read_which_memories_are_in_each_others_way(judgekit: Run) -> None:
    done = judgekit(*COMMAND, "--labels", "labels.jsonl")
    assert "1 prompt gets nothing, because several memories fit equally well" in done.out
    assert f"  {CROWDED_PROMPT}\n    .claude/memory/ship-" in done.out
    assert ", and 1 more\n" in done.out


@pytest.mark.parametrize("remedy", ["status: superseded", "merge"])
def test_what_is_advised_about_memories_in_each_others_way_helps(
    judgekit: Run, crowded: Path, remedy: str
) -> None:
    first, *others = sorted(crowded.iterdir())
    for other in others:
        if remedy == "merge":
            other.unlink()
        else:
            other.write_text(f"---\n{remedy}\n---\n{other.read_text()}")
    if remedy == "merge":
        first.write_text("\n".join(["# Shipping to production", "", *VERSIONS]))
    found = evaluate(judgekit)
    assert found["hook"]["injected"] == 1
    assert "crowded" not in found


@pytest.mark.usefixtures("world")
def test_prompts_that_get_a_memory_are_not_called_crowded(judgekit: Run) -> None:
    found = judgekit(*COMMAND, *answered(20), "--json").json
    assert "crowded" not in found


def test_a_root_that_is_not_there_does_not_keep_others_from_being_measured(
    judgekit: Run, world: Path
) -> None:
    by_user(f"retrieval: {{roots: [nowhere, '{world / '.claude/memory'}']}}\n")
    done = judgekit(*COMMAND, *answered(20))
    assert (done.code, "relevant, share of what is injected" in done.out) == (0, True)
    assert "nowhere: no such folder, so it is not searched" in done.err


def test_a_label_may_name_a_memory_from_the_home_folder(
    judgekit: Run, isolated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (isolated / "notes").mkdir()
    (isolated / "notes" / "crane.md").write_text("# The harbour crane\n\nIts key is with Ada.\n")
    by_user("retrieval: {roots: [~/notes]}\n")
    monkeypatch.chdir(tmp_path)
    prompt = "Who has the key of the harbour crane?"
    Path("prompts.txt").write_text(prompt)
    line = {"prompt": prompt, "memory": "~/notes/crane.md", "relevant": True}
    Path("labels.jsonl").write_text(json.dumps(line))
    assert evaluate(judgekit)["hook"]["precision"]["of"] == 1
