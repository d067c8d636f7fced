"""Measure a trained separator on scenes with every speaker alone, as benchmarks/corpus.py and shared scenes have them.

    python models/separator/evaluate.py NETWORK SCENES_DIR [--count N] [--asr] [--json FILE]
    python models/separator/evaluate.py NETWORK [--beside NETWORK]... --corpus CORPUS --rooms ROOMS [--count N]
    python models/separator/evaluate.py NETWORK --near FILE --far FILE --rooms ROOMS [--count N] [--asr]

NETWORK is RUN/mean.pt, or what export.py wrote: an ONNX file, or the folder of a SepFormer.

The second way draws mixtures of the test split, whose voices, sentences and rooms no training has heard, in which both
speak and the other is 10 dB softer. It says the mean gain of each source, and the real-time factor of the network by
itself in one thread, which a stage multiplies by how often its windows hear each second.

The third way puts two recordings of one real speaker each into rooms of the test split, one near, the other far and
10 dB softer, and measures as for a scene; with --asr, what is found in a clean track stands for what is said in it.

For each scene, SI-SDR in dB over the whole recording: of the mixture as a guess of either source, and how much better
the separator's source is; as it comes from the network, and with the noise given to the foreground, so that both add up
to the mixture (+). With --asr, words that speech recognition (faster-whisper, tiny.en) finds, counted as
benchmarks/leakage.py counts them:

    bystander   of the bystanders' own words: in the mixture, in the background, in their clean track
    leaked      of the same, in the foreground
    main        of the main speaker's words: in the mixture, in the foreground, in their clean track

Needs onnxruntime for ONNX, torch for .pt files, torch and speechbrain for SepFormers, cascade's extra `ondevice` for
--asr. The second way needs torch always, and onnx for ONNX.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
from faults import told
from mixtures import AT_10_DB, Rooms, draw_mixture, read_rooms, read_speech

from corpus import positive  # isort: skip
from hearing import Ears  # isort: skip
from mixing import at_level  # isort: skip
from mixing import hear as hear_in_room  # isort: skip
from references import Scene, read_scenes  # isort: skip

from cascade.audio import read_audio
from cascade.backends import separator
from cascade.config import load_config
from cascade.errors import CascadeError
from cascade.foreground import BACKGROUND, STEP, Foreground, Network, Spectra, separate
from cascade.scoring.leakage import leakage, retention
from cascade.types import SAMPLE_RATE, AudioChunk, Samples, Span, concatenate

Hear = Callable[[Samples], str]
"""Speech recognition: (n_samples,) -> text."""

LINE: Final = "{:16} {:>17} {:>17}   {}"
DRAWN_LINE: Final = "{:9} {:>10} {:>8} {:>6} {:>11} {:>11}   {}"
TEST_SEED, DRAWN, ROOMS = 30_000, 96, 8
LEVEL_DB, FAR_DB = -26.0, -10.0
"""Active-speech level of who is near, in dB re full scale, and how much softer the other one is."""


@dataclass(frozen=True, slots=True)
class Gain:
    """SI-SDR of one source in dB: the mixture's, and how much better the network's is, and the one with the noise."""

    mixture: float
    gain: float
    adding_up: float


@dataclass(frozen=True, slots=True)
class Measured:
    """One scene; gains are None for who is silent in it, words (found, of how many) are empty without --asr."""

    scene: str
    foreground: Gain | None
    background: Gain | None
    rtf: float
    words: dict[str, tuple[int, int]]


@dataclass(frozen=True, slots=True, eq=False)
class Tracks:
    """A mixture, and each speaker alone as in it, all (n_samples,)."""

    mixture: Samples
    main: Samples
    bystander: Samples


def si_sdr(guess: Samples, wanted: Samples) -> float:
    """Scale-invariant signal-to-distortion ratio of (n_samples,), in dB."""
    one, other = guess.astype(np.float64), wanted.astype(np.float64)
    target = other * (one @ other) / (other @ other)
    return float(10 * np.log10(max(float(target @ target), 1e-12) / max(float((one - target) @ (one - target)), 1e-12)))


def gain_of(mixture: Samples, plain: Samples, adding_up: Samples, wanted: Samples) -> Gain | None:
    """Compare guesses of a source, all (n_samples,)."""
    if not wanted.any():
        return None
    before = si_sdr(mixture, wanted)
    return Gain(
        round(before, 2), round(si_sdr(plain, wanted) - before, 2), round(si_sdr(adding_up, wanted) - before, 2)
    )


def measure(scene: Scene, network: Network, hear: Hear | None) -> Measured:
    """Separate a scene and compare.

    Raises:
        ValueError: The scene hasn't every speaker alone.
        AudioError: A recording can't be read.
    """
    folder = scene.mixture.parent
    alone = folder / "bystander.flac"
    if scene.main is None or not alone.is_file():
        raise ValueError(f"{folder} has no main.flac and bystander.flac: make scenes with every speaker alone")
    tracks = Tracks(read_audio(scene.mixture), read_audio(scene.main), read_audio(alone))
    return compare(scene.name, tracks, network, hear, scene)


def compare(name: str, tracks: Tracks, network: Network, hear: Hear | None, scene: Scene | None = None) -> Measured:
    """Separate a mixture and compare; a scene says what is said in it."""
    began = time.perf_counter()
    foreground, background = hear_all(tracks.mixture, network)
    rtf = (time.perf_counter() - began) / (len(tracks.mixture) / SAMPLE_RATE)
    plain = hear_all(tracks.mixture, turned(network))[BACKGROUND]
    return Measured(
        name,
        gain_of(tracks.mixture, plain, foreground, tracks.main),
        gain_of(tracks.mixture, background, background, tracks.bystander),
        round(rtf, 3),
        {} if hear is None else count_words(scene, hear, tracks, foreground, background),
    )


def hear_all(mixture: Samples, network: Network) -> Samples:
    """Foreground and background (2, n_samples) of a recording (n_samples,), as the stage gives them; all is speech."""
    stage = Foreground(network, lambda _: 1.0)
    chunks = [*stage.push(AudioChunk(Span(0, len(mixture)), mixture)), *stage.flush()]
    return concatenate([chunk.sources for chunk in chunks])


def turned(network: Network) -> Network:
    """Return a network that gives the background first; the stage hands on what comes second as it comes."""

    def run(spectra: Spectra) -> Spectra:
        return network(spectra)[:, ::-1]

    return run


def count_words(
    scene: Scene | None, hear: Hear, tracks: Tracks, foreground: Samples, background: Samples
) -> dict[str, tuple[int, int]]:
    """Words found, of how many: by whose they are and where they were looked for."""
    heard = {"mixture": hear(tracks.mixture), "foreground": hear(foreground), "background": hear(background)}
    heard |= {"main": hear(tracks.main), "bystander": hear(tracks.bystander)}
    own = heard["main"] if scene is None else scene.main_text
    others = heard["bystander"] if scene is None else scene.bystander_text
    places = {"mixture": "mixture", "source": "background", "clean": "bystander"}
    found = {f"bystander {place}": leakage(others, own, heard[track]) for place, track in places.items()}
    found["leaked"] = leakage(others, own, heard["foreground"])
    places = {"mixture": "mixture", "source": "foreground", "clean": "main"}
    found |= {f"main {place}": retention(own, heard[track]) for place, track in places.items()}
    return {name: (tally.correct, tally.total) for name, tally in found.items()}


# --- mixtures of the test split -------------------------------------------------------------------------


def measure_drawn(network: Network, corpora: Sequence[Path], rooms: Path, count: int) -> tuple[float, float]:
    """Mean gain in dB, of foreground and background, over so many mixtures of the test split.

    Raises:
        ValueError: There is no speech.
        OSError: The rooms can't be read.
        AudioError: A file can't be read.
    """
    speech, places = read_speech(corpora, "test"), read_rooms(rooms, "test")
    gains = []
    for number in range(count):
        drawn = draw_mixture(AT_10_DB, speech, places, np.random.default_rng([TEST_SEED, number]))
        guess = separate(drawn.mixture, network)
        pairs = zip(guess, (drawn.foreground, drawn.background), strict=True)
        gains.append([si_sdr(one, wanted) - si_sdr(drawn.mixture, wanted) for one, wanted in pairs])
    foreground, background = np.mean(gains, axis=0)
    return float(foreground), float(background)


def put_in_rooms(near: Samples, far: Samples, rooms: Rooms, count: int) -> list[Tracks]:
    """Put two recordings (n_samples,) into so many rooms, as AT_10_DB has them; the shorter one is repeated."""
    n_samples = max(len(near), len(far))
    dry = [np.resize(samples, n_samples) for samples in (near, far)]
    found = []
    for room in range(min(count, len(rooms.near))):
        responses = rooms.near[room, 0], rooms.far[room, 0]
        heard = [hear_in_room(*pair) for pair in zip(dry, (one.astype(np.float32) for one in responses), strict=True)]
        main, bystander = (at_level(*pair) for pair in zip(heard, (LEVEL_DB, LEVEL_DB + FAR_DB), strict=True))
        found.append(Tracks(main + bystander, main, bystander))
    return found


class Timed:
    """A network that notes how long it takes."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._took_s = self._heard_s = 0.0

    @property
    def rtf(self) -> float:
        """Its real-time factor so far."""
        return self._took_s / self._heard_s

    def __call__(self, spectra: Spectra, /) -> Spectra:
        """Run it."""
        began = time.perf_counter()
        sources = self._network(spectra)
        self._took_s += time.perf_counter() - began
        self._heard_s += spectra.shape[-1] * STEP / SAMPLE_RATE
        return sources


# --- what is said of it -------------------------------------------------------------------------------


def show_gain(gain: Gain | None) -> str:
    """A source's numbers as a column."""
    return "-" if gain is None else f"{gain.mixture:.1f} {gain.gain:+.1f} {gain.adding_up:+.1f}+"


def show_words(words: dict[str, tuple[int, int]]) -> str:
    """Words found as shares, in %."""
    return "  ".join(f"{name} {100 * found / total:.0f}" for name, (found, total) in words.items() if total)


def sum_words(measured: Sequence[Measured]) -> dict[str, tuple[int, int]]:
    """Add up what was found in some scenes."""
    names = dict.fromkeys(name for one in measured for name in one.words)
    pairs = {name: [one.words[name] for one in measured if name in one.words] for name in names}
    return {name: (sum(found for found, _ in each), sum(total for _, total in each)) for name, each in pairs.items()}


def mean_gain(gains: Sequence[Gain | None]) -> Gain | None:
    """Mean over the scenes in which a source is heard."""
    heard = [gain for gain in gains if gain is not None]
    if not heard:
        return None
    before, plain, adding_up = np.mean([(gain.mixture, gain.gain, gain.adding_up) for gain in heard], axis=0)
    return Gain(float(before), float(plain), float(adding_up))


def show(measured: Measured) -> str:
    """A scene as a line."""
    words = show_words(measured.words)
    return LINE.format(
        measured.scene, show_gain(measured.foreground), show_gain(measured.background), f"RTF {measured.rtf}  {words}"
    ).rstrip()


def total(measured: Sequence[Measured]) -> str:
    """All scenes as a line."""
    foreground = mean_gain([one.foreground for one in measured])
    background = mean_gain([one.background for one in measured])
    words = show_words(sum_words(measured))
    rtf = np.mean([one.rtf for one in measured])
    return LINE.format(
        f"mean of {len(measured)}", show_gain(foreground), show_gain(background), f"RTF {rtf:.3f}  {words}"
    ).rstrip()


# --- command line -------------------------------------------------------------------------------------


def load_network(path: Path) -> Network:
    """Load what train.py or export.py wrote, to run in one thread.

    Raises:
        ValueError: It isn't such a file of torch's.
        OSError: That can't be read.
        CascadeError: It isn't such an ONNX file, or such a folder.
    """
    if path.suffix == ".onnx":
        return separator.load(path)
    import torch
    from export import in_folder, in_torch, read_network

    torch.set_num_threads(1)
    return in_folder(path) if path.is_dir() else in_torch(read_network(path))


def load_hearing() -> Hear:
    """Load speech recognition.

    Raises:
        CascadeError: It isn't installed.
    """
    return Ears(load_config("ondevice.yaml")).transcribe


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; None means this process's own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("network", type=Path, metavar="NETWORK", help="mean.pt of a run, an ONNX file, or a folder")
    parser.add_argument("scenes", type=Path, nargs="?", metavar="SCENES_DIR", help="recordings with references")
    parser.add_argument(
        "--beside", type=Path, action="append", default=[], metavar="NETWORK", help="one more, on the same mixtures"
    )
    parser.add_argument("--corpus", type=Path, action="append", metavar="CORPUS", help="a bank to draw mixtures from")
    parser.add_argument("--rooms", type=Path, metavar="ROOMS", help="the rooms of these mixtures")
    parser.add_argument("--near", type=Path, metavar="FILE", help="a recording of one speaker, to be near")
    parser.add_argument("--far", type=Path, metavar="FILE", help="a recording of another one, to be far")
    parser.add_argument(
        "--count", type=positive, metavar="N", help=f"so many (default: all scenes, {DRAWN} mixtures, {ROOMS} rooms)"
    )
    parser.add_argument("--asr", action="store_true", help="count words, too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers down")
    parsed = parser.parse_args(arguments)
    if not parsed.scenes and not (parsed.rooms and (parsed.corpus or (parsed.near and parsed.far))):
        parser.error("give SCENES_DIR, or --corpus and --rooms, or --near, --far and --rooms")
    if parsed.beside and not parsed.corpus:
        parser.error("--beside compares on mixtures of the test split: give --corpus and --rooms")
    return parsed


def run_drawn(parsed: argparse.Namespace) -> None:
    """Measure networks on the same mixtures of the test split."""
    count = parsed.count or DRAWN
    print(f"gain in SI-SDR at -10 dB, {count} mixtures")
    print(DRAWN_LINE.format("kind", "parameters", "size", "RTF", "foreground", "background", "network"))
    for path in (parsed.network, *parsed.beside):
        network = Timed(load_network(path))
        gains = measure_drawn(network, parsed.corpus, parsed.rooms, count)
        print(show_drawn(path, gains, network.rtf), flush=True)


def show_drawn(path: Path, gains: tuple[float, float], rtf: float) -> str:
    """A network as a line."""
    from export import look_at

    written = look_at(path)
    numbers = f"{written.parameters / 1e6:.2f} M", f"{written.size / 1e6:.1f} MB", f"{rtf:.3f}"
    return DRAWN_LINE.format(written.kind, *numbers, *(f"{gain:+.1f} dB" for gain in gains), path)


def measure_all(parsed: argparse.Namespace, network: Network, hear: Hear | None) -> Iterator[Measured]:
    """Measure scene after scene, or two recordings in room after room."""
    if parsed.scenes:
        yield from (measure(scene, network, hear) for scene in read_scenes(parsed.scenes)[: parsed.count])
        return
    rooms, near, far = read_rooms(parsed.rooms, "test"), read_audio(parsed.near), read_audio(parsed.far)
    for number, tracks in enumerate(put_in_rooms(near, far, rooms, parsed.count or ROOMS), 1):
        yield compare(f"room {number}", tracks, network, hear)


def run_scenes(parsed: argparse.Namespace) -> None:
    """Measure scenes or rooms, and say so as it goes."""
    print(LINE.format("SI-SDR (dB)", "foreground", "background", "words found (%)" if parsed.asr else "").rstrip())
    network, hear = load_network(parsed.network), load_hearing() if parsed.asr else None
    measured = []
    for one in measure_all(parsed, network, hear):
        measured.append(one)
        print(show(one), flush=True)
    print(total(measured))
    if parsed.json:
        parsed.json.write_text(json.dumps([asdict(one) for one in measured], indent=2) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns the exit status (2: the user can mend it)."""
    parsed = parse_arguments(arguments)
    try:
        if parsed.json and (parsed.json.is_dir() or not parsed.json.parent.is_dir()):
            raise ValueError(f"--json {parsed.json} isn't a file in a folder that is there; name such a one")
        run_drawn(parsed) if parsed.corpus else run_scenes(parsed)
    except ModuleNotFoundError as error:
        print(f"evaluate.py: {error.name} isn't installed; see the end of evaluate.py --help", file=sys.stderr)
        return 2
    except (ValueError, OSError, CascadeError) as error:
        print(f"evaluate.py: {told(error)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
