"""The work of `cascade enrol`: hear somebody alone and keep the embedding; and whether the main speaker was found.

Nothing of the recordings is kept. They are heard by the stages in front of the gate, as in a run.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import date
from functools import partial
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

from cascade.check import examine
from cascade.config import CascadeConfig
from cascade.errors import ConfigError, EnrolmentError, NotReadyError
from cascade.output.enrolments import Enrolments, KeptEnrolment, anew, check_dimension
from cascade.pipeline import Listening, StageLoader, guarded, load_stages
from cascade.settings import D_VECTOR, MainSpeakerSettings, kept_of, published_encoders
from cascade.stage import Chain
from cascade.types import AdmitReason, Mode, WithholdReason

log = logging.getLogger(__name__)

OLD_DAYS: Final = 365
"""Age from which a kept enrolment is said to be old: voices change, though over years rather than months."""

DRIFTED: Final = {D_VECTOR: 0.78}
"""By encoder, the similarity of what a gate learned in a recording to the enrolment below which that has drifted.

On 72 synthetic scenes, each with the main speaker's own enrolment, it was 0.87 at least where the gate learned
anything. A voice that sounds much less alike does not pass at all, so that nothing is learned.
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
    store.check_writable()
    store.warn_if_open()
    store.clear()
    ears, gate = _as_far_as_the_gate(config, recordings)
    if problems := examine(ears).problems:
        raise NotReadyError([str(problem) for problem in problems])
    encoder = ears.encoder
    if encoder is None:
        raise ConfigError("no stage of this configuration makes embeddings of voices; nothing can be enrolled with it")
    makers = load_stages(ears.model_copy(update={"stages": ears.stages[:-1]}), Mode.SELECTIVE, load)
    hear = partial(gate.hear, lambda: Chain([make(Mode.SELECTIVE) for _, make in makers]))
    profile, speech_s = guarded("hearing the enrolment", hear)
    return store.keep(name, kept_of(profile, speech_s, encoder, today), replace=replace)


def listed(store: Enrolments) -> Iterator[tuple[str, KeptEnrolment | EnrolmentError]]:
    """Yield the name of each enrolment that is kept, with what is kept, or why it cannot be used.

    What was being written when its process was killed is deleted, and said in the log. Errors: OutputError.
    """
    store.warn_if_open()
    for path in store.clear():
        log.warning("deleted '%s', in which an enrolment was being written when its process was killed", path)
    encoders = published_encoders()
    for name in store.names():
        try:
            kept = store.read(name)
            check_dimension(store.file(name), kept, encoders)
        except EnrolmentError as error:
            yield name, error
        else:
            yield name, kept


def _as_far_as_the_gate(config: CascadeConfig, recordings: Sequence[Path]) -> tuple[CascadeConfig, MainSpeakerSettings]:
    """Return the configuration up to its gate, which is to hear these recordings, and the gate.

    They are recordings as they were given, also where one is called as an enrolment that is kept.
    """
    stages = config.with_enrolment([]).stages  # refuses one without a gate
    place, gate = next((at, stage) for at, stage in enumerate(stages) if isinstance(stage, MainSpeakerSettings))
    gate = gate.model_copy(update={"enrolment": tuple(recordings)})
    return config.model_copy(update={"stages": (*stages[:place], gate)}), gate


@runtime_checkable
class Learns(Protocol):
    """A gate that learns. None: nobody is enrolled, or too little was learned to tell."""

    similarity_to_enrolment: float | None


def who_was_missed(config: CascadeConfig, heard: Listening) -> Iterator[str]:
    """Yield at most one line on a recording, with what to do.

    It says that nobody speaks in it, that nobody was let through, or that who was does not fit the enrolment.
    """
    gate = config.gate
    if not heard.decisions:
        yield "no speech was found in it; if somebody speaks there, the recording is too quiet or too noisy"
    if gate is None or not heard.decisions:
        return
    passed = any(turn.reason == AdmitReason.MAIN_SPEAKER for turn in heard.decisions)
    if gate.enrolment:
        yield from _misfit(config, gate, heard, passed=passed)
    elif not passed and any(turn.reason == WithholdReason.UNDECIDED for turn in heard.decisions):
        yield "nobody dominated, so nobody was taken for the main speaker; tell whom to hear with --enrolment"


def _misfit(config: CascadeConfig, gate: MainSpeakerSettings, heard: Listening, *, passed: bool) -> Iterator[str]:
    try:
        path, kept, encoder = gate.enrolment[0], gate.kept, config.encoder
    except EnrolmentError:
        return  # it could be used when the run began, and has been forgotten since
    fix = "record the main speaker anew, alone" if kept is None else anew(path)
    who = ", ".join(f"'{name}'" for name in gate.enrolled)
    limit = -1.0 if encoder is None else DRIFTED.get(encoder.name, -1.0)
    learned = [stage.similarity_to_enrolment for _, stage in heard.stages if isinstance(stage, Learns)]
    least = min((similarity for similarity in learned if similarity is not None), default=1.0)
    if not passed:
        yield (
            f"the voice of the enrolment {who} was not heard at all; if that person spoke, the voice, the "
            f"microphone or the room is another one (a telephone's narrow band, say); {fix}"
        )
    elif least < limit:
        yield (
            f"the main speaker who was heard is less like the enrolment {who} than usual (similarity "
            f"{least:.2f}, expected {limit} at least): another voice, microphone or room; {fix}"
        )


def old_enrolment(config: CascadeConfig, today: date) -> Iterator[str]:
    """Yield at most one line: the enrolment is old; with what to do."""
    gate = config.gate
    if gate is None or not gate.enrolment:
        return
    with suppress(EnrolmentError):  # as above
        path, kept = gate.enrolment[0], gate.kept
        if kept is not None and (today - kept.made).days > OLD_DAYS:
            yield f"the enrolment '{path.stem}' is older than a year (made {kept.made}); {anew(path)}"
