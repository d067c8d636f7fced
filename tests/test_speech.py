"""Where somebody speaks: frames, heard once each, in order, and no sooner than they are whole."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cascade.audio import SampleBuffer
from cascade.speech import FRAME, SPEECH_THRESHOLD, SpeechFrames
from cascade.types import Samples, Span


@dataclass
class Detector:
    """Hears speech in frames that are loud, and keeps all that it heard."""

    heard: list[Samples] = field(default_factory=list)

    def __call__(self, frame: Samples, /) -> float:
        self.heard.append(frame.copy())
        return float(np.abs(frame).max())


def frames_of(audio: Samples, *, whole: bool = True) -> tuple[SpeechFrames, Detector]:
    """Return the frames of a stream that has been heard, and what the detector heard."""
    buffer, detector = SampleBuffer(), Detector()
    frames = SpeechFrames(detector, buffer)
    buffer.append(audio)
    frames.hear_rest() if whole else frames.hear()
    return frames, detector


def loud_in(*places: int, n_frames: int = 6) -> Samples:
    """Return frames of silence, but for some."""
    audio = np.zeros((n_frames, FRAME), np.float32)
    audio[list(places)] = 0.9
    return audio.reshape(-1)


def test_a_span_holds_speech_where_a_frame_with_some_reaches_into_it() -> None:
    frames, _ = frames_of(loud_in(2))
    assert not frames.any_in(Span(0, 2 * FRAME))
    assert frames.any_in(Span(0, 2 * FRAME + 1))
    assert frames.any_in(Span(3 * FRAME - 1, 4 * FRAME))
    assert not frames.any_in(Span(3 * FRAME, 6 * FRAME))


def test_the_frames_in_a_span_are_cut_to_it() -> None:
    frames, _ = frames_of(loud_in(1, 2, 4))
    half = FRAME // 2
    assert frames.frames_in(Span(FRAME + half, 4 * FRAME + half)) == [
        Span(FRAME + half, 2 * FRAME),
        Span(2 * FRAME, 3 * FRAME),
        Span(4 * FRAME, 4 * FRAME + half),
    ]
    assert frames.frames_in(Span(3 * FRAME, 4 * FRAME)) == []


def test_what_is_behind_a_span_may_still_be_asked_for() -> None:
    frames, _ = frames_of(loud_in(1, 4))
    asked = [frames.any_in(Span(start * FRAME, (start + 1) * FRAME)) for start in range(6)]
    assert asked == [False, True, False, False, True, False]


def test_at_the_threshold_there_is_no_speech() -> None:
    frames, _ = frames_of(np.full(FRAME, SPEECH_THRESHOLD, np.float32))
    assert not frames.any_in(Span(0, FRAME))


@given(st.lists(st.integers(0, 4000), max_size=8))
def test_each_frame_is_heard_once_however_the_audio_comes(sizes: list[int]) -> None:
    audio = np.random.default_rng(0).uniform(-1, 1, sum(sizes)).astype(np.float32)
    buffer, detector = SampleBuffer(), Detector()
    frames = SpeechFrames(detector, buffer)
    for size in sizes:
        buffer.append(audio[buffer.end : buffer.end + size])
        frames.hear()
        assert buffer.end - FRAME < frames.end <= buffer.end
        buffer.drop_before(frames.end)
    frames.hear_rest()
    assert len(detector.heard) == -(-len(audio) // FRAME)
    together = np.concatenate([np.zeros(0, np.float32), *detector.heard])
    np.testing.assert_array_equal(together, np.pad(audio, (0, -len(audio) % FRAME)))


def test_the_last_frame_is_padded_once_the_stream_is_over() -> None:
    audio = loud_in(5)[: 5 * FRAME + 10]
    assert not frames_of(audio, whole=False)[0].any_in(Span(0, len(audio)))
    frames, detector = frames_of(audio)
    assert frames.any_in(Span(0, len(audio)))
    assert [len(frame) for frame in detector.heard] == [FRAME] * 6
    assert not detector.heard[-1][10:].any()


def test_what_is_no_number_is_not_shown_to_a_detector() -> None:
    """It would stay in its state."""
    audio = loud_in(0, 1, 2)
    audio[FRAME + 3], audio[2 * FRAME] = np.nan, np.inf
    frames, detector = frames_of(audio)
    assert len(detector.heard) == 4
    assert frames.any_in(Span(0, FRAME))
    assert not frames.any_in(Span(FRAME, 6 * FRAME))


def test_a_probability_that_is_no_number_is_no_speech() -> None:
    buffer = SampleBuffer()
    buffer.append(loud_in(0))
    frames = SpeechFrames(lambda _: float("nan"), buffer)
    frames.hear()
    assert not frames.any_in(Span(0, len(buffer)))
