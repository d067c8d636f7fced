"""Transcript -> text: lines for a screen, SubRip and WebVTT for players; and the turns as RTTM.

Where speech was withheld stands a placeholder, such as `[bystander, 3.2 s withheld]`. It is told as a listener would
tell it: neighbouring turns are one, and scraps too short to matter are left out. turns.jsonl has them all.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cascade.diarization import UNKNOWN
from cascade.pipeline import Decision
from cascade.types import SAMPLE_RATE, Span, Transcript, Utterance, Withheld, WithholdReason, seconds

JOINED: Final = seconds(0.5)
"""Withheld turns that are closer than this, with nothing admitted between, are told as one."""

SCRAP: Final = seconds(0.5)
"""Less than this, of nobody in particular, is told with its neighbour, or else not at all."""

CUE_MS: Final = 7_000
CUE_CHARACTERS: Final = 84
"""The most that a cue may take: two lines of 42 characters for seven seconds, as broadcasters' subtitle guides have it
(partnerhelp.netflixstudios.com, English timed text style guide)."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Speech that was withheld, as a reader is told of it; withheld is in samples, without the pauses inside span."""

    span: Span
    reason: WithholdReason
    withheld: int
    nobody: bool
    """Whether it was too short, or its voice too briefly heard, to be anybody's."""

    @staticmethod
    def of(turn: Withheld) -> Gap:
        """Tell of one turn."""
        nobody = turn.reason is WithholdReason.TOO_SHORT or turn.speaker == UNKNOWN
        return Gap(turn.span, turn.reason, len(turn.span), nobody)

    @property
    def scrap(self) -> bool:
        """Whether there is too little of it to be told by itself."""
        return self.nobody and self.withheld < SCRAP

    def joins(self, other: Gap) -> bool:
        """Tell whether a later gap belongs to this one."""
        near = other.span.start - self.span.end < JOINED
        return near and (self.reason is other.reason or self.scrap or other.scrap)

    def __add__(self, other: Gap) -> Gap:
        """Join a later gap to this one, under the reason that is not a scrap's."""
        told = other if self.scrap else self
        end = max(self.span.end, other.span.end)
        more = max(0, other.span.end - max(self.span.end, other.span.start))
        return replace(told, span=Span(self.span.start, end), withheld=self.withheld + more)

    def __str__(self) -> str:
        return f"[{self.reason.replace('_', ' ')}, {self.withheld / SAMPLE_RATE:.1f} s withheld]"


def readable(transcript: Transcript) -> Iterator[Utterance | Gap]:
    """Yield what was said, and the gaps between, in time order; what was withheld at one time is told once."""
    withheld: list[Withheld] = []
    for item in sorted(_once(transcript.items), key=lambda item: item.span):
        if isinstance(item, Withheld):
            withheld.append(item)
            continue
        yield from _gaps(withheld)
        withheld.clear()
        yield item
    yield from _gaps(withheld)


def _once(items: Iterable[Utterance | Withheld]) -> Iterator[Utterance | Withheld]:
    """Yield items in time order without the time that was withheld in an earlier one, too."""
    told = 0
    for item in items:
        if isinstance(item, Utterance):
            yield item
        elif item.span.end > told:
            yield replace(item, span=Span(max(item.span.start, told), item.span.end))
            told = item.span.end


def _gaps(turns: Iterable[Withheld]) -> list[Gap]:
    gaps: list[Gap] = []
    for gap in map(Gap.of, turns):
        if gaps and gaps[-1].joins(gap):
            gaps[-1] += gap
        else:
            gaps.append(gap)
    return [gap for gap in gaps if not gap.scrap]


def transcript_lines(transcript: Transcript) -> Iterator[str]:
    """Yield the transcript line by line, such as `00:00.3  main  Hey, it's me.`: when, who, what."""
    items = list(readable(transcript))
    width = max((len(item.speaker) for item in items if isinstance(item, Utterance)), default=len("main"))
    for item in items:
        speaker, text = ("", str(item)) if isinstance(item, Gap) else (item.speaker, one_line(item.text))
        yield f"{clock(item.span.start)}  {speaker:<{width}}  {text}"


def one_line(text: str) -> str:
    """Return text that can break neither a line nor a terminal: single spaces, and no characters that only control."""
    return " ".join("".join(map(_printable, text)).split())


def names_only(text: str) -> str:
    """Return a text without the folders of the absolute paths in it: who reads a result needs only a file's name.

    In our own words a path stands in quotes, and may hold spaces; elsewhere it ends at the first one.
    """
    return _BARE_FOLDERS.sub("", _QUOTED_FOLDERS.sub("'", text))


_QUOTED_FOLDERS: Final = re.compile(r"'(?:[A-Za-z]:)?[/\\][^']*[/\\](?=[^'/\\]+')|'[/\\](?=[^'/\\]+')")
_BARE_FOLDERS: Final = re.compile(r"(?<![\w/\\.:<>'])(?:[A-Za-z]:)?[/\\](?:[^\s/\\'\"]+[/\\])+")


def _printable(character: str) -> str:
    """Return a character, a space for what would begin a new line, nothing for what cannot be seen."""
    if character.isspace():
        return " "
    return "" if is_invisible(character) else character


def is_invisible(character: str) -> bool:
    """Tell whether a character is a control, a format character or a broken surrogate.

    Format characters can make a text read as another: some turn its direction, some hide in a word. The two joiners
    stay, since the words of several scripts, and emoji, are not the same without them.
    """
    return unicodedata.category(character) in ("Cc", "Cf", "Cs") and character not in "\u200c\u200d"


def clock(position: int) -> str:
    """Return a place in the recording, in samples, as 01:02.3, with hours where there are any."""
    minutes, tenths = divmod(round(position * 10 / SAMPLE_RATE), 600)
    hours, minutes = divmod(minutes, 60)
    return f"{f'{hours}:' if hours else ''}{minutes:02}:{tenths // 10:02}.{tenths % 10}"


@dataclass(frozen=True, slots=True)
class Cue:
    """A subtitle, in milliseconds; a placeholder has no speaker."""

    start_ms: int
    end_ms: int
    speaker: str
    text: str


def cues(transcript: Transcript) -> list[Cue]:
    """Return the transcript as cues: each start < end, and those of one speaker in order and without overlap."""
    drafts = [cue for item in readable(transcript) for cue in _drafts(item)]
    return sorted(_apart(drafts), key=lambda cue: (cue.start_ms, cue.end_ms, cue.speaker))


def _apart(drafts: Sequence[Cue]) -> Iterator[Cue]:
    """Move what would overlap, or last no time at all, as little as can be."""
    ends: dict[str, int] = {}
    for cue in sorted(drafts, key=lambda cue: (cue.start_ms, cue.end_ms)):
        start = max(cue.start_ms, ends.get(cue.speaker, 0))
        ends[cue.speaker] = max(cue.end_ms, start + 1)
        yield replace(cue, start_ms=start, end_ms=ends[cue.speaker])


def _drafts(item: Utterance | Gap) -> Iterator[Cue]:
    if isinstance(item, Gap):
        yield Cue(_ms(item.span.start), _ms(item.span.end), "", str(item))
        return
    for pieces in _lines(_pieces(item)):
        start = _ms(pieces[0].span.start)
        end = min(max(_ms(piece.span.end) for piece in pieces), start + CUE_MS)
        if text := one_line(_text(pieces)):
            yield Cue(start, end, item.speaker, text)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A word, with what stands before it in the text."""

    span: Span
    text: str


def _pieces(utterance: Utterance) -> list[_Piece]:
    """Cut an utterance's text at its words, so that the pieces together are the text.

    Where the words are not all that there is in the text, or there are none, the text's words share the time evenly.
    """
    pieces: list[_Piece] = []
    at = 0
    for word in utterance.words:
        found = utterance.text.find(word.text, at)
        if found < 0 or _has_words(utterance.text[at:found]):
            return _shared(utterance)
        pieces.append(_Piece(word.span, utterance.text[at : found + len(word.text)]))
        at = found + len(word.text)
    if not pieces or _has_words(utterance.text[at:]):
        return _shared(utterance)
    return [*pieces[:-1], replace(pieces[-1], text=pieces[-1].text + utterance.text[at:])]


def _has_words(text: str) -> bool:
    return any(map(str.isalnum, text))


def _shared(utterance: Utterance) -> list[_Piece]:
    words = utterance.text.split()
    times = [utterance.span.start + len(utterance.span) * n // max(1, len(words)) for n in range(len(words) + 1)]
    return [_Piece(Span(times[n], times[n + 1]), f" {word}") for n, word in enumerate(words)]


def _lines(pieces: Iterable[_Piece]) -> Iterator[list[_Piece]]:
    """Group pieces into cues; a single piece that is too long by itself stays whole."""
    line: list[_Piece] = []
    for piece in pieces:
        if line and _is_full(line, piece):
            yield line
            line = []
        line.append(piece)
    if line:
        yield line


def _is_full(line: Sequence[_Piece], piece: _Piece) -> bool:
    """Tell whether another piece would be too much, or a sentence ends that is worth a cue of its own."""
    text = _text(line)
    if len(_text([*line, piece])) > CUE_CHARACTERS or _ms(piece.span.end) - _ms(line[0].span.start) > CUE_MS:
        return True
    return len(text) >= CUE_CHARACTERS // 2 and text.endswith((".", "?", "!", "。", "?", "!"))


def _text(pieces: Sequence[_Piece]) -> str:
    return "".join(piece.text for piece in pieces).strip()


def _ms(position: int) -> int:
    return round(position * 1000 / SAMPLE_RATE)


def srt(transcript: Transcript) -> str:
    """Return the transcript as SubRip; the speaker is named where there are several."""
    several = len({utterance.speaker for utterance in transcript.utterances}) > 1
    blocks = []
    for number, cue in enumerate(cues(transcript), start=1):
        name = f"{one_line(cue.speaker)}: " if several and cue.speaker else ""
        times = f"{_timestamp(cue.start_ms, ',')} --> {_timestamp(cue.end_ms, ',')}"
        # SubRip cannot escape: an arrow in the text would read as a line of times to some players.
        blocks.append(f"{number}\n{times}\n{name}{cue.text.replace('-->', '→')}\n")
    return "\n".join(blocks)


def vtt(transcript: Transcript) -> str:
    """Return the transcript as WebVTT, each cue with its speaker as a voice span."""
    blocks = ["WEBVTT\n"]
    for cue in cues(transcript):
        voice = f"<v {_escaped(one_line(cue.speaker))}>" if cue.speaker else ""
        times = f"{_timestamp(cue.start_ms, '.')} --> {_timestamp(cue.end_ms, '.')}"
        blocks.append(f"{times}\n{voice}{_escaped(cue.text)}\n")
    return "\n".join(blocks)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _timestamp(milliseconds: int, point: str) -> str:
    whole, fraction = divmod(milliseconds, 1000)
    minutes, second = divmod(whole, 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{second:02}{point}{fraction:03}"


def rttm(session_id: str, decisions: Iterable[Decision]) -> str:
    """Return all turns as RTTM, admitted and withheld alike, by their labels."""
    return "".join(
        f"SPEAKER {_word(session_id)} 1 {turn.span.start_s:.3f} {turn.span.duration_s:.3f} "
        f"<NA> <NA> {_word(turn.speaker)} <NA> <NA>\n"
        for turn in decisions
    )


def _word(text: str) -> str:
    """Return text as one column of RTTM."""
    return "_".join(one_line(text).split()) or "_"
