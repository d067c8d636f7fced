"""Speed and memory of SepFormer at its full size, in windows and in one pass.

    python benchmarks/separation.py [SECONDS...] [--rate 8000] [--threads N] [--limit-gb 12]

The network is the published one (26 million parameters, hyperparameters of sepformer-wsj02mix) with random weights: its
speed and memory do not depend on what they are. Each row runs in a process of its own; a process that asks for more
memory than the limit is refused it, so that the machine stays up. The exit status is 1 where a row failed, for that or
another reason, which stands in it. Compare rows only within one run: they depend on what else the machine does (load:
its load average when the row was done).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import installed  # noqa: F401
import numpy as np
from whole import stoppable

from cascade.backends import sepformer
from cascade.errors import CascadeError, MissingExtraError
from cascade.separation import Separator
from cascade.types import SAMPLE_RATE, AudioChunk, Samples, Span, seconds

BLOCK = """
  num_layers: 8
  d_model: 256
  nhead: 8
  d_ffn: 1024
  dropout: 0
  use_positional_encoding: true
  norm_before: true
"""

HYPERPARAMETERS = f"""
sample_rate: RATE
num_spks: 2
Encoder: !new:speechbrain.lobes.models.dual_path.Encoder
  kernel_size: 16
  out_channels: 256
Within: !new:speechbrain.lobes.models.dual_path.SBTransformerBlock{BLOCK}
Across: !new:speechbrain.lobes.models.dual_path.SBTransformerBlock{BLOCK}
MaskNet: !new:speechbrain.lobes.models.dual_path.Dual_Path_Model
  num_spks: 2
  in_channels: 256
  out_channels: 256
  num_layers: 2
  K: 250
  intra_model: !ref <Within>
  inter_model: !ref <Across>
  norm: ln
  linear_layer_after_inter_intra: false
  skip_around_intra: true
Decoder: !new:speechbrain.lobes.models.dual_path.Decoder
  in_channels: 256
  out_channels: 1
  kernel_size: 16
  stride: 8
  bias: false
modules:
  encoder: !ref <Encoder>
  masknet: !ref <MaskNet>
  decoder: !ref <Decoder>
pretrainer: !new:speechbrain.utils.parameter_transfer.Pretrainer
  loadables:
    encoder: !ref <Encoder>
    masknet: !ref <MaskNet>
    decoder: !ref <Decoder>
"""
"""Of the published models; sepformer-whamr16k's differ in the sample rate only."""

LINE = "{:>8}  {:9} {:>6} {:>9} {:>12} {:>5}  {}"
"""Columns; load is the machine's load average over the last minute, once the row is known."""


@dataclass(frozen=True, slots=True)
class Row:
    """One way of separating one length: what it took, or why it did not work."""

    wall_s: float
    peak_mb: float
    problem: str = ""


def save_model(folder: Path, rate: int) -> None:
    """Write a SepFormer with random weights in speechbrain's format."""
    import torch
    from hyperpyyaml import load_hyperpyyaml  # type: ignore[import-not-found, import-untyped, unused-ignore]

    text = HYPERPARAMETERS.replace("RATE", str(rate))
    (folder / sepformer.HYPERPARAMETERS).write_text(text, encoding="utf-8")
    torch.manual_seed(0)
    modules: dict[str, Any] = load_hyperpyyaml(text)["modules"]
    for name in sepformer.NETWORKS:
        torch.save(modules[name].state_dict(), folder / f"{name}.ckpt")


def noise(n_samples: int) -> Samples:
    """Return something to separate (n_samples,)."""
    return (0.1 * np.random.default_rng(0).standard_normal(n_samples)).astype(np.float32)


def in_windows(model: sepformer.SepFormer, duration_s: float, batch: int) -> None:
    """Separate by the stage, as a stream in chunks of 1 s."""
    stage = Separator(model, rate=model.rate, n_sources=model.n_sources, batch=batch)
    audio, given = noise(seconds(duration_s)), 0
    for start in range(0, len(audio), SAMPLE_RATE):
        piece = audio[start : start + SAMPLE_RATE]
        given += sum(len(out.span) for out in stage.push(AudioChunk(Span(start, start + len(piece)), piece)))
    given += sum(len(out.span) for out in stage.flush())
    if given != len(audio):
        raise ValueError(f"{given} samples came out of {len(audio)}")


def in_one_pass(model: sepformer.SepFormer, duration_s: float) -> None:
    """Separate by one call of the model on the whole recording."""
    model(noise(round(duration_s * model.rate))[None])


def measure(folder: Path, way: str, duration_s: float, threads: int, limit_gb: float) -> Row:
    """Separate once in this process; memory beyond the limit is refused to it."""
    resource.setrlimit(resource.RLIMIT_DATA, (round(limit_gb * 2**30),) * 2)
    model = sepformer.load(folder, threads=threads)
    began = time.perf_counter()
    problem = ""
    try:
        in_one_pass(model, duration_s) if way == "one pass" else in_windows(model, duration_s, batch=1)
    except (RuntimeError, MemoryError) as error:  # torch's, for sizes that do not fit and for memory refused
        problem = " ".join(str(error).split())[:100]
    return Row(time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, problem)


def measured(folder: Path, way: str, duration_s: float, threads: int, limit_gb: float) -> Row:
    """Separate once in a process of its own."""
    command = [sys.executable, __file__, str(duration_s), "--way", way, "--folder", str(folder)]
    command += ["--threads", str(threads), "--limit-gb", str(limit_gb)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines()[-1:] or ["killed"]
        return Row(0.0, 0.0, f"exit {done.returncode}: {said[0][:100]}")
    return Row(**json.loads(done.stdout))


def line_of(row: Row, way: str, duration_s: float) -> str:
    """Return a row as a line, in the columns of LINE."""
    shown = ("-", "-") if row.problem else (f"{row.wall_s / duration_s:.2f}", f"{row.wall_s:.1f} s")
    memory = f"{row.peak_mb:.0f} MB" if row.peak_mb else "-"
    return LINE.format(f"{duration_s:g}", way, *shown, memory, f"{os.getloadavg()[0]:.1f}", row.problem).rstrip()


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", nargs="*", type=float, default=[10.0, 60.0, 600.0], help="lengths to separate")
    parser.add_argument("--rate", type=int, default=8000, help="the model's sample rate, in Hz")
    parser.add_argument("--threads", type=int, default=0, help="threads that torch computes with; 0: its own choice")
    parser.add_argument("--limit-gb", type=float, default=12.0, help="memory that a row may use")
    parser.add_argument("--way", choices=["windows", "one pass"], help="this one only")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parsed = parser.parse_args(arguments)
    if not all(length > 0 for length in parsed.seconds) or parsed.limit_gb <= 0 or parsed.rate <= 0:
        parser.error("lengths, rate and limit must be above 0")
    return parsed


def measure_all(parsed: argparse.Namespace) -> bool:
    """Measure each way with each length; print each row as soon as it is known; return whether all of them worked."""
    worked = True
    print(LINE.format("seconds", "way", "RTF", "wall", "peak memory", "load", "").rstrip())
    with tempfile.TemporaryDirectory() as place:
        save_model(Path(place), parsed.rate)
        for duration_s in parsed.seconds:
            for way in [parsed.way] if parsed.way else ["windows", "one pass"]:
                row = measured(Path(place), way, duration_s, parsed.threads, parsed.limit_gb)
                print(line_of(row, way, duration_s), flush=True)
                worked = worked and not row.problem
    return worked


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns the exit status (1: a row failed, 2: the user can mend it)."""
    parsed = parse_arguments(arguments)
    try:
        if not parsed.folder:
            return 0 if measure_all(parsed) else 1
        row = measure(parsed.folder, parsed.way, parsed.seconds[0], parsed.threads, parsed.limit_gb)
        print(json.dumps(asdict(row)))
    except ModuleNotFoundError as error:
        print(f"separation.py: {MissingExtraError(error.name or 'torch', 'paper')}", file=sys.stderr)
        return 2
    except (ValueError, OSError, CascadeError) as error:
        print(f"separation.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(stoppable(Path(__file__), main))
