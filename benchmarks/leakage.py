"""Measure what bystanders leak through the cascade, and what it keeps of the main speaker.

    python benchmarks/leakage.py SCENES_DIR [--no-enrolment | --both] [--threshold X] [--config ondevice.yaml]
                                            [--thresholds 0.3,0.5,0.7] [--plot FILE.svg] [--json FILE]
                                            [--overlap POLICY] [--true-sources DB]

SCENES_DIR holds recordings with references, RTTM and SegLST, as benchmarks/scenes.py makes them with --stems; all
layouts are in benchmarks/references.py. A recording without main.flac or enrolment.flac has a dash for what needs it.

    leakage, retention    words of the bystanders that passed, of the main speaker that did (cascade/scoring/leakage.py)
    word error rate       the main speaker's words against the transcript, by jiwer after Whisper's normalisation
    false accept          time in which only bystanders speak that passed the gate
    false withhold        time in which the main speaker speaks that did not
    diarization error     of the mixture's turns, by pyannote.metrics; overlap counted, collar 0.25 s a side
    delay                 audio heard after a turn's or a piece's end before the gate had decided on it, in 0.1 s chunks

Beside it, in the same run, the same speech recognition hears the mixture without a gate and the main speaker alone,
which is what a perfect gate and separator would hand it. --thresholds adds the privacy/utility curve, --plot draws it.
--true-sources tells what a separator is worth to the gate: main.flac and the rest of the mixture are the sources, each
with DB (-15, say) of the other in it. It goes with --overlap separate, and with a configuration with a foreground.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import installed  # noqa: F401
from hearing import Ears, Result, Setting, measure, with_overlap
from leakage_report import called, check_plot, curve_table, draw, in_setting, scene_table, summary_table, to_json
from references import read_scenes
from rich.console import Console
from rich.progress import track
from whole import check_place, stoppable, write_whole

from cascade.config import load_config
from cascade.errors import CascadeError
from cascade.manifests import check_models
from cascade.overlap import OverlapPolicy

CURVE: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Thresholds that --plot draws when none are given."""

FILE_WIDTH: Final = 160
"""Columns of the tables where they do not go to a terminal, which has a width of its own."""


def threshold_of(text: str) -> float:
    """Read a threshold; argparse says what is wrong with it."""
    try:
        threshold = float(text)
    except ValueError:
        threshold = -1.0
    if not 0 <= threshold <= 1:
        raise argparse.ArgumentTypeError(f"a threshold is a number from 0 to 1, got {text!r}")
    return threshold


def thresholds_of(text: str) -> tuple[float, ...]:
    """Read thresholds with commas between them."""
    return tuple(sorted({threshold_of(part) for part in text.split(",")}))


def decibels_of(text: str) -> float:
    """Read how loud what is left of one source is in another; argparse says what is wrong with it."""
    try:
        level_db = float(text)
    except ValueError:
        level_db = math.nan
    if not -200 <= level_db < 0:
        raise argparse.ArgumentTypeError(
            f"what is left in a source is softer than all of it, -15 (dB) say, got {text!r}"
        )
    return level_db


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; None means this process's own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("scenes", type=Path, metavar="SCENES_DIR", help="a folder of recordings with references")
    known = parser.add_mutually_exclusive_group()
    known.add_argument("--no-enrolment", action="store_true", help="let the gate find the dominant speaker")
    known.add_argument("--both", action="store_true", help="measure with enrolment and without")
    parser.add_argument("--threshold", type=threshold_of, help="least evidence that passes, in place of the gate's own")
    parser.add_argument("--thresholds", type=thresholds_of, metavar="X,Y", help="points of the privacy/utility curve")
    parser.add_argument("--config", default="ondevice.yaml", help="the cascade to measure (default: %(default)s)")
    policies = tuple(map(str, OverlapPolicy))
    parser.add_argument("--overlap", choices=policies, help="what goes on where two speak, in place of the gate's own")
    parser.add_argument(
        "--true-sources", type=decibels_of, metavar="DB", help="separate by the main speaker's own track"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the curve (.svg, .png or .pdf)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers down")
    return parser.parse_args(arguments)


def settings_of(parsed: argparse.Namespace) -> tuple[list[Setting], list[Setting]]:
    """Return the settings to report in full, and those of the curve."""
    enrolments = (True, False) if parsed.both else (not parsed.no_enrolment,)
    thresholds = parsed.thresholds or (CURVE if parsed.plot else ())
    full = [Setting(enrolled, parsed.threshold) for enrolled in enrolments]
    return full, [Setting(enrolled, threshold) for enrolled in enrolments for threshold in thresholds]


def check_files(parsed: argparse.Namespace) -> None:
    """Tell before anything is heard that a file cannot be written."""
    if parsed.plot is not None:
        check_plot(parsed.plot)
    for path in filter(None, (parsed.plot, parsed.json)):
        check_place(path)


def report(console: Console, results: Sequence[Result], parsed: argparse.Namespace) -> None:
    """Print the tables, and write what is asked for."""
    full, curve = settings_of(parsed)
    for setting in full:
        own, title = in_setting(results, setting), f"main speaker {called(setting)}"
        console.print(scene_table(own, f"Each recording, {title}"), summary_table(own, f"Means, {title}"))
    if curve:
        console.print(curve_table(results, curve))
    if parsed.plot is not None:
        draw(results, curve, parsed.plot)
    if parsed.json is not None:
        write_whole(parsed.json, to_json(results, parsed.config).encode())


def console_of(width: int | None) -> Console:
    """Return where tables go, as wide as that (None: as the terminal); names of folders are no markup in it."""
    return Console(width=width, markup=False, emoji=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns the exit status (2: the user can mend it)."""
    parsed = parse_arguments(arguments)
    console = console_of(None if sys.stdout.isatty() else FILE_WIDTH)
    try:
        check_files(parsed)
        scenes, config = read_scenes(parsed.scenes), load_config(parsed.config)
        if parsed.overlap is not None:
            config = with_overlap(config, OverlapPolicy(parsed.overlap), true_sources=parsed.true_sources is not None)
        check_models(config)
        ears = Ears(config)
        full, curve = settings_of(parsed)
        settings = list(dict.fromkeys([*full, *curve]))
        progress: Any = track(scenes, console=Console(stderr=True), transient=True)
        results = [result for scene in progress for result in measure(scene, ears, settings, parsed.true_sources)]
        report(console, results, parsed)
    except (ValueError, OSError, CascadeError) as error:
        print(f"leakage.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(stoppable(Path(__file__), main))
