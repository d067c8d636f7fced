"""Read recordings that come with references: who speaks when (RTTM), and who says what (SegLST).

    read_scenes(FOLDER)    FOLDER itself where an RTTM lies in it, else every folder in it that has one

What belongs to a recording S, the session_id of the references:

    *.rttm                       who speaks when
    *.json                       who says what: SegLST, else meta.json with `sentences` (speaker, start, text)
    S.flac or audio/S.flac       what the microphone heard; mixture.flac where S is the only one; or .wav, .opus ...
    S.main.flac                  the main speaker alone, as in the mixture; main.flac where S is the only one
    S.enrolment.flac             the main speaker on another occasion; enrolment.flac where S is the only one

The last two may be missing, and so may the words. The main speaker is called "main"; all others are bystanders.
Where the main speaker is silent, the others must be called so: bystander, bystander_2 ...
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from cascade.types import Span, seconds

MAIN: Final = "main"
BYSTANDER: Final = "bystander"

AUDIO_SUFFIXES: Final = frozenset({".flac", ".wav", ".opus", ".ogg", ".mp3", ".m4a", ".aac"})


class Said(NamedTuple):
    """What one speaker says in one go, and when it begins, in seconds."""

    session_id: str
    start_s: float
    speaker: str
    text: str


class Spoken(NamedTuple):
    """Where one speaker speaks."""

    session_id: str
    speaker: str
    span: Span


@dataclass(frozen=True, slots=True)
class Scene:
    """A recording and what is known of it; main and enrolment are None where there is no such recording."""

    name: str
    mixture: Path
    main: Path | None
    enrolment: Path | None
    said: tuple[Said, ...]
    spoken: tuple[Spoken, ...]

    @property
    def main_text(self) -> str:
        """All that the main speaker says."""
        return " ".join(said.text for said in self.said if said.speaker == MAIN)

    @property
    def bystander_text(self) -> str:
        """All that anybody else says."""
        return " ".join(said.text for said in self.said if said.speaker != MAIN)

    @property
    def main_spans(self) -> list[Span]:
        """Where the main speaker speaks."""
        return [spoken.span for spoken in self.spoken if spoken.speaker == MAIN]

    @property
    def bystander_spans(self) -> list[Span]:
        """Where anybody else speaks."""
        return [spoken.span for spoken in self.spoken if spoken.speaker != MAIN]


def read_scenes(folder: Path) -> list[Scene]:
    """Read all recordings with references in a folder.

    Raises:
        ValueError: There is none, or a reference cannot be read, or goes with no recording.
        OSError: A file cannot be read.
    """
    folders = [folder] if any(folder.glob("*.rttm")) else sorted({path.parent for path in folder.glob("*/*.rttm")})
    scenes = [scene for one in folders for scene in _scenes_of(one)]
    if not scenes:
        raise ValueError(
            f"no references in {folder}: expected an RTTM file beside recordings, or folders that each hold one "
            "(reference.rttm, as benchmarks/scenes.py writes it)"
        )
    return scenes


def _scenes_of(folder: Path) -> Iterator[Scene]:
    """Yield the recordings of one folder, in the order of its RTTM files."""
    spoken = [line for path in sorted(folder.glob("*.rttm")) for line in _read_rttm(path)]
    names = list(dict.fromkeys(line.session_id for line in spoken))
    if not names:
        raise ValueError(f"{folder}: no line of its RTTM file begins with SPEAKER, so nobody speaks in any recording")
    said = [line for path in sorted(folder.glob("*.json")) for line in _read_seglst(path)]
    if not said and len(names) == 1 and (folder / "meta.json").is_file():
        said = list(_read_meta(folder / "meta.json", names[0]))
    audio = {path.stem: path for path in sorted(folder.rglob("*")) if path.suffix.lower() in AUDIO_SUFFIXES}
    for name in names:
        yield _scene(folder, name, _recordings_of(name, audio, only=len(names) == 1), spoken, said)


def _recordings_of(name: str, audio: dict[str, Path], *, only: bool) -> dict[str, Path]:
    """Return mixture, main and enrolment of a session, as far as there are such recordings."""
    stems = {"mixture": name, "main": f"{name}.main", "enrolment": f"{name}.enrolment"}
    own = {what: audio[stem] for what, stem in stems.items() if stem in audio}
    return own | ({what: audio[what] for what in stems if what in audio} if only else {})


def _scene(
    folder: Path, name: str, recordings: dict[str, Path], spoken: Sequence[Spoken], said: Sequence[Said]
) -> Scene:
    if "mixture" not in recordings:
        raise ValueError(f"{folder}: no recording for the references of {name!r}; expected {name}.flac, or .wav, .opus")
    turns = tuple(line for line in spoken if line.session_id == name)
    _check_speakers(folder, name, sorted({line.speaker for line in turns}))
    return Scene(
        name=folder.name if recordings["mixture"].stem == "mixture" else name,
        mixture=recordings["mixture"],
        main=recordings.get("main"),
        enrolment=recordings.get("enrolment"),
        said=tuple(sorted(line for line in said if line.session_id == name)),
        spoken=turns,
    )


def _check_speakers(folder: Path, name: str, speakers: Sequence[str]) -> None:
    """See that somebody is the main speaker, or that all are called bystanders: then the main speaker is silent."""
    if MAIN not in speakers and not all(speaker.startswith(BYSTANDER) for speaker in speakers):
        raise ValueError(
            f"{folder}: nobody in {name!r} is called 'main', got {', '.join(speakers)}; call the main speaker so, or "
            "all of them bystander, bystander_2 and so on where the main speaker is silent"
        )


def _read_rttm(path: Path) -> Iterator[Spoken]:
    for number, line in enumerate(_text(path).splitlines(), start=1):
        fields = line.split()
        if not fields or fields[0] != "SPEAKER":  # comments, and what is said of a recording as a whole
            continue
        try:
            start_s, end_s = float(fields[3]), float(fields[3]) + float(fields[4])
            yield Spoken(fields[1], fields[7], Span(seconds(start_s), seconds(end_s)))
        except (ValueError, IndexError, OverflowError):
            raise ValueError(
                f"{path}, line {number}: expected 'SPEAKER session 1 start duration <NA> <NA> speaker', got {line!r}"
            ) from None


def _read_seglst(path: Path) -> Iterator[Said]:
    """Yield what a JSON file says of who says what; nothing if it holds something else, such as questions."""
    content = _read_json(path)
    for number, line in enumerate(content if isinstance(content, list) else [], start=1):
        if isinstance(line, dict) and {"session_id", "speaker", "words"} <= set(line):
            yield _said(path, number, line["session_id"], line.get("start_time", 0.0), line["speaker"], line["words"])


def _said(path: Path, number: int, session_id: object, start_s: object, speaker: object, words: object) -> Said:
    """Return what an entry of a file says, if that is texts and a time; the number is its place, from 1."""
    texts = [text for text in (session_id, speaker, words) if isinstance(text, str)]
    try:
        begins_s = float(start_s) if isinstance(start_s, int | float | str) else math.nan
    except (ValueError, OverflowError):
        begins_s = math.nan
    if len(texts) < 3 or not math.isfinite(begins_s):
        raise ValueError(
            f"{path}, entry {number}: expected texts for session, speaker and words, and a start in seconds"
        )
    return Said(texts[0], begins_s, texts[1], texts[2])


def _read_meta(path: Path, name: str) -> Iterator[Said]:
    try:
        for number, line in enumerate(_read_json(path)["sentences"], start=1):
            yield _said(path, number, name, line["start"], line["speaker"], line["text"])
    except (KeyError, TypeError):
        raise ValueError(f"{path}: expected 'sentences', each with speaker, start and text") from None


def _text(path: Path) -> str:
    if not path.is_file():
        raise ValueError(f"{path}: expected a file with references, got none")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: expected text in UTF-8, got another byte at {error.start}") from None


def _read_json(path: Path) -> Any:
    text = _text(path)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: expected JSON, got something else: {error}") from None
