"""Tell what a chat model costs for SH-Bench's test set: tokens and US dollars, before anything is asked.

    python benchmarks/cost.py [--data FILE] [--minutes M]

The test set has 200 recordings and 2,000 questions, each asked in both modes. The program goes through both of the
paper's configurations as a run does (cascade.shbench): the same plan, the same prompts, the request that
`--show-prompt` shows; only what a recording says is not heard but taken from references. It sends nothing and needs no
key, no weights and no audio but the small benchmark's. It prints for each configuration:

    first run, no discount    every token of the prompts at the full price
    first run, prompt cache   OpenAI charges less for the beginning of a prompt that it has just read, from 1,024 tokens
                              on in steps of 128 (https://openai.com/index/api-prompt-caching/); with as many questions
                              under way at once as is configured, and with one after the other, which saves most. This
                              is the most that can be saved: nobody promises that a beginning is still in the cache
    second run, own cache     replies from the stage's own `cache`, where the first run put them: nothing is asked

and the --max-cost that lets the whole run through for certain, with the longest replies and no discount: before each
request the backend reserves the most that it can cost.

Questions and descriptions: `--data`, any file in SH-Bench's format, by default the small benchmark's. Other numbers of
questions than 2,000 are scaled to it by their mean.

What is said: in the small benchmark, what its references say. With other data, or with `--minutes`, each recording is
so long (by default 2.5 minutes, the middle of section 3.2's "two to three minutes"), with as many words a second as the
small benchmark has. They are its own words, so that they are cut into tokens as speech is. Without a gate, what both
speakers say is sent in both modes, which is the most that a separator can leave; with the gate, what both say in
general mode, a labelled line for each sentence, and what the main speaker says in selective mode.

Tokens are counted with GPT-2's table, which comes with openai-whisper (extra `paper`). GPT-4o's own, o200k_base, comes
with no package; it is larger, and gives somewhat fewer tokens for English. The chat's format adds 7 to the one message
of a request (OpenAI's cookbook, How_to_count_tokens_with_tiktoken.ipynb: 3 for a message, 1 for who says it, 3 for the
beginning of the reply). A reply is a letter and at most a mark after it, or else as long as the request allows.

Requests that fail, and are charged nevertheless, are not counted.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, cycle
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeAlias

import installed  # noqa: F401
from rich import box
from rich.console import Console
from rich.table import Table
from whole import stoppable

from cascade.answering.prompts import load_prompt
from cascade.answering.questions import Answerer
from cascade.answering.spending import Budget, Price, Spent, Usage, read_prices
from cascade.audio import announced_duration_s
from cascade.backends.openai import MESSAGE_TOKENS, check_url, host_of
from cascade.config import BenchmarkSettings, CascadeConfig, load_config
from cascade.errors import CascadeError, MissingExtraError
from cascade.packaged import data_folder
from cascade.provenance import gather
from cascade.separation import LOUDEST
from cascade.settings import OpenAISettings
from cascade.shbench.items import load_data
from cascade.shbench.plan import Plan, Recording, prompt_file
from cascade.shbench.recordings import find_audio
from cascade.types import Admission, AdmitReason, Mode, Span, Transcript, Utterance

CONFIGS: Final = ("sepformer_whisper_gpt4o.yaml", "sepformer_pyannote_gate_whisper_gpt4o.yaml")

QUESTIONS: Final = 2000
"""Questions in SH-Bench's test set (arXiv 2512.06380, table 1)."""

MINUTES: Final = 2.5
"""The middle of "two to three minutes" (arXiv 2512.06380, section 3.2)."""

BEFORE_TOKENS, AFTER_TOKENS = 3, 4
"""What the chat's format puts before a message's text (begin, "user", separator) and after it (end; "assistant")."""

LEAST_CACHED, CACHED_STEP = 1024, 128
"""Tokens of a prompt that OpenAI caches at least, and in steps of which (https://openai.com/index/api-prompt-caching/)."""

LIKELY_REPLY: Final = 2
"""Tokens of a reply: a letter, and perhaps a full stop."""

Tokenise: TypeAlias = Callable[[str], Sequence[object]]
"""Cuts a text into tokens."""


# --- what is said -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Said:
    """A sentence, and who says it ("main", "bystander")."""

    speaker: str
    words: str


Sentences: TypeAlias = Sequence[Said]
"""What is said in a recording, in the order of its beginnings."""


def read_references(path: Path) -> dict[str, Sentences]:
    """Read what is said in each recording, by session_id, from a SegLST file."""
    entries = sorted(json.loads(path.read_bytes()), key=lambda entry: (entry["session_id"], entry["start_time"]))
    said: dict[str, list[Said]] = {}
    for entry in entries:
        said.setdefault(entry["session_id"], []).append(Said(entry["speaker"], entry["words"]))
    return dict(said)


def count_words(sentences: Sentences) -> int:
    """Return how many words are said."""
    return sum(len(said.words.split()) for said in sentences)


def speech_rate(benchmark: BenchmarkSettings, said: Iterable[Sentences]) -> float:
    """Return the words of all speakers in a second of a benchmark's recordings.

    Raises:
        ValueError: A recording's length is not known.
    """
    names = list(dict.fromkeys(item.audio for item in load_data(benchmark.data).items))
    lengths_s = [announced_duration_s(path) for path in find_audio(names, benchmark.audio).values()]
    if not all(lengths_s):
        raise ValueError(f"a recording under {benchmark.audio} does not say how long it is; make the benchmark again")
    return sum(map(count_words, said)) / sum(filter(None, lengths_s))


def speech(recordings: Sequence[Sentences], first: int, n_words: int) -> Sentences:
    """Return so many words from recordings one after another, from the first-th on and again and again."""
    taken: list[Said] = []
    left = n_words
    for said in cycle(chain.from_iterable((*recordings[first:], *recordings[:first]))):
        if left <= 0:
            break
        words = said.words.split()[:left]
        taken.append(Said(said.speaker, " ".join(words)))
        left -= len(words)
    return taken


def what_is_said(
    names: Sequence[str], minutes: float | None, small: BenchmarkSettings
) -> tuple[Mapping[str, Sentences], str]:
    """Return what is said in each recording, and in words where it comes from.

    Args:
        names: The recordings.
        minutes: How long each is; None: they are the small benchmark's, and what is said in them is known.
        small: The small benchmark.

    Raises:
        ValueError: The small benchmark's references do not know a recording.
    """
    known = {} if small.references is None else read_references(small.references)
    if not known:
        raise ValueError("the small benchmark has no references; make it again with benchmarks/shmini.py")
    if minutes is None:
        sessions = {name: PurePosixPath(name).stem for name in names}
        if missing := [name for name, session in sessions.items() if session not in known]:
            raise ValueError(f"the references do not say what is said in '{missing[0]}'; give --minutes")
        n_words = sum(count_words(known[session]) for session in sessions.values()) / len(sessions)
        source = f"its references' {n_words:.0f} words (SH-Bench's are longer: --minutes {MINUTES})"
        return {name: known[session] for name, session in sessions.items()}, source
    rate = speech_rate(small, known.values())
    n_words = round(60 * minutes * rate)
    made = {name: speech(list(known.values()), index % len(known), n_words) for index, name in enumerate(names)}
    return made, f"{n_words} words (the small benchmark's: {rate:.2f} a second of both speakers, {minutes:g} minutes)"


def transcript_of(sentences: Sentences, config: CascadeConfig, heard_as: Mode) -> Transcript:
    """Return what a configuration without a fault hears in a mode; times are only an order, since none are sent.

    Without a gate the loudest source is one turn, and so one line, of one speaker. With it each sentence is a line;
    where both speakers are heard, they have the names that pyannote's stage gives them.
    """
    if not config.gated:
        return _transcript([(LOUDEST, " ".join(said.words for said in sentences))], heard_as, AdmitReason.EVERYONE)
    if heard_as is Mode.SELECTIVE:
        lines = [(said.speaker, said.words) for said in sentences if said.speaker == "main"]
        return _transcript(lines, heard_as, AdmitReason.MAIN_SPEAKER)
    names = {speaker: f"speaker_{n}" for n, speaker in enumerate(dict.fromkeys(s.speaker for s in sentences), start=1)}
    return _transcript([(names[s.speaker], s.words) for s in sentences], heard_as, AdmitReason.GENERAL_MODE)


def _transcript(lines: Iterable[tuple[str, str]], mode: Mode, reason: AdmitReason) -> Transcript:
    admission = Admission(mode, reason, evidence=1.0, threshold=0.0)
    return Transcript(
        tuple(
            Utterance(Span(index, index + 1), speaker, text, (), admission)
            for index, (speaker, text) in enumerate(lines)
        )
    )


# --- what is asked ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """A request: its prompt's tokens, and the most that the backend reserves for it.

    shared: how many tokens its prompt begins with that each earlier request about the same hearing begins with too.
    """

    prompt: int
    most: Usage
    shared: tuple[int, ...] = ()

    def cached(self, at_once: int) -> int:
        """Return how many tokens the provider has in its cache, if so many requests are under way at once."""
        ended = max(0, len(self.shared) + 1 - at_once)
        longest = max(self.shared[:ended], default=0)
        return 0 if longest < LEAST_CACHED else longest - (longest - LEAST_CACHED) % CACHED_STEP


def plan_of(config: CascadeConfig) -> Plan:
    """Return the plan of a run in both modes, for which no recording and no model need be there.

    Errors: ConfigError, ItemsError.
    """
    settings = config.benchmark
    data = load_data(settings.data)
    names = dict.fromkeys(item.audio for item in data.items)
    return Plan(
        config=config,
        system="",
        modes=tuple(Mode),
        prompts={mode: load_prompt(settings.prompts / prompt_file(settings, mode)) for mode in Mode},
        recordings=tuple(
            Recording(name, Path(name), "", tuple(item for item in data.items if item.audio == name), None)
            for name in names
        ),
        limit=None,
        shard=None,
        data=data,
        references_sha256=None,
        made=gather(config),
    )


def requests_of(plan: Plan, said: Mapping[str, Sentences]) -> Iterator[list[dict[str, Any]]]:
    """Yield the requests about each hearing, in a run's order; what is asked twice is there once."""
    shows = _shows(plan.config)
    for recording in plan.recordings:
        for heard_as, modes in plan.hearings.items():
            transcript = transcript_of(said[recording.name], plan.config, heard_as)
            questions = dict.fromkeys((mode, plan.question(item, mode)) for mode in modes for item in recording.items)
            yield [json.loads(shows.answer(question, transcript).text) for _, question in questions]


def _shows(config: CascadeConfig) -> Answerer:
    """Return what answers with the request that would be sent.

    Raises:
        ValueError: The configuration sends nothing.
    """
    answerer = config.with_prompt_shown().answerer
    if answerer is None:
        raise ValueError("the configuration has no answerer; add 'use: openai'")
    return answerer.load()


def count(requests: Sequence[Mapping[str, Any]], tokenise: Tokenise) -> list[Asked]:
    """Count the tokens of the requests about one hearing."""
    asked: list[Asked] = []
    cut: list[Sequence[object]] = []
    for request in requests:
        (message,) = request["messages"]
        text = message["content"]
        tokens = tokenise(text)
        # As the backend does: no token is shorter than a byte.
        most = Usage(len(text.encode()) + MESSAGE_TOKENS, completion=request["max_tokens"])
        shared = tuple(BEFORE_TOKENS + shared_beginning(tokens, other) for other in cut)
        asked.append(Asked(BEFORE_TOKENS + len(tokens) + AFTER_TOKENS, most, shared))
        cut.append(tokens)
    return asked


def shared_beginning(tokens: Sequence[object], other: Sequence[object]) -> int:
    """Return how many tokens two prompts begin with in common."""
    pairs = enumerate(zip(tokens, other, strict=False))
    return next((index for index, (one, two) in pairs if one != two), min(len(tokens), len(other)))


# --- what it costs ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bill:
    """What a run takes: with likely replies, and with the longest that are allowed.

    unspent is the most that the backend reserves for a request beyond what the request then costs, in US dollars.
    """

    likely: Spent
    at_most: Spent
    unspent: float

    def limit(self, scale: float) -> float:
        """Return the least --max-cost, in whole cents, that lets everything through, so many times as long.

        A request goes out only if the limit holds should it take all that is reserved for it; the one for which most is
        reserved may be the last.
        """
        return math.ceil(100 * (scale * (self.at_most.cost or 0.0) + self.unspent)) / 100


def bill(asked: Iterable[Asked], price: Price, at_once: int | None) -> Bill:
    """Add up what requests cost; at_once: how many of a hearing are under way together, None without a prompt cache."""
    likely, at_most, unspent = Budget(price, None), Budget(price, None), 0.0
    for each in asked:
        cached = 0 if at_once is None else each.cached(at_once)
        _pay(likely, each.most, Usage(each.prompt, cached, LIKELY_REPLY))
        usage = Usage(each.prompt, cached, each.most.completion)
        unspent = max(unspent, _pay(at_most, each.most, usage) - price.of(usage))
    return Bill(likely.spent, at_most.spent, unspent)


def _pay(budget: Budget, most: Usage, usage: Usage) -> float:
    """Count a request as the backend does, and return what was reserved for it, in US dollars."""
    reserved = budget.reserve(most)
    budget.settle(reserved, usage, billed=True)
    budget.answered(from_cache=False)
    return reserved


def price_of(settings: OpenAISettings) -> Price:
    """Return what a configuration's model costs.

    Raises:
        ValueError: It is not known.
    """
    key = host_of(check_url(settings.base_url)), settings.model
    price = read_prices(data_folder("models") / "prices" / "openai.yaml").get(key)
    if price is None:
        raise ValueError(f"no price is known of {key[1]} on {key[0]}; add it to models/prices/openai.yaml")
    return price


def bills_of(asked: Sequence[Asked], price: Price, at_once: int) -> dict[str, Bill]:
    """Return what each kind of run takes, by its name in the table."""
    return {
        "first run, no discount": bill(asked, price, None),
        f"first run, prompt cache, {at_once} at once": bill(asked, price, at_once),
        "first run, prompt cache, 1 at once": bill(asked, price, 1),
        "second run, own cache": bill((), price, None),
    }


# --- the table --------------------------------------------------------------------------------------------------------


def new_table(title: str) -> Table:
    """Return an empty table."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("configuration\n  run", no_wrap=True)
    headings = ("\nrequests", "prompt\ntokens", "of these\ncached", "reply tokens\nlikely, at most")
    for heading in (*headings, "US dollars\nlikely, at most", "\n--max-cost"):
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def add_rows(table: Table, name: str, bills: Mapping[str, Bill], scale: float) -> None:
    """Add a configuration's runs, with the counted questions standing for `scale` times as many."""
    # The provider's discount is no promise, so the limit must hold without it: it is that of the dearest run.
    limit = max(each.limit(scale) for each in bills.values())
    table.add_row(name, *[""] * 5, f"{limit:.2f}")
    for run, each in bills.items():
        likely, most = each.likely, each.at_most
        tokens = (likely.requests, likely.prompt_tokens, likely.cached_tokens)
        replies = f"{scale * likely.completion_tokens:,.0f}, {scale * most.completion_tokens:,.0f}"
        costs = f"{scale * (likely.cost or 0):.2f}, {scale * (most.cost or 0):.2f}"
        table.add_row(f"  {run}", *(f"{scale * number:,.0f}" for number in tokens), replies, costs)
    table.add_section()


def assumptions(asked: Sequence[Asked], source: str) -> str:
    """Return the line that says what the table rests on."""
    longest = max((max(each.shared, default=0) for each in asked), default=0)
    lengths = [each.prompt for each in asked]
    caches = "caches none of them" if longest < LEAST_CACHED else "caches these only in part"
    return (
        f"Assumed: a recording says {source}; tokens are GPT-2's, of which GPT-4o's o200k_base needs somewhat fewer "
        f"for English, and {BEFORE_TOKENS + AFTER_TOKENS} of the chat's format, {min(lengths):,} to {max(lengths):,} a "
        f"prompt; the prompts about a recording begin with up to {longest:,} equal tokens, and OpenAI, which begins at "
        f"{LEAST_CACHED:,}, {caches}; a reply has {LIKELY_REPLY} tokens, or all {asked[0].most.completion} that it may "
        "have; no request fails; prices are those of models/prices/openai.yaml; 'own cache' is the stage's `cache`, "
        "which is off unless it is set."
    )


# --- the program ------------------------------------------------------------------------------------------------------


def gpt2_tokens() -> Tokenise:
    """Return what cuts text into GPT-2's tokens.

    Raises:
        MissingExtraError: openai-whisper is not installed.
    """
    try:
        from whisper.tokenizer import get_encoding
    except ModuleNotFoundError as error:
        raise MissingExtraError(str(error.name), "paper") from None
    encode: Tokenise = get_encoding("gpt2").encode_ordinary
    return encode


def report(data: Path | None, minutes: float | None, tokenise: Tokenise) -> tuple[Table, str]:
    """Return the table and the line of assumptions.

    Errors: ValueError, CascadeError.
    """
    small = BenchmarkSettings()
    if minutes is None and data is not None and data.resolve() != small.data.resolve():
        minutes = MINUTES
    items = load_data(data or small.data).items
    said, source = what_is_said(list(dict.fromkeys(item.audio for item in items)), minutes, small)
    scale = QUESTIONS / len(items)
    scaled = "" if scale == 1 else f", scaled from {len(items):,}"
    table = new_table(f"{QUESTIONS:,} questions{scaled}, each asked in {len(Mode)} modes")
    everything: list[Asked] = []
    for name in CONFIGS:
        config = load_config(name).with_benchmark(data, None)
        if not isinstance(config.answerer, OpenAISettings):
            raise ValueError(f"{name} asks no server; its last stage must be 'use: openai'")
        asked = [each for requests in requests_of(plan_of(config), said) for each in count(requests, tokenise)]
        bills = bills_of(asked, price_of(config.answerer), config.answerer.questions_at_once)
        add_rows(table, name.removesuffix(".yaml"), bills, scale)
        everything += asked
    return table, assumptions(everything, source)


def _minutes(text: str) -> float:
    """Read a length in minutes."""
    try:
        minutes = float(text)
    except ValueError:
        minutes = math.nan
    if not 0 < minutes <= 60:
        raise argparse.ArgumentTypeError(f"{text!r} is no length; expected minutes, more than 0 and at most 60")
    return minutes


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; None means this process's own."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, metavar="FILE", help="questions in SH-Bench's format, .json or .json.gz")
    parser.add_argument(
        "--minutes",
        type=_minutes,
        metavar="M",
        help=f"how long each recording is ({MINUTES} where nothing says what is said in them)",
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None, tokenise: Tokenise | None = None) -> int:
    """Run the program; return its exit status (2: the user can mend it)."""
    parsed = parse_arguments(arguments)
    try:
        table, line = report(parsed.data, parsed.minutes, tokenise or gpt2_tokens())
    except (ValueError, OSError, CascadeError) as error:
        print(f"cost.py: {error}", file=sys.stderr)
        return 2
    console = Console(width=120)
    console.print(table)
    console.print(line, soft_wrap=True, highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(stoppable(Path(__file__), main))
