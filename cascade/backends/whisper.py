"""Whisper by OpenAI's own program (openai-whisper, on torch): a Recogniser for asr.py.

It decodes by the same rules as backends/faster_whisper.py: at temperature 0, without the text of an earlier piece, the
same tokens suppressed, as many tokens as the piece can hold. The same piece always gives the same text: Whisper's own
second tries at higher temperatures, which are drawn at random, are not made. Its encoder takes nothing but 30 s, so a
piece is always seen in the whole window, and no second look at it is due.

whisper.transcribe is not used: its loop decodes again what lies behind the last word of a piece, and it falls back from
float16 to float32 on a CPU.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Final

import numpy as np

from cascade.asr import RecognisedWord, Recogniser, Recognition
from cascade.errors import BackendError, ConfigError, MissingExtraError, ModelError
from cascade.types import Samples, seconds

DEFAULT_SIZE: Final = "large-v3"
"""What the paper (section 5.1) transcribes with."""

MANIFEST: Final = "openai-whisper-large-v3"
"""Name in models/ of the checkpoint of that size."""

ENGLISH_ONLY: Final = frozenset(f"{size}.en.pt" for size in ("tiny", "base", "small", "medium"))
"""OpenAI's files of the models that know no other language; their names must be kept, as the timing of words needs."""

PADDING: Final = seconds(0.4)
"""Silence put at both ends of a piece, as in backends/faster_whisper.py."""

_SIZES: Final = {
    "n_mels": 128,
    "n_audio_ctx": 1500,
    "n_audio_state": 2048,
    "n_audio_head": 64,
    "n_audio_layer": 64,
    "n_vocab": 60_000,
    "n_text_ctx": 448,
    "n_text_state": 2048,
    "n_text_head": 64,
    "n_text_layer": 64,
}
"""The most of each size that a checkpoint may name (whisper.model.ModelDimensions); large-v3 has layers of 1280 numbers
with 20 heads, 32 on each side, and 51,866 tokens."""

_MOST_NUMBERS: Final = 3_000_000_000
"""Weights in all layers; large-v3 has half as many."""

_FRAME: Final = seconds(0.01)
_TOKENS_A_SECOND: Final = 12
_TOKENS_AT_LEAST: Final = 32
"""Fast speech makes about six tokens a second; a text that is twice as long for its piece is a loop."""


class _Encoded:
    """A model that has encoded a piece already: whisper.timing, which is given it, would do so once more."""

    def __init__(self, model: Any, features: Any) -> None:
        self._model, self._features = model, features

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, mel: Any, tokens: Any) -> Any:
        """Return the decoder's logits (1, n_tokens, n_vocab)."""
        return self._model.decoder(tokens, self._features[None])


class Whisper:
    """A loaded model as a Recogniser; it keeps nothing between calls.

    One call at a time: while it decodes, openai-whisper hangs its cache on the model itself.
    """

    def __init__(self, model: Any, language: str | None, beam_size: int, *, fp16: bool) -> None:
        self._model = model
        self._language = language if model.is_multilingual else "en"
        self._beam_size = None if beam_size == 1 else beam_size
        self._fp16 = fp16
        self._lock = Lock()

    def __call__(self, samples: Samples) -> Recognition:
        """Transcribe a piece (n_samples,) of at most 29 s at 16 kHz."""
        padded = np.pad(samples, PADDING)
        with self._lock:
            mel = self._mel(padded)
            result = self._decode(mel, len(padded))
            words = self._words(result, mel, len(padded) // _FRAME) if result.text else ()
        return Recognition(result.text, words, float(result.no_speech_prob), float(result.avg_logprob))

    def _mel(self, padded: Samples) -> Any:
        """Return the log-mel spectrogram of a piece, (n_mels, 3000): the whole window, zeros behind the piece.

        Zeros are a soft, even noise. Filled up with digital silence instead, tiny.en hears "you", and is sure of it, in
        most of what is no speech.
        """
        from whisper.audio import N_FRAMES, log_mel_spectrogram, pad_or_trim

        mel = log_mel_spectrogram(padded, self._model.dims.n_mels, device=self._model.device)
        return pad_or_trim(mel, N_FRAMES)

    def _decode(self, mel: Any, n_samples: int) -> Any:
        """Return whisper's DecodingResult for a piece of so many samples."""
        from whisper.decoding import DecodingOptions, decode

        limit = _TOKENS_AT_LEAST + _TOKENS_A_SECOND * n_samples // seconds(1)
        options = DecodingOptions(
            language=self._language,
            temperature=0.0,
            beam_size=self._beam_size,
            sample_len=min(limit, self._model.dims.n_text_ctx // 2),
            without_timestamps=True,
            fp16=self._fp16,
        )
        return decode(self._model, mel, options)

    def _words(self, result: Any, mel: Any, frames: int) -> tuple[RecognisedWord, ...]:
        """Align the tokens with the audio; times come back relative to the piece without its padding."""
        from whisper.timing import add_word_timestamps
        from whisper.tokenizer import get_tokenizer

        tokenizer = get_tokenizer(
            self._model.is_multilingual, num_languages=self._model.num_languages, language=result.language
        )
        whole: dict[str, Any] = {"seek": 0, "start": 0.0, "end": frames / 100, "tokens": list(result.tokens)}
        add_word_timestamps(
            segments=[whole],
            model=_Encoded(self._model, result.audio_features),
            tokenizer=tokenizer,
            mel=mel,
            num_frames=frames,
            last_speech_timestamp=0.0,
        )
        return tuple(_word(word) for word in whole["words"])


def load(
    checkpoint: Path,
    *,
    device: str = "cpu",
    fp16: bool = False,
    language: str | None = "en",
    beam_size: int = 1,
) -> Recogniser:
    """Load a checkpoint of openai-whisper that is on this machine; nothing is ever downloaded.

    Args:
        checkpoint: The file, such as large-v3.pt, or the folder that holds it. The heads that words are timed by go by
            the file's name, so OpenAI's own name (large-v3.pt) must be kept; a checkpoint of another name is timed by
            all heads of the upper layers, as openai-whisper does, which is a little less exact.
        device: "cpu" or "cuda"; what is asked for is used, or fails.
        fp16: Compute in float16, on a GPU only.
        language: Code of the language spoken, or None to detect it in each piece of a multilingual model.
        beam_size: Hypotheses kept while decoding; 1 is greedy.

    Raises:
        MissingExtraError: openai-whisper is not installed.
        ModelError: The file does not exist or is no checkpoint of openai-whisper.
        ConfigError: The language is unknown or not that of an English-only model, or fp16 is asked for on a CPU.
        BackendError: The device cannot be used.
    """
    if importlib.util.find_spec("whisper") is None:
        raise MissingExtraError("openai-whisper", "paper")
    path = checkpoint_file(checkpoint)
    _check_device(device, fp16=fp16)
    model = _open(path, device)
    _check_language(language, path, model)
    _warm_tokenizer(model)
    return Whisper(model, language, beam_size, fp16=fp16)


def checkpoint_file(checkpoint: Path) -> Path:
    """Find the file that a path means, the only *.pt in it where it is a folder, without loading anything.

    Raises:
        ModelError: There is no such file, or a folder does not hold exactly one.
    """
    found = sorted(checkpoint.glob("*.pt")) if checkpoint.is_dir() else [checkpoint]
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise ModelError(
            f"the folder '{checkpoint}' must hold one checkpoint of openai-whisper, a *.pt file, but holds {names}; "
            "give the path of the file itself"
        )
    if not found[0].is_file():
        raise ModelError(
            f"no Whisper checkpoint at '{checkpoint}': expected the size {DEFAULT_SIZE}, or a file of openai-whisper "
            f"such as {DEFAULT_SIZE}.pt; get it with: python -m cascade models pull {MANIFEST}, or give another path"
        )
    return found[0]


def _check_device(device: str, *, fp16: bool) -> None:
    if device not in ("cpu", "cuda"):
        raise ConfigError(f"Whisper runs on the device 'cpu' or 'cuda', got '{device}'")
    if fp16 and device == "cpu":
        raise ConfigError("Whisper computes in float16 on a GPU only, got fp16: true with device: cpu; set fp16: false")
    if device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise BackendError("Whisper was to run on the device 'cuda', but torch finds none; set device: cpu")


def _open(path: Path, device: str) -> Any:
    """Return the model in path, with the alignment heads of its name."""
    import torch
    import whisper

    try:
        # As whisper.load_model does, which makes a network of whatever size a file names, and downloads what has a name
        # of its own.
        checkpoint = torch.load(path, map_location=device, weights_only=True)
        model = whisper.model.Whisper(whisper.model.ModelDimensions(**_sizes(path, checkpoint["dims"])))
        model.load_state_dict(checkpoint["model_state_dict"])
        heads = whisper._ALIGNMENT_HEADS.get(path.stem)
        if heads is not None:
            model.set_alignment_heads(heads)
        return model.to(device).eval()
    except ModelError:
        raise
    except Exception as error:  # torch, pickle and zipfile each raise their own
        reason = type(error).__name__
        if reason in ("MemoryError", "OutOfMemoryError"):  # the second is torch's, for a GPU
            raise BackendError(
                f"the Whisper checkpoint '{path}' does not fit into the memory of '{device}'; take a smaller model"
            ) from error
        raise ModelError(
            f"'{path}' is not a checkpoint of openai-whisper, or is damaged ({reason}); pull it again"
        ) from error


def _sizes(path: Path, sizes: Any) -> dict[str, int]:
    """Return the sizes of a checkpoint's network; ModelError if one is beyond all that a Whisper can have."""
    told = sizes if isinstance(sizes, dict) else {}
    if told.keys() != _SIZES.keys():
        raise ModelError(
            f"'{path}' does not tell the sizes of a Whisper ({', '.join(_SIZES)}), and nothing else; pull it again"
        )
    for name, most in _SIZES.items():
        if type(told[name]) is not int or not 1 <= told[name] <= most:
            raise ModelError(f"'{path}' has a wrong {name}, expected a number from 1 to {most}; pull it again")
    # The weights of the layers: an encoder's has 12 matrices of n_state x n_state, a decoder's 16.
    numbers = 12 * told["n_audio_layer"] * told["n_audio_state"] ** 2
    numbers += 16 * told["n_text_layer"] * told["n_text_state"] ** 2
    if numbers > _MOST_NUMBERS:
        raise ModelError(f"'{path}' asks for {numbers} weights, expected at most {_MOST_NUMBERS}; pull it again")
    return told


def _warm_tokenizer(model: Any) -> None:
    """Let whisper read its vocabulary, which it keeps; the file it leaves open, and Python warns of that."""
    from whisper.tokenizer import get_tokenizer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        get_tokenizer(model.is_multilingual, num_languages=model.num_languages)


def _check_language(language: str | None, path: Path, model: Any) -> None:
    known = _languages(model)
    if language is not None and language not in known:
        wanted = "codes such as 'en' or 'de'" if model.is_multilingual else "English only ('en')"
        raise ConfigError(f"the Whisper model in '{path}' knows {wanted}, but language is '{language}'")


def _languages(model: Any) -> Sequence[str]:
    from whisper.tokenizer import LANGUAGES

    return list(LANGUAGES)[: model.num_languages] if model.is_multilingual else ["en"]


def _word(word: dict[str, Any]) -> RecognisedWord:
    start, end = (seconds(float(word[side])) - PADDING for side in ("start", "end"))
    return RecognisedWord(start, end, str(word["word"]), float(word["probability"]))
