"""argv -> one call each; no logic. What the commands need is imported by the commands, so that --help is quick."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from cascade.errors import CascadeError

if TYPE_CHECKING:
    from rich.progress import Progress

    from cascade.check import Report
    from cascade.output.recordings import Heard
    from cascade.run import Done, Failed
    from cascade.types import AudioChunk

SOME_FAILED = 1
"""Exit code when some recordings were done and others were not, or when `check` or `verify` finds something missing."""

UNUSABLE = 2
"""Exit code when nothing could be done with what was given."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""

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

screen = Console(highlight=False, markup=False, soft_wrap=True)
notes = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


class ModeName(StrEnum):
    """Values of --mode: cascade.types.Mode, without what that imports."""

    SELECTIVE = "selective"
    GENERAL = "general"


ConfigOption = Annotated[str, typer.Option("--config", "-c", help="A YAML file, or the name of one in configs/.")]


@app.callback()
def _app() -> None:
    """Log what went wrong, a line each, to standard error."""
    logging.getLogger("cascade").addHandler(_Notes())


@app.command()
def run(
    config: ConfigOption,
    recordings: Annotated[list[str], typer.Argument(help="Audio files of any format; - reads standard input.")],
    mode: Annotated[
        ModeName, typer.Option(help="selective: the main speaker only. general: everyone, labelled.")
    ] = ModeName.SELECTIVE,
    enrolment: Annotated[
        list[Path] | None,
        typer.Option(help="The main speaker alone, 5 to 10 s; repeatable. Without it: the dominant speaker."),
    ] = None,
    question: Annotated[list[str] | None, typer.Option(help="Asked about each recording; repeatable.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the outputs. Without it nothing is written.")] = None,
) -> None:
    """Hear recordings, keep what the main speaker said, print the transcript, and answer from it."""
    from cascade.answering import question_of
    from cascade.config import load_config
    from cascade.run import Failed
    from cascade.run import run as run_all
    from cascade.types import Mode

    settings = load_config(config)
    if enrolment:
        settings = settings.with_enrolment(enrolment)
    questions = [question_of(text) for text in question or ()]
    if not settings.gated:
        notes.print(NO_GATE)
    failed = 0
    progress = _Progress()
    try:
        for result in run_all(settings, recordings, questions, mode=Mode(mode.value), out=out, watch=progress.watch):
            progress.stop()
            _show(result)
            failed += isinstance(result, Failed)
    except KeyboardInterrupt:
        progress.stop()
        notes.print("stopped; the recordings that were finished are kept")
        raise typer.Exit(INTERRUPTED) from None
    finally:
        progress.stop()
    raise typer.Exit(0 if not failed else UNUSABLE if failed == len(recordings) else SOME_FAILED)


@app.command()
def check(config: ConfigOption) -> None:
    """Show the chain of a configuration, and what is missing to run it; exit code 1 if something is."""
    from cascade.check import examine
    from cascade.config import load_config

    settings = load_config(config)
    report = examine(settings)
    _show_report(report)
    if not settings.gated:
        screen.print(NO_GATE)
    raise typer.Exit(SOME_FAILED if report.problems else 0)


@models_app.command("list")
def list_models() -> None:
    """List the models, where they come from, and whether they are here."""
    from cascade.manifests import locate, manifests

    rows = [
        (
            name,
            "yes" if locate(manifest) else "no",
            f"{manifest.size / 1e6:.1f} MB",
            manifest.licence,
            manifest.package.distribution,
            manifest.source,
        )
        for name, manifest in manifests().items()
    ]
    _print_table(("model", "here", "size", "licence", "in the package", "source"), rows)


@models_app.command("verify")
def verify_models() -> None:
    """Compare each model's files with the sha256 in its manifest; exit code 1 if one differs or is missing."""
    from cascade.manifests import manifests, verify

    wrong = 0
    for name, manifest in manifests().items():
        for file, state in verify(manifest):
            screen.print(f"{state:<8} {name}  {file}")
            wrong += state != "ok"
    raise typer.Exit(SOME_FAILED if wrong else 0)


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
            notes.print(f"error: the output cannot be written: {error.strerror}")
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


def _plain(text: str) -> str:
    """Return text from outside as one line that cannot steer a terminal."""
    from cascade.rendering import one_line

    return one_line(text)


def _show(result: Done | Failed) -> None:
    from cascade.run import Failed

    if result.heard is not None:
        _show_heard(result.recording, result.heard)
    if isinstance(result, Failed):
        name = "" if result.recording in str(result.error) else f"{_plain(result.recording)}: "
        notes.print(f"error: {name}{_plain(str(result.error))}")
    elif result.folder is not None:
        screen.print(f"  written to {_plain(str(result.folder))}")


def _show_heard(recording: str, heard: Heard) -> None:
    from cascade.rendering import transcript_lines

    gate = "" if heard.provenance.config.gated else ", no gate"
    screen.print(f"{_plain(recording)} ({heard.mode}{gate})")
    for line in transcript_lines(heard.transcript):
        screen.print(f"  {line}")
    for question, answer in heard.answers:
        screen.print(f"  Q: {_plain(question.text)}")
        screen.print(f"  A: {answer.text}")
        if answer.why and answer.why != answer.text:
            screen.print(f"     since: {answer.why}")
    screen.print(f"  {heard.totals}")
    if heard.undecided and not heard.totals.admitted_s:
        screen.print("  nobody dominated, so nobody was let through; tell whom to hear with --enrolment")


def _print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns as wide as their contents: lines that a terminal wraps can still be read, cut ones cannot."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        screen.print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _show_report(report: Report) -> None:
    _print_table(("stage", "takes -> gives", "lookahead", "extra", "models"), [row.cells for row in report.rows])
    whole = "the whole recording" if report.lookahead_s is None else f"{report.lookahead_s:.2f} s"
    screen.print(f"lookahead of the chain: {whole}")
    screen.print(", ".join(f"{package} {version}" for package, version in report.versions.items()))
    for problem in report.problems:
        screen.print(f"missing: {problem}")
    if not report.problems:
        screen.print("everything is here")
