from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from cascade.asr import LANGUAGES, MAX_PIECE, Recogniser, Transcriber, is_invented
from cascade.backends.faster_whisper import (
    COMPUTE_TYPES,
    MANIFESTS,
    MARGIN,
    PADDING,
    WINDOW,
    load,
    model_folder,
    repeats,
    window_for,
)
from cascade.errors import BackendError, ConfigError, ModelError
from cascade.types import Admission, AdmitReason, AdmittedTurn, Mode, Samples, Span, Utterance, seconds
from tests.large_whisper import save_model

TALK = Path(__file__).resolve().parents[1] / "benchmarks" / "talk"
ADMISSION = Admission(Mode.SELECTIVE, AdmitReason.MAIN_SPEAKER, 0.8, 0.5)

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("faster_whisper") is None, reason="the extra 'ondevice' (faster-whisper) is not installed"
)


@pytest.fixture(scope="module")
def whisper() -> Recogniser:
    return load()


def test_the_languages_are_those_that_whisper_knows() -> None:
    from faster_whisper.tokenizer import _LANGUAGE_CODES

    assert set(_LANGUAGE_CODES) == LANGUAGES


def test_a_cpu_computes_with_nothing_but_what_may_be_asked_of_it() -> None:
    import ctranslate2

    here = ctranslate2.get_supported_compute_types("cpu")
    assert here <= set(COMPUTE_TYPES["cpu"])
    assert here >= {"int8", "float32"}


def cut(name: str, start_s: float, end_s: float) -> Samples:
    samples, rate = soundfile.read(TALK / name, dtype="float32", start=seconds(start_s), stop=seconds(end_s))
    assert rate == 16_000
    return np.asarray(samples, np.float32)


def words_of(text: str) -> list[str]:
    return re.findall(r"[a-z0-9']+", text.lower())


def hear(whisper: Recogniser, samples: Samples, start: int = 0) -> Utterance:
    (utterance,) = Transcriber(whisper).push(
        AdmittedTurn(Span(start, start + len(samples)), "main", samples, ADMISSION)
    )
    assert isinstance(utterance, Utterance)
    return utterance


def reference() -> list[tuple[float, float, str]]:
    """Return the main speaker's sentences over which nobody else speaks."""
    lines = json.loads((TALK / "reference.json").read_text())
    spans = [(line["start_time"], line["end_time"], line["speaker"], line["words"]) for line in lines]
    return [
        (start, end, words)
        for start, end, speaker, words in spans
        if speaker == "main" and not any(s < end and start < e for s, e, who, _ in spans if who != "main")
    ]


# Speech


@pytest.mark.parametrize(("start_s", "end_s", "text"), reference())
def test_a_sentence_is_understood(whisper: Recogniser, start_s: float, end_s: float, text: str) -> None:
    heard = words_of(hear(whisper, cut("talk.flac", start_s - 0.1, end_s + 0.2)).text)
    spoken = [word for word in words_of(text) if word not in ("nine", "forty", "six")]

    assert len([word for word in spoken if word in heard]) >= 0.9 * len(spoken)
    assert len(heard) <= len(words_of(text))


def test_word_times_follow_the_speech(whisper: Recogniser) -> None:
    sentence, second = reference()[:2]
    samples = cut("talk.flac", sentence[0] - 0.4, second[1] + 0.2)
    offset = seconds(sentence[0] - 0.4)
    utterance = hear(whisper, samples, offset)
    at = {words_of(word.text)[0]: word.span for word in utterance.words}

    assert at["weekend"].end_s == pytest.approx(sentence[1], abs=0.35)
    assert at["train"].start_s == pytest.approx(second[0] + 0.2, abs=0.35)
    assert at["platform"].end_s < second[1]
    assert at["boston"].duration_s == pytest.approx(0.5, abs=0.3)
    assert all(0 <= word.probability <= 1 for word in utterance.words)


def test_the_same_turn_gives_the_same_words(whisper: Recogniser) -> None:
    samples = cut("enrolment.flac", 0, 4)

    assert whisper(samples) == whisper(samples)


def test_no_turn_leaves_a_trace_in_the_next(whisper: Recogniser) -> None:
    samples = cut("enrolment.flac", 0, 4)
    before = whisper(samples)
    whisper(cut("talk.flac", 4.25, 8.07))

    assert whisper(samples) == before


def test_a_turn_longer_than_the_window_is_heard_to_its_end(whisper: Recogniser) -> None:
    sentences = [cut("talk.flac", start - 0.1, end + 0.3) for start, end, _ in reference()]
    samples = np.concatenate(sentences * 3)[: seconds(45)]
    utterance = hear(whisper, samples)

    assert len(samples) > MAX_PIECE
    assert [words_of(utterance.text).count(word) for word in ("boston", "linda", "camera")] == [3, 3, 3]
    assert not utterance.looped
    assert utterance.words[-1].span.end > len(samples) - seconds(1.5)


def test_the_longest_piece_fits(whisper: Recogniser) -> None:
    sentences = [cut("talk.flac", start - 0.1, end + 0.3) for start, end, _ in reference()]
    samples = np.concatenate(sentences * 3)[:MAX_PIECE]
    last = whisper(samples).words[-1]

    assert len(samples) - seconds(1.5) < last.end <= len(samples) + PADDING


# What is no speech


def white(n_samples: int) -> Samples:
    return np.random.default_rng(0).standard_normal(n_samples).astype(np.float32)


def chord(n_samples: int) -> Samples:
    time = np.arange(n_samples) / 16_000
    notes = [np.sin(2 * np.pi * pitch * time) * np.exp(-3 * (time % 0.5)) for pitch in (220, 277, 330)]
    wave: Samples = np.sum(notes, axis=0).astype(np.float32)
    return wave


def hum(n_samples: int) -> Samples:
    wave: Samples = np.sign(np.sin(2 * np.pi * 100 * np.arange(n_samples) / 16_000)).astype(np.float32)
    return wave


@pytest.mark.parametrize("make", [white, chord, hum])
@pytest.mark.parametrize(("duration_s", "level"), [(0.5, 0.01), (0.5, 0.1), (1.5, 0.001), (1.5, 0.1), (5.0, 0.03)])
def test_nothing_is_invented(
    whisper: Recogniser, make: Callable[[int], Samples], duration_s: float, level: float
) -> None:
    heard = whisper(make(seconds(duration_s)) * np.float32(level))

    assert not heard.text or is_invented(heard)


def test_digital_silence_is_no_speech(whisper: Recogniser) -> None:
    heard = whisper(np.zeros(16_000, np.float32))

    assert not heard.text or is_invented(heard)


# The window


@given(frames=st.integers(1, WINDOW))
def test_the_window_holds_the_piece_and_fits_the_encoder(frames: int) -> None:
    window = window_for(frames)

    assert frames <= window <= WINDOW
    assert window % 2 == 0
    assert window == WINDOW or window >= frames + MARGIN


@pytest.mark.parametrize(
    ("text", "twice"),
    [
        ("It did not sync at all. And so we left. It did not sync at", True),
        ("You know, you know, it did not sync. You know.", False),
        ("No no no no, it did not", False),
        ("", False),
    ],
)
def test_a_phrase_that_comes_twice_is_noticed(text: str, twice: bool) -> None:
    assert repeats(text) is twice


@pytest.mark.parametrize("tail_s", [0.0, 0.05, 0.1, 0.3])
def test_a_tightly_cut_turn_is_not_said_twice(whisper: Recogniser, tail_s: float) -> None:
    sentence = reference()[2]
    heard = hear(whisper, cut("talk.flac", sentence[0], sentence[1] + tail_s)).text

    assert len(words_of(heard)) == pytest.approx(len(words_of(sentence[2])), abs=1)


# A large model: 128 mel bands, many languages


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whisper") / "large"
    save_model(folder)
    return folder


@pytest.mark.parametrize("language", ["en", "de", "yue", None])
def test_a_folder_in_the_form_of_large_v3_is_loaded_and_runs(large: Path, language: str | None) -> None:
    recognise = load(str(large), language=language, compute_type="float32")
    samples = cut("talk.flac", 0.4, 3.8)
    heard = recognise(samples)

    assert recognise(samples) == heard
    assert heard.words
    assert all(-PADDING <= word.start <= word.end <= len(samples) + PADDING for word in heard.words)


def test_a_language_that_a_large_model_does_not_know(large: Path) -> None:
    with pytest.raises(ConfigError, match="knows codes such as 'en' or 'de', but language is 'xx'"):
        load(str(large), language="xx")


def test_a_large_model_without_its_preprocessor_config_is_not_heard_in_80_bands(large: Path, tmp_path: Path) -> None:
    shutil.copytree(large, tmp_path / "copy")
    (tmp_path / "copy" / "preprocessor_config.json").unlink()

    with pytest.raises(ModelError, match=r"wants 128 mel bands, but its preprocessor_config\.json is missing"):
        load(str(tmp_path / "copy"))


# Loading


def test_the_packaged_model_is_complete() -> None:
    assert (model_folder("tiny.en") / "model.bin").stat().st_size > 70_000_000


@pytest.mark.parametrize(
    ("asked", "pulled"),
    [
        ("large-v3", "faster-whisper-large-v3"),
        ("turbo", "faster-whisper-large-v3-turbo"),
        ("nowhere/at/all", "faster-whisper-large-v3"),
    ],
)
def test_a_model_that_is_not_there_names_the_fix(asked: str, pulled: str) -> None:
    with pytest.raises(ModelError, match=rf"at '{asked}'.*tiny\.en.*, or a folder.*models pull {pulled}, or give"):
        load(asked)


def test_every_size_with_a_name_has_a_manifest() -> None:
    models = Path(__file__).resolve().parents[1] / "models"

    assert [name for name in MANIFESTS.values() if not (models / f"{name}.yaml").is_file()] == []


def test_a_folder_that_lacks_files_says_which(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"")
    (tmp_path / "config.json").write_text("{}")

    with pytest.raises(ModelError, match=r"lacks tokenizer\.json, vocabulary\.json or vocabulary\.txt"):
        load(str(tmp_path))


def test_a_broken_model_is_one_line(tmp_path: Path) -> None:
    for name in ("model.bin", "config.json", "tokenizer.json", "vocabulary.txt"):
        (tmp_path / name).write_text("{}")

    with pytest.raises(ModelError, match=r"cannot be loaded on 'cpu' as int8") as caught:
        load(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_a_language_that_the_model_does_not_know() -> None:
    with pytest.raises(ConfigError, match=r"knows English only \('en'\), but language is 'de'"):
        load(language="de")


def test_an_unknown_device() -> None:
    with pytest.raises(ConfigError, match=r"'cpu' or 'cuda', got 'tpu'"):
        load(device="tpu")


def test_a_gpu_that_is_not_there_is_not_replaced_by_the_cpu() -> None:
    import ctranslate2

    if ctranslate2.get_cuda_device_count():
        pytest.skip("this machine has a GPU")
    with pytest.raises(BackendError, match="'cuda', but CTranslate2 finds none; set device: cpu"):
        load(device="cuda")


def test_importing_the_backend_loads_no_model_library() -> None:
    code = "import sys, cascade.backends.faster_whisper; print({'faster_whisper', 'ctranslate2'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "set()"
