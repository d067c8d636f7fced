"""argv -> one call each; no logic. What the commands need is imported by the commands, so that --help is quick."""

from __future__ import annotations

import io
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date
from enum import StrEnum
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from cascade.errors import CascadeError

if TYPE_CHECKING:
    from rich.progress import Progress

    from cascade.check import Report
    from cascade.config import CascadeConfig
    from cascade.manifests import Manifest
    from cascade.output.recordings import Heard
    from cascade.run import Done, Failed
    from cascade.shbench import running
    from cascade.shbench.results import Results
    from cascade.types import AudioChunk

SOME_FAILED = 1
"""Exit code when some recordings were done and others were not, or when `check` or `verify` finds something missing."""

UNUSABLE = 2
"""Exit code when nothing could be done with what was given."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""

INDENT = 8
"""The most spaces that a line of an answer keeps at its beginning."""

NO_GATE = "warning: this configuration has no gate: everyone is admitted, in selective mode too"

app = typer.Typer(
    help="A streaming privacy filter for speech: only what the main speaker said goes on.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # usage errors in one line
    pretty_exceptions_enable=False,  # its tracebacks show local variables, and those hold speech
)
models_app = typer.Typer(help="The models that cascade uses.", no_args_is_help=True)
app.add_typer(models_app, name="models")

screen = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
notes = Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)


class ModeName(StrEnum):
    """Values of --mode: cascade.types.Mode, without what that imports."""

    SELECTIVE = "selective"
    GENERAL = "general"


ConfigOption = Annotated[str, typer.Option("--config", "-c", help="A YAML file, or the name of one in configs/.")]
AudioRootOption = Annotated[
    Path | None, typer.Option(help="Folder of the benchmark's recordings; by default that of its questions.")
]
LimitOption = Annotated[int | None, typer.Option(min=1, help="Only the benchmark's first so many recordings.")]
ShardOption = Annotated[
    str | None, typer.Option(metavar="I/N", help="Only part I of N of the benchmark's recordings; see merge.")
]


@app.callback()
def _app() -> None:
    """Log what went wrong, a line each, to standard error."""
    logging.getLogger("cascade").addHandler(_Notes())


@app.command()
def run(
    config: ConfigOption,
    recordings: Annotated[
        list[str] | None, typer.Argument(help="Audio files of any format; - reads standard input. None: a benchmark.")
    ] = None,
    mode: Annotated[
        ModeName | None,
        typer.Option(
            help="selective: the main speaker only. general: everyone, labelled. A benchmark runs in both.",
            show_default=False,
        ),
    ] = None,
    enrolment: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE|NAME",
            help="The main speaker alone, 5 to 10 s, repeatable; or the name of one that is kept (see enrol). Without "
            "it: the dominant speaker.",
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="What the gate lets through: the least probability of the main speaker."),
    ] = None,
    question: Annotated[list[str] | None, typer.Option(help="Asked about each recording; repeatable.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the outputs. Without it nothing is written.")] = None,
    show_prompt: Annotated[
        bool, typer.Option(help="Answer with what a chat model would be sent; nothing is sent, no key is needed.")
    ] = False,
    max_cost: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="US dollars that a chat model's answers may cost at the most; of a benchmark that goes on, with what "
            "it had cost before.",
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="A benchmark's questions, in SH-Bench's format (.json, .json.gz).")
    ] = None,
    audio_root: AudioRootOption = None,
    limit: LimitOption = None,
    shard: ShardOption = None,
    report: Annotated[
        Path | None, typer.Option(help="One HTML file to look at what came of it; it needs nothing else.")
    ] = None,
) -> None:
    """Hear recordings, keep what the main speaker said, print the transcript, and answer from it.

    Without a recording: run a benchmark, by default the small one that comes with cascade, and score it. With --out the
    same command goes on where a stopped one ended.
    """
    from cascade.config import load_config
    from cascade.errors import ConfigError

    settings = load_config(config)
    if enrolment:
        settings = settings.with_enrolment(enrolment)
    if threshold is not None:
        settings = settings.with_threshold(threshold)
    if max_cost is not None:
        settings = settings.with_max_cost(max_cost)
    if show_prompt:
        settings = settings.with_prompt_shown()
    if not settings.gated:
        notes.print(NO_GATE)
    if recordings:
        if show_prompt and not question:
            raise ConfigError("--show-prompt shows what a question would send, and there is none; give --question TEXT")
        if (data, audio_root, limit, shard) != (None, None, None, None):
            raise ConfigError("--data, --audio-root, --limit and --shard are for a benchmark; leave the recordings out")
        _run_recordings(settings, recordings, mode or ModeName.SELECTIVE, question or (), out, report)
    elif question:
        raise ConfigError("a question was given, but no recording; name the recordings, or leave the question out")
    elif show_prompt:
        if (out, report) != (None, None):
            raise ConfigError("--show-prompt asks nothing of a benchmark; leave --out and --report out")
        _show_prompts(settings.with_benchmark(data, audio_root), mode, limit, shard)
    else:
        if enrolment:
            notes.print("warning: the enrolment is taken for the main speaker of all of the benchmark's recordings")
        _run_benchmark(settings.with_benchmark(data, audio_root), Path(config).stem, mode, out, limit, shard, report)


def _run_recordings(
    settings: CascadeConfig,
    recordings: Sequence[str],
    mode: ModeName,
    texts: Sequence[str],
    out: Path | None,
    report: Path | None,
) -> None:
    from cascade.answering.questions import question_of
    from cascade.output.report import plan_report
    from cascade.run import Done, Failed
    from cascade.run import run as run_all
    from cascade.types import Mode

    questions = [question_of(text) for text in texts]
    if report is not None:
        plan_report(report)
    results = list[Done | Failed]()
    progress = _Progress()
    asked_for = Mode(mode.value)
    kept = report is not None
    try:
        for result in run_all(
            settings,
            recordings,
            questions,
            mode=asked_for,
            out=out,
            watch=progress.watch,
            kept=kept,
        ):
            progress.stop()
            _show(result)
            results.append(result)
    except KeyboardInterrupt:
        progress.stop()
        _report_recordings(report, results)
        _show_spent(results)
        notes.print("stopped; the recordings that were finished are kept")
        raise typer.Exit(INTERRUPTED) from None
    finally:
        progress.stop()
    _report_recordings(report, results)
    _show_spent(results)
    _warn_of_age(settings)
    failed = sum(isinstance(result, Failed) for result in results)
    unanswered = sum(isinstance(result, Done) and bool(result.unanswered) for result in results)
    if len(results) < len(recordings):
        left = f"{len(recordings) - len(results)} of {len(recordings)}"
        notes.print(f"error: stopped: nothing more is answered; {left} recordings were not heard")
    if unanswered and out is not None:
        notes.print(
            f"error: {unanswered} of {len(recordings)} recordings lack answers; their transcripts are kept: for the "
            "answers, give these recordings again, with another --out"
        )
    raise typer.Exit(UNUSABLE if failed == len(recordings) else SOME_FAILED if failed or unanswered else 0)


def _warn_of_age(settings: CascadeConfig) -> None:
    from cascade.enrolling import old_enrolment

    for warning in old_enrolment(settings, date.today()):
        notes.print(f"warning: {_plain(warning)}")


def _show_spent(results: Sequence[Done | Failed]) -> None:
    from cascade.answering.spending import total_of

    spent = total_of(result.heard.spent for result in results if result.heard is not None)
    if spent:
        screen.print(f"answers: {spent}")


def _show_prompts(settings: CascadeConfig, mode: ModeName | None, limit: int | None, shard: str | None) -> None:
    """Show what the first item of a benchmark would send in each mode; nothing is heard."""
    from cascade.shbench.plan import Shard, example
    from cascade.types import Mode, Transcript

    if settings.answerer is None:
        return
    answerer = settings.answerer.load()
    part = None if shard is None else Shard.of(shard)
    for asked_in in tuple(Mode) if mode is None else (Mode(mode.value),):
        item, question = example(settings, asked_in, limit=limit, shard=part)
        request = json.loads(answerer.answer(question, Transcript()).text)
        (message,) = request.pop("messages")
        screen.print(f"--- {asked_in} mode, the first question on {_plain(item.audio)}")
        for line in str(message["content"]).splitlines():
            screen.print(_plain(line))
        screen.print(f"--- with it goes: {_plain(json.dumps(request))}")


def _report_recordings(report: Path | None, results: Sequence[Done | Failed]) -> None:
    if report is not None and results:
        from cascade.output.report import write_report
        from cascade.reporting.recordings import recordings_page

        write_report(report, recordings_page(results))
        screen.print(f"the report is {_plain(str(report))}")


def _run_benchmark(
    settings: CascadeConfig,
    name: str,
    mode: ModeName | None,
    out: Path | None,
    limit: int | None,
    shard: str | None,
    report: Path | None,
) -> None:
    from cascade.output.report import plan_report, write_report
    from cascade.reporting.benchmark import benchmark_page
    from cascade.shbench.plan import Shard, make_plan
    from cascade.shbench.results import run_plan
    from cascade.types import Mode

    modes = tuple(Mode) if mode is None else (Mode(mode.value),)
    part = None if shard is None else Shard.of(shard)
    plan = make_plan(settings, name, modes=modes, limit=limit, shard=part)
    if report is not None:
        plan_report(report)
    progress = _BenchmarkProgress()
    try:
        results = run_plan(plan, out, progress)
    except KeyboardInterrupt:
        progress.stop()
        notes.print(f"stopped; {_kept(out)}")
        raise typer.Exit(INTERRUPTED) from None
    finally:
        progress.stop()
    _show_results(results, out)
    _warn_of_age(settings)
    if report is not None:
        write_report(report, benchmark_page(plan, results))
        screen.print(f"the report is {_plain(str(report))}")
    if results.failed:
        notes.print(
            f"error: {len(results.failed)} recordings or questions failed and are not in the scores; "
            "the same command tries them again"
        )
    if results.stopped is not None:
        notes.print(f"error: stopped: {_plain(str(results.stopped))}; {_kept(out)}")
    raise typer.Exit(SOME_FAILED if results.failed or results.stopped else 0)


def _kept(out: Path | None) -> str:
    """Say what a run leaves that was stopped."""
    return (
        "nothing was kept, since there is no --out"
        if out is None
        else "what was answered is kept; the same command goes on"
    )


@app.command()
def merge(
    shards: Annotated[list[Path], typer.Argument(help="The --out folders of all --shard runs.")],
    out: Annotated[Path, typer.Option(help="Folder for the whole run.")],
) -> None:
    """Put the shards of one benchmark run together, as if it had been run whole."""
    from cascade.shbench.results import merge as merge_shards

    _show_results(merge_shards(shards, out), out)


@app.command()
def score(
    files: Annotated[
        list[Path],
        typer.Argument(help="Prediction files in SH-Bench's format (.json, .json.gz).", exists=True, dir_okay=False),
    ],
    mode: Annotated[
        list[ModeName] | None,
        typer.Option(help="In place of what file names tell: for all files, or once for each in their order."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Says that all files are of one system, and names it.")] = None,
    data: Annotated[Path | None, typer.Option(help="The benchmark's questions, to find missing ones.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for scores.json, scores.md, items.jsonl, figure 4.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print scores.json instead of a table.")] = False,
) -> None:
    """Score predictions of any system: accuracies with intervals, Selective Efficacy, what is wrong with the files."""
    from cascade.shbench.audit import Kind
    from cascade.shbench.results import score_predictions, write_scores
    from cascade.types import Mode

    modes = None if mode is None else [Mode(one.value) for one in mode]
    scores = score_predictions(files, modes, name, data)
    if out is not None:
        write_scores(out, scores)
    if as_json:
        screen.print(json.dumps(scores.as_dict(), indent=2))
    else:
        _show_scores(scores.as_dict())
    if out is not None and not as_json:
        screen.print(f"written to {_plain(str(out))}")
    unscored = [finding for finding in scores.audit if finding.kind is Kind.MODE_UNKNOWN]
    if as_json:
        for finding in unscored:
            notes.print(f"error: {_plain(finding.file)}: {_plain(finding.detail)}")
    raise typer.Exit(SOME_FAILED if unscored else 0)


@app.command()
def check(
    config: ConfigOption,
    recordings: Annotated[list[str] | None, typer.Argument(help="Estimate time and memory for these.")] = None,
    data: Annotated[Path | None, typer.Option(help="Estimate them for the benchmark of these questions.")] = None,
    audio_root: AudioRootOption = None,
    limit: LimitOption = None,
    shard: ShardOption = None,
) -> None:
    """Show the chain of a configuration, and what is missing to run it; exit code 1 if something is."""
    from cascade.check import examine, unheard
    from cascade.config import load_config
    from cascade.errors import ConfigError

    settings = load_config(config)
    if data is None and (audio_root, limit, shard) != (None, None, None):
        raise ConfigError("--audio-root, --limit and --shard are for a benchmark; name its questions with --data")
    if data is not None and recordings:
        raise ConfigError("recordings and a benchmark (--data) were given; leave one of them out")
    heard: Sequence[Path | str] = recordings or ()
    if data is not None:
        from cascade.shbench.plan import Shard, what_is_heard

        part = None if shard is None else Shard.of(shard)
        heard = what_is_heard(settings.with_benchmark(data, audio_root), limit=limit, shard=part)
    report = examine(settings, heard)
    report = replace(report, problems=(*report.problems, *unheard(heard)))
    _show_report(report)
    if not settings.gated:
        screen.print(NO_GATE)
    raise typer.Exit(SOME_FAILED if report.problems else 0)


@app.command()
def enrol(
    recordings: Annotated[list[Path], typer.Argument(help="Recordings of one person alone; about 10 s of speech.")],
    name: Annotated[str, typer.Option(help="What to keep the enrolment under.")],
    config: ConfigOption = "ondevice.yaml",
    replaces: Annotated[bool, typer.Option("--replace", help="Put it in the place of one that is kept.")] = False,
) -> None:
    """Hear somebody alone and keep the voice's embedding under a name, for --enrolment; never the audio.

    It is of use with configurations that have the same speaker encoder.
    """
    from cascade.config import load_config
    from cascade.enrolling import enrol as enrol_voice
    from cascade.output.enrolments import read

    path = enrol_voice(load_config(config), recordings, name, replace=replaces, today=date.today())
    screen.print(f"enrolled {name} ({read(path)})")
    screen.print(f"the embedding, and nothing of the audio, is in {_plain(str(path))}")


@app.command()
def enrolled() -> None:
    """List the enrolments that are kept; exit code 1 if one of them cannot be used."""
    from cascade.enrolling import listed
    from cascade.errors import EnrolmentError
    from cascade.output.enrolments import Enrolments

    store = Enrolments.usual()
    rows, unusable = list[tuple[str, str, str, str]](), list[EnrolmentError]()
    for name, kept in listed(store):
        if isinstance(kept, EnrolmentError):
            unusable.append(kept)
        else:
            rows.append((name, kept.encoder.name, str(kept.made), f"{kept.speech_s:.1f} s"))
    if rows:
        _print_table(("name", "encoder", "made", "speech"), rows)
    for problem in unusable:
        notes.print(f"error: {_plain(str(problem))}")
    if not rows and not unusable:
        screen.print(f"nobody is enrolled in {_plain(str(store.folder))}")
    raise typer.Exit(SOME_FAILED if unusable else 0)


@app.command()
def forget(name: Annotated[str, typer.Argument(help="A kept enrolment.")]) -> None:
    """Delete an enrolment that is kept."""
    from cascade.output.enrolments import Enrolments

    for path in Enrolments.usual().forget(name):
        screen.print(f"deleted {_plain(str(path))}")


ModelNames = Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Models; none: all.")]
ModelConfig = Annotated[str | None, typer.Option("--config", "-c", help="All models of a configuration.")]


@models_app.command("list")
def list_models() -> None:
    """List the models, where they come from, and whether they are here."""
    from cascade.manifests import glance, manifests, worst

    rows = [
        (name, worst(glance(manifest)), manifest.shown_size, manifest.licence, manifest.carrier, manifest.source)
        for name, manifest in manifests().items()
    ]
    _print_table(("model", "state", "size", "licence", "comes with", "source"), rows)


@models_app.command("pull")
def pull_models(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Models; or those of a configuration, by --config.")
    ] = None,
    config: ModelConfig = None,
    source: Annotated[Path | None, typer.Option("--from", help="Take the files from this folder; fetch none.")] = None,
) -> None:
    """Fetch models, or take them from a folder; goes on where it was stopped. Exit code 1 if one could not be had."""
    from cascade.errors import ConfigError
    from cascade.pull import NotPulled, carry_in, pull

    if not names and config is None:
        raise ConfigError("name models (see: python -m cascade models list), or a configuration with --config")
    chosen = _chosen(names, config)
    failed = 0
    for result in carry_in(chosen, source) if source else pull(chosen, watch=_downloading):
        if isinstance(result, NotPulled):
            failed += 1
            for line in str(result.error).splitlines():
                notes.print(f"error: {_plain(line)}")
        else:
            screen.print(
                f"{result.name}: {', '.join(result.fetched) or 'all was here'} in {_plain(str(result.folder))}"
            )
            for line in result.lines:
                screen.print(f"  {_plain(line)}")
    raise typer.Exit(SOME_FAILED if failed else 0)


@models_app.command("verify")
def verify_models(names: ModelNames = None, config: ModelConfig = None) -> None:
    """Compare models' files with their sha256; exit code 1 if one differs, or is missing of a model that is here.

    ok: as its manifest says; recorded: the manifest pins no sha256, and it is the file that the first pull found.
    """
    from cascade.manifests import State, verify

    wrong = 0
    for manifest in _chosen(names, config):
        files = verify(manifest)
        if not (names or config) and not manifest.comes_installed and {state for _, state in files} == {State.MISSING}:
            screen.print(f"{State.MISSING:<10} {manifest.name}")
            continue
        for file, state in files:
            screen.print(f"{state:<10} {manifest.name}  {file}")
            wrong += not state.right
    raise typer.Exit(SOME_FAILED if wrong else 0)


@models_app.command("path")
def model_path(name: Annotated[str, typer.Argument(help="A model.")]) -> None:
    """Print the folder of a model's files; an error with what to do if they are not here."""
    from cascade.manifests import folder_of

    print(folder_of(name))


def _chosen(names: Sequence[str] | None, config: str | None) -> Iterable[Manifest]:
    """Return the manifests of the models that are meant; neither names nor a configuration means all."""
    from cascade.config import load_config
    from cascade.manifests import manifests, models_of, named

    of_config = models_of(load_config(config)) if config else {}
    return {**of_config, **named(names or ())}.values() if names or config else manifests().values()


def _downloading(file: str, done: int, total: int | None) -> None:
    """Show how far a download is, on a terminal."""
    if notes.is_terminal:
        whole = f" of {total / 1e6:.0f}" if total else ""
        notes.print(f"{_plain(file)}: {done / 1e6:.0f}{whole} MB", end="\r")


def main() -> None:
    """Run the command line; a user's mistake is one line on standard error and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # an old terminal's encoding must not cost a transcript
    try:
        app()
    except CascadeError as error:
        for line in str(error).splitlines():
            notes.print(f"error: {_plain(line)}")
        sys.exit(UNUSABLE)
    except OSError as error:
        with suppress(OSError):
            what = "the output cannot be written" if error.filename is None else f"'{error.filename}' cannot be used"
            notes.print(_plain(f"error: {what}: {error.strerror or error}"))
        sys.exit(UNUSABLE)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


class _Notes(logging.Handler):
    """Puts a line to standard error for each warning, above the progress bar where there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        notes.print(f"{record.levelname.lower()}: {_plain(record.getMessage())}")


class _Progress:
    """How far a recording is heard: a bar on a terminal, a line every minute of audio elsewhere."""

    EVERY_S = 60.0

    def __init__(self) -> None:
        self._bar: Progress | None = None
        self._said_s = 0.0

    def watch(self, recording: str, chunk: AudioChunk) -> None:
        """Show that a chunk was heard."""
        heard_s = chunk.span.end_s
        if not notes.is_terminal:
            if heard_s - self._said_s >= self.EVERY_S:
                self._said_s = heard_s
                notes.print(f"{_plain(Path(recording).name)}: {heard_s:.0f} s heard")
            return
        if self._bar is None:
            self._bar = self._started(recording)
        self._bar.update(self._bar.task_ids[0], completed=heard_s)

    def stop(self) -> None:
        """Take the bar away: the recording is finished, and what is printed next stands in its place."""
        if self._bar is not None:
            self._bar.stop()
        self._bar, self._said_s = None, 0.0

    def _started(self, recording: str) -> Progress:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        from cascade.audio import announced_duration_s

        bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.completed:.0f} s"),
            TimeRemainingColumn(),
            console=notes,
            transient=True,
            redirect_stdout=False,
        )
        bar.add_task(_plain(Path(recording).name), total=announced_duration_s(recording))
        bar.start()
        return bar


class _BenchmarkProgress:
    """How far a benchmark is, with the time that is left: a bar on a terminal, a line now and then elsewhere."""

    EVERY_S = 30.0

    def __init__(self) -> None:
        self._bar: Progress | None = None
        self._began_s = self._said_s = time.monotonic()

    def progress(self, behind_s: float, total_s: float) -> None:
        """Show how many seconds of audio are behind, of how many."""
        now_s = time.monotonic()
        if notes.is_terminal:
            self._bar = self._bar or self._started()
            self._bar.update(self._bar.task_ids[0], completed=behind_s, total=total_s)
        elif behind_s and now_s - self._said_s >= self.EVERY_S:
            self._said_s = now_s
            left_s = (now_s - self._began_s) * (total_s - behind_s) / behind_s
            notes.print(f"{behind_s:.0f} of {total_s:.0f} s of audio heard, about {_clock(left_s)} left")

    def failed(self, failed: running.Failed) -> None:
        """Say at once that something failed, above the bar."""
        notes.print(f"error: {_plain(failed.recording)}: {_plain(str(failed.error))}")

    def stop(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
        self._bar = None

    def _started(self) -> Progress:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        bar = Progress(
            TextColumn("benchmark"),
            BarColumn(),
            TextColumn("{task.completed:.0f} of {task.total:.0f} s of audio"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=notes,
            transient=True,
            redirect_stdout=False,
        )
        bar.add_task("benchmark")
        bar.start()
        return bar


def _clock(duration_s: float) -> str:
    minutes, seconds = divmod(round(duration_s), 60)
    return f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"


def _plain(text: str) -> str:
    """Return text from outside as one line that cannot steer a terminal."""
    from cascade.rendering import one_line

    return one_line(text)


def _plain_lines(text: str) -> list[str]:
    """Return the lines of a text from outside that are not empty, as they can be shown one below the other, indented.

    Whoever wrote it can then neither steer a terminal nor make a line look like one of ours. A long indent is cut,
    since with one a line's words would stand at the beginning of the terminal's next line.
    """
    lines = [(line, _plain(line)) for line in text.splitlines()]
    return [" " * min(INDENT, len(line) - len(line.lstrip(" "))) + plain for line, plain in lines if plain]


def _show(result: Done | Failed) -> None:
    from cascade.run import Failed

    if result.heard is not None:
        _show_heard(result.recording, result.heard)
    if isinstance(result, Failed):
        name = "" if result.recording in str(result.error) else f"{_plain(result.recording)}: "
        notes.print(f"error: {name}{_plain(str(result.error))}")
        return
    if result.folder is not None:
        screen.print(f"  written to {_plain(str(result.folder))}")
    for why, count in Counter(map(str, result.unanswered)).items():
        asked = len(result.unanswered) + len(result.heard.answers)
        notes.print(f"error: {_plain(result.recording)}: {count} of {asked} questions have no answer: {_plain(why)}")


def _show_heard(recording: str, heard: Heard) -> None:
    from cascade.rendering import transcript_lines

    screen.print(f"{_plain(recording)} ({heard.mode}, {_plain(heard.provenance.config.main_speaker)})")
    for line in transcript_lines(heard.transcript):
        screen.print(f"  {line}")
    for question, answer in heard.answers:
        screen.print(f"  Q: {_plain(question.text)}")
        for start, line in zip(chain(["A:"], repeat("  ")), _plain_lines(answer.text) or [""], strict=False):
            screen.print(f"  {start} {line}")
        if answer.why and answer.why != answer.text:
            screen.print(f"     since: {_plain(answer.why)}")
    screen.print(f"  {heard.totals}")


def _show_results(results: Results, out: Path | None) -> None:
    if results.moved is not None:
        notes.print(f"the folder held another run; its files are in {_plain(str(results.moved))} now")
    _show_scores(results.scores.as_dict())
    for line in (results.asked, *results.lines):
        screen.print(_plain(line))
    if out is not None:
        screen.print(f"written to {_plain(str(out))}")


def _show_scores(scores: Mapping[str, Any]) -> None:
    from cascade.shbench.paper import load_paper
    from cascade.shbench.screen import audit_lines, screen_table

    for line in screen_table(scores, load_paper()):
        screen.print(line)
    for line in audit_lines(scores):
        notes.print(f"note: {line}")


def _print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns as wide as their contents: lines that a terminal wraps can still be read, cut ones cannot."""
    lines = [[_plain(cell) for cell in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for row in lines:
        screen.print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _show_report(report: Report) -> None:
    _print_table(("stage", "takes -> gives", "lookahead", "extra", "models"), [row.cells for row in report.rows])
    screen.print(f"lookahead of the chain: {report.lookahead}")
    screen.print(", ".join(f"{package} {version}" for package, version in report.versions.items()))
    for note in report.notes:
        screen.print(_plain(note))
    if report.estimate is not None:
        screen.print(f"estimated: {report.estimate}")
    for problem in report.problems:
        screen.print(f"missing: {_plain(str(problem))}")
    if not report.problems:
        screen.print("everything is here")
