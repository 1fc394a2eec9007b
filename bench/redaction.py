"""CPU that leaving secrets out takes, as a ratio to that of another commit on the same texts in the same run.

python bench/redaction.py --against COMMIT [--data DIR] [--most N] [--json]

The package of COMMIT is taken from git into a temporary folder. Both read the same texts: this repository's
own files, or with --data the texts of DIR/retrieval and DIR/notes. They take turns, each in a process of its
own that reads all texts once, and the least CPU of the turns counts. What the two redact differently is
listed: a change of speed must not change that.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
GIT = shutil.which("git") or "git"
TURNS = 2
MOST = 20_000
SHOWN = 10
READ = """
import json, sys, time
try:
    from judgekit.redaction.redact import redact
except ModuleNotFoundError:  # a commit from before the package of its own
    from judgekit.judging.redact import redact
texts = json.load(open(sys.argv[1], encoding="utf-8"))
redact("password = 'warm-up 17' https://example.com/a-long-word")
start = time.process_time()
results = [redact(text).text for text in texts]
print(json.dumps({"seconds": time.process_time() - start, "results": results}))
"""


def read_texts(data: Path | None, most: int) -> list[str]:
    texts: list[str] = []
    if data is None:
        names = subprocess.run(
            [GIT, "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        endings = (".py", ".md", ".toml", ".yaml", ".txt")
        paths = [ROOT / name for name in names.stdout.splitlines() if name.endswith(endings)]
        texts = [path.read_text("utf-8") for path in paths]
    else:
        for path in sorted(
            [*data.glob("retrieval/*/corpus.jsonl"), *data.glob("notes/*/corpus.jsonl")]
        ):
            lines = path.read_text("utf-8").splitlines()
            texts += [json.loads(line)["text"] for line in lines]
    step = max(1, len(texts) // most)
    return texts[::step]


def unpack_commit(commit: str, folder: Path) -> None:
    """Write the package as it was at a commit."""
    archive = subprocess.run(
        [GIT, "archive", commit, "judgekit"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(folder, filter="data")


def redact_all(package: Path, texts: Path) -> dict[str, Any]:
    """Redact the texts with the package in a folder; returns the results and the seconds of CPU."""
    done = subprocess.run(
        [sys.executable, "-c", READ, str(texts)],
        cwd=package,
        env={**os.environ, "PYTHONPATH": str(package)},
        capture_output=True,
        text=True,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def compare(commit: str, texts: list[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder)
        unpack_commit(commit, other)
        listed = other / "texts.json"
        listed.write_text(json.dumps(texts), "utf-8")
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(TURNS):
            before = redact_all(other, listed)
            now = redact_all(ROOT, listed)
            theirs.append(before["seconds"])
            ours.append(now["seconds"])
    pairs = zip(texts, before["results"], now["results"], strict=True)
    differences = [text[:200] for text, one, two in pairs if one != two]
    return {
        "texts": len(texts),
        "characters": sum(map(len, texts)),
        "ratio": round(min(ours) / min(theirs), 3),
        "redacted differently": len(differences),
        "differences": differences[:SHOWN],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--against", required=True, metavar="COMMIT")
    parser.add_argument("--data", type=Path, metavar="DIR")
    parser.add_argument("--most", type=int, default=MOST, metavar="N")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    result = compare(given.against, read_texts(given.data, given.most))
    if given.json:
        print(json.dumps(result, indent=2))
        return
    print(f"{result['texts']:,} texts, {result['characters']:,} characters")
    print(f"CPU as a ratio to {given.against}: {result['ratio']}")
    print(f"Redacted differently: {result['redacted differently']}")
    for text in result["differences"]:
        print(f"  {text!r}")


if __name__ == "__main__":
    main()
