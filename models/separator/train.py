"""Train the separator: mixtures drawn on the fly, a checkpoint that it goes on from, and a log.

    python models/separator/train.py RUN --corpus CORPUS [--corpus CORPUS]... --rooms ROOMS [--settings FILE.yaml]
        [--device cpu] [--threads N] [--workers N] [--steps N | --hours H]
    python models/separator/train.py RUN --plot CURVE.svg

RUN is a folder; the same command goes on where it stopped, by Ctrl-C, SIGTERM or otherwise. The speech is read again
from time to time, so that the banks may grow meanwhile. In RUN:

    settings.yaml    what is trained, and how; kept from the first start on
    log.jsonl        loss every few steps; gain in SI-SDR on fixed validation mixtures, of unseen voices in unseen rooms
    last.pt          to go on from
    mean.pt          the running mean of the weights, which is what is validated and exported

Gains are means over mixtures, in dB over what the mixture itself is as a guess, of each source that is heard in it:
`gain` over all mixtures, `gain_10` over those in which both speak and the other is 10 dB softer. Needs torch, scipy.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from faults import load_weights, told
from mixtures import (
    AT_10_DB,
    PLAIN,
    Known,
    Recipe,
    Rooms,
    Speech,
    as_array,
    describe,
    draw_mixture,
    read_rooms,
    read_speech,
)
from network import build, count_parameters, state_of
from pydantic import Field, model_validator
from shapes import Shape
from spectra import loss_of, si_sdr, to_spectra
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from corpus import natural, positive  # isort: skip
from mixing import Described, read_description  # isort: skip
from whole import write_whole  # isort: skip

from cascade.errors import AudioError

KEPT: Final = "settings.yaml"
LOG: Final = "log.jsonl"
SAVE_EVERY_S: Final = 120.0
VALIDATE_EVERY_S: Final = 900.0
READ_EVERY: Final = 400  # steps after which the speech is read again
VALID_SEED, VALID_BATCH = 20_000, 8
WARM_UP: Final = 100  # steps
MEAN_MEMORY: Final = 0.998  # of the running mean of the weights, per step
LARGEST_GRADIENT: Final = 1.0
ACTIVE: Final = 1e-3  # of the mixture's power: what is softer isn't heard

Drawing: TypeAlias = npt.NDArray[np.float32]
"""Mixture, foreground and background (3, n_samples)."""


class Settings(Described):
    """What is trained, and how. In a file, what the shape says stands beside the rest.

    Attributes:
        shape: The network's.
        batch: Mixtures in a step.
        rate: Of learning.
        decay: Of the weights.
        seed: Of all that is drawn.
        validated: Mixtures of each kind that are validated.
        logged: Steps from one line of the log to the next.
    """

    shape: Shape
    batch: int = Field(default=8, ge=1)
    rate: float = Field(default=1e-3, gt=0)
    decay: float = Field(default=1e-2, ge=0)
    seed: int = Field(default=0, ge=0)
    validated: int = Field(default=48, ge=1)
    logged: int = Field(default=20, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _gather_shape(cls, described: object) -> object:
        if not isinstance(described, Mapping) or "shape" in described:
            return described
        shape = {name: value for name, value in described.items() if name not in cls.model_fields}
        return {**{name: value for name, value in described.items() if name in cls.model_fields}, "shape": shape}

    def lines(self) -> str:
        """As a file."""
        values = self.shape.model_dump() | self.model_dump(exclude={"shape"})
        return "".join(f"{name}: {value}\n" for name, value in values.items())


class Drawn(Dataset[Drawing]):  # type: ignore[misc, unused-ignore]
    """Mixtures (3, n_samples), each from a generator of its own, so that it doesn't matter who draws which."""

    def __init__(self, recipe: Recipe, speech: Speech, rooms: Rooms, seed: int, first: int, count: int) -> None:
        self._recipe, self._speech, self._rooms = recipe, speech, rooms
        self._seed, self._first, self._count = seed, first, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Drawing:
        if not 0 <= index < self._count:
            raise IndexError(f"no mixture {index} of {self._count}")
        rng = np.random.default_rng([self._seed, self._first + index])
        return as_array(draw_mixture(self._recipe, self._speech, self._rooms, rng))


@dataclass(frozen=True, slots=True)
class Where:
    """The banks and the rooms."""

    corpora: Sequence[Path]
    rooms: Path


class Run:
    """A training run in its folder: the network, its optimiser, and where they are."""

    def __init__(self, folder: Path, settings: Settings, device: str, threads: int = 1) -> None:
        """Begin, or go on from the folder's checkpoint; ValueError if that is another's, or there is no such device.

        Each of the threads hears its part of a step's mixtures, and computes in itself alone: of small LSTMs, two such
        parts take 0.24 s on two cores, where torch's own two threads take 0.9 s for the whole and one thread 0.46 s.
        """
        if device != "cpu" and not torch.cuda.is_available():
            raise ValueError(f"--device {device} was given, but torch finds no GPU here; leave it out to use the CPU")
        torch.manual_seed(settings.seed)
        self.folder, self.settings, self.device = folder, settings, device
        self.threads, self._pool = threads, ThreadPoolExecutor(threads)
        self.network = build(settings.shape).to(device)
        self.rules = rules_of(self.network, settings)
        self.mean = state_of(self.network)
        self.step, self.wall_s = 0, 0.0
        if (folder / "last.pt").is_file():
            self._load(folder / "last.pt")
        end_line(folder / LOG)

    def _load(self, path: Path) -> None:
        expected = f"a checkpoint of the run that {self.folder / KEPT} describes"
        try:
            kept = load_weights(path, expected, device=self.device)
            self.network.load_state_dict(kept["network"])
            for rule, state in zip(self.rules, kept["rules"], strict=True):
                rule.load_state_dict(state)
            self.mean, self.step, self.wall_s = kept["mean"], kept["step"], kept["wall_s"]
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise ValueError(
                f"{path} isn't {expected}; put back what belongs together, or give another RUN, where a new one begins"
            ) from error

    def begin(self) -> None:
        """Keep the settings, from the first start on that gets so far, and say where the log is."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / KEPT).is_file():
            write_whole(self.folder / KEPT, self.settings.lines().encode())
        self.log(parameters=count_parameters(self.network), device=self.device, threads=self.threads)
        print(f"from step {self.step} on; loss and gains: {self.folder / LOG}", flush=True)

    def save(self) -> None:
        """Write the checkpoint, and the running mean of the weights."""
        kept = {
            "network": self.network.state_dict(),
            "rules": [rule.state_dict() for rule in self.rules],
            "mean": self.mean,
        }
        save_whole({**kept, "step": self.step, "wall_s": self.wall_s}, self.folder / "last.pt")
        save_whole(
            {"shape": self.settings.shape.model_dump(), "step": self.step, "weights": self.mean},
            self.folder / "mean.pt",
        )

    def learn(self, drawn: Tensor, rate: float) -> float:
        """Make one step with mixtures (n, 3, n_samples); returns their loss."""
        for rule in self.rules:
            for part in rule.param_groups:
                part["lr"] = rate
        self.network.zero_grad(set_to_none=True)
        parts = drawn.tensor_split(min(self.threads, len(drawn)))
        loss = sum(self._pool.map(lambda part: self._hear(part, len(part) / len(drawn)), parts))
        norm = nn.utils.clip_grad_norm_(self.network.parameters(), LARGEST_GRADIENT)
        if torch.isfinite(norm):
            for rule in self.rules:
                rule.step()
        self.step += 1
        self._average()
        return loss

    def _hear(self, part: Tensor, share: float) -> float:
        """Add the gradient of a part of a step's mixtures, and return what it adds to the loss."""
        part = part.to(self.device, non_blocking=True)
        with torch.autocast(self.device, torch.bfloat16):
            guess = self.network.guess(part[:, 0])
        loss = share * loss_of(guess.float(), to_spectra(part[:, 1:]))
        loss.backward()  # type: ignore[no-untyped-call, unused-ignore]
        return float(loss.detach())

    def _average(self) -> None:
        keep = min(MEAN_MEMORY, self.step / (self.step + 10))
        for name, value in self.network.state_dict().items():
            self.mean[name].lerp_(value, 1 - keep)

    def log(self, **what: object) -> None:
        """Add a line to the log."""
        line = {"step": self.step, "wall_s": round(self.wall_s, 1), **what}
        with (self.folder / LOG).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def rules_of(network: nn.Module, settings: Settings) -> list[torch.optim.Optimizer]:
    """How weights are learnt: matrices by Muon (kellerjordan.github.io/posts/muon), all else by AdamW.

    From the same 3,580th step of `bands`, 210 more on the same mixtures gained the background 6.3 dB, not the 5.9
    of AdamW alone.
    """
    matrices = [weight for weight in network.parameters() if weight.ndim == 2]
    others = [weight for weight in network.parameters() if weight.ndim != 2]
    alike = torch.optim.Muon(
        matrices, settings.rate, weight_decay=settings.decay, adjust_lr_fn="match_rms_adamw"
    )  # one rate suits both
    return [alike, torch.optim.AdamW(others, settings.rate, weight_decay=settings.decay)]


def save_whole(what: object, path: Path) -> None:
    """Write a file of torch's so that it is there whole or not at all."""
    buffer = io.BytesIO()
    torch.save(what, buffer)
    write_whole(path, buffer.getvalue())


def end_line(path: Path) -> None:
    """End the last line of a log that was cut off, as by a killed run, so that the next one isn't lost with it."""
    if path.is_file() and (content := path.read_bytes()) and not content.endswith(b"\n"):
        with path.open("ab") as file:
            file.write(b"\n")


def read_log(path: Path) -> list[dict[str, Any]]:
    """Read the lines of a log; one that was cut off, as by a killed run, is left out.

    Raises:
        ValueError: Nothing was learnt yet.
        OSError: It can't be read.
    """
    lines = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(json.JSONDecodeError):
            lines.append(json.loads(line))
    known = [line for line in lines if isinstance(line, dict) and isinstance(line.get("wall_s"), int | float)]
    if not any("loss" in line for line in known):
        raise ValueError(f"{path} tells of no step that was learnt; train first, then draw")
    return known


def rate_at(step: int, passed: float, settings: Settings) -> float:
    """The rate of learning: up for WARM_UP steps, and in the last quarter of the time down to nothing, as a cosine."""
    falling = 0.5 * (1 + math.cos(math.pi * min(1.0, max(0.0, (passed - 0.75) / 0.25))))
    return settings.rate * min(1.0, (step + 1) / WARM_UP) * falling


# --- validation ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Validation:
    """Fixed mixtures, by the name of what is measured on them: (n, 3, n_samples)."""

    drawn: dict[str, Tensor]

    @classmethod
    def draw(cls, where: Where, count: int) -> Validation:
        """Draw so many of each kind."""
        speech, rooms = read_speech(where.corpora[:1], "valid"), read_rooms(where.rooms, "valid")
        recipes = {"gain": PLAIN, "gain_10": AT_10_DB}
        return cls(
            {
                name: torch.from_numpy(
                    np.stack(list(iterate(Drawn(recipe, speech, rooms, VALID_SEED + place, 0, count))))
                )
                for place, (name, recipe) in enumerate(recipes.items())
            }
        )


def iterate(drawn: Drawn) -> Iterator[Drawing]:
    """Draw all of them."""
    return (drawn[index] for index in range(len(drawn)))


Separate: TypeAlias = Callable[[Tensor], Tensor]
"""Mixtures (n, n_samples) -> foreground and background (n, 2, n_samples)."""


def validate(separate: Separate, validation: Validation, device: str) -> dict[str, list[float]]:
    """Gain in SI-SDR of each source, in dB, by what is measured: foreground, background."""
    with torch.no_grad():
        return {name: gains(separate, drawn, device) for name, drawn in validation.drawn.items()}


def gains(separate: Separate, drawn: Tensor, device: str) -> list[float]:
    """Mean gain of each source over mixtures (n, 3, n_samples) in which it is heard, in dB."""
    found, heard = [], []
    for batch in drawn.split(VALID_BATCH):
        batch = batch.to(device)
        found.append(si_sdr(separate(batch[:, 0]), batch[:, 1:]) - si_sdr(batch[:, :1], batch[:, 1:]))
        power = batch.square().mean(-1)
        heard.append(power[:, 1:] > ACTIVE * power[:, :1])
    gain, active = torch.cat(found), torch.cat(heard)
    alone = active.sum(1, keepdim=True) < active.shape[1]
    counted = active & ~alone
    return [round(float(gain[counted[:, source], source].mean()), 2) for source in range(gain.shape[1])]


def validate_mean(run: Run, validation: Validation) -> None:
    """Validate the running mean of the weights, and log it."""
    network = build(run.settings.shape).to(run.device)
    network.load_state_dict(run.mean)
    network.eval()
    run.log(**validate(network.separate, validation, run.device))


# --- the run ------------------------------------------------------------------------------------------


def train(run: Run, where: Where, steps: float, hours: float, workers: int) -> None:
    """Train until so many steps or hours have passed, all starts together."""
    validation, known = Validation.draw(where, run.settings.validated), Known()
    rooms = read_rooms(where.rooms, "train")
    run.begin()
    clock = Clock(run)
    validated_s = saved_s = run.wall_s
    hurried: dict[tuple[int, int], Any] = {}

    def passed() -> float:
        return max(run.step / steps, run.wall_s / (3600 * hours))

    while passed() < 1:
        speech = Speech(read_speech(where.corpora, "train", known).voices, hurried)
        run.log(speech=describe(speech))
        if workers:
            speech.hurry()
        first = run.step * run.settings.batch
        drawn = Drawn(PLAIN, speech, rooms, run.settings.seed, first, READ_EVERY * run.settings.batch)
        losses: list[float] = []
        for batch in DataLoader(drawn, run.settings.batch, num_workers=workers):
            losses.append(run.learn(batch, rate_at(run.step, passed(), run.settings)))
            clock.tick()
            if run.step % run.settings.logged == 0:
                run.log(loss=round(float(np.mean(losses)), 4))
                losses.clear()
            if run.wall_s - saved_s > SAVE_EVERY_S:
                run.save()
                saved_s = run.wall_s
            if run.wall_s - validated_s > VALIDATE_EVERY_S:
                validate_mean(run, validation)
                validated_s = run.wall_s
            if passed() >= 1:
                break
    run.save()
    validate_mean(run, validation)


class Clock:
    """Counts the run's time, that of earlier starts included."""

    def __init__(self, run: Run) -> None:
        self._run, self._last = run, time.monotonic()

    def tick(self) -> None:
        """Count the time since the last tick."""
        now = time.monotonic()
        self._run.wall_s += now - self._last
        self._last = now


# --- the curve ----------------------------------------------------------------------------------------


def plot(folder: Path, path: Path) -> None:
    """Draw a run's loss and gains over its hours.

    Raises:
        ValueError: There is nothing to draw, or no such kind of picture.
        OSError: The log can't be read, or the picture can't be written.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "separator"
    lines = read_log(folder / LOG)
    figure = Figure(figsize=(8, 6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    losses = [(line["wall_s"] / 3600, line["loss"]) for line in lines if "loss" in line]
    above.plot(*zip(*losses, strict=True), linewidth=0.8)
    above.set_ylabel("loss")
    for name, style in (("gain", "--"), ("gain_10", "-")):
        for source, (called, colour) in enumerate((("foreground", "C0"), ("background", "C1"))):
            points = [(line["wall_s"] / 3600, line[name][source]) for line in lines if name in line]
            where = "at -10 dB" if name == "gain_10" else "all"
            hours, dbs = [hour for hour, _ in points], [db for _, db in points]
            below.plot(hours, dbs, style, color=colour, label=f"{called}, {where}")
    below.set_ylabel("gain in SI-SDR (dB), unseen voices")
    below.set_xlabel("hours of training")
    below.legend()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


# --- command line -------------------------------------------------------------------------------------


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; None means this process's own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument("--corpus", type=Path, action="append", metavar="CORPUS", help="a bank; validated on the first")
    parser.add_argument("--rooms", type=Path, metavar="ROOMS", help="the rooms")
    parser.add_argument("--settings", type=Path, metavar="FILE", help="what is trained, and how (default: bands.yaml)")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="of torch: cpu (the default) or cuda")
    parser.add_argument("--threads", type=positive, default=1, metavar="N", help="that share a step (default 1)")
    parser.add_argument("--workers", type=natural, default=0, metavar="N", help="processes that draw (default 0)")
    parser.add_argument("--steps", type=above_zero, default=math.inf, metavar="N", help="stop after so many, in all")
    parser.add_argument("--hours", type=above_zero, default=math.inf, metavar="H", help="stop after so many, in all")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the run's curve, and train nothing")
    parsed = parser.parse_args(arguments)
    if not parsed.plot and not (parsed.corpus and parsed.rooms):
        parser.error("--corpus and --rooms are needed to train")
    return parsed


def above_zero(text: str) -> float:
    """Read a number above zero, not only whole ones, from the command line."""
    with suppress(ValueError):
        if (number := float(text)) > 0:
            return number
    raise argparse.ArgumentTypeError(f"expected a number above zero, got {text!r}")


def settings_of(parsed: argparse.Namespace) -> Settings:
    """The run's settings; those of its first start, where there was one.

    Raises:
        ValueError: What is given is no settings, or other ones than the run's.
        OSError: A file can't be read.
    """
    kept = parsed.run / KEPT
    if not kept.is_file():
        return read_description(parsed.settings or Path(__file__).with_name("bands.yaml"), Settings)
    settings = read_description(kept, Settings)
    if parsed.settings and read_description(parsed.settings, Settings) != settings:
        raise ValueError(f"{parsed.run} is a run with other settings than {parsed.settings}: name another folder")
    return settings


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns the exit status (2: the user can mend it)."""
    parsed = parse_arguments(arguments)
    try:
        if parsed.plot:
            plot(parsed.run, parsed.plot)
            return 0
        torch.set_num_threads(1)
        torch.backends.cuda.matmul.allow_tf32 = True
        run = Run(parsed.run, settings_of(parsed), parsed.device, parsed.threads)
        try:
            train(run, Where(parsed.corpus, parsed.rooms), parsed.steps, parsed.hours, parsed.workers)
        except KeyboardInterrupt:
            run.save()
        print(f"{run.folder} is at step {run.step}, after {run.wall_s / 3600:.2f} hours")
    except ModuleNotFoundError as error:
        print(f"train.py: {error.name} isn't installed; see the README of models/separator", file=sys.stderr)
        return 2
    except (ValueError, OSError, AudioError) as error:
        print(f"train.py: {told(error)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    for stop in (signal.SIGINT, signal.SIGTERM):  # also where a shell has a background job ignore Ctrl-C
        signal.signal(stop, signal.default_int_handler)
    sys.exit(main())
