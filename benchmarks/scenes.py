"""Make two-speaker recordings from a description: Kokoro voices in an image-source room.

    python benchmarks/scenes.py benchmarks/talk/scene.yaml --kokoro DIR --out benchmarks/talk

A scene is a YAML file (see `Scene` and benchmarks/talk/scene.yaml). The same file and the same versions of the
packages give the same samples. What is written to --out, with S for the scene's `session_id`:

    S.flac           what the microphone heard
    enrolment.flac   the main speaker alone, other text, no room, no noise
    reference.rttm   who speaks when: one line a sentence, without the silence around it
    reference.json   the same with the words (SegLST: session_id, speaker, start_time, end_time, words)
    main.flac, bystander.flac   with --stems: each speaker alone, as in the mixture

Needs cascade itself, and `pip install kokoro-onnx pyroomacoustics scipy`; the top of voices.py says where the model
comes from that --assemble puts together.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import installed  # noqa: F401
import numpy as np
from mixing import (
    MAIN_LEVEL_DBFS,
    BystanderPlace,
    Described,
    MainPlace,
    Mixed,
    Name,
    Said,
    Setting,
    SpokenSentence,
    at_level,
    lay,
    mix,
    read_description,
    room_response,
    to_flac,
    to_rttm,
    to_seglst,
)
from pydantic import Field, model_validator
from voices import Kokoro, Synthesiser, assemble
from whole import stoppable

from cascade.types import SAMPLE_RATE, Samples

# --- the description ------------------------------------------------------------------------------


class Voice(Described):
    """How somebody sounds.

    Attributes:
        voice: A Kokoro voice, or a blend such as `af_heart*0.5+af_bella*0.5`.
        speed: 1 is the voice's own.
    """

    voice: str
    speed: float = Field(default=1.0, ge=0.5, le=2.0)


class MainSpeaker(MainPlace, Voice):
    """The one who holds the microphone."""


class Bystander(BystanderPlace, Voice):
    """The other one."""


class Sentence(Described):
    """One sentence, and when it begins.

    Attributes:
        speaker: Who says it.
        text: What they say; also the reference transcript.
        start_s: When it begins, since the recording began. Either this or gap_s.
        gap_s: Pause since the end of the last sentence listed above by `after`; below zero the two overlap.
        after: Whose sentence gap_s counts from; the same speaker's if left out.
    """

    speaker: Name
    text: str
    start_s: float | None = Field(default=None, ge=0)
    gap_s: float | None = None
    after: Name | None = None

    @model_validator(mode="after")
    def _begins_once(self) -> Sentence:
        if (self.start_s is None) == (self.gap_s is None):
            raise ValueError(f"give either start_s or gap_s for {self.text!r}")
        if self.after is not None and self.gap_s is None:
            raise ValueError(f"`after` needs gap_s for {self.text!r}")
        return self


class Scene(Setting):
    """A recording to be made.

    Attributes:
        tail_s: What follows the last sentence.
        enrolment: What the main speaker says when enrolling.
        sentences: In the order in which gaps are counted.
    """

    tail_s: float = Field(default=0.6, ge=0)
    main: MainSpeaker
    bystander: Bystander
    enrolment: str
    sentences: tuple[Sentence, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _both_speak(self) -> Scene:
        if {sentence.speaker for sentence in self.sentences} != {"main", "bystander"}:
            raise ValueError("both the main speaker and the bystander need at least one sentence")
        return self


# --- the recording --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A scene as it sounds; enrolment is (n_samples,) of its own length."""

    session_id: str
    mixed: Mixed
    enrolment: Samples
    sentences: tuple[SpokenSentence, ...]


def record(scene: Scene, speak: Synthesiser) -> Recording:
    """Make a scene's recording.

    Raises:
        ValueError: The scene can't be made: a speaker talks over themselves, stands in a wall, or the mix clips.
    """
    sentences = place_sentences(scene, speak)
    length = max(sentence.end for sentence in sentences) + round(scene.tail_s * SAMPLE_RATE)
    mixed = mix(lay(sentences, length), scene, room_response)
    enrolment = at_level(speak(scene.enrolment, scene.main.voice, scene.main.speed), MAIN_LEVEL_DBFS)
    if np.abs(enrolment).max() >= 1:
        raise ValueError(f"the enrolment of {scene.session_id} clips: choose another text")
    return Recording(scene.session_id, mixed, enrolment, sentences)


def place_sentences(scene: Scene, speak: Synthesiser) -> tuple[SpokenSentence, ...]:
    """Speak every sentence and find its place; sorted by start."""
    ends: dict[Name, int] = {"main": 0, "bystander": 0}
    placed = []
    for sentence in scene.sentences:
        start = find_start(sentence, ends)
        speaker = scene.main if sentence.speaker == "main" else scene.bystander
        spoken = SpokenSentence(
            sentence.speaker, sentence.text, start, speak(sentence.text, speaker.voice, speaker.speed)
        )
        ends[sentence.speaker] = spoken.end
        placed.append(spoken)
    return tuple(sorted(placed, key=lambda spoken: spoken.start))


def find_start(sentence: Sentence, ends: dict[Name, int]) -> int:
    """When a sentence begins, in samples, given where each speaker's last one ended.

    Raises:
        ValueError: Its speaker would talk before the recording begins, or over themselves.
    """
    if sentence.start_s is not None:
        start = round(sentence.start_s * SAMPLE_RATE)
    else:
        start = ends[sentence.after or sentence.speaker] + round((sentence.gap_s or 0) * SAMPLE_RATE)
    if start < ends[sentence.speaker]:
        end_s = ends[sentence.speaker] / SAMPLE_RATE
        raise ValueError(
            f"{sentence.text!r} begins at {start / SAMPLE_RATE:.2f} s, but {sentence.speaker} talks until {end_s:.2f} s"
        )
    return start


# --- files ----------------------------------------------------------------------------------------


def write_recording(recording: Recording, out: Path, stems: bool) -> None:
    """Write a recording and its references to a folder; the top of this file lists them."""
    out.mkdir(parents=True, exist_ok=True)
    audio = {recording.session_id: recording.mixed.mixture, "enrolment": recording.enrolment}
    if stems:
        audio |= {"main": recording.mixed.main, "bystander": recording.mixed.bystander}
    for name, samples in audio.items():
        (out / f"{name}.flac").write_bytes(to_flac(samples))
    said = [
        Said(recording.session_id, sentence.speaker, sentence.span, sentence.text) for sentence in recording.sentences
    ]
    (out / "reference.rttm").write_text(to_rttm(said), encoding="utf-8")
    (out / "reference.json").write_text(to_seglst(said), encoding="utf-8")


# --- command line ---------------------------------------------------------------------------------


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; None means this process's own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("scene", nargs="?", type=Path, help="YAML description of a scene")
    parser.add_argument("--kokoro", type=Path, required=True, metavar="DIR", help="the assembled model and voices")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the recording goes")
    parser.add_argument("--stems", action="store_true", help="also write each speaker alone")
    parser.add_argument("--assemble", type=Path, metavar="PARTS", help="first put the model together from PARTS")
    parsed = parser.parse_args(arguments)
    if not (parsed.scene or parsed.assemble):
        parser.error("give a scene, or --assemble PARTS")
    if bool(parsed.scene) != bool(parsed.out):
        parser.error("a scene and --out DIR belong together")
    return parsed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns the exit status (2: the user can mend it)."""
    parsed = parse_arguments(arguments)
    try:
        if parsed.assemble:
            assemble(parsed.assemble, parsed.kokoro)
        if parsed.scene:
            scene = read_description(parsed.scene, Scene)
            write_recording(record(scene, Kokoro(parsed.kokoro)), parsed.out, parsed.stems)
    except ModuleNotFoundError as error:
        print(
            f"scenes.py: {error.name} isn't installed; the top of benchmarks/README.md says what is needed",
            file=sys.stderr,
        )
        return 2
    except (ValueError, OSError) as error:
        print(f"scenes.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(stoppable(Path(__file__), main))
