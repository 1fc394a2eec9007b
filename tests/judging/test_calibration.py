"""Calibrations are kept, found, refused when stale or damaged, and used by the judge; exact bounds."""

from __future__ import annotations

import itertools
import json
import os
import random
import tempfile
import time
from datetime import timedelta
from math import comb
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from calibrated import (
    DEEP,
    GOOD,
    KLS,
    MADE,
    MODELS,
    PANEL,
    case,
    cases,
    find,
    judged,
    known,
    learned,
    misfit,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from making import judge_options
from scripted import scores, scripted_endpoint

from judgekit.errors import ConfigError, InputError
from judgekit.evaluation import samples
from judgekit.judging import calibration
from judgekit.judging.binomial import at_most, lower, needed, upper
from judgekit.judging.calibration import Calibration
from judgekit.rubric import loader

if TYPE_CHECKING:
    from judgekit.config import TierName
    from judgekit.judging.orchestrator import JudgeOptions
    from judgekit.providers.base import PanelModels

NOTHING = calibration.UsableCalibration()


def keep(one: Calibration) -> Path:
    """Put a calibration where the user's own are, and return where that is."""
    path = calibration.default_path(one)
    calibration.write(one, path)
    return path


def ours(project: Path, one: Calibration | None = None, **change: Any) -> Path:  # noqa: ANN401 - any JSON
    """Put a calibration where a project's are, with other values of some keys."""
    path = project / ".judgekit" / "calibrations" / "ours.json"
    calibration.write(one or known(), path)
    path.write_text(json.dumps({**json.loads((one or known()).text()), **change}))
    return path


# --- What was learned, and what a judge makes of it


def test_what_was_learned_comes_back_from_its_file(tmp_path: Path) -> None:
    calibration.write(known(), tmp_path / "deep" / "c.json")
    assert calibration.read(tmp_path / "deep" / "c.json") == known()
    assert known().schema_ == "judgekit/calibration@1"
    assert [gate.outcome for gate in known().gates] == ["accept"]
    assert known().with_gates.calls == {"quick": 120, "deep": 0, "tiebreaker": 0}
    assert known().without.calls == {"quick": 120, "deep": 120, "tiebreaker": 0}
    assert known().id == learned(cases()).id != known(0.06).id
    assert Path(keep(known()).parent).stat().st_mode & 0o077 == 0
    against = learned(cases(120, 10), reference="deep")
    assert (against.gates, against.promise.reference, against.rules().last) == ([], "deep", "deep")
    assert against.with_gates.errors == 0


def test_a_judge_uses_one_that_fits_and_names_it() -> None:
    assert find() == (None, "")
    verdict, asked = judged({"quick": [scores(1, 1, 1)]})
    assert (verdict.verdict, asked, verdict.calibration) == ("reject", ["quick"], None)
    keep(known())
    verdict, asked = judged({"quick": [scores(5, 5, 5)]})
    assert (verdict.verdict, asked, verdict.calibration) == ("accept", ["quick"], known().id)
    assert verdict.degraded is None
    # What it does not let through goes up.
    verdict, asked = judged({"quick": [scores(1, 1, 1)], "deep": [scores(1, 2, 2)]})
    assert (verdict.verdict, asked) == ("reject", ["quick", "deep"])
    verdict, asked = judged({"quick": [scores(4, 4, 4)], "deep": [scores(4, 4, 4)]})
    assert (verdict.verdict, asked) == ("accept", ["quick", "deep"])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"prompt_sha256": "1" * 64}, "the prompt has changed"),
        ({"models": {**MODELS, "deep": "older"}}, "deep was older and is deep-model now"),
        ({"models": {"quick": MODELS["quick"], "deep": MODELS["deep"]}}, "tiebreaker was nobody"),
        ({"rubric": {"id": "kls", "version": "1.0.0", "sha256": "2" * 64}}, "made for a different kls"),
    ],
)
def test_a_stale_one_is_not_used_and_said(change: dict[str, Any], why: str) -> None:
    keep(Calibration.model_validate({**json.loads(known().text()), **change}))
    rules, warning = find()
    assert rules is None
    assert why in warning
    verdict, asked = judged({"quick": [scores(1, 1, 1)]})
    assert (asked, verdict.calibration, verdict.degraded) == (["quick"], None, warning)


def test_it_holds_for_its_tiers_one_mode_and_one_rubric() -> None:
    keep(known())
    two: PanelModels = {tier: endpoint for tier, endpoint in PANEL.items() if tier != "tiebreaker"}
    assert "tiebreaker is no longer asked" in str(calibration.find(KLS, "strict", two).calibration_warning)
    assert calibration.find(KLS, "strict", {"quick": PANEL["quick"]}) == NOTHING
    assert calibration.find(KLS, "lenient", PANEL) == NOTHING
    assert calibration.find(loader.find_rubric("memory-relevance"), "strict", PANEL) == NOTHING


# --- Which file counts


def test_the_newest_that_fits_and_the_projects_before_the_users(tmp_path: Path) -> None:
    new = known(0.06).model_copy(update={"made": MADE + timedelta(days=1)})
    keep(new)
    keep(known())
    assert find(tmp_path)[0] == new.rules()
    calibration.accept(ours(tmp_path, known(0.07)))
    assert find(tmp_path)[0] == known(0.07).rules()
    assert calibration.find(KLS, "lenient", PANEL, tmp_path) == NOTHING


OURS = '"rubric": {"id": "kls", "version": "1.0.0"}, "mode": "strict"'
SCHEMA = '{"schema": "judgekit/calibration@1"'


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        *(
            ("kls-strict-0123456789ab.json", text, True)
            for text in ("{", "[]", "{}", '{"schema": "judgekit/calibration@2"}')
        ),
        ("ours.json", f"{SCHEMA}, {OURS}}}", True),
        ("ours.json", f"{SCHEMA.replace('@1', '@2')}, {OURS}}}", True),
        ("ours.json", f'{SCHEMA}, {OURS}, "made": ', True),
        # A verdict says nothing of files that have nothing to do with it.
        ("notes.json", "{}", False),
        ("notes.json", "kls, strict", False),
        ("notes.json", f"{{{OURS}}}", False),
        ("kls-strict-bad.json", "", False),
        ("ours.json", f"{SCHEMA}, {OURS.replace('kls', 'other')}}}", False),
        ("ours.json", f"{SCHEMA}, {OURS.replace('strict', 'lenient')}}}", False),
        ("bytes.json", b"\xff\xfe", False),
        ("kls-lenient-0123456789ab.json", "{", False),
        ("other-strict-0123456789ab.json", "{", False),
    ],
)
def test_a_damaged_file_is_said_if_it_is_meant_and_not_used(name: str, text: str | bytes, said: bool) -> None:  # noqa: FBT001 - a table
    path = keep(known()).with_name(name)
    keep(known()).unlink()
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    rules, warning = find()
    assert rules is None
    assert warning.startswith(f"calibration not used: {path}") if said else warning == ""
    assert "\n" not in warning
    if said:
        with pytest.raises(ConfigError):
            calibration.read(path)


def test_a_damaged_file_is_said_beside_one_that_is_stale_and_one_that_fits(tmp_path: Path) -> None:
    bad = ours(tmp_path).with_name("kls-strict-0123456789ab.json")
    ours(tmp_path).rename(bad)
    bad.write_text("{")
    keep(known().model_copy(update={"prompt_sha256": "1" * 64}))
    rules, warning = find(tmp_path)
    assert (rules, warning.count("not used")) == (None, 2)
    assert str(bad) in warning
    assert "the prompt has changed" in warning
    keep(known())
    rules, warning = find(tmp_path)
    assert rules == known().rules()
    assert str(bad) in warning


def test_of_many_damaged_files_a_few_are_named() -> None:
    path = keep(known())
    path.unlink()
    for number in range(9):
        path.with_name(f"kls-strict-{number:012}.json").write_text("{")
    _, warning = find()
    assert warning.count("not used") == 3
    assert warning.endswith("; 6 more calibrations cannot be read")


def test_a_folder_full_of_files_is_read_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ours(tmp_path).parent
    for number in range(calibration.MOST_READ + 4):
        (folder / f"{number:03}.json").write_text("[" * 30_000)
    (folder / "ours.json").rename(folder / f"{known().id}.json")
    calibration.accept(folder / f"{known().id}.json")
    before = time.process_time()
    rules, warning = find(tmp_path)
    assert time.process_time() - before < 2  # a parser of YAML takes seconds for each
    assert rules == known().rules(), "what is named as one comes first"
    assert f"25 files that may be for kls, strict; read {calibration.MOST_READ} of them" in warning
    # Of more than are read the newest are.
    other = tmp_path / "other"
    path = ours(other)
    calibration.accept(path)
    path.with_name("a.json").write_text("{")
    os.utime(path.with_name("a.json"), (1, 1))
    monkeypatch.setattr(calibration, "MOST_READ", 1)
    assert find(other)[0] == known().rules()
    path.write_text(f'{SCHEMA}, {OURS}, "x": [{"1," * calibration.MOST_BYTES}1]}}')
    assert "larger than 64000 bytes" in find(other)[1]


# --- What a project brings


def test_a_projects_own_counts_only_when_the_user_accepted_these_bytes(
    tmp_path: Path, isolated: Path
) -> None:
    path = ours(tmp_path)
    rules, warning = find(tmp_path)
    assert rules is None
    assert "calibrate accept .judgekit/calibrations/ours.json" in warning
    calibration.accept(path)
    assert find(tmp_path) == (known().rules(), "")
    (kept,) = isolated.rglob("accepted.json")
    assert kept.stat().st_mode & 0o777 == 0o600
    path.write_text(path.read_text() + "\n")
    assert find(tmp_path)[0] is None
    # What was accepted stays so, in any folder.
    for number, one in enumerate((known(), known(0.06))):
        calibration.accept(ours(tmp_path / str(number), one))
    for number, one in enumerate((known(), known(0.06))):
        assert find(tmp_path / str(number))[0] == one.rules()


SHOWN = {"tier": "quick", "outcome": "accept", "labels": 120, "errors": 0, "bound": 0.03}
OF_A_GATE: list[tuple[str, dict[str, Any]]] = [
    *(("labels", {"labels": count}) for count in (0, 50, 121, -1)),
    ("labels", {"errors": 9}),
    *(("errors", {"errors": count}) for count in (-1, 121)),
    ("gains", {"errors": 9, "gains": 9}),
    *(("bound", {"bound": rate}) for rate in (0.01, 0.06)),
    ("tier", {"tier": "tiebreaker"}),
    ("after", {"after": "reject"}),
    ("stands", {"tier": "deep", "stands": "quick"}),
]
FLAWS: list[tuple[str, dict[str, Any]]] = [
    *((f"gates.0.{key}", {"gates": [{**SHOWN, **change}]}) for key, change in OF_A_GATE),
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
]


@pytest.mark.parametrize(("key", "change"), FLAWS)
def test_gates_that_do_not_follow_from_the_counts_are_not_used(
    tmp_path: Path, key: str, change: dict[str, Any]
) -> None:
    path = ours(tmp_path, **change)
    with pytest.raises(ConfigError) as refused:
        calibration.accept(path)
    assert refused.value.key == key
    assert "not accepted" in find(tmp_path)[1]
    own = keep(known())
    own.write_text(path.read_text())  # a user's own file is no better
    for project in (None, tmp_path):
        rules, warning = find(project)
        assert rules is None
        assert str(own) in warning
        assert key in warning
        assert "\n" not in warning


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
    one = learned(cases(count, min(wrong, count)), rate, reference)
    with tempfile.TemporaryDirectory() as folder:
        calibration.write(one, Path(folder) / "c.json")
        assert calibration.read(Path(folder) / "c.json") == one


# --- How models were asked


def test_labels_that_hold_for_nothing_are_refused() -> None:
    found, other = cases(2), cases(2, model="another")
    with pytest.raises(InputError, match=r"judges\.quick\.model"):
        samples.models([found[0], other[1]])
    with pytest.raises(InputError, match="the same samples, criteria, rule and redact"):
        samples.asked([found[0], *cases(2, samples=2)[1:]])
    with pytest.raises(InputError, match="opinions of quick and deep"):
        learned([each.model_copy(update={"judges": {"quick": each.judges["quick"]}}) for each in found])


@pytest.mark.parametrize(
    ("how", "options", "why"),
    [
        ({}, judge_options(), None),
        ({}, judge_options(margin=0.5), None),  # gates decide instead of the margin
        ({}, judge_options(jury="majority"), None),  # no tier has a jury
        ({}, judge_options(samples=3), "samples were 1 and are 3 now"),
        ({}, judge_options(each=True), "criteria were judged together and are judged each now"),
        ({"samples": 3}, judge_options(samples=3), None),
        ({"samples": 3}, judge_options(), "samples were 3 and are 1 now"),
        ({"criteria": "each"}, judge_options(each=True), None),
        ({"criteria": "each"}, judge_options(), "criteria were judged each and are judged together now"),
        ({}, judge_options(redact=False), "secrets were removed before sending and are sent now"),
        ({"redact": False}, judge_options(redact=False), None),
        ({"redact": False}, judge_options(), "secrets were sent and are removed before sending now"),
    ],
)
def test_it_holds_for_the_options(how: dict[str, Any], options: JudgeOptions, why: str | None) -> None:
    keep(learned(cases(**how)))
    rules, warning = find(options=options)
    assert (rules is None) == (why is not None)
    assert (why or "") in warning


def test_a_calibration_from_before_there_were_samples_is_one_for_a_single_reply(tmp_path: Path) -> None:
    older = json.loads(known().text())
    del older["asked"]
    path = tmp_path / "older.json"
    path.write_text(json.dumps(older))
    found = calibration.read(path)
    assert misfit(found, PANEL) is None
    assert misfit(found, PANEL, judge_options(samples=2)) == "samples were 1 and are 2 now"


def test_it_holds_for_the_models_of_a_jury_in_any_order_and_for_how_they_agree() -> None:
    def of(*names: str) -> Calibration:
        jury = [{"model": name, "family": name, "scores": GOOD} for name in names]
        judges: dict[str, Any] = {"quick": {"jury": jury}, "deep": {"model": "large", "scores": GOOD}}
        return learned([case(number, **judges) for number in range(100)])

    def panel(*quick: str) -> PanelModels:
        return {"quick": tuple(map(scripted_endpoint, quick)), "deep": DEEP}

    found = of("one", "two")
    assert found.models == {"quick": "one + two", "deep": "large"}
    assert [gate.outcome for gate in found.gates] == ["accept"]
    assert misfit(found, panel("one", "two")) is misfit(found, panel("two", "one")) is None
    majority = misfit(found, panel("one", "two"), judge_options(jury="majority"))
    assert majority == "juries came to the mean and come to the majority now"
    assert misfit(found, panel("one")) == "quick was one + two and is one now"
    older = found.model_copy(update={"models": {"quick": "two + one", "deep": "large"}})
    assert misfit(older, panel("two", "one")) is None
    assert of("two", "one").id == found.id


# Limits as any table of the Clopper-Pearson interval has them (one-sided .05, two-sided .05).
KNOWN = [(0, 59, 0.05, 0.0495), (0, 20, 0.025, 0.1684), (1, 10, 0.025, 0.4450), (3, 10, 0.025, 0.6525)]


def test_known_bounds_and_closed_forms() -> None:
    for errors, total, level, bound in KNOWN:
        assert upper(errors, total, level) == pytest.approx(bound, abs=1e-4)
    for total, level in itertools.product((1, 7, 59, 1000, 40_000), (0.05, 0.01, 0.0001)):
        assert upper(0, total, level) == pytest.approx(1 - level ** (1 / total), rel=1e-9)
        assert lower(total, total, level) == pytest.approx(level ** (1 / total), rel=1e-9)
    assert (upper(0, 0, 0.05), lower(0, 0, 0.05)) == (1, 0)
    with pytest.raises(ValueError, match="got 3"):
        upper(3, 2, 0.05)


@given(st.integers(1, 60), st.data(), st.floats(0.01, 0.99))
def test_the_tail_is_the_sum_of_its_terms(total: int, data: st.DataObject, rate: float) -> None:
    errors = data.draw(st.integers(0, total))
    terms = sum(comb(total, seen) * rate**seen * (1 - rate) ** (total - seen) for seen in range(errors + 1))
    assert at_most(errors, total, rate) == pytest.approx(min(terms, 1), rel=1e-9)


@given(st.integers(1, 300), st.data(), st.floats(0.001, 0.4))
def test_at_the_bound_the_tail_is_the_level(total: int, data: st.DataObject, level: float) -> None:
    errors = data.draw(st.integers(0, total - 1))
    bound = upper(errors, total, level)
    assert at_most(errors, total, bound) == pytest.approx(level, rel=1e-6)
    assert bound > errors / total
    assert upper(errors + 1, total, level) > bound
    assert lower(errors, total, 0.05) <= errors / total <= upper(errors, total, 0.05)


def test_how_many_labels_show_a_rate() -> None:
    for rate, level, count in ((0.05, 0.05, 59), (0.01, 0.05, 299), (0.05, 0.005, 104)):
        assert needed(rate, level) == count
        assert upper(0, count, level) <= rate < upper(0, count - 1, level)
    some = needed(0.05, 0.05, 0.02)
    assert some is not None
    assert upper(round(0.02 * some), some, 0.05) <= 0.05
    assert some > 59
    # No number of labels shows what is not so.
    assert needed(0.05, 0.05, 0.05) is needed(0.05, 0.05, 0.0499999) is None


@pytest.mark.parametrize("rate", [0.02, 0.1, 0.5])
def test_the_bound_holds_as_often_as_it_says(rate: float) -> None:
    """Of 2,000 samples at most 5 % may have a bound below the true rate (and three standard errors)."""
    generator = random.Random(7)
    total = 80
    bounds = {errors: upper(errors, total, 0.05) for errors in range(total + 1)}
    missed = sum(bounds[sum(generator.random() < rate for _ in range(total))] < rate for _ in range(2000))
    assert missed / 2000 <= 0.05 + 3 * (0.05 * 0.95 / 2000) ** 0.5
