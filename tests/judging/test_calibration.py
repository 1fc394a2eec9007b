"""Calibrations are kept, found, refused when stale, and used by the judge."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from making import document, document_judge, file, judge_options
from scripted import ScriptedGateway, scores, scripted_endpoint, three_models

from judgekit.errors import ConfigError, InputError
from judgekit.evaluation import cases as labelled
from judgekit.evaluation import samples
from judgekit.evaluation.calibrate import learn
from judgekit.judging import calibration, fingerprint
from judgekit.judging.calibration import Calibration, Promise
from judgekit.judging.orchestrator import USUAL, JudgeOptions
from judgekit.rubric import loader

if TYPE_CHECKING:
    from judgekit.config.names import TierName
    from judgekit.judging.verdict import Verdict
    from judgekit.providers.base import PanelModels
    from judgekit.rubric.loader import LoadedRubric

MADE = datetime(2026, 11, 1, tzinfo=UTC)
SEATS = three_models()
MODELS: dict[TierName, str] = {tier: endpoint.model for tier, endpoint in SEATS.items()}


@pytest.fixture
def kls() -> LoadedRubric:
    return loader.score_rubric("kls")


def cases(count: int = 120, wrong: int = 0) -> list[labelled.Case]:
    """Return cases in which the quick tier accepts with a large margin, `wrong` of them wrongly."""
    found = []
    for number in range(count):
        good = {"semantic": 5, "pragmatic": 5, "syntactic": 5}
        label = "reject" if number < wrong else "accept"
        judges: dict[TierName, dict[str, Any]] = {
            "quick": {"scores": good},
            "deep": {"reply": scores(*(5 if label == "accept" else 1,) * 3)},
        }
        said = {tier: {"model": MODELS[tier], **each} for tier, each in judges.items()}
        said["tiebreaker"] = {"model": MODELS["tiebreaker"], "failure": "not_recorded"}
        found.append(labelled.Case.model_validate({"id": str(number), "label": label, "judges": said}))
    return found


def learned(
    kls: LoadedRubric, found: list[labelled.Case], rate: float = 0.05, reference: TierName | None = None
) -> Calibration:
    return learn(
        found,
        samples.models(found),
        kls,
        "strict",
        Promise(rate, reference=reference),
        made=MADE,
        labels_sha256="0" * 64,
    )


def misfit(
    known: Calibration, kls: LoadedRubric, panel: PanelModels, options: JudgeOptions = USUAL
) -> str | None:
    return known.misfit(kls, fingerprint.panel(panel, kls.rubric, options))


def judged(
    kls: LoadedRubric, answers: dict[str, list[Any]], usable_calibration: calibration.UsableCalibration
) -> tuple[Verdict, list[str]]:
    gateway = ScriptedGateway(answers)
    own = document_judge(
        gateway,
        three_models(),
        loaded=kls,
        mode="strict",
        finality=usable_calibration.finality,
        calibration_warning=usable_calibration.calibration_warning,
    )
    subject = document((file("a.md", "# A"),), "a.md")
    return asyncio.run(own.judge(subject)), gateway.asked


def test_what_was_learned_comes_back_from_its_file(kls: LoadedRubric, tmp_path: Path) -> None:
    known = learned(kls, cases())
    calibration.write(known, tmp_path / "deep" / "c.json")
    assert calibration.read(tmp_path / "deep" / "c.json") == known
    assert known.schema_ == "judgekit/calibration@1"
    assert [gate.outcome for gate in known.gates] == ["accept"]
    assert (known.with_gates.calls, known.without.calls) == (
        {"quick": 120, "deep": 0, "tiebreaker": 0},
        {"quick": 120, "deep": 120, "tiebreaker": 0},
    )


def test_the_same_labels_give_the_same_id_and_others_another(kls: LoadedRubric) -> None:
    assert learned(kls, cases()).id == learned(kls, cases()).id
    assert learned(kls, cases()).id != learned(kls, cases(), 0.06).id


def test_a_judge_uses_one_that_fits_and_names_it(kls: LoadedRubric) -> None:
    known = learned(kls, cases())
    calibration.write(known, calibration.default_path(known))
    usable_calibration = calibration.find(kls, "strict", SEATS)
    verdict, asked = judged(kls, {"quick": [scores(5, 5, 5)]}, usable_calibration)
    assert (verdict.verdict, asked, verdict.calibration) == ("accept", ["quick"], known.id)
    assert verdict.degraded is None


def test_what_it_does_not_let_through_goes_up(kls: LoadedRubric) -> None:
    known = learned(kls, cases())
    calibration.write(known, calibration.default_path(known))
    usable_calibration = calibration.find(kls, "strict", SEATS)
    verdict, asked = judged(kls, {"quick": [scores(1, 1, 1)], "deep": [scores(1, 2, 2)]}, usable_calibration)
    assert (verdict.verdict, asked) == ("reject", ["quick", "deep"])  # final at once without a calibration
    verdict, asked = judged(kls, {"quick": [scores(4, 4, 4)], "deep": [scores(4, 4, 4)]}, usable_calibration)
    assert (verdict.verdict, asked) == ("accept", ["quick", "deep"])


def test_with_nothing_promised_the_judge_goes_by_the_table(kls: LoadedRubric) -> None:
    assert calibration.find(kls, "strict", SEATS) == calibration.UsableCalibration()
    verdict, asked = judged(kls, {"quick": [scores(1, 1, 1)]}, calibration.UsableCalibration())
    assert (verdict.verdict, asked, verdict.calibration) == ("reject", ["quick"], None)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"prompt_sha256": "1" * 64}, "the prompt has changed"),
        ({"models": {**MODELS, "deep": "older"}}, "deep was older and is deep-model now"),
        ({"models": {"quick": MODELS["quick"], "deep": MODELS["deep"]}}, "tiebreaker was nobody"),
        ({"rubric": {"id": "kls", "version": "1.0.0", "sha256": "2" * 64}}, "made for another kls"),
    ],
)
def test_a_stale_one_is_not_used_and_said(kls: LoadedRubric, change: dict[str, Any], why: str) -> None:
    known = learned(kls, cases())
    calibration_warning = Calibration.model_validate({**json.loads(known.text()), **change})
    calibration.write(calibration_warning, calibration.default_path(calibration_warning))
    usable_calibration = calibration.find(kls, "strict", SEATS)
    assert usable_calibration.finality is None
    assert why in str(usable_calibration.calibration_warning)
    verdict, asked = judged(kls, {"quick": [scores(1, 1, 1)]}, usable_calibration)
    assert (asked, verdict.calibration, verdict.degraded) == (
        ["quick"],
        None,
        usable_calibration.calibration_warning,
    )


def test_a_tier_that_is_not_asked_any_more_makes_it_stale(kls: LoadedRubric) -> None:
    known = learned(kls, cases())
    calibration.write(known, calibration.default_path(known))
    two: PanelModels = {tier: endpoint for tier, endpoint in SEATS.items() if tier != "tiebreaker"}
    assert "tiebreaker is not asked now" in str(calibration.find(kls, "strict", two).calibration_warning)
    assert calibration.find(kls, "strict", {"quick": SEATS["quick"]}) == calibration.UsableCalibration()


def test_it_holds_for_one_mode_and_one_rubric(kls: LoadedRubric) -> None:
    known = learned(kls, cases())
    calibration.write(known, calibration.default_path(known))
    assert calibration.find(kls, "lenient", SEATS) == calibration.UsableCalibration()
    assert (
        calibration.find(loader.find_rubric("memory-relevance"), "strict", SEATS)
        == calibration.UsableCalibration()
    )


def test_the_newest_that_fits_and_the_projects_before_the_users(kls: LoadedRubric, tmp_path: Path) -> None:
    old = learned(kls, cases())
    new = learned(kls, cases(), 0.06).model_copy(update={"made": MADE + timedelta(days=1)})
    for each in (new, old):
        calibration.write(each, calibration.default_path(each))
    usable_calibration = calibration.find(kls, "strict", SEATS, tmp_path)
    assert usable_calibration.finality is not None
    assert usable_calibration.finality.id == new.id
    own = learned(kls, cases(), 0.07)
    calibration.write(own, tmp_path / ".judgekit" / "calibrations" / f"{own.id}.json")
    calibration.accept(tmp_path / ".judgekit" / "calibrations" / f"{own.id}.json")
    usable_calibration = calibration.find(kls, "strict", SEATS, tmp_path)
    assert usable_calibration.finality is not None
    assert usable_calibration.finality.id == own.id


OURS = '"rubric": {"id": "kls", "version": "1.0.0"}, "mode": "strict"'


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(
            ("kls-strict-0123456789ab.json", text)
            for text in ("{", "[]", "{}", '{"schema": "judgekit/calibration@2"}')
        ),
        ("ours.json", f'{{"schema": "judgekit/calibration@1", {OURS}}}'),
        ("ours.json", f'{{"schema": "judgekit/calibration@2", {OURS}}}'),
        ("ours.json", f'{{"schema": "judgekit/calibration@1", {OURS}, "made": '),
    ],
)
def test_a_damaged_file_is_said_and_not_used(kls: LoadedRubric, text: str, name: str) -> None:
    path = calibration.default_path(learned(kls, cases())).with_name(name)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    usable_calibration = calibration.find(kls, "strict", SEATS)
    assert usable_calibration.finality is None
    assert str(usable_calibration.calibration_warning).startswith(f"calibration not used: {path}")
    assert "\n" not in str(usable_calibration.calibration_warning)
    with pytest.raises(ConfigError):
        calibration.read(path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("notes.json", "{}"),
        ("notes.json", "kls, strict"),
        ("notes.json", f"{{{OURS}}}"),
        ("kls-strict-bad.json", ""),
        ("ours.json", f'{{"schema": "judgekit/calibration@1", {OURS.replace("kls", "other")}}}'),
        ("ours.json", f'{{"schema": "judgekit/calibration@1", {OURS.replace("strict", "lenient")}}}'),
        ("bytes.json", b"\xff\xfe"),
    ],
)
def test_what_is_none_or_is_for_another_rubric_or_mode_is_passed_over(
    kls: LoadedRubric, name: str, text: str | bytes
) -> None:
    """A verdict says nothing of files that have nothing to do with it."""
    path = calibration.default_path(learned(kls, cases())).with_name(name)
    path.parent.mkdir(parents=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert calibration.find(kls, "strict", SEATS) == calibration.UsableCalibration()


def test_a_damaged_file_is_said_beside_one_that_is_stale_and_one_that_fits(
    kls: LoadedRubric, tmp_path: Path
) -> None:
    known = learned(kls, cases())
    bad = tmp_path / ".judgekit" / "calibrations" / "kls-strict-0123456789ab.json"
    bad.parent.mkdir(parents=True)
    bad.write_text("{")
    calibration_warning = known.model_copy(update={"prompt_sha256": "1" * 64})
    calibration.write(calibration_warning, calibration.default_path(calibration_warning))
    usable_calibration = calibration.find(kls, "strict", SEATS, tmp_path)
    assert (usable_calibration.finality, str(usable_calibration.calibration_warning).count("not used")) == (
        None,
        2,
    )
    assert str(bad) in str(usable_calibration.calibration_warning)
    assert "the prompt has changed" in str(usable_calibration.calibration_warning)
    calibration.write(known, calibration.default_path(known))
    usable_calibration = calibration.find(kls, "strict", SEATS, tmp_path)
    assert usable_calibration.finality == known.rules()
    assert str(bad) in str(usable_calibration.calibration_warning)
    verdict, _ = judged(kls, {"quick": [scores(5, 5, 5)]}, usable_calibration)
    assert (verdict.calibration, verdict.degraded) == (known.id, usable_calibration.calibration_warning)


def test_what_is_named_for_another_rubric_or_mode_is_not_read(kls: LoadedRubric) -> None:
    folder = calibration.default_path(learned(kls, cases())).parent
    folder.mkdir(parents=True)
    for name in ("kls-lenient-0123456789ab.json", "other-strict-0123456789ab.json"):
        (folder / name).write_text("{")
    assert calibration.find(kls, "strict", SEATS) == calibration.UsableCalibration()


def test_of_many_damaged_files_a_few_are_named(kls: LoadedRubric) -> None:
    folder = calibration.default_path(learned(kls, cases())).parent
    folder.mkdir(parents=True)
    for number in range(9):
        (folder / f"kls-strict-{number:012}.json").write_text("{")
    told = str(calibration.find(kls, "strict", SEATS).calibration_warning)
    assert told.count("not used") == 3
    assert told.endswith("; 6 more calibrations cannot be read")


def test_a_folder_full_of_files_is_read_in_part(kls: LoadedRubric, tmp_path: Path) -> None:
    folder = tmp_path / ".judgekit" / "calibrations"
    folder.mkdir(parents=True)
    for number in range(calibration.MOST_READ + 5):
        (folder / f"{number:03}.json").write_text("[" * 30_000)
    known = learned(kls, cases())
    calibration.write(known, folder / f"{known.id}.json")
    calibration.accept(folder / f"{known.id}.json")
    before = time.process_time()
    usable_calibration = calibration.find(kls, "strict", SEATS, tmp_path)
    assert time.process_time() - before < 2  # a parser of YAML takes seconds for each
    assert usable_calibration.finality == known.rules(), "what is named as one comes first"
    assert f"26 files that may be for kls, strict; read {calibration.MOST_READ} of them" in str(
        usable_calibration.calibration_warning
    )


def test_of_more_than_are_read_the_newest_are(
    kls: LoadedRubric, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "MOST_READ", 1)
    known = learned(kls, cases())
    folder = tmp_path / ".judgekit" / "calibrations"
    calibration.write(known, folder / "b.json")
    calibration.accept(folder / "b.json")
    (folder / "a.json").write_text("{")
    os.utime(folder / "a.json", (1, 1))
    assert calibration.find(kls, "strict", SEATS, tmp_path).finality == known.rules()


def test_one_that_is_far_too_large_is_said(kls: LoadedRubric, tmp_path: Path) -> None:
    path = tmp_path / ".judgekit" / "calibrations" / "large.json"
    path.parent.mkdir(parents=True)
    path.write_text(
        f'{{"schema": "judgekit/calibration@1", {OURS}, "x": [{"1," * calibration.MOST_BYTES}1]}}'
    )
    assert "larger than 64000 bytes" in str(
        calibration.find(kls, "strict", SEATS, tmp_path).calibration_warning
    )


def test_one_under_any_name_is_found(kls: LoadedRubric, tmp_path: Path) -> None:
    known = learned(kls, cases())
    calibration.write(known, tmp_path / ".judgekit" / "calibrations" / "ours.json")
    calibration.accept(tmp_path / ".judgekit" / "calibrations" / "ours.json")
    assert calibration.find(kls, "strict", SEATS, tmp_path).finality == known.rules()
    assert calibration.find(kls, "lenient", SEATS, tmp_path) == calibration.UsableCalibration()


def test_models_must_be_the_same_throughout() -> None:
    found = cases(2)
    other = found[0].judges["quick"].model_copy(update={"model": "another"})
    mixed = [found[0].model_copy(update={"judges": {**found[0].judges, "quick": other}}), found[1]]
    with pytest.raises(InputError, match=r"judges\.quick\.model"):
        samples.models(mixed)


def test_one_tier_is_nothing_to_learn_from(kls: LoadedRubric) -> None:
    found = [case.model_copy(update={"judges": {"quick": case.judges["quick"]}}) for case in cases(3)]
    with pytest.raises(InputError, match="opinions of quick and deep"):
        learned(kls, found)


def test_against_the_deep_tier_the_deep_tier_has_the_last_word(kls: LoadedRubric) -> None:
    known = learned(kls, cases(120, 10), 0.05, reference="deep")
    assert known.gates == []
    assert known.promise.reference == "deep"
    assert known.rules().last == "deep"
    assert known.with_gates.errors == 0


def test_calibrations_are_private(kls: LoadedRubric) -> None:
    path = calibration.default_path(learned(kls, cases()))
    calibration.write(learned(kls, cases()), path)
    assert Path(path.parent).stat().st_mode & 0o077 == 0


# --- how it was asked ------------------------------------------------------------------------------------


def asked_so(found: list[labelled.Case], **how: Any) -> list[labelled.Case]:  # noqa: ANN401 - any setting
    return [
        case.model_copy(
            update={
                "judges": {tier: recorded.model_copy(update=how) for tier, recorded in case.judges.items()}
            }
        )
        for case in found
    ]


def test_a_calibration_from_before_there_were_samples_is_one_for_a_single_reply(
    kls: LoadedRubric, tmp_path: Path
) -> None:
    known = learned(kls, cases())
    older = json.loads(known.text())
    del older["asked"]
    path = tmp_path / "older.json"
    path.write_text(json.dumps(older))
    assert misfit(calibration.read(path), kls, SEATS) is None
    assert (
        misfit(calibration.read(path), kls, SEATS, judge_options(samples=2)) == "samples were 1 and are 2 now"
    )


@pytest.mark.parametrize(
    ("how", "options", "why"),
    [
        ({}, judge_options(), None),
        ({}, judge_options(margin=0.5), None),  # gates decide instead of the margin
        ({}, judge_options(jury="majority"), None),  # nobody sits in a jury
        ({}, judge_options(samples=3), "samples were 1 and are 3 now"),
        ({}, judge_options(each=True), "criteria were judged together and are judged each now"),
        ({"samples": 3}, judge_options(samples=3), None),
        ({"samples": 3}, judge_options(), "samples were 3 and are 1 now"),
        ({"criteria": "each"}, judge_options(each=True), None),
        ({"criteria": "each"}, judge_options(), "criteria were judged each and are judged together now"),
        ({}, judge_options(redact=False), "secrets were left out of what is sent and are sent now"),
        ({"redact": False}, judge_options(redact=False), None),
        ({"redact": False}, judge_options(), "secrets were sent and are left out of what is sent now"),
    ],
)
def test_it_holds_for_the_manner_of_asking(
    kls: LoadedRubric, how: dict[str, Any], options: JudgeOptions, why: str | None
) -> None:
    known = learned(kls, asked_so(cases(), **how))
    calibration.write(known, calibration.default_path(known))
    usable_calibration = calibration.find(kls, "strict", SEATS, options=options)
    assert (usable_calibration.finality is None) == (why is not None)
    assert why is None or why in str(usable_calibration.calibration_warning)


def jurors(count: int) -> list[labelled.Case]:
    """Return cases in which two models of different families sit in the quick tier, and agree."""
    found = []
    for number in range(count):
        good = {"semantic": 5, "pragmatic": 5, "syntactic": 5}
        jury = [{"model": name, "family": name, "scores": good} for name in ("one", "two")]
        judges = {"quick": {"jury": jury}, "deep": {"model": "large", "scores": good}}
        case = {"id": str(number), "label": "accept", "judges": judges}
        found.append(labelled.Case.model_validate(case))
    return found


def test_it_holds_for_the_models_of_a_jury_and_for_how_they_agree(kls: LoadedRubric) -> None:
    found = jurors(100)
    models = samples.models(found)
    assert models == {"quick": "one + two", "deep": "large"}
    known = learned(kls, found)
    assert [gate.outcome for gate in known.gates] == ["accept"]
    jury: PanelModels = {
        "quick": (scripted_endpoint("one"), scripted_endpoint("two")),
        "deep": scripted_endpoint("large"),
    }
    assert misfit(known, kls, jury) is None
    assert misfit(known, kls, jury, judge_options(jury="majority")) == (
        "juries came to the mean and come to the majority now"
    )
    alone: PanelModels = {"quick": scripted_endpoint("one"), "deep": scripted_endpoint("large")}
    assert misfit(known, kls, alone) == "quick was one + two and is one now"


def test_the_order_of_a_jury_says_nothing(kls: LoadedRubric) -> None:
    known = learned(kls, jurors(100))
    as_judge: PanelModels = {
        "quick": (scripted_endpoint("two"), scripted_endpoint("one")),
        "deep": scripted_endpoint("large"),
    }
    assert misfit(known, kls, as_judge) is None
    older = known.model_copy(update={"models": {"quick": "two + one", "deep": "large"}})
    assert misfit(older, kls, as_judge) is None
    other = [
        case.model_copy(
            update={
                "judges": {**case.judges, "quick": case.judges["quick"].model_copy(update={"jury": jury})}
            }
        )
        for case in jurors(100)
        if (jury := list(reversed(case.judges["quick"].jury or [])))
    ]
    assert learned(kls, other).id == known.id


def test_not_everything_was_asked_alike() -> None:
    found = cases(2)
    with pytest.raises(InputError, match="the same samples, criteria, rule and redact"):
        samples.asked([found[0], *asked_so(found[1:], samples=2)])


def ours(project: Path, known: Calibration, **change: Any) -> Path:  # noqa: ANN401 - any JSON
    path = project / ".judgekit" / "calibrations" / "ours.json"
    calibration.write(known, path)
    path.write_text(json.dumps({**json.loads(known.text()), **change}))
    return path


def test_a_projects_own_counts_only_when_the_user_accepted_these_bytes(
    kls: LoadedRubric, tmp_path: Path, isolated: Path
) -> None:
    known = learned(kls, cases())
    path = ours(tmp_path, known)
    usable_calibration = calibration.find(kls, "strict", SEATS, tmp_path)
    assert usable_calibration.finality is None
    assert "calibrate accept .judgekit/calibrations/ours.json" in str(usable_calibration.calibration_warning)
    verdict, asked = judged(kls, {"quick": [scores(5, 5, 5)], "deep": [scores(5, 5, 5)]}, usable_calibration)
    assert (asked, verdict.calibration) == (["quick", "deep"], None)
    calibration.accept(path)
    assert calibration.find(kls, "strict", SEATS, tmp_path) == calibration.UsableCalibration(known.rules())
    (kept,) = isolated.rglob("accepted.json")
    assert kept.stat().st_mode & 0o777 == 0o600
    path.write_text(path.read_text() + "\n")
    assert calibration.find(kls, "strict", SEATS, tmp_path).finality is None
    moved = tmp_path / "clone" / ".judgekit" / "calibrations" / "theirs.json"
    calibration.write(known, moved)
    calibration.accept(moved)
    assert calibration.find(kls, "strict", SEATS, tmp_path / "clone").finality == known.rules()


def test_what_a_user_accepted_stays_accepted(kls: LoadedRubric, tmp_path: Path) -> None:
    first, second = learned(kls, cases()), learned(kls, cases(), 0.06)
    for number, known in enumerate((first, second)):
        calibration.accept(ours(tmp_path / str(number), known))
    assert calibration.find(kls, "strict", SEATS, tmp_path / "0").finality == first.rules()
    assert calibration.find(kls, "strict", SEATS, tmp_path / "1").finality == second.rules()


SHOWN = {"tier": "quick", "outcome": "accept", "labels": 120, "errors": 0, "bound": 0.03}


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("gates.0.labels", {"gates": [{**SHOWN, "labels": 0}]}),
        ("gates.0.labels", {"gates": [{**SHOWN, "labels": 50}]}),
        ("gates.0.labels", {"gates": [{**SHOWN, "labels": 121}]}),
        ("gates.0.labels", {"gates": [{**SHOWN, "labels": -1}]}),
        ("gates.0.labels", {"gates": [{**SHOWN, "errors": 9}]}),
        ("gates.0.errors", {"gates": [{**SHOWN, "errors": -1}]}),
        ("gates.0.errors", {"gates": [{**SHOWN, "errors": 121}]}),
        ("gates.0.gains", {"gates": [{**SHOWN, "errors": 9, "gains": 9}]}),
        ("gates.0.bound", {"gates": [{**SHOWN, "bound": 0.01}]}),
        ("gates.0.bound", {"gates": [{**SHOWN, "bound": 0.06}]}),
        ("gates.0.tier", {"gates": [{**SHOWN, "tier": "tiebreaker"}]}),
        ("gates.0.after", {"gates": [{**SHOWN, "after": "reject"}]}),
        ("gates.0.stands", {"gates": [{**SHOWN, "tier": "deep", "stands": "quick"}]}),
        ("gates.0", {"gates": [SHOWN, SHOWN]}),
        ("gates.0.labels", {"gates": [SHOWN, {**SHOWN, "outcome": "reject"}]}),
        ("promise.reference", {"promise": {"rate": 0.05, "confidence": 0.95, "reference": "quick"}}),
        ("gates.0.labels", {"promise": {"rate": 0.001, "confidence": 0.95}}),
        ("gates.0.labels", {"promise": {"rate": 0.03, "confidence": 0.999}}),
        ("cases", {"cases": -5}),
        ("gates.0.labels", {"cases": 60}),
        ("with_gates.errors", {"with_gates": {"decided": 9, "errors": 10, "calls": {}}}),
        ("without.decided", {"without": {"decided": 121, "errors": 0, "calls": {}}}),
        ("without.calls.quick", {"without": {"decided": 1, "errors": 0, "calls": {"quick": -1}}}),
    ],
)
def test_gates_that_do_not_follow_from_the_counts_are_not_used(
    kls: LoadedRubric, tmp_path: Path, key: str, change: dict[str, Any]
) -> None:
    path = ours(tmp_path, learned(kls, cases()), **change)
    with pytest.raises(ConfigError) as refused:
        calibration.accept(path)
    assert refused.value.key == key
    own = calibration.default_path(learned(kls, cases()))
    assert "not accepted" in str(calibration.find(kls, "strict", SEATS, tmp_path).calibration_warning)
    own.parent.mkdir(parents=True)
    own.write_text(path.read_text())  # a user's own file is no better
    for project in (None, tmp_path):
        usable_calibration = calibration.find(kls, "strict", SEATS, project)
        assert usable_calibration.finality is None
        assert f"{own}" in str(usable_calibration.calibration_warning)
        assert key in str(usable_calibration.calibration_warning)
        assert "\n" not in str(usable_calibration.calibration_warning)


@settings(max_examples=15, deadline=None)
@given(
    wrong=st.integers(0, 30),
    count=st.integers(1, 300),
    rate=st.sampled_from([0.01, 0.05, 0.2]),
    reference=st.sampled_from([None, "deep"]),
)
def test_what_is_learned_follows_from_its_counts(
    wrong: int, count: int, rate: float, reference: TierName | None
) -> None:
    found = cases(count, min(wrong, count))
    known = learned(loader.score_rubric("kls"), found, rate, reference)
    with tempfile.TemporaryDirectory() as folder:
        calibration.write(known, Path(folder) / "c.json")
        assert calibration.read(Path(folder) / "c.json") == known
