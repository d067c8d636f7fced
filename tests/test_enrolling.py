"""Enrolling under a name, around fakes that hear the tone code of tests/canary.py; whether an enrolment still fits."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cascade.config import CascadeConfig, load_config
from cascade.enrolling import DRIFTED, OLD_DAYS, enrol, listed, old_enrolment, who_was_missed
from cascade.errors import ConfigError, EnrolmentError, NotReadyError, OutputError
from cascade.output.enrolments import EncoderVersion, Enrolments, KeptEnrolment
from cascade.pipeline import Cascade, Decision, Listening
from cascade.settings import D_VECTOR, MainSpeakerSettings, StageMaker, StreamSettings, kept_of, profile_of
from cascade.stage import Chain
from cascade.types import AdmitReason, AudioChunk, Mode, Span, WithholdReason
from tests.canary import BYSTANDERS_ONLY, ENROLMENT, SCENE, Models, Scene, cascade_of

CONFIG = load_config("ondevice.yaml")
TODAY = date(2026, 11, 30)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return ENROLMENT.write(tmp_path / "alone.wav")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Enrolments:
    monkeypatch.setenv("CASCADE_ENROLMENTS", str(tmp_path / "kept"))
    return Enrolments.usual()


@pytest.fixture
def mine(recording: Path, store: Enrolments) -> Path:
    return enrolled(recording)


def enrolled(recording: Path, *, config: CascadeConfig = CONFIG, replace: bool = False, today: date = TODAY) -> Path:
    return enrol(config, [recording], "me", replace=replace, today=today, load=Models().load)


def heard(config: CascadeConfig, scene: Scene, mode: Mode = Mode.SELECTIVE) -> Cascade:
    cascade = cascade_of(config, Models(), mode)
    for _ in cascade.listen([AudioChunk(Span(0, len(scene.audio)), scene.audio)]):
        pass
    return cascade


# --- keeping ----------------------------------------------------------------------------------------------------------


def test_the_embedding_is_kept_and_nothing_of_the_audio(recording: Path, mine: Path, store: Enrolments) -> None:
    kept = store.read("me")
    assert (kept.made, kept.encoder.name) == (TODAY, "d-vector-ge2e")
    assert 3 < kept.speech_s < len(ENROLMENT.audio) / 16_000
    assert [path for path in store.folder.rglob("*") if path.is_file()] == [mine]
    # As many numbers as the embedding has, and none of them from the audio.
    assert kept.encoder.dimension == len(kept.embedding) == 256
    assert not {float(sample) for sample in ENROLMENT.audio} & set(kept.embedding) - {0.0}


def test_a_name_admits_what_its_recording_admits(recording: Path, mine: Path) -> None:
    by_name, by_file = (heard(CONFIG.with_enrolment([given]), SCENE) for given in ("me", recording))
    assert by_name.listening.decisions == by_file.listening.decisions
    assert by_name.transcript == by_file.transcript
    assert any(decision.admitted for decision in by_name.listening.decisions)
    assert not all(decision.admitted for decision in by_name.listening.decisions)


def test_a_profile_comes_back_as_it_was(recording: Path) -> None:
    hearing = Models()
    stages = [hearing.load(stage, Chain) for stage in CONFIG.stream[:2]]  # type: ignore[arg-type]
    gate = MainSpeakerSettings(use="main_speaker", enrolment=(recording,))
    profile, speech_s = gate.hear(lambda: Chain([make(Mode.SELECTIVE) for make in stages]))
    back = profile_of(kept_of(profile, speech_s, EncoderVersion(name="tones", sha256="ab" * 32), TODAY))
    assert back.total.dtype == profile.total.dtype == np.float32
    np.testing.assert_array_equal(back.total, profile.total)
    assert np.isnan([back.level_db, profile.level_db]).all()


def test_only_the_stages_in_front_of_the_gate_are_loaded(recording: Path, store: Enrolments) -> None:
    models, loaded = Models(), list[str]()

    def load(settings: StreamSettings, before: Any) -> StageMaker:
        loaded.append(settings.use)
        return models.load(settings, before)

    enrol(CONFIG, [recording], "me", replace=False, today=TODAY, load=load)
    assert loaded == ["mixture", "online_clustering"]


def test_a_taken_name_is_refused_before_anything_is_heard(recording: Path, mine: Path) -> None:
    before = mine.read_bytes()
    with pytest.raises(EnrolmentError, match="add --replace"):
        enrol(CONFIG, [recording], "me", replace=False, today=TODAY, load=lambda *_: pytest.fail("it was heard"))
    assert mine.read_bytes() == before
    assert enrolled(recording, replace=True, today=TODAY + timedelta(1)) == mine
    assert mine.read_bytes() != before


def test_a_place_that_cannot_be_written_is_said_before_anything_is_heard(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CASCADE_ENROLMENTS", str(recording))
    with pytest.raises(OutputError, match=r"alone.wav cannot be written: .*; set CASCADE_ENROLMENTS"):
        enrol(CONFIG, [recording], "me", replace=False, today=TODAY, load=lambda *_: pytest.fail("it was heard"))


def test_what_is_kept_is_listed_with_what_is_wrong(
    mine: Path, store: Enrolments, caplog: pytest.LogCaptureFixture
) -> None:
    short = json.loads(mine.read_text())
    short["encoder"]["dimension"], short["embedding"] = 2, [0.6, 0.8]
    store.keep("short", KeptEnrolment.model_validate_json(json.dumps(short)), replace=False)
    left = store.folder / ".me.x.partial"
    left.touch()
    store.folder.chmod(0o755)
    (name, kept), (damaged, why) = listed(store)
    assert (name, kept, damaged) == ("me", store.read("me"), "short")
    assert str(why).startswith(f"the enrolment 'short' ({store.file('short')}) is damaged; make it anew")
    is_open, deleted = caplog.messages
    assert "is open to other users (mode 755, expected 700)" in is_open
    assert deleted.startswith(f"deleted '{left}', in which an enrolment was being written")
    with pytest.raises(EnrolmentError, match=r"'short' .* is damaged"):
        cascade_of(CONFIG.with_enrolment(["short"]), Models())


def test_two_voices_are_refused_and_nothing_is_kept(tmp_path: Path, store: Enrolments) -> None:
    with pytest.raises(EnrolmentError, match=r"two\.wav': more than one voice"):
        enrolled(SCENE.write(tmp_path / "two.wav"))
    assert store.names() == []


def test_recordings_are_needed(store: Enrolments, tmp_path: Path) -> None:
    with pytest.raises(NotReadyError, match=r"nobody\.wav' does not exist; name a recording"):
        enrolled(tmp_path / "nobody.wav")
    with pytest.raises(NotReadyError, match="the enrolment 'me' does not exist"):
        enrolled(Path("me"))  # never one that is kept


def test_a_configuration_without_a_gate_is_refused(recording: Path, store: Enrolments) -> None:
    with pytest.raises(ConfigError, match="add 'use: main_speaker'"):
        enrolled(recording, config=load_config("sepformer_whisper_gpt4o"))


# --- using ------------------------------------------------------------------------------------------------------------


def test_one_of_another_encoder_is_refused_when_it_is_loaded(mine: Path, store: Enrolments) -> None:
    other = store.read("me").model_copy(
        update={"encoder": EncoderVersion(name="other", sha256="00" * 32, dimension=256)}
    )
    store.keep("me", other, replace=True)
    with pytest.raises(
        EnrolmentError, match=r"of the speaker encoder other \(0{12}\.\.\.\), and this .* d-vector-ge2e"
    ):
        cascade_of(CONFIG.with_enrolment(["me"]), Models())


def test_where_the_encoder_is_not_known_it_is_refused(mine: Path) -> None:
    with pytest.raises(EnrolmentError, match="this configuration has none"):
        MainSpeakerSettings(use="main_speaker", enrolment=(mine,)).load(Chain)  # type: ignore[arg-type]


def test_one_that_is_kept_stands_for_itself(recording: Path, mine: Path) -> None:
    with pytest.raises(EnrolmentError, match="give it alone, or recordings only"):
        cascade_of(CONFIG.with_enrolment(["me", recording]), Models())


# --- whether it still fits --------------------------------------------------------------------------------------------


class Learned:
    """A gate that learned so much."""

    lookahead = 0

    def __init__(self, similarity: float | None) -> None:
        self.similarity_to_enrolment = similarity

    def push(self, turn: object, /) -> Sequence[Any]:
        return []

    def flush(self) -> Sequence[Any]:
        return []


def warned(config: CascadeConfig, *listenings: Listening, today: date = TODAY) -> list[str]:
    return [line for listening in listenings for line in who_was_missed(config, listening)] + list(
        old_enrolment(config, today)
    )


def learned(*similarities: float | None) -> Iterator[Listening]:
    """Yield streams in which the main speaker passed, and the gate learned so much."""
    passed = Decision(Span(0, 1), "main", True, AdmitReason.MAIN_SPEAKER, 0.9, 0.5)
    return (Listening([("main_speaker", Learned(similarity))], decisions=[passed]) for similarity in similarities)


def test_one_that_fits_needs_no_words(mine: Path) -> None:
    config = CONFIG.with_enrolment(["me"])
    assert warned(config, heard(config, SCENE).listening, *learned(0.9, None)) == []
    assert warned(config, today=TODAY + timedelta(OLD_DAYS)) == []


def test_one_older_than_a_year_is_said_with_what_makes_it_anew(mine: Path) -> None:
    (line,) = warned(CONFIG.with_enrolment(["me"]), today=TODAY + timedelta(OLD_DAYS + 1))
    assert line == (
        "the enrolment 'me' is older than a year (made 2026-11-30); "
        "make it anew: python -m cascade enrol RECORDING --name me --replace --config CONFIG"
    )


def test_drift_is_said_of_each_recording_with_it(mine: Path) -> None:
    limit = DRIFTED[D_VECTOR]
    assert warned(CONFIG.with_enrolment(["me"]), *learned(limit, 0.9)) == []
    _, line = warned(CONFIG.with_enrolment(["me"]), *learned(0.9, limit - 0.01, limit - 0.05, None))
    assert "is less like the enrolment 'me' than usual (similarity 0.73, expected 0.78 at least)" in line
    assert line.endswith("python -m cascade enrol RECORDING --name me --replace --config CONFIG")


def test_drift_from_a_recording_has_another_remedy(recording: Path) -> None:
    (line,) = warned(CONFIG.with_enrolment([recording]), *learned(0.5))
    assert line.endswith("; record the main speaker anew, alone")


@pytest.mark.parametrize("mode", Mode)
def test_a_voice_that_was_not_heard_at_all_is_said(mine: Path, mode: Mode) -> None:
    config = CONFIG.with_enrolment(["me"])
    absent, there = (heard(config, scene, mode).listening for scene in (BYSTANDERS_ONLY, SCENE))
    (line,) = warned(config, absent)
    assert line.startswith("the voice of the enrolment 'me' was not heard at all; if that person spoke, ")
    assert warned(config, there, absent, there, absent) == [line, line]


def test_a_recording_is_called_as_its_file_and_a_kept_enrolment_by_its_name(recording: Path, mine: Path) -> None:
    """So nobody takes the one for the other, and a warning, which results hold, names no folder."""
    absent = heard(CONFIG, BYSTANDERS_ONLY).listening
    for given, called in (([recording], "'alone.wav'"), ([recording, recording], "'alone.wav', 'alone.wav'")):
        (line,) = who_was_missed(CONFIG.with_enrolment(given), Listening([], decisions=unpassed(absent)))
        assert line.startswith(f"the voice of the enrolment {called} was not heard at all; ")


def unpassed(heard: Listening) -> list[Decision]:
    return [replace(turn, admitted=False, reason=WithholdReason.BYSTANDER) for turn in heard.decisions]


@pytest.mark.parametrize("config", ["ondevice.yaml", "enrolled", "sepformer_whisper_gpt4o.yaml"])
def test_a_recording_without_speech_is_said_whoever_is_the_main_speaker(config: str, mine: Path) -> None:
    settings = CONFIG.with_enrolment(["me"]) if config == "enrolled" else load_config(config)
    (line,) = warned(settings, Listening([]))
    assert line.startswith("no speech was found in it; ")


def test_nobody_who_dominates_is_said_where_nobody_is_enrolled() -> None:
    """A bystander who is the only one becomes the main speaker, unless that is said to be somebody else."""
    nobody = Decision(Span(0, 1), "unknown", False, WithholdReason.UNDECIDED, math.nan, math.nan)
    (line,) = warned(CONFIG, Listening([], decisions=[nobody]))
    assert line == "nobody dominated, so nobody was taken for the main speaker; tell whom to hear with --enrolment"
    assert warned(load_config("sepformer_whisper_gpt4o"), Listening([], decisions=[nobody])) == []


def test_without_an_enrolment_nothing_is_said() -> None:
    assert warned(CONFIG, heard(CONFIG, SCENE).listening, *learned(0.1)) == []


def test_one_that_was_forgotten_meanwhile_does_no_harm(mine: Path, store: Enrolments) -> None:
    config = CONFIG.with_enrolment(["me"])
    store.forget("me")
    assert warned(config, *learned(0.1)) == []
