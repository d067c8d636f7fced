"""The work of `cascade enrol`: hear somebody alone and keep the embedding; and whether an enrolment still fits.

Nothing of the recordings is kept. They are heard by the stages in front of the gate, as in a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

from cascade.check import examine
from cascade.config import CascadeConfig
from cascade.errors import ConfigError, EnrolmentError, NotReadyError
from cascade.output.enrolments import Enrolments, anew
from cascade.pipeline import Cascade, Listening, StageLoader, guarded, load_stages
from cascade.settings import D_VECTOR, MainSpeakerSettings, kept_of
from cascade.stage import Chain
from cascade.types import AdmitReason, Mode

OLD_DAYS: Final = 365
"""Age from which a kept enrolment is said to be old: voices change, though over years rather than months."""

DRIFTED: Final = {D_VECTOR: 0.78}
"""By encoder, the similarity of what a gate learned in a recording to the enrolment below which that has drifted.

On nine recordings (eight two-speaker scenes and benchmarks/talk), each with the main speaker's own enrolment, it was
0.80 to 0.93, and 0.81 to 0.90 for voices moved by 4 % in pitch and formants where they still passed. Where somebody
else's enrolment let a main speaker through for ten seconds or more, once in 72 pairs, it was 0.775. A voice that sounds
still less alike does not pass at all, so that nothing is learned.
"""


def enrol(
    config: CascadeConfig,
    recordings: Sequence[Path],
    name: str,
    *,
    replace: bool,
    today: date,
    store: Enrolments | None = None,
    load: StageLoader = lambda settings, before: settings.load(before),
) -> Path:
    """Hear recordings of one person alone, keep the embedding under a name, and return its file.

    Errors: ConfigError, NotReadyError, EnrolmentError, OutputError.
    """
    store = store or Enrolments.usual()
    store.check_free(name, replace=replace)
    ears, gate = _as_far_as_the_gate(config, [path.absolute() for path in recordings])
    if problems := examine(ears).problems:
        raise NotReadyError([str(problem) for problem in problems])
    encoder = ears.encoder
    if encoder is None:
        raise ConfigError("no stage of this configuration makes embeddings of voices; nothing can be enrolled with it")
    makers = load_stages(ears.model_copy(update={"stages": ears.stages[:-1]}), Mode.SELECTIVE, load)
    hear = partial(gate.hear, lambda: Chain([make(Mode.SELECTIVE) for _, make in makers]))
    profile, speech_s = guarded("hearing the enrolment", hear)
    return store.keep(name, kept_of(profile, speech_s, encoder, today), replace=replace)


def _as_far_as_the_gate(config: CascadeConfig, recordings: Sequence[Path]) -> tuple[CascadeConfig, MainSpeakerSettings]:
    """Return the configuration up to its gate, which is to hear these recordings, and the gate."""
    stages = config.with_enrolment(recordings).stages
    place, gate = next((at, stage) for at, stage in enumerate(stages) if isinstance(stage, MainSpeakerSettings))
    return config.model_copy(update={"stages": stages[: place + 1]}), gate


@runtime_checkable
class Learns(Protocol):
    """A gate that learns. None: nobody is enrolled, or too little was learned to tell."""

    similarity_to_enrolment: float | None


class Watch:
    """Whether an enrolment still fits what is heard with it: `load` in a run, `note` after each recording."""

    def __init__(self, config: CascadeConfig) -> None:
        self._config = config
        self._cascade: Cascade | None = None
        self._passed: list[bool] = []
        self._similarities: list[float] = []

    def load(self, config: CascadeConfig, mode: Mode) -> Cascade:
        """Load a cascade, to look at what its gate learns."""
        self._cascade = Cascade.load(config, mode=mode)
        return self._cascade

    def note(self) -> None:
        """Note what became of the recording that was heard last."""
        if self._cascade is not None:
            self.look_at(self._cascade.listening)

    def look_at(self, heard: Listening) -> None:
        """Note whether the enrolled voice passed, if anybody spoke at all, and what the gate learned of it."""
        if heard.decisions:
            self._passed.append(any(turn.reason == AdmitReason.MAIN_SPEAKER for turn in heard.decisions))
        for _, stage in heard.stages:
            if isinstance(stage, Learns) and stage.similarity_to_enrolment is not None:
                self._similarities.append(stage.similarity_to_enrolment)

    def warnings(self, today: date) -> Iterator[str]:
        """Yield at most one line: the enrolment does not fit what was heard, or is old; with what to do."""
        gate = self._config.gate
        if gate is None or not gate.enrolment:
            return
        try:
            path, kept, encoder = gate.enrolment[0], gate.kept, self._config.encoder
        except EnrolmentError:
            return  # it could be used when the run began, and has been forgotten since
        fix = "record the main speaker anew, alone" if kept is None else anew(path)
        limit = -1.0 if encoder is None else DRIFTED.get(encoder.name, -1.0)
        least = min(self._similarities, default=1.0)
        if self._passed and not any(self._passed):
            yield (
                f"the voice of the enrolment '{path.stem}' was not heard at all; if that person spoke, the voice, the "
                f"microphone or the room is another one; {fix}"
            )
        elif least < limit:
            yield (
                f"the main speaker who was heard is less like the enrolment '{path.stem}' than usual (similarity "
                f"{least:.2f}, expected {limit} at least): another voice, microphone or room; {fix}"
            )
        elif kept is not None and (today - kept.made).days > OLD_DAYS:
            yield f"the enrolment '{path.stem}' is older than a year (made {kept.made}); {fix}"
