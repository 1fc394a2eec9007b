"""Notes in any language are found by the words in them, and an index of version 4 answers meanwhile."""
# ruff: noqa: RUF001 - letters and signs of many scripts are the point

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from indexing import JWT, PROFILES, databases, opened
from memory_store import MemoryStore, jwt_store

from judgekit.hooks import claude_code
from judgekit.retrieval import index_file, terms, update
from judgekit.retrieval import search as api
from judgekit.retrieval.profiles import compile_profiles
from judgekit.retrieval.sources import Entry

if TYPE_CHECKING:
    from judgekit.retrieval.confidence import Candidate

MARKDOWN = PROFILES.by_kind["markdown"]
OTHER = {
    "garden.md": "# Garden\n\nThe fence is to be painted before the first frost of the year.\n",
    "letters.md": "# Letters\n\nThe post office closes early on Saturdays, so bring them on Friday.\n",
    "invoices.md": "# Invoices\n\nThey are sent on the first day of each month, with the list of hours.\n",
}
GERMAN = (
    "Die Häuser werden im Herbst nicht mehr geheizt, weil wir sie dann für die Gäste schließen."
)
FRENCH = "Les journaux du serveur sont dans le dossier des données, et ils ne sont pas gardés."
SPANISH = (
    "Las contraseñas de los usuarios están en el archivo que el servidor lee cuando se inicia."
)
ITALIAN = "Le chiavi del servizio sono nella cartella che non è mai salvata con gli altri file."
PORTUGUESE = (
    "As configurações do servidor estão na pasta que não é guardada com os outros arquivos."
)
DUTCH = "De instellingen van de server staan in een map die niet wordt bewaard met de namen."
RUSSIAN = "Настройки сервера хранятся в папке, которая не сохраняется вместе с файлами."
SWEDISH = "Inställningarna för servern finns i en mapp som inte sparas med de andra filerna."
POLISH = "Ustawienia serwera są w katalogu, który nie jest zapisywany razem z plikami."


def write_notes(folder: Path, notes: dict[str, str]) -> Path:
    for name, text in notes.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def find(folder: Path, query: str, **options: Any) -> list[Candidate]:  # noqa: ANN401 - as search takes them
    ranked = api.search(query, [str(folder)], project=str(folder), limit=10, **options)
    return ranked.candidates


def found(folder: Path, query: str, **options: Any) -> list[str]:  # noqa: ANN401 - as search takes them
    return [candidate.relative_path for candidate in find(folder, query, **options)]


CHINESE = "# 部署说明\n\n服务器SSH端口是2222，不要使用默认端口。数据库的备份每天凌晨三点运行。\n"
JAPANESE = (
    "# 運用メモ\n\n本番サーバーを再起動するときは、先にロードバランサーから外してください。\n"
)
KOREAN = (
    "# 운영 메모\n\n서버를 다시 시작하기 전에 데이터베이스를 백업하세요. 설정은 책에 있습니다.\n"
)
THAI = "# บันทึก\n\nรหัสผ่านของเซิร์ฟเวอร์อยู่ในตู้เซฟ ห้ามเปลี่ยนโดยไม่แจ้งทีม\n"


@pytest.mark.parametrize("pool", [15, 80])
@pytest.mark.parametrize(
    ("note", "query"),
    [
        (CHINESE, "SSH"),
        (CHINESE, "端口"),
        (CHINESE, "数据库备份"),
        (CHINESE, "怎么备份数据库？"),
        (CHINESE, "服务器SSH端口"),
        (CHINESE, "SSH端口 backup"),
        (CHINESE, "钥 默认"),
        (JAPANESE, "再起動"),
        (JAPANESE, "サーバー"),
        (JAPANESE, "ロードバランサーの設定"),
        (KOREAN, "서버"),
        (KOREAN, "서버가 멈췄을 때"),
        (KOREAN, "데이터베이스의 백업"),
        (KOREAN, "책"),
        (THAI, "รหัสผ่าน"),
        (THAI, "เซิร์ฟเวอร์"),
        ("# Ship it\n\nDeploys are marked with 🚀 in the channel.\n", "🚀"),
        ("# हिन्दी\n\nयह सर्वर की सेटिंग है\n", "सेटिंग"),
    ],
)
def test_a_note_is_found_by_words_inside_it(
    tmp_path: Path, note: str, query: str, pool: int
) -> None:
    folder = write_notes(tmp_path, OTHER | {"note.md": note})
    assert found(folder, query, pool=pool) == ["note.md"]


@pytest.mark.parametrize("character", list("服器端口"))
def test_one_character_finds_the_runs_it_is_in(tmp_path: Path, character: str) -> None:
    folder = write_notes(tmp_path, OTHER | {"note.md": CHINESE})
    assert found(folder, character) == ["note.md"]


def test_runs_end_where_the_script_changes() -> None:
    stems = terms.stem_text("服务器SSH端口", MARKDOWN.language)
    assert stems == ["服务", "务器", "器", "ssh", "端口", "口"]


def test_the_passage_shows_the_words_that_were_found(tmp_path: Path) -> None:
    beginning = "这里是一些没有关系的内容。" * 60
    folder = write_notes(tmp_path, {"note.md": f"# 说明\n\n{beginning}数据库的备份每天运行。\n"})
    (hit,) = find(folder, "备份", snippets=True)
    assert "数据库的备份每天运行" in hit.snippet


SIGNS = {
    "csharp.md": "# C# style\n\nWe write C# with tabs.\n",
    "cpp.md": "# C++ style\n\nWe write C++ with spaces.\n",
    "c.md": "# Style of plain C\n\nWe write it with care.\n",
    "dotnet.md": "# Runtime\n\nThe service needs .NET 8 on the host.\n",
    "net.md": "# Fishing\n\nThe net is in the shed.\n",
    "node.md": "# Versions\n\nWe run node.js 22 in production.\n",
    "env.md": "# Secrets\n\nThey stand in .env and nowhere else.\n",
}


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("C#", "csharp.md"),
        ("how do we write C#?", "csharp.md"),
        ("C++", "cpp.md"),
        ("what about c++, then", "cpp.md"),
        (".NET", "dotnet.md"),
        ("node.js", "node.md"),
        ("nodejs or node.js", "node.md"),
        (".env", "env.md"),
    ],
)
def test_signs_belong_to_the_words_they_end_or_begin(
    tmp_path: Path, query: str, first: str
) -> None:
    folder = write_notes(tmp_path, SIGNS)
    assert found(folder, query)[0] == first


def test_c_sharp_is_not_c_plus_plus(tmp_path: Path) -> None:
    folder = write_notes(tmp_path, SIGNS)
    assert found(folder, "C#") == ["csharp.md"]


@pytest.mark.parametrize(
    ("text", "language", "query"),
    [
        (GERMAN, "german", "Haus"),
        (GERMAN, "german", "Welches Haus wird nicht geheizt?"),
        (FRENCH, "french", "journal"),
        (FRENCH, "french", "où est le journal des serveurs"),
        (SPANISH, "spanish", "contraseña"),
        (ITALIAN, "italian", "chiave"),
        (PORTUGUESE, "portuguese", "configuração"),
        (DUTCH, "dutch", "instelling"),
        (DUTCH, "dutch", "naam"),
        (RUSSIAN, "russian", "настройка"),
        (RUSSIAN, "russian", "серверы"),
        (SWEDISH, "swedish", "inställning"),
        (POLISH, "polish", "plik"),
    ],
)
def test_a_word_finds_its_other_forms_by_the_language_of_the_note(
    tmp_path: Path, text: str, language: str, query: str
) -> None:
    folder = write_notes(tmp_path, OTHER | {"note.md": f"# 1\n\n{text}\n"})
    assert update.detect_language(Entry("1", "1", "", body=text), MARKDOWN) == language
    assert found(folder, query)[:1] == ["note.md"]


@pytest.mark.parametrize("query", ["die", "warum ist das nicht so", "pourquoi est-ce que", "の"])
def test_stop_words_of_the_querys_language_find_nothing(tmp_path: Path, query: str) -> None:
    notes = {"german.md": GERMAN, "french.md": FRENCH, "german2.md": f"{GERMAN} Auch im Winter."}
    assert found(write_notes(tmp_path, notes), query) == []


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("JWT token refresh", "english"),
        ("The die is cast, and the hat is on the table.", "english"),
        ("def add(min, max):\n    return [min, max, min, max, min] + {min: max}[min]", "english"),
        (
            "Sunucunun bağlantı noktası değişti, yeni şifreler dosyada duruyor ve yedek alınıyor.",
            "",
        ),
        (CHINESE, ""),
        (KOREAN, ""),
    ],
)
def test_the_language_of_a_text(text: str, language: str) -> None:
    assert update.detect_language(Entry("1", "", "", body=text), MARKDOWN) == language


def test_one_language_of_few_notes_does_not_change_what_other_queries_find(tmp_path: Path) -> None:
    notes = {
        f"{number}.md": f"The rates of the year {number} are in this file." for number in range(60)
    }
    folder = write_notes(tmp_path, notes | {"rat.md": FRENCH.replace("journaux", "rats")})
    assert "rat.md" not in found(folder, "which rates")
    assert found(folder, "où sont les rats dans le dossier")[0] == "rat.md"


TURKISH = {
    "yedek.md": "# Yedek nasıl alınır\n\nBunun için sunucuda bir komut var ve her gece bu komut çalışır.\n",
    "a.md": "# Sunucu\n\nBunun için her gece yedek ve komut var, bu komut sunucuda ve bir de burada.\n",
    "b.md": "# Komut\n\nHer gece bu komut için sunucuda bir yedek var ve bunun için bir komut daha.\n",
    "c.md": "# Gece\n\nBu komut bunun için var ve her gece bir sunucuda çalışır, yedek için de bu var.\n",
}


def test_a_title_that_is_the_query_comes_first_in_a_language_without_stop_words(
    tmp_path: Path,
) -> None:
    folder = write_notes(tmp_path, TURKISH)
    hits = find(folder, "Yedek nasıl alınır")
    assert hits[0].relative_path == "yedek.md"
    assert hits[0].confidence == max(hit.confidence for hit in hits)


def test_a_long_page_whose_title_is_the_query_comes_first(tmp_path: Path) -> None:
    long = "It compiles the program, and then it copies the result to the server. " * 60
    notes = {f"{number}.md": f"# Day {number}\n\nBuild it from the source." for number in range(3)}
    folder = write_notes(tmp_path, notes | {"build.md": f"# Build from source\n\n{long}"})
    hits = find(folder, "Build from source")
    assert hits[0].relative_path == "build.md"


def test_a_new_language_is_a_file(tmp_path: Path) -> None:
    folder = tmp_path / ".judgekit" / "retrieval"
    folder.mkdir(parents=True)
    text = "language: esperanto\nversion: 1.0.0\nstop: [la, kaj, estas, en, ne, de]\n"
    endings = "endings:\n  - drop: [ojn, oj, on, o]\n"
    (folder / "esperanto.yaml").write_text(text + endings, encoding="utf-8")
    data = compile_profiles(tmp_path)
    assert "esperanto" in data["languages"]
    profiles = type(PROFILES)(data)
    note = {"note.md": "La serviloj estas en la kelo kaj ne en la domo de la najbaro."}
    notes = write_notes(tmp_path / "notes", OTHER | note)
    assert found(notes, "servilo", profiles=profiles) == ["note.md"]


@pytest.mark.parametrize("character", ["的", "ア", "서", "ท", "🚀", ".", "#", "+", "é"])
def test_a_long_run_of_one_script_is_cut_in_linear_work(character: str) -> None:
    short = terms.stem_text(character * 1_000, MARKDOWN.language)
    long = terms.stem_text(character * 100_000, MARKDOWN.language)
    assert len("".join(long)) <= 101 * max(len("".join(short)), 1)


def test_the_hook_tells_of_a_chinese_memory(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path)
    store.add("port", "服务器SSH端口", "端口是2222")
    store.fill(20).write_index()
    event = {
        "prompt": "服务器SSH端口是什么？",
        "cwd": str(tmp_path),
        "hook_event_name": "UserPromptSubmit",
    }
    text, _ = claude_code.answer_prompt(event)
    assert "decisions/port.json" in text


# An index of version 4, as it was written before.
WRITTEN = Path(__file__).parents[1] / "golden" / "written" / "index.sqlite"
TABLES = {
    "file": "number, path, folder, pending, size, mtime, inode, read, live, digest, problem, id, title,"
    " category, tags, status, updated",
    "watch": "*",
    "term": "*",
    "text": "rowid, title, tags, body, parts",
    "note": "*",
}


def write_earlier(store: MemoryStore) -> Path:
    """Put an index of version 4 with all of a store in place of its index."""
    opened(store).close()
    (path,) = databases()
    earlier = path.with_name("v4.0.sqlite")
    shutil.copyfile(WRITTEN, earlier)
    with closing(sqlite3.connect(earlier)) as connection:
        connection.execute("ATTACH ? AS new", (str(path),))
        for table, columns in TABLES.items():
            into = "" if columns == "*" else f" ({columns})"
            connection.execute(f"DELETE FROM {table}")
            connection.execute(f"INSERT INTO {table}{into} SELECT {columns} FROM new.{table}")
        about = dict(connection.execute("SELECT key, value FROM new.about").fetchall())
        for key in ("folders", "kind", "pending", "root", "size", "updated"):
            connection.execute("UPDATE about SET value = ? WHERE key = ?", (about[key], key))
        connection.commit()
    for suffix in ("", "-wal", "-shm", ".turn"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    return earlier


@pytest.fixture
def earlier(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    later: None,  # a file just written is read again and again until it's old enough
) -> MemoryStore:
    """A store with an index of version 4; a prompt with little time reads eight of its files."""
    store = jwt_store(tmp_path / "project")
    store.fill(40).write_index()
    os.utime(store.root / JWT, (1e9, 1e9))  # the oldest is read last
    write_earlier(store)
    monkeypatch.setattr(update, "BATCH_FILES", 8)
    return store


def ask(store: MemoryStore, patience: float | None) -> api.RankedCandidates:
    question = "How do we refresh the JWT?"
    root = str(store.root)
    return api.search(
        question, [root], project=str(store.project), limit=3, pool=15, patience=patience
    )


def test_an_index_of_version_4_answers_until_the_new_one_is_whole(earlier: MemoryStore) -> None:
    first = ask(earlier, patience=0)
    assert [hit.id for hit in first.candidates] == ["jwt"]
    assert "the index of an earlier version answers" in first.notes[0]
    second = ask(earlier, patience=None)
    assert [hit.id for hit in second.candidates] == ["jwt"]
    assert second.notes == []
    assert second.candidates[0].confidence == first.candidates[0].confidence


def test_the_new_index_grows_with_each_prompt(earlier: MemoryStore) -> None:
    pending = []
    for _ in range(3):
        with closing(opened(earlier, patience=0)) as index:
            pending.append(index.pending_count)
    assert pending == sorted(pending, reverse=True)
    assert pending[-1] < pending[0]


def test_what_has_changed_since_version_4_was_written_is_not_shown(earlier: MemoryStore) -> None:
    earlier.add("jwt", "JWT token refresh flow", "Another text.", record_status="retired")
    assert ask(earlier, patience=0).candidates == []


def test_version_4_is_never_written(earlier: MemoryStore) -> None:
    path = next(path for path in databases() if path.name == "v4.0.sqlite")
    before = path.read_bytes()
    earlier.add("jwt", "JWT token refresh flow", "Another text.")
    ask(earlier, patience=0)
    ask(earlier, patience=None)
    assert path.read_bytes() == before


def test_version_4_does_not_answer_once_the_new_one_was_whole(earlier: MemoryStore) -> None:
    ask(earlier, patience=None)
    earlier.add("second", "Refresh of the JWT signing keys")
    for number in range(40):
        earlier.add(f"later-{number}", f"Something else {number}")
    ranked = ask(earlier, patience=0)
    assert not any("earlier version" in note for note in ranked.notes)


@pytest.mark.parametrize("damage", [b"", b"no database at all" * 100])
def test_a_damaged_version_4_does_no_harm(earlier: MemoryStore, damage: bytes) -> None:
    path = next(path for path in databases() if path.name == "v4.0.sqlite")
    path.write_bytes(damage)
    assert ask(earlier, patience=0).candidates == []
    assert [hit.id for hit in ask(earlier, patience=None).candidates] == ["jwt"]


KILLED = """
import os, sys
from judgekit.retrieval import compiled, index, update
update.BATCH_FILES = 8
update.ReadFile.__init__ = lambda self, *_: os._exit(9)
index.open_index(sys.argv[1], compiled.Profiles(compiled.get_bundled_data()))
"""


def test_a_kill_in_between_loses_nothing(earlier: MemoryStore) -> None:
    root = str(earlier.root.resolve())
    done = subprocess.run([sys.executable, "-c", KILLED, root], check=False, capture_output=True)
    assert done.returncode == 9
    assert [hit.id for hit in ask(earlier, patience=0).candidates] == ["jwt"]
    assert [hit.id for hit in ask(earlier, patience=None).candidates] == ["jwt"]


def test_the_index_names_the_languages_of_a_store(tmp_path: Path) -> None:
    folder = write_notes(tmp_path, {"a.md": GERMAN, "b.md": FRENCH, "c.md": FRENCH + " Là aussi."})
    with closing(opened(folder)) as index:
        about = index_file.read_facts(index.connection)
    assert index_file.read_counts(about["languages"]) == {"german": 1, "french": 2}
    (folder / "a.md").unlink()
    with closing(opened(folder)) as index:
        about = index_file.read_facts(index.connection)
    assert index_file.read_counts(about["languages"]) == {"french": 2}
