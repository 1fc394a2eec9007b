from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import AfterValidator, Field, ValidationError

from judgekit import environment
from judgekit.config import files, yaml_text, yamlfile
from judgekit.config.yamlfile import Strict, explain_first_error, explain_json_error
from judgekit.errors import MAX_ERRORS, ConfigError


class Inner(Strict):
    limit: int
    word: str = "x"


class Outer(Strict):
    kind: str
    inner: Inner
    items: list[Inner] = []


class Words(Outer):
    words: dict[str, Literal["on", "off"]] = {}


def write(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "file.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_bundled_files_are_read_without_a_parser() -> None:
    stale = "stale: run `make generate` (python -m judgekit.config.yaml_text)"
    assert files.COMPILED.read_text(encoding="utf-8") == yaml_text.compile_bundled(), stale
    code = """
import sys
from judgekit.providers import registry
from judgekit.rubric import loader
loader.find_rubric("kls"), registry.list_profiles()
print([name for name in sys.modules if name.startswith("ruamel")])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=60)
    assert done.stdout.strip() == b"[]"


def test_yaml_is_read_as_version_1_2(tmp_path: Path) -> None:
    path = write(tmp_path, "a: no\nb: 012\nc: 0o14\nd: ~\n")
    assert yamlfile.load_yaml(path) == {"a": "no", "b": 12, "c": 12, "d": None}
    assert yamlfile.load_yaml(write(tmp_path, "# nothing\n")) == {}
    assert yamlfile.load_yaml(write(tmp_path, "a: [&x 1, &x 2, *x]\n")) == {"a": [1, 2, 2]}
    found: object = yamlfile.load_yaml(write(tmp_path, "{a: " * 50 + "1" + "}" * 50))
    for _ in range(50):
        assert isinstance(found, dict)
        found = found["a"]
    assert found == 1


@pytest.mark.parametrize(
    ("text", "line", "key", "problem"),
    [
        (
            "kind: x\ninner:\n  limit: many\n",
            3,
            "inner.limit",
            "expected a whole number, got a text",
        ),
        ("kind: x\ninner:\n  limit: 1\n  lmit: 2\n", 4, "inner.lmit", "unknown key"),
        ("kind: x\nkind: y\n", 2, "", 'duplicate key "kind"'),
        ("inner: {limit: 1}\n", 1, "", "not a kind file"),
        ("kind: [1\n", 2, "", "correct the YAML"),
        (
            "kind: x\ninner: [1\n",
            3,
            "",
            "expected ',' or ']', but the file ends here; correct the YAML",
        ),
        ("kind: x\n- 1\n", 2, "", ": this does not fit the block above it; correct"),
        ("kind: x\ninner:\n\tlimit: 1\n", 3, "", "a tab; indent with spaces"),
        (b"kind: \xff\n", None, "", "not UTF-8 (byte 6)"),
    ],
)
def test_an_error_names_the_line_the_key_and_the_problem(
    tmp_path: Path, text: str | bytes, line: int | None, key: str, problem: str
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        yamlfile.read_model(path, Outer, version_key="kind")
    assert (caught.value.line, caught.value.key) == (line, key)
    assert problem in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_error_of_a_file_is_said_in_its_order_with_what_may_be_meant(tmp_path: Path) -> None:
    items = "- {limt: 1}\n- {limit: a}\n- {limit: 2, wrd: x, quite: 3}\n"
    text = f"kind: x\nitems:\n{items}words: {{a: of}}\ninnr: {{}}\n"
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        yamlfile.read_model(path, Words)
    assert str(caught.value).splitlines() == [
        f"{path}:3: items.0.limt: unknown key; did you mean limit?",
        f"{path}:4: items.1.limit: expected a whole number, got a text",
        f"{path}:5: items.2.wrd: unknown key; did you mean word?",
        f"{path}:5: items.2.quite: unknown key; remove it or correct its spelling",
        f"{path}:6: words.a: expected 'on' or 'off'; did you mean off?",
        f"{path}:7: innr: unknown key; did you mean inner?",
    ]
    write(
        tmp_path,
        "kind: x\ninner: {limit: 1}\n" + "".join(f"x{number}: 1\n" for number in range(5_000)),
    )
    with pytest.raises(ConfigError) as caught:
        yamlfile.read_model(path, Words)
    *lines, last = str(caught.value).splitlines()
    assert (len(lines), last) == (MAX_ERRORS, "... and more")


def halved(value: int) -> int:
    if value % 2:
        raise ValueError("expected an even number")
    return value


class Kinds(Strict):
    text: Annotated[str, Field(min_length=2, max_length=5, pattern="^[a-z]*$")] = "xx"
    count: Annotated[int, Field(ge=2, le=5)] = 2
    share: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] = 0.5
    is_on: bool = True
    few: Annotated[list[str], Field(min_length=1, max_length=2)] = ["x"]
    inner: Inner = Inner(limit=1)
    named: dict[str, int] = {}
    some: Annotated[dict[str, int], Field(min_length=1)] = {"x": 1}
    word: Literal["on", "off"] = "on"
    when: datetime | None = None
    even: Annotated[int, AfterValidator(halved)] = 2


JARGON = (
    "valid",
    "instance",
    "dictionary",
    "list[",
    "validation",
    "parse",
    "input",
    "None",
    "True",
    "Kinds",
)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("text: 1", "expected a text, got a number"),
        ("text: {a: b}", "expected a text, got a mapping of 1"),
        ("text: !!python/object:os.system x", "got a value with a tag"),
        ("text: a", "expected a text of 2 or more characters"),
        ("text: abcdef", "expected a text of 5 characters at most"),
        ("text: ABC", "expected a text of the pattern ^[a-z]*$"),
        ("count: two", "expected a whole number, got a text"),
        ("count: 1", "expected a number of at least 2"),
        ("share: half", "expected a number, got a text"),
        ("share: .nan", "expected a number"),
        ("share: 1", "expected a number below 1"),
        ("is_on: maybe", "expected true or false, got a text"),
        ("few: []", "expected 1 or more entries, got an empty list"),
        ("inner: 5", "expected a mapping, got a number"),
        ("some: {}", "expected 1 or more entries, got an empty mapping"),
        ("word: true", "expected 'on' or 'off', got true"),
        ("when: later", "expected a time such as 2026-02-17T14:30:00Z, got a text"),
        ("even: 3", "expected an even number"),
        ("more: 1", "unknown key; remove it or correct its spelling"),
        ("- 1", "expected a mapping (lines `key: value`), got a list of 1"),
    ],
)
def test_a_wrong_value_is_told_in_the_words_of_the_file(
    tmp_path: Path, given: str, told: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        yamlfile.read_model(write(tmp_path, given + "\n"), Kinds)
    assert told in str(caught.value)
    assert caught.value.line == 1
    assert [word for word in JARGON if word in caught.value.problem] == []


def test_what_cannot_be_a_file_of_ours_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="larger than"):
        yamlfile.load_yaml(write(tmp_path, b"#" * (yamlfile.MAX_FILE_BYTES + 1)))
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read \(No such file"):
        yamlfile.load_yaml(tmp_path / "none.yaml")
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe.yaml")
    for name in ("zero.yaml", "pipe.yaml"):
        with pytest.raises(ConfigError, match="no regular file"):
            yamlfile.load_yaml(tmp_path / name)


COMMENTED = """# top
judge: {rubric: kls}   # mine

gate:
    # who
    paths:
      - "**/*.md"   # all
    mode: advisory # for now
retrieval:
    roots: [a, b]
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (COMMENTED, COMMENTED.replace("advisory", "blocking")),
        ("gate: {paths: [a]} # c\n", "gate: {paths: [a], mode: blocking} # c\n"),
        ("gate: # c\nx: 1\n", "gate: # c\n  mode: blocking\nx: 1\n"),
        ("# c", "# c\ngate:\n  mode: blocking\n"),
        ("", "gate:\n  mode: blocking\n"),
        ("a: 1\r\ngate:\r\n  mode: x\r\nb: é\r\n", "a: 1\r\ngate:\r\n  mode: blocking\r\nb: é\r\n"),
        ("gate:\r\n  paths: [a]\r\n", "gate:\r\n  paths: [a]\r\n  mode: blocking\r\n"),
        ("---\na: 'x' # c\nb: \"y\"\n", "---\na: 'x' # c\nb: \"y\"\ngate:\n  mode: blocking\n"),
        ('{"gate": {"mode": "advisory"}}', '{"gate": {"mode": "blocking"}}\n'),
        ("{a: 1}", "{a: 1, gate: {mode: blocking}}\n"),
    ],
)
def test_one_key_is_set_and_all_else_stays(tmp_path: Path, before: str, after: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(before.encode())
    yaml_text.put_value(path, "gate", "mode", "blocking")
    assert path.read_bytes().decode() == after


def test_a_file_is_made_where_it_is_missing_and_left_alone_in_an_unusual_layout(
    tmp_path: Path,
) -> None:
    path = tmp_path / ".judgekit" / "config.yaml"
    yaml_text.put_value(path, "gate", "mode", "blocking")
    assert path.read_text() == "gate:\n  mode: blocking\n"
    assert [each.name for each in path.parent.iterdir()] == ["config.yaml"]
    for text in ("gate: 3\n", "[gate]\n", "gate: [a]\n"):
        path.write_text(text)
        with pytest.raises(ConfigError, match="by hand"):
            yaml_text.put_value(path, "gate", "mode", "blocking")
        assert path.read_text() == text
    real = tmp_path / "real.yaml"
    real.write_text("a: 1\n")
    real.chmod(0o640)
    (tmp_path / "link.yaml").symlink_to(real)
    with pytest.raises(ConfigError, match="links in a project are not followed"):
        yaml_text.put_value(tmp_path / "link.yaml", "gate", "mode", "blocking")
    assert real.read_text() == "a: 1\n"
    own = Path(environment.config_home()) / "config.yaml"
    own.parent.mkdir(parents=True, exist_ok=True)
    own.symlink_to(real)
    yaml_text.put_value(own, "gate", "mode", "blocking")
    assert own.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert "blocking" in real.read_text()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[" * 30_000, "nested more than 50 levels deep"),
        (
            '["]", ' * 5_000,
            "nested more than 50 levels deep",
        ),  # closing brackets that close nothing
        ("- " * 15_000 + "x", "nested more than 50 levels deep"),
        ("".join(f"{' ' * level}a:\n" for level in range(200)), "nested more than 50 levels deep"),
        ("? " * 20 + "x", "a list or mapping as a key"),
        ("{" * 20 + "x: 1" + "}: 1" * 20, "a list or mapping as a key"),
        ("a: &a {b: 1}\n? *a\n: 1\n", "a list or mapping as a key"),
        ("a: " + "9" * 5_000, "Exceeds the limit"),
    ],
)
def test_yaml_that_would_keep_a_parser_busy_is_refused(
    tmp_path: Path, text: str, problem: str
) -> None:
    path = write(tmp_path, text)
    before = time.process_time()
    with pytest.raises(ConfigError, match=problem):
        yamlfile.load_yaml(path)
    with pytest.raises(ConfigError, match=problem):
        yaml_text.parse_yaml(text)
    with pytest.raises(ConfigError):
        yaml_text.edit_yaml(text, dict.clear)
    assert time.process_time() - before < 5  # each would take minutes, or years


def test_json_is_read_as_json(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    for text, line, said in (
        ("[" * 100_000, None, "nested too deeply to read; correct the JSON"),
        ('{"kind": "x",\n "kind": "y"}', None, 'duplicate key "kind"; correct the JSON'),
        ('{"kind": "x",\n inner: 1}', 2, "correct the JSON"),
        ('{"kind": ' + "9" * 5_000 + "}", None, "correct the JSON"),
        (
            '{"kind": "x", "inner": {"limit": "many"}}',
            None,
            r"inner\.limit: expected a whole number, got a text",
        ),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError, match=said) as caught:
            yamlfile.read_model(path, Outer)
        assert caught.value.line == line


class Tree(Strict):
    leaf: Inner | list[str] | Literal["none", "some"]


def test_of_several_shapes_the_one_that_fits_best_is_told_of() -> None:
    """And no name that is pydantic's, whether the data came as values or as JSON."""
    table: list[tuple[dict[str, object], str]] = [
        ({"leaf": 4}, "leaf: expected a mapping, a list or 'none' or 'some', got a number"),
        ({"leaf": ["a", 4]}, "leaf.1: expected a text, got a number"),
        ({"leaf": {"limit": "x"}}, "leaf.limit: expected a whole number, got a text"),
        ({"leaf": {"limit": 1}, "root": 1}, "root: unknown key; remove it or correct its spelling"),
    ]
    for data, told in table:
        with pytest.raises(ValidationError) as failed:
            Tree.model_validate(data)
        assert str(explain_first_error(failed.value.errors(include_url=False), data)) == told
        assert str(explain_json_error(json.dumps(data), failed.value)) == told
