"""Asks a LiteLLM proxy for the models behind its names: their families, and if they think.

A proxy is asked once a day. A server that isn't one doesn't have this page, and is tried again after a
while.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import defaultdict
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from judgekit import environment, outputs
from judgekit.providers import running
from judgekit.providers.per_process import PerProcess
from judgekit.providers.registry import UNKNOWN_FAMILY, ApiProfile, LitellmProfile, family_by_name
from judgekit.providers.servers import LIST_BYTES, listed

if TYPE_CHECKING:
    from judgekit.providers.base import Endpoint

SECONDS = 2.0  # for all of the requests together
KEPT_SECONDS = 86_400.0
FAILED_SECONDS = 600.0  # before trying a proxy that didn't answer again


class Known(NamedTuple):
    """A proxy's facts about one of its names; "" if the models behind it have no known family."""

    family: str
    thinks: bool


class _Answer(NamedTuple):
    """A proxy's facts about its names, and when it gave them."""

    models: dict[str, Known]
    at: float

    @property
    def is_fresh(self) -> bool:
        """Whether the answer is recent enough; a proxy that didn't answer is asked again sooner."""
        age = abs(time.time() - self.at)  # the clock may have been set back
        return age < (KEPT_SECONDS if self.models else FAILED_SECONDS)


_answers: dict[Path, _Answer] = {}
# The requests under way in this process; other threads wait for the same answer.
_pending_requests = PerProcess(dict[Path, "Future[_Answer]"])


def with_family(endpoint: Endpoint) -> Endpoint:
    """Fill in a model's family from its proxy, unless its profile names one.

    Never asks the proxy while a prompt waits. A name for models of several families stays without one.
    """
    profile = endpoint.profile
    family_of_profile = profile.of_model(profile.families, endpoint.model, profile.family)
    if family_of_profile or not may_be_proxy(endpoint):
        return endpoint
    known = _find_name(endpoint, _get_models(endpoint))
    if known and known.family:
        return replace(endpoint, family=known.family)
    return endpoint


def thinks(endpoint: Endpoint) -> bool:
    """Whether the proxy says its model thinks before answering; asks it unless the last answer is recent."""
    known = _find_name(endpoint, _get_models(endpoint))
    return known is not None and known.thinks


def thinks_as_said(endpoint: Endpoint) -> bool | None:
    """Whether the proxy said its model thinks, going by recent answers in this process; None without one."""
    answer = _answers.get(_path(endpoint))
    if answer is None or not answer.is_fresh:
        return None
    known = _find_name(endpoint, answer.models)
    return known is not None and known.thinks


def may_be_proxy(endpoint: Endpoint) -> bool:
    """Whether a model is at an address the user set, where any server may be running."""
    profile = endpoint.profile
    if not isinstance(profile, LitellmProfile) or not endpoint.api_base:
        return False
    return bool(profile.base_env and profile.models_env.by_tier)


def _find_name(endpoint: Endpoint, models: dict[str, Known]) -> Known | None:
    """Find the facts about an endpoint's model among those of a proxy; None if it doesn't know the name."""
    profile = endpoint.profile
    bare_name = ""
    if isinstance(profile, ApiProfile):
        bare_name = endpoint.model.removeprefix(profile.prefix)
    if bare_name in models:
        return models[bare_name]
    for name, known in models.items():
        if name.endswith("*") and bare_name.startswith(name.removesuffix("*")):
            return known
    return None


def _path(endpoint: Endpoint) -> Path:
    """Return the file for a proxy's answers; its name tells neither the address nor the key."""
    key_text = f"{endpoint.api_base or ''}\0{endpoint.api_key}"
    digest = hashlib.sha256(key_text.encode()).hexdigest()
    return Path(environment.PROXIES.path(f"{digest}.json"))


def _get_models(endpoint: Endpoint) -> dict[str, Known]:
    """Return the facts about each name of a proxy, asking it if they're over a day old.

    They're empty if it has never answered.
    """
    path = _path(endpoint)
    answer = _answers.get(path)
    if answer is None or not answer.is_fresh:
        answer = _read_stored(path)
        _answers[path] = answer
    if answer.is_fresh:
        return answer.models
    own_request = Future[_Answer]()
    requests = _pending_requests.get()
    # This is one atomic operation: of several threads, one gets its own request back, and asks.
    request = requests.setdefault(path, own_request)
    if request is not own_request:
        with suppress(TimeoutError):
            answer = request.result(2 * SECONDS)
        return answer.models
    try:
        answer = _ask(endpoint, answer)
    finally:
        own_request.set_result(answer)
        _answers[path] = answer
        del requests[path]
    with suppress(OSError):
        environment.private_folder(str(path.parent))
        outputs.write_atomically(str(path), json.dumps(answer._asdict()), private=True)
    return answer.models


def _ask(endpoint: Endpoint, earlier_answer: _Answer) -> _Answer:
    """Ask a proxy for its models; if it doesn't answer, keep those of its earlier answer."""
    models = earlier_answer.models
    base = (endpoint.api_base or "").rstrip("/").removesuffix("/v1")
    with suppress(Exception):  # a stranger's server may do anything
        listing = listed(f"{base}/v1/model/info", endpoint.api_key, SECONDS, LIST_BYTES)
        models = _read_rows(running.run(listing))
    return _Answer(models, time.time())


def _read_stored(path: Path) -> _Answer:
    """Read the answer an earlier process stored; if there is none, an empty one that's long out of date."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        content = json.loads(path.read_bytes())
        models = {}
        for name, (family, is_thinking) in content["models"].items():
            models[str(name)] = Known(str(family), bool(is_thinking))
        return _Answer(models, float(content["at"]))
    return _Answer({}, 0.0)


def _read_rows(rows: list[Any]) -> dict[str, Known]:
    """Read a proxy's list of models; raises whatever a malformed list causes."""
    families_by_name = defaultdict[str, set[str]](set)
    thinking_names = set()
    for row in rows:  # several rows may have the same name, for several models behind it
        name = str(row["model_name"])
        details = row.get("model_info") or {}
        actual_model = details.get("base_model") or row["litellm_params"]["model"]
        families_by_name[name].add(family_by_name(str(actual_model)))
        if details.get("supports_reasoning") is True:
            thinking_names.add(name)
    models = {}
    for name, families in families_by_name.items():
        models[name] = Known(_name_common_family(families), name in thinking_names)
    return models


def _name_common_family(families: set[str]) -> str:
    """Name the family of all models behind a name: "" if none is known, "unknown" if they differ."""
    if families == {UNKNOWN_FAMILY}:
        return ""
    if len(families) > 1:
        return UNKNOWN_FAMILY
    (family,) = families
    return family
