"""One speaker of a recording, with what they say when: read from the AMI corpus, or from a recording and SegLST.

The AMI corpus's layout, below one folder (individual headsets and manual annotations, as they are downloaded):

    audio/ES2004a/audio/ES2004a.Headset-1.wav    or amicorpus/ES2004a/audio/...
    words/ES2004a.B.words.xml                    the words of speaker B
    corpusResources/meetings.xml                 optional: who wore which headset; without it A-D are headsets 0-3

The plain layout: a recording that `cascade` can read, and beside it a SegLST file of the same name with the ending
.json, whose session_id is that name too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Never
from xml.etree import ElementTree

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from cascade.types import Span, seconds

PAUSE_S = 0.5  # a shorter silence between two words doesn't end a turn
AGENTS = "ABCDE"  # AMI's speakers in the order of their headsets; some meetings have five


@dataclass(frozen=True, slots=True)
class Word:
    """A word (or a longer piece of a transcript) and when it is said."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Talker:
    """One speaker of a recording.

    Attributes:
        recording: Name of the recording.
        speaker: Their name in it.
        person: Who that is, as far as other recordings tell it too; None if unknown.
        audio: The recording that is closest to their mouth.
        words: In time order.
        others: When the others in the recording speak, in time order; the spans don't touch.
    """

    recording: str
    speaker: str
    person: str | None
    audio: Path
    words: tuple[Word, ...]
    others: tuple[Span, ...]

    @property
    def name(self) -> str:
        """Recording and speaker, fit for the name of a file."""
        return re.sub(r"[^\w-]", "-", f"{self.recording}_{self.speaker}")

    @property
    def turns(self) -> tuple[Span, ...]:
        """When they speak; pauses of up to PAUSE_S belong to it."""
        return join(word.span for word in self.words)


def join(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Join spans between which there is less than PAUSE_S, whatever their order."""
    joined: list[Span] = []
    for span in sorted(spans):
        if joined and span.start - joined[-1].end <= seconds(PAUSE_S):
            joined[-1] = Span(joined[-1].start, max(joined[-1].end, span.end))
        else:
            joined.append(span)
    return tuple(joined)


def to_talker(recording: str, speaker: str, person: str | None, audio: Path, said: dict[str, list[Word]]) -> Talker:
    """Take one speaker out of what everybody says in a recording.

    Raises:
        ValueError: They don't speak in it.
    """
    if not said.get(speaker):
        known = ", ".join(sorted(name for name, words in said.items() if words))
        raise ValueError(f"{speaker} says nothing in {recording}; choose one of: {known}")
    others = join(word.span for name, words in said.items() if name != speaker for word in words)
    words = tuple(sorted(said[speaker], key=lambda word: word.span))
    return Talker(recording, speaker, person, audio, words, others)


# --- a recording and SegLST -----------------------------------------------------------------------


class Entry(BaseModel):
    """What is read of an entry of SegLST; more keys are allowed."""

    session_id: str
    speaker: str
    start_time: float = Field(ge=0, allow_inf_nan=False)
    end_time: float = Field(ge=0, allow_inf_nan=False)
    words: str


def read_plain(audio: Path, speaker: str) -> Talker:
    """Read a speaker of a recording, from the SegLST file beside it.

    Raises:
        ValueError: The file isn't SegLST, or doesn't know the recording or the speaker.
        OSError: It can't be read.
    """
    path = audio.with_suffix(".json")
    try:
        entries = TypeAdapter(list[Entry]).validate_json(path.read_bytes())
    except ValidationError as error:
        fault = error.errors(include_input=False)[0]
        raise ValueError(f"{path} isn't SegLST: {'.'.join(map(str, fault['loc']))}: {fault['msg']}") from error
    said: dict[str, list[Word]] = {}
    for entry in entries:
        if entry.session_id == audio.stem:
            said.setdefault(entry.speaker, []).append(
                Word(to_span(entry.start_time, entry.end_time, path), entry.words)
            )
    if not said:
        raise ValueError(f"{path} has no entry whose session_id is {audio.stem}, the recording's name")
    return to_talker(audio.stem, speaker, None, audio, said)


def to_span(start_s: float, end_s: float, path: Path) -> Span:
    """Turn seconds into a span; `path` is where they come from.

    Raises:
        ValueError: The end comes before the start.
    """
    if end_s < start_s:
        raise ValueError(f"{path}: something is said from {start_s} s to {end_s} s; the end must not come first")
    return Span(seconds(start_s), seconds(end_s))


# --- AMI ------------------------------------------------------------------------------------------


class AmiCorpus:
    """The part of the AMI corpus that lies below a folder."""

    def __init__(self, root: Path) -> None:
        """Read who took part in which meeting, if the corpus says."""
        self._root = root
        self._participants = dict(read_participants(root / "corpusResources" / "meetings.xml"))

    def speakers(self) -> list[tuple[str, str]]:
        """All (meeting, agent) that have both words and a headset's recording, sorted.

        Raises:
            ValueError: There is none.
        """
        names = [path.name.split(".")[:2] for path in sorted((self._root / "words").glob("*.?.words.xml"))]
        heard = [(meeting, agent) for meeting, agent in names if self._headset(meeting, agent).is_file()]
        if not heard:
            raise ValueError(
                f"no speaker of the AMI corpus in {self._root}: expected words/M.A.words.xml and "
                "audio/M/audio/M.Headset-0.wav, with a meeting's name for M"
            )
        return heard

    def read(self, meeting: str, agent: str) -> Talker:
        """Read a speaker of a meeting.

        Raises:
            ValueError: They aren't in it, or a file isn't what it should be.
            OSError: A file can't be read.
        """
        paths = {path.name.split(".")[1]: path for path in (self._root / "words").glob(f"{meeting}.?.words.xml")}
        if agent not in paths:
            known = ", ".join(sorted(paths)) or "none"
            raise ValueError(f"no words/{meeting}.{agent}.words.xml in {self._root}; speakers of {meeting}: {known}")
        said = {name: read_words(path) for name, path in sorted(paths.items())}
        person = self._participants.get((meeting, agent), {}).get("global_name")
        return to_talker(meeting, agent, person, self._headset(meeting, agent), said)

    def _headset(self, meeting: str, agent: str) -> Path:
        """Where the recording of a speaker's headset should be."""
        channel = self._participants.get((meeting, agent), {}).get("channel") or str(AGENTS.find(agent))
        name = Path(meeting, "audio", f"{meeting}.Headset-{channel}.wav")
        candidates = [self._root / folder / name for folder in ("audio", "amicorpus")]
        return next((path for path in candidates if path.is_file()), candidates[0])


def read_participants(path: Path) -> Iterator[tuple[tuple[str, str], dict[str, str]]]:
    """Read (meeting, agent) and what meetings.xml says of them (channel, global_name, role); nothing without it."""
    for meeting in read_xml(path).iter("meeting") if path.is_file() else ():
        for speaker in meeting.iter("speaker"):
            yield (meeting.get("observation", ""), speaker.get("nxt_agent", "")), dict(speaker.attrib)


def read_words(path: Path) -> list[Word]:
    """Read the words of a NITE XML file, in their order.

    Punctuation, and a word that the annotators could not time, go to the word before, if there is one. Sounds,
    gaps and marks of disfluency are left out. AMI spells letters with underscores: `T_V_` is `TV`.
    """
    words: list[Word] = []
    for element in read_xml(path).iter("w"):
        text = (element.text or "").strip().replace("_", "")
        span = read_time(element, path)
        if span and element.get("punc") != "true":
            words.append(Word(span, text))
        elif words:
            gap = "" if element.get("punc") == "true" else " "
            words[-1] = Word(words[-1].span, f"{words[-1].text}{gap}{text}".strip())
    return words


def read_time(element: ElementTree.Element, path: Path) -> Span | None:
    """When an element is heard, or None where that isn't known.

    Raises:
        ValueError: Its times are no times.
    """
    start, end = element.get("starttime") or "", element.get("endtime") or ""
    if not (start and end):
        return None
    try:
        return to_span(float(start), float(end), path)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{path}: expected times in seconds, got starttime={start!r} endtime={end!r}") from error


class NoDoctype(ElementTree.TreeBuilder):
    """Builds a tree, but of no file with a document type: the corpus has none, and entities hide in it."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> Never:
        """Refuse the file before anything in its document type is read."""
        raise ValueError(f"expected no document type, got {name}")


def read_xml(path: Path) -> ElementTree.Element:
    """Read an XML file.

    Raises:
        ValueError: It isn't XML, or has a document type.
        OSError: It can't be read.
    """
    try:
        return ElementTree.XML(path.read_bytes(), ElementTree.XMLParser(target=NoDoctype()))
    except (ElementTree.ParseError, ValueError) as error:
        raise ValueError(f"{path} isn't the corpus's XML: {error}") from error
