"""Recordings heard one after the other and asked about, when questions fail or nothing more is answered."""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from cascade.answering.questions import question_of
from cascade.answering.spending import Spent
from cascade.config import CascadeConfig, load_config
from cascade.envelope import CELL
from cascade.errors import BackendError, NoMoreAnswersError
from cascade.pipeline import Cascade, Decision
from cascade.reporting.recordings import recordings_page
from cascade.run import Done, Failed, Loader, run
from cascade.types import Answer, Mode, Outcome, Question, Span, Transcript
from tests import tone_benchmark as tones
from tests.canary import BYSTANDERS_ONLY, ENROLMENT, SCENE, Models, cascade_of

QUESTIONS = [question_of("Who?"), question_of("Where?")]


@pytest.fixture
def recordings(tmp_path: Path) -> list[Path]:
    tones.write(tmp_path / "data", recordings=3)
    return [tmp_path / "data" / "folder" / f"scene {number}.wav" for number in range(3)]


def loader(fails: Callable[[int], BackendError | None]) -> Loader:
    """Return what loads a cascade around fakes; its answerer fails at the questions of these numbers, from 1."""

    class Answerer:
        asked = 0

        def answer(self, question: Question, transcript: Transcript) -> Answer:
            self.asked += 1
            if error := fails(self.asked):
                raise error
            return Answer(f"answer {self.asked}", Outcome.ANSWERED)

    def _load(config: CascadeConfig, mode: Mode) -> Cascade:
        return Cascade(cascade_of(config, Models(), mode)._stages, Answerer(), mode=mode)

    return _load


def ran(recordings: Sequence[Path], out: Path | None, load: Loader, *, kept: bool = False) -> list[Done | Failed]:
    config = tones.config_of(recordings[0].parents[1])
    paths = [str(path) for path in recordings]
    results = run(
        config,
        paths,
        QUESTIONS,
        mode=Mode.SELECTIVE,
        out=out,
        watch=lambda recording, chunk: None,
        kept=kept,
        load=load,
    )
    return list(results)


def admitted(result: Done) -> list[Decision]:
    return [turn for turn in result.heard.decisions if turn.admitted]


def answers(result: Done | Failed) -> list[str]:
    assert isinstance(result, Done)
    return [answer.text for _, answer in result.heard.answers]


def unanswered(results: Sequence[Done | Failed]) -> list[list[str]]:
    return [list(map(str, result.unanswered)) for result in results if isinstance(result, Done)]


def no_more(after: int) -> Loader:
    return loader(lambda number: NoMoreAnswersError("no quota") if number > after else None)


def test_when_nothing_more_is_answered_nothing_more_is_heard(recordings: list[Path]) -> None:
    recordings[2].unlink()  # opening it would be a Failed
    results = ran(recordings, None, no_more(3))
    assert [answers(result) for result in results] == [["answer 1", "answer 2"], ["answer 3"]]
    assert unanswered(results) == [[], ["no quota"]]


def test_transcripts_that_are_kept_are_still_made(recordings: list[Path], tmp_path: Path) -> None:
    results = ran(recordings, tmp_path / "out", no_more(3))
    assert unanswered(results) == [[], ["no quota"], ["no quota"] * 2]
    ran(recordings, tmp_path / "all", loader(lambda number: None))
    for number, answered in enumerate((2, 1, 0)):
        mine, other = (tmp_path / out / f"scene {number}" for out in ("out", "all"))
        assert (mine / "transcript.json").read_bytes() == (other / "transcript.json").read_bytes()
        assert tones.MAIN_WORDS[number] in (mine / "transcript.json").read_text()
        lines = (mine / "answers.jsonl").read_text().splitlines()
        assert [json.loads(line)["question"] for line in lines] == [question.text for question in QUESTIONS[:answered]]


def test_recordings_are_heard_to_the_last_where_the_caller_keeps_their_transcripts(recordings: list[Path]) -> None:
    results = ran(recordings, None, no_more(3), kept=True)
    assert unanswered(results) == [[], ["no quota"], ["no quota"] * 2]


def test_it_is_noted_how_loud_what_was_admitted_is_and_nothing_else(recordings: list[Path]) -> None:
    (result, *_) = ran(recordings, None, loader(lambda number: None))
    assert isinstance(result, Done)
    assert max(result.heard.envelope.peaks.values()) > 0.05
    loud = [cell for cell, peak in result.heard.envelope.peaks.items() if peak > 0.05]
    for cell in loud:
        assert any(Span(cell * CELL, (cell + 1) * CELL).overlaps(turn.span) for turn in admitted(result))


def test_a_question_that_fails_costs_neither_transcript_nor_other_answers(
    recordings: list[Path], tmp_path: Path
) -> None:
    results = ran(recordings, tmp_path / "out", loader(lambda number: BackendError("long") if number == 3 else None))
    assert unanswered(results) == [[], ["long"], []]
    assert answers(results[1]) == ["answer 4"]
    assert len((tmp_path / "out" / "scene 1" / "answers.jsonl").read_text().splitlines()) == 1
    assert len(ran(recordings, None, loader(lambda number: BackendError("long")))) == 3


def test_a_recording_that_cannot_be_heard_does_not_stop_the_others(recordings: list[Path]) -> None:
    recordings[1].write_bytes(b"this is no recording" * 100)
    results = ran(recordings, None, loader(lambda number: None))
    assert [type(result) for result in results] == [Done, Failed, Done]
    assert answers(results[2]) == ["answer 3", "answer 4"]


def test_what_each_recordings_answers_took_is_told_apart(recordings: list[Path], tmp_path: Path) -> None:
    class Paid:
        spent = Spent(cost=0.0)

        def answer(self, question: Question, transcript: Transcript) -> Answer:
            self.spent = self.spent + Spent(requests=1, answered=1, prompt_tokens=self.spent.requests, cost=0.5)
            return Answer("Yes.", Outcome.ANSWERED)

    def _load(config: CascadeConfig, mode: Mode) -> Cascade:
        return Cascade(cascade_of(config, Models(), mode)._stages, Paid(), mode=mode)

    spent = [result.heard.spent for result in ran(recordings, tmp_path / "out", _load) if result.heard is not None]
    assert [(one.requests, one.prompt_tokens, one.cost) for one in spent if one] == [(2, 1, 1), (2, 5, 1), (2, 9, 1)]
    assert all(result.heard.spent is None for result in ran(recordings, None, no_more(9)) if result.heard is not None)


# --- warnings ---------------------------------------------------------------------------------------------------------


def summary_of(result: Done | Failed) -> Any:
    assert isinstance(result, Done)
    assert result.folder is not None
    return json.loads((result.folder / "summary.json").read_text())


def test_what_is_warned_of_while_a_recording_is_heard_is_in_its_summary_and_on_its_page(
    recordings: list[Path], tmp_path: Path
) -> None:
    line = "the main speaker was chosen wrongly: enrol <the main speaker>"

    def _warns(number: int) -> BackendError | None:
        if number in (3, 4):  # both questions on the second recording
            logging.getLogger("cascade.gate").warning("the main speaker was %s: %s", "chosen wrongly", line[37:])
        return None

    results = ran(recordings, tmp_path / "out", loader(_warns))
    assert [summary_of(result)["warnings"] for result in results] == [[], [line], []]
    assert [result.heard.warnings for result in results if result.heard is not None] == [[], [line], []]
    assert recordings_page(results).count("chosen wrongly: enrol &lt;the main speaker&gt;</p>") == 1
    assert not any("run" in type(handler).__module__ for handler in logging.getLogger("cascade").handlers)


def test_a_recording_that_is_withheld_whole_has_its_own_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = load_config("ondevice.yaml").with_enrolment([ENROLMENT.write(tmp_path / "me.wav")])
    scenes = {"both.wav": SCENE, "other.wav": BYSTANDERS_ONLY, "third.wav": BYSTANDERS_ONLY}
    results = list(
        run(
            config,
            [str(scene.write(tmp_path / name)) for name, scene in scenes.items()],
            [],
            mode=Mode.SELECTIVE,
            out=tmp_path / "out",
            watch=lambda recording, chunk: None,
            load=lambda config, mode: cascade_of(config, Models(), mode),
        )
    )
    said = "the voice of the enrolment 'me.wav' was not heard at all; if that person spoke, "
    warned = [summary_of(result)["warnings"] for result in results]
    assert warned[0] == []
    assert [line.startswith(f"{name}: {said}") for name, (line,) in zip(list(scenes)[1:], warned[1:], strict=True)] == [
        True,
        True,
    ]
    assert [record.getMessage() for record in caplog.records if said in record.getMessage()] == [*warned[1], *warned[2]]


def test_what_cannot_be_written_is_one_line_and_costs_neither_what_was_heard_nor_the_others(
    recordings: list[Path], tmp_path: Path
) -> None:
    """An answerer whose cost no JSON can hold, which no check foresees."""

    class Endless:
        spent = Spent(cost=0.0)

        def answer(self, question: Question, transcript: Transcript) -> Answer:
            self.spent = Spent(requests=self.spent.requests + 1, cost=math.inf if self.spent.requests < 2 else 1.0)
            return Answer("Yes.", Outcome.ANSWERED)

    def _load(config: CascadeConfig, mode: Mode) -> Cascade:
        return Cascade(cascade_of(config, Models(), mode)._stages, Endless(), mode=mode)

    first, *_, last = ran(recordings, tmp_path / "out", _load)
    assert isinstance(first, Failed)
    assert re.fullmatch("writing '.*scene 0' failed with ValueError at .*", str(first.error))
    assert first.heard is not None
    assert [answer.text for _, answer in first.heard.answers] == ["Yes.", "Yes."]
    assert isinstance(last, Done)
