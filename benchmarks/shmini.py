"""Make the small benchmark: recordings, references and questions, from one YAML file a scene.

    python benchmarks/shmini.py benchmarks/shmini/scenes --kokoro DIR --out benchmarks/shmini

A scene has what `MiniScene` lists; to add one, write its YAML and run the line above. No scene depends on another: all
that is drawn comes from the scene's own name and seed. What is written to --out, with S for a scene's name:

    audio/S.opus      what the microphone heard, 16 kHz mono
    reference.rttm    who speaks when, and
    references.json   who says what when, of all scenes (SegLST)
    questions.json    ten items a scene in SH-Bench's own format, five options each

In a `real` scene the bystander talks in several turns all along, 60 % of the time over the main speaker and the rest in
pauses that the main speaker makes; in a `synth` scene once, at a random place, as build_scenes.py does it.

Needs what scenes.py needs.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import installed  # noqa: F401
import numpy as np
from build_scenes import QUESTIONS, Item, Made, Respond, write_partition
from mixing import Described, Name, Said, Setting, SpokenSentence, lay, mix, read_description, room_response, to_opus
from pydantic import Field, model_validator
from scenes import Bystander, MainSpeaker
from voices import Kokoro, Synthesiser
from whole import stoppable

from cascade.types import SAMPLE_RATE, Samples, seconds

OVERLAP = 0.6  # of a bystander's time in a real scene that lies over the main speaker
PAUSES_S = (0.3, 0.9)  # between two sentences of the main speaker
TURN_PAUSES_S = (0.25, 0.5)  # between two sentences of a bystander's turn
EDGE_S = 0.6  # before the first and after the last word
LENGTH_S = (55.0, 100.0)  # of a recording
OPTIONS = 5  # the last of them, before they are mixed, says "I don't know"

DONT_KNOW = (
    "I don't know",
    "I do not have an answer",
    "I do not have the information to answer the question",
    "Not enough information",
    "It is not possible to say",
)
"""As many as questions on a speaker, so that each is used once for each of the two."""

Sentences = Annotated[tuple[str, ...], Field(min_length=1)]


# --- the description ------------------------------------------------------------------------------


class MiniQuestion(Described):
    """A question, and the options that are no "I don't know".

    Attributes:
        description_filtered: What is told of the main speaker, where description_with_content gives the answer away.
    """

    question: str = Field(min_length=1)
    right: str = Field(min_length=1)
    wrong: tuple[str, str, str]
    description_filtered: str | None = None

    @model_validator(mode="after")
    def _options_differ(self) -> MiniQuestion:
        options = [option.strip().casefold() for option in (self.right, *self.wrong)]
        if "" in options or len(set(options)) < len(options):
            raise ValueError(f"the options of {self.question!r} must differ, and none be empty")
        return self


class MiniQuestions(Described):
    """The questions on each of the two."""

    main: tuple[MiniQuestion, ...] = Field(min_length=QUESTIONS, max_length=QUESTIONS)
    bystander: tuple[MiniQuestion, ...] = Field(min_length=QUESTIONS, max_length=QUESTIONS)


class MiniScene(Setting):
    """A scene of the small benchmark.

    Attributes:
        type: As in the benchmark: real (several turns somewhere in the world) or synth (one turn at -10 dB).
        scene: Where it is, as the benchmark calls it; real scenes only.
        description: The main speaker's voice.
        description_with_content: The same, with what they talk of.
        main_says: A monologue, by sentences.
        bystander_says: Turns, each by sentences.
    """

    type: Literal["real", "synth"]
    scene: Literal["coffee_shop", "gym", "living_room", "public_transit", "waiting_room"] | None = None
    main: MainSpeaker
    bystander: Bystander
    description: str = Field(min_length=1)
    description_with_content: str = Field(min_length=1)
    main_says: Sentences
    bystander_says: tuple[Sentences, ...] = Field(min_length=1)
    questions: MiniQuestions

    @model_validator(mode="after")
    def _type_fits(self) -> MiniScene:
        if (self.type == "real") != (self.scene is not None):
            raise ValueError("a real scene needs `scene`, a synth scene must not have it")
        if self.type == "synth" and (len(self.bystander_says) != 1 or self.bystander.level_db != -10):
            raise ValueError("in a synth scene the bystander has one turn, at level_db: -10")
        if self.type == "real" and len(self.bystander_says) >= len(self.main_says):
            raise ValueError("a bystander's turns need a main speaker's sentence each, and one more")
        return self

    def rng(self, purpose: int) -> np.random.Generator:
        """Draws that depend on this scene and nothing else; each purpose has its own."""
        return np.random.default_rng([self.seed, purpose, *self.session_id.encode()])


def read_mini(folder: Path) -> list[MiniScene]:
    """Read all scenes of a folder, by name.

    Raises:
        ValueError: There is none, or some are wrong: one line for each.
        OSError: One can't be read.
    """
    paths = sorted(folder.glob("*.yaml"))
    if not paths:
        raise ValueError(f"no scene in {folder}: expected files named SESSION.yaml")
    scenes: list[MiniScene] = []
    faults: list[str] = []
    for path in paths:
        try:
            scenes.append(read_description(path, MiniScene))
        except ValueError as error:
            faults.append(str(error))
        else:
            if scenes[-1].session_id != path.stem:
                faults.append(f"{path}: session_id is {scenes[-1].session_id}, expected the file's name, {path.stem}")
    if faults:
        raise ValueError("\n".join(faults))
    return scenes


# --- who speaks when ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """A bystander's turn: texts and their samples (n_samples,), and the pauses between them, in samples."""

    texts: tuple[str, ...]
    spoken: tuple[Samples, ...]
    pauses: tuple[int, ...]

    @property
    def length(self) -> int:
        """From its first to its last sample."""
        return sum(map(len, self.spoken)) + sum(self.pauses)

    def at(self, start: int) -> Iterator[SpokenSentence]:
        """Its sentences, when it begins at `start`."""
        for text, spoken, pause in zip(self.texts, self.spoken, (*self.pauses, 0), strict=True):
            yield SpokenSentence("bystander", text, start, spoken)
            start += len(spoken) + pause


@dataclass(frozen=True, slots=True, eq=False)
class Spoken:
    """All that a scene's two speakers say, without a time yet.

    Attributes:
        texts: The main speaker's sentences.
        main: The same as samples (n_samples,), dry.
        pauses: Between them, in samples.
        turns: The bystander's.
    """

    texts: tuple[str, ...]
    main: tuple[Samples, ...]
    pauses: tuple[int, ...]
    turns: tuple[Turn, ...]


def speak_scene(scene: MiniScene, speak: Synthesiser) -> Spoken:
    """Have everything spoken, and draw the pauses in between."""
    rng = scene.rng(0)
    pauses = draw_pauses(rng, PAUSES_S, len(scene.main_says) - 1)
    main = tuple(speak(text, scene.main.voice, scene.main.speed) for text in scene.main_says)
    turns = [
        Turn(
            texts,
            tuple(speak(text, scene.bystander.voice, scene.bystander.speed) for text in texts),
            draw_pauses(rng, TURN_PAUSES_S, len(texts) - 1),
        )
        for texts in scene.bystander_says
    ]
    return Spoken(scene.main_says, main, pauses, tuple(turns))


def draw_pauses(rng: np.random.Generator, bounds_s: tuple[float, float], count: int) -> tuple[int, ...]:
    """Draw pauses, in samples."""
    return tuple(seconds(pause_s) for pause_s in rng.uniform(*bounds_s, size=count))


def place(scene: MiniScene, spoken: Spoken) -> tuple[SpokenSentence, ...]:
    """Give everything its time, sorted by start.

    Raises:
        ValueError: The bystander talks over themselves, or longer than the main speaker.
    """
    rng = scene.rng(1)
    if scene.type == "synth":
        monologue = place_main(spoken, {})
        room = monologue[-1].end - monologue[0].start - spoken.turns[0].length
        if room < 0:
            raise ValueError(
                f"{scene.session_id}: the bystander talks longer than the main speaker; shorten their turn"
            )
        start = monologue[0].start + int(rng.integers(room + 1))
        return tuple(sorted((*monologue, *spoken.turns[0].at(start)), key=lambda sentence: sentence.start))
    leads = tuple(float(lead) for lead in rng.uniform(size=len(spoken.turns)))
    # What of a turn lies over the main speaker can't be set directly, since the main speaker pauses below it too.
    tried = [weave(spoken, leads, share) for share in np.arange(0, 0.6, 0.01)]
    return min(tried, key=lambda sentences: abs(overlap_share(sentences) - OVERLAP))


def place_main(spoken: Spoken, holes: dict[int, int]) -> list[SpokenSentence]:
    """Place the main speaker's sentences; `holes` says how much longer, in samples, they pause after which sentence."""
    start = seconds(EDGE_S)
    placed = []
    for number, (text, samples) in enumerate(zip(spoken.texts, spoken.main, strict=True)):
        placed.append(SpokenSentence("main", text, start, samples))
        pause = spoken.pauses[number] if number < len(spoken.pauses) else 0
        start = placed[-1].end + pause + holes.get(number, 0)
    return placed


def weave(spoken: Spoken, leads: Sequence[float], share: float) -> tuple[SpokenSentence, ...]:
    """Spread the bystander's turns over the monologue.

    Each turn belongs to one of the main speaker's sentences, after which a pause is made for `share` of the turn. How
    much of the rest comes before that pause and how much after is up to the turn's lead, from 0 to 1.
    """
    anchors = [int(len(spoken.main) * (number + 0.5) / len(spoken.turns)) for number in range(len(spoken.turns))]
    holes = {anchor: round(share * turn.length) for anchor, turn in zip(anchors, spoken.turns, strict=True)}
    placed = place_main(spoken, holes)
    end = placed[-1].end
    free = placed[0].start
    for anchor, turn, lead in zip(anchors, spoken.turns, leads, strict=True):
        start = placed[anchor].end - round(lead * (1 - share) * turn.length)
        start = max(free, min(start, end - turn.length))
        placed += turn.at(start)
        free = placed[-1].end + seconds(PAUSES_S[1])
    return tuple(sorted(placed, key=lambda sentence: sentence.start))


def overlap_share(sentences: Sequence[SpokenSentence]) -> float:
    """Share of the bystander's time that lies over the main speaker."""
    main = [sentence.span for sentence in sentences if sentence.speaker == "main"]
    bystander = [sentence.span for sentence in sentences if sentence.speaker == "bystander"]
    return sum(len(one & other) for one in main for other in bystander) / sum(map(len, bystander))


# --- questions ------------------------------------------------------------------------------------


def to_items(scene: MiniScene) -> tuple[Item, ...]:
    """Make a scene's items.

    For each of the two speakers, the right option stands once at each place, the "I don't know" option too, and each
    wording of the latter is used once: so places and wordings are balanced whatever scenes there are.
    """
    rng = scene.rng(2)
    asked: tuple[tuple[Name, tuple[MiniQuestion, ...]], ...] = (
        ("main", scene.questions.main),
        ("bystander", scene.questions.bystander),
    )
    items = []
    for name, questions in asked:
        right, unknown = draw_places(rng)
        wordings = rng.permutation(DONT_KNOW)
        for number, question in enumerate(questions):
            wrong = [question.wrong[index] for index in rng.permutation(len(question.wrong))]
            dont_know = str(wordings[number])
            options = arrange({right[number]: question.right, unknown[number]: dont_know}, wrong)
            items.append(to_item(scene, name, question, options, dont_know))
    return tuple(items)


def draw_places(rng: np.random.Generator) -> tuple[list[int], list[int]]:
    """Draw a place for the right and for the "I don't know" option of each question; all differ within each list."""
    right = rng.permutation(OPTIONS)
    unknown = rng.permutation(OPTIONS)
    while (unknown == right).any():
        unknown = rng.permutation(OPTIONS)
    return right.tolist(), unknown.tolist()


def arrange(fixed: dict[int, str], others: Sequence[str]) -> tuple[str, ...]:
    """Put some options at their places and the others, in their order, at what is left."""
    rest = iter(others)
    return tuple(fixed[place] if place in fixed else next(rest) for place in range(len(fixed) + len(others)))


def to_item(scene: MiniScene, name: Name, question: MiniQuestion, options: tuple[str, ...], dont_know: str) -> Item:
    """Put a question into the benchmark's format."""
    return Item(
        question=question.question,
        options=options,
        answer=question.right,
        speaker=name,
        audio=f"audio/{scene.session_id}.opus",
        type=scene.type,
        scene=scene.scene,
        main_speaker_desc=scene.description,
        main_speaker_desc_w_content=scene.description_with_content,
        main_speaker_desc_w_content_filter=question.description_filtered or scene.description_with_content,
        idk_answer=dont_know,
    )


# --- a scene --------------------------------------------------------------------------------------


def make(scene: MiniScene, speak: Synthesiser, respond: Respond) -> Made:
    """Make a scene, and print a line on it.

    Raises:
        ValueError: It can't be made, or is too short or too long.
    """
    sentences = place(scene, speak_scene(scene, speak))
    length = max(sentence.end for sentence in sentences) + seconds(EDGE_S)
    if not seconds(LENGTH_S[0]) <= length <= seconds(LENGTH_S[1]):
        raise ValueError(
            f"{scene.session_id} is {length / SAMPLE_RATE:.1f} s long, expected {LENGTH_S[0]:g} to {LENGTH_S[1]:g}: "
            "have them say more or less, or change their speed"
        )
    mixed = mix(lay(sentences, length), scene, respond)
    said = tuple(Said(scene.session_id, sentence.speaker, sentence.span, sentence.text) for sentence in sentences)
    items = to_items(scene)
    print(describe(scene, sentences, length, items))
    return Made(f"{scene.session_id}.opus", to_opus(mixed.mixture), said, items)


def describe(scene: MiniScene, sentences: Sequence[SpokenSentence], length: int, items: Sequence[Item]) -> str:
    """Say on one line what came of a scene."""
    spoken: Counter[Name] = Counter()
    for sentence in sentences:
        spoken[sentence.speaker] += len(sentence.samples)
    asked = Counter(item.speaker for item in items)
    return (
        f"{scene.session_id}: {length / SAMPLE_RATE:.1f} s, main {spoken['main'] / SAMPLE_RATE:.1f} s, bystander "
        f"{spoken['bystander'] / SAMPLE_RATE:.1f} s at {scene.bystander.level_db:g} dB, {overlap_share(sentences):.0%} "
        f"of it over the main speaker; {asked['main']} + {asked['bystander']} questions"
    )


def make_all(scenes: Sequence[MiniScene], speak: Synthesiser, respond: Respond) -> list[Made]:
    """Make all scenes.

    Raises:
        ValueError: Some can't be made: one line for each.
    """
    made: list[Made] = []
    faults: list[str] = []
    for scene in scenes:
        try:
            made.append(make(scene, speak, respond))
        except ValueError as error:
            faults.append(str(error))
    if faults:
        raise ValueError("\n".join(faults))
    return made


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; None means this process's own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("scenes", type=Path, help="folder of YAML files, one a scene")
    parser.add_argument("--kokoro", type=Path, required=True, metavar="DIR", help="the assembled model and voices")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the benchmark goes")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns the exit status (2: the user can mend it)."""
    parsed = parse_arguments(arguments)
    try:
        scenes = read_mini(parsed.scenes)
        write_partition(make_all(scenes, Kokoro(parsed.kokoro), room_response), parsed.out)
    except ModuleNotFoundError as error:
        print(
            f"shmini.py: {error.name} isn't installed; the top of benchmarks/README.md says what is needed",
            file=sys.stderr,
        )
        return 2
    except (ValueError, OSError) as error:
        print(f"shmini.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(stoppable(Path(__file__), main))
