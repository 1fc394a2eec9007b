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
from judgekit.providers.registry import UNKNOWN_FAMILY, ApiProfile, LitellmProfile, guess_family
from judgekit.providers.servers import LIST_BYTES, fetch_list

if TYPE_CHECKING:
    from judgekit.providers.base import Endpoint

TOTAL_TIMEOUT_SECONDS = 2.0  # for all of the requests together
KEPT_SECONDS = 86_400.0
FAILED_SECONDS = 600.0  # before trying a proxy that didn't answer again


class ModelFacts(NamedTuple):
    """What a proxy says about a model name. Without a known family, `family` is ""."""

    family: str
    thinks: bool


class _Answer(NamedTuple):
    """A proxy's facts by model name, and when it gave them."""

    models: dict[str, ModelFacts]
    at: float

    @property
    def is_fresh(self) -> bool:
        """Whether the answer is recent. A failed one expires sooner."""
        age = abs(time.time() - self.at)  # the clock may have been set back
        return age < (KEPT_SECONDS if self.models else FAILED_SECONDS)


_answers: dict[Path, _Answer] = {}
# The requests under way in this process; other threads wait for the same answer.
_pending_requests = PerProcess(dict[Path, "Future[_Answer]"])


def fill_in_family(endpoint: Endpoint) -> Endpoint:
    """Return a copy of `endpoint` with its model's family according to the LiteLLM proxy.

    Return `endpoint` itself if its profile gives the family, or if no proxy does. The family is "unknown" if
    the proxy uses the name for models of different families.
    """
    profile = endpoint.profile
    # The profile can give the families of certain models. `profile.family` is that of all others.
    profile_family = profile.look_up_model(profile.families, endpoint.model, profile.family)
    if profile_family or not may_be_proxy(endpoint):
        return endpoint
    model_facts = _find_facts(endpoint, _get_models(endpoint))
    if model_facts and model_facts.family:
        return replace(endpoint, family=model_facts.family)
    return endpoint


def thinks(endpoint: Endpoint) -> bool:
    """Whether the model thinks before it answers, according to its proxy."""
    model_facts = _find_facts(endpoint, _get_models(endpoint))
    return model_facts is not None and model_facts.thinks


def thinks_if_known(endpoint: Endpoint) -> bool | None:
    """Whether a model thinks, without querying the proxy. Return None if there's no recent answer."""
    answer = _answers.get(_answer_path(endpoint))
    if answer is None or not answer.is_fresh:
        return None
    model_facts = _find_facts(endpoint, answer.models)
    if model_facts is None:
        return False  # the proxy has answered, but doesn't list this model
    return model_facts.thinks


def may_be_proxy(endpoint: Endpoint) -> bool:
    """Whether a model is at an address set by the user, which could be a LiteLLM proxy."""
    profile = endpoint.profile
    if not isinstance(profile, LitellmProfile) or not endpoint.api_base:
        return False
    has_address_variable = bool(profile.base_env)
    has_model_variables = bool(profile.models_env.by_tier)
    # If users set both the address and the models, the profile isn't for one certain provider.
    return has_address_variable and has_model_variables


def _find_facts(endpoint: Endpoint, models: dict[str, ModelFacts]) -> ModelFacts | None:
    """Return a proxy's facts about an endpoint's model, or None."""
    profile = endpoint.profile
    model_name = ""  # only a model with an API can be behind a proxy
    if isinstance(profile, ApiProfile):
        model_name = endpoint.model.removeprefix(profile.prefix)
    if model_name in models:
        return models[model_name]
    # A proxy can list a pattern such as `gpt-*` instead of a name.
    for pattern, model_facts in models.items():
        if pattern.endswith("*") and model_name.startswith(pattern.removesuffix("*")):
            return model_facts
    return None


def _answer_path(endpoint: Endpoint) -> Path:
    """Return the path of the file with a proxy's answer. Its name is a hash, to hide the address and key."""
    key_text = f"{endpoint.api_base or ''}\0{endpoint.api_key}"
    digest = hashlib.sha256(key_text.encode()).hexdigest()
    return Path(environment.PROXIES.path(f"{digest}.json"))


def _get_models(endpoint: Endpoint) -> dict[str, ModelFacts]:
    """Return facts about a proxy's models, by model name. Query the proxy if the stored facts are too old.

    If the proxy has never answered, returns {}.
    """
    path = _answer_path(endpoint)
    answer = _recall_answer(path)
    if answer.is_fresh:
        return answer.models

    # Only the first thread queries the proxy, and other threads wait for its result. `setdefault` is atomic,
    # so all threads get the first thread's request.
    own_request = Future[_Answer]()
    request = _pending_requests.get().setdefault(path, own_request)
    is_first_thread = request is own_request
    if is_first_thread:
        return _query_for_all_threads(endpoint, path, answer, own_request).models
    with suppress(TimeoutError):
        answer = request.result(2 * TOTAL_TIMEOUT_SECONDS)
    return answer.models


def _recall_answer(path: Path) -> _Answer:
    """Return the answer in memory if it's fresh, or else the stored one, which can be expired."""
    answer = _answers.get(path)
    if answer is None or not answer.is_fresh:
        answer = _read_stored(path)
        _answers[path] = answer
    return answer


def _query_for_all_threads(
    endpoint: Endpoint, path: Path, earlier_answer: _Answer, request: Future[_Answer]
) -> _Answer:
    """Query the proxy, and pass its answer to the other threads, which wait for `request`."""
    answer = earlier_answer  # in case the query fails
    try:
        answer = _ask_proxy(endpoint, earlier_answer)
    finally:
        # Whatever happens, the waiting threads must get an answer.
        request.set_result(answer)
        _answers[path] = answer  # for later calls in this process
        del _pending_requests.get()[path]
    _store_answer(answer, path)  # for later processes
    return answer


def _store_answer(answer: _Answer, path: Path) -> None:
    """Store a proxy's answer in a file for later processes, if possible."""
    with suppress(OSError):
        environment.make_private_folder(str(path.parent))
        outputs.write_atomically(str(path), json.dumps(answer._asdict()), private=True)


def _ask_proxy(endpoint: Endpoint, earlier_answer: _Answer) -> _Answer:
    """Query a proxy for its models. If it doesn't answer, keep the earlier answer's models."""
    models = earlier_answer.models
    base = (endpoint.api_base or "").rstrip("/").removesuffix("/v1")
    with suppress(Exception):  # this address can belong to any kind of server
        listing = fetch_list(
            f"{base}/v1/model/info", endpoint.api_key, TOTAL_TIMEOUT_SECONDS, LIST_BYTES
        )
        models = _read_rows(running.run(listing))
    # Models that are kept also count as fresh, so that a proxy that's down isn't queried before every call.
    return _Answer(models, time.time())


def _read_stored(path: Path) -> _Answer:
    """Read a stored answer. If it's missing or damaged, return an expired answer without models."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        content = json.loads(path.read_bytes())
        models = {}
        for name, (family, is_thinking) in content["models"].items():
            models[str(name)] = ModelFacts(str(family), bool(is_thinking))
        return _Answer(models, float(content["at"]))
    return _Answer({}, 0.0)


def _read_rows(rows: list[Any]) -> dict[str, ModelFacts]:
    """Convert a proxy's list of models to facts by name.

    Can raise `KeyError`, `TypeError` or `AttributeError` if the list is malformed.
    """
    # A proxy can offer multiple models under one name, with a row for each.
    families_by_name = defaultdict[str, set[str]](set)
    thinking_names = set()
    for row in rows:
        name = str(row["model_name"])
        details = row.get("model_info") or {}
        actual_model = details.get("base_model") or row["litellm_params"]["model"]
        families_by_name[name].add(guess_family(str(actual_model)))
        if details.get("supports_reasoning") is True:
            thinking_names.add(name)

    models = {}
    for name, families in families_by_name.items():
        models[name] = ModelFacts(_find_common_family(families), name in thinking_names)
    return models


def _find_common_family(families: set[str]) -> str:
    """Return the one family of the models behind a name, or "unknown" if they're of different families."""
    if len(families) > 1:
        return UNKNOWN_FAMILY
    (family,) = families
    if family == UNKNOWN_FAMILY:
        return ""  # so that the endpoint keeps its own family
    return family
