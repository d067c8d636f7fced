"""Diarization of whole recordings: the stage around made-up models, and pyannote.audio's own pipeline behind it.

The stage (diarization.WholeRecordingDiarizer) is tested here, beside the model that it is for.
"""

from __future__ import annotations

import importlib
import itertools
import math
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from cascade.backends import pyannote_weights
from cascade.backends.pyannote import (
    MIN_OVERLAP_S,
    MODEL,
    OFFLINE,
    Overlap,
    Pyannote,
    check_folder,
    load,
    load_encoder,
    load_overlap,
    unit,
)
from cascade.diarization import (
    SURROUNDINGS,
    Diarization,
    DiarizationModel,
    Stretch,
    WholeRecordingDiarizer,
    level_db,
    pair_source,
    source_shares,
)
from cascade.errors import BackendError, ConfigError, ModelError
from cascade.gate import GateSettings, MainSpeaker, Profile
from cascade.types import (
    AdmittedTurn,
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
from tests.canary import judge, watched
from tests.pyannote_pipeline import CONFIG, DIMENSION, save_pipeline

A, B, C = "speaker_1", "speaker_2", "speaker_3"
VOICES: Mapping[str, Vector] = {name: np.eye(3, dtype=np.float32)[index] for index, name in enumerate((A, B, C))}


def stretch(speaker: str, start_s: float, end_s: float) -> Stretch:
    return Stretch(Span(seconds(start_s), seconds(end_s)), speaker)


def noise(duration_s: float, level: float = 0.1, seed: int = 0) -> Samples:
    return np.random.default_rng(seed).uniform(-level, level, seconds(duration_s)).astype(np.float32)


def model(
    turns: Sequence[Stretch], speech: Sequence[Stretch] = (), embeddings: Mapping[str, Vector] = VOICES
) -> DiarizationModel:
    return lambda _: Diarization(turns, speech or turns, embeddings)


def hear(
    heard: DiarizationModel,
    mixture: Samples,
    sources: Samples | None = None,
    cuts: Sequence[int] = (),
    pause_s: float = 0.5,
) -> list[SpeakerTurn]:
    """Send a recording through the stage, cut at some samples."""
    stage = WholeRecordingDiarizer(heard, pause_s=pause_s)
    sources = mixture[None] if sources is None else sources
    edges = [0, *sorted(cuts), len(mixture)]
    for start, end in itertools.pairwise(edges):
        chunk = SeparatedChunk(Span(start, end), mixture[start:end], sources[:, start:end])
        assert stage.push(chunk) == []
    return list(stage.flush())


@dataclass(frozen=True)
class Scene:
    """A (0-2 s) and B (3-5 s) alone, both at once (5-6 s); A's voice leaks into B's source, and the other way round."""

    a: Samples
    b: Samples
    mixture: Samples
    sources: Samples


def scene(b_level: float = 0.03, leak: float = 0.1) -> Scene:
    a, b = noise(6.5, 0.2, seed=1), noise(6.5, b_level, seed=2)
    a[seconds(2) : seconds(5)] = a[seconds(6) :] = 0
    b[: seconds(3)] = b[seconds(6) :] = 0
    leaks = np.float32(leak)
    sources = np.stack([a * (1 - leaks) + b * leaks, b * (1 - leaks) + a * leaks])
    return Scene(a, b, a + b, sources)


SPEECH = [stretch(A, 0, 2), stretch(B, 3, 6), stretch(A, 5, 6)]
TURNS = [stretch(A, 0, 2), stretch(B, 3, 5), stretch(A, 5, 6)]


# The stage


def test_a_turn_is_cut_out_of_the_mixture() -> None:
    mixture = noise(6.5)
    turns = hear(model(TURNS[:2]), mixture)

    assert [(turn.speaker, turn.span) for turn in turns] == [(who, span) for span, who in TURNS[:2]]
    for turn in turns:
        np.testing.assert_array_equal(turn.samples, mixture[turn.span.start : turn.span.end])
        np.testing.assert_array_equal(turn.embedding, VOICES[turn.speaker])
        assert turn.level_db == level_db(turn.samples)
        assert not turn.overlapped


def test_it_needs_the_whole_recording_and_says_so() -> None:
    assert WholeRecordingDiarizer(model([])).lookahead is None


def test_a_turn_in_which_another_speaks_is_marked() -> None:
    assert [turn.overlapped for turn in hear(model(TURNS, SPEECH), noise(6.5))] == [False, False, True]


def test_speech_that_only_touches_a_turn_is_no_overlap() -> None:
    turns = hear(model([stretch(A, 0, 1), stretch(B, 1, 2)]), noise(2))

    assert [turn.overlapped for turn in turns] == [False, False]


@pytest.mark.parametrize(
    ("others", "told"),
    [
        ([Span(15_999, 32_000)], False),
        ([Span(16_000 - 799, 32_000)], False),
        ([Span(16_000 - 800, 32_000)], True),
        ([Span(4000, 4270), Span(8000, 8270)], False),
        ([Span(4000, 4270), Span(8000, 8270), Span(12_000, 12_270)], True),
    ],
)
def test_an_overlap_in_which_no_word_is_heard_does_not_count(others: list[Span], told: bool) -> None:
    speech = [stretch(A, 0, 1), *(Stretch(span, B) for span in others)]
    (turn,) = hear(model([stretch(A, 0, 1)], speech), noise(2))
    assert turn.overlapped is told


def test_a_turn_that_is_shorter_than_such_an_overlap_can_be_overlapped() -> None:
    speech = [stretch(A, 1, 1.04), stretch(B, 1.02, 1.5)]
    (turn,) = hear(model([stretch(A, 1, 1.04)], speech), noise(2))
    assert turn.overlapped


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("b_level", [0.03, 0.2, 0.6])
def test_a_turn_has_the_mixture_and_its_speakers_source(swapped: bool, b_level: float) -> None:
    made = scene(b_level)
    turn = hear(model(TURNS, SPEECH), made.mixture, made.sources[::-1].copy() if swapped else made.sources)[-1]

    np.testing.assert_array_equal(turn.samples, made.mixture[seconds(5) : seconds(6)])
    np.testing.assert_array_equal(turn.source, made.sources[0, seconds(5) : seconds(6)])
    assert turn.overlaps == (turn.span,)
    assert turn.level_db == level_db(turn.samples)


def test_a_turn_has_its_source_also_where_nobody_else_speaks() -> None:
    made = scene()
    (turn,) = hear(model([stretch(B, 3, 6)], SPEECH), made.mixture, made.sources)

    np.testing.assert_array_equal(turn.source, made.sources[1, seconds(3) : seconds(6)])
    assert turn.overlaps == (Span(seconds(5), seconds(6)),)


def test_where_several_others_speak_it_is_one_overlap() -> None:
    speech = [stretch(A, 0, 4), stretch(B, 1, 2), stretch(C, 1.5, 2.5), stretch(B, 3, 3.5)]
    (turn,) = hear(model([stretch(A, 0, 4)], speech), noise(4))

    assert [(span.start_s, span.end_s) for span in turn.overlaps] == [(1, 2.5), (3, 3.5)]


def test_one_source_is_nobodys() -> None:
    made = scene()
    assert [len(turn.source) for turn in hear(model(TURNS, SPEECH), made.mixture, made.sources[:1])] == [0, 0, 0]


def test_who_never_speaks_alone_has_the_source_that_is_not_the_others() -> None:
    made = scene()
    speech = [stretch(A, 0, 2), stretch(A, 5, 6), stretch(B, 5, 6)]
    (turn,) = hear(model([stretch(B, 5, 6)], speech), made.mixture, made.sources)

    np.testing.assert_array_equal(turn.source, made.sources[1, seconds(5) : seconds(6)])


def test_where_nothing_tells_whose_a_source_is_it_is_silent() -> None:
    made = scene()
    speech = [stretch(A, 5, 6), stretch(B, 5, 6)]
    (turn,) = hear(model([stretch(A, 5, 6)], speech), made.mixture, made.sources)

    assert len(turn.source) == len(turn.samples)
    assert not turn.source.any()


def test_a_phantom_third_speaker_takes_nobodys_source() -> None:
    made = scene()
    speech = [*SPEECH, stretch(C, 0.5, 0.7)]
    turns = hear(model(TURNS, speech), made.mixture, made.sources)

    np.testing.assert_array_equal(turns[-1].source, made.sources[0, seconds(5) : seconds(6)])


def test_shares_are_of_what_is_said_alone() -> None:
    made = scene(leak=0.0)
    shares = source_shares([*SPEECH, stretch(C, 6.2, 6.4)], made.sources)

    assert {name: share.tolist() for name, share in shares.items()} == {A: [1, 0], B: [0, 1]}


@given(st.lists(st.floats(0, 1, width=32), min_size=2, max_size=4), st.lists(st.floats(0, 1, width=32), min_size=4))
def test_two_speakers_never_share_a_source(first: list[float], second: list[float]) -> None:
    shares = {A: np.array(first, np.float32), B: np.array(second[: len(first)], np.float32)}

    assert pair_source(shares, A, B) != pair_source(shares, B, A) or tie(shares)


def tie(shares: Mapping[str, Vector]) -> bool:
    """Tell whether two ways to give two speakers their sources are equally good."""
    sums = shares[A][:, None] + shares[B][None, :]
    sums = np.sort(sums[~np.eye(len(sums), dtype=bool)])
    return bool(sums[-1] == sums[-2])


def test_turns_of_one_speaker_are_joined_over_a_short_pause() -> None:
    apart = [stretch(A, 2.4, 3), stretch(A, 1, 2), stretch(A, 3.6, 4), stretch(B, 4, 4.1), stretch(A, 4.1, 5)]
    turns = hear(model(apart), noise(6))

    assert [(turn.speaker, turn.span.start_s, turn.span.end_s) for turn in turns] == [
        (A, 1.0, 3.0),
        (A, 3.6, 4.0),
        (B, 4.0, 4.1),
        (A, 4.1, 5.0),
    ]


@pytest.mark.parametrize("n_samples", [0, 1, 10, 160, 800])
def test_short_silence_is_not_shown_to_the_model(n_samples: int) -> None:
    assert hear(lambda _: pytest.fail("called"), np.zeros(n_samples, np.float32)) == []


def test_nothing_at_all_gives_no_turns() -> None:
    assert WholeRecordingDiarizer(lambda _: pytest.fail("called")).flush() == []


def test_silence_gives_no_turns_whatever_the_model_says() -> None:
    assert hear(lambda _: pytest.fail("called"), np.zeros(seconds(10), np.float32)) == []
    assert hear(lambda _: pytest.fail("called"), noise(10, 5e-5)) == []

    mixture = noise(4)
    mixture[seconds(2) :] = 0
    turns = hear(model([stretch(A, 0, 2), stretch(B, 3, 4)]), mixture)
    assert [turn.speaker for turn in turns] == [A]


@pytest.mark.parametrize("embeddings", [{A: np.full(3, np.nan, np.float32)}, {}])
def test_a_turn_without_an_embedding_does_not_pass_the_gate(embeddings: Mapping[str, Vector]) -> None:
    (turn,) = hear(model([stretch(A, 0, 3)], embeddings=embeddings), noise(3))
    gate = MainSpeaker(judge, GateSettings(), Mode.SELECTIVE, None)
    (decision,) = [*gate.push(turn), *gate.flush()]

    assert np.isnan(turn.embedding).all()
    assert isinstance(decision, Withheld)
    assert decision.reason is WithholdReason.NO_EMBEDDING


def test_a_chunk_that_does_not_follow_is_refused() -> None:
    stage = WholeRecordingDiarizer(model([]))
    chunk = SeparatedChunk(Span(0, 10), np.ones(10, np.float32), np.ones((1, 10), np.float32))
    stage.push(chunk)

    with pytest.raises(ValueError, match="expected a chunk from sample 10 on with 1 sources"):
        stage.push(chunk)
    with pytest.raises(ValueError, match="with 2"):
        stage.push(SeparatedChunk(Span(10, 12), np.ones(2, np.float32), np.ones((2, 2), np.float32)))


@given(st.lists(st.integers(0, seconds(6.5)), max_size=20))
@settings(deadline=None, max_examples=25)
def test_cutting_changes_nothing(cuts: list[int]) -> None:
    made = scene()
    heard = model(TURNS, SPEECH)

    assert described(hear(heard, made.mixture, made.sources, cuts)) == described(
        hear(heard, made.mixture, made.sources)
    )


def described(turns: Sequence[SpeakerTurn]) -> list[Any]:
    return [
        (
            (turn.span, turn.speaker, turn.overlaps, turn.level_db),
            [
                array.tobytes()
                for array in (turn.samples, turn.source, turn.embedding, turn.embeddings, turn.before, turn.after)
            ],
        )
        for turn in turns
    ]


def test_a_turn_tells_what_is_heard_around_it() -> None:
    made = scene()
    first, *_, last = hear(
        model([stretch(A, 0.1, 2), stretch(B, 3, 4), stretch(A, 5, 6.5)]), made.mixture, made.sources
    )

    np.testing.assert_array_equal(first.before, made.mixture[: seconds(0.1)])
    np.testing.assert_array_equal(first.after, made.mixture[seconds(2) : seconds(2) + SURROUNDINGS])
    np.testing.assert_array_equal(last.before, made.mixture[seconds(5) - SURROUNDINGS : seconds(5)])
    assert len(last.after) == 0


def test_a_turn_without_windows_passes_the_gate_by_its_embedding() -> None:
    voices = {A: np.array([1, 0], np.float32), B: np.array([0, 1], np.float32)}
    turns = hear(model([stretch(A, 0, 3), stretch(B, 3, 6)], embeddings=voices), noise(6.5))
    gate = MainSpeaker(judge, GateSettings(), Mode.SELECTIVE, Profile(voices[A] * np.float32(20)))
    decisions = [item for turn in turns for item in gate.push(turn)]

    assert [len(turn.embeddings) for turn in turns] == [0, 0]
    assert [type(item) for item in decisions] == [AdmittedTurn, Withheld]
    assert [item.span for item in decisions] == [turn.span for turn in turns]


def test_the_model_hears_the_whole_mixture() -> None:
    made, heard = scene(), list[Samples]()

    def listen(samples: Samples) -> Diarization:
        heard.append(samples)
        return Diarization([], [], {})

    assert hear(listen, made.mixture, made.sources, cuts=[7, 7, 30_000]) == []
    np.testing.assert_array_equal(heard, [made.mixture])


# The folder


def write_pipeline(folder: Path, config: str = CONFIG, without: str = "") -> Path:
    """Write a pipeline whose files are empty, all but one."""
    names = (
        "segmentation/pytorch_model.bin",
        "embedding/pytorch_model.bin",
        "plda/plda.npz",
        "plda/xvec_transform.npz",
    )
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if name != without:
            (folder / name).write_bytes(b"")
    (folder / "config.yaml").write_text(config)
    return folder


def test_a_whole_folder_is_right(tmp_path: Path) -> None:
    check_folder(write_pipeline(tmp_path))


def test_a_folder_that_is_not_there_names_the_fix(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=rf"no pyannote pipeline at .*config\.yaml.*models pull {MODEL}"):
        check_folder(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["segmentation/pytorch_model.bin", "plda/xvec_transform.npz"])
def test_a_file_that_is_missing_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelError, match=f"lacks {name}; get all"):
        check_folder(write_pipeline(tmp_path, without=name))


@pytest.mark.parametrize(
    ("before", "after", "part"),
    [
        ("    plda: $model/plda\n", "", "plda"),
        ("$model/segmentation", "pyannote/segmentation-3.0", "segmentation"),
        ("$model/embedding", "$model/embedding@main", "embedding"),
        ("$model/embedding", "$model/../embedding", "embedding"),
        ("$model/embedding", "{checkpoint: pyannote/embedding}", "embedding"),
        ("$model/segmentation", "1", "segmentation"),
    ],
)
def test_what_would_be_downloaded_is_refused(tmp_path: Path, before: str, after: str, part: str) -> None:
    with pytest.raises(ModelError, match=f"does not hold its own {part}: .* nothing is downloaded"):
        check_folder(write_pipeline(tmp_path, CONFIG.replace(before, after)))


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ("", "is not the configuration of"),
        ("[1, 2]", "is not the configuration of"),
        ("a: [", "is not the configuration of"),
        ("pipeline: {name: x}", "is not the configuration of"),
        (CONFIG.replace("SpeakerDiarization", "VoiceActivityDetection"), "the pipeline 'pyannote.audio.pipelines.Voi"),
        (CONFIG.replace("pyannote.audio.pipelines", "somebody.elses"), "the pipeline 'somebody.elses.SpeakerDiar"),
        (CONFIG + "\npreprocessors:\n  waveform: {name: os.system}\n", "one with preprocessors"),
        (CONFIG.replace("    plda:", "    legacy: true\n    plda:"), "expected a plain"),
        (CONFIG + "\naugmentation: {name: os.system}\n", "one with augmentation"),
        (CONFIG + "\ndevice: cuda\n", "one with device"),
        (CONFIG.replace("    plda:", "    token: mine\n    plda:"), "gives its pipeline token, which is none of"),
        (
            CONFIG.replace("  params:\n", "  params: !!python/object/apply:os.system\n"),
            "is not the config|expected a plain",
        ),
        (CONFIG + "\npipeline: {name: os.system, params: {}}\n", "is not the configuration of"),
        (CONFIG + "\nfreeze: " + "[" * 3000, "is not the configuration of"),
        (CONFIG + "\nfreeze: " + "{a: " * 3000 + "1" + "}" * 3000, "is not the configuration of"),
        (CONFIG + "#" * 100_000, "is not the configuration of"),
        ("- &a [1]\n- *a", "is not the configuration of"),
        (CONFIG.replace("segmentation_batch_size: 8", "segmentation_batch_size: 1000000000"), "from 1 to 1024"),
        (
            CONFIG.replace("    plda:", "    segmentation_step: 1.0e-9\n    plda:"),
            "wrong segmentation_step, .* from 0.01",
        ),
        (CONFIG.replace("threshold: 0.6", "threshold: .nan"), "has a wrong threshold"),
        (CONFIG.replace("threshold: 0.6", f"threshold: 0x{'f' * 5000}"), "has a wrong threshold"),
        (CONFIG.replace("threshold: 0.6", "threshold: {a: 1}"), "has a wrong threshold"),
        (CONFIG + '\n"a\\e\\n": 1\n', r"one with a\?\?;"),
    ],
)
def test_a_configuration_of_another_kind_is_one_line(tmp_path: Path, config: str, why: str) -> None:
    with pytest.raises(ModelError, match=why) as caught:
        check_folder(write_pipeline(tmp_path, config))
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("numbers", "why"),
    [
        ({"min_speakers": 0}, "min_speakers must be at least 1, got 0"),
        ({"max_speakers": -1}, "max_speakers must be at least 1, got -1"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"min_speakers": 3, "max_speakers": 2}, "min_speakers is 3, more than max_speakers, 2"),
    ],
)
def test_numbers_that_make_no_sense(tmp_path: Path, numbers: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        load(tmp_path, **numbers)


@pytest.mark.parametrize("device", ["mps", "tpu"])
def test_an_unknown_device(tmp_path: Path, device: str) -> None:
    with pytest.raises(ConfigError, match=f"'cpu' or 'cuda', got '{device}'"):
        load(tmp_path, device=device)


def test_telemetry_and_the_hub_are_off() -> None:
    assert OFFLINE["PYANNOTE_METRICS_ENABLED"] == "0"
    assert OFFLINE["HF_HUB_OFFLINE"] == "1"
    assert OFFLINE["HF_HUB_DISABLE_TELEMETRY"] == "1"


@pytest.mark.parametrize("embedding", [[0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0]])
def test_what_has_no_direction_has_no_embedding(embedding: list[float]) -> None:
    assert np.isnan(unit(np.array(embedding, np.float64))).all()


def test_an_embedding_has_norm_one() -> None:
    assert unit(np.array([3.0, 4.0])).tolist() == [np.float32(0.6), np.float32(0.8)]
    assert unit(np.array([3.0, 4.0])).dtype == np.float32


# pyannote's own classes


@pytest.fixture(scope="module")
def installed() -> None:
    """Import pyannote as load() does, or say why its tests are skipped."""
    os.environ.update(OFFLINE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it cannot decode files, which it is not asked to
        pytest.importorskip("pyannote.audio", reason="the extra 'paper' (pyannote.audio) is not installed")


@pytest.fixture(scope="module")
def one_thread(installed: None) -> Iterator[None]:
    """Keep torch to one thread, since several wait for each other on a busy machine."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def folder(one_thread: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pyannote") / "pipeline"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        save_pipeline(path)
    return path


@pytest.fixture(scope="module")
def loaded(folder: Path) -> DiarizationModel:
    with watched() as doings:
        made = load(folder, batch_size=4)
    assert (doings.sockets, doings.writes, doings.programs) == ([], [], [])
    return made


def sample_folder() -> Path:
    import pyannote.audio

    return Path(str(pyannote.audio.__file__)).parent / "sample"


def real_speech(start_s: float, end_s: float) -> Samples:
    """Return part of the meeting that comes with pyannote.audio."""
    samples, rate = soundfile.read(
        sample_folder() / "sample.wav", dtype="float32", start=seconds(start_s), stop=seconds(end_s)
    )
    assert rate == 16_000
    return np.asarray(samples, np.float32)


def test_the_real_pipeline_goes_through_the_stage(folder: Path, loaded: DiarizationModel) -> None:
    import torch
    from pyannote.audio import Pipeline

    samples = real_speech(8, 10.2)
    with watched() as doings:
        turns = hear(loaded, samples, cuts=[5, 20_000], pause_s=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        itself: Any = Pipeline.from_pretrained(folder)
        direct = itself({"waveform": torch.from_numpy(samples)[None], "sample_rate": 16_000})

    assert (doings.sockets, doings.writes, doings.programs) == ([], [], [])
    expected = [turn for turn, _, _ in direct.exclusive_speaker_diarization.itertracks(yield_label=True)]
    assert expected
    assert [turn.span.start_s for turn in turns] == pytest.approx([turn.start for turn in expected], abs=1e-4)
    assert [turn.span.end_s for turn in turns] == pytest.approx([min(turn.end, 2.2) for turn in expected], abs=1e-4)
    for turn in turns:
        assert turn.embedding.shape == (DIMENSION,)
        assert np.linalg.norm(turn.embedding) == pytest.approx(1, abs=1e-5)
        assert turn.embedding @ direct.speaker_embeddings[0] == pytest.approx(
            np.linalg.norm(direct.speaker_embeddings[0]), rel=1e-4
        )


def test_the_same_recording_gives_the_same_turns(loaded: DiarizationModel) -> None:
    samples = noise(1)

    assert described(hear(loaded, samples)) == described(hear(loaded, samples))


@pytest.mark.parametrize("n_samples", [1, 160, 800])
def test_the_real_pipeline_takes_a_short_recording(loaded: DiarizationModel, n_samples: int) -> None:
    turns = hear(loaded, noise(1, seed=3)[:n_samples] + np.float32(0.2))

    assert all(turn.span.end <= n_samples for turn in turns)


def test_more_speakers_than_can_be_found_are_no_error(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    turns = hear(load(folder, min_speakers=6), real_speech(8, 10.5))

    assert turns
    assert "too short to find min_speakers=6" in caplog.text


def test_the_encoder_is_the_pipelines_own(folder: Path, loaded: DiarizationModel) -> None:
    """A window's embedding and a speaker's profile come from one network, so that they can be compared."""
    import torch

    encode = load_encoder(folder)
    window = real_speech(8, 9)
    embedding = encode(window)
    assert isinstance(loaded, Pyannote)
    network = loaded._pipeline._embedding
    (direct,) = network(torch.from_numpy(window)[None, None])
    assert embedding.shape == (DIMENSION,)
    assert embedding.dtype == np.float32
    np.testing.assert_allclose(embedding, direct / np.linalg.norm(direct), atol=1e-5)
    assert len(window) == encode.window


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
def test_what_is_no_sound_has_no_voice(folder: Path, value: float) -> None:
    encode = load_encoder(folder)
    assert np.isnan(encode(np.full(encode.window, value, np.float32))).all()


def test_an_encoder_takes_a_device_and_a_whole_folder(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="got 'mps'"):
        load_encoder(folder, device="mps")
    with pytest.raises(ModelError, match="no pyannote pipeline at"):
        load_encoder(tmp_path)


def test_the_batch_size_is_the_one_asked_for(loaded: DiarizationModel) -> None:
    assert isinstance(loaded, Pyannote)
    assert (loaded._pipeline.segmentation_batch_size, loaded._pipeline.embedding_batch_size) == (4, 4)


def test_a_damaged_checkpoint_is_one_line(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    (tmp_path / "copy" / "segmentation" / "pytorch_model.bin").write_bytes(b"no checkpoint")

    with pytest.raises(ModelError, match=r"cannot be loaded on 'cpu' \(\w+\); check") as caught:
        load(tmp_path / "copy")
    assert "\n" not in str(caught.value)


class Program:
    """Makes a file as soon as it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._mark,)


def respelt(folder: Path, target: Path, part: str, change: Callable[[dict[str, Any]], None]) -> Path:
    """Copy a pipeline, with one of its checkpoints changed."""
    import torch

    shutil.copytree(folder, target)
    path = target / part / "pytorch_model.bin"
    checkpoint = torch.load(path, weights_only=False)
    change(checkpoint)
    torch.save(checkpoint, path)
    return target


def asking_for(module: str, name: str) -> Callable[[dict[str, Any]], None]:
    return lambda checkpoint: checkpoint["pyannote.audio"].update(architecture={"module": module, "class": name})


@pytest.mark.parametrize("part", ["segmentation", "embedding"])
@pytest.mark.parametrize("key", ["pyannote.audio", "more", "callbacks", "hyper_parameters"])
def test_a_program_in_weights_is_named_and_not_run(folder: Path, tmp_path: Path, part: str, key: str) -> None:
    mark = tmp_path / "ran"
    spoilt = respelt(folder, tmp_path / "copy", part, lambda checkpoint: checkpoint.update({key: Program(mark)}))
    loads: Sequence[Callable[[Path], object]] = (load, load_overlap if part == "segmentation" else load_encoder)
    for loading in loads:
        with pytest.raises(ModelError, match=rf"{part}.pytorch_model.bin' holds '.+': .* any program") as caught:
            loading(spoilt)
        assert "\n" not in str(caught.value)
    assert not mark.exists()


def test_a_program_in_the_plda_is_not_run(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    program = np.array([Program(tmp_path / "ran")], dtype=object)
    np.savez(tmp_path / "copy" / "plda" / "plda.npz", mu=program, tr=program, psi=program)
    with pytest.raises(ModelError, match="cannot be loaded"):
        load(tmp_path / "copy")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "change",
    [
        asking_for("os", "system"),
        asking_for("pyannote.audio.models.segmentation.SSeRiouSS", "SSeRiouSS"),
        asking_for("pyannote.audio.models.segmentation.PyanNet", "torch"),
        asking_for("pyannote.audio.models.segmentation_of_mine", "PyanNet"),
        asking_for("pyannote.audio.models.embedding", "PyanNet"),
        lambda checkpoint: checkpoint["hyper_parameters"].update(_instantiator="os.system"),
        lambda checkpoint: checkpoint["hyper_parameters"].update(_class_path="os.system"),
    ],
)
def test_only_known_networks_are_made(folder: Path, tmp_path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    with pytest.raises(ModelError, match=r"asks for '.+', expected one of PyanNet, "):
        load_overlap(respelt(folder, tmp_path / "copy", "segmentation", change))


@pytest.mark.parametrize("key", ["hparams", "module_arguments", "hparams_type", "datamodule_hyper_parameters", "loops"])
def test_nothing_is_handed_on_that_lightning_would_obey(folder: Path, tmp_path: Path, key: str) -> None:
    """Lightning 2.5, which pyannote.audio allows, calls an _instantiator in the first two too."""
    checkpoint = pyannote_weights.read_weights(
        respelt(folder, tmp_path / "copy", "segmentation", lambda c: c.update({key: {"_instantiator": "os.system"}}))
        / "segmentation"
        / "pytorch_model.bin"
    )
    assert checkpoint.keys() == {"pytorch-lightning_version", "state_dict", "hyper_parameters", "pyannote.audio"}
    assert "_instantiator" not in repr({name: value for name, value in checkpoint.items() if name != "state_dict"})
    assert checkpoint["pyannote.audio"].keys() == {"versions", "architecture", "specifications"}
    load_overlap(tmp_path / "copy")


def test_a_callable_in_place_of_a_type_of_arguments_is_not_called(folder: Path, tmp_path: Path) -> None:
    """_convert_loaded_hparams calls it with the arguments."""
    import torch

    spoilt = respelt(folder, tmp_path / "copy", "segmentation", lambda c: c.update(hparams_type=torch.Size))
    load_overlap(spoilt)


@pytest.mark.parametrize(
    "change",
    [
        {"lstm": {"hidden_size": 8, "num_layers": 10_000_000}},
        {"lstm": {"hidden_size": 10_000_000, "num_layers": 1}},
        {"lstm": {"hidden_size": 8, "num_layers": math.nan}},
        {"lstm": {"hidden_size": 8, "device": "meta"}},
        {"lstm": [8, 1]},
        {"lstm": {"hidden_size": [8]}},
        {"sincnet": {"stride": 10**30}},
        {"num_channels": {"a": 1}},
        {"sample_rate": 1_000_000_000},
        {"_instantiator\n\x1b": "os.system"},
    ],
)
def test_a_network_is_made_with_known_arguments_of_a_known_size(
    folder: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    spoilt = respelt(folder, tmp_path / "copy", "segmentation", lambda c: c["hyper_parameters"].update(change))
    with pytest.raises(ModelError, match=r"asks for '.+', expected .+; take speaker") as caught:
        load_overlap(spoilt)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "change",
    [
        {"duration": 1e9},
        {"duration": math.nan},
        {"duration": 0},
        {"problem": "any"},
        {"classes": [f"speaker#{n}" for n in range(60)], "powerset_max_classes": 30},
        {"powerset_max_classes": 10**9},
        {"classes": 3},
        {"warm_up": 1},
        {"min_duration": "long"},
    ],
)
def test_what_a_network_is_for_is_within_reason(folder: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    spoilt = respelt(
        folder,
        tmp_path / "copy",
        "segmentation",
        lambda c: vars(c["pyannote.audio"]["specifications"]).update(change),
    )
    with pytest.raises(ModelError, match="asks for 'specifications that no network of pyannote has'"):
        load_overlap(spoilt)


def test_attributes_that_specifications_do_not_have_are_left_behind(folder: Path, tmp_path: Path) -> None:
    spoilt = respelt(
        folder,
        tmp_path / "copy",
        "segmentation",
        lambda c: vars(c["pyannote.audio"]["specifications"]).update(powerset=False, num_powerset_classes=3, more=1),
    )
    found = pyannote_weights.read_weights(spoilt / "segmentation" / "pytorch_model.bin")
    specifications = found["pyannote.audio"]["specifications"]
    assert not hasattr(specifications, "more")
    assert (specifications.powerset, specifications.num_powerset_classes) == (True, 7)


def test_what_is_no_network_at_all_is_one_line(folder: Path, tmp_path: Path) -> None:
    spoilt = respelt(folder, tmp_path / "copy", "embedding", lambda checkpoint: checkpoint.pop("pyannote.audio"))
    with pytest.raises(ModelError, match="holds no weights of a pyannote network"):
        load(spoilt)


def test_it_is_the_pipeline_that_pyannote_itself_reads(folder: Path, tmp_path: Path) -> None:
    """Also where weights name their class by another module, and hold what old training left behind."""
    import torch
    from pyannote.audio import Pipeline

    callbacks: Any = importlib.import_module("pytorch_lightning.callbacks")

    def old(checkpoint: dict[str, Any]) -> None:
        asking_for("pyannote.audio.models.embedding", "WeSpeakerResNet34")(checkpoint)
        checkpoint["callbacks"] = {
            callbacks.EarlyStopping: {"patience": 3},
            callbacks.ModelCheckpoint: {"best": torch.zeros(1)},
        }

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected: Any = Pipeline.from_pretrained(folder)
    found = load(respelt(folder, tmp_path / "copy", "embedding", old))
    assert isinstance(found, Pyannote)
    given: Any = found._pipeline
    assert given.parameters(instantiated=True) == expected.parameters(instantiated=True)
    for name in ("klustering", "embedding_exclude_overlap", "segmentation_step", "segmentation_batch_size"):
        assert getattr(given, name) == getattr(expected, name)
    pairs: list[tuple[Any, Any]] = [
        (given._segmentation.model, expected._segmentation.model),
        (given._embedding.model_, expected._embedding.model_),
    ]
    for network, same in pairs:
        assert network.specifications == same.specifications
        assert not network.training
        weights, known = network.state_dict(), same.state_dict()
        assert weights.keys() == known.keys()
        assert all(torch.equal(weights[key], known[key]) for key in known)
    embeddings = np.random.default_rng(0).standard_normal((3, DIMENSION))
    np.testing.assert_array_equal(given._plda(embeddings), expected._plda(embeddings))


def test_a_gpu_that_is_not_there_is_not_replaced_by_the_cpu(folder: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(BackendError, match="'cuda', but torch finds none; set device: cpu"):
        load(folder, device="cuda")


ALONE = """
import os, sys
from pathlib import Path

os.environ["PYANNOTE_METRICS_ENABLED"] = "1"  # as a user's shell may have it
seen = []
PROBE = ("socket.bind", (("::1", 0),))  # by which urllib3, when imported, asks whether there is IPv6
sys.addaudithook(
    lambda event, arguments: seen.append(event)
    if event.startswith("socket.") and event != "socket.__new__" and (event, arguments[1:]) != PROBE
    else None
)
from cascade.backends.pyannote import load

model = load(Path(sys.argv[1]))
import numpy as np

model(np.random.default_rng(0).uniform(-0.1, 0.1, 8000).astype(np.float32))
from pyannote.audio.telemetry import metrics
import huggingface_hub

metrics.provider.force_flush(2000)  # nothing is waiting to be sent either
print([seen, metrics.is_metrics_enabled(), huggingface_hub.constants.HF_HUB_OFFLINE])
"""


def test_importing_loading_and_running_opens_no_socket(folder: Path) -> None:
    done = subprocess.run([sys.executable, "-c", ALONE, str(folder)], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "[[], False, True]"
    assert done.stderr == ""


# Whether two speak at once


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ([1] * 40, False),
        ([2] * 24, False),
        ([0] * 9 + [2] * 25, True),
        ([2] * 24 + [1] + [2] * 24, False),
        ([3, 2] * 12 + [2], True),
        ([0, np.nan, 0], True),
        ([], False),
    ],
)
def test_two_speak_at_once_if_they_do_for_long_enough(counts: list[float], told: bool) -> None:
    assert MIN_OVERLAP_S == 0.25
    assert Overlap(lambda _: np.array(counts, np.float32), 0.01)(noise(1)) is told


def biased(folder: Path, target: Path, choice: int) -> Path:
    """Copy a pipeline, with a segmentation that says the same of any audio: this set of speakers."""
    import torch

    shutil.copytree(folder, target)
    path = target / "segmentation" / "pytorch_model.bin"
    checkpoint = torch.load(path, weights_only=False)
    weights = checkpoint["state_dict"]
    weights["classifier.weight"].zero_()
    weights["classifier.bias"].zero_()
    weights["classifier.bias"][choice] = 9
    torch.save(checkpoint, path)
    return target


@pytest.mark.parametrize(("choice", "told"), [(0, False), (1, False), (3, False), (4, True), (6, True)])
def test_the_segmentation_tells_overlap(folder: Path, tmp_path: Path, choice: int, told: bool) -> None:
    """Choices are nobody, three speakers, three pairs."""
    with watched() as doings:
        overlap = load_overlap(biased(folder, tmp_path / "copy", choice))
    for duration_s in (1, 2, 4.5):
        assert overlap(noise(duration_s)) is told
    assert overlap(noise(0.2)) is False  # shorter than any overlap that counts: the padding is not heard
    assert overlap(np.full(seconds(2), np.nan, np.float32)) is True
    assert doings.sockets == []


def test_a_damaged_segmentation_is_one_line(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    (tmp_path / "copy" / "segmentation" / "pytorch_model.bin").write_bytes(b"no checkpoint")
    with pytest.raises(ModelError, match=r"cannot be loaded on 'cpu' \(\w+\); check") as caught:
        load_overlap(tmp_path / "copy")
    assert "\n" not in str(caught.value)


def test_overlap_refuses_what_load_refuses(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'cpu' or 'cuda', got 'mps'"):
        load_overlap(tmp_path, device="mps")


def test_a_segmentation_without_speakers_at_once_is_refused(folder: Path, tmp_path: Path) -> None:
    """Here an embedding stands in its place."""
    shutil.copytree(folder, tmp_path / "copy")
    shutil.copy(folder / "embedding" / "pytorch_model.bin", tmp_path / "copy" / "segmentation")
    with pytest.raises(ModelError, match="does not tell who speaks at once"):
        load_overlap(tmp_path / "copy")


# A real recording with reference turns, through the adapter


def without_overlap(reference: Any) -> Any:
    """Return a pyannote.core.Annotation in which whoever began first keeps speaking."""
    from pyannote.core import Annotation, Segment

    exclusive, until = Annotation(), 0.0
    for segment, track, label in reference.itertracks(yield_label=True):
        if segment.end > until:
            exclusive[Segment(max(segment.start, until), segment.end), track] = label
            until = segment.end
    return exclusive


@pytest.fixture(scope="module")
def reference(installed: None) -> Any:
    """Return the reference as the pipeline's own result type, with an embedding for each of the two speakers."""
    from pyannote.audio.pipelines.speaker_diarization import DiarizeOutput
    from pyannote.database.util import load_rttm

    turns = load_rttm(sample_folder() / "sample.rttm")["sample"]
    assert turns.labels() == ["speaker90", "speaker91"]
    return DiarizeOutput(turns, without_overlap(turns), np.array([[0.0, 2.0], [np.nan, 1.0]]))


def test_a_real_meeting_comes_out_in_turns(reference: Any) -> None:
    asked: list[dict[str, Any]] = []

    def answer(recording: dict[str, Any], **bounds: Any) -> Any:
        asked.append(recording | bounds)
        return reference

    samples = real_speech(0, 30)
    turns = hear(Pyannote(answer, max_speakers=2), samples, cuts=[1, 100_000], pause_s=0.0)

    assert asked[0].keys() == {"waveform", "sample_rate", "uri", "min_speakers", "max_speakers"}
    np.testing.assert_array_equal(asked[0]["waveform"].numpy(), samples[None])
    assert (asked[0]["min_speakers"], asked[0]["max_speakers"]) == (None, 2)
    rttm = list(reference.exclusive_speaker_diarization.itertracks(yield_label=True))
    assert [turn.span.start_s for turn in turns] == pytest.approx([turn.start for turn, _, _ in rttm], abs=1e-4)
    assert [turn.span.end_s for turn in turns] == pytest.approx([min(turn.end, 30) for turn, _, _ in rttm], abs=1e-4)
    names = {"speaker90": "speaker_1", "speaker91": "speaker_2"}
    assert [turn.speaker for turn in turns] == [names[label] for _, _, label in rttm]
    # Two speak at 8.32 to 8.35 s, 9.92 to 10.02, 10.57 to 11.03, 14.49 to 14.70, 18.15 to 18.59 and 27.85 to 28.50 s.
    # The first of these is too short for a word.
    assert [turn.overlapped for turn in turns] == [False, False, True, True, True, False, True, True, False]
    for turn in turns:
        np.testing.assert_array_equal(turn.samples, samples[turn.span.start : turn.span.end])
        assert turn.embedding.tolist() == [0, 1] if turn.speaker == "speaker_1" else np.isnan(turn.embedding).all()


def test_a_real_overlap_is_taken_from_the_speakers_source(reference: Any) -> None:
    """The sources are made from the reference: what each says alone, and both at half strength where both speak."""
    samples = real_speech(0, 30)
    sources = np.stack(
        [samples * mask_of(reference.speaker_diarization, label) for label in ("speaker91", "speaker90")]
    )
    turns = hear(Pyannote(lambda _, **__: reference), samples, sources)
    later = next(turn for turn in turns if turn.span.start_s == pytest.approx(11.03, abs=1e-3))

    assert later.speaker == "speaker_1"
    np.testing.assert_array_equal(later.source, sources[1, later.span.start : later.span.end])


def mask_of(annotation: Any, label: str) -> Samples:
    """Return 1 where only this speaker speaks, 0.5 where both do, 0 elsewhere: (n_samples,) for 30 s."""
    active = np.zeros((2, seconds(30)), np.float32)
    for segment, _, who in annotation.itertracks(yield_label=True):
        active[int(who != label), seconds(segment.start) : seconds(segment.end)] = 1
    mask: Samples = active[0] * (1 - active[1] / 2)
    return mask
