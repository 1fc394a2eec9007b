"""Which of a client's hooks are ours, and settings with and without them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from judgekit import programs
from judgekit.errors import ConfigError
from judgekit.hooks import entries

if TYPE_CHECKING:
    from pathlib import Path

CODE = entries.code("/opt/elsewhere/site-packages")


def hook(command: object, *args: object, **more: object) -> dict[str, Any]:
    return {"type": "command", "command": command, **({"args": list(args)} if args else {}), **more}


OURS = [
    *(entries.fastest(), entries.fastest("/usr/bin/python3.13"), entries.portable()),
    *map(hook, (entries.OLDER, "judgekit hook", "'/with space/judgekit' hook", "exec judgekit hook")),
    *map(hook, ("python3 -m judgekit hook", "uv run --project . judgekit hook")),
    *(hook("judgekit", "hook"), hook("/home/you/.local/bin/judgekit", "hook")),
    *(hook(r"C:\Tools\judgekit.exe", "hook"), hook("python", "-m", "judgekit", "hook")),
    hook("/usr/bin/python3.11", "-P", "-m", "judgekit", "hook"),
    hook("python3", "-m", "judgekit.hooks.claude_code"),
    hook("pypy3", "-I", "-S", "-c", CODE),
    hook(r"C:\Python\pythonw.exe", "-c", CODE),
    hook("/usr/bin/env", "JUDGEKIT_DISABLE=1", "python", "-m", "judgekit", "hook"),
    hook("judgekit", "hook", timeout=60, statusMessage="thinking"),
]
AMONG_OTHERS = [
    *map(hook, ("judgekit hook && notify-send done", "log-prompt; judgekit hook", "judgekit hook | tee log")),
    *map(hook, ("judgekit hook\nnotify-send done", "echo judgekit hook")),
]
NOT_OURS: list[object] = [
    *(hook("judgekit", "search"), hook("judgekit"), hook("  "), hook(None), hook(["judgekit", "hook"])),
    *(hook("python3", "-m"), hook("", "-c", 3), hook("python3", "-m", "judgekit", "search")),
    hook("python3", "-m", "judgekit_other", "hook"),
    *({"type": "prompt", "prompt": "judgekit hook"}, {}, None, "judgekit hook", 3),
]
OTHERS = [
    *(hook("judgekit-other", "hook"), hook("my-judgekit hook"), hook("echo", "judgekit", "hook")),
    *(hook("/opt/judgekit/bin/other", "hook"), hook("python3", "/home/you/judgekit/other.py", "hook")),
    *(hook("python3", "-c", "print('judgekit.hooks')"), hook("pythonic", "-m", "judgekit", "hook")),
    *(hook("judgekit 'hook"), hook("judgekit hook", ""), {"command": "judgekit hook"}),
]


def test_which_hooks_are_ours() -> None:
    for each in OURS:
        assert entries.is_ours(each), each
        assert not entries.mentions_us(each), each
    assert not any(map(entries.is_ours, [*AMONG_OTHERS, *NOT_OURS, *OTHERS]))
    assert all(map(entries.mentions_us, AMONG_OTHERS))
    assert not any(map(entries.mentions_us, NOT_OURS))


def test_the_two_forms() -> None:
    fastest = entries.fastest()
    assert [fastest["command"], *fastest["args"]] == entries.command()
    assert fastest["command"] == sys.executable
    assert entries.fastest("/elsewhere/python")["command"] == "/elsewhere/python"
    text = json.dumps(entries.portable())
    assert sys.executable not in text
    assert programs.ROOT not in text
    assert "args" not in entries.portable(), "only a shell can find out that judgekit is not there"


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_portable_form_never_costs_the_prompt(tmp_path: Path, shell: str) -> None:
    """Code 2, with which a stranger's `judgekit` would refuse our argument, erases a prompt."""
    if not os.access(f"/bin/{shell}", os.X_OK):
        pytest.skip(f"no /bin/{shell}")
    there = 'read -r line || :; echo "$1 got $line"'
    for script in (None, there, "exit 2", "kill -9 $$"):
        if script is not None:
            (tmp_path / "judgekit").write_text(f"#!/bin/sh\n{script}\n")
            (tmp_path / "judgekit").chmod(0o755)
        done = subprocess.run(
            [f"/bin/{shell}", "-c", entries.PORTABLE],
            input="the prompt",
            env={"PATH": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        printed = "hook got the prompt\n" if script == there else ""
        assert (done.returncode, done.stdout) == (0, printed), script
        if script is None:
            assert done.stderr == ""


HOOK = entries.fastest("/usr/bin/python3")
EDIT, STOP = HOOK | {"timeout": 10}, HOOK | {"timeout": 75}
FOREIGN = {"type": "command", "command": "notify-send", "args": ["prompt"]}
OLD = {"type": "command", "command": "judgekit", "args": ["hook"], "timeout": 10}
TOOLS = "Edit|Write|MultiEdit|NotebookEdit"
WHOLE = [
    ("UserPromptSubmit", None, HOOK),
    ("PostToolUse", TOOLS, EDIT),
    ("Stop", None, STOP),
    ("SessionStart", None, EDIT),
]
OTHER_HOOKS = {
    "hooks": {
        "UserPromptSubmit": [{"hooks": [FOREIGN]}],
        "PostToolUse": [{"matcher": "Bash", "hooks": [FOREIGN, FOREIGN]}],
        "SessionEnd": [3, {}, {"hooks": 1}, {"hooks": []}, None],
        "Nope": 3,
    },
    "disableAllHooks": False,
}


def install(text: str, hook: dict[str, Any] = HOOK) -> str:
    return entries.installed(text, hook, "settings.json")


def uninstall(text: str) -> str:
    return entries.uninstalled(text, "settings.json")


def ours(text: str) -> list[tuple[object, ...]]:
    return sorted(map(tuple, entries.found(text, "settings.json")), key=str)


def read(text: str) -> Any:  # noqa: ANN401 - any JSON value
    return json.loads(text.strip("\ufeff \r\n") or "{}")


def test_a_new_file() -> None:
    for blank in ("", " \r\n", "\ufeff"):
        text = install(blank)
        assert text.endswith("}\n")
        assert read(text) == {
            "hooks": {
                "UserPromptSubmit": [{"hooks": [HOOK]}],
                "PostToolUse": [{"matcher": TOOLS, "hooks": [EDIT]}],
                "Stop": [{"hooks": [STOP]}],
                "SessionStart": [{"hooks": [EDIT]}],
            }
        }
        assert uninstall(text) == ""


def test_a_file_keeps_its_layout() -> None:
    for text in (
        '{\n  "model": "opus"\n}\n',
        '{\n  "model": "opus"\n}',
        '\ufeff{\n    "permissions": {\n        "allow": [\n            "Bash"\n        ]\n    }\n}\n\n\n',
        '{\r\n  "model": "opus"\r\n}\r\n',
        '{\n\t"model": "opus",\n\t"hooks": {\n\t\t"SessionEnd": []\n\t}\n}\n',
        '{\n"model": "opus"\n}\n',
        '{"model": "opus", "env": {"A": "b"}}',
        '{"公司": "Ünïcödé \u200b\u2028 🙂"}',
        '{"caf\\u00e9": "\\ud83d\\ude00"}',
        json.dumps(OTHER_HOOKS, indent=3),
    ):
        there = install(text)
        assert ours(there) == sorted(WHOLE, key=str)
        assert install(there) == there
        assert uninstall(there) == text
        assert ("\r\n" in text) == ("\r\n" in there)
        rest = iter(there)
        assert all(character in rest for character in text), "what stood there still stands there"


def test_another_form_replaces_ours() -> None:
    for text in ("", '{"model": 1}', json.dumps(OTHER_HOOKS)):
        for second in (entries.portable(), OLD, entries.fastest("/elsewhere/python3")):
            changed = install(install(text), second)
            assert ours(changed) == sorted(
                ((event, matcher, entries.timed(second, event)) for event, matcher in entries.EVENTS.items()),
                key=str,
            )
            assert uninstall(changed) == text
            assert install(changed) == install(text)


def test_what_a_person_wrote_is_replaced_in_all_its_places() -> None:
    written = {
        "UserPromptSubmit": [{"hooks": [FOREIGN, OLD]}, {"hooks": [hook("judgekit hook")]}],
        "SessionEnd": [{"hooks": [OLD]}],
        "PostToolUse": [{"matcher": "Write", "hooks": [OLD, FOREIGN]}],
    }
    there = read(install(json.dumps({"hooks": written})))["hooks"]
    assert there["UserPromptSubmit"] == [{"hooks": [FOREIGN]}, {"hooks": [HOOK]}]
    edits = [{"matcher": "Write", "hooks": [FOREIGN]}, {"matcher": TOOLS, "hooks": [EDIT]}]
    assert there["PostToolUse"] == edits
    assert "SessionEnd" not in there


def test_an_earlier_installation_is_completed_and_a_whole_one_stays_where_it_is() -> None:
    earlier = [
        {"UserPromptSubmit": [{"hooks": [HOOK]}]},
        {"Stop": [{"hooks": [HOOK]}]},  # its time is too short to judge anything
        {"UserPromptSubmit": [{"hooks": [HOOK]}] * 2},
    ]
    for hooks in earlier:
        assert ours(install(json.dumps({"hooks": hooks}))) == sorted(WHOLE, key=str), hooks
    whole = {
        "PostToolUse": [{"matcher": TOOLS, "hooks": [FOREIGN, EDIT]}],
        "UserPromptSubmit": [{"hooks": [HOOK, FOREIGN]}],
        "Stop": [{"hooks": [FOREIGN]}, {"hooks": [STOP]}],
        "SessionStart": [{"hooks": [EDIT, FOREIGN]}],
    }
    assert install(json.dumps({"hooks": whole})) == json.dumps({"hooks": whole})


def test_edits_made_meanwhile_stay_and_half_of_a_surrogate_pair_stays_escaped() -> None:
    edited = install('{\n  "model": "opus"\n}\n').replace('"opus"', '"haiku",\n  "env": {\n    "A": "b"\n  }')
    assert uninstall(edited) == '{\n  "model": "haiku",\n  "env": {\n    "A": "b"\n  }\n}\n'
    assert read(install('{"a": "\\ud800 ü"}'))["a"] == "\ud800 ü"


def test_what_cannot_take_an_entry_is_refused() -> None:
    for text, said in (
        ("{", "settings.json:1: not valid JSON"),
        ('{\n  // mine\n  "a": 1\n}', "settings.json:2: not valid JSON"),
        ('{"a": 1,\n}', "settings.json:"),
        ('{"a": 1} {}', "settings.json:1: not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "an object of settings"),
        ("3", "an object of settings"),
        ('{"hooks": []}', "hooks: expected an object"),
        ('{"hooks": null}', "hooks: expected an object"),
        ('{"hooks": {"UserPromptSubmit": {}}}', "hooks.UserPromptSubmit: expected an array"),
        ('{"hooks": {"PostToolUse": null}}', "hooks.PostToolUse: expected an array"),
        ('{"hooks": {"UserPromptSubmit": ["x"]}}', "hooks.UserPromptSubmit.0: expected an object with"),
        ('{"hooks": {"Stop": [{"hooks": []}, {"hooks": "x"}]}}', "hooks.Stop.1: expected an object with"),
        ('{"hooks": {"Stop": [{"matcher": ""}]}}', "hooks.Stop.0: expected an object with"),
        ('{"hooks": {"Stop": [{"hooks": [3]}]}}', "hooks.Stop.0: expected an object with"),
    ):
        with pytest.raises(ConfigError) as caught:
            install(text)
        message = str(caught.value)
        assert message.startswith("settings.json:")
        assert said in message
        assert "nothing was changed" in message
        assert "\n" not in message


texts = st.text(max_size=5)
anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), texts),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
hooks = st.one_of(st.just(FOREIGN), anything)
groups = st.lists(
    st.one_of(
        st.fixed_dictionaries({"hooks": st.lists(hooks, max_size=2)}, optional={"matcher": texts}), anything
    ),
    max_size=2,
)
events = st.sampled_from([*entries.EVENTS, "SessionEnd"])
settings_ = st.dictionaries(texts.filter(lambda each: each != "hooks"), anything, max_size=3)
with_hooks = st.tuples(settings_, st.dictionaries(events, groups, max_size=3)).map(
    lambda pair: pair[0] | {"hooks": pair[1]}
)


@settings(deadline=None, max_examples=50)
@given(
    st.one_of(settings_, with_hooks),
    st.sampled_from([None, 0, 2, 4, "\t"]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([HOOK, entries.portable(), OLD]),
)
def test_any_settings_come_back(
    before: dict[str, Any], indent: int | str | None, newline: str, form: dict[str, Any]
) -> None:
    text = json.dumps(before, indent=indent, ensure_ascii=False).replace("\n", newline)
    assume(not ours(text))
    try:
        there = install(text, form)
    except ConfigError as error:
        assert "an object with an array" in str(error)  # noqa: PT017 - one of two outcomes
        return
    after = read(there)
    expected = {"hooks": {**before.get("hooks", {})}}
    for event, matcher in entries.EVENTS.items():
        group = ({} if matcher is None else {"matcher": matcher}) | {"hooks": [entries.timed(form, event)]}
        expected["hooks"][event] = [*expected["hooks"].get(event, []), group]
    assert after == {**before, **expected}
    assert install(there, form) == there
    left = {
        event: groups
        for event, groups in before.get("hooks", {}).items()
        if groups or event not in entries.EVENTS
    }
    rest = {**before, **({"hooks": left} if left else {})}
    assert read(uninstall(there) or "{}") == (
        {key: value for key, value in rest.items() if key != "hooks" or left}
    )
