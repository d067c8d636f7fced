"""What the paper prints, as data: benchmarks/paper.yaml -> Paper. Accuracies and SE in percent, entropies in nats."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cascade.errors import ItemsError
from cascade.packaged import data_folder
from cascade.scoring.efficacy import Speaker
from cascade.types import Mode

Percent = Annotated[float, Field(ge=0, le=100)]


class Setting(StrEnum):
    """How the questions were asked; each has a table of the paper to itself."""

    STANDARD = "standard"
    NO_DESCRIPTION = "no_description"
    NO_IDK = "no_idk"
    OPEN_ENDED = "open_ended"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Entry(_Strict):
    """What is known of one mode and speaker: percent; entropy in nats; real and synth are accuracies."""

    accuracy: Percent | None = None
    wilson95: Annotated[tuple[Percent, Percent] | None, Field(strict=False)] = None
    entropy: float | None = None
    real: Percent | None = None
    synth: Percent | None = None


class Speakers(_Strict):
    """The two cells of one mode."""

    main: Entry = Entry()
    bystander: Entry = Entry()


class Files(_Strict):
    """The published predictions by mode: file names without .json."""

    general: Annotated[tuple[str, ...], Field(strict=False)] = ()
    selective: Annotated[tuple[str, ...], Field(strict=False)] = ()


class Figures(_Strict):
    """What is known of one system in one setting; a run's values are put in this shape too."""

    files: Files = Files()
    general: Speakers = Speakers()
    selective: Speakers = Speakers()
    se: Percent | None = None

    def cell(self, mode: Mode, speaker: Speaker) -> Entry:
        """Return one of the four cells."""
        speakers = self.general if mode is Mode.GENERAL else self.selective
        return speakers.main if speaker is Speaker.MAIN else speakers.bystander


class Declined(_Strict):
    """Percent of open-ended questions that were not answered but declined."""

    main: Percent | None
    bystander: Percent | None


class PaperSystem(_Strict):
    """All that the paper says of one system; short is its name where there is little room."""

    name: str
    short: str
    standard: Figures
    no_description: Figures | None = None
    no_idk: Figures | None = None
    open_ended: Declined | None = None

    @property
    def settings(self) -> Iterator[tuple[Setting, Figures]]:
        """The multiple-choice settings that the paper, or its published files, cover."""
        yield Setting.STANDARD, self.standard
        if self.no_description:
            yield Setting.NO_DESCRIPTION, self.no_description
        if self.no_idk:
            yield Setting.NO_IDK, self.no_idk


class Source(_Strict):
    """Where the figures come from."""

    title: str
    url: str


class Questions(_Strict):
    """How many of the test set's questions are about each speaker."""

    main: int
    bystander: int


@dataclass(frozen=True, slots=True)
class Published:
    """What a published file of predictions holds."""

    system: PaperSystem
    setting: Setting
    mode: Mode
    figures: Figures


class Paper(_Strict):
    """The paper's tables 2, 3, 4, 5, 6 and 8, by system."""

    source: Source
    questions: Questions
    systems: Annotated[tuple[PaperSystem, ...], Field(strict=False, min_length=1)]

    def published(self, file: str) -> Published | None:
        """Return what a file holds if it is named as one of the published ones, whatever its folder."""
        for system in self.systems:
            for setting, figures in system.settings:
                for mode, names in ((Mode.GENERAL, figures.files.general), (Mode.SELECTIVE, figures.files.selective)):
                    if stem(file) in names:
                        return Published(system, setting, mode, figures)
        return None


def load_paper(path: Path | None = None) -> Paper:
    """Read what the paper reports, by default from cascade's own file; ItemsError says what is wrong with it."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    path = path or data_folder("benchmarks") / "paper.yaml"
    try:
        return Paper.model_validate(YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8")))
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    except (UnicodeDecodeError, YAMLError):
        problem = "expected YAML in UTF-8"
    except ValidationError as error:
        first = error.errors()[0]
        problem = f"{'.'.join(map(str, first['loc'])) or 'the whole file'}: {first['msg']}"
    raise ItemsError(f"{path}: the paper's figures: {problem}; reinstall cascade, or mend the file")


def stem(file: str) -> str:
    """Return a file's name without its folders, .gz and .json."""
    return re.split(r"[/\\]", file)[-1].removesuffix(".gz").removesuffix(".json")
