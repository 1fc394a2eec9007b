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
from judgekit.judging.questions import question_of
from judgekit.judging.ranking import RankingJudge
from judgekit.judging.reply_file import ReplyFile
from judgekit.judging.request import AS_CONFIGURED, OF_DOCUMENTS
from judgekit.judging.score import DocumentJudge
from judgekit.judging.settings import JudgeSettings
from judgekit.judging.verdict import Comparison, Depth, Verdict
from judgekit.providers import running
from judgekit.providers.concurrency import map_concurrently
from judgekit.providers.gateway import is_recording, is_replaying, open_gateway, unpriced
from judgekit.providers.resolve import Others, Panel, Tiers, resolve
from judgekit.rubric import loader
from judgekit.rubric.schema import CompareRubric, ScoreRubric
from judgekit.text import encodable, lines_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from judgekit.config.settings import Config
    from judgekit.judging.orchestrator import Judge
    from judgekit.judging.request import JudgeRequest
    from judgekit.providers.base import Gateway, Messages
    from judgekit.rubric.loader import LoadedRubric

FOR_TWO = "answer-preference"
FOR_MORE = "answer-quality"
AT_ONCE = 8


def document_judge(
    gateway: Gateway, project: Path | None = None, request: JudgeRequest = AS_CONFIGURED
) -> tuple[DocumentJudge, str]:
    """Build the judge for a request.

    Returns the judge and a line for the user, which describes its models or explains why there are none.
    Raises `ConfigError` or `UsageError`.
    """
    config = configuration.load(project)
    if config.server.url is not None and not is_replaying(environment.environ()):
        return _build_remote_judge(gateway, config, project, request)

    loaded = rubric(config, project, request)
    settings = judge_settings(config, loaded, project, request)
    judge = DocumentJudge(gateway, settings, reply_cache(request))
    # If the request has a depth, choose it separately for each document.
    if request.depth and settings.models_by_tier:
        from judgekit.judging import review  # noqa: PLC0415 - imported lazily because it's rarely needed

        choose = partial(_choose_depth, request.depth, config)
        judge = replace(judge, instead=partial(review.judge_at_depth, choose))
    return judge, settings.no_model_reason


def _build_remote_judge(
    gateway: Gateway, config: Config, project: Path | None, request: JudgeRequest
) -> tuple[DocumentJudge, str]:
    """Build a judge that lets the team's server judge. Returns the judge and the server's address.

    Raises `UsageError` for options that only the server decides on.
    """
    from judgekit.judging import shared  # noqa: PLC0415 - imported lazily because it's rarely needed

    server = shared.configured(config)
    assert server is not None  # noqa: S101 - the configuration names it
    model = request.model or environment.environ().get(panel.ONLY_MODEL)
    if model:
        problem = "the shared judge (server.url) chooses models; leave it out"
        raise UsageError(f"--model {model}: {problem}")
    if request.depth:
        problem = "the shared judge (server.url) chooses the depth; leave --depth and --review out"
        raise UsageError(problem)

    loaded = rubric(config, project, request)
    settings = judge_settings(config, loaded, project, request, tiers=())
    judge = DocumentJudge(gateway, settings, reply_cache(request), instead=server.judge)
    return judge, server.url


def _choose_depth(wanted_depth: AnyDepth, config: Config, document: Document) -> Depth:
    """Return the requested depth. For "auto", choose it by the gate's rules, or by the default rules."""
    from judgekit.judging import depth  # noqa: PLC0415 - imported lazily because it's rarely needed

    if wanted_depth != "auto":
        return Depth(depth=wanted_depth, rule="as asked")
    file = document.files[0]
    line_count = len(lines_of(file.text))
    users_rules = configuration.load(None).gate
    if config.gate.depth or config.gate.review is not None:
        return depth.choose(users_rules, config.gate, file.path, line_count)
    usual_rules = configuration.GateConfig.model_validate({"depth": "usual"})
    return depth.choose(usual_rules, usual_rules, file.path, line_count)


def rubric(config: Config, project: Path | None, request: JudgeRequest) -> LoadedRubric:
    """Load the request's rubric, or the configured one.

    Raises `ConfigError` or `UsageError` if it doesn't exist or is invalid.
    """
    name = request.rubric
    if name is None:
        return loader.load_configured_rubric("judge", config.judge.rubric, project)
    if name.endswith((".yaml", ".yml")):
        # Use an absolute path, so that errors are the same here and in an engine.
        with suppress(FileNotFoundError):  # the current folder doesn't exist anymore
            name = str(Path(name).absolute())
    return loader.find_rubric(name, project, (ScoreRubric,))


def judge_settings(
    config: Config,
    loaded: LoadedRubric,
    project: Path | None = None,
    request: JudgeRequest = AS_CONFIGURED,
    *,
    tiers: Collection[TierName] = TIERS,
    subjects: int = 0,  # the number of texts scored for a comparison
) -> JudgeSettings:
    """Build a judge's settings, with the models of `tiers` and a calibration that fits them.

    Raises `ConfigError`. Raises `UsageError` if there's a cost limit and a model's price isn't known.
    """
    settings = JudgeSettings.of(config.judge, request, loaded)
    settings = _add_models(settings, config, project, tiers)
    if settings.author_family:
        families = panel.project_named_families(config, project, request.model)
        settings = replace(settings, project_named_families=families)
    # The calibration comes last, because it must fit the other settings.
    finality, warning = calibration_files.find(settings, project, subjects)
    return replace(settings, finality=finality, calibration_warning=warning)


def _add_models(
    settings: JudgeSettings, config: Config, project: Path | None, tiers: Collection[TierName]
) -> JudgeSettings:
    """Return settings with the models of `tiers`, or with the reason why there are none.

    Raises the same errors as `judge_settings`.
    """
    request = settings.request
    resolved = Panel({}, None, "")  # without tiers, no provider is needed
    if tiers:
        panel_request = panel.requested_panel(config, project, model=request.model)
        resolved = resolve(panel_request, environment.environ())
    models_by_tier = {}
    for tier, models in resolved.endpoints.items():
        if tier in tiers:
            models_by_tier[tier] = models

    # With a cost limit, all models need a price, including those of other providers.
    others = resolved.others
    if settings.max_cost_usd:
        set_by_caller = request.max_cost_usd is not None
        check_prices(models_by_tier, settings.max_cost_usd, project, set_by_caller=set_by_caller)
        others = partial(_list_priced_panels, resolved.others)
    return replace(
        settings, models_by_tier=models_by_tier, no_model_reason=resolved.reason, others=others
    )


def _list_priced_panels(others: Others) -> list[Tiers]:
    """List the other providers' panels whose models all have a known price."""
    return [panel_of_other for panel_of_other in others() if not _list_unpriced(panel_of_other)]


def reply_cache(request: JudgeRequest) -> ReplyCache | None:
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
    names = _list_unpriced(tiers) if limit else []
    if not names:
        return

    providers = set()
    for models in tiers.values():
        providers |= {model.profile.provider for model in models}
    folder = Path(environment.PROVIDERS.path())
    profiles = " or ".join(str(folder / f"{provider}.yaml") for provider in sorted(providers))
    problem = (
        f"no price is known for {', '.join(names)}, so a cost limit cannot work: set `price` in the "
        f"provider's profile ({profiles}, a copy of the bundled one), or remove the limit"
    )
    if set_by_caller:
        raise UsageError(f"max cost: {problem}")
    raise configuration.build_error("judge", "max_cost_usd", problem, project)


def _list_unpriced(tiers: Tiers) -> list[str]:
    """List the models without a known price."""
    return unpriced(chain.from_iterable(tiers.values()))


def max_concurrency(judge: Judge[Any, Any, Any], at_once: int) -> int:
    """Return the number of documents to judge at once: `at_once`, or fewer if a provider limits its calls."""
    calls_per_document = judge.settings.calls_at_once(len(judge.rubric.questions))
    documents_at_once = at_once
    for models in judge.models_by_tier.values():
        for model in models:
            call_limit = model.profile.limits.concurrency
            if call_limit:
                document_limit = max(1, call_limit // calls_per_document)
                documents_at_once = min(documents_at_once, document_limit)
    return documents_at_once


async def ajudge_documents(
    documents: Iterable[Document],
    project: Path | None = None,
    request: JudgeRequest = AS_CONFIGURED,
    on_verdict: Callable[[Document, Verdict], object] | None = None,
    at_once: int = AT_ONCE,
) -> list[Verdict]:
    """Judge documents concurrently while they're read, and return the verdicts.

    If `on_verdict` is given, it's called with each document and its verdict, and the returned list is empty.
    """
    verdicts: list[Verdict] = []
    async with aclosing(open_gateway(environment.environ())) as gateway:
        # Use a thread, because this reads files, queries local servers, and loads litellm for prices.
        judge, _ = await running.run_in_thread(partial(document_judge, gateway, project, request))
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
        self._gateway = open_gateway({})
        self._of_documents: DocumentJudge | None = None
        self._by_text_count: dict[int, PairJudge | RankingJudge] = {}

    def find(self, subject: Document | ComparisonInput) -> Judge[Any, Any, Any]:
        """Return the judge for a subject, adapted to the subject's author.

        Raises `ConfigError` or `UsageError`.
        """
        if isinstance(subject, ComparisonInput):
            count = len(subject.files)
            if count not in self._by_text_count:
                self._by_text_count[count] = comparison_judge(
                    self._gateway, subject, self._project, self._request
                )
            return self._by_text_count[count].for_subject(subject)

        if self._of_documents is None:
            self._of_documents, _ = document_judge(self._gateway, self._project, self._request)
        judge = self._of_documents.for_subject(subject)
        if self._request.depth:
            from judgekit.judging import review  # noqa: PLC0415 - imported lazily because it's rarely needed

            config = configuration.load(self._project)
            depth = _choose_depth(self._request.depth, config, subject)
            judge, _ = review.with_depth(judge, depth, subject)
        return judge


def prompts(
    subject: Document | ComparisonInput,
    project: Path | None = None,
    request: JudgeRequest = AS_CONFIGURED,
) -> list[tuple[TierName, str, list[Messages]]]:
    """Build the prompts about a subject, with the tier and name of each model."""
    return SubjectJudges(project, request).find(subject).prompts_by_model(subject)


async def acompare(
    texts: ComparisonInput, project: Path | None, request: JudgeRequest
) -> Comparison:
    """Compare texts; raises `ConfigError` or `UsageError`. Models' failures are in the result."""
    async with aclosing(open_gateway(environment.environ())) as gateway:
        judge = await running.run_in_thread(
            partial(comparison_judge, gateway, texts, project, request)
        )
        return await judge.judge(texts)


def authors(families: str | Sequence[str | None] | None, count: int) -> tuple[str | None, ...]:
    """Return the author family of each text, or None if it's unknown. There are `count` texts.

    `families` contains one name for all texts, or one for each. An empty list is returned unchanged. Raises
    `UsageError` for a wrong number of names.
    """
    listed_families = [families] if families is None or isinstance(families, str) else families
    # Remove lone surrogates, which can't be printed or stored.
    names = tuple(encodable(name) if name else name for name in listed_families)
    if len(names) == 1:
        return names * count
    if names and len(names) != count:
        problem = f"expected one for all or {count}, one for each; got {len(names)}"
        raise UsageError(f"author family: {problem}")
    return names


def comparison_judge(
    gateway: Gateway, texts: ComparisonInput, project: Path | None, request: JudgeRequest
) -> PairJudge | RankingJudge:
    """Build the judge that compares these texts, as a pair or by ranking their scores.

    Raises `ConfigError`, or `UsageError` if the request or the rubric doesn't fit the texts.
    """
    count = len(texts.files)
    for option in OF_DOCUMENTS:
        if getattr(request, option):
            raise UsageError(f"{option}: texts that are compared have none; leave it out")
    if not MIN_TEXTS <= count <= MAX_TEXTS:
        raise UsageError(f"compare: expected {MIN_TEXTS} to {MAX_TEXTS} texts, got {count}")

    # Load the rubric, which decides on the kind of comparison.
    rubric_name = request.rubric
    if rubric_name is None:
        rubric_name = FOR_TWO if count == MIN_TEXTS else FOR_MORE
    loaded = loader.find_rubric(rubric_name, project, (ScoreRubric, CompareRubric))
    config = configuration.load(project)
    judge_class: type[PairJudge | RankingJudge]
    if question_of(loaded.rubric).is_about_two:
        if count > MIN_TEXTS:
            problem = f"{loaded.rubric.ref} compares two texts, but there are {count}"
            raise UsageError(f"{problem}; name a rubric of the task 'score', such as {FOR_MORE}")
        judge_class = PairJudge
        scored_subjects = 0
    else:
        judge_class = RankingJudge
        scored_subjects = len(texts.distinct)

    settings = judge_settings(config, loaded, project, request, subjects=scored_subjects)
    reason = _explain_no_comparison(config, settings.no_model_reason)
    settings = replace(settings, no_model_reason=reason)
    return judge_class(gateway, settings, reply_cache(request))


def _explain_no_comparison(config: Config, reason: str) -> str:
    """Explain why no model can compare texts. Mention that a shared judge, if configured, can't."""
    if config.server.url is None:
        return reason
    alone = "the shared judge (server.url) judges documents alone, and compares no texts"
    return f"{alone}; on this machine: {reason}"
