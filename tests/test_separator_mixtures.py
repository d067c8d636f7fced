"""models/separator/mixtures.py."""

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cascade.types import SAMPLE_RATE, seconds

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))  # the programs find each other there
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "models" / "separator"))

import mixtures
from corpus import NOISES, Spoken
from mixing import to_flac

ROOMS = mixtures.Rooms(np.ones((3, 2, 1), np.float16), np.ones((3, 4, 1), np.float16))
CLEAN = replace(
    mixtures.AT_10_DB, noise=0.0, narrow=0.0, telephone=0.0, low_pass=0.0, clipped=0.0, first=0.0, level_spread_db=0.0,
    television=0.0, length=seconds(2.0),
)  # fmt: skip


def line(seed: int, length_s: float = 2.0) -> mixtures.Pcm:
    """Noise without a zero in it."""
    noise = np.random.default_rng(seed).standard_normal(seconds(length_s)) * 3000
    return np.where(noise == 0, 1, noise).astype(np.int16)


SPEECH = mixtures.Speech([[line(10 * voice + number) for number in range(3)] for voice in range(5)])


def draw(recipe: mixtures.Recipe, seed: int) -> mixtures.Mixture:
    """Draw from what is there."""
    return mixtures.draw_mixture(recipe, SPEECH, ROOMS, np.random.default_rng(seed))


def level_db(samples: np.ndarray) -> float:
    """Level where there is something."""
    return float(10 * np.log10(np.mean(np.square(samples[samples != 0], dtype=np.float64))))


@given(seed=st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_without_noise_and_clipping_the_sources_add_up_to_the_mixture(seed: int) -> None:
    drawn = draw(replace(mixtures.PLAIN, noise=0.0, clipped=0.0, length=seconds(1.0)), seed)
    np.testing.assert_allclose(drawn.foreground + drawn.background, drawn.mixture, atol=1e-5)


@given(seed=st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_the_other_one_is_as_much_softer_as_was_drawn(seed: int) -> None:
    drawn = draw(CLEAN, seed)
    # Levels are set with what was said before the mixture begins, and lines of noise are not all equally loud.
    assert level_db(drawn.foreground) - level_db(drawn.background) == pytest.approx(10, abs=1.0)


@given(seed=st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_everything_is_finite_and_of_its_length(seed: int) -> None:
    drawn = mixtures.as_array(draw(replace(mixtures.PLAIN, length=seconds(0.5)), seed))
    assert drawn.shape == (3, seconds(0.5))
    assert drawn.dtype == np.float32
    assert np.isfinite(drawn).all()


def test_equal_generators_give_equal_mixtures() -> None:
    one, other, third = draw(mixtures.PLAIN, 1), draw(mixtures.PLAIN, 1), draw(mixtures.PLAIN, 2)
    assert one.mixture.tobytes() == other.mixture.tobytes()
    assert one.mixture.tobytes() != third.mixture.tobytes()


def test_what_speech_said_before_does_not_change_a_mixture() -> None:
    """Lines at another tempo are kept; that is no more than a short cut."""
    fresh = mixtures.Speech(SPEECH.voices)
    again = mixtures.draw_mixture(mixtures.PLAIN, fresh, ROOMS, np.random.default_rng(5))
    draw(mixtures.PLAIN, 4)
    assert draw(mixtures.PLAIN, 5).mixture.tobytes() == again.mixture.tobytes()


def test_speech_that_is_hurried_beforehand_is_not_hurried_again() -> None:
    """Else each process that draws would do so anew, in every round."""
    speech = mixtures.Speech(SPEECH.voices)
    speech.hurry()
    before = dict(speech.hurried)
    assert len(before) == (len(mixtures.TEMPI) - 1) * sum(map(len, SPEECH.voices))
    again = mixtures.draw_mixture(mixtures.PLAIN, speech, ROOMS, np.random.default_rng(5))
    assert all(speech.hurried[key] is kept for key, kept in before.items())
    assert len(speech.hurried) == len(before)
    assert again.mixture.tobytes() == draw(mixtures.PLAIN, 5).mixture.tobytes()


def test_the_one_near_may_be_absent_and_so_may_the_others() -> None:
    assert not draw(replace(CLEAN, absent=1.0), 0).foreground.any()
    assert not draw(replace(CLEAN, others={0: 1.0}), 0).background.any()


def test_a_stream_begins_at_the_level_of_what_is_heard() -> None:
    """Of a bystander alone, if it begins with one."""
    drawn = draw(replace(CLEAN, absent=1.0, first=1.0), 0)
    assert level_db(drawn.mixture) == pytest.approx(0, abs=2)
    assert level_db(draw(replace(CLEAN, absent=1.0), 0).mixture) == pytest.approx(-10, abs=1.5)


def test_a_telephone_lets_nothing_deep_or_high_through() -> None:
    drawn = draw(replace(CLEAN, telephone=1.0), 0)
    for source in mixtures.as_array(drawn):
        power = np.abs(np.fft.rfft(source)) ** 2
        inside = power[2 * 250 : 2 * 3600].sum()
        assert inside > 0.95 * power.sum()


def test_a_narrow_band_is_the_near_ones_alone() -> None:
    high = [high_share(draw(replace(CLEAN, narrow=narrow), 0)) for narrow in (0.0, 1.0)]
    assert high[1][0] < 0.01 * high[0][0]
    assert high[1][1] == high[0][1]


def high_share(drawn: mixtures.Mixture) -> tuple[float, float]:
    """Share of the power of either source that is above 5 kHz."""
    powers = [np.abs(np.fft.rfft(source)) ** 2 for source in (drawn.foreground, drawn.background)]
    first = 5000 * (len(powers[0]) - 1) // 8000
    foreground, background = (float(power[first:].sum() / power.sum()) for power in powers)
    return foreground, background


def test_noise_belongs_to_nobody() -> None:
    noisy = [draw(replace(CLEAN, noise=1.0, snr_db=(20.0, 20.0)), seed) for seed in range(8)]
    noises = [drawn.mixture - drawn.foreground - drawn.background for drawn in noisy]
    ratios = [level_db(drawn.foreground) - level_db(noise) for drawn, noise in zip(noisy, noises, strict=True)]
    assert np.mean(ratios) == pytest.approx(20, abs=1.5)


@pytest.mark.parametrize("kind", NOISES)
def test_every_noise_can_be_made(kind: str) -> None:
    noise = mixtures.make_noise(kind, 8000, SPEECH, np.random.default_rng(0))
    assert noise.shape == (8000,)
    assert noise.any()


def test_another_tempo_makes_a_line_shorter_and_higher() -> None:
    tone = np.round(10_000 * np.sin(2 * np.pi * 1000 * np.arange(SAMPLE_RATE) / SAMPLE_RATE)).astype(np.int16)
    faster = SPEECH.at_tempo(tone, 14)
    assert len(faster) == SAMPLE_RATE * 14 // 16
    spectrum = np.abs(np.fft.rfft(faster))
    assert spectrum.argmax() * SAMPLE_RATE / len(faster) == pytest.approx(1000 * 16 / 14, abs=3)
    assert SPEECH.at_tempo(tone, 16) is tone


def bank(folder: Path, split: str, voices: dict[str, int]) -> None:
    """Write a bank with so many lines of each voice."""
    lines = [
        Spoken(voice, split, "text", 0.5, f"speech/{split}/{voice}/{number}.flac")
        for voice, count in voices.items()
        for number in range(count)
    ]
    for spoken in lines:
        path = folder / spoken.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(to_flac(line(1, 0.5).astype(np.float32) / np.float32(32768)))
    (folder / "speech" / f"{split}.jsonl").write_text("".join(json.dumps(asdict(spoken)) + "\n" for spoken in lines))


def test_banks_are_read_together_and_nothing_twice(tmp_path: Path) -> None:
    bank(tmp_path / "a", "train", {"ann": 2, "bob": 1})
    bank(tmp_path / "b", "train", {"ann": 1})
    known: mixtures.Known = {}
    speech = mixtures.read_speech([tmp_path / "a", tmp_path / "b"], "train", known)
    assert [len(voice) for voice in speech.voices] == [3, 1]
    assert speech.seconds == pytest.approx(2.0)
    again = mixtures.read_speech([tmp_path / "a", tmp_path / "b"], "train", known)
    assert again.voices[0][0] is speech.voices[0][0]
    np.testing.assert_allclose(speech.voices[0][0], line(1, 0.5), atol=1)


def test_voices_of_test_recordings_are_left_out_of_all_but_the_test(tmp_path: Path) -> None:
    for split in ("train", "test"):
        bank(tmp_path, split, {"af_bella": 1, "bob": 1, "cem": 1})
    assert len(mixtures.read_speech([tmp_path], "train").voices) == 2
    assert len(mixtures.read_speech([tmp_path], "test").voices) == 3


def test_an_empty_bank_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"two voices or more for train, got 0: run speech\.py first"):
        mixtures.read_speech([tmp_path], "train")


@pytest.mark.parametrize("content", [b"", b"no rooms", b"PK\x03\x04 half of one", "other", "empty"])
def test_what_are_no_rooms_is_said(content: bytes | str, tmp_path: Path) -> None:
    path = tmp_path / "train.npz"
    if content == "other":
        np.savez(path, near=np.zeros(3))
    elif content == "empty":
        np.savez(path, near=np.zeros((0, 2, 8), np.float16), far=np.zeros((0, 4, 8), np.float16))
    elif isinstance(content, bytes):
        path.write_bytes(content)
    with pytest.raises(ValueError, match=r"(isn't a file of|holds no) rooms.*: remove it, and run rooms.py") as error:
        mixtures.read_rooms(tmp_path, "train")
    assert str(error.value).startswith(str(path))
    with pytest.raises(ValueError, match=r"there are no rooms for valid, expected .*valid.npz: run rooms.py"):
        mixtures.read_rooms(tmp_path, "valid")
