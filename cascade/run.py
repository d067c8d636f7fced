"""The work of `cascade run`: hear recordings one after the other, ask the questions, write the outputs.

One bad recording does not stop the others, and what is finished stays when the work is interrupted. A question that
fails costs neither the transcript nor the other answers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from cascade.answering.prompts import load_prompt
from cascade.audio import open_audio
from cascade.check import examine
from cascade.config import CascadeConfig
from cascade.enrolling import who_was_missed
from cascade.errors import CascadeError, ConfigError, NoMoreAnswersError, NotReadyError
from cascade.output.recordings import Heard, plan_folders, recording_name, write
from cascade.packaged import data_folder
from cascade.pipeline import Cascade, guarded
from cascade.provenance import Provenance, gather
from cascade.types import Answer, AudioChunk, Mode, Question

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Done:
    """A recording that was heard: what came of it, and the folder that it was written to, if any.

    unanswered: for each question that has no answer, why.
    """

    recording: str
    heard: Heard
    folder: Path | None
    unanswered: Sequence[CascadeError] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """A recording that could not be heard or written, and the one line that says why; heard is what is not lost."""

    recording: str
    error: CascadeError
    heard: Heard | None = None


Loader = Callable[[CascadeConfig, Mode], Cascade]
"""Loads a cascade's models for a mode."""


def _load(config: CascadeConfig, mode: Mode) -> Cascade:
    return Cascade.load(config, mode=mode)


def run(
    config: CascadeConfig,
    recordings: Sequence[str],
    questions: Sequence[Question],
    *,
    mode: Mode,
    out: Path | None,
    watch: Callable[[str, AudioChunk], None],
    kept: bool = False,
    load: Loader = _load,
) -> Iterator[Done | Failed]:
    """Yield what came of each recording, in order.

    Everything that can be known to be wrong is said before the first is heard. `watch` is told of every chunk. When
    nothing more is answered, the transcripts of all recordings are still made where they are kept, that is with `out`,
    or by the caller, who then says `kept`; else nothing more is heard.

    Errors: ConfigError, NotReadyError, EnrolmentError, OutputError.
    """
    if questions and config.answerer is None:
        raise ConfigError(
            "questions were asked, but the configuration has no answerer; add 'use: extractive' at its end"
        )
    folders = [None] * len(recordings) if out is None else plan_folders(out, recordings)
    problems = examine(config, recordings).problems
    if problems:
        raise NotReadyError([str(problem) for problem in problems])
    cascade = load(config, mode)
    provenance = gather(config)
    questions = [replace(question, prompt=question.prompt or _prompt(question, mode)) for question in questions]
    for recording, folder in zip(recordings, folders, strict=True):
        heard, unanswered = None, list[CascadeError]()
        try:
            heard, unanswered = guarded("hearing it", partial(_hear, cascade, recording, questions, watch, provenance))
            if folder is not None:
                guarded(f"writing '{folder}'", partial(write, folder, heard))
        except CascadeError as error:
            yield Failed(recording, error, heard)
        else:
            yield Done(recording, heard, folder, unanswered)
        if folder is None and not kept and any(isinstance(error, NoMoreAnswersError) for error in unanswered):
            return  # it was heard for the answers


def _prompt(question: Question, mode: Mode) -> str:
    """Return what a chat model is told in a mode: in selective mode, to keep bystanders' privacy as well."""
    name = f"{mode}.txt" if question.options else f"open_{mode}.txt"
    return load_prompt(data_folder("configs") / "prompts" / name).bind("")


def _hear(
    cascade: Cascade,
    recording: str,
    questions: Sequence[Question],
    watch: Callable[[str, AudioChunk], None],
    provenance: Provenance,
) -> tuple[Heard, list[CascadeError]]:
    """Hear a recording and ask about it; return what came of it, and why questions have no answer."""

    def watched() -> Iterator[AudioChunk]:
        for chunk in open_audio(recording):
            watch(recording, chunk)
            yield chunk

    with _warnings() as warnings:
        for _ in cascade.listen(watched()):
            pass  # the driver keeps what comes out
        for line in who_was_missed(provenance.config, cascade.listening):
            log.warning("%s: %s", recording_name(recording), line)
        before = cascade.spent
        answers, unanswered = _ask(cascade, questions)
        after = cascade.spent
    heard = Heard(
        name=recording_name(recording),
        mode=cascade.mode,
        transcript=cascade.transcript,
        decisions=tuple(cascade.listening.decisions),
        envelope=cascade.listening.envelope,
        answers=answers,
        performance=cascade.listening.performance,
        lookahead=cascade.lookahead,
        provenance=provenance,
        spent=None if before is None or after is None else after - before,
        warnings=warnings,
    )
    return heard, unanswered


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """Note each line that cascade warns of meanwhile, once; whoever listens to its log hears it as well.

    No such line holds speech, as of all that is logged.
    """
    lines: list[str] = []
    noting = _Noting(lines)
    logger = logging.getLogger("cascade")
    logger.addHandler(noting)
    try:
        yield lines
    finally:
        logger.removeHandler(noting)


class _Noting(logging.Handler):
    """Notes what is logged as a warning or worse."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if line not in self._lines:
            self._lines.append(line)


def _ask(cascade: Cascade, questions: Sequence[Question]) -> tuple[list[tuple[Question, Answer]], list[CascadeError]]:
    """Return the questions that have an answer, with it, and why the others have none."""
    answers, unanswered = list[tuple[Question, Answer]](), list[CascadeError]()
    for question in questions:
        try:
            answers.append((question, cascade.ask(question)))
        except CascadeError as error:
            unanswered.append(error)
    return answers, unanswered
