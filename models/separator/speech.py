"""Make the speech that the separator learns from: many blended voices, each with a few sentences of its own.

    python models/separator/speech.py --kokoro DIR --out CORPUS [--rounds N] [--threads N]

voices.yaml says who speaks; texts.yaml, together with benchmarks/corpus/sentences.yaml, says what. Every voice says six
more files in each round, so the bank can be used, and the program stopped, at any time; the same command goes on where
it stopped. CORPUS gets the layout that benchmarks/corpus.py describes; its own bank may be trained on beside this one,
since neither a Kokoro voice nor a sentence is in two splits of either.

Needs cascade itself, and what the top of benchmarks/voices.py says.
"""

from __future__ import annotations

import argparse
import string
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from pydantic import Field

BENCHMARKS: Final = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))  # its programs find each other there, and this one finds them

from corpus import (  # noqa: E402
    SENTENCES_FILE,
    SPLITS,
    Sentences,
    SplitSentences,
    ThriftyKokoro,
    Voices,
    natural,
    positive,
    speak_split,
)
from faults import told  # noqa: E402
from mixing import Described, read_description  # noqa: E402
from voices import Synthesiser  # noqa: E402

HERE: Final = Path(__file__).parent
TEXTS_FILE: Final = HERE / "texts.yaml"
VOICES_FILE: Final = HERE / "voices.yaml"

FILLINGS: Final = 12  # sentences made from each pattern


class Patterns(Described):
    """The patterns of each split."""

    train: tuple[str, ...] = Field(min_length=1)
    valid: tuple[str, ...] = Field(min_length=1)
    test: tuple[str, ...] = Field(min_length=1)


class Texts(Described):
    """Patterns, and what their {slots} may hold."""

    slots: Mapping[str, tuple[str, ...]]
    splits: Patterns


def fill(pattern: str, slots: Mapping[str, Sequence[str]], number: int) -> str:
    """Fill the slots of a pattern by chance, for the number-th time; no filling is used twice in one sentence.

    Raises:
        ValueError: A slot that isn't there.
    """
    rng = np.random.default_rng([zlib.crc32(pattern.encode()), number])
    names = [name for _, name, _, _ in string.Formatter().parse(pattern) if name is not None]
    if unknown := set(names) - slots.keys():
        raise ValueError(f"no slot {', '.join(sorted(unknown))} for {pattern!r}; there are {', '.join(sorted(slots))}")
    left = {name: list(rng.permutation(list(slots[name]))) for name in sorted(set(names))}
    filled = "".join(
        before + (str(left[name].pop()) if name is not None else "")
        for before, name, _, _ in string.Formatter().parse(pattern)
    )
    return filled[0].upper() + filled[1:]


def expand(patterns: Sequence[str], slots: Mapping[str, Sequence[str]], plain: SplitSentences) -> SplitSentences:
    """Put a split's plain sentences and its filled patterns together; none is there twice."""
    filled = [fill(pattern, slots, number) for pattern in patterns for number in range(FILLINGS)]
    return SplitSentences(long=tuple(dict.fromkeys((*plain.long, *filled))), short=plain.short)


def read_sentences() -> Sentences:
    """All that is said, split by split."""
    texts, plain = read_description(TEXTS_FILE, Texts), read_description(SENTENCES_FILE, Sentences)
    return Sentences(
        train=expand(texts.splits.train, texts.slots, plain.train),
        valid=expand(texts.splits.valid, texts.slots, plain.valid),
        test=expand(texts.splits.test, texts.slots, plain.test),
    )


def speak_rounds(rounds: int, seed: int, speak: Synthesiser, out: Path) -> None:
    """Speak round after round, every split in each, or what is missing of them.

    Raises:
        ValueError: There aren't sentences for so many rounds, or the folder holds files of another plan.
        OSError: A file can't be written.
    """
    sentences, voices = read_sentences(), read_description(VOICES_FILE, Voices)
    for number in range(1, rounds + 1):
        for split in SPLITS:
            speak_split(split, min(number, sentences.of(split).rounds), sentences, voices, seed, speak, out)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; None means this process's own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--kokoro", type=Path, required=True, metavar="DIR", help="the assembled model and voices")
    parser.add_argument("--out", type=Path, required=True, metavar="CORPUS", help="where the bank goes")
    parser.add_argument("--rounds", type=positive, default=4, metavar="N", help="six files a voice each (default 4)")
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="of who says what when (default 0)")
    parser.add_argument("--threads", type=positive, default=1, metavar="N", help="that Kokoro may use (default 1)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None, load: Callable[[Path, int], Synthesiser] = ThriftyKokoro) -> int:
    """Run the program; returns the exit status (2: the user can mend it)."""
    parsed = parse_arguments(arguments)
    try:
        speak_rounds(parsed.rounds, parsed.seed, load(parsed.kokoro, parsed.threads), parsed.out)
    except ModuleNotFoundError as error:
        print(f"speech.py: {error.name} isn't installed; the top of benchmarks/voices.py says how", file=sys.stderr)
        return 2
    except (ValueError, OSError) as error:
        print(f"speech.py: {told(error)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
