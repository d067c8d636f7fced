"""Scenes -> what the gate's judge is shown in them, beside the truth.

    scene -> hear -> Heard (turns, profile, truth) -> note -> Note (observation, who speaks, whether it is the main one)

The gate runs as it is, with its profiles and rivals; only its judge is another one. In the first round that judge knows
the truth; later it is the model fitted so far, so that what the gate has learned by then is as it will be in use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from references import Scene

from cascade.audio import open_audio, read_audio
from cascade.config import CascadeConfig
from cascade.errors import EnrolmentError
from cascade.evidence import FRAME, Judge, Observation
from cascade.gate import SAME_VOICE, GateSettings, MainSpeaker, Profile, enrol
from cascade.pipeline import load_stages
from cascade.settings import ENROLMENT_PIECE_S, LONGEST_ENROLMENT_S, MainSpeakerSettings
from cascade.stage import Chain
from cascade.types import AudioChunk, Mode, Span, SpeakerTurn, Vector, Withheld, WithholdReason, seconds, whole

NOBODY, MAIN, BOTH, BYSTANDER = range(4)
"""Who speaks in a frame; of BYSTANDER the main speaker is not one."""

SURE: Final = 0.97
"""What a judge who knows the truth says; the gate learns from it."""

Frames: TypeAlias = npt.NDArray[np.int8]
Front: TypeAlias = Callable[[], Chain]
"""Makes the stages in front of the gate anew."""


@dataclass(frozen=True, slots=True)
class Truth:
    """Who speaks in each FRAME of a recording (n_frames,), and whether it is the main speaker's, 0 or 1 (n_frames,).

    A frame in which nobody speaks belongs to whoever speaks nearest to it.
    """

    who: Frames
    is_main: Vector

    @classmethod
    def of(cls, scene: Scene, n_frames: int) -> Truth:
        """Read who speaks when in a scene."""
        main, others = _active(scene.main_spans, n_frames), _active(scene.bystander_spans, n_frames)
        who = np.select([main & others, main, others], [BOTH, MAIN, BYSTANDER], NOBODY).astype(np.int8)
        spoken = np.flatnonzero(who != NOBODY)
        if not len(spoken):
            return cls(who, np.zeros(n_frames, np.float32))
        nearest = spoken[np.searchsorted((spoken[1:] + spoken[:-1]) / 2, np.arange(n_frames))]
        return cls(who, main[nearest].astype(np.float32))

    def during(self, span: Span) -> Truth:
        """Return what is true in a turn; what is past the recording's end goes with its last frame."""
        frames = np.arange(-(-len(span) // FRAME)) + span.start // FRAME
        frames = np.minimum(frames, len(self.who) - 1)
        return Truth(self.who[frames], self.is_main[frames])

    def without_main(self) -> Truth:
        """Return what is true for one who is not there: whoever speaks is a bystander."""
        return Truth(np.where(self.who == NOBODY, NOBODY, BYSTANDER).astype(np.int8), np.zeros_like(self.is_main))

    def main_leads(self, within_s: float) -> bool:
        """Tell whether the main speaker speaks more than others alone do, for some time from the first word on."""
        first = int(np.argmax(self.who != NOBODY))
        opening = self.who[first : first + seconds(within_s) // FRAME]
        return bool(np.isin(opening, (MAIN, BOTH)).sum() > (opening == BYSTANDER).sum())


def _active(spans: Sequence[Span], n_frames: int) -> npt.NDArray[np.bool_]:
    active = np.zeros(n_frames, bool)
    for span in spans:
        active[round(span.start / FRAME) : round(span.end / FRAME)] = True
    return active


CAUTION: Final = 2.0
"""How much more probable it is beforehand that bystanders alone speak in a turn than that the main speaker does.

So a threshold of 0.5 passes only what sounds twice as much like the main speaker, whoever spoke more in the scenes.
"""


def balanced(who: Frames) -> Vector:
    """Return weights (n_frames,) by which bystanders alone count CAUTION times the main speaker, silence nothing."""
    alone, main = who == BYSTANDER, (who == MAIN) | (who == BOTH)
    shares = CAUTION * alone / max(1, int(alone.sum())) + main / max(1, int(main.sum()))
    return np.asarray(shares * (alone.sum() + main.sum()) / (CAUTION + 1), np.float32)


@dataclass(frozen=True, slots=True, repr=False)
class Heard:
    """A scene as it comes to the gate; profile is None where there is no enrolment that can be used."""

    name: str
    turns: Sequence[SpeakerTurn]
    profile: Profile | None
    truth: Truth


@dataclass(frozen=True, slots=True, repr=False)
class Note:
    """What a judge was shown of one turn, and the truth about its frames."""

    scene: str
    enrolled: bool
    turn: SpeakerTurn
    seen: Observation
    truth: Truth


def load_front(config: CascadeConfig) -> tuple[CascadeConfig, MainSpeakerSettings]:
    """Return what of a configuration stands in front of its gate, and the gate's settings; ValueError without one."""
    for place, settings in enumerate(config.stages):
        if isinstance(settings, MainSpeakerSettings):
            return config.model_copy(update={"stages": config.stages[:place]}), settings
    raise ValueError("the configuration has no gate, so there is nothing to fit; add 'use: main_speaker'")


def front_of(config: CascadeConfig) -> Front:
    """Load the models of these stages; each call of what is returned makes them anew."""
    makers = [make for _, make in load_stages(config, Mode.SELECTIVE)]
    return lambda: Chain([make(Mode.SELECTIVE) for make in makers])


def hear_all(scenes: Iterable[Scene], front: Front, threads: int) -> Iterator[Heard]:
    """Yield each scene as it comes to the gate; the networks leave Python, so that threads are enough."""
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(lambda scene: hear(scene, front), scenes)


def hear(scene: Scene, front: Front) -> Heard:
    """Put a scene through what is in front of the gate. Errors: AudioError, BackendError."""
    chain, turns, end = front(), list[SpeakerTurn](), 0
    for chunk in open_audio(scene.mixture):
        turns += chain.push(chunk)
        end = chunk.span.end
    turns = whole([*turns, *chain.flush()])
    profile = None if scene.enrolment is None else enrolled(scene.enrolment, front)
    return Heard(scene.name, turns, profile, Truth.of(scene, max(1, -(-end // FRAME))))


def enrolled(path: Path, front: Front) -> Profile | None:
    """Return the profile of an enrolment, made as the gate's settings make it; None if the gate would refuse it."""
    samples, size = read_audio(path, limit_s=LONGEST_ENROLMENT_S), seconds(ENROLMENT_PIECE_S)
    turns: list[SpeakerTurn] = []
    for start in range(0, len(samples), size):
        piece, chain = samples[start : start + size], front()
        turns += [*chain.push(AudioChunk(Span(0, len(piece)), piece)), *chain.flush()]
    try:
        return enrol([(path.name, whole(turns))])
    except EnrolmentError:
        return None


@dataclass(slots=True)
class Noting:
    """A Judge that notes what it is shown; it decides by another one, or by the truth where that is None."""

    heard: Heard
    enrolled: bool
    judge: Judge | None
    notes: list[Note] = field(default_factory=list)

    def __call__(self, turn: SpeakerTurn, seen: Observation) -> Vector:
        """Return the probability that the main speaker speaks, for each frame of the turn (n_frames,)."""
        truth = self.heard.truth.during(turn.span)
        self.notes.append(Note(self.heard.name, self.enrolled, turn, seen, truth))
        if self.judge is not None:
            return self.judge(turn, seen)
        return np.where(truth.is_main > 0, SURE, 1 - SURE).astype(np.float32)


ABSENT_EVERY: Final = 3
"""Of so many scenes, one is heard with the enrolment of one who is absent, too."""


def absent(scenes: Sequence[Heard]) -> list[Heard]:
    """Return some scenes as heard with the enrolment of one who is not in it: that of the next with another voice.

    Else the network would learn that whoever is near is the one who is enrolled. It is every ABSENT_EVERY-th scene:
    with all of them it would learn that who is enrolled is seldom there.
    """
    heard = []
    for place, scene in list(enumerate(scenes))[::ABSENT_EVERY]:
        others = (other.profile for other in [*scenes[place + 1 :], *scenes[:place]])
        stranger = next((profile for profile in others if _are_two(scene.profile, profile)), None)
        if stranger is not None:
            heard.append(Heard(scene.name, scene.turns, stranger, scene.truth.without_main()))
    return heard


def _are_two(one: Profile | None, other: Profile | None) -> bool:
    return one is not None and other is not None and float(one.voice @ other.voice) < SAME_VOICE


def note(heard: Heard, settings: MainSpeakerSettings, judge: Judge | None) -> list[Note]:
    """Run the gate over a scene, with the main speaker enrolled and then without, and note what its judge is shown.

    Without an enrolment only where the main speaker leads at first: else another one's profile is the main speaker's.

    Raises:
        RuntimeError: The gate failed on a turn; its own log says why.
    """
    profiles = [] if heard.profile is None else [heard.profile]
    dominant = [None] if heard.truth.main_leads(settings.hold_s) else []
    return [seen for profile in [*profiles, *dominant] for seen in _note(heard, settings, judge, profile)]


def _note(heard: Heard, settings: MainSpeakerSettings, judge: Judge | None, profile: Profile | None) -> Sequence[Note]:
    noting = Noting(heard, profile is not None, judge)
    gate_settings = GateSettings(settings.threshold, settings.min_turn_s, settings.hold_s, settings.overlap)
    gate = MainSpeaker(noting, gate_settings, Mode.SELECTIVE, profile)
    items = [item for turn in heard.turns for item in gate.push(turn)] + list(gate.flush())
    if any(isinstance(item, Withheld) and item.reason is WithholdReason.GATE_ERROR for item in items):
        raise RuntimeError(f"the gate failed on a turn of scene {heard.name}")
    return noting.notes
