"""How probable it is that the main speaker speaks: what is seen of a turn, and the network that judges it."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cascade.audio import read_audio
from cascade.backends import dvector, silero
from cascade.diarization import ClusteringSettings, Diarizer
from cascade.errors import ModelError
from cascade.evidence import (
    DILATIONS,
    FRAME,
    HIGHEST_HZ,
    LOWEST_HZ,
    N_BANDS,
    N_FEATURES,
    TAPS,
    WINDOW,
    Column,
    Evidence,
    Known,
    Observation,
    band_levels,
    band_weights,
    load,
    mel,
    observe,
)
from cascade.gate import Profile, enrol
from cascade.packaged import data_folder
from cascade.types import SAMPLE_RATE, Samples, SeparatedChunk, Span, SpeakerTurn, Vector, seconds, whole

TALK = Path(__file__).parents[1] / "benchmarks" / "talk"
SHIPPED = data_folder("models") / "evidence" / "dvector.npz"
WEIGHTS = band_weights()
ME, OTHER = np.eye(4, dtype=np.float32)[:2]
FIRST = np.array([0.6, 0, 0.8, 0], np.float32)
KNOWN = Known(
    main=ME,
    first=FIRST,
    rivals=np.stack([OTHER]),
    most_alike=-math.inf,
    level_db=-20.0,
    heard=True,
    enrolled=True,
)
NOBODY = np.zeros((0, 4), np.float32)


def noise(n_samples: int, amplitude: float = 0.1) -> Samples:
    return (amplitude * np.random.default_rng(0).normal(0, 1, n_samples)).astype(np.float32)


def turn(
    samples: Samples, before: Samples | None = None, after: Samples | None = None, windows: Vector = NOBODY
) -> SpeakerTurn:
    nothing = np.zeros(0, np.float32)
    return SpeakerTurn(
        Span(0, len(samples)),
        "speaker_1",
        samples,
        ME,
        -20.0,
        embeddings=windows,
        before=nothing if before is None else before,
        after=nothing if after is None else after,
    )


def inside(seen: Observation) -> Vector:
    """Return what is seen of the turn itself, (n_frames, N_FEATURES)."""
    return seen.features[seen.before : seen.before + seen.n_frames]


# --- levels in bands --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bin_", [10, 32, 64, 150])
@pytest.mark.parametrize("amplitude", [1.0, 0.1, 0.003])
def test_a_sine_has_its_level_in_its_band(bin_: int, amplitude: float) -> None:
    """A Hann window spreads a sine over three bins, with 1, 1/4 and 1/4 of its power: 1.76 dB together."""
    hertz = bin_ * SAMPLE_RATE / WINDOW
    sine = (amplitude * np.sin(2 * np.pi * hertz * np.arange(SAMPLE_RATE) / SAMPLE_RATE)).astype(np.float32)
    levels = band_levels(sine, WEIGHTS)[5:-5]
    expected = 20 * math.log10(amplitude)
    np.testing.assert_allclose(levels[:, -1], expected + 10 * math.log10(1.5), atol=0.1)
    loudest = int(WEIGHTS[:, bin_].argmax())
    assert (levels[:, :-1].argmax(axis=1) == loudest).all()
    assert expected - 4 < levels[0, loudest] <= levels[0, -1]
    far = np.abs(np.arange(N_BANDS) - loudest) > 3
    assert (levels[:, :-1][:, far] < expected - 40).all()


def test_bands_share_the_spectrum_between_their_middles() -> None:
    hertz = np.fft.rfftfreq(WINDOW, 1 / SAMPLE_RATE)
    step = (mel(np.array(HIGHEST_HZ)) - mel(np.array(LOWEST_HZ))) / (N_BANDS + 1)
    between = (mel(hertz) >= mel(np.array(LOWEST_HZ)) + step) & (mel(hertz) <= mel(np.array(HIGHEST_HZ)) - step)
    assert between.sum() > 150
    np.testing.assert_allclose(WEIGHTS.sum(axis=0)[between], 1, atol=1e-5)
    assert (WEIGHTS[:, (hertz < LOWEST_HZ) | (hertz > HIGHEST_HZ)] == 0).all()
    assert (WEIGHTS.max(axis=1) > 0.4).all(), "each band holds something of the spectrum"


def test_mel_is_what_its_paper_says() -> None:
    assert mel(np.array([0.0, 700.0, 1000.0])) == pytest.approx([0, 781.17, 1000], abs=0.05)


@given(st.integers(1, 5 * FRAME))
def test_each_begun_frame_has_levels(n_samples: int) -> None:
    assert band_levels(noise(n_samples), WEIGHTS).shape == (-(-n_samples // FRAME), N_BANDS + 1)


def test_silence_has_a_level() -> None:
    assert band_levels(np.zeros(seconds(0.1), np.float32), WEIGHTS) == pytest.approx(-120)


# --- what is seen of a turn -------------------------------------------------------------------------------------------


@given(st.integers(1, 4 * FRAME), st.integers(0, 3 * FRAME), st.integers(0, 3 * FRAME), st.integers(0, 5))
@settings(deadline=None)
def test_there_is_a_row_for_each_frame_around_and_in_a_turn(
    n_samples: int, n_before: int, n_after: int, n_windows: int
) -> None:
    made = turn(noise(n_samples), noise(n_before), noise(n_after), np.tile(OTHER, (n_windows, 1)))
    seen = observe(made, KNOWN, WEIGHTS)
    assert (seen.before, seen.n_frames) == (n_before // FRAME, -(-n_samples // FRAME))
    rest = max(0, n_after - (-n_samples % FRAME)) // FRAME
    assert seen.features.shape == (seen.before + seen.n_frames + rest, N_FEATURES)
    assert seen.features.dtype == np.float32
    assert np.isfinite(seen.features).all()


@pytest.mark.parametrize("start", [4 * FRAME, 4 * FRAME + 100])
@pytest.mark.parametrize("length", [10 * FRAME, 9 * FRAME + 1, 10 * FRAME - 1])
def test_levels_are_those_of_the_sound_where_it_is(start: int, length: int) -> None:
    """The turn and what surrounds it are one sound; a frame at a border sees both sides of it."""
    whole, end = noise(20 * FRAME), start + length
    seen = observe(turn(whole[start:end], whole[:start], whole[end:]), KNOWN, WEIGHTS)
    for frame, row in enumerate(inside(seen)):
        middle = start + frame * FRAME + FRAME // 2
        window = whole[middle - WINDOW // 2 : middle + WINDOW // 2] * np.hanning(WINDOW)
        power = (np.abs(np.fft.rfft(window)) / (WINDOW / 4)) ** 2
        bands = [float(power @ weights) for weights in WEIGHTS]
        levels = [10 * math.log10(value + 1e-12) for value in (*bands, sum(bands))]
        expected = [min(2.0, max(-2.0, (level - KNOWN.level_db) / 20)) for level in levels]
        np.testing.assert_allclose(row[: N_BANDS + 1], expected, atol=1e-3)


def test_levels_are_relative_to_the_main_speakers() -> None:
    half = seconds(0.5)
    here = observe(turn(noise(half)), KNOWN, WEIGHTS)
    softer = observe(turn(noise(half, 0.01)), replace(KNOWN, level_db=-40.0), WEIGHTS)
    np.testing.assert_allclose(here.features, softer.features, atol=1e-4)
    assert (observe(turn(noise(half, 0.01)), KNOWN, WEIGHTS).features[:, N_BANDS] < here.features[:, N_BANDS]).all()


def test_each_frame_sees_the_window_that_it_is_in() -> None:
    lost = np.full(4, np.nan, np.float32)
    windows = np.stack([lost, ME, 0.6 * ME + 0.8 * OTHER, OTHER, lost]).astype(np.float32)
    seen = inside(observe(turn(noise(seconds(0.5)), windows=windows), KNOWN, WEIGHTS))
    np.testing.assert_allclose(seen[:, Column.WINDOW_TO_MAIN], np.repeat([1, 1, 0.6, 0, 0], 5), atol=1e-6)
    np.testing.assert_allclose(seen[:, Column.WINDOW_TO_FIRST], np.repeat([0.6, 0.6, 0.36, 0, 0], 5), atol=1e-6)
    np.testing.assert_allclose(seen[:, Column.WINDOW_TO_RIVAL], np.repeat([0, 0, 0.8, 1, 1], 5), atol=1e-6)
    np.testing.assert_allclose(seen[:, Column.TURN_TO_MAIN :], np.tile([1, 0.6, 0, 0, 1, 1, 1], (25, 1)), atol=1e-6)


@pytest.mark.parametrize(("most_alike", "below"), [(-math.inf, 0.0), (0.5, 0.0), (0.6, 0.0), (0.9, -0.3)])
def test_a_turn_is_measured_by_the_one_most_alike_so_far(most_alike: float, below: float) -> None:
    seen = observe(turn(noise(seconds(0.1))), replace(KNOWN, most_alike=most_alike), WEIGHTS).features
    np.testing.assert_allclose(seen[:, Column.BELOW_MOST_ALIKE], below, atol=1e-6)


@pytest.mark.parametrize("windows", [NOBODY, np.full((3, 4), np.nan, np.float32)], ids=["none", "none good"])
def test_a_turn_without_windows_is_seen_by_its_embedding(windows: Vector) -> None:
    seen = observe(turn(noise(seconds(0.3)), windows=windows), KNOWN, WEIGHTS).features
    assert (seen[:, Column.WINDOW_TO_MAIN] == 1).all()
    assert (seen[:, Column.WINDOW_TO_RIVAL] == 0).all()


def test_what_is_not_known_is_seen_as_that() -> None:
    nobody = replace(KNOWN, rivals=NOBODY, heard=False, enrolled=False)
    seen = observe(turn(noise(seconds(0.3))), nobody, WEIGHTS).features
    expected = [1, 0.6, 0, 1, 0.6, 0, 0, 0, 0, 0]
    np.testing.assert_allclose(seen[:, Column.WINDOW_TO_MAIN :], np.tile(expected, (15, 1)), atol=1e-6)


def test_the_nearest_of_several_bystanders_counts() -> None:
    two = replace(KNOWN, rivals=np.eye(4, dtype=np.float32)[2:])
    seen = observe(turn(noise(seconds(0.1)), windows=np.array([[0.6, 0, 0, 0.8]], np.float32)), two, WEIGHTS).features
    assert seen[:, Column.WINDOW_TO_RIVAL] == pytest.approx(0.8)


@pytest.mark.parametrize(
    "thing", [KNOWN, observe(turn(noise(800)), KNOWN, WEIGHTS)], ids=lambda thing: type(thing).__name__
)
def test_what_is_seen_is_not_shown(thing: object) -> None:
    """It is told before the gate has decided."""
    assert "array" not in repr(thing)
    assert "-20" not in repr(thing)


# --- the network ------------------------------------------------------------------------------------------------------


def made_weights(hidden: int = 3, seed: int = 0) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    sizes = [N_FEATURES, *[hidden] * len(DILATIONS), 1]
    weights: dict[str, Any] = {
        "mean": generator.normal(0, 1, N_FEATURES),
        "scale": generator.uniform(0.5, 2, N_FEATURES),
        "calibration": np.array([[0.5, -1], [2, 1]]),
    }
    for layer, taps in enumerate([TAPS] * len(DILATIONS) + [1]):
        weights[f"w{layer}"] = generator.normal(0, 0.3, (sizes[layer + 1], sizes[layer], taps))
        weights[f"b{layer}"] = generator.normal(0, 0.3, sizes[layer + 1])
    return {name: value.astype(np.float32) for name, value in weights.items()}


def slowly(weights: Mapping[str, Any], features: Vector) -> list[float]:
    """Restate the network, number by number."""
    frames = [[(x - m) / s for x, m, s in zip(row, weights["mean"], weights["scale"], strict=True)] for row in features]
    for layer, apart in enumerate(DILATIONS):
        weight, bias = weights[f"w{layer}"], weights[f"b{layer}"]
        following = []
        for place in range(len(frames)):
            row = []
            for out in range(len(bias)):
                total = float(bias[out])
                for tap in range(TAPS):
                    source = place + (tap - TAPS // 2) * apart
                    if 0 <= source < len(frames):
                        total += sum(float(w) * x for w, x in zip(weight[out, :, tap], frames[source], strict=True))
                row.append(max(0.0, total))
            following.append(row)
        frames = following
    odds = [sum(float(w) * x for w, x in zip(weights["w3"][0, :, 0], row, strict=True)) for row in frames]
    factor, bias = (0.5, -1) if features[0, Column.ENROLLED] <= 0 else (2, 1)
    return [1 / (1 + math.exp(-(factor * (value + float(weights["b3"][0])) + bias))) for value in odds]


@pytest.mark.parametrize("enrolled", [0, 1])
@pytest.mark.parametrize(("n_rows", "before", "n_frames"), [(1, 0, 1), (4, 1, 2), (25, 15, 3)])
def test_the_network_is_what_it_says(n_rows: int, before: int, n_frames: int, enrolled: int) -> None:
    weights, features = made_weights(), np.random.default_rng(1).normal(0, 1, (n_rows, N_FEATURES)).astype(np.float32)
    features[:, Column.ENROLLED] = enrolled
    given_ = Evidence(weights)(turn(noise(1)), Observation(features, before, n_frames))
    assert given_.shape == (n_frames,)
    np.testing.assert_allclose(given_, slowly(weights, features)[before : before + n_frames], atol=1e-5)


@pytest.fixture(scope="module")
def shipped() -> Evidence:
    return load(SHIPPED)


@given(st.integers(1, 12 * FRAME), st.integers(0, 5 * FRAME), st.integers(0, 5 * FRAME))
@settings(max_examples=30, deadline=None)
def test_what_is_farther_away_than_the_network_reaches_changes_nothing(
    shipped: Evidence, length: int, earlier: int, later: int
) -> None:
    """It reaches 14 frames to either side, whose windows reach a little beyond; so a turn may come out early."""
    reach = (sum(DILATIONS) * (TAPS // 2) + 2) * FRAME
    start, end = 5 * FRAME + reach, 5 * FRAME + reach + length
    whole = noise(end + reach + 5 * FRAME)
    near = turn(whole[start:end], whole[start - reach : start], whole[end : end + reach])
    far = turn(whole[start:end], whole[start - reach - earlier : start], whole[end : end + reach + later])
    seen = [shipped(one, observe(one, KNOWN, WEIGHTS)) for one in (near, far)]
    np.testing.assert_allclose(seen[0], seen[1], atol=1e-5)


def test_no_observation_is_too_extreme(shipped: Evidence) -> None:
    for extreme in (1e6, -1e6):
        features = np.full((40, N_FEATURES), extreme, np.float32)
        probabilities = shipped(turn(noise(1)), Observation(features, 0, 40))
        assert ((probabilities >= 0) & (probabilities <= 1)).all()


@pytest.mark.parametrize("place", range(N_FEATURES))
def test_what_is_not_a_number_is_not_judged_as_one(shipped: Evidence, place: int) -> None:
    features = np.zeros((40, N_FEATURES), np.float32)
    features[20, place] = np.nan
    assert np.isnan(shipped(turn(noise(1)), Observation(features, 0, 40))[20])


# --- the file ---------------------------------------------------------------------------------------------------------


def test_weights_are_read_as_they_were_written(tmp_path: Path) -> None:
    weights, seen = made_weights(), Observation(noise(30 * N_FEATURES).reshape(30, N_FEATURES), 5, 20)
    np.savez(tmp_path / "made.npz", **weights)
    np.testing.assert_array_equal(
        load(tmp_path / "made.npz")(turn(noise(1)), seen), Evidence(weights)(turn(noise(1)), seen)
    )


def changed(**changes: Any) -> Callable[[Path], None]:
    weights = made_weights() | changes
    return lambda path: np.savez(path, **{name: value for name, value in weights.items() if value is not None})


def text(path: Path) -> None:
    path.write_text("weights")


def one_array(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.ones(3))


def cut_short(path: Path) -> None:
    changed()(path)
    path.write_bytes(path.read_bytes()[:-200])


def spoilt(path: Path) -> None:
    data = bytearray(SHIPPED.read_bytes())
    data[200:3000] = bytes(2800)
    path.write_bytes(data)


def test_a_file_with_a_broken_header_is_refused_whatever_numpy_makes_of_it(tmp_path: Path) -> None:
    """Its header is read by Python's own parser, so that any error can come."""
    path = tmp_path / "weights.npz"
    for header in (
        "{",
        "{'descr': '<f4'",
        "('",
        "lambda: 0",
        "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
        "9**9",
    ):
        npy = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("mean.npy", npy)
        with pytest.raises(ModelError, match="holds no evidence model"):
            load(path)
    broken = bytearray(SHIPPED.read_bytes())
    broken[8:10] = b"\x63\x00"  # a way of packing that no zip has
    broken[broken.rindex(b"PK\x01\x02") + 10] = 0x63
    path.write_bytes(broken)
    with pytest.raises(ModelError, match="holds no evidence model"):
        load(path)


@pytest.mark.parametrize(
    "write",
    [
        lambda path: None,
        lambda path: path.mkdir(),
        lambda path: path.touch(),
        text,
        one_array,
        cut_short,
        spoilt,
        changed(w1=None),
        changed(calibration=None),
        changed(b3=None),
        changed(mean=np.zeros(N_FEATURES - 1)),
        changed(scale=np.ones(1)),
        changed(w0=np.ones((3, N_FEATURES + 1, TAPS))),
        changed(w1=np.ones((3, 3, TAPS - 2))),
        changed(w2=np.ones((2, 3, TAPS))),
        changed(w3=np.ones((2, 3, 1))),
        changed(b0=np.float32(0)),
        changed(b1=np.array([0, np.nan, 0])),
        changed(b2=np.array([None] * 3)),
        changed(b2=np.array(["a", "b", "c"])),
    ],
    ids=[
        *(
            "nothing",
            "a folder",
            "empty",
            "text",
            "one array",
            "cut short",
            "spoilt",
            "no w1",
            "uncalibrated",
            "no b3",
            "short mean",
        ),
        *("short scale", "features", "taps", "w2", "two outputs", "a number", "NaN", "pickled", "words"),
    ],
)
def test_a_file_that_is_no_such_model_is_refused_in_one_line(write: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "weights.npz"
    write(path)
    with pytest.raises(
        ModelError, match=f"weights.npz holds no evidence model for these {N_FEATURES} features"
    ) as caught:
        load(path)
    assert "\n" not in str(caught.value)
    assert "benchmarks/evidence.py fit" in str(caught.value)


# --- the network that comes with cascade, on the recording in benchmarks/talk -----------------------------------------


@pytest.fixture(scope="module")
def heard() -> Callable[[str], list[SpeakerTurn]]:
    detector, encoder = silero.load(), dvector.load()

    def _heard(name: str) -> list[SpeakerTurn]:
        audio, stage = read_audio(TALK / name), Diarizer(detector(), encoder, ClusteringSettings())
        return whole([*stage.push(SeparatedChunk(Span(0, len(audio)), audio, audio[None])), *stage.flush()])

    return _heard


def speaks(name: str) -> Any:
    """Return for each frame of the recording whether somebody speaks in it."""
    frames = np.zeros(3000, bool)
    for line in (TALK / "reference.rttm").read_text().splitlines():
        fields = line.split()
        if fields[7] == name:
            start_s, lasts_s = float(fields[3]), float(fields[4])
            frames[round(start_s * SAMPLE_RATE / FRAME) : round((start_s + lasts_s) * SAMPLE_RATE / FRAME)] = True
    return frames


def enrolled(profile: Profile, level_db: float) -> Known:
    nobody = np.zeros((0, len(profile.total)), np.float32)
    return Known(profile.voice, profile.first, nobody, -math.inf, level_db, heard=True, enrolled=True)


def test_the_shipped_network_tells_the_main_speaker_from_the_bystander(
    shipped: Evidence, heard: Callable[[str], list[SpeakerTurn]]
) -> None:
    profile = enrol([("enrolment.flac", heard("enrolment.flac"))])
    turns = heard("talk.flac")
    known = enrolled(profile, turns[0].level_db)
    found = np.full(3000, np.nan)
    for one in turns:
        seen = observe(one, known, WEIGHTS)
        first = one.span.start // FRAME
        found[first : first + seen.n_frames] = shipped(one, seen)
    main, bystander, judged = speaks("main"), speaks("bystander"), np.isfinite(found)
    assert (found[main & ~bystander & judged] > 0.5).mean() > 0.95
    assert (found[main & bystander & judged] > 0.5).mean() > 0.75
    assert (found[bystander & ~main & judged] < 0.5).mean() > 0.9


def test_the_shipped_network_finds_a_softer_voice_less_probable(
    shipped: Evidence, heard: Callable[[str], list[SpeakerTurn]]
) -> None:
    """The far one of two voices that sound alike is the bystander."""
    profile = enrol([("enrolment.flac", heard("enrolment.flac"))])
    first = max(heard("enrolment.flac"), key=lambda one: len(one.span))
    known = enrolled(profile, first.level_db)
    mean = [
        float(np.mean(shipped(first, observe(first, replace(known, level_db=known.level_db + far), WEIGHTS))))
        for far in (0, 12, 24)
    ]
    assert mean == sorted(mean, reverse=True)
    assert mean[0] > 0.9
