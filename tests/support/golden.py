"""Recordings of requests and of output, made in a world in which nothing varies.

`World.run` runs one command in this process, with litellm's call replaced, and returns every call with its
arguments, what was printed, the exit code, and the keys of the reply cache. Words replace times, ids, folders
and nonces, so that two runs of the same code give the same, byte for byte.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import shutil
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sample_store

from judgekit.cli.app import run
from judgekit.judging import fence

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[2]
PROVIDER = """\
provider: {name}
title: A provider of the recorded runs
kind: litellm
prefix: {name}/
client: hosted_vllm
family: {name}
detect: {{env: [[GOLDEN_BASE]]}}
base_env: [GOLDEN_BASE]
output: {output}
price: {{quick: &price {{input: 1, output: 2}}, deep: *price, tiebreaker: *price}}
{more}
"""
# What is fitted is fitted again; the recordings keep these.
FITTED = """\
confidence: {intercept: -4.62, odds: 0.33, titled: 2.52, near: 2.14, alone: 1.83, body_share: 0.8}
labels: {high: 0.66, medium: 0.45, mention: 0.23}
"""
FORMS = ("json_schema", "json_object", "tool", "text")
_VARYING = (
    (re.compile(r"judged-[a-z]{8,20}"), "judged-NONCE"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)"), "TIME"),
    (re.compile(r'("(?:duration_ms|latency_ms)": ?)[\d.]+'), r"\g<1>0"),
    (re.compile(r'("id": ?")[0-9a-f-]{12,40}(")'), r"\1ID\2"),
    (re.compile(r'(\btime(?:stamp)?=")[^"]*(")'), r"\1S\2"),
    (re.compile(r"project-[0-9a-f]{12}"), "project-ID"),
    (re.compile(r',"quote_hash":"[0-9a-f]{64}"'), ""),  # under a secret that is another each time
    (re.compile(r"\b\d+(?:\.\d+)? (ms|s)\b"), r"N \1"),
    (re.compile(r"\b\d+ (?:months|years)\b"), "AGE"),
)


@dataclass
class Run:
    """One command: its calls, in the order of their content, and its output."""

    code: int
    out: str
    err: str
    calls: list[dict[str, Any]] = field(default_factory=list)
    cached: list[str] = field(default_factory=list)


class World:
    """A user with three providers at an address, a project with a store and two documents, and a script.

    `replies` maps a model's name to the word that it says of everything: accept, reject or improve of
    documents, keep or drop of memories, first or second of two texts.
    """

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        from judgekit.providers.litellm import load  # noqa: PLC0415 - seconds of CPU

        self.folder, self.home = folder / "project", folder / "home"
        self.replies: dict[str, str] = {}
        self.calls: list[dict[str, Any]] = []
        shutil.copytree(ROOT / "examples" / "documents", self.folder)
        sample_store.write(self.folder)
        profile = (ROOT / "retrieval" / "claude-memory.yaml").read_text(encoding="utf-8")
        unfitted = re.sub(r"^(confidence|labels): .*\n", "", profile, flags=re.MULTILINE)
        (self.home / "retrieval").mkdir(parents=True)
        (self.home / "retrieval" / "claude-memory.yaml").write_text(
            unfitted + FITTED, encoding="utf-8"
        )
        (self.home / "label-secret").write_bytes(b"g" * 32)
        (self.home / "providers").mkdir()
        for form in FORMS:
            self.provider(form.replace("_", "-"), form)
        self.provider("pointwise", "json_schema", "pointwise: true")
        patch.setenv("JUDGEKIT_HOME", str(self.home))
        patch.setenv("GOLDEN_BASE", "http://127.0.0.1:9/v1")
        patch.chdir(self.folder)
        self._patch = patch
        fence._load_secret.cache_clear()  # of the world before
        patch.setattr(load(), "acompletion", self._complete)

    def provider(self, name: str, output: str, more: str = "") -> None:
        text = PROVIDER.format(name=name, output=output, more=more)
        (self.home / "providers" / f"{name}.yaml").write_text(text)

    def panel(self, provider: str, **replies: str) -> None:
        self.replies = {f"hosted_vllm/{tier}": word for tier, word in replies.items()}
        for tier in ("quick", "deep", "tiebreaker"):
            self._patch.setenv(f"JUDGEKIT_{tier.upper()}_MODEL", f"{provider}/{tier}")

    def run(self, *words: str, forget: bool = True) -> Run:
        """Run `judgekit WORDS` and return its result; `forget` empties the cache first."""
        self.calls = []
        if forget:
            shutil.rmtree(self.home / "cache", ignore_errors=True)
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(list(words))
        calls = sorted(self.calls, key=lambda call: json.dumps(call, sort_keys=True))
        return Run(
            int(code), self.same(_written(out)), self.same(_written(err)), calls, self._keys()
        )

    def same(self, text: str) -> str:
        text = text.replace(str(self.folder), "PROJECT").replace(str(self.home), "HOME")
        for pattern, word in _VARYING:
            text = pattern.sub(word, text)
        return text

    def _keys(self) -> list[str]:
        path = self.home / "cache" / "replies.sqlite"
        if not path.exists():
            return []
        with contextlib.closing(sqlite3.connect(path)) as connection:
            return [key for (key,) in connection.execute("SELECT key FROM reply ORDER BY key")]

    async def _complete(self, **arguments: Any) -> Any:  # noqa: ANN401 - litellm's call
        import litellm  # noqa: PLC0415 - seconds of CPU

        await asyncio.sleep(0)
        told = {
            name: arguments[name]
            for name in arguments.keys() - {"timeout", "client", "shared_session"}
        }
        self.calls.append(json.loads(self.same(json.dumps(told, sort_keys=True, default=str))))
        sent = "\n".join(_text(message["content"]) for message in arguments["messages"])
        text, choices = self._reply(arguments, sent)
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if "tools" in arguments:
            call = {
                "id": "1",
                "type": "function",
                "function": {"name": "opinion", "arguments": text},
            }
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        choice: dict[str, Any] = {"index": 0, "finish_reason": "stop", "message": message}
        if choices:
            choice["logprobs"] = {"content": [choices]}
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        return litellm.ModelResponse(
            id="1", model=arguments["model"], choices=[choice], usage=usage
        )

    def _reply(self, arguments: dict[str, Any], sent: str) -> tuple[str, dict[str, Any] | None]:
        word = self.replies[arguments["model"]]
        if arguments.get("max_tokens", 99) < 9:  # one token, of which the probabilities count
            first = {"accept": "5", "reject": "1", "improve": "2", "keep": "yes", "drop": "no"}.get(
                word, "1"
            )
            others = [
                {"token": each, "logprob": -0.1 if each == first else -4.0, "bytes": None}
                for each in ("1", "2", "3", "4", "5", "yes", "no")
            ]
            return first, {"token": first, "logprob": -0.1, "bytes": None, "top_logprobs": others}
        if match := re.search(r'"better": "<(\w+) or (\w+) or tie>"', sent):
            # The same text wins in both orders: the one whose label comes first in the alphabet.
            better = sorted(match.groups())[0 if word == "first" else 1]
            return json.dumps({"reasoning": "It says more.", "better": better}), None
        names = re.findall(r'"([\w-]+)": <whole number>', sent)
        if names:
            score = {"accept": 5, "improve": 2, "reject": 1}[word]
            finding = {
                "dimension": names[0],
                "location": "l. 1",
                "issue": "Vague.",
                "suggestion": "Say which.",
            }
            said = {"reasoning": f"It is {word}.", "scores": dict.fromkeys(names, score)}
            return json.dumps({**said, "findings": [finding | {"quote": "the"}]}), None
        kept = re.findall(r"^\[([A-Z]{4})\] ", sent, re.MULTILINE) if word == "keep" else []
        keys = re.findall(r'"(\w+)": \["<label>"', sent)
        return json.dumps(dict.fromkeys(keys, kept)), None


def _written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    stream.seek(0)
    return stream.read()


def _text(content: Any) -> str:  # noqa: ANN401 - a text or its parts
    return content if isinstance(content, str) else "".join(part["text"] for part in content)
