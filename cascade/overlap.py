"""What of a turn may go on where others speak in it: what was separated, in place of the mixture.

    separate     turn -> stretches (where others speak) -> source_turn, which the gate judges -> with_source
    foreground   piece of a turn -> foreground_parts -> is_in_foreground -> foreground_of

A stretch is judged by itself: beside it the speaker is alone, and a window of the encoder that reached there would
vouch for whoever is in the source. Only how loud it is there, in each band, is shown to the judge, as of any turn.
"""

from __future__ import annotations

import itertools
from enum import StrEnum
from typing import Final

import numpy as np

from cascade.diarization import HEARD, HOP, LOUD_OVERLAP, SURROUNDINGS, is_audible, level_db
from cascade.evidence import FRAME
from cascade.foreground import LOUDER
from cascade.separation import Encoder
from cascade.types import Samples, Span, SpeakerTurn, Vector, seconds, united


class OverlapPolicy(StrEnum):
    """What goes on where somebody else speaks at the same time."""

    WITHHOLD = "withhold"
    """Nothing of a turn in which others speak."""
    ADMIT_IF_DOMINANT = "admit_if_dominant"
    """The mixture, where the main speaker is heard in it."""
    SEPARATE = "separate"
    """The main speaker's source, where it is verified to be theirs."""
    FOREGROUND = "foreground"
    """The foreground in place of the mixture, everywhere, with a little of all else: wherever the main speaker is heard
    in both."""


JOINED: Final = seconds(0.3)
"""Stretches that are nearer to each other than about a word are one: a longer one is told more surely."""

FADE: Final = seconds(0.005)
"""Samples over which a turn goes from the mixture to a source and back, so that no click is cut into it."""

STEP: Final = seconds(0.2)
"""Samples between the middles of the encoder's windows, as in online clustering."""


def stretches(turn: SpeakerTurn) -> list[Span]:
    """Return where others speak in a turn, in whole frames of the gate's, those less than JOINED apart as one."""
    found: list[Span] = []
    for overlap in turn.overlaps:
        origin = turn.span.start
        start = origin + (overlap.start - origin) // FRAME * FRAME
        end = min(origin - (origin - overlap.end) // FRAME * FRAME, turn.span.end)  # rounded up
        if found and start - found[-1].end < JOINED:
            start = found.pop().start
        found.append(Span(start, end))
    return found


def source_turn(turn: SpeakerTurn, stretch: Span, encode: Encoder) -> SpeakerTurn | None:
    """Return a turn's source in a stretch as a turn by itself; None where nothing can be told of it.

    That is where there is no source, or where it is silent, holds what is no number, or sounds like no voice.
    """
    source = _source(turn, stretch)
    if source is None:
        return None
    windows = _embeddings(source, encode)
    good = windows[np.isfinite(windows).all(axis=1)]
    if not len(good):
        return None
    start, end = stretch.start - turn.span.start, stretch.end - turn.span.start
    return SpeakerTurn(
        span=stretch,
        speaker=turn.speaker,
        samples=source,
        embedding=good.mean(axis=0, dtype=np.float32),
        level_db=level_db(source),
        embeddings=windows,
        before=np.nan_to_num(turn.source[max(0, start - SURROUNDINGS) : start], posinf=0.0, neginf=0.0),
        after=np.nan_to_num(turn.source[end : end + SURROUNDINGS], posinf=0.0, neginf=0.0),
    )


def with_source(turn: SpeakerTurn) -> SpeakerTurn:
    """Return a turn whose samples are its source where others speak, without a click; the mixture where it has none.

    The embeddings of windows there are NaN: they were of the mixture.
    """
    samples, embeddings = turn.samples.copy(), turn.embeddings.copy()
    for stretch in stretches(turn):
        source = _source(turn, stretch)
        if source is None:
            continue
        place = _place(turn, stretch)
        samples[place] += _trapezoid(len(stretch)) * (source - samples[place])
        length, count = len(turn.samples), len(embeddings)
        embeddings[place.start * count // length : -(-place.stop * count // length)] = np.nan
    return SpeakerTurn(
        span=turn.span,
        speaker=turn.speaker,
        samples=samples,
        embedding=turn.embedding,
        level_db=turn.level_db,
        overlaps=turn.overlaps,
        source=turn.source,
        embeddings=embeddings,
        before=turn.before,
        after=turn.after,
    )


MOSTLY: Final = 10 ** (-6 / 10)
"""Where the foreground has less than this share (-6 dB) of the mixture's power, whom the mixture tells of is not in it:
a speaker next to the microphone has nearly all of it, and one of two who are equally near half."""


def foreground_parts(turn: SpeakerTurn, span: Span) -> list[Span]:
    """Cut a part of a turn where, for LOUD_OVERLAP, the foreground is audible and yet not most of what is heard.

    There it may hold somebody whom the mixture drowns, if the network took one for the other. Where it is soft beside
    the rest of it, as in a pause of the main speaker's, nothing is cut. It is cut, too, where the foreground cannot be
    a part of the mixture: nothing of it, as where separation failed, or more than all.
    """
    cells = [Span(start, min(start + HOP, span.end)) for start in range(span.start, span.end, HOP)]
    source, mixture = (
        np.array([_power(sound[_place(turn, cell)]) for cell in cells]) for sound in (turn.source, turn.samples)
    )
    heard = source >= HEARD * source.sum() / max(1, len(cells))
    wrong = heard & ((source < MOSTLY * mixture) | (source > LOUDER * mixture))
    failed = (source == 0) & (mixture > 0)
    lacking = united(itertools.compress(cells, wrong | failed))
    edges = {edge for one in lacking if len(one) >= LOUD_OVERLAP for edge in (one.start, one.end)}
    return [Span(*pair) for pair in itertools.pairwise(sorted({span.start, span.end, *edges}))]


REST: Final = np.float32(10 ** (-10 / 20))
"""Share, in amplitude, of what else is heard that goes on with the foreground (-10 dB).

What a network cuts out of a voice costs speech recognition more than what it leaves beside it; a part of the mixture
mends that (arXiv 2201.06685). On the eight scenes of the README, enrolled and dominant, the word error rate was 5.1 and
5.0 % of the foreground alone, 4.5 and 4.6 with 0.15 or 0.5 of the rest, 4.4 and 4.6 with 0.3; at 1, 5.2 and 5.2, some
of a bystander's words were in the text. So it is no more than helps. On nine harder scenes it changed nothing: 23.8 and
13.3 %, of the foreground alone 23.9 and 13.3, of the mixture 24.2 and 13.7.
"""


def foreground_of(turn: SpeakerTurn, span: Span) -> Samples:
    """Return what goes on of a part of a turn (n_samples,): its source, the foreground, and REST of all else.

    Where the source is silent, as where separation failed for a moment, nothing goes on.
    """
    place = _place(turn, span)
    source, mixture = turn.source[place], turn.samples[place]
    handed: Samples = np.where(source == 0, source, source + REST * (mixture - source))
    return handed


def is_in_foreground(turn: SpeakerTurn, span: Span) -> bool:
    """Tell whether most of what is heard in a part of a turn is in its source, the foreground.

    Raises:
        ValueError: The turn has no source.
    """
    source, mixture = _powers(turn, span)
    return MOSTLY * mixture <= source <= LOUDER * mixture


def is_separated(turn: SpeakerTurn, span: Span) -> bool:
    """Tell whether the source of a part of a turn can be a part of the mixture: some of it, and not more than all.

    Raises:
        ValueError: The turn has no source.
    """
    source, mixture = _powers(turn, span)
    return source <= LOUDER * mixture and (source > 0 or mixture == 0)


def _powers(turn: SpeakerTurn, span: Span) -> tuple[float, float]:
    """Return the energy of source and mixture in a part of a turn; not finite where they are not."""
    if len(turn.source) != len(turn.samples):
        raise ValueError("a turn without a source has no foreground")
    place = _place(turn, span)
    return _power(turn.source[place]), _power(turn.samples[place])


def _power(samples: Samples) -> float:
    return float(np.sum(np.square(samples, dtype=np.float64)))


def _source(turn: SpeakerTurn, stretch: Span) -> Samples | None:
    """Return a copy of a turn's source in a stretch (n_samples,), None where there is no sound in it."""
    source = turn.source[_place(turn, stretch)].copy()
    return source if np.isfinite(source).all() and is_audible(source) else None


def _place(turn: SpeakerTurn, stretch: Span) -> slice:
    return slice(stretch.start - turn.span.start, stretch.end - turn.span.start)


def _trapezoid(length: int) -> Samples:
    """Return weights (length,) that rise to 1 within FADE samples and fall from it at the end."""
    rise = np.arange(1, length + 1, dtype=np.float32) / np.float32(FADE)
    weights: Samples = np.minimum(np.float32(1), np.minimum(rise, rise[::-1]))
    return weights


def _embeddings(samples: Samples, encode: Encoder) -> Vector:
    """Return the embeddings (n_windows, dim) of windows about STEP apart, none of which reaches out of the samples.

    Fewer samples than a window has are repeated: silence, or what is around, would change the voice more.
    """
    size = encode.window
    if len(samples) <= size:
        return encode(np.pad(samples, (0, size - len(samples)), mode="wrap"))[None]
    count = -(-len(samples) // STEP)
    middles = (np.arange(count) + 0.5) * len(samples) / count
    starts = np.clip(middles - size / 2, 0, len(samples) - size).astype(int).tolist()
    found = {start: encode(samples[start : start + size]) for start in sorted(set(starts))}
    return np.stack([found[start] for start in starts])
