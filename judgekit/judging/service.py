"""The flows behind `judgekit judge` and `judgekit compare`: texts in, verdicts out, a few at a time."""

from __future__ import annotations

from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgekit import environment
from judgekit.config import TIERS, AnyDepth, TierName
from judgekit.config import settings as configuration
from judgekit.errors import UsageError
from judgekit.judging import calibration_files, panel
from judgekit.judging.cache import ReplyCache
from judgekit.judging.compare import PairJudge
from judgekit.judging.documents import MAX_TEXTS, MIN_TEXTS, ComparisonInput, Document
from judgekit.judging.questions import get_question_class
from judgekit.judging.ranking import RankingJudge
from judgekit.judging.reply_file import ReplyFile
from judgekit.judging.request import DEFAULT_REQUEST, DOCUMENT_ONLY_OPTIONS
from judgekit.judging.score import DocumentJudge
from judgekit.judging.settings import JudgeSettings
from judgekit.judging.verdict import Comparison, Depth, Verdict
from judgekit.providers import running
from judgekit.providers.concurrency import map_concurrently
from judgekit.providers.gateway import (
    is_recording,
    is_replaying,
    list_unpriced_models,
    open_gateway,
)
from judgekit.providers.resolve import Others, Panel, Tiers, resolve
from judgekit.rubric import loader
from judgekit.rubric.schema import CompareRubric, ScoreRubric
from judgekit.text import replace_surrogates, split_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from judgekit.config.settings import Config
    from judgekit.judging.orchestrator import Judge
    from judgekit.judging.request import JudgeRequest
    from judgekit.providers.base import Gateway, Messages
    from judgekit.rubric.loader import LoadedRubric

PAIR_RUBRIC = "answer-preference"
RANKING_RUBRIC = "answer-quality"
DEFAULT_CONCURRENCY = 8


def build_document_judge(
    gateway: Gateway, project: Path | None = None, request: JudgeRequest = DEFAULT_REQUEST
) -> tuple[DocumentJudge, str]:
    """Build the judge for a request.

    Also returns a line for the user: the server's address, or the reason why there are no models, or "".
    Raises `ConfigError` or `UsageError` if the configuration or the request is invalid.
    """
    config = configuration.load(project)
    has_server = config.server.url is not None
    # A replay takes its replies from a recording, so it's judged here.
    if has_server and not is_replaying(environment.environ()):
        return _build_remote_judge(gateway, config, project, request)

    loaded = load_rubric(config, project, request)
    settings = judge_settings(config, loaded, project, request)
    judge = DocumentJudge(gateway, settings, open_reply_cache(request))
    if request.depth and settings.models_by_tier:
        judge = _choose_depth_by_document(judge, request.depth, config)
    return judge, settings.no_model_reason


def _choose_depth_by_document(
    judge: DocumentJudge, wanted_depth: AnyDepth, config: Config
) -> DocumentJudge:
    """Return a judge that chooses a depth for each document, and judges at that depth."""
    from judgekit.judging import review  # noqa: PLC0415 - imported lazily because it's rarely needed

    choose_depth = partial(_choose_depth, wanted_depth, config)
    judge_at_depth = partial(review.judge_at_depth, choose_depth)
    return replace(judge, judge_instead=judge_at_depth)  # instead of the usual judging


def _build_remote_judge(
    gateway: Gateway, config: Config, project: Path | None, request: JudgeRequest
) -> tuple[DocumentJudge, str]:
    """Build a judge that sends documents to the team's server. Returns the judge and the server's address.

    Raises `UsageError` if the request sets a model or a depth, because the server chooses them.
    """
    from judgekit.judging import shared  # noqa: PLC0415 - imported lazily because it's rarely needed

    server = shared.find_shared_judge(config)
    assert server is not None  # noqa: S101 - the caller has checked that `server.url` is set
    model = request.model or environment.environ().get(panel.ONLY_MODEL)
    if model:
        problem = "the shared judge (server.url) chooses models; leave it out"
        raise UsageError(f"--model {model}: {problem}")
    if request.depth:
        problem = "the shared judge (server.url) chooses the depth; leave --depth and --review out"
        raise UsageError(problem)

    loaded = load_rubric(config, project, request)
    # Without tiers, no local models are looked up.
    settings = judge_settings(config, loaded, project, request, tiers=())
    # `judge_instead` replaces the judging on this machine.
    judge = DocumentJudge(gateway, settings, open_reply_cache(request), judge_instead=server.judge)
    return judge, server.url


def _choose_depth(wanted_depth: AnyDepth, config: Config, document: Document) -> Depth:
    """Return the requested depth. For "auto", choose it by the gate's rules, or by the default rules."""
    from judgekit.judging import depth  # noqa: PLC0415 - imported lazily because it's rarely needed

    if wanted_depth != "auto":
        return Depth(depth=wanted_depth, rule="as asked")

    # The rules in a project can't ask for less than the user's own, so both are needed.
    users_rules = configuration.load(None).gate
    rules = config.gate
    has_depth_rules = bool(rules.depth) or rules.review is not None
    if not has_depth_rules:
        # "usual" stands for the default rules.
        rules = configuration.GateConfig.model_validate({"depth": "usual"})
        users_rules = rules

    file = document.files[0]
    line_count = len(split_lines(file.text))
    return depth.choose(users_rules, rules, file.path, line_count)


def load_rubric(config: Config, project: Path | None, request: JudgeRequest) -> LoadedRubric:
    """Load the request's rubric, or the configured one.

    Raises `ConfigError` or `UsageError` if it doesn't exist or is invalid.
    """
    name = request.rubric
    if name is None:
        return loader.load_configured_rubric("judge", config.judge.rubric, project)
    if name.endswith((".yaml", ".yml")):
        # The engine, which runs in another folder, makes the path absolute. Do so here too, so that errors
        # name the same path.
        with suppress(FileNotFoundError):  # the current folder doesn't exist anymore
            name = str(Path(name).absolute())
    return loader.find_rubric(name, project, (ScoreRubric,))


def judge_settings(
    config: Config,
    loaded: LoadedRubric,
    project: Path | None = None,
    request: JudgeRequest = DEFAULT_REQUEST,
    *,
    tiers: Collection[TierName] = TIERS,
    subjects: int = 0,
) -> JudgeSettings:
    """Build a judge's settings, with the models of `tiers` and a calibration that fits them.

    When texts are scored to compare them, `subjects` is their number; otherwise it's 0.
    Raises `ConfigError`. Raises `UsageError` if there's a cost limit and a model's price isn't known.
    """
    settings = JudgeSettings.of(config.judge, request, loaded)
    settings = _add_models(settings, config, project, tiers)
    if settings.author_family:
        # A project that names a family must not cause texts to be sent to another provider than the user's.
        families = panel.project_named_families(config, project, request.model)
        settings = replace(settings, project_named_families=families)
    # The calibration comes last, because it must fit the other settings.
    finality, warning = calibration_files.find(settings, project, subjects)
    return replace(settings, finality=finality, calibration_warning=warning)


def _add_models(
    settings: JudgeSettings, config: Config, project: Path | None, tiers: Collection[TierName]
) -> JudgeSettings:
    """Add the models of `tiers` to the settings. If there are none, add the reason.

    Raises the same errors as `judge_settings`.
    """
    request = settings.request
    found_panel = _find_panel(config, project, request, tiers)
    models_by_tier = {}
    for tier, models in found_panel.endpoints.items():
        if tier in tiers:
            models_by_tier[tier] = models

    # Called later, if models have to be replaced, such as those of the author's family
    list_other_panels = found_panel.find_other_panels
    if settings.max_cost_usd:  # a cost limit only works with known prices
        set_by_caller = request.max_cost_usd is not None
        check_prices(models_by_tier, settings.max_cost_usd, project, set_by_caller=set_by_caller)
        list_other_panels = partial(_list_priced_panels, found_panel.find_other_panels)

    return replace(
        settings,
        models_by_tier=models_by_tier,
        no_model_reason=found_panel.reason,
        find_other_panels=list_other_panels,
    )


def _find_panel(
    config: Config, project: Path | None, request: JudgeRequest, tiers: Collection[TierName]
) -> Panel:
    """Find the models to judge with. Without tiers, no provider is needed, and the panel is empty."""
    if not tiers:
        return Panel({}, provider=None, reason="")
    panel_request = panel.collect_panel_request(config, project, model=request.model)
    return resolve(panel_request, environment.environ())


def _list_priced_panels(others: Others) -> list[Tiers]:
    """List the other providers' panels whose models all have a known price."""
    return [panel_of_other for panel_of_other in others() if not _list_unpriced(panel_of_other)]


def open_reply_cache(request: JudgeRequest) -> ReplyCache | None:
    """Open the reply cache, or return None if the request doesn't want it or replies are recorded."""
    if request.cache and not is_recording(environment.environ()):
        return ReplyCache(ReplyFile())
    return None


def check_prices(
    tiers: Tiers, limit: float | None, project: Path | None = None, *, set_by_caller: bool
) -> None:
    """Raise an error if there's a cost limit, but a model's price isn't known.

    Raises `UsageError` if the limit was `set_by_caller`, and `ConfigError` if it's configured.
    """
    if not limit:
        return
    unpriced_models = _list_unpriced(tiers)
    if not unpriced_models:
        return

    problem = (
        f"no price is known for {', '.join(unpriced_models)}, so a cost limit cannot work: set `price` in "
        f"the provider's profile ({_join_profiles(tiers)}, a copy of the bundled one), or remove the limit"
    )
    if set_by_caller:
        raise UsageError(f"max cost: {problem}")
    raise configuration.build_error("judge", "max_cost_usd", problem, project)


def _join_profiles(tiers: Tiers) -> str:
    """List the user's profile files for the models' providers, as in "A.yaml or B.yaml"."""
    providers = set()
    for models in tiers.values():
        providers |= {model.profile.provider for model in models}
    folder = Path(environment.PROVIDERS.path())
    return " or ".join(str(folder / f"{provider}.yaml") for provider in sorted(providers))


def _list_unpriced(tiers: Tiers) -> list[str]:
    """List the models without a known price."""
    return list_unpriced_models(chain.from_iterable(tiers.values()))


def max_concurrency(judge: Judge[Any, Any, Any], at_once: int) -> int:
    """Return the number of documents to judge at once: `at_once`, or fewer if a provider limits its calls."""
    calls_per_document = judge.settings.count_calls_at_once(len(judge.rubric.questions))
    documents_at_once = at_once
    for call_limit in _list_call_limits(judge):
        document_limit = max(1, call_limit // calls_per_document)
        documents_at_once = min(documents_at_once, document_limit)
    return documents_at_once


def _list_call_limits(judge: Judge[Any, Any, Any]) -> list[int]:
    """List the numbers of concurrent calls that the models' providers allow. Not all have a limit."""
    limits = []
    for models in judge.models_by_tier.values():
        for model in models:
            limit = model.profile.limits.concurrency
            if limit:
                limits.append(limit)
    return limits


async def ajudge_documents(
    documents: Iterable[Document],
    project: Path | None = None,
    request: JudgeRequest = DEFAULT_REQUEST,
    on_verdict: Callable[[Document, Verdict], object] | None = None,
    at_once: int = DEFAULT_CONCURRENCY,
) -> list[Verdict]:
    """Judge documents concurrently while they're read, and return the verdicts.

    If `on_verdict` is given, it's called with each document and its verdict, and the returned list is empty.
    """
    verdicts: list[Verdict] = []
    async with aclosing(open_gateway(environment.environ())) as gateway:
        # Use a thread, because this reads files, queries local servers, and loads litellm for prices.
        judge, _ = await running.run_in_thread(
            partial(build_document_judge, gateway, project, request)
        )
        stream = map_concurrently(judge.judge, documents, max_concurrency(judge, at_once))
        async with aclosing(stream):
            async for document, verdict in stream:
                if on_verdict is None:
                    verdicts.append(verdict)
                else:
                    on_verdict(document, verdict)
    return verdicts


class SubjectJudges:
    """Builds and keeps the judges for subjects, without sending anything."""

    def __init__(self, project: Path | None, request: JudgeRequest) -> None:
        self._project = project
        self._request = request
        # Nothing is sent, so there's nothing to record, and the gateway needs no environment variables.
        self._gateway = open_gateway({})
        self._document_judge: DocumentJudge | None = None
        # By the number of texts, which determines the default rubric.
        self._comparison_judges: dict[int, PairJudge | RankingJudge] = {}

    def find(self, subject: Document | ComparisonInput) -> Judge[Any, Any, Any]:
        """Return the judge for a subject, adapted to the subject's author.

        Raises `ConfigError` or `UsageError` if the judge can't be built.
        """
        if isinstance(subject, ComparisonInput):
            return self._find_comparison_judge(subject).for_subject(subject)

        if self._document_judge is None:
            self._document_judge, _ = build_document_judge(
                self._gateway, self._project, self._request
            )
        judge = self._document_judge.for_subject(subject)
        if self._request.depth:
            return self._set_depth(judge, self._request.depth, subject)
        return judge

    def _find_comparison_judge(self, texts: ComparisonInput) -> PairJudge | RankingJudge:
        """Return the judge for this number of texts. Build it if it's the first time."""
        count = len(texts.files)
        judge = self._comparison_judges.get(count)
        if judge is None:
            judge = build_comparison_judge(self._gateway, texts, self._project, self._request)
            self._comparison_judges[count] = judge
        return judge

    def _set_depth(
        self, judge: DocumentJudge, wanted_depth: AnyDepth, document: Document
    ) -> DocumentJudge:
        """Return a judge that judges a document at the wanted depth."""
        from judgekit.judging import review  # noqa: PLC0415 - imported lazily because it's rarely needed

        config = configuration.load(self._project)
        depth = _choose_depth(wanted_depth, config, document)
        judge_at_depth, _ = review.choose_depth_models(judge, depth, document)
        return judge_at_depth


def build_prompts(
    subject: Document | ComparisonInput,
    project: Path | None = None,
    request: JudgeRequest = DEFAULT_REQUEST,
) -> list[tuple[TierName, str, list[Messages]]]:
    """Build the prompts about a subject, with the tier and name of each model."""
    return SubjectJudges(project, request).find(subject).list_prompts_by_model(subject)


async def acompare(
    texts: ComparisonInput, project: Path | None, request: JudgeRequest
) -> Comparison:
    """Compare texts; raises `ConfigError` or `UsageError`. Models' failures are in the result."""
    async with aclosing(open_gateway(environment.environ())) as gateway:
        judge = await running.run_in_thread(
            partial(build_comparison_judge, gateway, texts, project, request)
        )
        return await judge.judge(texts)


def list_authors(families: str | Sequence[str | None] | None, count: int) -> tuple[str | None, ...]:
    """Return the author family of each of `count` texts, or None if it's unknown.

    `families` contains one name for all texts, or one for each. For an empty list, the result is empty.
    Raises `UsageError` for a wrong number of names.
    """
    listed_families: Sequence[str | None]
    if families is None or isinstance(families, str):
        listed_families = [families]
    else:
        listed_families = families

    # Remove lone surrogates, which can't be printed or stored.
    names = tuple(replace_surrogates(name) if name else name for name in listed_families)
    if len(names) == 1:
        return names * count
    is_count_wrong = len(names) != count
    if names and is_count_wrong:
        problem = f"expected one for all or {count}, one for each; got {len(names)}"
        raise UsageError(f"author family: {problem}")
    return names


def build_comparison_judge(
    gateway: Gateway, texts: ComparisonInput, project: Path | None, request: JudgeRequest
) -> PairJudge | RankingJudge:
    """Build the judge that compares these texts, as a pair or by ranking their scores.

    Raises `ConfigError`, or `UsageError` if the request or the rubric doesn't fit the texts.
    """
    count = len(texts.files)
    _check_comparison(request, count)
    rubric_name = _choose_comparison_rubric(request, count)
    loaded = loader.find_rubric(rubric_name, project, (ScoreRubric, CompareRubric))
    config = configuration.load(project)

    is_for_pairs = get_question_class(loaded.rubric).is_about_two
    if is_for_pairs and count > MIN_TEXTS:
        problem = f"{loaded.rubric.ref} compares two texts, but there are {count}"
        raise UsageError(f"{problem}; name a rubric of the task 'score', such as {RANKING_RUBRIC}")

    # A pair gets a choice and no scores.
    subject_count = 0 if is_for_pairs else len(texts.distinct_letters)
    settings = judge_settings(config, loaded, project, request, subjects=subject_count)
    # The user sees this reason only if there's no model.
    reason_if_no_model = _explain_no_comparison(config, settings.no_model_reason)
    settings = replace(settings, no_model_reason=reason_if_no_model)
    judge_class = PairJudge if is_for_pairs else RankingJudge
    return judge_class(gateway, settings, open_reply_cache(request))


def _check_comparison(request: JudgeRequest, count: int) -> None:
    """Raise `UsageError` for an option that's only for documents, or for too few or too many texts."""
    for option in DOCUMENT_ONLY_OPTIONS:
        if getattr(request, option):
            raise UsageError(f"{option}: texts that are compared have none; leave it out")
    if not MIN_TEXTS <= count <= MAX_TEXTS:
        raise UsageError(f"compare: expected {MIN_TEXTS} to {MAX_TEXTS} texts, got {count}")


def _choose_comparison_rubric(request: JudgeRequest, count: int) -> str:
    """Return the requested rubric, or else the default for two texts or for more."""
    if request.rubric is not None:
        return str(request.rubric)
    return PAIR_RUBRIC if count == MIN_TEXTS else RANKING_RUBRIC


def _explain_no_comparison(config: Config, reason: str) -> str:
    """Explain why no model can compare texts. If there's a shared judge, add that it can't compare either."""
    if config.server.url is None:
        return reason
    server_limit = "the shared judge (server.url) judges documents alone, and compares no texts"
    return f"{server_limit}; on this machine: {reason}"
