"""The laws of a stream, for the whole chain of configs/ondevice.yaml: the real detector and encoder, on real speech.

Only the recogniser is a fake: it writes down a fingerprint of the samples that it is given, so that a difference of one
sample in what is admitted would show. The chains of all other files in configs/ obey the same laws around fakes.
"""

from __future__ import annotations

import hashlib
import itertools
import tracemalloc
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cascade.asr import Recognition
from cascade.audio import read_audio
from cascade.backends import dvector, silero
from cascade.config import CascadeConfig, load_config
from cascade.foreground import HOP, Foreground
from cascade.gate import GateSettings
from cascade.packaged import data_folder
from cascade.pipeline import Cascade, Decision, Listening, load_stages
from cascade.separation import Encoder, LoudestSource, Separator
from cascade.settings import (
    FasterWhisperSettings,
    OnlineClusteringSettings,
    StageMaker,
    StreamSettings,
    WhisperSettings,
)
from cascade.speech import SpeechDetector
from cascade.stage import Chain
from cascade.types import (
    SAMPLE_RATE,
    AudioChunk,
    Mode,
    Outcome,
    Samples,
    Span,
    Vector,
    seconds,
)
from cascade.types import whole as whole_turns
from tests.canary import ENROLMENT, MAIN, SCENE, Models, Parted, Said, Scene, cascade_of, in_spectra, separate_nothing
from tests.canary import separate as separate_truly

TALK = Path(__file__).parents[1] / "benchmarks" / "talk"
PIECE = read_audio(TALK / "talk.flac")[seconds(2.5) : seconds(16)]
"""Both speak, one after the other and at once; the main speaker more: 13.5 s."""

Heard = tuple[list[str], list[str]]
"""What came out and what was decided, as text: NaN equals itself there."""


def fingerprint(samples: Samples) -> Recognition:
    return Recognition(hashlib.sha256(samples.tobytes()).hexdigest()[:12])


@dataclass
class Remembering:
    """The real encoder, which is asked only once about the same samples: that it has no state is in its contract."""

    encode: Encoder
    known: dict[bytes, Vector] = field(default_factory=dict)

    @property
    def window(self) -> int:
        return self.encode.window

    def __call__(self, samples: Samples, /) -> Vector:
        key = samples.tobytes()
        if key not in self.known:
            self.known[key] = self.encode(samples)
        return self.known[key]


@dataclass
class Real:
    """The on-device chain with the real detector and encoder."""

    detector: Callable[[], SpeechDetector]
    encoder: Remembering

    def cascade(self, config: CascadeConfig, mode: Mode = Mode.SELECTIVE) -> Cascade:
        return Cascade(load_stages(config, mode, self._load), Models.answerer(config.answerer), mode=mode)

    def _load(self, settings: StreamSettings, before: Callable[[], Chain]) -> StageMaker:
        if isinstance(settings, OnlineClusteringSettings):
            return settings.around(self.detector, self.encoder)
        if isinstance(settings, FasterWhisperSettings):
            return settings.around(fingerprint)
        return settings.load(before)


REAL = Real(silero.load(), Remembering(dvector.load()))
ALONE = load_config("ondevice")
CASCADES = {
    "enrolled": REAL.cascade(ALONE.with_enrolment([TALK / "enrolment.flac"])),
    "dominant": REAL.cascade(ALONE),
    "general": REAL.cascade(ALONE.with_enrolment([TALK / "enrolment.flac"]), Mode.GENERAL),
}


def cut(audio: Samples, positions: Iterable[int]) -> Iterator[AudioChunk]:
    """Cut audio (n_samples,) at these positions."""
    for start, end in itertools.pairwise(sorted({0, *positions, len(audio)})):
        yield AudioChunk(Span(start, end), audio[start:end])


def every(audio: Samples, size: int) -> Iterator[AudioChunk]:
    return cut(audio, range(0, len(audio), size))


def hear(cascade: Cascade, chunks: Iterable[AudioChunk]) -> Heard:
    items = list(cascade.listen(chunks))
    assert sorted(items, key=lambda item: item.span) == list(cascade.transcript.items)
    return [repr(item) for item in items], [repr(decision) for decision in cascade.listening.decisions]


# --- however the audio is cut, the output is the same -----------------------------------------------------------------


@pytest.fixture(params=CASCADES, scope="module")
def cascade(request: pytest.FixtureRequest) -> Cascade:
    return CASCADES[request.param]


@pytest.fixture(scope="module")
def whole(cascade: Cascade) -> Heard:
    """What is heard when the whole piece is pushed at once."""
    heard = hear(cascade, cut(PIECE, ()))
    assert all(heard)
    return heard


def test_the_piece_puts_the_chain_to_work() -> None:
    """Turns of both speakers, decided in both ways; else the laws below would say little."""
    hear(CASCADES["enrolled"], cut(PIECE, ()))
    decisions = CASCADES["enrolled"].listening.decisions
    assert {decision.admitted for decision in decisions} == {True, False}
    assert len(decisions) >= 4


@given(st.lists(st.integers(0, len(PIECE)), max_size=60))
@example(list(range(0, len(PIECE), seconds(0.1))))
@example(list(range(0, len(PIECE), 512)))
@settings(max_examples=8, deadline=None)
def test_cutting_changes_nothing(cascade: Cascade, whole: Heard, positions: list[int]) -> None:
    assert hear(cascade, cut(PIECE, positions)) == whole


@pytest.mark.parametrize("size", [1, 7, 100, 511, 513, 720])
def test_cutting_into_crumbs_changes_nothing(size: int) -> None:
    audio = PIECE[: seconds(5)] if size > 10 else PIECE[: seconds(2)]
    cascade = CASCADES["enrolled"]
    assert hear(cascade, every(audio, size)) == hear(cascade, cut(audio, ()))


@given(st.integers(0, len(PIECE)))
@settings(max_examples=6, deadline=None)
def test_what_comes_later_does_not_change_what_is_out(end: int) -> None:
    """What was given before the stream broke off is the beginning of what the whole stream gives."""
    stream, full = CASCADES["enrolled"].open(), CASCADES["enrolled"].open()
    before = [repr(item) for chunk in every(PIECE[:end], 1600) for item in stream.push(chunk)]
    after = [repr(item) for chunk in every(PIECE, 1600) for item in full.push(chunk)]
    assert after[: len(before)] == before


# --- every file in configs/, around fakes ----------------------------------------------------------------------------

TWO_AT_ONCE = Scene(
    (
        Said(MAIN, 0.4, "train boston nine platform tickets"),
        Said("neighbour", 1.3, "biopsy kidney tumor cancer"),
        Said(MAIN, 3.1, "eighty jacket ferry"),
        Said("caller", 4.6, "lawyer divorce"),
        Said(MAIN, 5.0, "harbor dinner"),
    )
)
"""Two speak at once, twice, so that what is heard depends on the sources too."""


@dataclass
class Fakes(Models):
    """Fakes, but for the recogniser, which writes down a fingerprint."""

    def load(self, settings: StreamSettings, before: Callable[[], Chain]) -> StageMaker:
        if isinstance(settings, FasterWhisperSettings | WhisperSettings):
            return settings.around(fingerprint)
        return super().load(settings, before)


@pytest.fixture(params=sorted(data_folder("configs").glob("*.yaml")), ids=lambda path: str(path.stem), scope="module")
def fake(request: pytest.FixtureRequest) -> Cascade:
    return cascade_of(load_config(request.param), Fakes())


@given(st.lists(st.integers(0, len(TWO_AT_ONCE.audio)), max_size=60))
@example(list(range(0, len(TWO_AT_ONCE.audio), seconds(0.1))))
@example(list(range(0, len(TWO_AT_ONCE.audio), 399)))
@settings(max_examples=8, deadline=None)
def test_cutting_changes_nothing_in_any_configuration(fake: Cascade, positions: list[int]) -> None:
    at_once = hear(fake, cut(TWO_AT_ONCE.audio, ()))
    assert all(at_once)
    assert hear(fake, cut(TWO_AT_ONCE.audio, positions)) == at_once


def test_what_is_heard_in_the_overlap_depends_on_the_sources() -> None:
    """Else the law above would say nothing of how a diarization takes from them."""
    config = load_config("sepformer_pyannote_gate_whisper_gpt4o")
    heard = [
        hear(cascade_of(config, Fakes(separate=model)), cut(TWO_AT_ONCE.audio, ()))
        for model in (separate_truly, separate_nothing)
    ]
    assert heard[0][0] != heard[1][0]


def test_a_recording_is_heard_the_same_after_another_in_any_configuration(fake: Cascade) -> None:
    alone = hear(fake, every(TWO_AT_ONCE.audio, 8000))
    for _ in itertools.islice(fake.listen(every(SCENE.audio, 8000)), 1):
        pass
    assert hear(fake, every(TWO_AT_ONCE.audio, 8000)) == alone


@pytest.mark.parametrize("n_samples", [0, 1, 10, 160, 399, 400, 800, 15_000])
def test_next_to_nothing_is_no_error_in_any_configuration(fake: Cascade, n_samples: int) -> None:
    for audio in (np.zeros(n_samples), np.random.default_rng(n_samples).normal(0, 0.001, n_samples)):
        list(fake.listen(cut(audio.astype(np.float32), ())))
        assert fake.listening.performance.audio_s == n_samples / SAMPLE_RATE


# --- foreground and background, each heard by itself ------------------------------------------------------------------


@pytest.fixture(params=Mode, scope="module")
def in_two(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Cascade:
    """A chain that decides while a turn goes on."""
    config = load_config("foreground").with_enrolment([ENROLMENT.write(tmp_path_factory.mktemp("me") / "me.wav")])
    return cascade_of(config, Fakes(separate=Parted(TWO_AT_ONCE)), request.param)


@given(st.lists(st.integers(0, len(TWO_AT_ONCE.audio)), max_size=60))
@example(list(range(0, len(TWO_AT_ONCE.audio), seconds(0.1))))
@example(list(range(0, len(TWO_AT_ONCE.audio), 399)))
@settings(max_examples=8, deadline=None)
def test_cutting_changes_nothing_of_what_is_decided_of_either(in_two: Cascade, positions: list[int]) -> None:
    at_once = hear(in_two, cut(TWO_AT_ONCE.audio, ()))
    assert {decision.speaker for decision in in_two.listening.decisions} >= {MAIN, "background"}
    assert hear(in_two, cut(TWO_AT_ONCE.audio, positions)) == at_once


def test_neither_is_later_than_the_lookahead(in_two: Cascade) -> None:
    audio = np.pad(TWO_AT_ONCE.audio, (0, seconds(6)))
    front = Chain([make(in_two.mode) for _, make in in_two._stages[:2]])
    turns = whole_turns([*front.push(AudioChunk(Span(0, len(audio)), audio)), *front.flush()])
    late: dict[bool, list[int]] = {True: [], False: []}
    stream = in_two.open()
    for chunk in every(audio, 1600):
        known = len(stream.decisions)
        stream.push(chunk)
        for decision in stream.decisions[known:]:
            behind = decision.speaker == "background"
            ends = [turn.span.end for turn in turns if turn.background is behind and turn.span.end >= decision.span.end]
            late[behind].append(chunk.span.start - min(ends))
    assert in_two.lookahead is not None
    assert all(late.values())
    assert max(late[True] + late[False]) < in_two.lookahead


def test_cutting_changes_nothing_for_the_real_network() -> None:
    cascade = REAL.cascade(load_config("foreground").with_enrolment([TALK / "enrolment.flac"]))
    whole = hear(cascade, cut(PIECE, ()))
    assert {decision.admitted for decision in cascade.listening.decisions} == {True, False}
    assert any(decision.speaker == "background" for decision in cascade.listening.decisions)
    assert hear(cascade, every(PIECE, 1777)) == whole


# --- the separators and the choice of the loudest source, with the real encoder ---------------------------------------


def split(windows: Samples) -> Samples:
    """A separation model that tells voices apart by nothing, gives them in any order, and each at any level."""
    sources = np.stack([0.8 * windows, 0.1 * np.roll(windows, 7, axis=1)], axis=1)
    turned = np.array([zlib.crc32(window.tobytes()) % 2 == 1 for window in windows])
    return np.where(turned[:, None, None], sources[:, ::-1], sources)


SEPARATORS: dict[str, Callable[[], Separator | Foreground]] = {
    "at 8 kHz": lambda: Separator(split, rate=8000, encode=REAL.encoder),
    "at 16 kHz, in batches": lambda: Separator(split, rate=16_000, batch=3, encode=REAL.encoder),
    "where two speak": lambda: Separator(
        split, rate=8000, encode=REAL.encoder, overlap=lambda window: bool(np.abs(window).max() > 0.1)
    ),
    "foreground": lambda: Foreground(in_spectra(split), REAL.detector()),
}


def separate(separator: Separator | Foreground, chunks: Iterable[AudioChunk]) -> list[str]:
    """Return a fingerprint of each separated chunk, and of the turn of the loudest source."""
    chosen = LoudestSource()
    separated = [out for chunk in chunks for out in separator.push(chunk)] + list(separator.flush())
    turns = [turn for chunk in separated for turn in chosen.push(chunk)] + list(chosen.flush())
    return [f"{chunk.span} {fingerprint(chunk.sources)} {fingerprint(chunk.mixture)}" for chunk in separated] + [
        f"{turn.span} {turn.level_db} {fingerprint(turn.samples)}" for turn in turns
    ]


@pytest.mark.parametrize("name", SEPARATORS)
@given(st.lists(st.integers(0, len(PIECE)), max_size=60))
@example(list(range(0, len(PIECE), seconds(0.1))))
@example(list(range(0, len(PIECE), 511)))
@settings(max_examples=5, deadline=None)
def test_cutting_changes_nothing_of_what_is_separated(name: str, positions: list[int]) -> None:
    whole = separate(SEPARATORS[name](), cut(PIECE, ()))
    n_hops = -(-len(PIECE) // HOP) if name == "foreground" else 7
    assert len(whole) == n_hops + 1, "hops of two seconds, or the foreground's, and one turn"
    assert separate(SEPARATORS[name](), cut(PIECE, positions)) == whole


@pytest.mark.parametrize("name", SEPARATORS)
def test_no_separated_chunk_is_later_than_the_lookahead(name: str) -> None:
    separator, out = SEPARATORS[name](), 0
    for chunk in every(PIECE, 1600):
        out = max([out, *(separated.span.end for separated in separator.push(chunk))])
        assert out >= chunk.span.end - separator.lookahead
    assert out > 0


# --- nothing is later than the lookahead ------------------------------------------------------------------------------


def lateness(cascade: Cascade, audio: Samples, size: int) -> list[int]:
    """Return, for each decision, how many samples after its turn's end were heard before the push that brought it.

    It is negative for a piece that came out while its turn went on.
    """
    front = Chain([make(cascade.mode) for _, make in cascade._stages[:2]])
    ends = [
        turn.span.end for turn in whole_turns([*front.push(AudioChunk(Span(0, len(audio)), audio)), *front.flush()])
    ]
    stream = cascade.open()
    late: list[int] = []
    for chunk in every(audio, size):
        known = len(stream.decisions)
        stream.push(chunk)
        for decision in stream.decisions[known:]:
            late.append(chunk.span.start - next(end for end in ends if end >= decision.span.end))
    return late


def turn_ends(decisions: Sequence[Decision]) -> list[int]:
    """Return where each decision's turn ended: its pieces follow each other without a gap, and come out together."""
    ends: list[int] = []
    start: int | None = None
    for decision in reversed(decisions):
        ends.append(ends[-1] if decision.span.end == start else decision.span.end)
        start = decision.span.start
    return ends[::-1]


@pytest.mark.parametrize("size", [160, 1600, 8000])
def test_nothing_is_later_than_the_lookahead(size: int) -> None:
    cascade = CASCADES["enrolled"]
    late = lateness(cascade, PIECE, size)
    assert late
    assert cascade.lookahead is not None
    assert max(late) < cascade.lookahead
    assert min(late) < 0  # a piece came out while its turn went on


def test_the_enrolled_chain_decides_within_a_little_more_than_a_second() -> None:
    assert CASCADES["enrolled"].lookahead is not None
    assert CASCADES["enrolled"].lookahead <= seconds(1.25)


def test_once_the_main_speaker_is_known_the_dominant_chain_is_as_quick() -> None:
    stream = cascade_of(ALONE, Models()).open()
    late: list[int] = []
    for chunk in every(SCENE.audio, 1600):
        known = len(stream.decisions)
        stream.push(chunk)
        if known:  # what was held until then came out with the first decision
            late += [chunk.span.start - end for end in turn_ends(stream.decisions[known:])]
    assert late
    assert CASCADES["enrolled"].lookahead is not None
    assert max(late) < CASCADES["enrolled"].lookahead


def test_the_dominant_chain_holds_until_the_first_turn_that_ends_the_hold_and_no_longer() -> None:
    """The gate knows the time by turns: in silence, what it holds waits for the next one, or for the stream's end."""
    stream = cascade_of(ALONE, Models()).open()
    for chunk in every(SCENE.audio, 1600):
        stream.push(chunk)
        if stream.decisions:
            break
    ends = sorted(decision.span.end for decision in stream.decisions)
    hold = GateSettings().hold_s * SAMPLE_RATE
    assert len(ends) > 2
    assert ends[-1] - ends[0] >= hold
    assert ends[-2] - ends[0] < hold


# --- memory -----------------------------------------------------------------------------------------------------------

UNPAUSED = Scene((Said(MAIN, 0.0, "train boston nine platform " * 20),))


@pytest.mark.parametrize(
    ("name", "scene"),
    [("ondevice", SCENE), ("ondevice", UNPAUSED), ("foreground", SCENE)],
    ids=["a conversation", "one who never pauses", "a conversation with a foreground"],
)
def test_memory_does_not_grow_with_the_recording(name: str, scene: Scene) -> None:
    models = Models()
    stream = cascade_of(load_config(name), models).open()
    endless = itertools.cycle(every(scene.audio[: seconds(24)], seconds(0.5)))
    tracemalloc.start()
    try:
        _, second, _, fourth = (_peak_of_a_minute(stream, models, endless) for _ in range(4))
    finally:
        tracemalloc.stop()
    assert stream.performance.audio_s > 230
    grown = fourth - second
    assert grown < 500_000, f"{grown} bytes more; two minutes of audio are {120 * SAMPLE_RATE * 4}"


def _peak_of_a_minute(stream: Listening, models: Models, chunks: Iterator[AudioChunk]) -> int:
    """Hear a minute more; return the most memory in use after any chunk of it, in bytes."""
    used = []
    for _ in range(120):
        samples = next(chunks).mixture
        start = round(stream.performance.audio_s * SAMPLE_RATE)
        stream.push(AudioChunk(Span(start, start + len(samples)), samples))
        models.recognise.given.clear()
        used.append(tracemalloc.get_traced_memory()[0])
    return max(used)


# --- streams know nothing of each other -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASCADES)
def test_a_recording_is_heard_the_same_after_another(name: str) -> None:
    cascade = CASCADES[name]
    loud = np.random.default_rng(0).normal(0, 0.3, seconds(1)).astype(np.float32)
    alone = hear(cascade, every(PIECE[: seconds(8)], 8000))
    hear(cascade, every(np.concatenate([PIECE[seconds(5) :], loud]), 8000))
    assert hear(cascade, every(PIECE[: seconds(8)], 8000)) == alone


def test_a_recording_that_was_broken_off_leaves_nothing_behind() -> None:
    cascade = CASCADES["enrolled"]
    alone = hear(cascade, every(PIECE[: seconds(6)], 8000))
    for _ in itertools.islice(cascade.listen(every(PIECE[seconds(4) :], 8000)), 1):
        pass
    assert hear(cascade, every(PIECE[: seconds(6)], 8000)) == alone


def test_two_streams_at_once_do_not_mix() -> None:
    cascade = CASCADES["enrolled"]
    pieces = PIECE[: seconds(7)], PIECE[seconds(6) :]
    alone = [hear(cascade, every(piece, 8000)) for piece in pieces]
    streams = cascade.open(), cascade.open()
    came: list[list[str]] = [[], []]
    for both in itertools.zip_longest(*(every(piece, 8000) for piece in pieces)):
        for out, stream, chunk in zip(came, streams, both, strict=True):
            out += map(repr, stream.push(chunk) if chunk is not None else ())
    for out, stream in zip(came, streams, strict=True):
        out += map(repr, stream.flush())
    decisions: list[list[Decision]] = [stream.decisions for stream in streams]
    assert list(zip(came, [list(map(repr, each)) for each in decisions], strict=True)) == alone


# --- next to nothing, and nothing to be heard -------------------------------------------------------------------------


def _empty(cascade: Cascade, audio: Samples) -> None:
    items, decisions = hear(cascade, every(audio, seconds(0.1)) if len(audio) else [])
    assert items == []
    assert decisions == []
    performance = cascade.listening.performance
    assert performance.audio_s == len(audio) / SAMPLE_RATE
    assert performance.latency is None
    assert cascade.transcript.text == ""
    assert cascade.ask("When does the train leave?").outcome is Outcome.DONT_KNOW


@pytest.mark.parametrize("n_samples", [0, 1, 10, 160, 511, 512, 513, 800, 1600, 15_000])
def test_next_to_nothing_gives_a_valid_empty_result(cascade: Cascade, n_samples: int) -> None:
    _empty(cascade, np.zeros(n_samples, np.float32))
    _empty(cascade, np.random.default_rng(n_samples).normal(0, 0.1, n_samples).astype(np.float32))


def _tone(n_samples: int) -> Any:
    return 0.3 * np.sin(2 * np.pi * 440 / SAMPLE_RATE * np.arange(n_samples))


NOISES: dict[str, Callable[[int], Any]] = {
    "silence": np.zeros,
    "noise": lambda n_samples: np.random.default_rng(0).normal(0, 0.1, n_samples),
    "tone": _tone,
    "offset": lambda n_samples: np.full(n_samples, 0.5),
    "clicks": lambda n_samples: (np.arange(n_samples) % 4000 == 0) * 0.9,
    "loudest": lambda n_samples: np.where(np.arange(n_samples) % 80 < 40, 1.0, -1.0),
}


@pytest.mark.parametrize("noise", NOISES)
def test_what_is_no_speech_gives_a_valid_empty_result(cascade: Cascade, noise: str) -> None:
    audio = NOISES[noise](seconds(6)).astype(np.float32)
    items, decisions = hear(cascade, every(audio, seconds(0.1)))
    if noise == "loudest":  # a buzz that a detector may take for a voice, but nobody may take for the main speaker
        assert not any("Utterance" in item for item in items) or cascade is CASCADES["general"]
        return
    assert (items, decisions) == ([], [])


@pytest.mark.parametrize("n_samples", [800, 3200, 8000])
def test_a_snippet_of_speech_is_too_short_to_tell_a_voice_by(n_samples: int) -> None:
    speech = PIECE[seconds(2) : seconds(2) + n_samples]
    items, _ = hear(CASCADES["enrolled"], every(speech, 1600))
    assert not any("Utterance" in item for item in items)
