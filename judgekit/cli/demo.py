"""`judgekit demo`: the main job on sample data, with a real model, and what happens without one."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from judgekit import environment, programs
from judgekit.cli.output import colourless, say, warn
from judgekit.cli.provider import fetch_model
from judgekit.config import files
from judgekit.errors import UsageError
from judgekit.text import lines_of

_LOCAL = "qwen2.5-coder-1.5b"
_PROMPTS = (
    ("a clear hit", "How do we refresh the JWT before the access token expires?"),
    ("ambiguous", "Why are users signed out?"),
    ("unrelated", "Write a haiku about autumn leaves"),
)
_QUESTION = "Requests to the API fail for one customer"
_GONE = {
    "JUDGEKIT_API_BASE": "http://127.0.0.1:9/v1",
    "JUDGEKIT_MODEL": "gone",
    "JUDGEKIT_REPLAY": "",
}
_HIT = re.compile(r"^ *\d+\. ", re.MULTILINE)
_VERDICT = re.compile(r"^([A-Z]+) +(\S+\.md)", re.MULTILINE)
_MEASURE = "Measure any judge on labelled cases of your own before you rely on it."
# A model sees a document's name, so in the demo it does not give the answer away.
_DOCUMENTS = {"good.md": "first.md", "damaged.md": "second.md"}

_MODEL = typer.Option(help="Use this local model (name or GGUF path), not the detected one.")


def demo(model: Annotated[str | None, _MODEL] = None) -> None:
    """Show the prompt hook, a search and two verdicts on sample data."""
    # Without an engine nothing goes on after the demo, however it ends.
    environ = {**os.environ, "JUDGEKIT_ENGINE": "0", "FORCE_COLOR": "1"}
    trust = _model(model, environ)
    # Always at the same place, so that nothing piles up.
    sample = Path(environment.private_folder(environment.cache_home())) / environment.DEMO.name
    shutil.rmtree(sample, ignore_errors=True)
    shutil.copytree(files.folder("examples"), sample)
    for name, neutral in _DOCUMENTS.items():
        (sample / "documents" / name).rename(sample / neutral)
    project = sample / "project"
    _heading("1. The prompt hook: what a coding agent gets, without any model")
    counts = []
    for kind, prompt in _PROMPTS:
        say(f"{kind}: {prompt!r}")
        payload = {"hook_event_name": "UserPromptSubmit", "prompt": prompt, "cwd": str(project)}
        words = programs.python("judgekit", "hook")
        event = json.dumps(payload).encode()
        done = subprocess.run(  # noqa: S603 - ourselves
            words, input=event, capture_output=True, env=environ, check=False, timeout=60
        )
        text = done.stdout.decode().strip() or "(nothing added to the agent's context)"
        say("\n".join(f"    {line}" for line in lines_of(text + done.stderr.decode())) + "\n")
        counts.append(str(text.count("<result ")))
    _heading("2. Search in the same memories, by BM25 alone and with the judge")
    found = _show(["search", _QUESTION, "-n", "5"], project, environ)
    kept = _show(["search", _QUESTION, "-n", "5", "--judge"], project, environ)
    _heading("3. Judge two documents: a good one, and the same one damaged (second.md)")
    verdicts = _show(["judge", *_DOCUMENTS.values()], sample, environ)
    _heading("4. Without a model: still an answer, and no invented verdict")
    _show(["search", _QUESTION, "-n", "2", "--judge"], project, environ | _GONE)
    verdicts += _show(["judge", _DOCUMENTS["good.md"]], sample, environ | _GONE)
    _heading("What was seen, and how far to trust it")
    plain, judged = (len(_HIT.findall(text)) for text in (found, kept))
    said = [f"{name} {word.lower()}" for word, name in _VERDICT.findall(verdicts)]
    say(
        f"Memories: the prompts got {', '.join(counts)}; the search found {plain}, with the judge {judged}."
    )
    say(f"Documents: {', '.join(said[:-1])}; without a model {''.join(said[-1:])}.")
    say(trust)


def _model(wanted: str | None, environ: dict[str, str]) -> str:
    """Find or fetch a model, put it into `environ`, and return what to say about it."""
    from importlib.util import find_spec

    from judgekit.config import settings
    from judgekit.judging.panel import resolve_panel
    from judgekit.providers import local as models

    panel, reason = resolve_panel(settings.load(None), None, environ)
    endpoints = {tier: jury[0] for tier, jury in panel.items()}
    if endpoints and not wanted and next(iter(endpoints.values())).writes:
        say(f"The judge is the model that is set up here: {reason}.")
        names = ", ".join(
            dict.fromkeys(f"{tier}: {each.model}" for tier, each in endpoints.items())
        )
        return f"The judge was {names}. {_MEASURE}"
    name = wanted or environ.get("JUDGEKIT_LOCAL_MODEL") or _LOCAL
    if find_spec("xllamacpp") is None:
        warn(
            'no model is set up and the extra "local" is not installed; the demo continues without a judge'
        )
        how = files.install_extra("local")
        return f"No model judged anything. Set a provider's key, or run {how}; then try again."
    say(f"A small model on this machine judges: {name}.")
    try:
        models.resolve(name)
    except UsageError:
        fetch_model(name)
    # They go before every other choice of a model.
    for variable in ("API_BASE", "REPLAY", "QUICK_MODEL", "DEEP_MODEL", "TIEBREAKER_MODEL"):
        environ.pop(f"JUDGEKIT_{variable}", None)
    environ.update(JUDGEKIT_LOCAL_MODEL=name, JUDGEKIT_MODEL=f"local/{name}")
    known = models.CATALOGUE.get(name)
    if known:
        about = f"A model of this size {known.judges}."
    else:
        about = _MEASURE
    return f"The judge was {name}, running on this machine. {about}"


def _heading(text: str) -> None:
    say(f"\n{typer.style(text, bold=True)}\n")


def _show(arguments: list[str], folder: Path, environ: Mapping[str, str]) -> str:
    """Run a command, print what it prints, and return that."""
    say(f"$ judgekit {shlex.join(arguments)}")
    words = programs.python("judgekit", *arguments)
    lines: list[str] = []
    with subprocess.Popen(words, cwd=folder, env=dict(environ), stdout=subprocess.PIPE) as process:  # noqa: S603 - ourselves
        for line in process.stdout or ():
            lines.append(line.decode().rstrip("\n"))
            say(lines[-1])
    say(f"(exit code {process.returncode})\n" if process.returncode else "")
    return colourless("\n".join(lines)) + "\n"
