"""`judgekit demo`: the main job on sample data, with a real model or without one."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from judgekit import environment, programs
from judgekit.cli.output import say, strip_colours, warn
from judgekit.cli.provider import fetch_model
from judgekit.config import files
from judgekit.errors import UsageError
from judgekit.text import split_lines

if TYPE_CHECKING:
    from judgekit.config import TierName
    from judgekit.providers.base import Endpoint

_DEFAULT_LOCAL_MODEL = "qwen2.5-coder-1.5b"
_PROMPTS = (
    ("a clear hit", "How do we refresh the JWT before the access token expires?"),
    ("ambiguous", "Why are users signed out?"),
    ("unrelated", "Write a haiku about autumn leaves"),
)
_QUESTION = "Requests to the API fail for one customer"
_UNREACHABLE_MODEL = {
    "JUDGEKIT_API_BASE": "http://127.0.0.1:9/v1",
    "JUDGEKIT_MODEL": "gone",
    "JUDGEKIT_REPLAY": "",
}
_HIT_NUMBER_PATTERN = re.compile(r"^ *\d+\. ", re.MULTILINE)
_VERDICT_LINE_PATTERN = re.compile(r"^([A-Z]+) +(\S+\.md)", re.MULTILINE)
_MEASURING_ADVICE = "Measure any judge on labelled cases of your own before you rely on it."
# A model sees a document's name, so the names in the demo mustn't give the answer away.
_DOCUMENT_NAME_BY_SOURCE = {"good.md": "first.md", "damaged.md": "second.md"}

_MODEL_OPTION = typer.Option(help="Use this local model (name or GGUF path), not the detected one.")


def demo(model: Annotated[str | None, _MODEL_OPTION] = None) -> None:
    """Show the prompt hook, a search and two verdicts on sample data."""
    # Without an engine, nothing keeps running after the demo, however it ends.
    environ = {**os.environ, "JUDGEKIT_ENGINE": "0", "FORCE_COLOR": "1"}
    trust_note = _choose_model(model, environ)
    environ_without_model = {**environ, **_UNREACHABLE_MODEL}
    sample = _copy_sample()
    project = sample / "project"

    _print_heading("1. The prompt hook: what a coding agent gets, without any model")
    memory_counts = []
    for kind, prompt in _PROMPTS:
        say(f"{kind}: {prompt!r}")
        memory_counts.append(str(_run_hook(prompt, project, environ)))

    _print_heading("2. Search in the same memories, by BM25 alone and with the judge")
    by_bm25 = _run(["search", _QUESTION, "-n", "5"], project, environ)
    by_judge = _run(["search", _QUESTION, "-n", "5", "--judge"], project, environ)

    _print_heading("3. Judge two documents: a good one, and the same one damaged (second.md)")
    verdicts = _run(["judge", *_DOCUMENT_NAME_BY_SOURCE.values()], sample, environ)

    _print_heading("4. Without a model: still an answer, and no invented verdict")
    _run(["search", _QUESTION, "-n", "2", "--judge"], project, environ_without_model)
    verdicts += _run(["judge", _DOCUMENT_NAME_BY_SOURCE["good.md"]], sample, environ_without_model)

    _print_heading("What was seen, and how far to trust it")
    _say_memories(memory_counts, by_bm25, by_judge)
    _say_verdicts(verdicts)
    say(trust_note)


def _copy_sample() -> Path:
    """Copy the examples to a fixed folder, replacing earlier copies, and return it."""
    sample = Path(environment.make_private_folder(environment.cache_home())) / environment.DEMO.name
    shutil.rmtree(sample, ignore_errors=True)
    shutil.copytree(files.get_data_folder("examples"), sample)
    # The names mustn't reveal to the model which document is good.
    for name, neutral_name in _DOCUMENT_NAME_BY_SOURCE.items():
        (sample / "documents" / name).rename(sample / neutral_name)
    return sample


def _run_hook(prompt: str, project: Path, environ: Mapping[str, str]) -> int:
    """Print the context that the hook adds to a prompt. Returns the number of memories in it."""
    payload = {"hook_event_name": "UserPromptSubmit", "prompt": prompt, "cwd": str(project)}
    hook_run = subprocess.run(  # noqa: S603 - judgekit itself
        programs.build_python_command("judgekit", "hook"),
        input=json.dumps(payload).encode(),
        capture_output=True,
        env=environ,
        check=False,
        timeout=60,
    )

    text = hook_run.stdout.decode().strip() or "(nothing added to the agent's context)"
    output_lines = split_lines(text + hook_run.stderr.decode())
    say("\n".join(f"    {line}" for line in output_lines) + "\n")
    return text.count("<result ")


def _choose_model(wanted: str | None, environ: dict[str, str]) -> str:
    """Choose the demo's model. Returns a line for the user about how far to trust it.

    A local model is downloaded if it's missing, and set in `environ`.
    """
    from importlib.util import find_spec

    from judgekit.config import settings
    from judgekit.judging.panel import resolve_panel

    panel, reason = resolve_panel(settings.load(None), None, environ)
    first_models = {tier: jury[0] for tier, jury in panel.items()}
    # The demo shows a model's explanations, so a model that gives none isn't used.
    if not wanted and _can_explain(first_models):
        say(f"The judge is the model that is set up here: {reason}.")
        names = [f"{tier}: {endpoint.model}" for tier, endpoint in first_models.items()]
        return f"The judge was {', '.join(dict.fromkeys(names))}. {_MEASURING_ADVICE}"

    if find_spec("xllamacpp") is None:
        missing_text = 'no model is set up and the extra "local" is not installed'
        warn(f"{missing_text}; the demo continues without a judge")
        command = files.install_extra("local")
        return f"No model judged anything. Set a provider's key, or run {command}; then try again."

    name = wanted or environ.get("JUDGEKIT_LOCAL_MODEL") or _DEFAULT_LOCAL_MODEL
    return _use_local_model(name, environ)


def _can_explain(model_by_tier: Mapping[TierName, Endpoint]) -> bool:
    """Whether the first tier's model writes text; a decision model couldn't explain anything in the demo."""
    first_model = next(iter(model_by_tier.values()), None)
    return first_model is not None and first_model.writes


def _use_local_model(name: str, environ: dict[str, str]) -> str:
    """Download a model if it's missing, and set it in `environ`. Returns a line about how far to trust it."""
    from judgekit.providers import local as models

    say(f"A small model on this machine judges: {name}.")
    try:
        models.resolve(name)
    except UsageError:  # it isn't downloaded yet
        fetch_model(name)

    # These variables would take precedence over our choice.
    for variable in ("API_BASE", "REPLAY", "QUICK_MODEL", "DEEP_MODEL", "TIEBREAKER_MODEL"):
        environ.pop(f"JUDGEKIT_{variable}", None)
    environ.update(JUDGEKIT_LOCAL_MODEL=name, JUDGEKIT_MODEL=f"local/{name}")

    catalogue_entry = models.CATALOGUE.get(name)
    advice = _MEASURING_ADVICE
    if catalogue_entry is not None:
        # `judges` ends the sentence, such as "tells clear cases apart".
        advice = f"A model of this size {catalogue_entry.judges}."
    return f"The judge was {name}, running on this machine. {advice}"


def _print_heading(text: str) -> None:
    say(f"\n{typer.style(text, bold=True)}\n")


def _run(arguments: list[str], folder: Path, environ: Mapping[str, str]) -> str:
    """Run a command, print its output as it comes, and return the output as text."""
    say(f"$ judgekit {shlex.join(arguments)}")
    words = programs.build_python_command("judgekit", *arguments)
    output_lines: list[str] = []
    with subprocess.Popen(words, cwd=folder, env=dict(environ), stdout=subprocess.PIPE) as process:  # noqa: S603 - judgekit itself
        for raw_line in process.stdout or ():
            output_lines.append(raw_line.decode().rstrip("\n"))
            say(output_lines[-1])
    say(f"(exit code {process.returncode})\n" if process.returncode else "")
    return strip_colours("\n".join(output_lines)) + "\n"


def _say_memories(counts_of_prompts: Sequence[str], by_bm25: str, by_judge: str) -> None:
    """Print how many memories each prompt got, and how many are in the output of the two searches."""
    hits = len(_HIT_NUMBER_PATTERN.findall(by_bm25))
    judged_hits = len(_HIT_NUMBER_PATTERN.findall(by_judge))
    search = f"the search found {hits}, with the judge {judged_hits}"
    say(f"Memories: the prompts got {', '.join(counts_of_prompts)}; {search}.")


def _say_verdicts(output: str) -> None:
    """Print the verdicts in the output of the runs; the last verdict is of the run without a model."""
    outcomes = [f"{name} {word.lower()}" for word, name in _VERDICT_LINE_PATTERN.findall(output)]
    with_model = ", ".join(outcomes[:-1])
    without_model = "".join(outcomes[-1:])  # there may be none
    say(f"Documents: {with_model}; without a model {without_model}.")
