"""argv -> one call each; no logic. What the commands need is imported by the commands, so that --help is quick."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from cascade.errors import CascadeError

if TYPE_CHECKING:
    from cascade.check import Report
    from cascade.run import Done, Failed
    from cascade.types import Answer, AudioChunk, Question

SOME_FAILED = 1
"""Exit code when some recordings were done and others were not, or when `check` or `verify` finds something missing."""

UNUSABLE = 2
"""Exit code when nothing could be done with what was given."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""

app = typer.Typer(
    help="A streaming privacy filter for speech: only what the main speaker said goes on.",
    no_args_is_help=True,
    add_completion=False,
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
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    logging.getLogger("cascade").addHandler(handler)


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
    failed = 0
    with _Progress() as progress:
        for result in run_all(settings, recordings, questions, mode=Mode(mode.value), out=out, watch=progress.watch):
            progress.done()
            _show(result)
            failed += isinstance(result, Failed)
    raise typer.Exit(0 if not failed else UNUSABLE if failed == len(recordings) else SOME_FAILED)


@app.command()
def check(config: ConfigOption) -> None:
    """Show the chain of a configuration, and what is missing to run it; exit code 1 if something is."""
    from cascade.check import examine
    from cascade.config import load_config

    report = examine(load_config(config))
    _show_report(report)
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
    with _one_line_errors():
        app()


@contextmanager
def _one_line_errors() -> Iterator[None]:
    try:
        yield
    except CascadeError as error:
        notes.print(f"error: {error}")
        sys.exit(UNUSABLE)
    except KeyboardInterrupt:
        notes.print("stopped; the recordings that were finished are kept")
        sys.exit(INTERRUPTED)


class _Progress:
    """How far a recording is heard: a bar on a terminal, a line every minute of audio elsewhere."""

    EVERY_S = 60.0

    def __init__(self) -> None:
        from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.completed:.0f} s"),
            TimeRemainingColumn(),
            console=notes,
            transient=True,
            disable=not notes.is_terminal,
        )
        self._task: TaskID | None = None
        self._said_s = 0.0

    def __enter__(self) -> _Progress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def watch(self, recording: str, chunk: AudioChunk) -> None:
        """Show that a chunk was heard."""
        if self._task is None:
            from cascade.audio import announced_duration_s

            self._task = self._bar.add_task(Path(recording).name, total=announced_duration_s(recording))
            self._said_s = 0.0
        self._bar.update(self._task, completed=chunk.span.end_s)
        if not notes.is_terminal and chunk.span.end_s - self._said_s >= self.EVERY_S:
            self._said_s = chunk.span.end_s
            notes.print(f"{Path(recording).name}: {chunk.span.end_s:.0f} s heard")

    def done(self) -> None:
        """Take the bar away: the recording is finished."""
        if self._task is not None:
            self._bar.remove_task(self._task)
            self._task = None


def _show(result: Done | Failed) -> None:
    from cascade.rendering import transcript_lines
    from cascade.run import Failed

    if isinstance(result, Failed):
        notes.print(f"error: {result.error}")
        return
    heard = result.heard
    screen.print(f"{result.recording} ({heard.mode})")
    for line in transcript_lines(heard.transcript):
        screen.print(f"  {line}")
    for question, answer in heard.answers:
        _show_answer(question, answer)
    screen.print(f"  {heard.totals}")
    if result.folder is not None:
        screen.print(f"  written to {result.folder}")


def _show_answer(question: Question, answer: Answer) -> None:
    screen.print(f"  Q: {question.text}")
    screen.print(f"  A: {answer.text}")
    if answer.why and answer.why != answer.text:
        screen.print(f"     since: {answer.why}")


def _print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns as wide as their contents: lines that a terminal wraps can still be read, cut ones cannot."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        screen.print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _show_report(report: Report) -> None:
    _print_table(("stage", "takes -> gives", "lookahead", "extra", "models"), [row.cells for row in report.rows])
    screen.print(", ".join(f"{package} {version}" for package, version in report.versions.items()))
    for problem in report.problems:
        screen.print(f"missing: {problem}")
    if not report.problems:
        screen.print("everything is here")
