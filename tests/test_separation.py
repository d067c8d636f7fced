"""Separation: windows and how they are joined, levels, the order of sources, and the choice of the loudest one.

The voices are bands of noise, LOW and HIGH, so that a few lines of numpy separate them and tell them apart.
"""

from __future__ import annotations

import itertools
import logging
import math
import tracemalloc
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cascade.errors import BackendError, ConfigError
from cascade.gate import GateSettings, MainSpeaker
from cascade.separation import (
    LEVEL_CORRECTION,
    LOUDEST,
    LoudestSource,
    Mixture,
    Separate,
    Separator,
    Swaps,
    active_level_db,
    count_swaps,
    in_level,
    resized,
)
from cascade.types import (
    SAMPLE_RATE,
    AudioChunk,
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
from tests.canary import judge

LOW, HIGH = (200.0, 1000.0), (1500.0, 3000.0)
BORDER = 1250.0
"""Hz between the two voices; all of both is below 4 kHz, so that a model at 8 kHz hears all of it."""


def band(samples: Samples, low: float, high: float, rate: int = SAMPLE_RATE) -> Samples:
    """Return what is between two frequencies in samples (..., n_samples)."""
    spectrum = np.fft.rfft(samples, axis=-1)
    frequencies = np.fft.rfftfreq(samples.shape[-1], 1 / rate)
    kept = np.where((frequencies >= low) & (frequencies < high), spectrum, 0)
    return np.fft.irfft(kept, samples.shape[-1], axis=-1).astype(np.float32)


def voice(which: tuple[float, float], spoken: Sequence[tuple[float, float]], duration_s: float, seed: int) -> Samples:
    """Return noise in a voice's band that sounds between these seconds."""
    noise = np.random.default_rng(seed).standard_normal(seconds(duration_s)).astype(np.float32)
    sound = 0.2 * band(noise, *which)
    on = np.zeros(len(sound), np.float32)
    for start, end in spoken:
        on[seconds(start) : seconds(end)] = 1
    return sound * on


@dataclass
class Model:
    """Separates the voices; gives them in an order and in levels that depend on nothing but chance and the window."""

    rate: int = SAMPLE_RATE
    swaps: bool = True
    scales: bool = False
    residue: float = 0.0
    hiss: bool = False
    windows: int = 0

    def __call__(self, windows: Samples, /) -> Samples:
        self.windows += len(windows)
        return np.stack([self._one(window) for window in windows])

    def _one(self, window: Samples) -> Samples:
        chance = np.random.default_rng(zlib.crc32(window.tobytes()))
        sources = np.stack([band(window, 0, BORDER, self.rate), band(window, BORDER, 9000, self.rate)])
        sources += np.float32(self.residue) * sources[::-1]
        if self.scales:
            sources *= chance.uniform(0.5, 2, (2, 1)).astype(np.float32)
        ordered = sources[::-1] if self.swaps and chance.random() < 0.5 else sources
        if not self.hiss:
            return ordered
        quiet = np.repeat(np.square(window.reshape(-1, 160)).mean(axis=1) < 1e-5, 160)
        return np.where(quiet, np.stack([window, 0 * window]), ordered)


@dataclass
class Ear:
    """Tells the voices apart by the share of their energy below BORDER; remembers the power of what it was asked."""

    window: int = seconds(0.5)
    asked: list[float] = field(default_factory=list)

    def __call__(self, samples: Samples, /) -> Vector:
        self.asked.append(float(np.square(samples).mean()))
        low, high = (float(np.square(part).sum()) for part in (band(samples, 0, BORDER), band(samples, BORDER, 9000)))
        vector = np.array([low, high], np.float32)
        with np.errstate(invalid="ignore"):
            return vector / np.float32(np.linalg.norm(vector))


def cut(audio: Samples, positions: Iterable[int] = ()) -> Iterator[AudioChunk]:
    for start, end in itertools.pairwise(sorted({0, *positions, len(audio)})):
        yield AudioChunk(Span(start, end), audio[start:end])


def joined(stage: Separator, chunks: Iterable[AudioChunk]) -> SeparatedChunk:
    """Return all that comes out as one chunk, having seen that the chunks follow each other."""
    out = [out for chunk in chunks for out in stage.push(chunk)] + list(stage.flush())
    assert [chunk.span.start for chunk in out] == [0, *(chunk.span.end for chunk in out)][: len(out)]
    nothing = np.zeros(0, np.float32)
    return SeparatedChunk(
        Span(0, out[-1].span.end if out else 0),
        np.concatenate([nothing, *(chunk.mixture for chunk in out)]),
        np.concatenate([np.zeros((2, 0), np.float32), *(chunk.sources for chunk in out)], axis=1),
    )


def noise(n_samples: int, seed: int = 0) -> Samples:
    return (0.1 * np.random.default_rng(seed).standard_normal(n_samples)).astype(np.float32)


def halves(windows: Samples) -> Samples:
    """A model that splits each sample in two parts."""
    return np.stack([0.3 * windows, 0.7 * windows], axis=1)


# --- the mixture as its only source -----------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 100), max_size=8))
def test_the_mixture_passes_unchanged_at_once(sizes: list[int]) -> None:
    stage, start, heard = Mixture(), 0, list[Samples]()
    audio = np.random.default_rng(0).standard_normal(sum(sizes)).astype(np.float32)
    for size in sizes:
        span = Span(start, start + size)
        (chunk,) = stage.push(AudioChunk(span, audio[span.start : span.end]))
        assert chunk.span == span
        assert chunk.sources.shape == (1, size)
        np.testing.assert_array_equal(chunk.sources[0], chunk.mixture)
        heard.append(chunk.mixture)
        start = span.end
    assert list(stage.flush()) == []
    np.testing.assert_array_equal(np.concatenate([*heard, np.zeros(0, np.float32)]), audio)


def test_nothing_is_waited_for() -> None:
    assert Mixture().lookahead == 0


# --- windows ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [8000, 16_000])
@given(n_samples=st.integers(0, 9000), cuts=st.lists(st.integers(0, 9000), max_size=20), batch=st.integers(1, 4))
@example(n_samples=1, cuts=[], batch=1)
@example(n_samples=10, cuts=[3], batch=2)
@example(n_samples=160, cuts=[], batch=3)
@example(n_samples=1600, cuts=[800], batch=1)
@settings(max_examples=40, deadline=None)
def test_cutting_changes_nothing(rate: int, n_samples: int, cuts: list[int], batch: int) -> None:
    audio, ear = noise(n_samples), Ear(window=400)

    def hear(positions: Iterable[int]) -> SeparatedChunk:
        stage = Separator(Model(rate), rate=rate, window_s=0.1, hop_s=0.05, batch=batch, encode=ear)
        return joined(stage, cut(audio, (at for at in positions if at < n_samples)))

    whole, pieces = hear(()), hear(cuts)
    assert whole.sources.shape == (2, n_samples)
    np.testing.assert_array_equal(whole.mixture, audio)
    np.testing.assert_array_equal(pieces.sources, whole.sources)
    np.testing.assert_array_equal(pieces.mixture, whole.mixture)


@given(st.integers(1, 9000), st.sampled_from([(0.1, 0.05), (0.1, 0.03), (0.1, 0.09), (0.11, 0.02)]))
@settings(max_examples=30, deadline=None)
def test_a_model_that_hears_a_sample_at_a_time_gives_the_same_as_in_one_pass(
    n_samples: int, lengths: tuple[float, float]
) -> None:
    audio = noise(n_samples)
    stage = Separator(halves, rate=SAMPLE_RATE, window_s=lengths[0], hop_s=lengths[1])
    sources = joined(stage, cut(audio)).sources
    np.testing.assert_allclose(sources, halves(audio[None])[0], atol=1e-6)


def test_a_recording_of_one_window_is_one_pass() -> None:
    audio = noise(seconds(1))
    stage = Separator(Model(swaps=False), rate=SAMPLE_RATE, window_s=1.0, hop_s=0.5)
    expected = in_level(Model(swaps=False)(audio[None])[0], audio)
    np.testing.assert_allclose(joined(stage, cut(audio)).sources, expected, atol=1e-6)


def test_the_batch_changes_nothing_but_when_it_comes() -> None:
    audio = noise(seconds(3))
    heard = []
    for batch in (1, 4):
        stage = Separator(Model(), rate=SAMPLE_RATE, window_s=0.5, hop_s=0.25, batch=batch)
        heard.append(joined(stage, cut(audio)).sources)
        assert stage.lookahead == seconds(0.5 + (batch - 1) * 0.25)
    np.testing.assert_allclose(heard[0], heard[1], atol=1e-6)


@pytest.mark.parametrize("batch", [1, 3])
def test_what_ended_a_lookahead_ago_is_out(batch: int) -> None:
    stage = Separator(halves, rate=SAMPLE_RATE, window_s=0.2, hop_s=0.1, batch=batch)
    out = 0
    for chunk in cut(noise(seconds(2)), range(0, seconds(2), 160)):
        out = max([out, *(given.span.end for given in stage.push(chunk))])
        assert out >= chunk.span.end - stage.lookahead
    assert out > seconds(1)


def test_windows_start_at_multiples_of_the_hop_and_the_last_is_padded() -> None:
    given: list[Samples] = []

    def model(windows: Samples) -> Samples:
        given.extend(windows)
        return halves(windows)

    audio = noise(3000)
    joined(Separator(model, rate=SAMPLE_RATE, window_s=0.1, hop_s=0.05), cut(audio))
    assert len(given) == 3
    for index, window in enumerate(given):
        expected = audio[index * 800 : index * 800 + 1600]
        np.testing.assert_array_equal(window, np.pad(expected, (0, 1600 - len(expected))))


def test_memory_does_not_grow_with_the_stream() -> None:
    stage = Separator(halves, rate=8000, window_s=0.5, hop_s=0.25, encode=Ear())
    piece, used = noise(1600), []
    tracemalloc.start()
    try:
        for index in range(600):
            stage.push(AudioChunk(Span(index * 1600, (index + 1) * 1600), piece))
            used.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    stage_peak = max(used[100:300])
    assert max(used[300:]) < stage_peak + 200_000, "thirty seconds of audio are 1,920,000 bytes"


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"window_s": 1.0, "hop_s": 1.0}, "must overlap"),
        ({"hop_s": 0.0}, "must overlap"),
        ({"batch": 0}, "at least 1; got 0"),
        ({"window_s": 0.4, "hop_s": 0.2, "encode": Ear()}, "hears 0.50 s"),
        ({"overlap": bool}, "needs a speaker encoder"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings_: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Separator(halves, rate=SAMPLE_RATE, **settings_)  # type: ignore[arg-type]


def test_a_gap_in_the_stream_is_refused() -> None:
    stage = Separator(halves, rate=SAMPLE_RATE)
    with pytest.raises(ValueError, match="a gap"):
        stage.push(AudioChunk(Span(5, 6), noise(1)))


def test_a_model_with_another_number_of_sources_is_reported() -> None:
    stage = Separator(halves, rate=SAMPLE_RATE, n_sources=3, window_s=0.1, hop_s=0.05)
    with pytest.raises(BackendError, match=r"shape \(1, 2, 1600\), expected \(1, 3, 1600\)"):
        stage.push(AudioChunk(Span(0, 1600), noise(1600)))


# --- rates ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("frequency", [100, 440, 3000])
def test_a_tone_is_the_same_tone_at_another_rate(frequency: int) -> None:
    def tone(rate: int) -> Samples:
        return np.sin(2 * np.pi * frequency * np.arange(4 * rate) / rate).astype(np.float32)

    inner = slice(500, -500)
    np.testing.assert_allclose(resized(tone(16_000), 4 * 8000)[inner], tone(8000)[inner], atol=5e-3)
    np.testing.assert_allclose(resized(tone(8000), 4 * 16_000)[inner], tone(16_000)[inner], atol=5e-3)


def test_what_the_other_rate_cannot_hold_is_left_out() -> None:
    tone = np.sin(2 * np.pi * 6000 * np.arange(64_000) / SAMPLE_RATE).astype(np.float32)
    assert np.abs(resized(tone, 32_000)[500:-500]).max() < 5e-3


@given(st.integers(1, 500), st.integers(1, 500))
@settings(deadline=None)
def test_any_length_becomes_any_other(n_samples: int, wanted: int) -> None:
    constant = np.full((2, n_samples), 0.5, np.float32)
    np.testing.assert_allclose(resized(constant, wanted), np.full((2, wanted), 0.5), atol=1e-6)


def test_a_model_at_8_khz_gives_all_that_is_below_4_khz() -> None:
    low, high = voice(LOW, [(0, 3)], 3, 1), voice(HIGH, [(0, 3)], 3, 2)
    stage = Separator(Model(8000, swaps=False), rate=8000, window_s=1.0, hop_s=0.5)
    sources = joined(stage, cut(low + high)).sources
    assert _snr_db(low, sources[0]) > 20
    assert _snr_db(high, sources[1]) > 20


def _snr_db(expected: Samples, given_: Samples) -> float:
    error = float(np.square(expected - given_, dtype=np.float64).sum())
    return 10 * math.log10(float(np.square(expected, dtype=np.float64).sum()) / error)


# --- levels -----------------------------------------------------------------------------------------------------------

GAIN = st.floats(0.4, 2.5)


@given(GAIN, GAIN, st.sampled_from([1, -1]), st.sampled_from([1, -1]), st.integers(0, 5))
def test_levels_and_signs_that_the_model_lost_are_found_again(
    first: float, second: float, sign: int, other_sign: int, seed: int
) -> None:
    first, second = first * sign, second * other_sign
    sources = np.stack([noise(4000, seed), 0.3 * noise(4000, seed + 10)])
    scaled = sources * np.array([[first], [second]], np.float32)
    np.testing.assert_allclose(in_level(scaled, sources.sum(axis=0)), sources, rtol=0.02, atol=2e-3)


@given(st.integers(0, 50), st.floats(0.0, 3.0), st.floats(0, 1), st.floats(-0.9, 2))
@settings(deadline=None)
def test_the_sum_is_never_further_off_than_with_one_gain_for_all(
    seed: int, loudness: float, likeness: float, leak: float
) -> None:
    random = np.random.default_rng(seed)
    mixture, other, error = random.standard_normal((3, 500)).astype(np.float32)
    first = np.float32(loudness) * (mixture + np.float32(leak) * error)
    sources = np.stack([first, np.float32(likeness) * first + np.float32(0.01) * other])
    scaled = in_level(sources, mixture)
    total = sources.sum(axis=0, dtype=np.float64)
    gain = float(total @ mixture / (total @ total)) if total.any() else 0.0
    assert np.isfinite(scaled).all()
    assert _error(mixture, scaled.sum(axis=0)) <= _error(mixture, gain * total) + 1e-4
    assert _error(mixture, scaled.sum(axis=0)) <= _error(mixture, np.zeros(500)) + 1e-4


@given(st.integers(0, 50), st.integers(1, 4), st.floats(0.0, 5.0), st.floats(-6, 1))
@settings(deadline=None)
def test_no_sources_whatever_come_out_loud_or_depend_on_their_signs(
    seed: int, n_sources: int, common: float, own: float
) -> None:
    """They are alike but for their own part, of 10**own, and up to their signs: so they cancel, or nearly."""
    random = np.random.default_rng(seed)
    mixture, shared = random.standard_normal((2, 500)).astype(np.float32)
    signs = random.choice([-1, 1], (n_sources, 1)).astype(np.float32)
    sources = np.float32(10**own) * random.standard_normal((n_sources, 500)).astype(np.float32)
    sources += np.float32(common) * signs * (shared + np.float32(random.uniform(-1, 1)) * mixture)
    scaled = in_level(sources, mixture)
    assert np.isfinite(scaled).all()
    assert np.linalg.norm(scaled, axis=1).max() <= 2.001 * np.linalg.norm(mixture)
    assert _error(mixture, scaled.sum(axis=0)) <= _error(mixture, np.zeros(500)) + 1e-3
    flips = random.choice([-1, 1], (n_sources, 1)).astype(np.float32)
    np.testing.assert_allclose(in_level(flips * sources, mixture), scaled, atol=1e-5)


def test_sources_that_cancel_each_other_are_what_the_mixture_holds_of_them() -> None:
    """The model put into one source what it took away in the other; of the mixture there is little in both."""
    mixture, hiss = noise(4000), noise(4000, 1)
    hiss -= mixture * (hiss @ mixture) / (mixture @ mixture)
    sources = np.stack([hiss + 0.01 * mixture, -hiss + 0.01 * mixture])
    scaled = in_level(sources, mixture)
    share = 0.01 * float(mixture @ mixture) / np.square(sources, dtype=np.float64).sum(axis=1)
    np.testing.assert_allclose(scaled, share[:, None] * sources, atol=1e-6)
    assert np.abs(scaled).max() < 0.02 * np.abs(mixture).max()


def test_more_sources_than_orders_can_be_tried_for_are_refused() -> None:
    Separator(halves, rate=SAMPLE_RATE, n_sources=4)
    for n_sources in (0, 5, 12):
        with pytest.raises(ConfigError, match=f"expected 1 to 4, got {n_sources}"):
            Separator(halves, rate=SAMPLE_RATE, n_sources=n_sources)


def _error(mixture: Samples, total: NDArray[Any]) -> float:
    return float(np.square(mixture.astype(np.float64) - total).sum())


def test_a_silent_source_stays_silent_and_the_other_one_is_the_mixture() -> None:
    mixture = noise(4000)
    scaled = in_level(np.stack([np.zeros(4000, np.float32), 0.1 * mixture]), mixture)
    assert not scaled[0].any()
    np.testing.assert_allclose(scaled[1], mixture, rtol=1e-5)


def test_a_faint_copy_stays_faint() -> None:
    """Where only one speaks the model leaves a little in the other source: it must not be raised to half of it."""
    mixture = noise(4000)
    scaled = in_level(np.stack([0.99 * mixture, 0.01 * mixture]), mixture)
    np.testing.assert_allclose(scaled, [0.99 * mixture, 0.01 * mixture], atol=1e-5)


def test_a_faint_source_is_not_raised_to_make_up_for_a_bad_one() -> None:
    mixture, error, hiss = noise(4000), noise(4000, 1), noise(4000, 2)
    sources = np.stack([0.9 * mixture + 0.6 * error, 0.001 * mixture + 0.0002 * hiss])
    scaled = in_level(sources, mixture)
    common = float((total := sources.sum(axis=0)) @ mixture / (total @ total))
    change = np.linalg.norm(scaled, axis=1) / np.linalg.norm(common * sources, axis=1)
    assert change.max() <= LEVEL_CORRECTION * 1.001
    assert change.max() > 5, "the bound was put to the test"


def test_the_mixture_and_its_opposite_are_half_of_it_each() -> None:
    mixture = noise(4000)
    np.testing.assert_allclose(in_level(np.stack([mixture, -mixture]), mixture), [mixture / 2] * 2, rtol=1e-5)


def test_sources_of_nothing_like_the_mixture_are_silent_not_loud() -> None:
    mixture = noise(4000)
    assert not in_level(np.zeros((2, 4000), np.float32), mixture).any()
    assert not in_level(np.stack([mixture, mixture]), np.zeros(4000, np.float32)).any()


def test_the_sources_of_a_stream_add_up_to_it_whatever_the_models_levels() -> None:
    low, high = voice(LOW, [(0, 6)], 6, 1), 0.3 * voice(HIGH, [(1, 5)], 6, 2)
    stage = Separator(Model(scales=True), rate=SAMPLE_RATE, window_s=1.0, hop_s=0.5)
    sources = joined(stage, cut(low + high)).sources
    assert _snr_db(low + high, sources.sum(axis=0)) > 35


# --- what is no sound -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
def test_silence_and_what_is_no_number_are_not_shown_to_the_model(value: float) -> None:
    model = Model()
    audio = np.full(seconds(1), value, np.float32)
    assert not joined(Separator(model, rate=8000, window_s=0.2, hop_s=0.1), cut(audio)).sources.any()
    assert model.windows == 0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_source_that_is_no_number_is_silent_and_said_once(value: float, caplog: pytest.LogCaptureFixture) -> None:
    def model(windows: Samples) -> Samples:
        sources = halves(windows)
        sources[:, 1, 7] = value
        return sources

    audio = noise(seconds(1))
    with caplog.at_level(logging.WARNING):
        sources = joined(Separator(model, rate=SAMPLE_RATE, window_s=0.2, hop_s=0.1), cut(audio)).sources
    assert not sources[1].any()
    np.testing.assert_allclose(sources[0], audio, atol=1e-6)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


# --- the order of the sources -----------------------------------------------------------------------------------------

TOGETHER = voice(LOW, [(0, 20)], 20, 1), voice(HIGH, [(0, 20)], 20, 2)
"""Both speak all the time."""

LONG_PAUSES = voice(LOW, [(0, 3), (12, 14), (25, 30)], 30, 1), voice(HIGH, [(2, 4), (18, 20), (23, 26)], 30, 2)
"""Pauses that are longer than a window, and either voice after them."""

ONE_PAUSES = voice(LOW, [(0, 20)], 20, 1), voice(HIGH, [(0, 2), (9, 12), (18, 20)], 20, 2)
"""One of the two is silent over several windows, while the other one speaks."""


def heard(scene: tuple[Samples, Samples], *, encode: Ear | None = None, model: Separate | None = None) -> Samples:
    stage = Separator(model or Model(scales=True), rate=SAMPLE_RATE, window_s=2.0, hop_s=1.0, encode=encode)
    return joined(stage, cut(scene[0] + scene[1])).sources


@pytest.mark.parametrize("scene", [TOGETHER, ONE_PAUSES], ids=["together", "one pauses"])
def test_a_model_that_swaps_at_random_comes_out_in_order(scene: tuple[Samples, Samples]) -> None:
    swaps = count_swaps(heard(scene), np.stack(scene))
    assert swaps.total >= 15
    assert swaps.swapped == 0


def test_after_a_pause_the_voices_put_the_sources_in_order() -> None:
    swaps = count_swaps(heard(LONG_PAUSES, encode=Ear()), np.stack(LONG_PAUSES))
    assert swaps.total >= 12
    assert swaps.swapped == 0


def test_noise_in_a_pause_does_not_put_the_sources_in_order() -> None:
    """A model gives what is nobody's in its first source, say, wherever it gives the voices before and after it."""
    scene = LONG_PAUSES[0] + 0.005 * noise(len(LONG_PAUSES[0])), LONG_PAUSES[1]
    swaps = count_swaps(heard(scene, encode=Ear(), model=Model(hiss=True)), np.stack(scene))
    assert swaps.total >= 12
    assert swaps.swapped == 0


def test_without_voices_a_pause_may_swap_the_sources() -> None:
    """The test above can fail."""
    assert count_swaps(heard(LONG_PAUSES), np.stack(LONG_PAUSES)).swapped > 0


@pytest.mark.parametrize("residue", [0.01, 0.3])
def test_residue_of_one_voice_in_the_others_source_is_not_taken_for_its_own(residue: float) -> None:
    """Where only one speaks, the other source holds a faint copy, by which both would come to have one voice."""
    ear, low = Ear(), voice(LOW, [(0, 4)], 4, 1)
    heard((low, 0 * low), encode=ear, model=Model(residue=residue))
    assert len(ear.asked) == 3 * 4, "three windows, four pieces in each, and one source in each piece"


def test_a_source_far_softer_than_the_other_is_not_listened_to() -> None:
    """It may be the other one's echo, which no correlation finds."""

    def model(windows: Samples) -> Samples:
        return np.stack([windows, 0.1 * np.roll(windows, 400, axis=1)], axis=1)

    ear, low = Ear(), voice(LOW, [(0, 4)], 4, 1)
    heard((low, 0 * low), encode=ear, model=model)
    assert len(ear.asked) == 3 * 4


@given(st.integers(0, 10_000))
@settings(max_examples=10, deadline=None)
def test_the_order_holds_whatever_the_model_does(seed: int) -> None:
    chance, straight = np.random.default_rng(seed), Model(swaps=False)

    def model(windows: Samples) -> Samples:
        sources = straight(windows)
        return sources[:, ::-1] if chance.random() < 0.5 else sources

    swaps = count_swaps(heard(LONG_PAUSES, encode=Ear(), model=model), np.stack(LONG_PAUSES))
    assert swaps.swapped == 0


def test_a_voice_not_heard_before_gets_the_source_that_nobody_has() -> None:
    scene = voice(LOW, [(0, 3)], 12, 1), voice(HIGH, [(8, 12)], 12, 2)
    sources = heard(scene, encode=Ear())
    assert _snr_db(scene[0], sources[0]) > _snr_db(scene[0], sources[1]) + 10 or _snr_db(scene[0], sources[1]) > 10
    energy = np.square(sources, dtype=np.float64)
    first = int(np.argmax(energy[:, : seconds(3)].sum(axis=1)))
    then = int(np.argmax(energy[:, seconds(8) :].sum(axis=1)))
    assert first != then


def test_three_sources_stay_in_order() -> None:
    bands = (200, 800), (900, 1700), (1800, 3000)
    parts = np.stack([voice(limits, [(0, 10)], 10, seed) for seed, limits in enumerate(bands)])

    def model(windows: Samples) -> Samples:
        sources = np.stack([band(windows, *limits) for limits in bands], axis=1)
        return sources[:, np.random.default_rng(zlib.crc32(windows.tobytes())).permutation(3)]

    stage = Separator(model, rate=SAMPLE_RATE, n_sources=3, window_s=1.0, hop_s=0.5)
    out = [out for chunk in cut(parts.sum(axis=0)) for out in stage.push(chunk)] + list(stage.flush())
    swaps = count_swaps(np.concatenate([chunk.sources for chunk in out], axis=1), parts)
    assert (swaps.swapped, swaps.total) == (0, 10)


# --- only where two speak ---------------------------------------------------------------------------------------------


def both_speak(window: Samples) -> bool:
    """Tell whether both voices are loud in some 0.1 s of a window."""
    frames = window[: len(window) // 1600 * 1600].reshape(-1, 1600)
    low, high = (np.square(band(frames, *limits)).mean(axis=1) for limits in ((0, BORDER), (BORDER, 9000)))
    return bool(((low > 1e-4) & (high > 1e-4)).any())


SELDOM = voice(LOW, [(0, 4), (9, 12), (16, 20)], 20, 1), voice(HIGH, [(5, 8), (11, 13)], 20, 2)
"""Both speak at once from 11 to 12 s only."""


def test_the_model_runs_only_where_two_speak() -> None:
    model, always, mixture = Model(), Model(), SELDOM[0] + SELDOM[1]
    stage = Separator(model, rate=SAMPLE_RATE, window_s=2.0, hop_s=1.0, encode=Ear(), overlap=both_speak)
    sources = joined(stage, cut(mixture)).sources
    joined(Separator(always, rate=SAMPLE_RATE, window_s=2.0, hop_s=1.0), cut(mixture))
    assert 0 < model.windows <= 4
    assert always.windows > 12
    swaps = count_swaps(sources, np.stack(SELDOM))
    assert swaps.total > 12
    assert swaps.swapped == 0
    np.testing.assert_allclose(sources.sum(axis=0)[: seconds(9)], mixture[: seconds(9)], atol=1e-5)
    assert _snr_db(mixture, sources.sum(axis=0)) > 30


def test_where_one_speaks_the_others_are_silent() -> None:
    low = voice(LOW, [(0, 6)], 6, 1)
    stage = Separator(halves, rate=SAMPLE_RATE, window_s=2.0, hop_s=1.0, encode=Ear(), overlap=lambda _: False)
    sources = joined(stage, cut(low)).sources
    np.testing.assert_allclose(sources[0], low, atol=1e-6)
    assert not sources[1].any()


@given(st.lists(st.integers(0, len(SELDOM[0])), max_size=10), st.integers(1, 3))
@settings(max_examples=8, deadline=None)
def test_cutting_changes_nothing_where_only_overlap_is_separated(cuts: list[int], batch: int) -> None:
    def hear(positions: Iterable[int]) -> Samples:
        stage = Separator(
            Model(8000), rate=8000, window_s=2.0, hop_s=1.0, batch=batch, encode=Ear(), overlap=both_speak
        )
        return joined(stage, cut(SELDOM[0] + SELDOM[1], positions)).sources

    np.testing.assert_array_equal(hear(cuts), hear(()))


def test_a_voice_that_begins_unsurely_is_not_split_over_two_sources() -> None:
    """Two pieces of one voice may be less alike than two voices, until its mean is known."""

    class Unsure(Ear):
        def __call__(self, samples: Samples, /) -> Vector:
            sure = super().__call__(samples)
            angle = 0.75 * (-1) ** (len(self.asked) // 2)
            return np.array([np.cos(angle) * sure[0], np.sin(angle) * sure[0], sure[1]], np.float32)

    low = voice(LOW, [(0, 10)], 10, 1)
    stage = Separator(halves, rate=SAMPLE_RATE, window_s=2.0, hop_s=1.0, encode=Unsure(), overlap=lambda _: False)
    sources = joined(stage, cut(low)).sources
    assert not sources[1].any()


def test_pauses_are_not_listened_to() -> None:
    """In a pause the encoder would make a voice of the noise."""
    ear = Ear()
    low = voice(LOW, [(0, 2), (10, 12)], 12, 1) + 0.001 * noise(seconds(12))
    joined(Separator(Model(), rate=SAMPLE_RATE, window_s=2.0, hop_s=1.0, encode=ear), cut(low))
    assert ear.asked
    assert min(ear.asked) > 1e-6


# --- counting swaps ---------------------------------------------------------------------------------------------------


def test_sources_swapped_in_the_middle_are_counted() -> None:
    references = np.stack(TOGETHER)
    swapped = references.copy()
    swapped[:, seconds(12) :] = references[::-1, seconds(12) :]
    assert count_swaps(references, references) == Swaps(0, 20)
    assert count_swaps(references[::-1], references) == Swaps(0, 20)
    assert count_swaps(0.1 * swapped, references) == Swaps(8, 20)


def test_stretches_that_tell_nothing_are_not_counted() -> None:
    references = np.stack(ONE_PAUSES) * np.repeat([1, 0, 1, 1], seconds(5)).astype(np.float32)
    mixture = references.sum(axis=0)
    assert count_swaps(references, references).total == 15
    assert count_swaps(np.stack([mixture, mixture]), references) == Swaps(0, 0)
    assert count_swaps(np.zeros_like(references), references) == Swaps(0, 0)
    assert count_swaps(np.zeros((2, 0), np.float32), np.zeros((2, 0), np.float32)).rate is None


def test_counts_add_up() -> None:
    assert Swaps(1, 4) + Swaps(2, 4) == Swaps(3, 8)
    assert Swaps(3, 8).rate == 3 / 8


def test_sources_and_references_must_fit() -> None:
    with pytest.raises(ValueError, match="must have one shape"):
        count_swaps(np.zeros((2, 5), np.float32), np.zeros((2, 6), np.float32))


# --- the loudest source -----------------------------------------------------------------------------------------------


def chosen(sources: Samples, cuts: Iterable[int] = ()) -> Sequence[SpeakerTurn]:
    stage = LoudestSource()
    for start, end in itertools.pairwise(sorted({0, *cuts, sources.shape[1]})):
        piece = sources[:, start:end]
        assert stage.push(SeparatedChunk(Span(start, end), piece.sum(axis=0), piece)) == []
    return stage.flush()


def test_one_turn_holds_the_loudest_source_over_the_whole_recording() -> None:
    soft, loud = 0.3 * voice(LOW, [(0, 10)], 10, 1), voice(HIGH, [(2, 5)], 10, 2)
    (turn,) = chosen(np.stack([soft, loud]), [seconds(3), seconds(7)])
    assert turn.span == Span(0, seconds(10))
    assert turn.speaker == LOUDEST == "main"
    np.testing.assert_array_equal(turn.samples, loud)
    assert turn.level_db == active_level_db(loud)


def test_who_speaks_seldom_but_louder_is_the_main_speaker() -> None:
    """By the level while speaking: by the mean, the first one would be."""
    often, seldom = voice(LOW, [(0, 10)], 10, 1), 2 * voice(HIGH, [(0, 1)], 10, 2)
    assert np.square(often).sum() > np.square(seldom).sum()
    (turn,) = chosen(np.stack([often, seldom]))
    np.testing.assert_array_equal(turn.samples, seldom)


@given(st.lists(st.integers(0, 32_000), max_size=8))
@settings(deadline=None, max_examples=20)
def test_cutting_does_not_change_the_choice(cuts: list[int]) -> None:
    sources = np.stack([voice(LOW, [(0, 2)], 2, 1), 0.5 * voice(HIGH, [(0, 2)], 2, 2)])
    (whole,), (pieces,) = chosen(sources), chosen(sources, cuts)
    assert (pieces.span, pieces.level_db) == (whole.span, whole.level_db)
    np.testing.assert_array_equal(pieces.samples, whole.samples)


@pytest.mark.parametrize("n_samples", [0, 1, 160, 16_000])
def test_without_sound_there_is_no_turn(n_samples: int) -> None:
    assert list(chosen(np.zeros((2, n_samples), np.float32))) == []


def test_a_single_sample_is_a_turn() -> None:
    (turn,) = chosen(np.array([[0.0], [0.5]], np.float32))
    assert turn.samples.tolist() == [0.5]


def test_no_gate_takes_the_loudest_source_for_verified() -> None:
    (turn,) = chosen(np.stack(TOGETHER))
    gate = MainSpeaker(judge, GateSettings(), Mode.SELECTIVE)
    (decision,) = [*gate.push(turn), *gate.flush()]
    assert isinstance(decision, Withheld)
    assert decision.reason is WithholdReason.NO_EMBEDDING


def test_it_needs_the_whole_recording_and_chunks_that_follow_each_other() -> None:
    assert LoudestSource().lookahead is None
    with pytest.raises(ValueError, match="follow each other"):
        LoudestSource().push(SeparatedChunk(Span(1, 2), noise(1), noise(1)[None]))


def test_pauses_do_not_lower_the_active_level() -> None:
    speech = voice(LOW, [(0, 4)], 4, 1)
    paused = np.concatenate([speech, np.zeros(seconds(30), np.float32), speech])
    assert active_level_db(paused) == pytest.approx(active_level_db(speech), abs=0.1)
    assert active_level_db(0.1 * speech) == pytest.approx(active_level_db(speech) - 20, abs=1e-3)


def test_the_active_level_of_a_full_sine_is_3_db_below_full_scale() -> None:
    sine = np.sin(2 * np.pi * 400 / SAMPLE_RATE * np.arange(SAMPLE_RATE)).astype(np.float32)
    assert active_level_db(sine) == pytest.approx(-3.01, abs=0.01)
    assert active_level_db(0 * sine) == -math.inf
    assert active_level_db(sine[:0]) == -math.inf
