"""Samples -> where somebody speaks: a speech detector hears frames of 512 samples, from the start of the stream on.

No stage by itself: each one that has to know it has a SpeechFrames over its own buffer, with a detector of its own.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

import numpy as np

from cascade.audio import SampleBuffer
from cascade.types import Samples, Span

FRAME: Final = 512
"""Samples per frame of the speech detector; Silero VAD (v5 and later) takes no other number at 16 kHz."""

SPEECH_THRESHOLD: Final = 0.5
"""Speech probability from which a frame is speech: the default of Silero VAD (github.com/snakers4/silero-vad)."""


class SpeechDetector(Protocol):
    """Speech probability of one frame; keeps the state of one stream, so each stream has its own."""

    def __call__(self, frame: Samples, /) -> float:
        """Return the probability of speech, in [0, 1], in the next frame (FRAME,)."""


class SpeechFrames:
    """Which frames of a stream hold speech. It hears each frame once, as soon as the buffer holds all of it."""

    def __init__(self, detect: SpeechDetector, buffer: SampleBuffer) -> None:
        self._detect, self._buffer = detect, buffer
        self._heard = 0
        self._speech = deque[int]()  # frames that hold speech, of those that may still be asked for

    @property
    def end(self) -> int:
        """Position up to which all frames have been heard; the buffer must keep what is behind it."""
        return self._heard * FRAME

    def hear(self) -> None:
        """Hear all frames that the buffer holds now."""
        while self.end + FRAME <= self._buffer.end:
            self._hear(self._buffer.view(Span(self.end, self.end + FRAME)))

    def hear_rest(self) -> None:
        """Hear the last frame of the stream, padded with silence, where it is not a whole one."""
        self.hear()
        rest = self._buffer.view(Span(self.end, self._buffer.end))
        if rest.size:
            self._hear(np.pad(rest, (0, FRAME - rest.size)))

    def any_in(self, span: Span) -> bool:
        """Tell whether a frame that was heard, and reaches into a span, holds speech; spans may not begin earlier."""
        while self._speech and (self._speech[0] + 1) * FRAME <= span.start:
            self._speech.popleft()
        return bool(self._speech) and self._speech[0] * FRAME < span.end

    def frames_in(self, span: Span) -> list[Span]:
        """Return the frames that were heard and hold speech, as far as they reach into a span; see any_in."""
        if not self.any_in(span):
            return []
        frames = (Span(index * FRAME, (index + 1) * FRAME) for index in self._speech)
        return [frame & span for frame in frames if frame.overlaps(span)]

    def _hear(self, frame: Samples) -> None:
        # What is no number would stay in the detector's state, and it would hear no speech ever after.
        if np.isfinite(frame).all() and self._detect(frame) > SPEECH_THRESHOLD:
            self._speech.append(self._heard)
        self._heard += 1
