"""SpeakerTurn -> AdmittedTurn or Withheld: the only door. Nobody but the main speaker passes in selective mode.

    turn -> probability every 20 ms (evidence.py) -> pieces -> each admitted or withheld
    turn of the background -> withheld

Who the main speaker is comes from an enrolment, or else from dominance: who speaks most and loudest (nearest) in the
first `hold_s` of speech. Until that is certain, turns are held, not let out. Whether the mixture of a piece goes on, or
what was separated from it, is up to the overlap policy (overlap.py). Everything undecided is withheld, and so is
everything on which the gate itself fails.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from cascade.diarization import UNKNOWN, level_db
from cascade.errors import ConfigError, EnrolmentError
from cascade.evidence import FRAME, REACH, Judge, Known, band_weights, observe
from cascade.overlap import (
    OverlapPolicy,
    foreground_of,
    foreground_parts,
    is_in_foreground,
    is_separated,
    source_turn,
    stretches,
    with_source,
)
from cascade.separation import Encoder
from cascade.types import (
    Admission,
    AdmitReason,
    AdmittedTurn,
    Mode,
    Samples,
    Span,
    SpeakerTurn,
    Vector,
    Withheld,
    WithholdReason,
    seconds,
)

log = logging.getLogger(__name__)

MAIN: Final = "main"
"""Label of the main speaker in everything that leaves the gate."""

ENROLMENT_WEIGHT: Final = 20.0
"""What the enrolment counts for in the profile, in hops of 0.1 s: two seconds of what is heard weigh as much."""


@dataclass(frozen=True, slots=True)
class GateSettings:
    """What the gate goes by.

    threshold: the least probability, that the main speaker speaks, that passes. min_turn_s: shorter turns, and shorter
    pieces of them, tell too little. hold_s: speech after which the dominant speaker must be certain. sure: the profile
    learns from pieces at least so probable, and what is known of bystanders from those as improbable. overlap: what
    goes on where others speak too. always: keep the gate shut in general mode too.
    """

    threshold: float = 0.5
    min_turn_s: float = 0.3
    hold_s: float = 10.0
    overlap: OverlapPolicy = OverlapPolicy.ADMIT_IF_DOMINANT
    sure: float = 0.95
    always: bool = False


PROFILE_MEMORY: Final = 0.995
"""What is left of the profile's past after each hop of 0.1 s: it spans the last 20 s of the main speaker's speech."""

LEVEL_MEMORY: Final = 0.97
"""The same for the level, which follows within about 3 s of speech."""

FAR_DB: Final = 6.0
"""The least that separates a near from a far speaker in SH-Bench's mixing (arXiv 2512.06380, section 3.2)."""

COMPARABLE_S: Final = 1.0
"""Seconds that a turn must last for its voice to be a measure for others': shorter ones vary with what is said."""

CHANGE_COST: Final = 3.0
"""What going from main speaker to bystander, or back, costs within a turn, in natural log-odds of a frame."""

LEAST_PROBABLE: Final = 0.001
"""No frame counts as less probable than this, nor as more probable than the opposite: one alone decides little."""

EARLY: Final = 0.7
"""The least evidence with which a piece passes before its turn has ended; what is less certain waits for the end.

So the enrolment of somebody else lets no more pass than if the end of each turn were waited for.
"""

UNIT: Final = 1.001
"""The largest norm of an embedding that is a mean of unit vectors, rounding allowed for."""


def usable(embedding: Vector) -> bool:
    """Tell whether an embedding (dim,) is a voice: a mean of unit vectors, not NaN, and not nothing."""
    return 0 < float(np.linalg.norm(embedding)) <= UNIT


@dataclass(slots=True)
class Profile:
    """A speaker as known so far: sum of embeddings (dim,), and running level in dB (NaN: not heard yet).

    first (dim,) is the voice as it was known at first, unit norm.
    """

    total: Vector
    level_db: float = math.nan
    first: Vector = field(init=False)

    def __post_init__(self) -> None:
        """Keep the first voice."""
        self.first = self.voice

    @property
    def heard(self) -> bool:
        """Whether it is known how loud this speaker is in this recording."""
        return not math.isnan(self.level_db)

    @property
    def voice(self) -> Vector:
        """Return the mean direction of the embeddings (dim,), unit norm."""
        return (self.total / np.linalg.norm(self.total)).astype(np.float32)

    def learn(self, embedding: Vector, hops: float, level_db: float) -> None:
        """Take in what is surely this speaker's: mean embedding (dim,) of so many hops of 0.1 s, and their level."""
        self.total = (self.total * PROFILE_MEMORY**hops + embedding * hops).astype(np.float32)
        pace = 1 - LEVEL_MEMORY**hops
        self.level_db = self.level_db + pace * (level_db - self.level_db) if self.heard else level_db

    def anew(self) -> Profile:
        """Return a profile that begins with what is known now, and learns by itself."""
        return Profile(self.total.copy(), self.level_db)


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a turn that is the main speaker's or is not: frames [start, end), and how probable it is theirs."""

    start: int
    end: int
    passes: bool
    evidence: float


def pieces(
    probabilities: Vector, threshold: float, before: Sequence[Piece] = (), *, goes_on: bool = False
) -> list[Piece]:
    """Cut a turn by the probabilities of its frames (n_frames,): the most likely sequence where each change costs.

    The evidence of a piece is the probability whose log-odds are the mean of its frames'. So a piece passes where it is
    above the threshold, and what passes at one threshold passes at each lower one. Frames that are NaN never pass: they
    are pieces of their own, whose evidence is NaN.

    The pieces follow those `before`, which were cut from the start of the turn and stay as they are. Of a turn that
    goes on they are those that have ended, whatever its next frames are like.
    """
    first = before[-1].end if before else 0
    odds = _log_odds(probabilities[first:].astype(np.float64))
    least = float(_log_odds(np.array(threshold)))
    unknown = np.isnan(odds)
    states, n_settled = _most_likely(np.where(unknown, -np.inf, odds - least), before[-1].passes if before else None)
    changes = np.flatnonzero(np.diff(states) | np.diff(unknown)) + 1
    borders = [0, *changes.tolist(), len(states)] if len(states) else []
    found = []
    for start, end in itertools.pairwise(borders):
        if goes_on and end >= n_settled:
            break
        evidence = 1 / (1 + math.exp(-float(np.mean(odds[start:end]))))
        passes = bool(states[start]) and evidence >= threshold
        found.append(Piece(first + start, first + end, passes, evidence))
    return found


def _log_odds(probabilities: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    certain = np.clip(probabilities, LEAST_PROBABLE, 1 - LEAST_PROBABLE)
    return np.asarray(np.log(certain / (1 - certain)), np.float64)


def _most_likely(odds: npt.NDArray[np.float64], before: bool | None) -> tuple[npt.NDArray[np.bool_], int]:
    """Return for each frame whether it is the main speaker's: the best path through two states (Viterbi).

    Of paths that are equally good it is the one in which the main speaker speaks least. before is the state of the
    frame before, if there is one. The number is that of the frames that have settled: they are the same whether the
    main speaker speaks in the last frame or not, so whatever follows, they remain.
    """
    main = -CHANGE_COST if before is False else 0.0
    other = -CHANGE_COST if before else 0.0
    was_main: list[tuple[bool, bool]] = []  # whether the frame before is the main speaker's, if this one is not, or is
    for value in odds.tolist():
        was_main.append((main - CHANGE_COST > other, main > other - CHANGE_COST))
        main, other = max(main, other - CHANGE_COST) + value, max(other, main - CHANGE_COST)
    if_main, if_other = _traced(was_main, True), _traced(was_main, False)
    settled = int(np.argmax(np.append(if_main != if_other, True)))
    return if_main if main > other else if_other, settled


def _traced(was_main: Sequence[tuple[bool, bool]], state: bool) -> npt.NDArray[np.bool_]:
    """Return the states (n_frames,) of the best path that ends in a state."""
    states = np.zeros(len(was_main), bool)
    for frame in reversed(range(len(was_main))):
        states[frame] = state
        state = was_main[frame][state]
    return states


@dataclass(frozen=True, slots=True)
class _Begun:
    """A turn that goes on: where it starts, and its pieces that are decided already."""

    start: int = 0
    pieces: tuple[Piece, ...] = ()

    def before(self, turn: SpeakerTurn) -> tuple[Piece, ...]:
        """Return the pieces of a turn that are decided already."""
        return self.pieces if turn.span.start == self.start else ()

    def rest(self, turn: SpeakerTurn) -> Span:
        """Return what is not decided yet of a turn."""
        start = turn.span.start + max((piece.end for piece in self.before(turn)), default=0) * FRAME
        return Span(min(start, turn.span.end), turn.span.end)


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
        if len(ranking) > 1 and not ranking[0][1].energy >= self.LEAD * ranking[1][1].energy:
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
    """Lets the main speaker through; a Stage[SpeakerTurn, AdmittedTurn | Withheld].

    A turn is cut where the main speaker begins or ends in it: its pieces cover it, each once. With an enrolment each
    turn is decided as it comes, and those of its pieces that have ended for certain while it goes on; what is out never
    changes. Without one, turns are held for up to `hold_s`, until it is certain who the main speaker is, and then they
    are decided as a whole.

    What a separator found in the background is nobody's who could be the main speaker: it is decided at once, and tells
    nothing of who is dominant.

    With `overlap: foreground`, the mixture tells whose a piece is, and the foreground goes on, where most of what is
    heard is in it. Who is not in it is not dominant, and teaches nothing of the main speaker.

    With `overlap: separate`, the turn's source stands in for the mixture where others speak. Each such stretch of it is
    judged by itself, as a turn would be, and only what is found to be the main speaker's in it passes.
    """

    def __init__(
        self,
        judge: Judge,
        settings: GateSettings,
        mode: Mode,
        enrolled: Profile | None = None,
        encode: Encoder | None = None,
    ) -> None:
        """Make the stage for one stream.

        Args:
            judge: tells how likely the main speaker speaks.
            settings: what the gate goes by.
            mode: selective or general.
            enrolled: the main speaker's profile; None: whoever is dominant.
            encode: the encoder of the turns' embeddings, to verify sources with.

        Raises:
            ConfigError: `overlap: separate` came without an encoder.
        """
        if settings.overlap is OverlapPolicy.SEPARATE and encode is None:
            raise ConfigError("overlap: separate needs the speaker encoder of the turns, to verify sources; got none")
        self._judge = judge
        self._encode = encode
        self._settings = settings
        self._mode = mode
        self._profile = None if enrolled is None else enrolled.anew()
        self._dominance = None if enrolled is not None else Dominance(settings.hold_s)
        self._held: list[SpeakerTurn] = []
        self._begun = _Begun()
        self._rivals: dict[str, Profile] = {}
        self._loudest_db = -math.inf
        self._most_alike = -math.inf
        self._weights = band_weights()

    @property
    def lookahead(self) -> int:
        """Nothing with an enrolment; else `hold_s`, counted up to the latest turn: turns are the gate's only clock.

        It counts from the end of a turn: a piece that ends within one comes out with it at the latest.
        """
        return 0 if self._dominance is None else seconds(self._settings.hold_s)

    @property
    def similarity_to_enrolment(self) -> float | None:
        """That of the voice as known by now; None where nobody is enrolled, or nothing was learned of the voice yet."""
        if self._dominance is not None or self._profile is None or not self._profile.heard:
            return None
        return float(self._profile.voice @ self._profile.first)

    def push(self, turn: SpeakerTurn, /) -> Sequence[AdmittedTurn | Withheld]:
        """Take a turn; return those that are now decided, of one that goes on the pieces that have ended."""
        if turn.background:
            return [] if turn.goes_on else self._other(turn, turn.span, WithholdReason.BYSTANDER, math.nan)
        if turn.goes_on:
            return self._decide_early(turn)
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
        return [item for turn in held for item in self._decide(turn)]

    def _count(self, turn: SpeakerTurn) -> None:
        """Let dominance hear the turn, and choose or correct the main speaker when it is time.

        Who is not in the foreground could not be the main speaker.
        """
        if self._dominance is None:
            return
        counts = usable(turn.embedding) and math.isfinite(turn.level_db) and not self._is_elsewhere(turn, turn.span)
        if self._profile is None:
            if counts:
                self._dominance.hear(turn, turn.speaker)
            if self._hold_is_over():
                self._profile = self._dominance.leader()
        elif counts:
            self._challenge(turn, self._dominance, self._profile)

    def _challenge(self, turn: SpeakerTurn, dominance: Dominance, profile: Profile) -> None:
        """Count a turn where somebody is the main speaker already, and look whether the choice was wrong."""
        passes = float(np.mean(self._probabilities(turn, profile))) >= self._settings.threshold
        dominance.hear(turn, MAIN if passes else turn.speaker)
        challenger = dominance.challenger()
        if challenger is not None:
            self._profile = challenger
            self._rivals.clear()  # they were told from the wrong one; the challenger is among them
            self._most_alike = -math.inf

    def _hold_is_over(self) -> bool:
        return self._held[-1].span.end - self._held[0].span.end >= seconds(self._settings.hold_s)

    def _release(self) -> Iterator[AdmittedTurn | Withheld]:
        """Yield what need not be held any longer."""
        while self._held and (self._profile is not None or self._hold_is_over()):
            yield from self._decide(self._held.pop(0))

    def _fail(self, error: Exception) -> list[AdmittedTurn | Withheld]:
        """Withhold all that is held, since the gate failed; the error's text is not shown, for what it may hold."""
        log.error("the gate failed with %s; %d turn(s) withheld", type(error).__name__, len(self._held))
        held, self._held = self._held, []
        return [Withheld(turn.span, turn.speaker, WithholdReason.GATE_ERROR) for turn in held]

    def _decide_early(self, turn: SpeakerTurn) -> list[AdmittedTurn | Withheld]:
        """Decide the pieces that have ended of a turn that goes on; what is unclear waits, at the latest for its end.

        Behind the end of a piece all must be known that the judge looks at, or a pause would pass for somebody else.
        Nothing is learned before the end: then each piece teaches once, and by all that was heard of it. Without an
        enrolment the end is waited for: less is known of the main speaker, and a part of a turn then tells less well
        who speaks in it than the whole. So it is where overlap decides: where others speak, and whose source is whose,
        is known at the end.
        """
        if self._dominance is not None or self._profile is None:
            return []
        if turn.speaker == UNKNOWN or self._why_not(turn) is not None:
            return []
        if self._settings.overlap not in (OverlapPolicy.ADMIT_IF_DOMINANT, OverlapPolicy.FOREGROUND):
            return []
        before = self._begun.before(turn)
        try:
            probabilities = self._probabilities(turn, self._profile)
            known = len(probabilities) + len(turn.after) // FRAME - REACH
            ended = pieces(probabilities, self._settings.threshold, before, goes_on=True)
            found = list(itertools.takewhile(lambda piece: piece.end <= known and _is_clear(piece), ended))
            decided = [item for piece in found for item in self._piece(turn, piece)]
        except Exception as error:
            log.error("the gate failed with %s on a turn that goes on; its end is waited for", type(error).__name__)
            return []
        self._begun = _Begun(turn.span.start, (*before, *found))
        return decided

    def _decide(self, turn: SpeakerTurn) -> list[AdmittedTurn | Withheld]:
        try:
            handed = with_source(turn) if self._settings.overlap is OverlapPolicy.SEPARATE else turn
            reason = self._why_not(turn)
            if reason is not None or self._profile is None:
                return self._other(handed, self._begun.rest(turn), reason or WithholdReason.UNDECIDED, math.nan)
            before = self._begun.before(turn)
            found = pieces(self._judged(turn, self._profile), self._settings.threshold, before)
            decided = [item for piece in found for item in self._piece(handed, piece)]
            self._learn(handed, self._profile, [*before, *found])
        except Exception as error:
            log.error("the gate failed with %s; turn withheld", type(error).__name__)
            return [Withheld(self._begun.rest(turn), turn.speaker, WithholdReason.GATE_ERROR)]
        return decided

    def _piece(self, turn: SpeakerTurn, piece: Piece) -> list[AdmittedTurn | Withheld]:
        span = _span_of(turn, piece)
        if not piece.passes:
            reason = WithholdReason.UNVERIFIED if math.isnan(piece.evidence) else WithholdReason.BYSTANDER
            return self._other(turn, span, reason, piece.evidence)
        return [item for part in self._parts(turn, span) for item in self._main(turn, part, piece.evidence)]

    def _main(self, turn: SpeakerTurn, span: Span, evidence: float) -> list[AdmittedTurn | Withheld]:
        """Admit what is found to be the main speaker's, if it is enough, and they are in what goes on."""
        if span.duration_s < self._settings.min_turn_s:
            return self._other(turn, span, WithholdReason.TOO_SHORT, evidence)
        if self._is_elsewhere(turn, span):
            return self._other(turn, span, WithholdReason.UNVERIFIED, evidence)
        admission = Admission(self._mode, AdmitReason.MAIN_SPEAKER, evidence, self._settings.threshold)
        return [AdmittedTurn(span, MAIN, self._handed(turn, span), admission)]

    def _is_of_foreground(self, turn: SpeakerTurn) -> bool:
        """Tell whether of a turn the foreground goes on in place of the mixture."""
        return self._settings.overlap is OverlapPolicy.FOREGROUND and not turn.background

    def _parts(self, turn: SpeakerTurn, span: Span) -> list[Span]:
        """Return the parts of a piece that are looked for in what goes on, each by itself."""
        return foreground_parts(turn, span) if self._is_of_foreground(turn) else [span]

    def _is_elsewhere(self, turn: SpeakerTurn, span: Span) -> bool:
        """Tell whether whom the mixture tells of in a part of a turn is not in the foreground, which would go on."""
        return self._is_of_foreground(turn) and not is_in_foreground(turn, span)

    def _handed(self, turn: SpeakerTurn, span: Span) -> Samples:
        """Return the samples of a part of a turn that go on."""
        return foreground_of(turn, span) if self._is_of_foreground(turn) else _cut(turn.samples, turn, span)

    def _handed_of_anyone(self, turn: SpeakerTurn, span: Span) -> Samples:
        """Return the same where everyone is admitted: the mixture, then, where separation failed."""
        failed = self._is_of_foreground(turn) and not is_separated(turn, span)
        return _cut(turn.samples, turn, span) if failed else self._handed(turn, span)

    def _comes_behind(self, turn: SpeakerTurn, span: Span) -> bool:
        """Tell whether whom the mixture tells of in a part of a turn comes with a turn of the background."""
        return self._is_elsewhere(turn, span) and is_separated(turn, span)

    def _other(
        self, turn: SpeakerTurn, span: Span, reason: WithholdReason, evidence: float
    ) -> list[AdmittedTurn | Withheld]:
        """Withhold what is not the main speaker's, or admit it labelled, where the mode admits everyone.

        What is not in the foreground comes with a turn of the background, then: it is not admitted twice. Where
        separation failed, neither has it, and the mixture goes on: nothing of what everybody may hear is lost.
        """
        if self._mode is Mode.SELECTIVE or self._settings.always:
            return [Withheld(span, turn.speaker, reason, evidence, self._settings.threshold)]
        if self._comes_behind(turn, span):
            return []
        admission = Admission(self._mode, AdmitReason.GENERAL_MODE, evidence, self._settings.threshold)
        return [AdmittedTurn(span, turn.speaker, self._handed_of_anyone(turn, span), admission)]

    def _why_not(self, turn: SpeakerTurn) -> WithholdReason | None:
        """Return the reason for withholding a turn without looking into it, None if there is none."""
        if not usable(turn.embedding):
            return WithholdReason.NO_EMBEDDING
        if self._profile is None:
            return WithholdReason.UNDECIDED
        if not turn.span or turn.span.duration_s < self._settings.min_turn_s:
            return WithholdReason.TOO_SHORT
        if turn.overlapped and self._settings.overlap is OverlapPolicy.WITHHOLD:
            return WithholdReason.OVERLAPPED
        return None

    def _judged(self, turn: SpeakerTurn, profile: Profile) -> Vector:
        """Return how likely the main speaker speaks in what is handed on, for each frame of a turn (n_frames,).

        With `separate` that is the source where others speak, and NaN where it is not verified.
        """
        probabilities = self._probabilities(turn, profile).copy()
        if self._settings.overlap is OverlapPolicy.SEPARATE and self._encode is not None:
            for stretch in stretches(turn):
                start = (stretch.start - turn.span.start) // FRAME
                verified = self._verified(source_turn(turn, stretch, self._encode), stretch, profile)
                probabilities[start : start + len(verified)] = verified
        return probabilities

    def _verified(self, source: SpeakerTurn | None, stretch: Span, profile: Profile) -> Vector:
        """Return how likely the main speaker speaks in a source (n_frames,), NaN where that is not likely enough."""
        verified = np.full(-(-len(stretch) // FRAME), np.nan, np.float32)
        if source is None or not usable(source.embedding) or stretch.duration_s < self._settings.min_turn_s:
            return verified
        probabilities = self._probabilities(source, profile)
        for piece in pieces(probabilities, self._settings.threshold):
            if piece.passes:
                verified[piece.start : piece.end] = probabilities[piece.start : piece.end]
        return verified

    def _probabilities(self, turn: SpeakerTurn, profile: Profile) -> Vector:
        """Return how likely the main speaker speaks, for each frame of a turn (n_frames,).

        Raises:
            ValueError: The turn's level is not a number, or what the judge gives are not so many probabilities.
        """
        if not math.isfinite(turn.level_db):
            raise ValueError("the turn's level is not a number")
        loudest_db = max(self._loudest_db, turn.level_db)
        rivals = [rival.voice for rival in self._rivals.values()]
        known = Known(
            main=profile.voice,
            first=profile.first,
            rivals=np.stack(rivals) if rivals else np.zeros((0, len(profile.total)), np.float32),
            most_alike=self._most_alike,
            level_db=profile.level_db if profile.heard else loudest_db,
            heard=profile.heard,
            enrolled=self._dominance is None,
        )
        seen = observe(turn, known, self._weights)
        probabilities = self._judge(turn, seen)
        if probabilities.shape != (seen.n_frames,) or not ((probabilities >= 0) & (probabilities <= 1)).all():
            raise ValueError(f"the judge must give {seen.n_frames} probabilities")
        return probabilities

    def _learn(self, turn: SpeakerTurn, profile: Profile, found: Sequence[Piece]) -> None:
        """Learn the main speaker's voice, and the bystanders', from pieces that are clear."""
        self._loudest_db = max(self._loudest_db, turn.level_db)
        if turn.span.duration_s >= COMPARABLE_S:
            self._most_alike = max(self._most_alike, float(turn.embedding @ profile.first))
        for piece in found:
            span = _span_of(turn, piece)
            embedding = _embedding_of(turn, piece)
            if span.duration_s < self._settings.min_turn_s or not usable(embedding):
                continue
            if piece.passes and any(self._is_elsewhere(turn, part) for part in self._parts(turn, span)):
                continue
            hops, level = span.duration_s * 10, level_db(_cut(turn.samples, turn, span))
            if piece.passes and (piece.evidence >= self._settings.sure or not profile.heard):
                profile.learn(embedding, hops if piece.evidence >= self._settings.sure else 0.0, level)
            elif piece.evidence <= 1 - self._settings.sure and turn.speaker != UNKNOWN:
                self._learn_rival(turn.speaker, embedding, hops, level)

    def _learn_rival(self, speaker: str, embedding: Vector, hops: float, level: float) -> None:
        if speaker in self._rivals:
            self._rivals[speaker].learn(embedding, hops, level)
        else:
            self._rivals[speaker] = Profile(embedding * np.float32(hops), level)


def _is_clear(piece: Piece) -> bool:
    """Tell whether a piece need not wait for its turn's end."""
    return not piece.passes or piece.evidence >= EARLY


def _span_of(turn: SpeakerTurn, piece: Piece) -> Span:
    start = turn.span.start + piece.start * FRAME
    return Span(start, min(turn.span.start + piece.end * FRAME, turn.span.end))


def _cut(sound: Samples, turn: SpeakerTurn, span: Span) -> Samples:
    """Return what is in a part of a turn's sound: a copy, since a view would hold the rest of the turn."""
    return sound[span.start - turn.span.start : span.end - turn.span.start].copy()


def _embedding_of(turn: SpeakerTurn, piece: Piece) -> Vector:
    """Return the mean embedding (dim,) of the windows in a piece, NaN if they gave none."""
    n_windows, n_frames = len(turn.embeddings), -(-len(turn.samples) // FRAME)
    if not n_windows:
        return turn.embedding
    start, end = piece.start * n_windows // n_frames, -(-piece.end * n_windows // n_frames)
    windows = turn.embeddings[start:end]
    windows = windows[np.isfinite(windows).all(axis=1)]
    return windows.mean(axis=0, dtype=np.float32) if len(windows) else np.full_like(turn.embedding, np.nan)


class Everyone:
    """Admits everyone, labelled as the diarization heard them; a Stage[SpeakerTurn, AdmittedTurn | Withheld].

    Where others speak in a turn that has a source, the source goes on, and nothing verifies whose it is.
    """

    lookahead = 0

    def __init__(self, mode: Mode) -> None:
        self._mode = mode

    def push(self, turn: SpeakerTurn, /) -> Sequence[AdmittedTurn | Withheld]:
        """Admit the turn; one that goes on is waited for."""
        if turn.goes_on:
            return []
        admission = Admission(self._mode, AdmitReason.EVERYONE, math.nan, -math.inf)
        return [AdmittedTurn(turn.span, turn.speaker, with_source(turn).samples, admission)]

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
