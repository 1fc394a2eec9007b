"""A stand-in for `gh` on PATH: keeps issues in a file, answers as gh 2 does, and notes how it was asked."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

REPOSITORY = "github.com/acme/docs"
ADDRESS = "https://github.com/acme/docs.git"

_PROGRAM = """#!{python}
import json, os, re, sys, time
folder = {folder!r}
asked = {{"argv": sys.argv[1:], "environ": dict(os.environ), "cwd": os.getcwd(), "stdin": sys.stdin.read()}}
with open(folder + "/calls.jsonl", "a") as file:
    file.write(json.dumps(asked) + "\\n")
told = json.load(open(folder + "/told.json"))
words = sys.argv[1:]
def option(name):
    return words[words.index(name) + 1] if name in words else None
verb = words[1]
if told.get("sleep"):
    if os.fork() == 0:  # a child that holds the pipes, as a credential helper may
        time.sleep(told["sleep"])
    time.sleep(told["sleep"])
failure = told.get(verb)
if failure:
    told[verb] = failure[1:] if told.get("once") else failure
    json.dump(told, open(folder + "/told.json", "w"))
    sys.stderr.write(failure[0][0] + "\\n")
    sys.exit(failure[0][1])
path = folder + "/issues.json"
issues = json.load(open(path))
labels = [each.partition("=")[2] for each in words if each.startswith("--label=")]
unknown = [each for each in labels if each not in told.get("labels", [])]
if verb == "list":
    found = issues[::-1]
    search = option("--search")
    if search:
        token = re.fullmatch('"(.+)" in:body', search)[1]
        found = [each for each in found if token in each["body"]]
    fields = option("--json").split(",")
    limit = int(option("--limit") or 30)
    print(json.dumps([{{name: each[name] for name in fields}} for each in found[:limit]]))
elif verb == "create":
    if unknown:
        sys.exit("could not add label: '" + unknown[0] + "' not found")
    number = len(issues) + 1
    url = "https://github.com/acme/docs/issues/" + str(number)
    issues.append({{"number": number, "url": url, "state": "OPEN", "title": option("--title"),
                   "body": asked["stdin"], "labels": labels}})
    print(url)
else:
    issue = issues[int(words[2]) - 1]
    if verb == "edit":
        issue.update(title=option("--title"), body=asked["stdin"])
        print(issue["url"])
    elif verb == "reopen":
        issue["state"] = "OPEN"
json.dump(issues, open(path, "w"))
"""


class Call(NamedTuple):
    """One call as the stand-in saw it."""

    argv: list[str]
    environ: dict[str, str]
    cwd: str
    stdin: str

    @property
    def verb(self) -> str:
        return self.argv[1]


@dataclass(frozen=True)
class FakeGh:
    """The stand-in in `folder`, which must come first on PATH."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> FakeGh:
        folder.mkdir()
        made = cls(folder)
        (folder / "gh").write_text(_PROGRAM.format(python=sys.executable, folder=str(folder)))
        (folder / "gh").chmod(0o755)
        (folder / "issues.json").write_text("[]")
        made.tell()
        return made

    @property
    def path(self) -> str:
        return f"{self.folder}{os.pathsep}{os.environ['PATH']}"

    def tell(self, **behaviour: Any) -> None:  # noqa: ANN401 - any JSON
        """Set how it behaves.

        `create=[[stderr, code]]`, `sleep=seconds`, `labels=[known]`.
        """
        (self.folder / "told.json").write_text(json.dumps(behaviour))

    @property
    def issues(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads((self.folder / "issues.json").read_text())
        return found

    def put(self, issues: Sequence[dict[str, Any]]) -> None:
        (self.folder / "issues.json").write_text(json.dumps(issues))

    @property
    def calls(self) -> list[Call]:
        path = self.folder / "calls.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [Call(**json.loads(line)) for line in lines]

    @property
    def verbs(self) -> list[str]:
        return [call.verb for call in self.calls]
