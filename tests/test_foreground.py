"""Foreground and background: windows and how they are joined, and where the network is asked."""

from __future__ import annotations

import itertools
import logging
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cascade.errors import BackendError
from cascade.foreground import (
    BACKGROUND,
    FADE,
    FFT,
    FOREGROUND,
    HOP,
    LOOKAHEAD,
    N_BINS,
    STEP,
    WINDOW,
    Foreground,
    Network,
    Spectra,
    power,
    separate,
    speech_power,
    to_samples,
    to_spectra,
)
from cascade.separation import active_level_db
from cascade.speech import FRAME
from cascade.types import AudioChunk, Samples, SeparatedChunk, Span, seconds

PAST = WINDOW - LOOKAHEAD
"""What a window hears before the hop that it settles."""


def noise(n_samples: int, seed: int = 0, level: float = 0.1) -> Samples:
    """Noise of a level."""
    return (level * np.random.default_rng(seed).standard_normal(n_samples)).astype(np.float32)


def in_parts(*parts: float) -> Network:
    """Return a network that gives each source a part of the mixture."""
    return lambda spectra: np.stack([np.float32(part) * spectra for part in parts], 1)


def low_and_high(spectra: Spectra) -> Spectra:
    """Give what is below 2 kHz to the foreground, most of what is above to the background, and nobody the rest."""
    low = (np.arange(N_BINS) < 64)[:, None]
    return np.stack([spectra * low, spectra * np.float32(0.9) * ~low], 1).astype(np.float32)


def turning(spectra: Spectra) -> Spectra:
    """Give what depends on all of the window, so that any other window gives something else."""
    return np.stack([spectra, np.roll(spectra, 7, -1) * np.float32(0.3)], 1)


@dataclass
class Asked:
    """A network that keeps what it was asked."""

    network: Network = low_and_high
    spectra: list[Spectra] = field(default_factory=list)

    def __call__(self, spectra: Spectra, /) -> Spectra:
        self.spectra.append(spectra)
        return self.network(spectra)

    @property
    def levels(self) -> list[float]:
        """The level of each window that was asked."""
        return [float(np.sqrt(np.mean(np.square(to_samples(one, WINDOW))))) for one in self.spectra]


def always(_: Samples) -> float:
    return 1.0


def never(_: Samples) -> float:
    return 0.0


def loud(frame: Samples) -> float:
    """Hear speech in what is loud."""
    return float(np.abs(frame).max() > 0.02)


def cut(audio: Samples, positions: Iterable[int] = ()) -> Iterator[AudioChunk]:
    for start, end in itertools.pairwise(sorted({0, *positions, len(audio)})):
        yield AudioChunk(Span(start, end), audio[start:end])


def every(audio: Samples, size: int) -> Iterator[AudioChunk]:
    return cut(audio, range(0, len(audio), size))


def chunks_of(
    chunks: Iterable[AudioChunk], network: Network = low_and_high, detect: Callable[[Samples], float] = always
) -> list[SeparatedChunk]:
    stage = Foreground(network, detect)
    return [out for chunk in chunks for out in stage.push(chunk)] + list(stage.flush())


def sources_of(audio: Samples, network: Network = low_and_high, detect: Callable[[Samples], float] = always) -> Samples:
    """Return all that comes out (2, n_samples), having seen that it covers the stream once, in order."""
    out = chunks_of(cut(audio), network, detect)
    assert [chunk.span.start for chunk in out] == [0, *(chunk.span.end for chunk in out)][: len(out)]
    nothing = np.zeros((2, 0), np.float32)
    np.testing.assert_array_equal(np.concatenate([nothing[0], *(chunk.mixture for chunk in out)]), audio)
    return np.concatenate([nothing, *(chunk.sources for chunk in out)], axis=1)


# --- the laws of a stream ---------------------------------------------------------------------------------------------

MIXED = np.concatenate([noise(seconds(3)), np.zeros(seconds(4.5), np.float32), noise(seconds(4.3), 1, 0.3)])
"""Speech, a pause that is longer than a window, and louder speech; its end is on no border of anything."""


def prints_of(chunks: Iterable[SeparatedChunk]) -> list[tuple[str, bytes, bytes]]:
    return [(str(chunk.span), chunk.mixture.tobytes(), chunk.sources.tobytes()) for chunk in chunks]


WHOLE = prints_of(chunks_of(cut(MIXED), turning, loud))


@given(st.lists(st.integers(0, len(MIXED)), max_size=40))
@example(list(range(0, len(MIXED), 511)))
@example(list(range(0, len(MIXED), HOP)))
@settings(max_examples=20, deadline=None)
def test_cutting_changes_nothing(positions: list[int]) -> None:
    assert prints_of(chunks_of(cut(MIXED, positions), turning, loud)) == WHOLE


@given(n_samples=st.integers(1, seconds(6)), seed=st.integers(0, 9))
@example(n_samples=1, seed=0)
@example(n_samples=HOP, seed=0)
@example(n_samples=HOP + 1, seed=0)
@example(n_samples=WINDOW, seed=0)
@settings(max_examples=20, deadline=None)
def test_sources_add_up_to_the_mixture_and_cover_it_once(n_samples: int, seed: int) -> None:
    audio = noise(n_samples, seed)
    for network in (low_and_high, turning, in_parts(0.1, 0.2), in_parts(3.0, 0.9)):
        sources = sources_of(audio, network)
        np.testing.assert_allclose(sources.sum(axis=0), audio, atol=2e-7)


def test_nothing_gives_nothing() -> None:
    assert chunks_of(cut(np.zeros(0, np.float32))) == []
    assert chunks_of([AudioChunk(Span(0, 0), np.zeros(0, np.float32))]) == []


@pytest.mark.parametrize("size", [160, 1600, seconds(3)])
def test_no_chunk_is_later_than_the_lookahead(size: int) -> None:
    stage, out = Foreground(low_and_high, loud), 0
    for chunk in every(MIXED, size):
        out = max([out, *(separated.span.end for separated in stage.push(chunk))])
        assert out >= chunk.span.end - stage.lookahead
        assert out <= max(0, chunk.span.end - LOOKAHEAD + HOP)
    assert out > 0
    assert stage.lookahead <= seconds(2.0)


def test_what_comes_later_changes_nothing_that_is_out() -> None:
    end = seconds(6.2)
    audio = noise(seconds(9))
    other = np.concatenate([audio[:end], noise(seconds(3), 5, 0.5)])
    first, second = (sources_of(one, turning, loud) for one in (audio, other))
    np.testing.assert_array_equal(first[:, : end - LOOKAHEAD], second[:, : end - LOOKAHEAD])
    assert not np.array_equal(first, second)


def test_speech_behind_a_window_is_not_known_in_it() -> None:
    """A long chunk brings it, a short one does not; the network must not be asked for it."""
    audio = np.zeros(seconds(8), np.float32)
    # The window of the hop from 3 s on ends at 5 s, within a frame.
    audio[seconds(5) : seconds(5) + 20] = 0.5
    assert seconds(5) % FRAME
    audio[: seconds(8)] += noise(seconds(8), 0, 1e-3)
    whole, crumbs = Asked(), Asked()
    chunks_of(cut(audio), whole, loud)
    chunks_of(every(audio, 100), crumbs, loud)
    assert len(whole.spectra) == len(crumbs.spectra) == 2, "the windows of the hops from 4.5 and 6 s on"


def test_memory_does_not_grow_with_the_recording() -> None:
    stage, peaks = Foreground(turning, loud), []
    tracemalloc.start()
    try:
        for start in range(0, seconds(120), seconds(0.5)):
            stage.push(AudioChunk(Span(start, start + seconds(0.5)), noise(seconds(0.5), start)))
            peaks.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert max(peaks[120:]) - max(peaks[:120]) < 100_000
    assert max(peaks) < 4 * 4 * seconds(6)


# --- windows ----------------------------------------------------------------------------------------------------------


def test_the_lengths_go_together() -> None:
    assert HOP + FADE <= LOOKAHEAD < WINDOW
    assert WINDOW % STEP == 0


@pytest.mark.parametrize("duration_s", [0.001, 0.1, 1.5, 3.9, 4.0, 13.3])
def test_windows_join_without_a_seam(duration_s: float) -> None:
    audio = noise(seconds(duration_s))
    foreground, background = sources_of(audio, in_parts(0.75, 0.25))
    np.testing.assert_allclose(foreground, 0.75 * audio, atol=1e-6)
    np.testing.assert_allclose(background, 0.25 * audio, atol=1e-6)


def test_each_hop_is_settled_by_the_window_around_it() -> None:
    """What a network gives at a place in its window comes out at that place in the stream."""
    audio = noise(seconds(12))
    background = sources_of(audio, turning)[BACKGROUND]
    start = 4 * HOP
    window = separate(audio[start - PAST : start + LOOKAHEAD], turning)[BACKGROUND]
    np.testing.assert_allclose(background[start + FADE : start + HOP], window[PAST + FADE : PAST + HOP], atol=1e-6)


def test_one_window_takes_over_from_the_other() -> None:
    """In a straight line, over FADE."""
    turn = itertools.chain([1.0], itertools.repeat(0.0))
    audio = np.full(seconds(6), 0.1, np.float32)
    background = sources_of(audio, lambda spectra: in_parts(0.0, next(turn))(spectra))[BACKGROUND]
    np.testing.assert_allclose(background[:HOP], 0.1, atol=1e-5)
    np.testing.assert_allclose(background[HOP : HOP + FADE], np.linspace(0.1, 0, FADE), atol=1e-4)
    np.testing.assert_allclose(background[HOP + FADE :], 0, atol=1e-6)


def test_what_is_neither_goes_to_the_foreground() -> None:
    audio = noise(seconds(5))
    foreground, background = sources_of(audio, in_parts(0.5, 0.2))
    np.testing.assert_allclose(foreground, 0.8 * audio, atol=1e-6)
    np.testing.assert_allclose(background, 0.2 * audio, atol=1e-6)


def test_the_network_hears_speech_at_the_level_of_the_loudest_so_far() -> None:
    asked = Asked()
    sources_of(np.concatenate([noise(seconds(6)), 0.1 * noise(seconds(30))]), asked)
    full = asked.levels[2]
    assert full == pytest.approx(1, rel=0.05)
    assert max(asked.levels) == pytest.approx(full, rel=0.05)
    assert asked.levels[-3] == pytest.approx(0.1 * full, rel=0.15)


def test_the_level_does_not_change_what_comes_out() -> None:
    audio = noise(seconds(7))
    np.testing.assert_allclose(sources_of(audio * np.float32(0.01)), sources_of(audio) * 0.01, atol=1e-7)


@pytest.mark.parametrize("heard_as_speech", [True, False])
def test_a_slammed_door_does_not_make_the_speech_after_it_quiet(heard_as_speech: bool) -> None:
    """Else the main speaker would be taken for somebody far away, for minutes."""
    audio = noise(seconds(12), level=0.03)
    door = slice(seconds(1), seconds(1.2))
    audio[door] = noise(seconds(0.2), level=0.9).clip(-1, 1)
    asked, alone = Asked(), Asked()
    sources_of(audio, asked, always if heard_as_speech else lambda frame: float(np.abs(frame).max() < 0.5))
    sources_of(noise(seconds(12), level=0.03), alone)
    assert alone.levels[-2] == pytest.approx(1, rel=0.05)
    assert asked.levels[-2] >= (0.5 if heard_as_speech else 0.7)


def test_a_bang_is_no_speech_and_a_loud_word_is() -> None:
    quiet, loud_word, bang = (noise(FRAME, level=level) for level in (0.02, 0.05, 0.9))
    for beside, times in ((loud_word, 1.0), (bang, 0.1)):
        speech = [*[quiet] * 20, *[beside] * 4]
        window = np.concatenate(speech)
        assert speech_power(window, speech) <= 10 ** (active_level_db(window) / 10) * times
        assert 10 * np.log10(speech_power(window, speech) / power(quiet)) < 8
    assert speech_power(window, []) == pytest.approx(10 ** (active_level_db(window) / 10))
    assert speech_power(window, [np.zeros(FRAME, np.float32)]) == speech_power(window, [])


def test_what_is_nearly_silent_is_not_made_loud() -> None:
    asked = Asked()
    sources_of(noise(seconds(4), level=1e-6), asked)
    assert max(asked.levels) == pytest.approx(0.01, rel=0.1)


def test_a_pause_does_not_make_a_soft_voice_loud() -> None:
    """Minutes of silence: who speaks far away after it is still far away."""
    pause = np.zeros(seconds(200), np.float32)
    asked = Asked()
    sources_of(np.concatenate([noise(seconds(6)), pause, 0.2 * noise(seconds(6))]), asked, loud)
    assert max(asked.levels[-3:]) == pytest.approx(0.2, rel=0.2)


# --- where the network is asked ---------------------------------------------------------------------------------------


def test_without_speech_all_is_foreground() -> None:
    audio, asked = noise(seconds(7)), Asked()
    foreground, background = sources_of(audio, asked, never)
    np.testing.assert_array_equal(foreground, audio)
    assert not background.any()
    assert asked.spectra == []


def test_a_window_with_speech_anywhere_in_it_is_separated() -> None:
    audio = noise(seconds(12), level=1e-3)
    audio[seconds(6) : seconds(6.2)] *= 100
    asked = Asked()
    background = sources_of(audio, asked, loud)[BACKGROUND]
    # Windows begin 2 s before a hop, at -2, -0.5, 1, 2.5, 4, 5.5, 7; those that reach 6 to 6.2 s are three.
    assert len(asked.spectra) == 3
    assert not background[: seconds(4.5)].any()
    assert background[seconds(4.5) : seconds(9)].any()
    assert not background[seconds(9) + FADE :].any()


def test_digital_silence_is_not_separated() -> None:
    asked = Asked()
    sources = sources_of(np.zeros(seconds(6), np.float32), asked)
    assert not sources.any()
    assert asked.spectra == []


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_is_no_number_is_not_separated_and_both_are_silent_there(wrong: float) -> None:
    audio, asked = noise(seconds(14)), Asked()
    clean = sources_of(audio, low_and_high)
    broken = audio.copy()
    broken[seconds(7.2)] = wrong
    sources = sources_of(broken, asked)
    assert all(np.isfinite(spectra).all() for spectra in asked.spectra)
    assert np.isfinite(sources).all()
    # The hops from 6, 7.5 and 9 s on have windows that hold it.
    assert not sources[:, seconds(6) + FADE : seconds(10.5)].any()
    np.testing.assert_array_equal(sources[:, : seconds(6)], clean[:, : seconds(6)])
    np.testing.assert_allclose(sources[:, seconds(10.5) + FADE :], clean[:, seconds(10.5) + FADE :], atol=1e-6)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -1e5, 1e38])
def test_where_the_network_fails_both_are_silent_and_it_is_said_once(
    wrong: float, caplog: pytest.LogCaptureFixture
) -> None:
    """What would be left as foreground there would hold the bystander."""
    count = itertools.count()

    def failing(spectra: Spectra) -> Spectra:
        sources = low_and_high(spectra)
        if next(count) in (2, 3):
            sources[0, BACKGROUND, 0, 5, 5] = wrong
        return sources

    audio = noise(seconds(12))
    clean = sources_of(audio)
    with caplog.at_level(logging.WARNING):
        sources = sources_of(audio, failing)
    assert not sources[:, 2 * HOP + FADE : 4 * HOP].any()
    np.testing.assert_array_equal(sources[:, : 2 * HOP], clean[:, : 2 * HOP])
    np.testing.assert_array_equal(sources[:, 4 * HOP + FADE :], clean[:, 4 * HOP + FADE :])
    (said,) = caplog.messages
    assert said == (
        "what the separation network gave, first around 3.0 s, is no part of what is heard: foreground and background "
        "are silent there"
    )


@pytest.mark.parametrize(("background", "fails"), [(0.5, False), (1.9, False), (-0.05, False), (-0.5, True), (3, True)])
def test_what_makes_the_mixture_louder_when_it_is_taken_away_was_no_part_of_it(background: float, fails: bool) -> None:
    """A network that gives the bystander with the wrong sign, or too loud, would make a bystander louder."""
    audio = noise(seconds(5))
    sources = sources_of(audio, in_parts(1.0, background))
    if fails:
        assert not sources.any()
    else:
        np.testing.assert_allclose(sources[BACKGROUND], background * audio, atol=1e-6)


@pytest.mark.parametrize("wrong", [1e38, 1e300])
def test_what_is_too_large_for_a_sample_is_none(wrong: float) -> None:
    sources = sources_of(noise(seconds(5)), lambda spectra: np.full((1, 2, *spectra.shape[1:]), wrong))
    assert not sources.any()


def test_a_foreground_that_is_no_number_does_no_harm() -> None:
    """It is what the background leaves of the mixture."""
    audio = noise(seconds(5))

    def failing(spectra: Spectra) -> Spectra:
        sources = low_and_high(spectra)
        sources[:, FOREGROUND] = np.nan
        return sources

    np.testing.assert_array_equal(sources_of(audio, failing), sources_of(audio))


@pytest.mark.parametrize("n_sources", [1, 3])
def test_another_number_of_sources_is_an_error(n_sources: int) -> None:
    with pytest.raises(BackendError, match=r"gave spectra of shape \(1, \d, 2, 257, 251\), expected \(1, 2, 2, 257"):
        sources_of(noise(seconds(5)), in_parts(*[0.1] * n_sources))


# --- spectra ----------------------------------------------------------------------------------------------------------


@given(n_samples=st.integers(1, 3000), seed=st.integers(0, 100))
@settings(max_examples=30, deadline=None)
def test_spectra_give_the_samples_back(n_samples: int, seed: int) -> None:
    audio = noise(n_samples, seed)
    spectra = to_spectra(audio)
    assert spectra.shape == (1, 2, N_BINS, -(-n_samples // STEP) + 1)
    assert spectra.dtype == np.float32
    np.testing.assert_allclose(to_samples(spectra, n_samples)[0], audio, atol=1e-6)


def test_a_tone_is_in_its_bin() -> None:
    tone = np.sin(2 * np.pi * 40 / FFT * np.arange(seconds(1))).astype(np.float32)
    power = np.square(to_spectra(tone)[0]).sum(0)
    assert set(power[:, 5:-5].argmax(0)) == {40}
