"""Finds rubrics: the project's, then the user's, then the bundled ones.

Whole files, no merging. Providers are looked up by `judgekit.providers.registry`, never in a project. Reads
the labelled cases beside a rubric, and begins a new rubric: a copy of another one, or a commented starter.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

from judgekit import outputs
from judgekit.config import files, settings, yamlfile
from judgekit.errors import ConfigError, UsageError
from judgekit.rubric.schema import (
    CASES,
    Case,
    Rubric,
    RubricFile,
    ScoreRubric,
    SelectRubric,
    WrongCase,
)
from judgekit.rubric.search_path import Origin, list_folders, read_published, rubric_files
from judgekit.text import rubric_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Section: TypeAlias = Literal["judge", "gate", "retrieval"]
"""The sections of a configuration that name a rubric."""
Starter: TypeAlias = Literal["score", "select", "compare"]
_YAML_ENDINGS = (".yaml", ".yml")
_SCHEMA_FILE = "rubric.schema.json"
_MODELINE = f"# yaml-language-server: $schema={_SCHEMA_FILE}\n"
BY_FULL_NAME = {"groundedness@1.1.0", "kls@1.1.0"}
"""Bundled versions that an id alone doesn't select, so that its calibrations, recordings and KPIs stay."""
_RUBRIC_REFERENCE_PATTERN = re.compile(r"[a-z][a-z0-9-]*(@\d+\.\d+\.\d+)?")


class LoadedRubric(NamedTuple):
    """A rubric with its file, the file's SHA-256, and the kind of folder it was found in."""

    rubric: Rubric
    path: Path
    sha256: str
    origin: Origin

    @property
    def source(self) -> Literal["project", "user", "path"] | None:
        """The rubric's origin if it replaces a bundled rubric with the same id, otherwise None."""
        if self.origin == "bundled":
            return None

        published = read_published()  # the bundled rubrics, in all their versions
        is_exact_copy = self.sha256 in published.values()
        if is_exact_copy:  # it judges like the bundled rubric, so it replaces nothing
            return None

        bundled_ids = {ref.partition("@")[0] for ref in published}
        replaces_bundled = self.rubric.rubric in bundled_ids
        return self.origin if replaces_bundled else None

    @property
    def name(self) -> str:
        """The rubric's id and version; also its origin, if it replaces a bundled one."""
        return rubric_name(self.rubric.ref, self.source)


def rubrics(project: Path | None = None) -> Iterator[LoadedRubric]:
    """Load all available rubrics: the project's, the user's, then the bundled ones."""
    return (load_rubric(path, origin) for origin, path in rubric_files(project))


def find_rubric(
    reference: str, project: Path | None = None, kinds: tuple[type[Rubric], ...] = ()
) -> LoadedRubric:
    """Load a rubric by `ID` (its newest version), `ID@VERSION` or the path of a YAML file.

    `kinds` are the accepted classes of rubrics, by default all. Raises `UsageError` if the reference is
    malformed, the rubric doesn't exist, or it's of another kind. Raises `ConfigError` if its file is invalid.
    """
    if not isinstance(reference, str):
        raise UsageError(
            f"rubric: expected ID, ID@VERSION or the path of a YAML file, got {reference!r:.60}"
        )

    if reference.endswith(_YAML_ENDINGS):
        loaded = load_rubric(Path(reference))
    elif _RUBRIC_REFERENCE_PATTERN.fullmatch(reference):
        loaded = _find_newest(reference, project)
    else:
        raise UsageError(f"{reference!r} is neither ID, ID@VERSION nor the path of a YAML file")

    if kinds and not isinstance(loaded.rubric, kinds):
        wanted_task = _get_task(kinds[-1])  # of multiple kinds, the message only names the last one
        problem = f"the rubric {loaded.rubric.ref} is for the task {loaded.rubric.task!r}"
        raise UsageError(f"{problem}; this needs one for {wanted_task!r}")
    return loaded


def _get_task(kind: type[Rubric]) -> str:
    """Return the task of a class of rubrics, such as "score" for `task: Literal["score"]`."""
    annotation = kind.model_fields["task"].annotation
    (task,) = get_args(annotation)
    return str(task)


def _find_newest(reference: str, project: Path | None) -> LoadedRubric:
    """Load `ID@VERSION`, or the newest version of `ID`, from the first folder that contains it.

    Raises `UsageError` if no folder contains it.
    """
    has_version = "@" in reference
    for origin, folder in list_folders("rubrics", project):
        if has_version:
            paths = list(folder.glob(f"{reference}.yaml"))
        else:
            paths = _list_versions(folder, reference, origin)
        if paths:
            newest = max(paths, key=_parse_version)  # parsed, so that 1.10.0 comes after 1.9.0
            return load_rubric(newest, origin)

    raise _build_unknown_error(reference, project)


def _list_versions(folder: Path, rubric_id: str, origin: Origin) -> list[Path]:
    """List the files of a rubric's versions in a folder.

    Leaves out bundled versions that are only found by their full name, `ID@VERSION`.
    """
    paths = []
    for path in folder.glob(f"{rubric_id}@*.yaml"):
        has_empty_version = path.stem == f"{rubric_id}@"  # the pattern also matches this
        needs_full_name = origin == "bundled" and path.stem in BY_FULL_NAME
        if not has_empty_version and not needs_full_name:
            paths.append(path)
    return paths


def _parse_version(path: Path) -> tuple[float, ...]:
    """Parse the version in a rubric's file name, for comparison."""
    if not _RUBRIC_REFERENCE_PATTERN.fullmatch(path.stem):
        # Treat a malformed version as the newest, so that the file is loaded, which reports the problem.
        return (inf,)
    version = path.stem.partition("@")[2]
    return tuple(map(int, version.split(".")))


def _build_unknown_error(reference: str, project: Path | None) -> UsageError:
    """Build the error for an unknown rubric, with a list of all rubrics and the closest match."""
    stems = sorted({path.stem for _, path in rubric_files(project)})
    ids = [stem.partition("@")[0] for stem in stems]  # without the version
    problem = f"no rubric {reference!r}; there are: {', '.join(stems)}"
    problem += ", or give the path of a YAML file"
    close_matches = difflib.get_close_matches(reference, [*stems, *ids], n=1)
    if close_matches:
        problem += f"; did you mean {close_matches[0]}?"
    return UsageError(problem)


def load_configured_rubric(section: Section, reference: str, project: Path | None) -> LoadedRubric:
    """Load the rubric that `section` of the configuration names as `reference`.

    Raises `ConfigError` if that rubric doesn't exist or is for another task. The error names the
    configuration file and the key.
    """
    if reference.endswith(_YAML_ENDINGS) and not Path(reference).is_file():
        problem = "there is no such file; name an ID, ID@VERSION or a YAML file that exists"
        raise settings.build_error(section, "rubric", problem, project)

    # Retrieval selects memories, and all other sections need scores.
    kind = SelectRubric if section == "retrieval" else ScoreRubric
    try:
        return find_rubric(reference, project, kinds=(kind,))
    except UsageError as error:
        problem = _hide_reference(str(error), reference)
        raise settings.build_error(section, "rubric", problem, project) from None


def _hide_reference(message: str, reference: str) -> str:
    """Remove a configured reference from an error message, because it can come from an untrusted clone.

    "no rubric 'x'" becomes "no rubric of that name", and "'x' is neither" becomes "the value is neither".
    """
    quoted = repr(reference)
    message = message.replace(f" {quoted}", " of that name")
    return message.replace(quoted, "the value")


def load_rubric(path: Path, origin: Origin = "path") -> LoadedRubric:
    """Read and check a rubric file.

    Raises `ConfigError` if the file is invalid or has the wrong name, or if a published rubric has the same
    id and version but different content.
    """
    if origin == "project":
        # The file must not be a link out of the project. Its path is PROJECT/.judgekit/rubrics/FILE.
        project = path.parents[2]
        yamlfile.check_project_file(path, project)

    rubric = yamlfile.read_model(path, RubricFile, version_key="rubric").root
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    _check_unchanged(rubric, digest, path)

    may_have_any_name = origin == "path"
    if not may_have_any_name:
        _check_file_name(rubric, path)
    return LoadedRubric(rubric, path, digest, origin)


def _check_unchanged(rubric: Rubric, digest: str, path: Path) -> None:
    """Raise `ConfigError` if the rubric is published, but with another digest."""
    published_digest = read_published().get(rubric.ref)
    if published_digest is None:
        return
    if published_digest != digest:
        problem = f"{rubric.ref} is published with different content; give the changed rubric a new version"
        raise ConfigError(problem, path=path, key="version")


def _check_file_name(rubric: Rubric, path: Path) -> None:
    """Raise `ConfigError` if the file isn't called ID@VERSION.yaml."""
    if path.name != f"{rubric.ref}.yaml":
        raise ConfigError(
            f"holds {rubric.ref}; name the file {rubric.ref}.yaml", path=path, key="rubric"
        )


def get_companion_path(rubric_path: Path, what: Literal["cases", "leniency"]) -> Path:
    """Return the path of the labelled cases or wrong texts next to a rubric.

    For `NAME.yaml`, that's `NAME.cases.jsonl` or `NAME.leniency.jsonl`.
    """
    return rubric_path.with_name(f"{rubric_path.stem}.{what}.jsonl")


def read_cases(loaded: LoadedRubric) -> list[Case]:
    """Read a rubric's labelled cases; [] if there's no file.

    Raises `ConfigError` with the line and key of an invalid case.
    """
    path = get_companion_path(loaded.path, "cases")
    if path.is_file():
        return yamlfile.read_lines(path, CASES[loaded.rubric.task])
    return []


def read_wrong_cases(loaded: LoadedRubric) -> list[WrongCase]:
    """Read a scoring rubric's wrong texts, which measure how lenient a judge is; [] if there are none.

    Raises `ConfigError` with the line and key of an invalid text.
    """
    path = get_companion_path(loaded.path, "leniency")
    if isinstance(loaded.rubric, ScoreRubric) and path.is_file():
        return yamlfile.read_lines(path, WrongCase)
    return []


def create_rubric(
    name: str, to: Path, *, task: Starter = "score", like: LoadedRubric | None = None
) -> list[Path]:
    """Create a rubric called `name` (ID or ID@VERSION) in the folder `to`, and return the paths of its files.

    It's a copy of `like`, or by default of the starter rubric for `task`. A JSON schema, which editors use
    for checks, is added. Raises `UsageError` if the name is malformed or taken, and `ConfigError` if a file
    can't be written.
    """
    ref = _complete_reference(name)
    source = like.path if like else files.folder("rubrics") / "starters" / f"{task}.yaml"
    cases = _read_cases_text(source)

    contents = {}  # by path
    contents[to / f"{ref}.yaml"] = _read_renamed(source, ref)
    contents[to / f"{ref}.cases.jsonl"] = cases
    _check_none_exists(contents)

    schema = to / _SCHEMA_FILE
    if not schema.exists():
        contents[schema] = json.dumps(RubricFile.model_json_schema(), indent=2) + "\n"

    _write_files(contents)
    return list(contents)


def _complete_reference(name: str) -> str:
    """Return ID@VERSION for a new rubric's name, with the version 1.0.0 if it has none.

    Raises `UsageError` if the name is malformed or published already.
    """
    ref = name if "@" in name else f"{name}@1.0.0"
    if not _RUBRIC_REFERENCE_PATTERN.fullmatch(ref):
        wanted = "small letters, digits and hyphens; three numbers"
        raise UsageError(f"{name!r} is neither ID nor ID@VERSION ({wanted})")
    if ref in read_published():
        raise UsageError(f"{ref} is published and cannot change; choose another id or version")
    return ref


def _read_cases_text(rubric_path: Path) -> str:
    """Read the text of a rubric's labelled cases; "" if there's no such file."""
    path = get_companion_path(rubric_path, "cases")
    if path.is_file():
        return path.read_text(encoding="utf-8")
    return ""


def _check_none_exists(paths: Iterable[Path]) -> None:
    """Raise `UsageError` if one of the files exists already."""
    for path in paths:
        if path.exists():
            raise UsageError(
                f"{path} already exists; choose another id or version, or edit that file"
            )


def _write_files(contents: Mapping[Path, str]) -> None:
    """Write the files and any missing folders. Raises `ConfigError` if that fails."""
    for file, content in contents.items():
        try:
            # A rubric isn't private, so the user's umask decides who may read a new folder.
            outputs.make_folder(str(file.parent), mode=0o777)
            outputs.write_atomically(str(file), content)
        except OSError as error:
            raise ConfigError(f"cannot be written ({error.strerror})", path=file) from None


def _read_renamed(source: Path, ref: str) -> str:
    """Read a rubric file, and return its text with the id and version replaced by `ref` (ID@VERSION).

    Also adds the line that tells editors where the JSON schema is. Raises `ConfigError` if the file's layout
    doesn't allow the replacement.
    """
    rubric_id, _, version = ref.partition("@")

    # Edit the text rather than the parsed data, to preserve comments and layout.
    text = _add_missing_version(source.read_text(encoding="utf-8"))
    text = _replace_value(text, "rubric", rubric_id)
    text = _replace_value(text, "version", version)
    if not text.startswith(_MODELINE):
        text = _MODELINE + text

    if not _is_named(text, rubric_id, version):
        raise ConfigError("cannot rename a rubric with this layout; copy it by hand", path=source)
    return text


def _add_missing_version(text: str) -> str:
    """Add the line `version: 1.0.0` after the line `rubric: ID`, if a rubric's text has no version."""
    has_version = re.search("^version:", text, re.MULTILINE)
    if has_version:
        return text
    id_line = re.compile("^(rubric: .*)$", re.MULTILINE)
    return id_line.sub(r"\1\nversion: 1.0.0", text, count=1)


def _replace_value(text: str, key: str, value: str) -> str:
    """Replace the value in the first line `KEY: ...` of a YAML text."""
    key_line = re.compile(rf"^{key}: .*$", re.MULTILINE)
    return key_line.sub(f"{key}: {value}", text, count=1)


def _is_named(text: str, rubric_id: str, version: str) -> bool:
    """Whether a rubric's text, when parsed, has this id and version."""
    from judgekit.config import yaml_text  # noqa: PLC0415 - imported lazily because it's rarely needed

    # A line such as `version: 1.0.0` can also be part of a multi-line string, so parse the text to be sure.
    data = yaml_text.parse_yaml(text)
    has_id = str(data.get("rubric")) == rubric_id
    has_version = str(data.get("version")) == version
    return has_id and has_version
