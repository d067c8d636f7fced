"""What came of a recording, in a folder of its own.

    OUT/<name>/
        transcript.json   SegLST: session_id, speaker, start_time, end_time, words
        transcript.srt    subtitles, with placeholders for what was withheld
        transcript.vtt    the same as WebVTT
        turns.rttm        all turns, admitted and withheld, by label
        turns.jsonl       what the gate decided on each turn, and why
        answers.jsonl     questions and answers
        summary.json      what was heard, how fast, and what it was made with

All of it appears at once or not at all: the files are written into `.<name>.partial-...` beside the folder, which takes
the name at the end. They are private: only their owner may read them (folder 0700, files 0600). Nothing is overwritten.
Of a withheld turn there is its time, its label and the reason; never text or audio.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cascade.answering.questions import LETTERS
from cascade.answering.spending import Spent
from cascade.envelope import Envelope
from cascade.errors import OutputError
from cascade.output.files import (
    all_or_nothing,
    as_bytes,
    as_json,
    as_json_lines,
    check_free,
    check_writable,
    clear_abandoned,
    partials_of,
    write_private,
)
from cascade.pipeline import Decision, Distribution, Performance, seconds_by_reason
from cascade.provenance import Provenance
from cascade.rendering import is_invisible, names_only, rttm, srt, vtt
from cascade.types import SAMPLE_RATE, Answer, Mode, Question, Transcript, covered

NAME_CHARACTERS: Final = 100
NAME_BYTES: Final = 200
"""The most of a folder's name; file systems allow 255 bytes, and `.partial-...` and `-2` need some of them."""

_RESERVED: Final = frozenset('/\\<>:"|?*')
"""Characters that separate folders, or that Windows does not allow in names."""

_DEVICES: Final = frozenset(
    ["con", "prn", "aux", "nul", "conin$", "conout$", *(port + n for port in ("com", "lpt") for n in "0123456789¹²³")]
)
"""What Windows takes for a device, whatever extension follows."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Seconds heard; seconds of them in which something was admitted, and withheld, also by reason.

    Where there is a background by itself, both can be at once: withheld_beside_s is how long. Each time counts once.
    """

    heard_s: float
    admitted_s: float
    withheld_s: float
    withheld_beside_s: float
    withheld_by_reason_s: Mapping[str, float]

    def __str__(self) -> str:
        reasons = ", ".join(f"{reason.replace('_', ' ')} {s:.1f} s" for reason, s in self.withheld_by_reason_s.items())
        withheld = f"{self.withheld_s:.1f} s withheld" + (f" ({reasons})" if reasons else "")
        beside = f", {self.withheld_beside_s:.1f} s of it beside what was admitted" if self.withheld_beside_s else ""
        return f"{self.heard_s:.1f} s heard, {self.admitted_s:.1f} s admitted, {withheld}{beside}"


@dataclass(frozen=True, slots=True)
class Heard:
    """All that came of one recording.

    name is what recording_name calls it; lookahead is in samples, None if the whole recording was needed; envelope is
    how loud it was where it was admitted; spent is what the answers took, None where no server was asked; warnings are
    lines on this recording that say nothing of what was withheld but when, how long and why.
    """

    name: str
    mode: Mode
    transcript: Transcript
    decisions: Sequence[Decision]
    answers: Sequence[tuple[Question, Answer]]
    performance: Performance
    lookahead: int | None
    provenance: Provenance
    envelope: Envelope = field(default_factory=Envelope)
    spent: Spent | None = None
    warnings: Sequence[str] = ()

    @property
    def totals(self) -> Totals:
        """How much was heard, admitted and withheld."""
        admitted, withheld = ([turn.span for turn in self.decisions if turn.admitted is one] for one in (True, False))
        by_reason = seconds_by_reason(turn for turn in self.decisions if not turn.admitted)
        both = covered(admitted) + covered(withheld) - covered([*admitted, *withheld])
        return Totals(
            heard_s=self.performance.audio_s,
            admitted_s=covered(admitted) / SAMPLE_RATE,
            withheld_s=covered(withheld) / SAMPLE_RATE,
            withheld_beside_s=both / SAMPLE_RATE,
            withheld_by_reason_s=dict(sorted(by_reason.items(), key=lambda item: -item[1])),
        )


def recording_name(recording: str) -> str:
    """Return the name of a recording's file as it was given, without folders; "-" is "stdin"."""
    return "stdin" if recording == "-" else Path(recording).name


def session_name(recording: str) -> str:
    """Return a recording's name without folder and extension, fit to be a folder's name; "-" is "stdin"."""
    return _fit("stdin" if recording == "-" else Path(recording).stem)


def plan_folders(out: Path, recordings: Sequence[str]) -> list[Path]:
    """Return the folder for the outputs of each recording, all different; `out` is made if need be.

    A folder is named as its recording, with the extension where two differ in nothing else, and with a number where
    two have the same name in different folders.

    Raises:
        OutputError: One of the folders exists already, or `out` cannot be written.
    """
    folders = [out / name for name in _names(recordings)]
    for folder in folders:
        clear_abandoned(partials_of(folder))
        check_free(folder)
    check_writable(out)
    return folders


def write(folder: Path, heard: Heard) -> None:
    """Write what came of a recording into a new folder, whose name becomes the session_id; all files or none.

    Raises:
        OutputError: The folder exists already or cannot be written.
    """
    contents = _contents("_".join(folder.name.split()), heard)
    try:
        with all_or_nothing(folder) as partial:
            for name, text in contents.items():
                write_private(partial / name, as_bytes(text))
    except OSError as error:
        raise OutputError(
            f"'{folder}' cannot be written: {error.strerror or error}; make room or give another --out"
        ) from None


def _contents(session_id: str, heard: Heard) -> dict[str, str]:
    """Return the text of each file; all of it is made before the first file is."""
    turns = sorted(heard.decisions, key=lambda turn: turn.span)
    return {
        "transcript.json": as_json(_seglst(session_id, heard.transcript)),
        "transcript.srt": srt(heard.transcript),
        "transcript.vtt": vtt(heard.transcript),
        "turns.rttm": rttm(session_id, turns),
        "turns.jsonl": as_json_lines(map(_turn, turns)),
        "answers.jsonl": as_json_lines(_answer(question, answer) for question, answer in heard.answers),
        "summary.json": as_json(_summary(session_id, heard)),
    }


def _seglst(session_id: str, transcript: Transcript) -> list[dict[str, Any]]:
    return [
        {
            "session_id": session_id,
            "speaker": utterance.speaker,
            "start_time": round(utterance.span.start_s, 3),
            "end_time": round(utterance.span.end_s, 3),
            "words": utterance.text,
        }
        for utterance in transcript.utterances
    ]


def _turn(turn: Decision) -> dict[str, Any]:
    return {
        "start": round(turn.span.start_s, 3),
        "end": round(turn.span.end_s, 3),
        "speaker": turn.speaker,
        "admitted": turn.admitted,
        "reason": str(turn.reason),
        "evidence": _number(turn.evidence, 6),
        "threshold": _number(turn.threshold, 6),
    }


def _answer(question: Question, answer: Answer) -> dict[str, Any]:
    return {
        "question": question.text,
        "options": list(question.options),
        "text": answer.text,
        "outcome": str(answer.outcome),
        "choice": None if answer.choice is None else LETTERS[answer.choice],
        "choice_index": answer.choice,
        "why": answer.why,
        "probabilities": [_number(probability, 6) for probability in answer.probabilities],
    }


def _summary(session_id: str, heard: Heard) -> dict[str, Any]:
    made, totals, speed = heard.provenance, heard.totals, heard.performance
    return {
        "recording": heard.name,
        "session_id": session_id,
        "mode": str(heard.mode),
        "gated": made.config.gated,
        "main_speaker": made.config.main_speaker,
        "seconds": {
            "heard": round(totals.heard_s, 3),
            "admitted": round(totals.admitted_s, 3),
            "withheld": round(totals.withheld_s, 3),
            "withheld_beside_admitted": round(totals.withheld_beside_s, 3),
            "withheld_by_reason": {reason: round(s, 3) for reason, s in totals.withheld_by_reason_s.items()},
        },
        "warnings": list(map(names_only, heard.warnings)),
        "utterances": len(heard.transcript.utterances),
        "utterances_looped": sum(utterance.looped for utterance in heard.transcript.utterances),
        "rtf": _number(speed.rtf, 4),
        "rtf_by_stage": {
            stage: _number(spent_s / speed.audio_s if speed.audio_s else None, 4)
            for stage, spent_s in speed.stages_s.items()
        },
        "lookahead_s": None if heard.lookahead is None else round(heard.lookahead / SAMPLE_RATE, 3),
        "delay": _distribution(speed.delay),
        "latency": _distribution(speed.latency),
        "spent": None if heard.spent is None else heard.spent.as_dict(),
        **made.as_dict(),
    }


def _distribution(values: Distribution | None) -> dict[str, Any] | None:
    if values is None:
        return None
    return {"count": values.count, "mean_s": _number(values.mean_s, 3), "p95_s": _number(values.p95_s, 3)}


def _number(value: float | None, digits: int) -> float | None:
    """Round a number; what JSON has no number for (NaN, infinity) is None, which is written as null."""
    return None if value is None or not math.isfinite(value) else round(value, digits)


def _names(recordings: Sequence[str]) -> list[str]:
    """Return a different name for each recording, also where the file system does not tell cases apart."""
    stems = [session_name(recording) for recording in recordings]
    files = [_fit(recording_name(recording)) for recording in recordings]
    sharing: dict[str, set[str]] = {}
    for stem, file in zip(stems, files, strict=True):
        sharing.setdefault(stem.casefold(), set()).add(file.casefold())
    taken: set[str] = set()
    return [
        _numbered(stem if len(sharing[stem.casefold()]) == 1 else file, taken)
        for stem, file in zip(stems, files, strict=True)
    ]


def _numbered(name: str, taken: set[str]) -> str:
    """Return the name, or the first of name-2, name-3, ... that is not taken; then it is."""
    number, free = 1, name
    while free.casefold() in taken:
        number += 1
        free = f"{name}-{number}"
    taken.add(free.casefold())
    return free


def _fit(name: str) -> str:
    """Return a name as one that a folder can have everywhere; letters of any script stay."""
    fit = "".join("_" if _unfit(character) else character for character in unicodedata.normalize("NFC", name))
    fit = _shortened(fit).strip(". ") or "recording"
    base, dot, extension = fit.partition(".")
    if base.rstrip().casefold() in _DEVICES:
        return _shortened(f"{base.rstrip()}_{dot}{extension}").rstrip(". ")
    return fit


def _shortened(name: str) -> str:
    return name[:NAME_CHARACTERS].encode("utf-8")[:NAME_BYTES].decode("utf-8", errors="ignore")


def _unfit(character: str) -> bool:
    return character in _RESERVED or is_invisible(character) or unicodedata.category(character) in ("Zl", "Zp")
