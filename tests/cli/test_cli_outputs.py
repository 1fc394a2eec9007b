"""A command never writes through a link that a clone may have brought, and never half a file."""

from __future__ import annotations

import json
import os
import stat
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from scripted import by_content

from judgekit import outputs

if TYPE_CHECKING:
    from outcome import Run, Served

pytestmark = [
    pytest.mark.usefixtures("project", "no_servers"),
    pytest.mark.skipif(sys.platform == "win32", reason="links of POSIX"),
]
ROWS = ("judge", "--data", "rows.jsonl", "--rubric", "kls", "--out")
WRITERS = {
    "out.jsonl": (*ROWS, "out.jsonl"),
    "out.jsonl.again.jsonl": (*ROWS, "out.jsonl"),
    "out.csv": (*ROWS, "out.csv"),
    "out.csv.part.jsonl": (*ROWS, "out.csv"),
    "out.csv.again.jsonl": (*ROWS, "out.csv"),
    "verdict.json": ("judge", "good.md", "--format", "json", "--out", "verdict.json"),
    "schema.json": ("schema", "verdict", "--out", "schema.json"),
    "page.html": ("report", "done.jsonl", "--html", "page.html"),
    "sheet.csv": ("report", "done.jsonl", "--labels", "sheet.csv", "--sample", "1"),
    ".claude/settings.json": ("install", "claude-code", "--scope", "project"),
    ".claude/settings.local.json": ("install", "claude-code", "--scope", "local"),
    ".codex/hooks.json": ("install", "codex", "--scope", "project"),
    ".gemini/settings.json": ("install", "gemini", "--scope", "project"),
    ".pre-commit-config.yaml": ("install", "pre-commit"),
    ".judgekit/rubrics/mine@1.0.0.yaml": ("rubric", "new", "mine", "--task", "score"),
}


@pytest.fixture
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


def prepare(served: Served) -> None:
    Path("rows.jsonl").write_text('{"id": "$(touch PWNED)", "text": "fine"}\n')
    assert served(by_content, *ROWS, "done.jsonl")[0].code == 0


@pytest.mark.parametrize("name", WRITERS)
def test_nothing_is_written_where_a_clones_link_leads(
    served: Served, outside: Path, name: str
) -> None:
    prepare(served)
    link = Path(name)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(outside / ".bash_profile")
    done, asked = served(by_content, *WRITERS[name])
    assert list(outside.iterdir()) == []
    assert (done.code in (64, 65, 78), asked) == (True, []), done.err
    assert "is a link" in done.err
    assert link.is_symlink()


@pytest.mark.parametrize("name", [name for name in WRITERS if "/" in name])
def test_nor_in_a_folder_that_a_link_leads_to(judgekit: Run, outside: Path, name: str) -> None:
    folder = Path(name).parent
    folder.parent.mkdir(exist_ok=True)
    if folder.is_dir():
        folder.rename("was")
    folder.symlink_to(outside)
    done = judgekit(*WRITERS[name])
    assert (done.code in (64, 65, 78), list(outside.iterdir())) == (True, []), done.err


@pytest.mark.parametrize("where", ["results/out.jsonl", "{here}/results/out.jsonl"])
def test_a_linked_folder_of_the_project_takes_no_results(
    served: Served, outside: Path, where: str
) -> None:
    prepare(served)
    Path("results").symlink_to(outside)
    out = where.format(here=Path.cwd())
    done, asked = served(by_content, *ROWS, out)
    assert (done.code, asked, list(outside.iterdir())) == (64, [], [])
    assert f"is below {Path.cwd() / 'results'}, a link" in done.err


def test_a_link_in_another_project_than_the_current_one_is_none_of_the_users(
    served: Served, outside: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    prepare(served)
    clone = tmp_path_factory.mktemp("clone")
    (clone / ".git").mkdir()
    (clone / "out.jsonl").symlink_to(outside / "x.jsonl")
    done, _ = served(by_content, *ROWS, str(clone / "out.jsonl"))
    assert (done.code, list(outside.iterdir())) == (64, [])


def test_links_of_the_user_outside_of_projects_are_followed(served: Served, outside: Path) -> None:
    prepare(served)
    (outside / "real").mkdir()
    (outside / "results").symlink_to(outside / "real")
    done, _ = served(by_content, *ROWS, str(outside / "results" / "out.jsonl"))
    assert (done.code, (outside / "real" / "out.jsonl").exists()) == (0, True)


def test_the_users_own_settings_may_be_a_link(
    judgekit: Run, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(Path.cwd() / "mine"))
    Path("mine").mkdir()
    (outside / "settings.json").write_text('{"theme": "dark"}\n')
    Path("mine", "settings.json").symlink_to(outside / "settings.json")
    assert judgekit("install", "claude-code", "--scope", "user").code == 0
    assert Path("mine", "settings.json").is_symlink()
    assert set(json.loads((outside / "settings.json").read_text())) == {"theme", "hooks"}
    assert judgekit("uninstall", "claude-code", "--scope", "user").code == 0
    assert (outside / "settings.json").read_text() == '{"theme": "dark"}\n'


def test_a_recording_is_not_made_through_a_link(
    served: Served, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("recording.jsonl").symlink_to(outside / ".profile")
    monkeypatch.setenv("JUDGEKIT_RECORD", "recording.jsonl")
    done, asked = served(by_content, "judge", "good.md")
    assert (done.code, asked, list(outside.iterdir())) == (78, [], [])


@pytest.mark.parametrize("name", ["out.jsonl", "out.csv", "out.csv.part.jsonl"])
def test_results_go_to_no_pipe(served: Served, name: str) -> None:
    prepare(served)
    os.mkfifo(name)
    done, asked = served(by_content, *ROWS, name.removesuffix(".part.jsonl"))
    assert (done.code, asked) == (64, [])
    assert (
        f"{Path.cwd() / name}: no results are written there: it is a named pipe; name a file"
        in done.err
    )


def test_a_result_goes_to_no_pipe_but_to_a_device(judgekit: Run) -> None:
    os.mkfifo("pipe")
    done = judgekit("schema", "verdict", "--out", "pipe")
    assert (done.code, "it is a named pipe" in done.err) == (64, True)
    assert judgekit("schema", "verdict", "--out", "/dev/null").code == 0


def test_mode_and_owner_of_a_label_sheet_and_of_results_stay(served: Served) -> None:
    prepare(served)
    sheet = Path("sheet.csv")
    sheet.write_text("id,label\n")
    Path("out.csv").write_text("")
    for path in (sheet, Path("out.csv")):
        path.chmod(0o664)
        if os.geteuid() == 0:
            os.chown(path, 12345, 23456)
    done, _ = served(by_content, *WRITERS["sheet.csv"])
    assert done.code == 0, done.err
    done, _ = served(by_content, *ROWS, "out.csv", "--fresh")
    assert done.code == 0, done.err
    for path in (sheet, Path("out.csv")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o664
        assert os.geteuid() or (path.stat().st_uid, path.stat().st_gid) == (12345, 23456)


def test_threads_lose_no_file_and_agree_on_a_secret() -> None:
    failures: list[Exception] = []
    secrets = set()

    def write(number: int) -> None:
        try:
            for turn in range(200):
                outputs.write_atomically("shared", f"{number} {turn}\n" * 100, private=True)
                secrets.add(outputs.write_once(f"secret{turn}", os.urandom(16)))
        except Exception as error:  # noqa: BLE001 - whatever it is
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (failures, len(secrets)) == ([], 200)
    assert len(set(Path("shared").read_text().splitlines())) == 1
    names = {
        each.name for each in Path.cwd().iterdir() if "secret" in each.name or "shared" in each.name
    }
    assert names == {"shared", *(f"secret{turn}" for turn in range(200))}
