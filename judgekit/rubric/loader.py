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
    from collections.abc import Iterator, Mapping

Section: TypeAlias = Literal["judge", "gate", "retrieval"]
"""The sections of a configuration that name a rubric."""
Starter: TypeAlias = Literal["score", "select", "compare"]
_YAML = (".yaml", ".yml")
_SCHEMA_FILE = "rubric.schema.json"
_MODELINE = f"# yaml-language-server: $schema={_SCHEMA_FILE}\n"
BY_FULL_NAME = {"groundedness@1.1.0", "kls@1.1.0"}
"""Bundled versions that an id alone doesn't select, so that its calibrations, recordings and KPIs stay."""
_REFERENCE = re.compile(r"[a-z][a-z0-9-]*(@\d+\.\d+\.\d+)?")


class LoadedRubric(NamedTuple):
    """A rubric with its file, the file's SHA-256, and the kind of folder it was found in."""

    rubric: Rubric
    path: Path
    sha256: str
    origin: Origin

    @property
    def source(self) -> Literal["project", "user", "path"] | None:
        """The rubric's origin if it replaces a bundled rubric with the same id, otherwise None."""
        # A copy of a bundled rubric, of any version that was published, replaces nothing.
        if self.origin == "bundled" or self.sha256 in read_published().values():
            return None
        for published_ref in read_published():
            if published_ref.startswith(f"{self.rubric.rubric}@"):
                return self.origin
        return None

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
    malformed, or if no such rubric exists or it's of another kind. Raises `ConfigError` if its file is
    invalid.
    """
    if not isinstance(reference, str):
        raise UsageError(
            f"rubric: expected ID, ID@VERSION or the path of a YAML file, got {reference!r:.60}"
        )

    if reference.endswith(_YAML):
        loaded = load_rubric(Path(reference))
    elif _REFERENCE.fullmatch(reference):
        loaded = _find_newest(reference, project)
    else:
        raise UsageError(f"{reference!r} is neither ID, ID@VERSION nor the path of a YAML file")

    if kinds and not isinstance(loaded.rubric, kinds):
        # If multiple kinds are accepted, only name the last one's task.
        task_annotation = kinds[-1].model_fields["task"].annotation  # such as Literal["score"]
        (wanted,) = get_args(task_annotation)
        problem = f"the rubric {loaded.rubric.ref} is for the task {loaded.rubric.task!r}"
        raise UsageError(f"{problem}; this needs one for {wanted!r}")
    return loaded


def _find_newest(reference: str, project: Path | None) -> LoadedRubric:
    """Load `ID@VERSION`, or the newest version of `ID`, from the first folder that contains it.

    Raises `UsageError` if no folder contains it.
    """
    name, _, version = reference.partition("@")
    for origin, folder in list_folders("rubrics", project):
        paths_by_version = {}  # the keys are parsed versions, so that 1.10.0 comes after 1.9.0
        for path in folder.glob(f"{name}@{version or '*'}.yaml"):
            # Some bundled versions are only found by their full name, ID@VERSION.
            is_hidden = origin == "bundled" and not version and path.stem in BY_FULL_NAME
            has_version = path.stem.partition("@")[2] != ""  # the pattern also matches "ID@.yaml"
            if has_version and not is_hidden:
                paths_by_version[_parse_version(path)] = path

        if paths_by_version:
            newest = max(paths_by_version)
            return load_rubric(paths_by_version[newest], origin)

    raise _build_unknown_error(reference, project)


def _parse_version(path: Path) -> tuple[float, ...]:
    """Parse the version in a rubric's file name, for comparison."""
    if not _REFERENCE.fullmatch(path.stem):
        # Treat a malformed version as the newest, so that the file is loaded, which reports the problem.
        return (inf,)
    version = path.stem.partition("@")[2]
    return tuple(map(int, version.split(".")))


def _build_unknown_error(reference: str, project: Path | None) -> UsageError:
    """Build the error for an unknown rubric, with a list of all rubrics and the closest match."""
    stems = sorted({path.stem for _, path in rubric_files(project)})
    ids = [stem.partition("@")[0] for stem in stems]
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
    if reference.endswith(_YAML) and not Path(reference).is_file():
        problem = "there is no such file; name an ID, ID@VERSION or a YAML file that exists"
        raise settings.build_error(section, "rubric", problem, project)

    # Retrieval selects memories, and all other sections need scores.
    kind = SelectRubric if section == "retrieval" else ScoreRubric
    try:
        return find_rubric(reference, project, (kind,))
    except UsageError as error:
        # Don't repeat the configured value, which can come from an untrusted clone.
        problem = str(error).replace(f" {reference!r}", " of that name")
        problem = problem.replace(repr(reference), "the value")
        raise settings.build_error(section, "rubric", problem, project) from None


def load_rubric(path: Path, origin: Origin = "path") -> LoadedRubric:
    """Read and check a rubric file.

    Raises `ConfigError` if the file is invalid or has the wrong name, or if a published rubric has the same
    id and version but different content.
    """
    # A project's file must not be a link out of the project. The path is PROJECT/.judgekit/rubrics/FILE, and
    # the check raises an error.
    if origin == "project":
        yamlfile.check_project_file(path, path.parents[2])

    rubric = yamlfile.read_model(path, RubricFile, version_key="rubric").root

    # A published rubric never changes, so its digest must be the published one.
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    published_digest = read_published().get(rubric.ref)
    if published_digest not in (None, digest):
        problem = f"{rubric.ref} is published with different content; give the changed rubric a new version"
        raise ConfigError(problem, path=path, key="version")

    # A file given by its path may have any name.
    if origin != "path" and path.name != f"{rubric.ref}.yaml":
        raise ConfigError(
            f"holds {rubric.ref}; name the file {rubric.ref}.yaml", path=path, key="rubric"
        )
    return LoadedRubric(rubric, path, digest, origin)


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

    The rubric and its cases are copied from `like`, or by default from the starter rubric for `task`. A JSON
    schema, which editors use for checks, is added to the folder. Raises `UsageError` if the name is malformed
    or taken, and `ConfigError` if a file can't be written.
    """
    ref = name if "@" in name else f"{name}@1.0.0"
    if not _REFERENCE.fullmatch(ref):
        wanted = "small letters, digits and hyphens; three numbers"
        raise UsageError(f"{name!r} is neither ID nor ID@VERSION ({wanted})")
    if ref in read_published():
        raise UsageError(f"{ref} is published and cannot change; choose another id or version")

    # Read the original. If it has no cases, create an empty file that the user can fill.
    source = like.path if like else files.folder("rubrics") / "starters" / f"{task}.yaml"
    cases_file = get_companion_path(source, "cases")
    cases = cases_file.read_text(encoding="utf-8") if cases_file.is_file() else ""

    # By path: the content of each file to write.
    contents = {to / f"{ref}.yaml": _read_renamed(source, ref), to / f"{ref}.cases.jsonl": cases}
    for file in contents:
        if file.exists():
            raise UsageError(
                f"{file} already exists; choose another id or version, or edit that file"
            )

    schema = to / _SCHEMA_FILE
    if not schema.exists():
        contents[schema] = json.dumps(RubricFile.model_json_schema(), indent=2) + "\n"

    _write_files(contents)
    return list(contents)


def _write_files(contents: Mapping[Path, str]) -> None:
    """Write the files and any missing folders. Raises `ConfigError` if that fails."""
    for file, content in contents.items():
        try:
            outputs.make_folder(str(file.parent), mode=0o777)
            outputs.write_atomically(str(file), content)
        except OSError as error:
            raise ConfigError(f"cannot be written ({error.strerror})", path=file) from None


def _read_renamed(source: Path, ref: str) -> str:
    """Read a rubric file, and return its text with the id and version replaced by `ref` (ID@VERSION).

    Also adds the line that tells editors where the JSON schema is. Raises `ConfigError` if the file's layout
    doesn't allow the replacement.
    """
    from judgekit.config import yaml_text  # noqa: PLC0415 - imported lazily because it's rarely needed

    # Edit the text rather than the parsed data, to preserve comments and layout. The version is optional in
    # the original, so add one if necessary.
    text = source.read_text(encoding="utf-8")
    if not re.search("^version:", text, re.MULTILINE):
        text = re.sub("^(rubric: .*)$", r"\1\nversion: 1.0.0", text, count=1, flags=re.MULTILINE)

    rubric_id, _, version = ref.partition("@")
    new_values = {"rubric": rubric_id, "version": version}
    for key, value in new_values.items():
        key_line = re.compile(rf"^{key}: .*$", re.MULTILINE)
        text = key_line.sub(f"{key}: {value}", text, count=1)

    if not text.startswith(_MODELINE):
        text = _MODELINE + text

    # The replaced line could have been part of a multi-line string. Parse the result to make sure it wasn't.
    renamed = yaml_text.parse_yaml(text)
    if any(str(renamed.get(key)) != value for key, value in new_values.items()):
        raise ConfigError("cannot rename a rubric with this layout; copy it by hand", path=source)
    return text
