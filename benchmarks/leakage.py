"""Measure what a bystander leaks through the cascade, and what it keeps of the main speaker.

    python benchmarks/leakage.py SCENES_DIR [--no-enrolment] [--threshold X] [--config ondevice.yaml]

SCENES_DIR holds a folder a scene, as benchmarks/scenes.py makes them with --stems:

    mixture.flac or S.flac       what the microphone heard; S is the scene's session_id
    main.flac, enrolment.flac    the main speaker alone: as in the mixture, and on another occasion
    reference.rttm               who speaks when
    reference.json or meta.json  who says what (SegLST, or `sentences` with speaker and text)

Each scene goes through the whole configured cascade. Beside it, in the same run, the same ASR hears the mixture without
a gate and the main speaker alone, which is what a perfect gate and separator would hand it. cascade/scoring.py defines
the four measures. The last row is the mean of the scenes, each counting the same.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from cascade.audio import open_audio
from cascade.config import CascadeConfig, load_config
from cascade.errors import CascadeError
from cascade.gate import Everyone
from cascade.pipeline import Cascade
from cascade.scoring.leakage import false_accept, false_withhold, leakage, leaked_words, retention
from cascade.scoring.tally import Tally
from cascade.settings import FasterWhisperSettings, MainSpeakerSettings
from cascade.stage import Chain
from cascade.types import SAMPLE_RATE, Mode, Span, SpeakerTurn, Transcript, concatenate, seconds

SPEAKERS = ("main", "bystander")


@dataclass(frozen=True)
class Scene:
    """A recording and what is known of it: text and spans of each speaker."""

    name: str
    mixture: Path
    main: Path
    enrolment: Path
    said: dict[str, str]
    spans: dict[str, list[Span]]


@dataclass(frozen=True)
class Result:
    """What came of one scene: words of the cascade, of ASR on the mixture and on the main speaker alone; and time."""

    scene: str
    leaked: Tally
    kept: Tally
    accepted: Tally
    withheld: Tally
    mixture_leaked: Tally
    mixture_kept: Tally
    clean_kept: Tally
    words: tuple[str, ...]

    @property
    def tallies(self) -> tuple[Tally, ...]:
        """The tallies in the order of the table's columns."""
        words = (self.leaked, self.kept)
        return (*words, self.accepted, self.withheld, self.mixture_leaked, self.mixture_kept, self.clean_kept)


def read_scenes(folder: Path) -> list[Scene]:
    """Read all scenes in a folder.

    Raises:
        ValueError: There is none.
    """
    scenes = [read_scene(path.parent) for path in sorted(folder.glob("*/reference.rttm"))]
    if not scenes:
        raise ValueError(
            f"no scene in {folder}: expected folders with reference.rttm, as benchmarks/scenes.py makes them"
        )
    return scenes


def read_scene(folder: Path) -> Scene:
    """Read what is known of one scene."""
    lines = [line.split() for line in (folder / "reference.rttm").read_text(encoding="utf-8").splitlines()]
    mixture = folder / "mixture.flac"
    return Scene(
        name=folder.name,
        mixture=mixture if mixture.is_file() else folder / f"{lines[0][1]}.flac",
        main=folder / "main.flac",
        enrolment=folder / "enrolment.flac",
        said=dict(read_words(folder)),
        spans={name: [span_of(line) for line in lines if line[7] == name] for name in SPEAKERS},
    )


def span_of(line: Sequence[str]) -> Span:
    """Return the span of a line of RTTM."""
    return Span(seconds(float(line[3])), seconds(float(line[3]) + float(line[4])))


def read_words(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield each speaker and all that they say."""
    reference = folder / "reference.json"
    if reference.is_file():
        lines = [(line["speaker"], line["words"]) for line in json.loads(reference.read_text(encoding="utf-8"))]
    else:
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        lines = [(line["speaker"], line["text"]) for line in meta["sentences"]]
    for name in SPEAKERS:
        yield name, " ".join(text for speaker, text in lines if speaker == name)


def configured(config: CascadeConfig, threshold: float | None) -> CascadeConfig:
    """Return the configuration with another threshold at its gate, if one is given."""
    if threshold is None:
        return config
    stages = [
        stage.model_copy(update={"threshold": threshold}) if isinstance(stage, MainSpeakerSettings) else stage
        for stage in config.stages
    ]
    return config.model_copy(update={"stages": tuple(stages)})


def ungated(config: CascadeConfig) -> Callable[[Path], str]:
    """Return the configuration's ASR as a function from a recording to its text, without gate or diarization."""
    settings = next(stage for stage in config.stages if isinstance(stage, FasterWhisperSettings))
    make = settings.load(lambda: Chain([]))

    def hear(recording: Path) -> str:
        samples = concatenate([chunk.mixture for chunk in open_audio(recording)])
        whole = SpeakerTurn(Span(0, len(samples)), "", samples, np.full(1, np.nan, np.float32), math.nan)
        chain = Chain([Everyone(Mode.GENERAL), make(Mode.GENERAL)])
        return Transcript.of([*chain.push(whole), *chain.flush()]).text

    return hear


def measure(scene: Scene, config: CascadeConfig, hear: Callable[[Path], str], *, enrolled: bool) -> Result:
    """Put one scene through the cascade, and through ASR alone."""
    cascade = Cascade.load(config.with_enrolment([scene.enrolment] if enrolled else []))
    for _ in cascade.listen(open_audio(scene.mixture)):
        pass
    admitted = [decision.span for decision in cascade.listening.decisions if decision.admitted]
    text, mixture, clean = cascade.transcript.text, hear(scene.mixture), hear(scene.main)
    main, bystander = (scene.said[name] for name in SPEAKERS)
    return Result(
        scene=scene.name,
        leaked=leakage(bystander, main, text),
        kept=retention(main, text),
        accepted=false_accept(admitted, scene.spans["main"], scene.spans["bystander"]),
        withheld=false_withhold(admitted, scene.spans["main"]),
        mixture_leaked=leakage(bystander, main, mixture),
        mixture_kept=retention(main, mixture),
        clean_kept=retention(main, clean),
        words=leaked_words(bystander, main, text),
    )


def table_of(results: Sequence[Result]) -> Table:
    """Lay the results out, with their mean in the last row."""
    table = Table(title="Words and time that passed, in %", show_footer=True)
    table.add_column("scene", footer="mean")
    heads = ("leakage", "retention", "false accept", "false withhold", "mixture leakage", "mixture ret.", "clean ret.")
    for head, column in zip(heads, zip(*(result.tallies for result in results), strict=True), strict=True):
        shares = [tally.accuracy for tally in column if tally.accuracy is not None]
        table.add_column(head, footer=percent(float(np.mean(shares)) if shares else None), justify="right")
    table.add_column("leaked words")
    for result in results:
        table.add_row(result.scene, *map(cell, enumerate(result.tallies)), " ".join(result.words))
    return table


def cell(numbered: tuple[int, Tally]) -> str:
    """Return a share in percent; with its seconds in the two columns that count time."""
    column, tally = numbered
    timed = column in (2, 3)
    return percent(tally.accuracy) + (f" ({tally.correct / SAMPLE_RATE:.1f} s)" if timed else "")


def percent(share: float | None) -> str:
    """Return a share in percent, a dash for none."""
    return "-" if share is None else f"{100 * share:.2f}"


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; None means this process's own."""
    parser = argparse.ArgumentParser(description="Measure leakage and retention on two-speaker scenes.")
    parser.add_argument("scenes", type=Path, metavar="SCENES_DIR", help="a folder with a folder a scene")
    parser.add_argument("--no-enrolment", action="store_true", help="let the gate find the dominant speaker")
    parser.add_argument("--threshold", type=float, help="least evidence that passes the gate, in place of its default")
    parser.add_argument("--config", default="ondevice.yaml", help="the cascade to measure (default: %(default)s)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns the exit status (2: the user can mend it)."""
    parsed = parse_arguments(arguments)
    console = Console()
    try:
        config = configured(load_config(parsed.config), parsed.threshold)
        scenes, hear = read_scenes(parsed.scenes), ungated(config)
        progress: Any = track(scenes, console=Console(stderr=True), transient=True)
        results = [measure(scene, config, hear, enrolled=not parsed.no_enrolment) for scene in progress]
    except (ValueError, OSError, CascadeError) as error:
        print(f"leakage.py: {error}", file=sys.stderr)
        return 2
    console.print(table_of(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
