"""What a recording goes through after the microphone: a telephone line, a low rate, clipping, a codec.

Each function takes (n_samples,) at SAMPLE_RATE and gives as many, as cascade hears them when it reads such a file.
"""

from __future__ import annotations

import io
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from mixing import band_pass

from cascade.types import SAMPLE_RATE, Samples

TELEPHONE_HZ: Final = (300.0, 3400.0)
TELEPHONE_RATE: Final = 8_000  # Hz
ENCODERS: Final = {"opus": ("libopus", "ogg"), "mp3": ("libmp3lame", "mp3")}

Codec: TypeAlias = Literal["opus", "mp3"]


def narrow(samples: Samples) -> Samples:
    """Take samples to TELEPHONE_RATE and back: nothing is left above 4 kHz, not even noise."""
    import soxr

    low = soxr.resample(samples, SAMPLE_RATE, TELEPHONE_RATE)
    return _as_long(soxr.resample(low, TELEPHONE_RATE, SAMPLE_RATE), len(samples))


def telephone(samples: Samples) -> Samples:
    """Keep TELEPHONE_HZ of samples, in 8-bit mu-law at TELEPHONE_RATE (ITU-T G.711)."""
    import soxr

    low = mu_law(soxr.resample(band_pass(samples, *TELEPHONE_HZ), SAMPLE_RATE, TELEPHONE_RATE))
    return _as_long(soxr.resample(low, TELEPHONE_RATE, SAMPLE_RATE), len(samples))


def _as_long(samples: Samples, length: int) -> Samples:
    return np.asarray(np.pad(samples[:length], (0, max(0, length - len(samples)))), np.float32)


def mu_law(samples: Samples) -> Samples:
    """Take samples, of any rate, through 8-bit mu-law (ITU-T G.711) and back, by libsndfile."""
    import soundfile  # type: ignore[import-untyped, unused-ignore]

    buffer = io.BytesIO()
    soundfile.write(buffer, samples, SAMPLE_RATE, format="WAV", subtype="ULAW")
    buffer.seek(0)
    decoded, _ = soundfile.read(buffer, dtype="float32")
    return np.asarray(decoded, np.float32)


def clip(samples: Samples, over_db: float) -> Samples:
    """Make samples so loud that the loudest one is that far over full scale, and cut off what is over it."""
    gain = 10 ** (over_db / 20) / float(np.abs(samples).max())
    return np.asarray(np.clip(samples * np.float32(gain), -1.0, 1.0), np.float32)


def encode(samples: Samples, codec: Codec, bit_rate: int) -> bytes:
    """Encode samples as Opus in Ogg or as MP3, of so many bit/s, by PyAV."""
    import av

    encoder, container_format = ENCODERS[codec]
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=container_format, options={"fflags": "bitexact"}) as container:
        stream: Any = container.add_stream(encoder, rate=SAMPLE_RATE, layout="mono")
        stream.bit_rate = bit_rate
        kind = "flt" if codec == "opus" else "fltp"
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples[np.newaxis]), format=kind, layout="mono")
        frame.sample_rate = SAMPLE_RATE
        container.mux([*stream.encode(frame), *stream.encode(None)])
    return buffer.getvalue()


def coded(samples: Samples, codec: Codec, bit_rate: int) -> Samples:
    """Encode and decode samples; the little delay that an MP3 has stays."""
    import av
    import soxr

    parts: list[Samples] = []
    with av.open(io.BytesIO(encode(samples, codec, bit_rate)), "r") as container:
        rate = container.streams.audio[0].rate
        for frame in container.decode(audio=0):
            parts.append(frame.to_ndarray().astype(np.float32).mean(axis=0))
    decoded = np.concatenate(parts)
    return _as_long(soxr.resample(decoded, rate, SAMPLE_RATE), len(samples))
