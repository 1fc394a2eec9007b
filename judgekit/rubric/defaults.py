"""What a rubric for the task `score` has where its file says nothing: `rubrics/defaults/score.yaml`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from judgekit.config import files, yamlfile

if TYPE_CHECKING:
    from pydantic import ValidatorFunctionWrapHandler

_LEVELS = 3  # at which keys that are left out are added: whole thresholds, and not one of two


def in_full(data: Any, validated: ValidatorFunctionWrapHandler) -> Any:  # noqa: ANN401 - whatever a file holds
    """Return a rubric, where needed with what its file leaves out; what is of another kind stays as it is."""
    try:
        return validated(data)
    except ValidationError:
        if not isinstance(data, dict) or data.get("task", "score") != "score" or "criteria" in data:
            raise
    usual = yamlfile.load_yaml(files.folder("rubrics") / "defaults" / "score.yaml")
    usual["prompt"]["system"] = usual["prompt"]["system"].format(title=data.get("title"))
    scale = usual["scale"]
    usual["scale"] = own = data.get("scale", scale)
    if isinstance(own, dict) and all(isinstance(own.get(end), int) for end in ("min", "max")):
        share = (own["max"] - own["min"]) / (scale["max"] - scale["min"])
        for bars in (mode[key] for mode in usual["modes"].values() for key in ("accept", "reject")):
            bars.update({key: own["min"] + (bar - scale["min"]) * share for key, bar in bars.items()})
    full = _over(usual, data, _LEVELS)
    if isinstance(dimensions := data.get("dimensions"), dict):
        full["dimensions"] = {
            name: {"question": each} if isinstance(each, str) else each for name, each in dimensions.items()
        }
    for mode in full["modes"].values() if isinstance(full["modes"], dict) else ():
        if (
            isinstance(mode, dict)
            and isinstance(mode.get("accept"), dict)
            and isinstance(mode["reject"], dict)
        ):
            # Without a bar of its own, a score need only not be rejected.
            mode["accept"] = {"each": mode["reject"].get("any_below"), **mode["accept"]}
    return validated(full)


def _over(usual: Any, given: Any, levels: int) -> Any:  # noqa: ANN401 - whatever a file holds
    if not (levels and isinstance(usual, dict) and isinstance(given, dict)):
        return given
    return {**usual, **{key: _over(usual.get(key), value, levels - 1) for key, value in given.items()}}
