"""Our entries in the text of a settings file: added once, taken out without a trace."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from judgekit.errors import ConfigError
from judgekit.hooks import entries

HOOK = entries.fastest("/usr/bin/python3")
FOREIGN = {"type": "command", "command": "notify-send", "args": ["prompt"]}
OLD = {"type": "command", "command": "judgekit", "args": ["hook"], "timeout": 10}


def install(text: str, hook: dict[str, Any] | None = None) -> str:
    return entries.installed(text, hook or HOOK, "settings.json")


def uninstall(text: str) -> str:
    return entries.uninstalled(text, "settings.json")


def ours(text: str) -> list[tuple[str, object, dict[str, Any]]]:
    return [
        (hook_entry.event, hook_entry.matcher, hook_entry.hook)
        for hook_entry in entries.found(text, "settings.json")
    ]


EDIT = HOOK | {"timeout": 10}
STOP = HOOK | {"timeout": 75}
WHOLE = [
    ("UserPromptSubmit", None, HOOK),
    ("PostToolUse", "Edit|Write|MultiEdit|NotebookEdit", EDIT),
    ("Stop", None, STOP),
    ("SessionStart", None, EDIT),
]


def test_a_new_file() -> None:
    text = install("")
    assert text.endswith("}\n")
    assert json.loads(text) == {
        "hooks": {
            "UserPromptSubmit": [{"hooks": [HOOK]}],
            "PostToolUse": [{"matcher": "Edit|Write|MultiEdit|NotebookEdit", "hooks": [EDIT]}],
            "Stop": [{"hooks": [STOP]}],
            "SessionStart": [{"hooks": [EDIT]}],
        }
    }
    assert uninstall(text) == ""


TEXTS = {
    "empty object": "{}",
    "empty object, spaced": "{ }\n",
    "empty object, two lines": "{\n}\n",
    "blank": " \r\n",
    "byte order mark alone": "\ufeff",
    "no hooks": '{\n  "model": "opus"\n}\n',
    "no newline at the end": '{\n  "model": "opus"\n}',
    "newlines at the end": '{\n  "model": "opus"\n}\n\n\n',
    "byte order mark": '\ufeff{\n  "model": "opus"\n}\n',
    "carriage returns": '{\r\n  "model": "opus"\r\n}\r\n',
    "old Mac": '{\r  "model": "opus"\r}\r',
    "mixed": '{\r\n  "model": "opus",\n  "a": 1\r}\n',
    "tabs": '{\n\t"model": "opus",\n\t"hooks": {\n\t\t"Stop": []\n\t}\n}\n',
    "four spaces": '{\n    "permissions": {\n        "allow": ["Bash(ls:*)"]\n    }\n}\n',
    "no indent": '{\n"model": "opus",\n"hooks": {\n"Stop": []\n}\n}\n',
    "one line": '{"model":"opus","env":{"A":"b"}}',
    "one line, spaced": '{ "model": "opus", "hooks": { "Stop": [ ] } }',
    "empty hooks": '{"hooks": {}}',
    "empty hooks, spaced": '{"hooks": { }, "model": "opus"}',
    "empty hooks, lines": '{\n  "hooks": {\n  }\n}\n',
    "empty event": '{"hooks": {"UserPromptSubmit": []}}',
    "empty events": '{"hooks": {"UserPromptSubmit": [\n], "PostToolUse": [ ]}}',
    "keys twice": '{"model": 1, "model": 2, "hooks": {"Stop": []}, "hooks": {"Stop": [], "Stop": []}}',
    "escapes": '{"caf\\u00e9": "\\ud83d\\ude00 \\/", "\\u0068ooks": {}}',
    "not ASCII": '{"公司": "Ünïcödé \u200b\u2028 🙂"}',
    "numbers": '{"a": 1.0, "b": 1e5, "c": -0, "d": 12345678901234567890.000}',
    "groups of other shapes": '{"hooks": {"SessionEnd": [3, {}, {"hooks": 1}, {"hooks": []}, null]}}',
    "events of other shapes": '{"hooks": {"SessionEnd": null, "Nope": 3}}',
    "other hooks": json.dumps(
        {
            "hooks": {
                "UserPromptSubmit": [{"hooks": [FOREIGN]}],
                "PostToolUse": [{"matcher": "Bash", "hooks": [FOREIGN, FOREIGN]}],
                "Stop": [{"hooks": [FOREIGN]}],
            },
            "disableAllHooks": False,
        },
        indent=3,
    ),
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_in_and_out_again(text: str) -> None:
    there = install(text)
    assert ours(there) == WHOLE or sorted(map(str, ours(there))) == sorted(map(str, WHOLE))
    assert install(there) == there
    assert uninstall(there) == text
    assert without_ours(json.loads(there.removeprefix("\ufeff"))) == without_ours(read(text))


def read(text: str) -> Any:  # noqa: ANN401 - any JSON value
    return {} if text.strip("\ufeff \r\n") == "" else json.loads(text.removeprefix("\ufeff"))


def without_ours(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings without our groups and without hooks and events that hold nothing."""
    hooks = settings.get("hooks", {})
    left = {
        event: [
            group
            for group in groups
            if not (isinstance(group, dict) and group.get("hooks") in ([HOOK], [EDIT], [STOP]))
        ]
        if isinstance(groups, list)
        else groups
        for event, groups in hooks.items()
    }
    left = {event: groups for event, groups in left.items() if groups != []}
    rest = {name: value for name, value in settings.items() if name != "hooks"}
    return {**rest, **({"hooks": left} if left else {})}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_what_stood_there_still_stands_there(text: str) -> None:
    """The text with our part is the old text with something put in at one or more places."""
    there = iter(install(text))
    assert all(character in there for character in text)


def test_carriage_returns_are_kept_to() -> None:
    assert "\n" not in install(TEXTS["carriage returns"]).replace("\r\n", "")


@pytest.mark.parametrize("text", ["{}", TEXTS["other hooks"], TEXTS["tabs"], ""])
@pytest.mark.parametrize("second", [entries.portable(), OLD, entries.fastest("/elsewhere/python3")])
def test_another_form_replaces_ours(text: str, second: dict[str, Any]) -> None:
    changed = install(install(text), second)
    assert {event: hook for event, _, hook in ours(changed)} == {
        event: entries.timed(second, event) for event in entries.EVENTS
    }
    assert len(ours(changed)) == len(entries.EVENTS)
    assert uninstall(changed) == text
    assert install(changed) == install(text)


def test_what_a_person_wrote_is_replaced_in_all_its_places() -> None:
    text = json.dumps(
        {
            "hooks": {
                "UserPromptSubmit": [
                    {"hooks": [FOREIGN, OLD]},
                    {"hooks": [{"type": "command", "command": "judgekit hook"}]},
                ],
                "SessionEnd": [{"hooks": [OLD]}],
                "PostToolUse": [{"matcher": "Write", "hooks": [OLD, FOREIGN]}],
            }
        }
    )
    there = json.loads(install(text))["hooks"]
    assert there["UserPromptSubmit"] == [{"hooks": [FOREIGN]}, {"hooks": [HOOK]}]
    assert there["PostToolUse"][0] == {"matcher": "Write", "hooks": [FOREIGN]}
    assert there["PostToolUse"][1]["hooks"] == [EDIT]
    assert there["SessionEnd"] == []
    assert ours(uninstall(text)) == []


def test_equal_entries_among_others_hooks_stay_where_they_are() -> None:
    text = json.dumps(
        {
            "hooks": {
                "PostToolUse": [{"matcher": "Edit|Write|MultiEdit|NotebookEdit", "hooks": [FOREIGN, EDIT]}],
                "UserPromptSubmit": [{"hooks": [HOOK, FOREIGN]}],
                "Stop": [{"hooks": [FOREIGN]}, {"hooks": [STOP]}],
                "SessionStart": [{"hooks": [EDIT, FOREIGN]}],
            }
        }
    )
    assert install(text) == text


def test_an_installation_without_the_stop_event_gets_it() -> None:
    earlier = json.dumps({"hooks": {"UserPromptSubmit": [{"hooks": [HOOK]}]}})
    assert ("Stop", None, STOP) in ours(install(earlier))
    short = json.dumps({"hooks": {"Stop": [{"hooks": [HOOK]}]}})  # its time is too short to judge anything
    assert sorted(map(str, ours(install(short)))) == sorted(map(str, WHOLE))


def test_one_too_many_is_taken_out() -> None:
    twice = json.dumps({"hooks": {"UserPromptSubmit": [{"hooks": [HOOK]}] * 2}})
    assert sorted(map(str, ours(install(twice)))) == sorted(map(str, WHOLE))


EDITS = [
    ('"model": "opus"', '"model": "haiku"'),
    ('"model": "opus"', '"model": "opus", "env": {"A": "b"}'),
    ('"SessionEnd": []', '"SessionEnd": [], "SessionStart": [{"hooks": []}]'),
    ('{"model"', '{\n\n"first": 1, "model"'),
]


@pytest.mark.parametrize(("old", "new"), EDITS)
def test_edits_made_meanwhile_stay(old: str, new: str) -> None:
    text = '{"model": "opus", "hooks": {"SessionEnd": []}}\n'
    edited = install(text).replace(old, new)
    assert edited != install(text)
    assert uninstall(edited) == text.replace(old, new)


def test_a_member_added_after_ours_stays() -> None:
    edited = install("{}").removesuffix("}") + ', "model": "opus"}'
    assert uninstall(edited) == '{"model": "opus"}'


def test_a_file_that_the_client_wrote_anew_loses_ours_alone() -> None:
    settings = json.loads(install("{}")) | {"permissions": {"allow": ["Bash(ls:*)"]}}
    rewritten = json.dumps(settings, indent=2)
    assert json.loads(uninstall(rewritten)) == {"permissions": {"allow": ["Bash(ls:*)"]}}


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("{", 1, "not valid JSON"),
        ('{\n  // mine\n  "a": 1\n}', 2, "not valid JSON"),
        ('{"a": 1,\n}', 2, "not valid JSON"),
        ("[]", 1, "an object of settings"),
        ("\n3", 2, "an object of settings"),
        ('{\n"hooks": []}', 2, "hooks: expected an object"),
        ('{"hooks": null}', 1, "hooks: expected an object"),
        ('{"hooks": {},\n\n"hooks": "none"}', 3, "hooks: expected an object"),
        ('{"hooks": {\n"UserPromptSubmit": {}}}', 2, "hooks.UserPromptSubmit: expected an array"),
        ('{"hooks": {"PostToolUse": null}}', 1, "hooks.PostToolUse: expected an array"),
        ('{"hooks": {\n"UserPromptSubmit": ["x"]}}', 2, "hooks.UserPromptSubmit.0: expected an object with"),
        ('{"hooks": {"Stop": [{"hooks": []},\n{"hooks": "x"}]}}', 2, "hooks.Stop.1: expected an object with"),
        ('{"hooks": {"Stop": [{"matcher": ""}]}}', 1, "hooks.Stop.0: expected an object with"),
        ('{"hooks": {"Stop": [{"hooks": [3]}]}}', 1, "hooks.Stop.0: expected an object with"),
    ],
)
def test_what_cannot_take_an_entry_is_refused(text: str, line: int, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        install(text)
    message = str(caught.value)
    assert message.startswith(f"settings.json:{line}: ")
    assert said in message
    assert "nothing was changed" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    "text", ['{"hooks": []}', '{"hooks": {"UserPromptSubmit": 3}}', "{}", "", TEXTS["keys twice"]]
)
def test_nothing_of_ours_is_nothing_to_take_out(text: str) -> None:
    assert uninstall(text) == text


spaces = st.text(" \t\n\r", max_size=3)
texts = st.text(max_size=5)
scalars = st.one_of(st.none(), st.booleans(), st.integers(), texts)
anything = st.recursive(
    scalars,
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
events = st.sampled_from(["UserPromptSubmit", "PostToolUse", "Stop", "SessionStart", "SessionEnd"])
settings_ = st.dictionaries(texts.filter(lambda each: each != "hooks"), anything, max_size=3)
with_hooks = st.tuples(settings_, st.dictionaries(events, groups, max_size=3)).map(
    lambda pair: pair[0] | {"hooks": pair[1]}
)


@st.composite
def written(draw: st.DrawFn, value: object) -> str:
    """Write a value as JSON with whitespace anywhere and any letter perhaps escaped."""
    if isinstance(value, dict):
        parts = [
            f"{draw(spaces)}{draw(written(str(key)))}{draw(spaces)}:{draw(spaces)}{draw(written(item))}{draw(spaces)}"
            for key, item in value.items()
        ]
        return "{" + (",".join(parts) or draw(spaces)) + "}"
    if isinstance(value, list):
        parts = [f"{draw(spaces)}{draw(written(item))}{draw(spaces)}" for item in value]
        return "[" + (",".join(parts) or draw(spaces)) + "]"
    return json.dumps(value, ensure_ascii=draw(st.booleans()))


@st.composite
def files(draw: st.DrawFn) -> str:
    """Write settings the way a tool or a person does, or with whitespace anywhere."""
    value = draw(st.one_of(settings_, with_hooks))
    if draw(st.booleans()):
        indent = draw(st.sampled_from([None, 0, 2, 4, "\t"]))
        body = json.dumps(value, indent=indent, ensure_ascii=draw(st.booleans()))
        body = body.replace("\n", draw(st.sampled_from(["\n", "\r\n"])))
    else:
        body = draw(written(value))
    return draw(st.sampled_from(["", "\ufeff"])) + draw(spaces) + body + draw(spaces)


def is_odd(hooks: dict[str, Any]) -> bool:
    """Whether an event that gets an entry of ours holds what the client cannot read."""
    groups = [group for event in entries.EVENTS for group in hooks.get(event, [])]
    return any(
        not isinstance(group, dict)
        or not isinstance(group.get("hooks"), list)
        or not all(isinstance(hook, dict) for hook in group["hooks"])
        for group in groups
    )


@settings(deadline=None)
@given(files(), st.sampled_from([HOOK, entries.portable(), OLD]), st.sampled_from([HOOK, entries.portable()]))
def test_any_file_comes_back(text: str, first: dict[str, Any], second: dict[str, Any]) -> None:
    assume(not ours(text))
    if is_odd(read(text).get("hooks", {})):
        with pytest.raises(ConfigError, match="an object with an array"):
            install(text, first)
        return
    there = install(text, first)
    assert uninstall(there) == text
    assert install(there, first) == there
    assert uninstall(install(there, second)) == text
    rest = iter(there)
    assert all(character in rest for character in text)
    before, after = read(text), read(there)
    added = {"hooks": {**before.get("hooks", {})}}
    for event, group in (
        ("UserPromptSubmit", {}),
        ("PostToolUse", {"matcher": entries.EVENTS["PostToolUse"]}),
        ("Stop", {}),
        ("SessionStart", {}),
    ):
        hook = entries.timed(first, event)
        added["hooks"][event] = [*added["hooks"].get(event, []), {**group, "hooks": [hook]}]
    assert after == {**before, **added}
