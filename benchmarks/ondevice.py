"""Speed, memory and latency of the on-device cascade.

    python benchmarks/ondevice.py speed RECORDING...          real-time factors, own time, beside faster-whisper alone
    python benchmarks/ondevice.py memory RECORDING HOURS...   peak memory on so many hours of it, repeated
    python benchmarks/ondevice.py live RECORDING...           delay and latency in chunks of 0.1 s
    python benchmarks/ondevice.py foreground RECORDING...     the stage `foreground` alone, on one and two threads
    python benchmarks/ondevice.py help                        time of `python -m cascade --help`

The first three take --enrolment FILE. Compare numbers only within one run: they depend on what else the machine does.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import installed  # noqa: F401
import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from cascade import Cascade, load_config, open_audio
from cascade.audio import read_audio
from cascade.backends import dvector, faster_whisper, silero
from cascade.config import CascadeConfig
from cascade.evidence import Evidence
from cascade.settings import ForegroundSettings
from cascade.stage import Chain
from cascade.types import SAMPLE_RATE, AudioChunk, Mode, Samples, Span

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)
console = Console()

EnrolmentOption = Annotated[Path | None, typer.Option(help="The main speaker alone.")]


class Stopwatch:
    """Adds up the time spent inside the functions that it wraps."""

    def __init__(self) -> None:
        self.spent_s = 0.0

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, timed."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.spent_s += time.perf_counter() - began

        return timed


def _config(enrolment: Path | None) -> CascadeConfig:
    config = load_config("ondevice.yaml")
    return config.with_enrolment([enrolment]) if enrolment else config


def _hear(cascade: Cascade, chunks: Iterator[AudioChunk]) -> float:
    """Return the seconds that listening took, decoding included."""
    began = time.perf_counter()
    for _ in cascade.listen(chunks):
        pass
    return time.perf_counter() - began


def _alone(samples: Samples) -> float:
    """Return the seconds that faster-whisper takes for the whole mixture by itself, with the cascade's settings."""
    from faster_whisper import WhisperModel

    from cascade.backends.faster_whisper import model_folder

    model = WhisperModel(str(model_folder("tiny.en")), device="cpu", compute_type="int8")
    began = time.perf_counter()
    segments, _ = model.transcribe(samples, language="en", beam_size=1, condition_on_previous_text=False)
    for _ in segments:
        pass
    return time.perf_counter() - began


def _time_models() -> Stopwatch:
    """Wrap what a stage calls a model: speech detector, encoder, the gate's network, recogniser, features included."""
    models = Stopwatch()
    for kind in (silero.SileroDetector, dvector.DVectorEncoder, Evidence, faster_whisper.Whisper):
        kind.__call__ = models.wrap(kind.__call__)  # type: ignore[method-assign]
    return models


@app.command()
def speed(recordings: list[Path], enrolment: EnrolmentOption = None) -> None:
    """Print real-time factors by stage, and how much of the wall time is spent outside the models."""
    models = _time_models()
    cascade = Cascade.load(_config(enrolment))
    table = Table("recording", "seconds", "RTF", "clustering", "ASR", "own time", "faster-whisper alone, RTF")
    for recording in recordings:
        models.spent_s = 0.0
        wall_s = _hear(cascade, open_audio(recording))
        performance = cascade.listening.performance
        table.add_row(
            f"{recording.parent.name}/{recording.name}",
            f"{performance.audio_s:.1f}",
            f"{wall_s / performance.audio_s:.3f}",
            f"{performance.stages_s['online_clustering'] / performance.audio_s:.3f}",
            f"{performance.stages_s['faster_whisper'] / performance.audio_s:.3f}",
            f"{100 * (1 - models.spent_s / wall_s):.1f} %",
            f"{_alone(read_audio(recording)) / performance.audio_s:.3f}",
        )
    console.print(table)


def _repeated(samples: Samples, hours: float) -> Iterator[AudioChunk]:
    """Yield a recording of so many hours in chunks of 0.1 s, by repeating samples (n_samples,)."""
    size, end = SAMPLE_RATE // 10, int(hours * 3600 * SAMPLE_RATE)
    twice = np.concatenate([samples, samples[:size]])
    for start in range(0, end - end % size, size):
        offset = start % len(samples)
        yield AudioChunk(Span(start, start + size), twice[offset : offset + size])


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@app.command()
def memory(recording: Path, hours: list[float], enrolment: EnrolmentOption = None) -> None:
    """Print the peak resident memory of the whole process for each length in hours, in one process after another."""
    table = Table("hours", "peak memory", "RTF")
    for length in hours:
        command = [sys.executable, __file__, "one-length", str(recording), str(length)]
        command += ["--enrolment", str(enrolment)] if enrolment else []
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        table.add_row(f"{length:g}", *done.stdout.split(";"))
    console.print(table)


@app.command(hidden=True)
def one_length(recording: Path, hours: float, enrolment: EnrolmentOption = None) -> None:
    """Print peak memory and real-time factor for one length; the command `memory` runs it."""
    cascade = Cascade.load(_config(enrolment))
    wall_s = _hear(cascade, _repeated(read_audio(recording), hours))
    print(f"{_peak_mb():.0f} MB;{wall_s / (hours * 3600):.3f}")


@app.command()
def live(recordings: list[Path], enrolment: EnrolmentOption = None) -> None:
    """Print how long after a turn's end the gate decided (delay), and its text came (latency, computing included)."""
    cascade = Cascade.load(_config(enrolment))
    title = f"lookahead {(cascade.lookahead or 0) / SAMPLE_RATE:.2f} s"
    table = Table("recording", "turns", "delay mean", "p95", "texts", "latency mean", "p95", title=title)
    for recording in recordings:
        _hear(cascade, open_audio(recording))
        performance = cascade.listening.performance
        cells = []
        for distribution in (performance.delay, performance.latency):
            cells += (
                ["0", "-", "-"]
                if distribution is None
                else [str(distribution.count), f"{distribution.mean_s:.2f} s", f"{distribution.p95_s:.2f} s"]
            )
        table.add_row(f"{recording.parent.name}/{recording.name}", *cells)
    console.print(table)


@app.command()
def foreground(recordings: list[Path]) -> None:
    """Print real-time factor and memory of the stage that tells foreground from background, its detector included."""
    table = Table("recording", "threads", "RTF", "peak memory", "before loading")
    for recording in recordings:
        for threads in (1, 2):
            command = [sys.executable, __file__, "one-foreground", str(recording), str(threads)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            table.add_row(f"{recording.parent.name}/{recording.name}", str(threads), *done.stdout.split(";"))
    console.print(table)


@app.command(hidden=True)
def one_foreground(recording: Path, threads: int) -> None:
    """Print real-time factor, peak memory and what of it was taken before; the command `foreground` runs it."""
    chunks = list(open_audio(recording))
    before_mb = _peak_mb()
    stage = ForegroundSettings(use="foreground", threads=threads).load(lambda: Chain([]))(Mode.GENERAL)
    began = time.perf_counter()
    for chunk in chunks:
        stage.push(chunk)
    stage.flush()
    rtf = (time.perf_counter() - began) / chunks[-1].span.end_s
    print(f"{rtf:.3f};{_peak_mb():.0f} MB;{before_mb:.0f} MB")


@app.command("help")
def help_time(times: int = 10) -> None:
    """Print the median time of `python -m cascade --help`."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "cascade", "--help"], check=True, stdout=subprocess.DEVNULL)
        taken.append(time.perf_counter() - began)
    console.print(f"python -m cascade --help: median {np.median(taken):.2f} s of {times}")


if __name__ == "__main__":
    app()
