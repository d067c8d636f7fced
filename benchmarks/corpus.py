"""Make what small models learn from: a bank of Kokoro's speech, and random scenes of it with every speaker alone.

    python benchmarks/corpus.py speak --kokoro DIR --out CORPUS [--rounds N] [--only SPLIT]...
    python benchmarks/corpus.py scenes --corpus CORPUS --split SPLIT --count N --seed S --out DIR

corpus/sentences.yaml says what is spoken, corpus/voices.yaml by whom; both are split into train, valid and test, and
neither a sentence nor a Kokoro voice is in two splits. `speak` works in rounds, in each of which every voice says its
next five sentences and one short reaction, so that it can be stopped at any time; the same command goes on where it
stopped. What it writes to CORPUS/speech, with a line for each file in SPLIT.jsonl (voice, split, text, seconds, file):

    SPLIT/VOICE/NNN.flac   one sentence, 16 kHz, dry, without the silence around it

`scenes` draws scenes from a split, each from its own seed, from S on. One that is there is kept. The same seed and the
same bank give the same samples; --rounds holds the bank still while more is being spoken. Each folder has the layout
that leakage.py reads:

    mixture.flac                 what the microphone heard
    main.flac, bystander.flac    the main speaker, and all bystanders together, as in the mixture
    bystander_1.flac ...         each bystander, where there are several
    enrolment.flac               the main speaker alone, other sentences
    reference.rttm               who speaks when: main, bystander, bystander_2, bystander_3
    reference.json               the same with the words (SegLST)
    scene.json                   all that was drawn: voices, room, places, levels, noise, sentences

Needs cascade itself, and `pip install kokoro-onnx pyroomacoustics scipy`; the top of voices.py says where the model
comes from.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, TypeVar, get_args

import installed  # noqa: F401
import numpy as np
from channels import TELEPHONE_HZ, Codec, clip, coded, narrow, telephone
from mixing import (
    MAIN_LEVEL_DBFS,
    WALL_MARGIN_M,
    Described,
    Impulse,
    Room,
    Said,
    Signal,
    at_level,
    at_mean_level,
    band_pass,
    chords,
    drift,
    hear,
    impulse_response,
    mains_hum,
    read_description,
    sloping_noise,
    soft_clip,
    to_flac,
    to_json,
    to_rttm,
    to_seglst,
)
from pydantic import Field, model_validator
from scenes import Voice
from voices import MODEL_FILE, VOICES_FILE, Kokoro, Synthesiser, parse_term

from cascade.audio import read_audio
from cascade.errors import AudioError
from cascade.types import SAMPLE_RATE, Samples, Span, seconds

SENTENCES_FILE = Path(__file__).with_name("corpus") / "sentences.yaml"
VOICES_DESCRIPTION = Path(__file__).with_name("corpus") / "voices.yaml"

LONG, SHORT = 5, 1  # sentences and reactions that every voice says in a round
SPEED_SPREAD = 0.05  # how far a sentence may be from its speaker's usual pace, as a share of it

# A scene. Pairs are bounds between which is drawn.
LENGTH_S = (30.0, 60.0)
MAIN_SHARE = (0.45, 0.8)  # of the scene in which the main speaker speaks; a little less, since sentences are whole
EDGE_S = 0.4  # before the first word and after the last
PAUSES_S = (0.15, 1.2)  # between two sentences of the main speaker
TURN_PAUSES_S = (0.15, 0.5)  # between two sentences of a bystander's turn, and between two speakers
WITHIN = (0.1, 0.9)  # where in the main speaker's sentence somebody begins to talk over it, as a share of it
AFTER_S = (0.0, 0.1)  # how soon an interjection follows the main speaker's last word
ENROLMENT_S = (8.0, 10.0)
ENROLMENT_PAUSE_S = 0.3
REACTION_WORDS = 4  # what has more is a sentence
MAIN_REACTIONS, ABSENT_REACTIONS = 0.15, 0.3  # of what is said by the main speaker, and at most where they are silent
MAIN_BANK_S, BYSTANDER_BANK_S = 26.0, 8.0  # what somebody must have said to be one

ABSENT_SHARE, ALONE_SHARE = 0.1, 0.1  # of scenes in which the main speaker is silent, or nobody else is there
BYSTANDERS = {1: 0.7, 2: 0.2, 3: 0.1}  # how many, and how often
CLOSE_SHARE, SAME_SEX_SHARE = 0.2, 0.3  # of bystanders who share a Kokoro voice with the main speaker, or their sex
TELEVISION_SHARE = 0.12  # of bystanders
TELEVISION_HZ = (200.0, 5000.0)
BAND_SHARE = 0.15  # of scenes whose microphone hears little beside TELEPHONE_HZ
SOFT_CLIP_SHARE = 0.15  # of scenes whose microphone is overdriven
SOFT_CLIP = (0.3, 0.9)  # where it bends, as a share of the loudest sample
CHANNEL_SHARE = 0.25  # of scenes whose recording goes through one of CHANNELS; the enrolment does in ENROLLED_BY_IT
CHANNELS = {"telephone": 0.3, "narrow": 0.25, "clip": 0.2, "opus": 0.15, "mp3": 0.1}
ENROLLED_BY_IT = 0.5
OVER_DB = (3.0, 15.0)
OPUS_BIT_RATES, MP3_BIT_RATES = (6_000, 8_000, 12_000), (8_000, 16_000)
PEAK = 0.9  # what would be louder is lowered, together with all else

ROOM_M, ROOM_HEIGHT_M = (3.0, 10.0), (2.4, 3.2)
SMALL_ROOM_M = (3.0, 4.0)  # where some enrol
RT60_S = (0.15, 0.7)
SABINE = 0.161  # s/m; times volume over walls it is the time in which a room rings whose walls swallow everything
DRIEST = 1.2  # no room rings shorter than that many times this
MAX_ORDER = 60  # reflections; the rest is inaudible
MICROPHONE_MARGIN_M = 0.8  # from the walls
MAIN_M, FAR_MAIN_M, FAR_MAIN_SHARE = (0.3, 0.6), (0.6, 1.2), 0.15
BYSTANDER_M = (1.5, 5.0)
PLACE_TRIES = 10_000

MAIN_DBFS = (-38.0, -20.0)
ENROLMENT_DBFS = (-35.0, -22.0)
BYSTANDER_DB = (-20.0, -3.0)  # over the main speaker's active-speech level
DRIFT_DB = (0.0, 6.0)  # how far the main speaker's level wanders
DRIFT_EVERY_S = 8.0
TURN_DB = 3.0  # how far a turn may be louder or softer than its speaker's others
NEW_TURN_SHARE = 0.4  # of sentences that begin a new one
NOISE_SNR_DB = (10.0, 35.0)
ENROLMENT_SNR_DB = (20.0, 35.0)
ROOM_ENROLMENT_SHARE = 0.3
BABBLERS = 6

SLOPES_DB = {"white": 0.0, "pink": -3.0, "hoth": -5.0}  # noises that differ by their spectrum alone
NOISES = {"white": 0.12, "pink": 0.18, "hoth": 0.3, "hum": 0.1, "babble": 0.18, "music": 0.12}  # and how often

Split: TypeAlias = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
Respond: TypeAlias = Callable[[Room, tuple[float, float], float], Impulse]
"""(room, position, distance in metres) -> the way from there to the microphone."""
Choice = TypeVar("Choice")


# --- what is said, and by whom --------------------------------------------------------------------


class SplitSentences(Described):
    """What is said in one split: whole sentences, and short reactions."""

    long: tuple[str, ...] = Field(min_length=LONG)
    short: tuple[str, ...] = Field(min_length=SHORT)

    @property
    def rounds(self) -> int:
        """How many rounds they last for."""
        return min(len(self.long) // LONG, len(self.short) // SHORT)


class Sentences(Described):
    """What is said, split by split."""

    train: SplitSentences
    valid: SplitSentences
    test: SplitSentences

    @model_validator(mode="after")
    def _none_twice(self) -> Sentences:
        texts = [text for split in SPLITS for text in (*self.of(split).long, *self.of(split).short)]
        if twice := sorted({text for text in texts if texts.count(text) > 1}):
            raise ValueError(f"{twice[0]!r} is there twice; each sentence belongs to one split, once")
        return self

    def of(self, split: Split) -> SplitSentences:
        """Those of one split."""
        return {"train": self.train, "valid": self.valid, "test": self.test}[split]


class Speaker(Voice):
    """Somebody in the bank; `name` is their folder's."""

    name: str = Field(pattern=r"^\w+$")

    @property
    def is_female(self) -> bool:
        """Whether female voices have the larger part in the blend."""
        return sum(share for name, share in self.bases.items() if name[1] == "f") >= 0.5

    @property
    def bases(self) -> dict[str, float]:
        """The Kokoro voices in the blend, each with its share."""
        weights = dict(parse_term(term) for term in self.voice.split("+"))
        return {name: weight / sum(weights.values()) for name, weight in weights.items()}


Speakers = Annotated[tuple[Speaker, ...], Field(min_length=2)]


class Voices(Described):
    """Who speaks, split by split."""

    train: Speakers
    valid: Speakers
    test: Speakers

    @model_validator(mode="after")
    def _nobody_twice(self) -> Voices:
        names = [speaker.name for split in SPLITS for speaker in self.of(split)]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"{twice[0]} is there twice; give one of the two another name")
        owners: dict[str, Split] = {}
        for split in SPLITS:
            for base in (base for speaker in self.of(split) for base in speaker.bases):
                if owners.setdefault(base, split) != split:
                    raise ValueError(f"{base} is heard in {owners[base]} and in {split}; keep it to one of them")
        return self

    def of(self, split: Split) -> tuple[Speaker, ...]:
        """Those of one split."""
        return {"train": self.train, "valid": self.valid, "test": self.test}[split]


# --- the bank of speech ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spoken:
    """A line of a split's index: who says what in which file (relative to the corpus), and how long it takes."""

    voice: str
    split: str
    text: str
    seconds: float
    file: str


@dataclass(frozen=True, slots=True)
class Line:
    """What is to be spoken: a speaker's sentence, at which speed, and in which file (relative to the corpus)."""

    speaker: Speaker
    text: str
    speed: float
    file: str


def plan_round(split: Split, number: int, sentences: Sentences, voices: Voices, seed: int) -> Iterator[Line]:
    """Say what every voice of a split speaks in one round, counted from 0; no voice says anything twice."""
    said = sentences.of(split)
    for speaker in voices.of(split):
        rng = np.random.default_rng([seed, zlib.crc32(speaker.name.encode())])
        longs, shorts = rng.permutation(len(said.long)), rng.permutation(len(said.short))
        texts = [said.long[index] for index in longs[number * LONG : (number + 1) * LONG]]
        texts += [said.short[index] for index in shorts[number * SHORT : (number + 1) * SHORT]]
        paces = np.random.default_rng([seed, zlib.crc32(speaker.name.encode()), number]).uniform(-1, 1, len(texts))
        for place, (text, pace) in enumerate(zip(texts, paces, strict=True)):
            speed = round(speaker.speed * (1 + SPEED_SPREAD * float(pace)), 3)
            yield Line(speaker, text, speed, f"speech/{split}/{speaker.name}/{number * len(texts) + place:03d}.flac")


def speak_split(
    split: Split, rounds: int, sentences: Sentences, voices: Voices, seed: int, speak: Synthesiser, out: Path
) -> None:
    """Speak some rounds of a split, or what is missing of them; says after each round how far it is.

    Raises:
        ValueError: There aren't sentences for so many rounds, or the folder holds files of another plan.
        OSError: A file can't be written.
    """
    if rounds > sentences.of(split).rounds:
        raise ValueError(
            f"--rounds {rounds} needs more sentences than {split} has, which last for {sentences.of(split).rounds} "
            f"rounds; ask for fewer rounds or add to {SENTENCES_FILE.name}"
        )
    index = out / "speech" / f"{split}.jsonl"
    known = {line.file: line for line in read_index(index) if (out / line.file).is_file()}
    write_whole(index, "".join(map(to_line, known.values())).encode())  # without what a killed run left half-written
    for number in range(rounds):
        for line in plan_round(split, number, sentences, voices, seed):
            if line.file in known:
                check_kept(known[line.file], line, out)
                continue
            known[line.file] = say(split, line, speak, out)
            with index.open("a", encoding="utf-8") as file:
                file.write(to_line(known[line.file]))
        minutes = sum(line.seconds for line in known.values()) / 60
        print(f"{split}: round {number + 1} of {rounds}, {len(known)} files, {minutes:.1f} min", flush=True)


def check_kept(kept: Spoken, line: Line, out: Path) -> None:
    """Raise ValueError unless a file that is there holds what it should."""
    if kept.text != line.text:
        raise ValueError(
            f"{out / line.file} says {kept.text!r}, expected {line.text!r}: the sentences or the seed have changed; "
            "give another --out or remove the folder"
        )


def say(split: Split, line: Line, speak: Synthesiser, out: Path) -> Spoken:
    """Speak one line into its file.

    Raises:
        ValueError: Nothing came out.
    """
    try:
        samples = at_level(speak(line.text, line.speaker.voice, line.speed), MAIN_LEVEL_DBFS)
    except ValueError as error:
        raise ValueError(f"{line.speaker.name} can't say {line.text!r}: {error}") from error
    write_whole(out / line.file, to_flac(samples))
    return Spoken(line.speaker.name, split, line.text, round(len(samples) / SAMPLE_RATE, 3), line.file)


def read_index(path: Path) -> Iterator[Spoken]:
    """Read a split's index; a line that was cut off, as by a killed run, is left out."""
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            yield Spoken(**json.loads(line))
        except (json.JSONDecodeError, TypeError):
            continue


def to_line(spoken: Spoken) -> str:
    """One line of the index."""
    return json.dumps(asdict(spoken)) + "\n"


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_bytes(content)
    part.replace(path)


class ThriftyKokoro(Kokoro):
    """Kokoro on a few threads, so that others can work beside it."""

    def __init__(self, kokoro: Path, threads: int) -> None:
        """Load the model and the voices from a folder that `voices.assemble` wrote; its session gives way to ours."""
        super().__init__(kokoro)
        import onnxruntime
        from kokoro_onnx import Kokoro as Runner

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(str(kokoro / MODEL_FILE), options, providers=["CPUExecutionProvider"])
        self._runner = Runner.from_session(session, str(kokoro / VOICES_FILE))


# --- what a scene is --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Bank:
    """Speech to draw from.

    Attributes:
        voices: Everybody there may be.
        lines: What each of them has said, by name; who has said nothing may be missing.
        read: Gives the samples of a line, (n_samples,).
    """

    voices: Voices
    lines: Mapping[str, Sequence[Spoken]]
    read: Callable[[Spoken], Samples]

    def speakers(self, split: Split, at_least_s: float) -> list[Speaker]:
        """Who has said at least so much."""
        heard = {name: sum(line.seconds for line in lines) for name, lines in self.lines.items()}
        return [speaker for speaker in self.voices.of(split) if heard.get(speaker.name, 0) >= at_least_s]


Where: TypeAlias = Literal["between", "over", "after"]
"""How a bystander's turn meets the main speaker: who waits for it, talks on under it, or has just said something."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A way in which bystanders talk.

    Attributes:
        share: Of bystanders who do.
        turns: How many, from and to.
        sentences: In a turn, from and to.
        where: How often a turn meets the main speaker in which way.
        reactions: Share of sentences that are short reactions.
        begins: Whether the first turn opens the scene.
    """

    share: float
    turns: tuple[int, int]
    sentences: tuple[int, int]
    where: Mapping[Where, float]
    reactions: float = 0.1
    begins: bool = False


PATTERNS = {
    "block": Pattern(0.22, (1, 2), (4, 10), {"over": 1.0}, reactions=0.05),
    "over": Pattern(0.18, (2, 6), (1, 3), {"over": 0.9, "between": 0.1}),
    "pauses": Pattern(0.1, (2, 6), (1, 1), {"between": 1.0}, reactions=0.3),
    "alternating": Pattern(0.14, (3, 7), (1, 3), {"between": 0.85, "after": 0.15}),
    "alone": Pattern(0.08, (1, 1), (3, 6), {"between": 1.0}),
    "first": Pattern(0.1, (1, 4), (1, 3), {"between": 0.4, "over": 0.6}, begins=True),
    "interjections": Pattern(0.1, (3, 9), (1, 1), {"after": 0.5, "over": 0.5}, reactions=1.0),
    "mixed": Pattern(0.08, (2, 6), (1, 3), {"between": 0.4, "over": 0.4, "after": 0.2}, reactions=0.3),
}
"""`block` is section 3.2 of the paper: a bystander talks on over the main speaker, who doesn't mind."""


class Person(Described):
    """Somebody in a scene.

    Attributes:
        name: main, bystander, bystander_2 or bystander_3.
        voice: Their name in the bank.
        position_m: Where they are (x, y).
        distance_m: From the microphone.
        level_dbfs: Their active-speech level at the microphone.
        drift_db: Gains between which their level wanders, at equal distances over the scene.
        pattern: How they talk, one of PATTERNS; none for the main speaker.
        television: Whether they come from one.
    """

    name: str
    voice: str
    position_m: tuple[float, float]
    distance_m: float
    level_dbfs: float
    drift_db: tuple[float, ...] = (0.0,)
    pattern: str | None = None
    television: bool = False


class Placed(Described):
    """A sentence in its place, in samples: which file of the bank it is, and how loud beside its speaker's others."""

    speaker: str
    text: str
    file: str
    start: int
    end: int
    gain_db: float

    @property
    def span(self) -> Span:
        """When it is heard."""
        return Span(self.start, self.end)


class Noise(Described):
    """What else is heard: one of NOISES, snr_db below the main speaker's level; `voices` are a babble's files."""

    kind: str
    snr_db: float
    voices: tuple[tuple[str, ...], ...] = ()


class Enrolment(Described):
    """What the main speaker says when enrolling; in a room with noise, where there is a room."""

    files: tuple[str, ...]
    level_dbfs: float
    room: Room | None = None
    position_m: tuple[float, float] = (0.0, 0.0)
    distance_m: float = 0.0
    snr_db: float = 0.0


class Channel(Described):
    """What the recording goes through, one of CHANNELS.

    Attributes:
        over_db: How far the loudest sample is over full scale, where it clips.
        bit_rate: Of a codec, in bit/s.
        enrolled_by_it: Whether the enrolment went through it as well.
    """

    kind: Literal["telephone", "narrow", "clip"] | Codec
    over_db: float = 0.0
    bit_rate: int = 0
    enrolled_by_it: bool = False


class Scenery(Described):
    """All that is drawn of a scene.

    Attributes:
        session_id: Name of the scene.
        band: Whether the microphone hears little beside TELEPHONE_HZ.
        soft_clip: Where the microphone bends what is loud, as a share of the loudest sample.
        channel: What the recording goes through then, if it does.
        placed: The sentences, by start.
    """

    session_id: str
    split: Split
    seed: int
    length_s: float
    room: Room
    main: Person
    bystanders: tuple[Person, ...]
    noise: Noise
    band: bool
    soft_clip: float | None
    channel: Channel | None
    enrolment: Enrolment
    placed: tuple[Placed, ...]

    def share(self, *, talked_over: bool) -> float:
        """Share of the scene in which the main speaker speaks, or share of that in which a bystander does too."""
        main = self.heard(lambda sentence: sentence.speaker == "main")
        if not talked_over:
            return float(main.mean())
        return float((main & self.heard(lambda sentence: sentence.speaker != "main")).sum() / max(main.sum(), 1))

    def heard(self, wanted: Callable[[Placed], bool]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """When one of the wanted sentences is heard, (n_samples,)."""
        mask = np.zeros(seconds(self.length_s), dtype=np.bool_)
        for sentence in filter(wanted, self.placed):
            mask[sentence.start : sentence.end] = True
        return mask


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """A scene as it sounds; all but the enrolment are (n_samples,) of one length.

    Attributes:
        setting: All that was drawn, sentences in their places among it.
        mixture: What the microphone heard, through the channel.
        main: The main speaker alone, in front of the channel like the next.
        bystanders: Each of the others alone; there may be none.
        enrolment: (n_samples,) of its own length.
        lowered_db: By how much all of it is softer than the setting says, so that nothing clips.
    """

    setting: Scenery
    mixture: Samples
    main: Samples
    bystanders: tuple[Samples, ...]
    enrolment: Samples
    lowered_db: float


def draw_scene(split: Split, seed: int, bank: Bank, respond: Respond | None = None) -> Drawn:
    """Draw a scene and make it sound.

    Args:
        split: Whose voices and sentences.
        seed: The same one gives the same scene, as long as the bank holds the same.
        bank: Speech to draw from.
        respond: The room's response; a lambda in tests, else by the image-source method.

    Raises:
        ValueError: The bank holds too little of the split.
    """
    return render(draw_setting(split, seed, bank), bank, respond or partial(impulse_response, max_order=MAX_ORDER))


# --- drawing it -------------------------------------------------------------------------------------


def draw_setting(split: Split, seed: int, bank: Bank) -> Scenery:
    """Draw all of a scene but its sound; raises ValueError where the bank holds too little."""
    rng = np.random.default_rng([SPLITS.index(split), seed])
    kind = draw_weighted({"absent": ABSENT_SHARE, "alone": ALONE_SHARE, "company": 1 - ABSENT_SHARE - ALONE_SHARE}, rng)
    main, *others = draw_speakers(split, 0 if kind == "alone" else draw_weighted(BYSTANDERS, rng), bank, rng)
    used: set[str] = set()
    pools = {speaker.name: Pool(bank.lines[speaker.name], used, rng) for speaker in (main, *others)}
    room, level_dbfs = draw_room(ROOM_M, rng), draw(MAIN_DBFS, rng)
    enrolment = draw_enrolment(pools[main.name], rng)
    length_s, said = draw_monologue(pools[main.name], rng)
    people = [draw_bystander(number, speaker, room, level_dbfs, rng) for number, speaker in enumerate(others, start=1)]
    return Scenery(
        session_id=name_scene(split, seed),
        split=split,
        seed=seed,
        length_s=length_s,
        room=room,
        main=draw_main(main, room, level_dbfs, length_s, rng),
        bystanders=tuple(people),
        noise=draw_noise(split, main, length_s, bank, rng),
        band=bool(rng.random() < BAND_SHARE),
        soft_clip=draw(SOFT_CLIP, rng) if rng.random() < SOFT_CLIP_SHARE else None,
        channel=draw_channel(np.random.default_rng([SPLITS.index(split), seed, 2])),
        enrolment=enrolment,
        placed=draw_sentences([] if kind == "absent" else said, people, pools, length_s, rng),
    )


def draw(bounds: tuple[float, float], rng: np.random.Generator) -> float:
    """Draw a number between two, with three decimals, as it is written down."""
    return round(float(rng.uniform(*bounds)), 3)


def pick(choices: Sequence[Choice], rng: np.random.Generator) -> Choice:
    """Draw one of some, each as often."""
    return choices[int(rng.integers(len(choices)))]


def draw_weighted(shares: Mapping[Choice, float], rng: np.random.Generator) -> Choice:
    """Draw one of some, each as often as its share says."""
    weights = np.array(list(shares.values()))
    return list(shares)[int(rng.choice(len(weights), p=weights / weights.sum()))]


def draw_speakers(split: Split, count: int, bank: Bank, rng: np.random.Generator) -> list[Speaker]:
    """Draw the main speaker and so many others.

    Raises:
        ValueError: The bank holds too little of the split.
    """
    mains, others = bank.speakers(split, MAIN_BANK_S), bank.speakers(split, BYSTANDER_BANK_S)
    if not mains or len(others) <= max(BYSTANDERS):
        raise ValueError(
            f"the bank holds too little of {split}: {len(mains)} voices with {MAIN_BANK_S:.0f} s and {len(others)} "
            f"with {BYSTANDER_BANK_S:.0f} s, expected 1 and {max(BYSTANDERS) + 1}; run `corpus.py speak` further"
        )
    chosen = [pick(mains, rng)]
    for _ in range(count):
        chosen.append(draw_other(chosen[0], [speaker for speaker in others if speaker not in chosen], rng))
    return chosen


def draw_other(main: Speaker, others: Sequence[Speaker], rng: np.random.Generator) -> Speaker:
    """Draw a bystander: sometimes a close voice, sometimes one of the same sex, else anybody."""
    likeness = rng.random()
    if likeness < CLOSE_SHARE:
        alike = [speaker for speaker in others if speaker.bases.keys() & main.bases.keys()]
    elif likeness < CLOSE_SHARE + SAME_SEX_SHARE:
        alike = [speaker for speaker in others if speaker.is_female == main.is_female]
    else:
        alike = list(others)
    return pick(alike or others, rng)


def draw_room(bounds_m: tuple[float, float], rng: np.random.Generator) -> Room:
    """Draw a room and where the microphone stands in it."""
    length_m, width_m, height_m = draw(bounds_m, rng), draw(bounds_m, rng), draw(ROOM_HEIGHT_M, rng)
    walls = 2 * (length_m * width_m + length_m * height_m + width_m * height_m)
    driest_s = DRIEST * SABINE * length_m * width_m * height_m / walls
    x, y = (draw((MICROPHONE_MARGIN_M, size_m - MICROPHONE_MARGIN_M), rng) for size_m in (length_m, width_m))
    rt60_s = draw((max(RT60_S[0], driest_s), RT60_S[1]), rng)
    return Room(size_m=(length_m, width_m, height_m), rt60_s=rt60_s, microphone_m=(x, y))


def draw_place(
    room: Room, bounds_m: tuple[float, float], rng: np.random.Generator
) -> tuple[tuple[float, float], float]:
    """Draw where somebody is who has such a distance from the microphone: (x, y), and the distance.

    Raises:
        ValueError: There is hardly such a place in the room.
    """
    places = rng.uniform(WALL_MARGIN_M, np.array(room.size_m[:2]) - WALL_MARGIN_M, (PLACE_TRIES, 2)).round(3)
    distances = np.hypot(*(places - room.microphone).T)
    fitting = np.flatnonzero((distances >= bounds_m[0]) & (distances <= bounds_m[1]))
    if not len(fitting):
        raise ValueError(f"no place {bounds_m[0]} to {bounds_m[1]} m from the microphone in a room of {room.size_m} m")
    x, y = places[fitting[0]]
    return (float(x), float(y)), round(float(distances[fitting[0]]), 3)


def draw_main(speaker: Speaker, room: Room, level_dbfs: float, length_s: float, rng: np.random.Generator) -> Person:
    """Put the main speaker somewhere, and let their level wander."""
    far = rng.random() < FAR_MAIN_SHARE
    position_m, distance_m = draw_place(room, FAR_MAIN_M if far else MAIN_M, rng)
    depth_db = draw(DRIFT_DB, rng)
    drift_db = tuple(draw((-depth_db, depth_db), rng) for _ in range(int(length_s / DRIFT_EVERY_S) + 2))
    return Person(
        name="main",
        voice=speaker.name,
        position_m=position_m,
        distance_m=distance_m,
        level_dbfs=level_dbfs,
        drift_db=drift_db,
    )


def draw_bystander(number: int, speaker: Speaker, room: Room, main_dbfs: float, rng: np.random.Generator) -> Person:
    """Put a bystander somewhere, counted from 1."""
    position_m, distance_m = draw_place(room, BYSTANDER_M, rng)
    return Person(
        name="bystander" if number == 1 else f"bystander_{number}",
        voice=speaker.name,
        position_m=position_m,
        distance_m=distance_m,
        level_dbfs=round(main_dbfs + draw(BYSTANDER_DB, rng), 3),
        pattern=draw_weighted({name: pattern.share for name, pattern in PATTERNS.items()}, rng),
        television=bool(rng.random() < TELEVISION_SHARE),
    )


def draw_noise(split: Split, main: Speaker, length_s: float, bank: Bank, rng: np.random.Generator) -> Noise:
    """Draw what else is heard; the main speaker is no part of a babble."""
    kind, snr_db = draw_weighted(NOISES, rng), draw(NOISE_SNR_DB, rng)
    if kind != "babble":
        return Noise(kind=kind, snr_db=snr_db)
    others = [speaker for speaker in bank.speakers(split, BYSTANDER_BANK_S) if speaker != main]
    talkers = rng.permutation(len(others))[:BABBLERS]
    voices = tuple(draw_babbler(bank.lines[others[index].name], length_s, rng) for index in talkers)
    return Noise(kind=kind, snr_db=snr_db, voices=voices)


def draw_babbler(lines: Sequence[Spoken], length_s: float, rng: np.random.Generator) -> tuple[str, ...]:
    """Draw what one voice of a babble says: files that last for the scene, again and again if they must."""
    files, left_s = list[str](), length_s
    while left_s > 0:
        line = pick(lines, rng)
        files.append(line.file)
        left_s -= line.seconds
    return tuple(files)


class Pool:
    """What somebody still has to say in a scene; nothing that anybody there has said."""

    def __init__(self, lines: Sequence[Spoken], used: set[str], rng: np.random.Generator) -> None:
        """Mix a speaker's lines; `used` are the texts that the scene has already, and grows."""
        self._lines: list[Spoken] = [lines[index] for index in rng.permutation(len(lines))]
        self._used = used

    @property
    def left_s(self) -> float:
        """How long it would take to say all of it."""
        return sum(line.seconds for line in self._lines if line.text not in self._used)

    def take(self, within_s: float, *, reaction: bool | None = None) -> Spoken | None:
        """Take a line that fits; a short reaction, a whole sentence, or either (None). None where there is none."""
        for line in self._lines:
            short = len(line.text.split()) <= REACTION_WORDS
            if line.text not in self._used and line.seconds <= within_s and reaction in (None, short):
                self._used.add(line.text)
                return line
        return None


def draw_enrolment(pool: Pool, rng: np.random.Generator) -> Enrolment:
    """Draw what the main speaker says when enrolling, and where."""
    files, length_s = list[str](), -ENROLMENT_PAUSE_S
    while length_s < ENROLMENT_S[0] and (line := pool.take(ENROLMENT_S[1])):
        files.append(line.file)
        length_s += ENROLMENT_PAUSE_S + line.seconds
    level_dbfs = draw(ENROLMENT_DBFS, rng)
    if rng.random() >= ROOM_ENROLMENT_SHARE:
        return Enrolment(files=tuple(files), level_dbfs=level_dbfs)
    room = draw_room(SMALL_ROOM_M, rng)
    position_m, distance_m = draw_place(room, MAIN_M, rng)
    return Enrolment(
        files=tuple(files),
        level_dbfs=level_dbfs,
        room=room,
        position_m=position_m,
        distance_m=distance_m,
        snr_db=draw(ENROLMENT_SNR_DB, rng),
    )


def draw_channel(rng: np.random.Generator) -> Channel | None:
    """Draw what the recording goes through; mostly nothing."""
    if rng.random() >= CHANNEL_SHARE:
        return None
    kind, enrolled_by_it = draw_weighted(CHANNELS, rng), bool(rng.random() < ENROLLED_BY_IT)
    over_db, rates = draw(OVER_DB, rng), {"opus": OPUS_BIT_RATES, "mp3": MP3_BIT_RATES}.get(kind, (0,))
    return Channel.model_validate(
        {
            "kind": kind,
            "over_db": over_db if kind == "clip" else 0.0,
            "bit_rate": pick(rates, rng),
            "enrolled_by_it": enrolled_by_it,
        }
    )


def draw_monologue(pool: Pool, rng: np.random.Generator) -> tuple[float, list[Spoken]]:
    """Draw how long a scene is and what the main speaker says in it; where they have little to say, it is short."""
    available_s = pool.left_s
    share = min(draw(MAIN_SHARE, rng), available_s / LENGTH_S[0])
    length_s = draw((LENGTH_S[0], min(LENGTH_S[1], max(LENGTH_S[0], available_s / share))), rng)
    said, left_s = list[Spoken](), share * length_s
    while line := take_mostly(pool, left_s, reaction=bool(rng.random() < MAIN_REACTIONS)):
        said.append(line)
        left_s -= line.seconds
    return length_s, said


def take_mostly(pool: Pool, within_s: float, *, reaction: bool) -> Spoken | None:
    """Take a line of the wanted kind, or else of the other."""
    return pool.take(within_s, reaction=reaction) or pool.take(within_s)


# --- who speaks when ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Turn:
    """What somebody says at a stretch, and how it meets the main speaker's sentence of that number (`anchor`).

    Between: before it; over: begun during it; after: right after it.
    """

    speaker: str
    lines: tuple[Spoken, ...]
    where: Where = "between"
    anchor: int = 0

    @property
    def length_s(self) -> float:
        """How long it takes at most, with its pauses and one before it."""
        return sum(line.seconds + TURN_PAUSES_S[1] for line in self.lines)


def draw_sentences(
    said: Sequence[Spoken],
    people: Sequence[Person],
    pools: Mapping[str, Pool],
    length_s: float,
    rng: np.random.Generator,
) -> tuple[Placed, ...]:
    """Find what the bystanders say, and the places of all sentences; sorted by start."""
    free_s = length_s - 2 * EDGE_S - sum(line.seconds + PAUSES_S[0] for line in said)
    turns = list[Turn]()
    for person in people:
        drawn = list(draw_turns(person, len(said), free_s, pools[person.voice], rng))
        free_s -= sum(turn.length_s for turn in drawn if turn.where == "between")
        turns += drawn
    waiting = [turn for turn in turns if turn.where == "between"]
    placed = lay_in_turn(said, waiting, length_s, rng)
    anchors = [sentence for sentence in placed if sentence.speaker == "main"]
    for turn in turns:
        if turn.where != "between":
            placed += lay_over(turn, anchors, placed, length_s, rng)
    return tuple(sorted(placed, key=lambda sentence: sentence.start))


def draw_turns(person: Person, anchors: int, free_s: float, pool: Pool, rng: np.random.Generator) -> Iterator[Turn]:
    """Draw what a bystander says, by their pattern.

    Args:
        person: The bystander.
        anchors: How many sentences the main speaker says; where it is none, nobody has to wait or talks over anybody.
        free_s: How long others may make the main speaker wait.
        pool: What they may say.
        rng: Draws.
    """
    pattern = PATTERNS[person.pattern or "mixed"]
    reactions = pattern.reactions if anchors else min(pattern.reactions, ABSENT_REACTIONS)
    places = rng.permutation(anchors + 1)
    for number in range(rng.integers(*pattern.turns, endpoint=True)):
        begins = pattern.begins and number == 0
        where: Where = draw_weighted(pattern.where, rng) if anchors and not begins else "between"
        within_s = free_s if where == "between" else math.inf
        lines = tuple(draw_lines(pattern, reactions, within_s, pool, rng))
        if not lines and anchors and not number:  # nobody has the time to wait, but everybody says something
            where, lines = "over", tuple(draw_lines(pattern, reactions, math.inf, pool, rng))
        if not lines:
            return
        anchor = 0 if begins else int(places[number % len(places)])
        turn = Turn(person.name, lines, where, anchor if where == "between" else min(anchor, anchors - 1))
        free_s -= turn.length_s if where == "between" else 0
        yield turn


def draw_lines(
    pattern: Pattern, reactions: float, within_s: float, pool: Pool, rng: np.random.Generator
) -> Iterator[Spoken]:
    """Draw the lines of a turn; fewer than the pattern says where no more fit."""
    for _ in range(rng.integers(*pattern.sentences, endpoint=True)):
        reaction = bool(rng.random() < reactions)
        spare_s = within_s - TURN_PAUSES_S[1]
        line = pool.take(spare_s, reaction=True) if reactions == 1 else take_mostly(pool, spare_s, reaction=reaction)
        if line is None:
            return
        within_s -= line.seconds + TURN_PAUSES_S[1]
        yield line


def lay_in_turn(
    said: Sequence[Spoken], waiting: Sequence[Turn], length_s: float, rng: np.random.Generator
) -> list[Placed]:
    """Place the main speaker's sentences, and the turns that they wait for, one after the other.

    Pauses are shortened where there is little time; what time is left becomes one to three longer silences.
    """
    order = [(turn.speaker, line) for turn in queue(said, waiting) for line in turn.lines]
    pauses = [draw_pause(before, after, rng) for (before, _), (after, _) in pairwise(order)]
    free_s = length_s - 2 * EDGE_S - sum(line.seconds for _, line in order)
    pauses_s = fit_pauses(pauses, free_s)
    silences_s = draw_silences(len(order) + 1, free_s - sum(pauses_s), rng)
    gains_db = draw_gains([speaker for speaker, _ in order], rng)
    placed, now_s = list[Placed](), EDGE_S
    for (speaker, line), before_s, silence_s, gain_db in zip(
        order, [0.0, *pauses_s], silences_s, gains_db, strict=False
    ):
        now_s += before_s + silence_s
        placed.append(place(speaker, line, now_s, gain_db))
        now_s += line.seconds
    return placed


def queue(said: Sequence[Spoken], waiting: Sequence[Turn]) -> Iterator[Turn]:
    """Yield the main speaker's sentences in turns of one, and before each the turns that it waits for."""
    for number in range(len(said) + 1):
        yield from (turn for turn in waiting if turn.anchor == number)
        if number < len(said):
            yield Turn("main", (said[number],))


def draw_pause(before: str, after: str, rng: np.random.Generator) -> float:
    """Draw the pause between two sentences, in seconds, by who says them."""
    return draw(PAUSES_S if before == after == "main" else TURN_PAUSES_S, rng)


def fit_pauses(pauses_s: Sequence[float], free_s: float) -> list[float]:
    """Shorten pauses to what time there is, none below the shortest."""
    shortest_s = PAUSES_S[0]
    longer_s = sum(pauses_s) - shortest_s * len(pauses_s)
    scale = min(1.0, max(0.0, free_s - shortest_s * len(pauses_s)) / longer_s) if longer_s > 0 else 1.0
    return [shortest_s + scale * (pause_s - shortest_s) for pause_s in pauses_s]


def draw_silences(places: int, spare_s: float, rng: np.random.Generator) -> list[float]:
    """Split the time that is left over one to three of the places, the last of which is the end."""
    silences_s = np.zeros(places)
    chosen = rng.permutation(places)[: rng.integers(1, 3, endpoint=True)]
    silences_s[chosen] = max(spare_s, 0.0) * rng.dirichlet(np.ones(len(chosen)))
    return [float(silence_s) for silence_s in silences_s]


def draw_gains(speakers: Sequence[str], rng: np.random.Generator) -> list[float]:
    """Draw how loud each sentence is beside its speaker's others, in dB; it stays for some sentences."""
    last: dict[str, float] = {}
    gains_db = list[float]()
    for speaker in speakers:
        if speaker not in last or rng.random() < NEW_TURN_SHARE:
            last[speaker] = draw((-TURN_DB, TURN_DB), rng)
        gains_db.append(last[speaker])
    return gains_db


def place(speaker: str, line: Spoken, start_s: float, gain_db: float) -> Placed:
    """Put a line into its place."""
    start = seconds(start_s)
    return Placed(
        speaker=speaker,
        text=line.text,
        file=line.file,
        start=start,
        end=start + seconds(line.seconds),
        gain_db=gain_db,
    )


def lay_over(
    turn: Turn, anchors: Sequence[Placed], placed: Sequence[Placed], length_s: float, rng: np.random.Generator
) -> list[Placed]:
    """Place a turn that nobody waits for: at its anchor, or the next where its speaker isn't speaking already.

    What would not end in time isn't said.
    """
    busy = [sentence for sentence in placed if sentence.speaker == turn.speaker]
    gain_db = draw((-TURN_DB, TURN_DB), rng)
    for anchor in (*anchors[turn.anchor :], *anchors[: turn.anchor]):
        laid, now_s = list[Placed](), draw_start(turn.where, anchor, rng)
        for line in turn.lines:
            sentence = place(turn.speaker, line, now_s, gain_db)
            if sentence.end > seconds(length_s - EDGE_S) or any(sentence.span.overlaps(other.span) for other in busy):
                break
            laid.append(sentence)
            now_s += line.seconds + draw(TURN_PAUSES_S, rng)
        if laid:
            return laid
    return []


def draw_start(where: Where, anchor: Placed, rng: np.random.Generator) -> float:
    """Draw when a turn begins that nobody waits for, in seconds: right after a sentence, or somewhere in it."""
    if where == "after":
        return anchor.span.end_s + draw(AFTER_S, rng)
    return anchor.span.start_s + draw(WITHIN, rng) * anchor.span.duration_s


# --- how it sounds ------------------------------------------------------------------------------------


def render(setting: Scenery, bank: Bank, respond: Respond) -> Drawn:
    """Make a scene sound."""
    lines = {line.file: line for lines in bank.lines.values() for line in lines}

    def read(file: str) -> Samples:
        return bank.read(lines[file])

    rng = np.random.default_rng([SPLITS.index(setting.split), setting.seed, 1])
    main, *bystanders = (
        render_person(setting, person, read, respond) for person in (setting.main, *setting.bystanders)
    )
    mixture = main + sum(bystanders, render_noise(setting, read, rng))
    if setting.soft_clip is not None:
        mixture = soft_clip(mixture, setting.soft_clip * float(np.abs(mixture).max()))
    loudest = max(float(np.abs(track).max()) for track in (mixture, main, *bystanders))
    scale = np.float32(min(1.0, PEAK / loudest))
    enrolment = render_enrolment(setting.enrolment, read, respond, rng)
    return Drawn(
        setting=setting,
        mixture=through(setting.channel, scale * mixture),
        main=scale * main,
        bystanders=tuple(scale * track for track in bystanders),
        enrolment=through(setting.channel, enrolment, enrolment=True),
        lowered_db=float(-20 * np.log10(scale)),
    )


def through(channel: Channel | None, samples: Samples, *, enrolment: bool = False) -> Samples:
    """What a channel leaves of a recording, or of an enrolment, (n_samples,)."""
    if channel is None or (enrolment and not channel.enrolled_by_it):
        return samples
    if channel.kind == "telephone":
        return telephone(samples)
    if channel.kind == "narrow":
        return narrow(samples)
    if channel.kind == "clip":
        return clip(samples, channel.over_db)
    return coded(samples, channel.kind, channel.bit_rate)


def render_person(setting: Scenery, person: Person, read: Callable[[str], Samples], respond: Respond) -> Samples:
    """One speaker (n_samples,) as the microphone hears them; silence where they say nothing."""
    dry = np.zeros(seconds(setting.length_s), dtype=np.float32)
    for sentence in (sentence for sentence in setting.placed if sentence.speaker == person.name):
        spoken = at_level(read(sentence.file), MAIN_LEVEL_DBFS + sentence.gain_db)
        if len(spoken) != len(sentence.span):
            raise ValueError(f"{sentence.file} has {len(spoken)} samples, its index says {len(sentence.span)}")
        dry[sentence.start : sentence.end] = spoken
    if not dry.any():
        return dry
    dry = band_pass(dry, *TELEVISION_HZ) if person.television else dry
    heard = drift(hear(dry, respond(setting.room, person.position_m, person.distance_m)), person.drift_db)
    return at_level(band_pass(heard, *TELEPHONE_HZ) if setting.band else heard, person.level_dbfs)


def render_noise(setting: Scenery, read: Callable[[str], Samples], rng: np.random.Generator) -> Samples:
    """What else is heard, (n_samples,)."""
    noise = make_noise(setting.noise, seconds(setting.length_s), read, rng).astype(np.float32)
    heard = band_pass(noise, *TELEPHONE_HZ) if setting.band else noise
    return at_mean_level(heard, setting.main.level_dbfs - setting.noise.snr_db)


def make_noise(noise: Noise, length: int, read: Callable[[str], Samples], rng: np.random.Generator) -> Signal:
    """Make one of NOISES, (length,), at no particular level."""
    if noise.kind == "hum":
        return mains_hum(length, rng)
    if noise.kind == "music":
        return chords(length, rng)
    if noise.kind != "babble":
        return sloping_noise(length, SLOPES_DB[noise.kind], rng)
    babble = np.zeros(length)
    for files in noise.voices:
        talk = np.concatenate([at_level(read(file), MAIN_LEVEL_DBFS) for file in files])[:length]
        babble += np.roll(talk, rng.integers(length))
    return babble


def render_enrolment(
    enrolment: Enrolment, read: Callable[[str], Samples], respond: Respond, rng: np.random.Generator
) -> Samples:
    """What the main speaker says when enrolling, (n_samples,); cut off where it takes too long."""
    pause = np.zeros(seconds(ENROLMENT_PAUSE_S), dtype=np.float32)
    parts = [part for file in enrolment.files for part in (pause, at_level(read(file), MAIN_LEVEL_DBFS))]
    dry = np.concatenate(parts[1:])[: seconds(ENROLMENT_S[1])]
    if enrolment.room is None:
        return at_level(dry, enrolment.level_dbfs)
    heard = at_level(
        hear(dry, respond(enrolment.room, enrolment.position_m, enrolment.distance_m)), enrolment.level_dbfs
    )
    noise = sloping_noise(len(heard), SLOPES_DB["hoth"], rng)
    return heard + at_mean_level(noise, enrolment.level_dbfs - enrolment.snr_db)


# --- files --------------------------------------------------------------------------------------------


def read_bank(corpus: Path, split: Split, rounds: int | None) -> Bank:
    """Open what a corpus holds of a split, or of its first rounds.

    Raises:
        ValueError: There is nothing.
        OSError: A file can't be read.
    """
    last = math.inf if rounds is None else rounds * (LONG + SHORT)
    lines: dict[str, list[Spoken]] = {}
    for line in {line.file: line for line in read_index(corpus / "speech" / f"{split}.jsonl")}.values():
        if int(Path(line.file).stem) < last:
            lines.setdefault(line.voice, []).append(line)
    if not lines:
        raise ValueError(f"no speech of {split} in {corpus}; run `corpus.py speak --out {corpus}` first")
    return Bank(read_description(VOICES_DESCRIPTION, Voices), lines, partial(read_line, corpus))


def read_line(corpus: Path, line: Spoken) -> Samples:
    """Read one file of the bank, (n_samples,); raises ValueError where that can't be done."""
    try:
        return read_audio(corpus / line.file)
    except AudioError as error:
        raise ValueError(str(error)) from error


def write_scene(drawn: Drawn, out: Path) -> Path:
    """Write a scene to its folder, which is there whole or not at all; the top of this file lists what."""
    folder, part = out / drawn.setting.session_id, out / ".unfinished" / f"{drawn.setting.session_id}.{os.getpid()}"
    part.mkdir(parents=True, exist_ok=True)
    for name, samples in name_tracks(drawn):
        (part / f"{name}.flac").write_bytes(to_flac(samples))
    said = [
        Said(drawn.setting.session_id, sentence.speaker, sentence.span, sentence.text)
        for sentence in drawn.setting.placed
    ]
    (part / "reference.rttm").write_text(to_rttm(said), encoding="utf-8")
    (part / "reference.json").write_text(to_seglst(said), encoding="utf-8")
    (part / "scene.json").write_text(to_json(describe(drawn)), encoding="utf-8")
    part.replace(folder)
    return folder


def name_tracks(drawn: Drawn) -> Iterator[tuple[str, Samples]]:
    """Yield each file's name and samples."""
    yield "mixture", drawn.mixture
    yield "main", drawn.main
    yield "bystander", sum(drawn.bystanders, np.zeros_like(drawn.main))
    yield "enrolment", drawn.enrolment
    if len(drawn.bystanders) > 1:
        for number, samples in enumerate(drawn.bystanders, start=1):
            yield f"bystander_{number}", samples


def describe(drawn: Drawn) -> dict[str, object]:
    """Say all that was drawn, and what came of it."""
    came = {
        "lowered_db": round(drawn.lowered_db, 3),
        "main_share": round(drawn.setting.share(talked_over=False), 3),
        "overlap_share": round(drawn.setting.share(talked_over=True), 3),
    }
    return drawn.setting.model_dump(mode="json") | came


def make_scenes(
    split: Split, seeds: Iterable[int], bank: Bank, out: Path, processes: int, respond: Respond | None = None
) -> None:
    """Draw and write scenes that aren't there yet, and say how long that took."""
    missing = [seed for seed in seeds if not (out / name_scene(split, seed)).is_dir()]
    make = partial(make_scene, split, bank=bank, out=out, respond=respond)
    began, sound_s = time.monotonic(), 0.0
    several = ProcessPoolExecutor(processes, get_context("spawn")) if processes > 1 else nullcontext()
    with several as pool:
        for number, length_s in enumerate(pool.map(make, missing) if pool else map(make, missing), start=1):
            sound_s += length_s
            if number % 10 == 0 or number == len(missing):
                took_s = time.monotonic() - began
                print(
                    f"{split}: {number} of {len(missing)} scenes, {sound_s / 60:.1f} min in {took_s:.0f} s", flush=True
                )


def make_scene(split: Split, seed: int, bank: Bank, out: Path, respond: Respond | None) -> float:
    """Draw and write one scene; returns its length in seconds."""
    drawn = draw_scene(split, seed, bank, respond)
    write_scene(drawn, out)
    return drawn.setting.length_s


def name_scene(split: Split, seed: int) -> str:
    """A scene's name, and its folder's."""
    return f"{split}_{seed:06d}"


# --- command line -------------------------------------------------------------------------------------


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; None means this process's own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    commands = parser.add_subparsers(dest="command", required=True)
    speak = commands.add_parser("speak", help="make the bank of speech, or go on with it", allow_abbrev=False)
    speak.add_argument("--kokoro", type=Path, required=True, metavar="DIR", help="the assembled model and voices")
    speak.add_argument("--out", type=Path, required=True, metavar="CORPUS", help="where the bank goes")
    speak.add_argument("--rounds", type=positive, default=4, metavar="N", help="six files a voice each (default 4)")
    speak.add_argument("--only", choices=SPLITS, action="append", help="this split alone; may be given again")
    speak.add_argument("--seed", type=natural, default=0, metavar="N", help="of who says what when (default 0)")
    speak.add_argument("--threads", type=positive, default=1, metavar="N", help="that Kokoro may use (default 1)")
    scenes = commands.add_parser("scenes", help="draw scenes", allow_abbrev=False)
    scenes.add_argument("--corpus", type=Path, required=True, metavar="CORPUS", help="where the bank is")
    scenes.add_argument("--split", choices=SPLITS, required=True, help="whose voices and sentences")
    scenes.add_argument("--count", type=positive, required=True, metavar="N", help="how many scenes")
    scenes.add_argument("--out", type=Path, required=True, metavar="DIR", help="where they go, a folder each")
    scenes.add_argument("--seed", type=natural, default=0, metavar="S", help="of the first; the next has S + 1")
    scenes.add_argument("--rounds", type=positive, metavar="N", help="draw from the first rounds (default: all)")
    scenes.add_argument("--processes", type=positive, default=1, metavar="N", help="that work at once (default 1)")
    return parser.parse_args(arguments)


def natural(text: str) -> int:
    """Read a number from zero on from the command line."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a number from zero on, got {text!r}")
    return int(text)


def positive(text: str) -> int:
    """Read a number above zero from the command line."""
    if natural(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number above zero, got {text!r}")
    return int(text)


def run_speak(parsed: argparse.Namespace, load: Callable[[Path, int], Synthesiser]) -> None:
    """Make the bank of speech."""
    sentences, voices = read_description(SENTENCES_FILE, Sentences), read_description(VOICES_DESCRIPTION, Voices)
    speak = load(parsed.kokoro, parsed.threads)
    for split in parsed.only or SPLITS:
        speak_split(split, parsed.rounds, sentences, voices, parsed.seed, speak, parsed.out)


def run_scenes(parsed: argparse.Namespace, respond: Respond | None) -> None:
    """Draw scenes."""
    bank = read_bank(parsed.corpus, parsed.split, parsed.rounds)
    seeds = range(parsed.seed, parsed.seed + parsed.count)
    make_scenes(parsed.split, seeds, bank, parsed.out, parsed.processes, respond)


def main(
    arguments: Sequence[str] | None = None,
    load: Callable[[Path, int], Synthesiser] = ThriftyKokoro,
    respond: Respond | None = None,
) -> int:
    """Run the program; returns the exit status (2: the user can mend it)."""
    parsed = parse_arguments(arguments)
    try:
        if parsed.command == "speak":
            run_speak(parsed, load)
        else:
            run_scenes(parsed, respond)
    except ModuleNotFoundError as error:
        print(
            f"corpus.py: {error.name} isn't installed; the top of benchmarks/README.md says what is needed",
            file=sys.stderr,
        )
        return 2
    except (ValueError, OSError) as error:
        print(f"corpus.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
