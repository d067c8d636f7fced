"""The privacy invariant: in selective mode, nothing of anyone but the main speaker passes the gate.

Not to the recogniser, the answerer, a file, a log, an exception's text or the network; also not when a stage fails
half-way. The canary (tests/canary.py) goes through every file in configs/ that has a gate; those without one have tests
of their own, which show what they are. After it, real speech through real models.
"""

from __future__ import annotations

import copy
import gc
import json
import logging
import math
import os
import pickle
import re
import subprocess
import sys
import traceback
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cascade import provenance
from cascade.answering.questions import question_of
from cascade.audio import open_audio
from cascade.backends import TELEMETRY_OFF
from cascade.config import CascadeConfig, load_config
from cascade.errors import BackendError, CascadeError
from cascade.evidence import Observation
from cascade.gate import GateSettings, MainSpeaker, Profile
from cascade.output.recordings import Heard, write
from cascade.output.report import write_report
from cascade.overlap import OverlapPolicy
from cascade.packaged import data_folder
from cascade.pipeline import Cascade, StageLoader, load_stages
from cascade.rendering import transcript_lines
from cascade.reporting.recordings import recordings_page
from cascade.run import Done
from cascade.settings import MainSpeakerSettings, OpenAISettings, StageMaker, StreamSettings, stages_by_name
from cascade.stage import Chain, Stage
from cascade.types import (
    AdmittedTurn,
    AudioChunk,
    Mode,
    Samples,
    SeparatedChunk,
    Span,
    SpeakerTurn,
    Vector,
    Withheld,
    WithholdReason,
    seconds,
)
from tests.canary import (
    BYSTANDERS_ONLY,
    ENROLMENT,
    SCENE,
    TALKED_OVER,
    Doings,
    Models,
    Parted,
    PitchDiarization,
    PitchEncoder,
    Scene,
    cascade_of,
    decode,
    files_in,
    judge,
    separate_nothing,
    watched,
)
from tests.chat_server import good, prompts_of, serving

ROOT = Path(__file__).parents[1]
TALK = ROOT / "benchmarks" / "talk"
FILES = sorted(data_folder("configs").glob("*.yaml"))
CONFIGS = [path for path in FILES if load_config(path).gated]
UNGUARDED = [path for path in FILES if path not in CONFIGS]
"""Configurations without a gate."""
QUESTIONS = ("What did the doctor say?", "Who was on the phone?", "When does the train leave?")
UNGATED = (AudioChunk, SeparatedChunk, SpeakerTurn)


@pytest.fixture(params=CONFIGS, ids=lambda path: str(path.stem))
def config(request: pytest.FixtureRequest) -> CascadeConfig:
    return load_config(request.param)


@pytest.fixture(params=UNGUARDED, ids=lambda path: str(path.stem))
def unguarded(request: pytest.FixtureRequest) -> CascadeConfig:
    return load_config(request.param)


@pytest.fixture
def enrolled(config: CascadeConfig, tmp_path: Path) -> CascadeConfig:
    return config.with_enrolment([ENROLMENT.write(tmp_path / "me.wav")])


@dataclass
class Seen:
    """All that somebody outside the gate gets to see of one run."""

    transcript: str = ""
    output: bytes = b""
    screen: str = ""
    log: str = ""
    error: str = ""
    recognised: bytes = b""
    doings: Doings = field(default_factory=Doings)

    def leaks(self, scene: Scene = SCENE) -> dict[str, list[str]]:
        """Return what leaked, by where it was seen; nothing if all is well."""
        places: dict[str, bytes | str] = {
            "transcript": self.transcript,
            "output": self.output,
            "screen": self.screen,
            "log": self.log,
            "error": self.error,
            "recogniser": self.recognised,
        }
        return {place: found for place, data in places.items() if (found := scene.leaks(data))}


Run = Callable[..., Seen]


@pytest.fixture
def run(tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Run:
    """Hear a scene, ask questions, show and write the outputs, as `cascade run` does; return all that can be seen."""

    def _run(
        config: CascadeConfig,
        scene: Scene = SCENE,
        models: Models | None = None,
        mode: Mode = Mode.SELECTIVE,
        load: StageLoader | None = None,
    ) -> Seen:
        seen, models = Seen(), models or Models()
        made_with = provenance.gather(config)
        caplog.set_level(logging.DEBUG)
        out = tmp_path / "out"
        out.mkdir()
        with watched() as seen.doings:
            try:
                cascade = cascade_of(config, models, mode, load)
                _hear(cascade, scene)
            except CascadeError as error:
                seen.error = told(error)
            seen.transcript = repr((cascade.transcript, cascade.listening.decisions, cascade.listening))
            heard = _heard(cascade, made_with, mode)
            write(out / "scene", heard)
            write_report(out / "report.html", recordings_page([Done("scene", heard, out / "scene")]))
        seen.screen = "".join(capfd.readouterr())
        seen.output = files_in(out)
        seen.log = "\n".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)
        seen.recognised = b"\0".join(models.recognise.given)
        assert seen.output.count(b"scene/") == 7
        return seen

    return _run


def told(error: BaseException) -> str:
    """Return a traceback as the most talkative tools print it, with the local variables of all of cascade's frames."""
    summary = traceback.TracebackException.from_exception(error, capture_locals=True)
    chain: list[traceback.TracebackException | None] = [summary]
    while (link := chain.pop()) is not None:
        link.stack[:] = [frame for frame in link.stack if Path(frame.filename).is_relative_to(ROOT / "cascade")]
        chain += [None, link.__cause__ or link.__context__]
    return "".join(summary.format())


def _hear(cascade: Cascade, scene: Scene) -> None:
    for _ in cascade.listen(scene.chunks()):
        pass
    for line in transcript_lines(cascade.transcript):
        print(line)
    for question in QUESTIONS:
        print(cascade.ask(question))


def _heard(cascade: Cascade, made_with: provenance.Provenance, mode: Mode) -> Heard:
    return Heard(
        name="scene",
        mode=mode,
        transcript=cascade.transcript,
        decisions=tuple(cascade.listening.decisions),
        answers=tuple((question_of(question), cascade.ask(question)) for question in QUESTIONS),
        performance=cascade.listening.performance,
        lookahead=cascade.lookahead,
        provenance=made_with,
        envelope=cascade.listening.envelope,
    )


def words_of(seen: Seen) -> set[str]:
    return set(re.findall(r"[a-z]+", seen.output.decode()))


# --- the canary can sing ----------------------------------------------------------------------------------------------


def without_gate(config: CascadeConfig) -> CascadeConfig:
    stages = [
        {"use": "everyone"} if isinstance(stage, MainSpeakerSettings) else stage.model_dump() for stage in config.stages
    ]
    return CascadeConfig.model_validate({"stages": stages})


def test_without_the_gate_the_canary_is_heard(config: CascadeConfig, run: Run) -> None:
    """If it were not, the silence of the tests below would prove nothing."""
    seen = run(without_gate(config))
    assert SCENE.canaries <= words_of(seen)
    leaks = seen.leaks()
    assert {"transcript", "output", "screen"} <= set(leaks)
    if not any(stage.by_distance for stage in config.stream):  # the background is not the mixture to the bit
        assert any("audio" in leak for leak in leaks["recogniser"])


def test_in_general_mode_the_canary_is_heard(enrolled: CascadeConfig, run: Run) -> None:
    seen = run(enrolled, mode=Mode.GENERAL)
    assert SCENE.canaries <= words_of(seen)
    assert set(SCENE.main_words) <= words_of(seen)


# --- the canary is silent ---------------------------------------------------------------------------------------------


def test_nothing_leaks_with_an_enrolment(enrolled: CascadeConfig, run: Run) -> None:
    seen = run(enrolled)
    assert seen.leaks() == {}
    assert set(SCENE.main_words) <= words_of(seen)
    assert seen.error == ""


def test_nothing_leaks_without_an_enrolment(config: CascadeConfig, run: Run) -> None:
    """The main speaker is then the one who speaks most and loudest."""
    seen = run(config)
    assert seen.leaks() == {}
    assert set(SCENE.main_words) <= words_of(seen)


def test_nothing_of_a_recording_of_bystanders_passes(enrolled: CascadeConfig, run: Run) -> None:
    seen = run(enrolled, BYSTANDERS_ONLY)
    assert seen.leaks(BYSTANDERS_ONLY) == {}
    assert seen.recognised == b""


def test_the_enrolment_is_not_transcribed(enrolled: CascadeConfig, run: Run) -> None:
    assert not {word for said in ENROLMENT.said for word in said.words} & words_of(run(enrolled))


def test_always_shuts_the_gate_in_general_mode_too(enrolled: CascadeConfig, run: Run) -> None:
    stages = tuple(
        stage.model_copy(update={"always": True}) if isinstance(stage, MainSpeakerSettings) else stage
        for stage in enrolled.stages
    )
    seen = run(enrolled.model_copy(update={"stages": stages}), mode=Mode.GENERAL)
    assert seen.leaks() == {}
    assert set(SCENE.main_words) <= words_of(seen)


def test_nothing_is_written_started_or_connected_but_the_outputs(enrolled: CascadeConfig, run: Run) -> None:
    doings = run(enrolled).doings
    assert doings.sockets == []
    assert doings.programs == []
    elsewhere = [name for name in doings.writes if "/out" not in name and not name.endswith("/null")]
    assert elsewhere == []


# --- a stage fails half-way -------------------------------------------------------------------------------------------


def quote(item: object) -> str:
    """Say what is in an item, as a careless exception might."""
    samples = next((getattr(item, name) for name in ("mixture", "samples") if hasattr(item, name)), np.zeros(0))
    words = " ".join(word for word, _, _ in decode(np.asarray(samples, np.float32)))
    return f"cannot take {item!r}: {words}; {samples!r}; {np.asarray(samples).tobytes()!r}"


def holds_a_canary(quoted: str) -> bool:
    return bool(SCENE.leaks(quoted))


@dataclass(repr=False)
class Failing:
    """A stage that quotes an item when it fails: at once, or when it is flushed."""

    inner: Stage[Any, Any]
    chosen: Callable[[str], bool]
    at_flush: bool
    quoted: str = ""

    @property
    def lookahead(self) -> int | None:
        return self.inner.lookahead

    def push(self, item: Any, /) -> Sequence[Any]:
        if not isinstance(item, Withheld) and self.chosen(quoted := quote(item)):
            self.quoted = quoted
            if not self.at_flush:
                raise RuntimeError(quoted)
        return self.inner.push(item)

    def flush(self) -> Sequence[Any]:
        if self.at_flush and self.quoted:
            raise RuntimeError(self.quoted)
        return self.inner.flush()


def each_stage_of(paths: Sequence[Path], uses: Collection[str] | None = None) -> list[Any]:
    """Return each configuration with each of its stages; with `uses`, of these alone."""
    return [
        pytest.param(path, stage.use, id=f"{path.stem}-{stage.use}")
        for path in paths
        for stage in load_config(path).stream
        if uses is None or stage.use in uses
    ]


def chosen_for(config: CascadeConfig, failing: str) -> Callable[[str], bool]:
    """Return what a stage fails on: up to the gate on a canary; behind it there is none, so there on anything."""
    (stage,) = (stage for stage in config.stream if stage.use == failing)
    return bool if stage.takes is AdmittedTurn else holds_a_canary


def failing_in(models: Models, failing: str, chosen: Callable[[str], bool], at_flush: bool) -> StageLoader:
    """Return what loads the stages around fakes, one of them made to fail."""

    def load(settings: StreamSettings, before: Callable[[], Chain]) -> StageMaker:
        make = models.load(settings, before)
        return make if settings.use != failing else lambda mode: Failing(make(mode), chosen, at_flush)

    return load


@pytest.mark.parametrize("at_flush", [False, True], ids=["half-way", "at the end"])
@pytest.mark.parametrize(("config", "failing"), each_stage_of(CONFIGS), indirect=["config"])
def test_nothing_leaks_when_a_stage_fails(enrolled: CascadeConfig, run: Run, failing: str, at_flush: bool) -> None:
    models = Models()
    seen = run(enrolled, models=models, load=failing_in(models, failing, chosen_for(enrolled, failing), at_flush))
    assert f"the stage '{failing}' failed with RuntimeError at test_privacy.py" in seen.error
    assert seen.leaks() == {}


HEARING = {"online_clustering": "detect", "sepformer": "separate", "foreground": "detect", "pyannote": "diarize"}
"""Stages with a model that hears what has not passed the gate, and the model's name; the encoder is another one, and
what the network in `foreground` hears is not the very samples, so that no byte of it would tell."""


def test_all_stages_with_a_model_before_the_gate_are_known() -> None:
    stages = {use for use, stage in stages_by_name().items() if stage.takes in UNGATED}
    assert stages - {"mixture", "loudest_source", "main_speaker", "everyone"} == set(HEARING)


Failure = Callable[[Samples], BaseException | None]


def models_that_fail(stage: str, failure: Failure) -> Models:
    """Return fakes; a stage's model fails with what `failure` makes of the samples that it is given, if it does."""
    models, model = Models(), HEARING[stage]
    works: dict[str, Callable[[Samples], Any]] = {
        "detect": models.detect,
        "separate": models.separate,
        "diarize": PitchDiarization(),
    }

    def failing(samples: Samples) -> Any:
        error = failure(samples)
        if error is not None:
            raise error
        return works[model](samples)

    setattr(models, model, failing)
    return models


@pytest.mark.parametrize(("config", "stage"), each_stage_of(CONFIGS, HEARING), indirect=["config"])
def test_nothing_leaks_when_a_model_fails(enrolled: CascadeConfig, run: Run, stage: str) -> None:
    def failure(samples: Samples) -> BaseException | None:
        heard = samples.reshape(-1)
        return RuntimeError(quote(AudioChunk(Span(0, len(heard)), heard))) if SCENE.leaks(heard.tobytes()) else None

    seen = run(enrolled, models=models_that_fail(stage, failure))
    assert "failed with RuntimeError" in seen.error
    assert seen.leaks() == {}


def test_nothing_leaks_when_the_encoder_fails(enrolled: CascadeConfig, run: Run) -> None:
    @dataclass(frozen=True)
    class FailingEncoder:
        window: int = PitchEncoder.window

        def __call__(self, samples: Samples, /) -> Any:
            if SCENE.leaks(samples.tobytes()):
                raise MemoryError(quote(AudioChunk(Span(0, len(samples)), samples)))
            return PitchEncoder()(samples)

    seen = run(enrolled, models=Models(encode=FailingEncoder()))
    assert "failed with MemoryError" in seen.error
    assert seen.leaks() == {}


NONSENSE = [
    pytest.param(np.full(16, np.nan), id="nan"),
    pytest.param(np.full(16, np.inf), id="infinite"),
    pytest.param(np.zeros(16), id="zero"),
    pytest.param(np.ones(3), id="short"),
    pytest.param(np.ones((2, 8)), id="matrix"),
]


@pytest.mark.parametrize("wrong", NONSENSE)
def test_nothing_leaks_when_the_encoder_is_at_a_loss(enrolled: CascadeConfig, run: Run, wrong: Any) -> None:
    """It gives nonsense for the bystanders; with the main speaker's own profile known."""

    @dataclass(frozen=True)
    class LostEncoder:
        window: int = PitchEncoder.window

        def __call__(self, samples: Samples, /) -> Any:
            embedding = PitchEncoder()(samples)
            bystander = embedding[2] == 0
            return wrong.astype(np.float32) if bystander else embedding

    assert run(enrolled, models=Models(encode=LostEncoder())).leaks() == {}


@pytest.mark.parametrize(("config", "stage"), each_stage_of(CONFIGS, HEARING), indirect=["config"])
def test_ctrl_c_shows_nothing(enrolled: CascadeConfig, stage: str) -> None:
    later = Scene(SCENE.said[3:], SCENE.seed)  # what is said first has come out until then, whatever the lookahead

    def interrupted(samples: Samples) -> BaseException | None:
        return KeyboardInterrupt() if later.leaks(samples.tobytes()) else None

    cascade = cascade_of(enrolled, models_that_fail(stage, interrupted))
    with pytest.raises(KeyboardInterrupt) as caught:
        list(cascade.listen(SCENE.chunks()))
    assert SCENE.leaks("".join(traceback.format_exception(caught.value))) == []
    assert SCENE.leaks(repr(cascade.transcript)) == []
    streams = cascade.lookahead is not None
    assert ("boston" in cascade.transcript.text) is streams, "what was said before is kept, unless nothing was yet"


# --- a chat server behind the gate ------------------------------------------------------------------------------------


@dataclass
class Asked:
    """What a server on this machine got to see: every byte that it was sent; and all else that was done."""

    log: bytes
    prompts: list[str]
    doings: Doings
    error: str = ""


def ask_a_server(config: CascadeConfig, load: StageLoader, scene: Scene = SCENE) -> Asked:
    """Hear a scene and ask questions, of OpenAI's real client, that a server on this machine answers."""
    pytest.importorskip("openai", reason="the extra `chat` is not installed: asking a server needs openai")
    (settings,) = (stage for stage in config.stages if isinstance(stage, OpenAISettings))
    with serving(lambda received: good("I don't know.")) as server:
        answerer = settings.model_copy(update={"base_url": server.url}).load()
        cascade, error = Cascade(load_stages(config, Mode.SELECTIVE, load), answerer), ""
        with watched(urlsplit(server.url).port) as doings:
            try:
                list(cascade.listen(scene.chunks()))
            except CascadeError as failure:
                error = str(failure)
            for question in QUESTIONS:
                cascade.ask(question)
        del cascade, answerer
        gc.collect()  # the client closes its connections when it goes
        return Asked(bytes(server.log), prompts_of(server.received), doings, error)


ASKING = [path for path in CONFIGS if isinstance(load_config(path).answerer, OpenAISettings)]
"""Configurations with a gate that ask a server."""


@pytest.mark.parametrize("config", ASKING, indirect=True, ids=lambda path: str(path.stem))
def test_a_server_is_sent_what_the_main_speaker_said_and_nothing_else(enrolled: CascadeConfig) -> None:
    asked = ask_a_server(enrolled, Models().load)
    assert SCENE.leaks(asked.log) == []
    assert len(asked.prompts) == len(QUESTIONS)
    assert all(word in prompt for prompt in asked.prompts for word in SCENE.main_words)
    assert asked.doings.served > 0
    assert asked.doings.sockets == []


@pytest.mark.parametrize("at_flush", [False, True], ids=["half-way", "at the end"])
@pytest.mark.parametrize(("config", "failing"), each_stage_of(ASKING), indirect=["config"])
def test_a_server_is_sent_nothing_of_a_failing_stage(enrolled: CascadeConfig, failing: str, at_flush: bool) -> None:
    asked = ask_a_server(enrolled, failing_in(Models(), failing, chosen_for(enrolled, failing), at_flush))
    assert "failed with RuntimeError" in asked.error
    assert SCENE.leaks(asked.log) == []
    assert len(asked.prompts) == len(QUESTIONS)
    assert asked.doings.sockets == []


# --- configurations without a gate ------------------------------------------------------------------------------------


def test_without_a_gate_whoever_is_loudest_is_transcribed_and_sent(unguarded: CascadeConfig, run: Run) -> None:
    """In selective mode too: all that keeps a bystander from the answerer is that the main speaker is louder."""
    seen = run(unguarded, BYSTANDERS_ONLY)
    assert BYSTANDERS_ONLY.canaries <= words_of(seen)
    assert {"transcript", "output", "screen", "recogniser"} <= set(seen.leaks(BYSTANDERS_ONLY))


def test_without_a_gate_a_server_is_sent_what_bystanders_say(unguarded: CascadeConfig) -> None:
    """It also shows that the server's log, in which the tests above find no canary, would show one."""
    asked = ask_a_server(unguarded, Models().load, BYSTANDERS_ONLY)
    assert {word for word in BYSTANDERS_ONLY.leaks(asked.log) if "audio" not in word} == BYSTANDERS_ONLY.canaries
    assert asked.doings.sockets == []


def test_without_a_gate_a_bystander_is_kept_out_by_separation_alone(unguarded: CascadeConfig, run: Run) -> None:
    seen = run(unguarded)
    assert seen.leaks() == {}
    assert set(SCENE.main_words) <= words_of(seen)


def test_without_a_gate_bad_separation_sends_everyone(unguarded: CascadeConfig, run: Run) -> None:
    seen = run(unguarded, models=Models(separate=separate_nothing))
    assert SCENE.canaries <= words_of(seen)


def test_without_a_gate_everyone_is_admitted_and_none_is_verified(unguarded: CascadeConfig) -> None:
    cascade = cascade_of(unguarded, Models())
    list(cascade.listen(SCENE.chunks()))
    assert cascade.listening.decisions
    assert {decision.reason for decision in cascade.listening.decisions} == {"everyone"}
    assert cascade.transcript.withheld == ()


@pytest.mark.parametrize("path", UNGUARDED, ids=lambda path: str(path.stem))
@pytest.mark.parametrize("command", [("check",), ("run", "nofile.wav")], ids=lambda command: str(command[0]))
def test_without_a_gate_the_command_line_warns(path: Path, command: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cascade", *command, "--config", str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "this configuration has no gate: everyone is admitted, in selective mode too" in (
        " ".join((done.stdout + done.stderr).split())
    )


@pytest.mark.parametrize(("unguarded", "failing"), each_stage_of(UNGUARDED), indirect=["unguarded"])
def test_without_a_gate_a_failure_still_quotes_nothing(unguarded: CascadeConfig, run: Run, failing: str) -> None:
    models = Models(separate=separate_nothing)
    seen = run(unguarded, models=models, load=failing_in(models, failing, bool, False))
    assert "failed with RuntimeError" in seen.error
    assert not {"error", "log"} & set(seen.leaks())


# --- where two speak at once ------------------------------------------------------------------------------------------

ONLINE = """
stages:
  - use: {first}
  - use: online_clustering
  - use: main_speaker
    overlap: separate
  - use: faster_whisper
  - use: extractive
"""


@pytest.fixture(params=["sepformer_pyannote_gate_whisper_gpt4o", "foreground", "sepformer first", "foreground first"])
def separating(request: pytest.FixtureRequest, tmp_path: Path) -> CascadeConfig:
    """A configuration that hands on sources where two speak, or everywhere, with an enrolment."""
    name, *first = request.param.split()
    if first:
        (tmp_path / "online.yaml").write_text(ONLINE.format(first=name))
    config = load_config(tmp_path / "online.yaml" if first else name)
    assert config.gate is not None
    own = OverlapPolicy.FOREGROUND if request.param == "foreground" else OverlapPolicy.SEPARATE
    assert config.gate.overlap is own
    return config.with_enrolment([ENROLMENT.write(tmp_path / "me.wav")])


def test_where_two_speak_the_main_speakers_words_come_through_alone(separating: CascadeConfig, run: Run) -> None:
    seen = run(separating, TALKED_OVER, Models(separate=Parted(TALKED_OVER)))
    assert seen.leaks(TALKED_OVER) == {}
    assert set(TALKED_OVER.main_words) <= words_of(seen)


def test_sources_that_are_swapped_where_two_speak_let_nobody_else_through(separating: CascadeConfig, run: Run) -> None:
    """What the main speaker says there is lost with them; what is said alone is not."""
    seen = run(separating, TALKED_OVER, Models(separate=Parted(TALKED_OVER, swaps=True)))
    assert seen.leaks(TALKED_OVER) == {}
    assert {"train", "boston", "ferry", "jacket", "station", "nine"} <= words_of(seen)
    assert "UNVERIFIED" in seen.transcript


def test_without_verification_swapped_sources_let_the_canary_through(separating: CascadeConfig, run: Run) -> None:
    """Else the test above would prove nothing of the gate."""
    seen = run(without_gate(separating), TALKED_OVER, Models(separate=Parted(TALKED_OVER, swaps=True)))
    assert {"biopsy", "lawyer"} <= words_of(seen)


def test_where_separation_fails_what_others_speak_over_is_withheld(separating: CascadeConfig, run: Run) -> None:
    def fail(windows: Samples) -> Samples:
        return separate_nothing(windows) * np.float32(np.nan)

    seen = run(separating, TALKED_OVER, Models(separate=fail))
    assert seen.leaks(TALKED_OVER) == {}
    assert "UNVERIFIED" in seen.transcript


@pytest.mark.parametrize("times", [-1.0, -4.0, 20.0, 1e30])
def test_a_background_that_is_no_part_of_what_is_heard_makes_no_bystander_louder(
    times: float, run: Run, tmp_path: Path
) -> None:
    """What the background leaves of the mixture would hold the bystander more loudly than the mixture does."""

    def wrong(windows: Samples) -> Samples:
        return Parted(TALKED_OVER)(windows) * np.array([[1.0], [times]], np.float32)

    config = load_config("foreground").with_enrolment([ENROLMENT.write(tmp_path / "me.wav")])
    seen = run(config, TALKED_OVER, Models(separate=wrong))
    assert seen.leaks(TALKED_OVER) == {}
    assert "UNVERIFIED" in seen.transcript


def test_a_failure_on_the_enrolment_quotes_nothing(config: CascadeConfig, tmp_path: Path) -> None:
    def load(settings: StreamSettings, before: Callable[[], Chain]) -> StageMaker:
        make = Models().load(settings, before)
        return lambda mode: Failing(make(mode), bool, False)

    first = config.stream[0].use
    with pytest.raises(
        BackendError, match=f"^the stage '{first}' failed with RuntimeError at test_privacy.py"
    ) as error:
        load_stages(config.with_enrolment([ENROLMENT.write(tmp_path / "me.wav")]), Mode.SELECTIVE, load)
    assert error.value.__cause__ is None
    assert error.value.__context__ is None


def test_in_general_mode_everyone_comes_through_once_whoever_talks_over_whom(run: Run, tmp_path: Path) -> None:
    config = load_config("foreground").with_enrolment([ENROLMENT.write(tmp_path / "me.wav")])
    cascade = cascade_of(config, Models(separate=Parted(TALKED_OVER)), Mode.GENERAL)
    for _ in cascade.listen(TALKED_OVER.chunks()):
        pass
    said: dict[str, list[str]] = {"main": [], "background": []}
    for utterance in cascade.transcript.utterances:
        said[utterance.speaker] += utterance.text.split()
    assert said["main"] == TALKED_OVER.main_words
    assert said["background"] == [word for one in TALKED_OVER.said if one.speaker != "main" for word in one.words]


# --- what has not passed the gate stays where it is -------------------------------------------------------------------


@pytest.fixture
def ungated(enrolled: CascadeConfig) -> list[Any]:
    """All items in front of the gate, of one run."""
    items: list[Any] = []

    @dataclass
    class Tap:
        inner: Stage[Any, Any]

        @property
        def lookahead(self) -> int | None:
            return self.inner.lookahead

        def push(self, item: Any, /) -> Sequence[Any]:
            items.append(item)
            return self.inner.push(item)

        def flush(self) -> Sequence[Any]:
            return self.inner.flush()

    models = Models()

    def load(settings: StreamSettings, before: Callable[[], Chain]) -> StageMaker:
        make = models.load(settings, before)
        return lambda mode: Tap(make(mode))

    list(cascade_of(enrolled, models, load=load).listen(SCENE.chunks()))
    found = [item for item in items if isinstance(item, UNGATED)]
    assert {type(item) for item in found} == set(UNGATED)
    return found


def test_ungated_speech_cannot_be_serialised_or_copied(ungated: list[Any]) -> None:
    ways: list[Callable[[Any], object]] = [
        *(partial(pickle.dumps, protocol=protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)),
        copy.copy,
        copy.deepcopy,
        json.dumps,
        lambda item: pickle.dumps([item]),
        lambda item: copy.deepcopy({"item": item}),
    ]
    for item in {type(item): item for item in ungated}.values():
        for way in ways:
            with pytest.raises(TypeError) as caught:
                way(item)
            assert SCENE.leaks(str(caught.value)) == []


def test_ungated_speech_shows_nothing_of_itself(ungated: list[Any]) -> None:
    shown = " ".join(f"{item} {item!r} {item:} {[item]}" for item in ungated)
    assert SCENE.leaks(shown) == []
    assert "array" not in shown
    assert not re.search(r"speaker_\d", shown)


def test_a_running_stream_cannot_be_pickled(enrolled: CascadeConfig) -> None:
    cascade = cascade_of(enrolled, Models())
    for chunk in SCENE.chunks():
        cascade.listening.push(chunk)
    for thing in (cascade, cascade.listening):
        with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
            pickle.dumps(thing)


# --- the gate fails closed --------------------------------------------------------------------------------------------

DIM = 8
VOICE = np.eye(DIM, dtype=np.float32)[0]
SETTINGS = GateSettings()

numbers = st.floats(width=32, allow_nan=True, allow_infinity=True)
durations = st.integers(1, seconds(3))


@st.composite
def turns(draw: st.DrawFn, embedding: st.SearchStrategy[np.ndarray[Any, Any]]) -> SpeakerTurn:
    """Return any turn with an embedding of the kind."""
    start, length = draw(st.integers(0, seconds(100))), draw(durations)
    span = Span(start, start + length)
    return SpeakerTurn(
        span=span,
        speaker=draw(st.sampled_from(["main", "speaker_1", "speaker_2", "unknown", ""])),
        samples=np.zeros(length, np.float32),
        embedding=draw(embedding),
        level_db=draw(numbers),
        overlaps=draw(st.sampled_from([(), (span,)])),
    )


def vectors(elements: st.SearchStrategy[float], dim: int = DIM) -> st.SearchStrategy[np.ndarray[Any, Any]]:
    return st.lists(elements, min_size=dim, max_size=dim).map(lambda values: np.array(values, np.float32))


def some_nan(vector: np.ndarray[Any, Any], place: int) -> np.ndarray[Any, Any]:
    spoilt = vector.copy()
    spoilt[place] = np.nan
    return spoilt


WITH_NAN = st.builds(some_nan, vectors(st.floats(-1, 1, width=32)), st.integers(0, DIM - 1))
BELOW = vectors(st.floats(-1, 1, width=32)).map(lambda vector: below(vector))
WRONG_SHAPE = st.one_of(*(vectors(st.floats(-1, 1, width=32), dim) for dim in (0, 1, 2, DIM + 1, 256)))


def below(vector: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a unit vector whose similarity to VOICE is under the threshold; `judge` goes by that alone."""
    rest = vector.copy()
    rest[0] = 0
    norm = np.linalg.norm(rest)
    rest = rest / norm if norm > 1e-3 else np.eye(DIM, dtype=np.float32)[1]
    similarity = np.float32(min(float(vector[0]), SETTINGS.threshold - 0.01))
    unit: np.ndarray[Any, Any] = (similarity * VOICE + np.sqrt(1 - similarity**2) * rest).astype(np.float32)
    return unit


def gate(mode: Mode = Mode.SELECTIVE, settings: GateSettings = SETTINGS) -> MainSpeaker:
    return MainSpeaker(judge, settings, mode, Profile(VOICE * np.float32(20), -20.0))


def let_through(stage: MainSpeaker, given: Sequence[SpeakerTurn]) -> list[AdmittedTurn | Withheld]:
    with np.errstate(all="ignore"):
        return [*(item for turn in given for item in stage.push(turn)), *stage.flush()]


def test_the_gate_of_these_tests_does_open() -> None:
    turn = SpeakerTurn(Span(0, seconds(1)), "speaker_1", np.zeros(seconds(1), np.float32), VOICE, -20.0)
    (item,) = let_through(gate(), [turn])
    assert isinstance(item, AdmittedTurn)


@given(st.lists(turns(WITH_NAN), max_size=5))
def test_a_turn_without_a_proper_embedding_is_withheld(given_turns: list[SpeakerTurn]) -> None:
    decided = let_through(gate(), given_turns)
    assert [item.span for item in decided] == [turn.span for turn in given_turns]
    assert all(isinstance(item, Withheld) and item.reason is WithholdReason.NO_EMBEDDING for item in decided)


@given(st.lists(turns(BELOW), max_size=8))
def test_a_turn_below_the_threshold_is_withheld(given_turns: list[SpeakerTurn]) -> None:
    decided = let_through(gate(), given_turns)
    assert len(decided) == len(given_turns)
    assert all(isinstance(item, Withheld) for item in decided)


@given(st.one_of(WITH_NAN, BELOW, WRONG_SHAPE), st.integers(1, seconds(1)), st.sampled_from(Mode))
def test_a_source_of_anybody_else_is_withheld(voice: np.ndarray[Any, Any], length: int, mode: Mode) -> None:
    """Also in a turn that is surely the main speaker's, over all of which another speaks."""

    class Hears:
        window = 400

        def __call__(self, samples: Samples, /) -> np.ndarray[Any, Any]:
            return voice

    span, sound = Span(0, length), np.full(length, 0.1, np.float32)
    turn = SpeakerTurn(span, "speaker_1", sound, VOICE, -20.0, (span,), sound)
    shut = replace(SETTINGS, overlap=OverlapPolicy.SEPARATE, always=True)
    stage = MainSpeaker(judge, shut, mode, Profile(VOICE * np.float32(20), -20.0), Hears())
    assert all(isinstance(item, Withheld) for item in let_through(stage, [turn]))


@given(st.lists(turns(vectors(st.floats(-1, 1, width=32))), max_size=4), st.sampled_from(Mode), st.booleans())
def test_nobody_in_the_background_is_let_through(given_turns: list[SpeakerTurn], mode: Mode, known: bool) -> None:
    """Whatever voice it has, also the main speaker's own."""
    for policy in OverlapPolicy:
        shut = replace(SETTINGS, overlap=policy, always=True)
        profile = Profile(VOICE * np.float32(20), -20.0) if known else None
        stage = MainSpeaker(judge, shut, mode, profile, PitchEncoder())
        decided = let_through(stage, [replace(turn, background=True) for turn in given_turns])
        assert [item.span for item in decided] == [turn.span for turn in given_turns]
        assert all(isinstance(item, Withheld) and item.reason is WithholdReason.BYSTANDER for item in decided)


@given(st.lists(turns(WRONG_SHAPE), max_size=4))
def test_what_makes_the_gate_fail_is_withheld(given_turns: list[SpeakerTurn]) -> None:
    decided = let_through(gate(), given_turns)
    assert len(decided) == len(given_turns)
    assert all(isinstance(item, Withheld) for item in decided)


@given(st.lists(turns(st.one_of(WITH_NAN, BELOW, WRONG_SHAPE)), max_size=6))
@settings(max_examples=50)
def test_always_shuts_in_general_mode_as_well(given_turns: list[SpeakerTurn]) -> None:
    decided = let_through(gate(Mode.GENERAL, replace(SETTINGS, always=True)), given_turns)
    assert all(isinstance(item, Withheld) for item in decided)


@given(st.lists(turns(vectors(numbers)), max_size=6))
def test_whatever_comes_each_turn_is_decided_once_and_nan_admits_nobody(given_turns: list[SpeakerTurn]) -> None:
    decided = let_through(gate(), given_turns)
    assert [item.span for item in decided] == [turn.span for turn in given_turns]
    for item in decided:
        if isinstance(item, AdmittedTurn):
            assert item.admission.evidence >= item.admission.threshold == SETTINGS.threshold
            assert not math.isnan(item.admission.evidence)


@given(st.lists(turns(st.one_of(WITH_NAN, WRONG_SHAPE)), max_size=6))
@settings(max_examples=50)
def test_without_a_main_speaker_nobody_passes(given_turns: list[SpeakerTurn]) -> None:
    ordered = sorted(given_turns, key=lambda turn: turn.span)
    decided = let_through(MainSpeaker(judge, SETTINGS, Mode.SELECTIVE), ordered)
    assert len(decided) == len(ordered)
    assert not any(isinstance(item, AdmittedTurn) for item, turn in zip(decided, ordered, strict=True) if _odd(turn))


def _odd(turn: SpeakerTurn) -> bool:
    return not turn.embedding.size or bool(np.isnan(turn.embedding).any())


def broken(turn: SpeakerTurn, seen: Observation) -> Vector:
    """Fail, and quote the turn that it failed on."""
    raise RuntimeError(f"biopsy {turn.samples.tobytes()!r} {seen.features.tolist()}")


def test_an_exception_inside_the_gate_withholds_and_is_not_quoted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    span = Span(seconds(3.6), seconds(5.6))
    turn = SpeakerTurn(span, "speaker_1", SCENE.audio[span.start : span.end], VOICE, -20.0)
    (item,) = let_through(MainSpeaker(broken, SETTINGS, Mode.SELECTIVE, Profile(VOICE)), [turn])
    assert isinstance(item, Withheld)
    assert item.reason is WithholdReason.GATE_ERROR
    assert "RuntimeError" in caplog.text
    assert SCENE.leaks(caplog.text + str([record.__dict__ for record in caplog.records])) == []


# --- real speech, real models -----------------------------------------------------------------------------------------

PRIVATE = r"biopsy|tumor|kidney|wife|cancer|insurance|claim|reject|fifteen|thousand|surgery|account|number|chemo|boss"
SHARED = ("boston", "platform", "80", "daniel", "green van", "jacket", "ferry", "italian", "linda", "camera")


@pytest.fixture(scope="module")
def real() -> Cascade:
    """The on-device cascade, having heard the recording of the README."""
    config = load_config("ondevice").with_enrolment([TALK / "enrolment.flac"])
    cascade = Cascade.load(config)
    with watched() as doings:
        for _ in cascade.listen(open_audio(TALK / "talk.flac")):
            pass
        cascade.ask("When does the train leave?")
    assert doings == Doings()
    return cascade


def test_what_the_bystander_says_is_nowhere(real: Cascade, tmp_path: Path) -> None:
    made_with = provenance.gather(load_config("ondevice"))
    write(tmp_path / "talk", replace(_heard(real, made_with, Mode.SELECTIVE), name="talk"))
    seen = files_in(tmp_path)
    seen += repr((real.transcript, real.listening.decisions, [real.ask(question) for question in QUESTIONS])).encode()
    assert re.findall(PRIVATE, seen.decode(), re.IGNORECASE) == []


def test_what_the_main_speaker_says_is_there(real: Cascade) -> None:
    text = real.transcript.text.lower()
    assert [fact for fact in SHARED if fact not in text] == []


def test_questions_about_the_bystander_find_nothing(real: Cascade) -> None:
    for question in ("What did the doctor say about the tumor?", "What is the account number?"):
        answer = real.ask(question)
        assert re.findall(PRIVATE, f"{answer.text} {answer.why}", re.IGNORECASE) == []


GUARDED = """
import os, sys
reached, written = [], []
PROBE = ("socket.bind", (("::1", 0),))
def guard(event, arguments):
    # urllib3, which WordLlama's imports bring along, asks by a socket that it binds to ::1 whether there is IPv6.
    if event.startswith("socket.") and event != "socket.__new__" and (event, arguments[1:]) != PROBE:
        reached.append(event)
        raise ConnectionError(event)
    if event == "open" and (set(arguments[1] or "") & set("wax+") or (arguments[2] or 0) & 3):
        written.append(str(arguments[0]))
    if event in ("subprocess.Popen", "os.system", "os.posix_spawn", "os.mkdir", "os.rename"):
        written.append(event)
sys.addaudithook(guard)

from cascade import Cascade, load_config, open_audio
from pathlib import Path

talk = Path(sys.argv[1])
cascade = Cascade.load(load_config("ondevice").with_enrolment([talk / "enrolment.flac"]))
for chunk in open_audio(talk / "talk.flac"):
    if chunk.span.end_s > 9:
        break
    cascade.listening.push(chunk)
cascade.listening.flush()
print(cascade.ask("When does the train leave?").text)
sockets = [fd for fd in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + fd)
           and os.readlink("/proc/self/fd/" + fd).startswith("socket:")] if os.path.isdir("/proc/self/fd") else []
print("reached", reached, "open", sockets)
print("written", [name for name in written if name != os.devnull])
"""


def test_the_real_cascade_reaches_for_no_network_and_writes_nothing(tmp_path: Path) -> None:
    """In a process of its own, so that what a library does when it is imported is seen as well."""
    # On a build server some libraries keep quiet by themselves.
    quiet = "HF_|TRANSFORMERS_|PYANNOTE_|RAY_|ORT_|DO_NOT_TRACK|CI$|.*BUILD|GITHUB_|GITLAB_|XDG_"
    online = {key: value for key, value in os.environ.items() if not re.match(quiet, key)}
    done = subprocess.run(
        [sys.executable, "-c", GUARDED, str(TALK)],
        env={**online, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answer, reached, written = done.stdout.splitlines()
    assert "train" in answer
    assert reached == "reached [] open []"
    assert written == "written []"
    # What is written by other means than Python's, such as onnxruntime's device id, would lie here.
    assert list(tmp_path.iterdir()) == []
    assert done.stderr == ""


def test_telemetry_is_off_before_a_library_is_imported() -> None:
    show = "import os; from cascade.backends import TELEMETRY_OFF; print(TELEMETRY_OFF.items() <= os.environ.items())"
    on = dict.fromkeys(TELEMETRY_OFF, "")
    done = subprocess.run(
        [sys.executable, "-c", show], env={**os.environ, **on}, cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout == "True\n"
    assert {"ORT_DISABLE_TELEMETRY", "PYANNOTE_METRICS_ENABLED", "HF_HUB_DISABLE_TELEMETRY"} <= set(TELEMETRY_OFF)
