"""Make scenes from other people's recordings, as SH-Bench's synthetic partition has them (section 3.2 of its paper).

    python benchmarks/build_scenes.py MAIN BYSTANDER [--ami DIR] --out DIR
    python benchmarks/build_scenes.py --ami DIR --count N --out DIR

MAIN and BYSTANDER each name a speaker: `ES2004a:B` of the AMI corpus in --ami, or `talk.flac:anna` of a recording with
a SegLST file beside it (the top of talkers.py describes both layouts). With --count, N pairs are drawn from the corpus.

The recipe: a stretch of 2 to 3 minutes in which the main speaker speaks more than 70 % of the time; a stretch of 20 to
50 s of somebody else from another recording; both recordings clean enough; the bystander 10 dB below the main speaker's
active-speech level, put over them at random; a meeting room around both. Where only others of the same recording speak,
or a word is cut in two, the recording is muted, so that nobody is heard of whom the references don't know.

The same seed gives the same bytes. What is written to --out, with S for a scene's name:

    audio/S.flac      what the microphone heard, 16 kHz
    reference.rttm    who speaks when, and
    references.json   who says what when, of all scenes (SegLST)
    questions.json    ten items a scene in the benchmark's format, five on each speaker; the texts are for you to write

Needs cascade itself, and `pip install pyroomacoustics scipy`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import installed  # noqa: F401
import numpy as np
import numpy.typing as npt
from mixing import (
    BystanderPlace,
    Dry,
    Impulse,
    MainPlace,
    Name,
    Room,
    Said,
    Setting,
    active_power,
    frame_powers,
    mix,
    room_response,
    to_flac,
    to_json,
    to_rttm,
    to_seglst,
)
from talkers import AmiCorpus, Talker, join, read_plain
from whole import stoppable

from cascade.audio import read_audio
from cascade.errors import AudioError
from cascade.types import SAMPLE_RATE, Samples, Span, seconds

# Section 3.2 of the paper.
MAIN_LENGTHS_S = tuple(range(120, 181, 10))
BYSTANDER_LENGTHS_S = tuple(range(20, 51, 5))
MIN_SHARE = 0.7  # of a stretch in which its speaker must speak
LEVEL_DB = -10.0  # the bystander's over the main speaker's
QUESTIONS = 5  # on each speaker

MEETING_ROOM = Room(size_m=(7.0, 5.5, 2.8), rt60_s=0.45)
MAIN_M = (0.3, 0.6)  # from the microphone; drawn
BYSTANDER_M = (2.0, 2.4)  # further would not fit in every direction
NOISE_SNR_DB = 40.0  # the recordings bring their own noise; this only keeps muted places from digital silence

MIN_SNR_DB = 20.0
"""What a recording's speech must have over its noise: then a bystander at LEVEL_DB still stands 10 dB above what hums
in the main speaker's recording, and ITU-T P.56, whose margin is 15.9 dB, can tell speech from pauses in both."""
QUIET_MARGIN_S = 0.25  # what follows or precedes speech this closely is not taken for noise
QUIET_S = 1.0  # less than this tells nothing of the noise
FADE_S = 0.01

Respond = Callable[[Setting, Name], Impulse]


# --- the benchmark's items ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Item:
    """A question in the benchmark's own format, field by field; scene is None, and not written, for synth."""

    question: str
    options: tuple[str, ...]
    answer: str
    speaker: Name
    audio: str
    type: Literal["real", "synth"]
    scene: str | None
    main_speaker_desc: str
    main_speaker_desc_w_content: str
    main_speaker_desc_w_content_filter: str
    idk_answer: str


def frame_items(session_id: str) -> tuple[Item, ...]:
    """Make the items of a scene whose questions are not written yet."""
    names: tuple[Name, ...] = ("main", "bystander")
    return tuple(
        Item("", (), "", name, f"audio/{session_id}.flac", "synth", None, "", "", "", "")
        for name in names
        for _ in range(QUESTIONS)
    )


def to_questions(items: Iterable[Item]) -> str:
    """Items as the benchmark's JSON: a list; a scene that there isn't is left out."""
    return to_json([{key: value for key, value in asdict(item).items() if value is not None} for item in items])


# --- what is taken from a recording ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a recording in which a talker mostly speaks."""

    talker: Talker
    span: Span

    @property
    def name(self) -> str:
        """Talker and beginning, in hundredths of a second, as the benchmark's file names have it."""
        return f"{self.talker.name}_{round(100 * self.span.start_s)}"

    def said(self, session_id: str, speaker: Name, start: int) -> Iterator[Said]:
        """What they say, turn by turn, when the stretch begins at `start`; a word that is cut in two is left out."""
        words = [word for word in self.talker.words if contains(self.span, word.span)]
        shift = start - self.span.start
        for turn in join(word.span for word in words):
            text = " ".join(word.text for word in words if contains(turn, word.span))
            yield Said(session_id, speaker, Span(turn.start + shift, turn.end + shift), text)


def find_stretch(talker: Talker, lengths_s: Sequence[int], rng: np.random.Generator) -> Stretch:
    """Draw one of a talker's stretches.

    Raises:
        ValueError: There is none.
    """
    found = list_stretches(talker, lengths_s)
    if not found:
        raise ValueError(
            f"{talker.name} nowhere speaks for more than {100 * MIN_SHARE:.0f} % of {lengths_s[0]} to {lengths_s[-1]} "
            "s; choose somebody who speaks longer at a time"
        )
    return Stretch(talker, found[rng.integers(len(found))])


def list_stretches(talker: Talker, lengths_s: Sequence[int]) -> list[Span]:
    """All stretches that begin with a turn, and in which the talker speaks more than MIN_SHARE of the time."""
    end = max(span.end for span in (*talker.turns[-1:], *talker.others[-1:]))
    starts = np.array([turn.start for turn in talker.turns])
    found: list[Span] = []
    for length in map(seconds, lengths_s):
        spoken = spoken_until(talker, starts + length) - spoken_until(talker, starts)
        fit = (spoken > MIN_SHARE * length) & (starts + length <= end)
        found += [Span(int(start), int(start) + length) for start in starts[fit]]
    return found


def spoken_until(talker: Talker, times: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """How long the talker has spoken by each time, both in samples: (n_times,) -> (n_times,)."""
    turns = talker.turns
    borders = [border for turn in turns for border in (turn.start, turn.end)]
    spoken = np.cumsum([length for turn in turns for length in (0, len(turn))])
    return np.asarray(np.interp(times, borders, spoken))


def cut(stretch: Stretch, samples: Samples) -> Samples:
    """Take a stretch out of the talker's recording (n_samples,), muted where only others speak: (len(stretch.span),).

    Raises:
        ValueError: The recording is shorter than its transcript.
    """
    from scipy.ndimage import uniform_filter1d  # type: ignore[import-untyped, unused-ignore]

    if len(samples) < stretch.span.end:
        raise ValueError(
            f"{stretch.talker.audio} is {len(samples) / SAMPLE_RATE:.1f} s long, but its transcript goes on until "
            f"{stretch.span.end_s:.1f} s: they don't belong together"
        )
    gain = np.ones(len(stretch.span), dtype=np.float32)
    own = [part.span for part in stretch.said("", "main", 0)]
    halves = [word.span for word in stretch.talker.words if not contains(stretch.span, word.span)]
    for span in (*stretch.talker.others, *halves):
        gain[within(span, stretch.span)] = 0
    for span in own:
        gain[span.start : span.end] = 1
    faded = uniform_filter1d(gain, seconds(FADE_S), mode="nearest")
    return np.asarray(samples[stretch.span.start : stretch.span.end] * faded, dtype=np.float32)


def contains(frame: Span, span: Span) -> bool:
    """Whether all of a span lies in a frame."""
    return frame.start <= span.start and span.end <= frame.end


def within(span: Span, frame: Span) -> slice:
    """Where a span lies in a frame, counted from the frame's start; empty where they don't meet."""
    common = span & frame
    return slice(common.start - frame.start, common.end - frame.start) if common else slice(0, 0)


def measure_snr_db(talker: Talker, samples: Samples) -> float:
    """Speech over noise in a talker's recording (n_samples,): active-speech power over the median where nobody speaks.

    The median, since people also cough and laugh where the transcript has no words.

    Raises:
        ValueError: There is no speech, or hardly a moment without.
    """
    quiet = np.ones(len(samples), dtype=bool)
    speech = np.zeros(len(samples), dtype=bool)
    margin = seconds(QUIET_MARGIN_S)
    for turn in (*talker.turns, *talker.others):
        quiet[max(0, turn.start - margin) : turn.end + margin] = False
    for turn in talker.turns:
        speech[turn.start : turn.end] = True
    if np.count_nonzero(quiet) < seconds(QUIET_S):
        raise ValueError(
            f"{talker.audio} has less than {QUIET_S:.0f} s in which nobody speaks: its noise can't be measured"
        )
    power = active_power(samples[speech])
    noise = float(np.median(frame_powers(samples[quiet]))) if samples[quiet].any() else 0.0
    with np.errstate(divide="ignore"):
        return float(10 * np.log10(max(power - noise, 0) / noise)) if noise else float("inf")


def listen(talker: Talker, min_snr_db: float) -> Samples:
    """Read a talker's recording, (n_samples,).

    Raises:
        ValueError: It can't be read, or is too noisy.
    """
    try:
        samples = read_audio(talker.audio)
    except AudioError as error:
        raise ValueError(str(error)) from error
    snr_db = measure_snr_db(talker, samples)
    if not snr_db >= min_snr_db:
        raise ValueError(
            f"{talker.audio} is too noisy: {talker.speaker} stands {snr_db:.1f} dB above its noise, expected at least "
            f"{min_snr_db:g} dB; choose another recording"
        )
    return samples


# --- a scene --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """A scene as it sounds, and what is known of it; audio holds an encoded file."""

    audio_name: str
    audio: bytes
    said: tuple[Said, ...]
    items: tuple[Item, ...]


def build(main: Talker, bystander: Talker, seed: Sequence[int], min_snr_db: float, respond: Respond) -> Made:
    """Make a scene of two talkers.

    Args:
        main: Who is to be the main speaker.
        bystander: Who talks behind them; of another recording.
        seed: The same one gives the same bytes.
        min_snr_db: How clean both recordings must be.
        respond: The room, as `mixing.mix` takes it.

    Raises:
        ValueError: The two can't be made a scene of; the message says why.
    """
    if not are_strangers(main, bystander):
        raise ValueError(
            f"{main.name} and {bystander.name} come from one recording or are one person: take somebody else as the "
            "bystander"
        )
    rng = np.random.default_rng(seed)
    front = find_stretch(main, MAIN_LENGTHS_S, rng)
    behind = find_stretch(bystander, BYSTANDER_LENGTHS_S, rng)
    start = int(rng.integers(len(front.span) - len(behind.span) + 1))
    setting = draw_setting(f"{front.name}_{behind.name}", rng)
    dry = Dry(cut(front, listen(main, min_snr_db)), np.zeros(len(front.span), dtype=np.float32))
    dry.bystander[start : start + len(behind.span)] = cut(behind, listen(bystander, min_snr_db))
    said = (*front.said(setting.session_id, "main", 0), *behind.said(setting.session_id, "bystander", start))
    return Made(
        f"{setting.session_id}.flac",
        to_flac(mix(dry, setting, respond).mixture),
        tuple(sorted(said, key=lambda part: part.span)),
        frame_items(setting.session_id),
    )


def are_strangers(main: Talker, bystander: Talker) -> bool:
    """Whether two talkers come from different recordings and are, as far as is known, different people."""
    return main.recording != bystander.recording and (main.person is None or main.person != bystander.person)


def draw_setting(session_id: str, rng: np.random.Generator) -> Setting:
    """Put two speakers somewhere into the meeting room."""
    main_m, bystander_m = (round(float(rng.uniform(*bounds)), 2) for bounds in (MAIN_M, BYSTANDER_M))
    return Setting(
        session_id=session_id,
        seed=int(rng.integers(2**31)),
        room=MEETING_ROOM,
        noise_snr_db=NOISE_SNR_DB,
        main=MainPlace(distance_m=main_m),
        bystander=BystanderPlace(distance_m=bystander_m, level_db=LEVEL_DB),
    )


def draw_scenes(corpus: AmiCorpus, count: int, seed: int, min_snr_db: float, respond: Respond) -> Iterator[Made]:
    """Make scenes of speakers drawn from a corpus, each of them once the main speaker; says who had to be left out.

    Raises:
        ValueError: The corpus has too few that fit.
    """
    speakers = corpus.speakers()
    made = 0
    for number, index in enumerate(np.random.default_rng(seed).permutation(len(speakers))):
        rng = np.random.default_rng([seed, number])
        try:
            main = corpus.read(*speakers[index])
            find_stretch(main, MAIN_LENGTHS_S, rng)  # most speakers have none: tell before anybody is sought for them
            bystander = draw_bystander(corpus, main, rng)
            scene = build(main, bystander, [seed, number], min_snr_db, respond)
        except ValueError as error:
            print(f"left out: {error}", file=sys.stderr)
            continue
        yield scene
        made += 1
        if made == count:
            return
    raise ValueError(f"the corpus gave only {made} of {count} scenes; the lines above say why")


def draw_bystander(corpus: AmiCorpus, main: Talker, rng: np.random.Generator) -> Talker:
    """Draw somebody from a corpus who can stand behind the main speaker.

    Raises:
        ValueError: There is nobody.
    """
    speakers = corpus.speakers()
    for index in rng.permutation(len(speakers)):
        bystander = corpus.read(*speakers[index])
        if are_strangers(main, bystander) and list_stretches(bystander, BYSTANDER_LENGTHS_S):
            return bystander
    raise ValueError(f"nobody in the corpus can be the bystander of {main.name}")


# --- files and command line -----------------------------------------------------------------------


def write_partition(scenes: Iterable[Made], out: Path) -> None:
    """Write scenes to a new folder, each as soon as it is made; the top of this file lists what.

    Raises:
        ValueError: There are questions already, which a person may have filled in.
    """
    if (out / "questions.json").exists():
        raise ValueError(f"{out / 'questions.json'} exists already and isn't overwritten; give another --out")
    (out / "audio").mkdir(parents=True, exist_ok=True)
    said: list[Said] = []
    items: list[Item] = []
    for scene in scenes:
        said += scene.said
        items += scene.items
        (out / "audio" / scene.audio_name).write_bytes(scene.audio)
        (out / "reference.rttm").write_text(to_rttm(said), encoding="utf-8")
        (out / "references.json").write_text(to_seglst(said), encoding="utf-8")
        (out / "questions.json").write_text(to_questions(items), encoding="utf-8")


def find_talker(name: str, corpus: AmiCorpus | None) -> Talker:
    """Read the talker that `RECORDING:SPEAKER` means.

    Raises:
        ValueError: There is no such talker.
        OSError: A file can't be read.
    """
    recording, colon, speaker = name.rpartition(":")
    if not (recording and colon and speaker):
        raise ValueError(f"expected RECORDING:SPEAKER, such as ES2004a:B or talk.flac:anna, got {name!r}")
    return corpus.read(recording, speaker) if corpus else read_plain(Path(recording), speaker)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; None means this process's own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("talkers", nargs="*", metavar="MAIN BYSTANDER", help="two speakers, each RECORDING:SPEAKER")
    parser.add_argument("--ami", type=Path, metavar="DIR", help="the AMI corpus")
    parser.add_argument("--count", type=int, metavar="N", help="draw so many pairs from the corpus")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the scenes go")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of everything that is drawn (default 0)")
    parser.add_argument("--min-snr-db", type=float, default=MIN_SNR_DB, metavar="X", help="(default %(default)g)")
    parsed = parser.parse_args(arguments)
    if len(parsed.talkers) != (0 if parsed.count else 2):
        parser.error("give two speakers, MAIN and BYSTANDER, or --ami DIR --count N")
    if parsed.count is not None and (parsed.count < 1 or parsed.ami is None):
        parser.error("--count takes a number above zero, and needs --ami DIR")
    if parsed.seed < 0:
        parser.error("--seed takes a number from zero on")
    return parsed


def main(arguments: Sequence[str] | None = None, respond: Respond = room_response) -> int:
    """Run the program; returns the exit status (2: the user can mend it)."""
    parsed = parse_arguments(arguments)
    try:
        corpus = AmiCorpus(parsed.ami) if parsed.ami else None
        if corpus and parsed.count:
            scenes = draw_scenes(corpus, parsed.count, parsed.seed, parsed.min_snr_db, respond)
        else:
            front, behind = (find_talker(name, corpus) for name in parsed.talkers)
            scenes = iter([build(front, behind, [parsed.seed], parsed.min_snr_db, respond)])
        write_partition(scenes, parsed.out)
    except ModuleNotFoundError as error:
        print(
            f"build_scenes.py: {error.name} isn't installed; the top of benchmarks/README.md says what is needed",
            file=sys.stderr,
        )
        return 2
    except (ValueError, OSError) as error:
        print(f"build_scenes.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(stoppable(Path(__file__), main))
