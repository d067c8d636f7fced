"""SpeakerTurn -> AdmittedTurn or Withheld: the only door. Nobody but the main speaker passes in selective mode.

Who the main speaker is comes from an enrolment, or else from dominance: who speaks most and loudest (nearest) in the
first `hold_s` of speech. Until that is certain, turns are held, not let out. Everything undecided is withheld, and so
is everything on which the gate itself fails.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from cascade.diarization import UNKNOWN, combine
from cascade.errors import EnrolmentError
from cascade.types import (
    Admission,
    AdmitReason,
    AdmittedTurn,
    Mode,
    SpeakerTurn,
    Vector,
    Withheld,
    WithholdReason,
    seconds,
)

log = logging.getLogger(__name__)

MAIN: Final = "main"
"""Label of the main speaker in everything that leaves the gate."""

RIVAL_WEIGHT: Final = 0.4
"""What similarity to a bystander heard before takes from the evidence; by the same regression as LEVEL_WEIGHT."""

RIVAL_FREE: Final = 0.35
"""Similarity that two different voices may well have; only what is above counts."""

ENROLMENT_WEIGHT: Final = 20.0
"""What the enrolment counts for in the profile, in hops of 0.1 s: two seconds of what is heard weigh as much."""


class OverlapPolicy(StrEnum):
    """What to do where somebody else speaks at the same time."""

    WITHHOLD = "withhold"
    ADMIT_IF_DOMINANT = "admit_if_dominant"


@dataclass(frozen=True, slots=True)
class GateSettings:
    """What the gate goes by.

    threshold: least evidence (similarity to the main speaker's profile, with what the level adds) that passes.
    min_turn_s: shorter turns tell too little. hold_s: speech after which the dominant speaker must be certain.
    learn_margin: the profile learns from turns that pass by this much. always: keep the gate shut in general mode too.
    """

    threshold: float = 0.52
    min_turn_s: float = 0.3
    hold_s: float = 10.0
    overlap: OverlapPolicy = OverlapPolicy.ADMIT_IF_DOMINANT
    learn_margin: float = 0.1
    always: bool = False


PROFILE_MEMORY: Final = 0.995
"""What is left of the profile's past after each hop of 0.1 s: it spans the last 20 s of the main speaker's speech."""

LEVEL_MEMORY: Final = 0.97
"""The same for the level, which follows within about 3 s of speech."""


FAR_DB: Final = 6.0
"""The least that separates a near from a far speaker in SH-Bench's mixing (arXiv 2512.06380, section 3.2)."""

UNHEARD_DB: Final = -FAR_DB
"""How loud a turn is taken to be before the main speaker was heard: a bystander may be the first, or the only one."""


@dataclass(slots=True)
class Profile:
    """The main speaker as known so far: sum of embeddings (dim,), and running level in dB (NaN: not heard yet)."""

    total: Vector
    level_db: float = math.nan

    @property
    def heard(self) -> bool:
        """Whether it is known how loud this speaker is in this recording."""
        return not math.isnan(self.level_db)

    @property
    def caution(self) -> float:
        """What is taken from the evidence as long as the level cannot speak; it says nothing about the voice."""
        return 0.0 if self.heard else -combine(0.0, UNHEARD_DB)

    def evidence(self, turn: SpeakerTurn) -> float:
        """Return the evidence that the turn is this speaker's; NaN if the embedding tells nothing."""
        similarity = self.similarity(turn)
        return combine(similarity, turn.level_db - self.level_db) if self.heard else similarity - self.caution

    def similarity(self, turn: SpeakerTurn) -> float:
        """Return the cosine between the turn's windows and this profile, averaged over the windows."""
        return float(turn.embedding @ self.total / np.linalg.norm(self.total))

    def learn(self, turn: SpeakerTurn) -> None:
        """Take in a turn that is surely this speaker's: the room's sound, and how loud the speaker is now."""
        hops = turn.span.duration_s * 10
        self.total = (self.total * PROFILE_MEMORY**hops + turn.embedding * hops).astype(np.float32)
        pace = 1 - LEVEL_MEMORY**hops
        self.level_db = self.level_db + pace * (turn.level_db - self.level_db) if self.heard else turn.level_db

    def copy(self) -> Profile:
        """Return a profile that learns by itself."""
        return Profile(self.total.copy(), self.level_db)


@dataclass(slots=True)
class _Tally:
    """What was heard of one label: seconds of turns, their energy (seconds times power), sum of embeddings."""

    seconds: float = 0.0
    energy: float = 0.0
    total: Vector | None = None

    def add(self, turn: SpeakerTurn) -> None:
        self.seconds += turn.span.duration_s
        self.energy += turn.span.duration_s * 10 ** (turn.level_db / 10)
        weighted = turn.embedding * np.float32(turn.span.duration_s * 10)
        self.total = weighted if self.total is None else self.total + weighted

    @property
    def level_db(self) -> float:
        """Level in dB, averaged over the time spoken; minus infinity before anything was."""
        return 10 * math.log10(self.energy / self.seconds) if self.energy > 0 else -math.inf

    def profile(self) -> Profile:
        """Return the profile of this label's voice."""
        if self.total is None:
            raise ValueError("a tally without a turn has no profile")
        return Profile(self.total, self.level_db)


class Dominance:
    """Finds the main speaker by speaking time and level, where nobody is enrolled.

    The measure is energy, time spoken times power: the main speaker is near, so twice as near counts as four times as
    long. Once found, the main speaker stays: a bystander who talks alone for minutes does not become one. Only a voice
    that is CHALLENGE_DB louder than the one taken for the main speaker, for twice `hold_s`, shows the choice wrong.
    """

    LEAST_S: Final = 1.5
    """Less speech than this makes nobody the main speaker."""

    LEAD: Final = 2.0
    """Energy that the first must have relative to the second (3 dB), or it is undecided."""

    CHALLENGE_DB: Final = FAR_DB

    def __init__(self, hold_s: float) -> None:
        self._hold_s = hold_s
        self._tallies: dict[str, _Tally] = {}

    def hear(self, turn: SpeakerTurn, label: str) -> None:
        """Count a turn for a label."""
        if label != UNKNOWN:
            self._tallies.setdefault(label, _Tally()).add(turn)

    def leader(self) -> Profile | None:
        """Return the profile of the dominant speaker, None while that is open; it is counted as MAIN from then on."""
        ranking = sorted(self._tallies.items(), key=lambda item: -item[1].energy)
        if not ranking or ranking[0][1].seconds < self.LEAST_S:
            return None
        if len(ranking) > 1 and ranking[0][1].energy < self.LEAD * ranking[1][1].energy:
            return None
        return self._crown(ranking[0][0])

    def challenger(self) -> Profile | None:
        """Return the profile of one who is so much louder for so long that the main speaker was chosen wrongly."""
        main = self._tallies[MAIN]
        for label, tally in self._tallies.items():
            if tally.seconds >= 2 * self._hold_s and tally.level_db >= main.level_db + self.CHALLENGE_DB:
                self._tallies["former main"] = self._tallies.pop(MAIN)
                log.warning(
                    "the main speaker was chosen wrongly: somebody much nearer spoke later, and what was admitted "
                    "until now is a bystander's; enrol the main speaker"
                )
                return self._crown(label)
        return None

    def _crown(self, label: str) -> Profile:
        self._tallies[MAIN] = self._tallies.pop(label)
        return self._tallies[MAIN].profile()


class MainSpeaker:
    """Lets the main speaker's turns through; a Stage[SpeakerTurn, AdmittedTurn | Withheld].

    With an enrolment each turn is decided as it comes. Without one, turns are held for up to `hold_s`, until it is
    certain who the main speaker is.
    """

    def __init__(self, settings: GateSettings, mode: Mode, enrolled: Profile | None = None) -> None:
        self._settings = settings
        self._mode = mode
        self._profile = None if enrolled is None else enrolled.copy()
        self._dominance = None if enrolled is not None else Dominance(settings.hold_s)
        self._held: list[SpeakerTurn] = []
        self._rivals: dict[str, Profile] = {}

    @property
    def lookahead(self) -> int:
        """Nothing with an enrolment; else `hold_s`, counted up to the latest turn: turns are the gate's only clock."""
        return 0 if self._dominance is None else seconds(self._settings.hold_s)

    def push(self, turn: SpeakerTurn, /) -> Sequence[AdmittedTurn | Withheld]:
        """Take a turn; return those that are now decided."""
        self._held.append(turn)
        try:
            self._count(turn)
        except Exception as error:
            return self._fail(error)
        return list(self._release())

    def flush(self) -> Sequence[AdmittedTurn | Withheld]:
        """Decide what is still held with what is known."""
        try:
            if self._profile is None and self._dominance is not None:
                self._profile = self._dominance.leader()
        except Exception as error:
            return self._fail(error)
        held, self._held = self._held, []
        return [self._decide(turn) for turn in held]

    def _count(self, turn: SpeakerTurn) -> None:
        """Let dominance hear the turn, and choose or correct the main speaker when it is time."""
        if self._dominance is None or not np.isfinite(turn.embedding).all():
            return
        if self._profile is None:
            self._dominance.hear(turn, turn.speaker)
            if self._hold_is_over():
                self._profile = self._dominance.leader()
            return
        passes = self._profile.evidence(turn) >= self._settings.threshold
        self._dominance.hear(turn, MAIN if passes else turn.speaker)
        self._profile = self._dominance.challenger() or self._profile

    def _hold_is_over(self) -> bool:
        return self._held[-1].span.end - self._held[0].span.end >= seconds(self._settings.hold_s)

    def _release(self) -> Iterator[AdmittedTurn | Withheld]:
        """Yield what need not be held any longer."""
        while self._held and (self._profile is not None or self._hold_is_over()):
            yield self._decide(self._held.pop(0))

    def _fail(self, error: Exception) -> list[AdmittedTurn | Withheld]:
        """Withhold all that is held, since the gate failed; the error's text is not shown, for what it may hold."""
        log.error("the gate failed with %s; %d turn(s) withheld", type(error).__name__, len(self._held))
        held, self._held = self._held, []
        return [Withheld(turn.span, turn.speaker, WithholdReason.GATE_ERROR) for turn in held]

    def _decide(self, turn: SpeakerTurn) -> AdmittedTurn | Withheld:
        try:
            evidence = self._evidence(turn)
            reason = self._why_not(turn, evidence)
            self._learn(turn, evidence, reason)
        except Exception as error:
            log.error("the gate failed with %s; turn withheld", type(error).__name__)
            return Withheld(turn.span, turn.speaker, WithholdReason.GATE_ERROR)
        if reason is None:
            admission = Admission(self._mode, AdmitReason.MAIN_SPEAKER, evidence, self._settings.threshold)
            return AdmittedTurn(turn.span, MAIN, turn.samples, admission)
        if self._mode is Mode.GENERAL and not self._settings.always:
            admission = Admission(self._mode, AdmitReason.GENERAL_MODE, evidence, self._settings.threshold)
            return AdmittedTurn(turn.span, turn.speaker, turn.samples, admission)
        return Withheld(turn.span, turn.speaker, reason, evidence, self._settings.threshold)

    def _why_not(self, turn: SpeakerTurn, evidence: float) -> WithholdReason | None:
        """Return the reason for withholding the turn, None to admit it. NaN compares false, so it withholds."""
        if not np.isfinite(turn.embedding).all():
            return WithholdReason.NO_EMBEDDING
        if self._profile is None:
            return WithholdReason.UNDECIDED
        if turn.span.duration_s < self._settings.min_turn_s:
            return WithholdReason.TOO_SHORT
        if turn.overlapped and self._settings.overlap is OverlapPolicy.WITHHOLD:
            return WithholdReason.OVERLAPPED
        if not evidence >= self._settings.threshold:
            return WithholdReason.BYSTANDER
        return None

    def _evidence(self, turn: SpeakerTurn) -> float:
        """Return the main speaker's evidence, less what speaks for a bystander who was heard before."""
        if self._profile is None or not np.isfinite(turn.embedding).all():
            return math.nan
        rival = max((rival.similarity(turn) for rival in self._rivals.values()), default=0.0)
        return self._profile.evidence(turn) - RIVAL_WEIGHT * max(0.0, rival - RIVAL_FREE)

    def _learn(self, turn: SpeakerTurn, evidence: float, reason: WithholdReason | None) -> None:
        """Learn the main speaker's voice, and the bystanders', from turns that are clear."""
        lead, margin = evidence - self._settings.threshold, self._settings.learn_margin
        if self._profile is not None and lead >= margin - self._profile.caution:
            self._profile.learn(turn)
        elif self._profile is not None and reason is None and not self._profile.heard:
            self._profile.level_db = turn.level_db
        elif reason is WithholdReason.BYSTANDER and turn.speaker != UNKNOWN and lead <= -margin:
            self._rivals.setdefault(turn.speaker, Profile(np.zeros_like(turn.embedding))).learn(turn)


class Everyone:
    """Admits everyone, labelled as the diarization heard them; a Stage[SpeakerTurn, AdmittedTurn | Withheld]."""

    lookahead = 0

    def __init__(self, mode: Mode) -> None:
        self._mode = mode

    def push(self, turn: SpeakerTurn, /) -> Sequence[AdmittedTurn | Withheld]:
        """Admit the turn."""
        admission = Admission(self._mode, AdmitReason.EVERYONE, math.nan, -math.inf)
        return [AdmittedTurn(turn.span, turn.speaker, turn.samples, admission)]

    def flush(self) -> Sequence[AdmittedTurn | Withheld]:
        """Return nothing: nothing is held."""
        return []


LEAST_ENROLMENT_S: Final = 3.0
"""Seconds of speech below which a profile is too uncertain: it holds four of the encoder's windows side by side."""

SAME_VOICE: Final = 0.82
"""Similarity of two stretches of one voice, each of COMPARED_S at least, that is certain enough.

On twenty synthetic speakers, dry, in a room, and both, the two least alike stretches of one voice were at 0.84 to 0.95;
of thirty pairs of speakers, half of them of one sex, the most alike were at 0.80.
"""

COMPARED_S: Final = 2.0
"""Seconds of speech that a stretch needs to be compared: less varies too much with what is said."""


def enrol(recordings: Sequence[tuple[str, Sequence[SpeakerTurn]]]) -> Profile:
    """Make the main speaker's profile from (name, turns) of one or more recordings of that person alone.

    The shorter the turns, the more surely a second voice is found: within a turn none can be.

    Raises:
        EnrolmentError: A recording is silent or too short, or there are two voices in it, or in all of them together.
    """
    heard = [(name, [turn for turn in turns if np.isfinite(turn.embedding).all()]) for name, turns in recordings]
    for name, turns in heard:
        _check_speech(name, turns)
        _check_one_voice(f"enrolment {name}", turns)
    everything = [turn for _, turns in heard for turn in turns]
    if len(heard) > 1:
        _check_one_voice(f"enrolments {', '.join(name for name, _ in heard)} together", everything)
    total = _sum(everything)
    return Profile((total / np.linalg.norm(total) * ENROLMENT_WEIGHT).astype(np.float32))


def _check_speech(name: str, turns: Sequence[SpeakerTurn]) -> None:
    spoken = _spoken_s(turns)
    if spoken < LEAST_ENROLMENT_S:
        found = f"only {spoken:.1f} s of speech" if spoken else "no speech"
        raise EnrolmentError(
            f"enrolment {name}: {found} found, at least {LEAST_ENROLMENT_S:.0f} s needed; "
            "record the main speaker alone for about 10 s"
        )


def _check_one_voice(what: str, turns: Sequence[SpeakerTurn]) -> None:
    """Compare what comes before each turn with the rest, and each turn with all others."""
    count = len(turns)
    stretches = [(0, index) for index in range(1, count)] + [(index, index + 1) for index in range(count)]
    parts = [(turns[start:end], [*turns[:start], *turns[end:]]) for start, end in stretches]
    similarities = [_similarity(*part) for part in parts if min(map(_spoken_s, part)) >= COMPARED_S]
    if not min(similarities, default=1.0) >= SAME_VOICE:
        raise EnrolmentError(
            f"{what}: more than one voice in it (similarity {min(similarities):.2f}, at least {SAME_VOICE} expected); "
            "record the main speaker alone"
        )


def _spoken_s(turns: Sequence[SpeakerTurn]) -> float:
    return sum(turn.span.duration_s for turn in turns)


def _sum(turns: Sequence[SpeakerTurn]) -> Vector:
    """Return the sum of the turns' embeddings (dim,), weighted by their length."""
    total: Vector = np.sum([turn.embedding * np.float32(turn.span.duration_s) for turn in turns], axis=0)
    return total


def _similarity(some: Sequence[SpeakerTurn], others: Sequence[SpeakerTurn]) -> float:
    """Return the cosine between the mean embeddings of two groups of turns."""
    one, other = _sum(some), _sum(others)
    return float(one @ other / (np.linalg.norm(one) * np.linalg.norm(other)))
