"""Measure the extractive answerer on perfect transcripts, and fit its constants anew.

    python benchmarks/answering.py SCENES_DIR

SCENES_DIR holds a folder a scene, each with a meta.json: `sentences` (speaker, start, end, text) and `questions`
(question, options, answer, idk_answer, speaker). Each question is asked in both modes:

    selective   the transcript holds the main speaker only: what a bystander said must get the "I don't know" option
    general     the transcript holds everyone: every question has its answer

SE (Selective Efficacy) is the harmonic mean of the four accuracies. The first table shows it for the constants in
cascade/backends/extractive.py, for the threshold and temperature that fit the selective mode of all scenes best
(in-sample), and with each scene answered by those that were fitted to the others (leave-one-out). "Best" is the least
mean negative log-likelihood of the right options.

The second table is for the general mode, where every question has its answer: for several thresholds the share of
questions that are answered rightly, and the share of questions about another scene, which nobody in this one answers,
that get "I don't know" (each scene is asked those of the next one).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import installed  # noqa: F401
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table
from whole import stoppable

from cascade.answering.questions import question_of
from cascade.backends.extractive import GENERAL_THRESHOLD, TEMPERATURE, THRESHOLD, ExtractiveAnswerer, load
from cascade.errors import CascadeError
from cascade.types import Admission, AdmitReason, Mode, Question, Span, Transcript, Utterance, seconds

CELLS = tuple((mode, speaker) for mode in Mode for speaker in ("main", "bystander"))
THRESHOLDS = np.arange(0.20, 0.55, 0.01)
GENERAL_THRESHOLDS = (0.0, 0.1, 0.15, 0.2, 0.25, 0.3, 0.34)
TEMPERATURES = np.array([0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.05, 0.07, 0.1])

Cell: TypeAlias = tuple[Mode, str]
Floats: TypeAlias = npt.NDArray[np.float64]
Constants: TypeAlias = tuple[float, float]
"""threshold, temperature"""


@dataclass(frozen=True)
class Case:
    """A question in one mode, with what speaks for each option; evidence is (n_options,)."""

    scene: str
    cell: Cell
    evidence: Floats
    dont_know: int
    right: int

    def log_probabilities(self, threshold: float, temperatures: Floats) -> Floats:
        """Return the options' log-probabilities, (n_temperatures, n_options)."""
        evidence = self.evidence.copy()
        evidence[self.dont_know] = threshold
        logits = evidence / temperatures[:, None]
        logits -= logits.max(axis=1, keepdims=True)
        return np.asarray(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))

    def correct(self, constants: Constants) -> bool:
        """Tell whether the right option is chosen; the threshold is that of the selective mode."""
        threshold, temperature = constants
        if self.cell[0] is Mode.GENERAL:
            threshold = GENERAL_THRESHOLD
        return self.chosen(threshold, temperature) == self.right

    def chosen(self, threshold: float, temperature: float) -> int:
        """Return the option that is chosen."""
        return int(self.log_probabilities(threshold, np.array([temperature])).argmax())


def transcript_of(meta: dict[str, Any], mode: Mode) -> Transcript:
    """Return what a perfect cascade would have heard."""
    reason = AdmitReason.MAIN_SPEAKER if mode is Mode.SELECTIVE else AdmitReason.GENERAL_MODE
    admission = Admission(mode, reason, evidence=1.0, threshold=0.0)
    return Transcript.of(
        Utterance(Span(seconds(said["start"]), seconds(said["end"])), said["speaker"], said["text"], (), admission)
        for said in meta["sentences"]
        if mode is Mode.GENERAL or said["speaker"] == "main"
    )


def questions_of(meta: dict[str, Any]) -> Iterator[tuple[Question, str, int]]:
    """Yield each question with the speaker that it is about and the index of the answer.

    Raises:
        ValueError: The benchmark's own "I don't know" option was not recognised.
    """
    for item in meta["questions"]:
        question = question_of(item["question"], item["options"])
        if question.dont_know != item["options"].index(item["idk_answer"]):
            raise ValueError(f"{meta['id']}: option {item['idk_answer']!r} was not read as 'I don't know'")
        yield question, item["speaker"], item["options"].index(item["answer"])


def cases_of(answerer: ExtractiveAnswerer, metas: Sequence[dict[str, Any]]) -> tuple[list[Case], float]:
    """Ask everything in both modes; return the cases and the mean time of an answer, in seconds."""
    cases: list[Case] = []
    took = 0.0
    for meta in metas:
        for mode in Mode:
            transcript = transcript_of(meta, mode)
            for question, speaker, answer in questions_of(meta):
                started = time.perf_counter()
                answerer.answer(question, transcript)
                took += time.perf_counter() - started
                unknown = question.dont_know or 0
                right = unknown if (mode, speaker) == (Mode.SELECTIVE, "bystander") else answer
                evidence = np.array(answerer.evidence(question, transcript))
                cases.append(Case(meta["id"], (mode, speaker), evidence, unknown, right))
    return cases, took / len(cases)


def fit(cases: Sequence[Case]) -> Constants:
    """Return the threshold and temperature that make the right options of the selective mode most likely."""
    cases = [case for case in cases if case.cell[0] is Mode.SELECTIVE]
    losses = np.array(
        [[-case.log_probabilities(t, TEMPERATURES)[:, case.right] for case in cases] for t in THRESHOLDS]
    ).mean(axis=1)
    best = np.unravel_index(losses.argmin(), losses.shape)
    return round(float(THRESHOLDS[best[0]]), 3), float(TEMPERATURES[best[1]])


def tally(cases: Sequence[Case], constants: dict[str, Constants]) -> dict[Cell, tuple[int, int]]:
    """Return (correct, total) of each cell; constants has those to use for each scene."""
    right: dict[Cell, list[bool]] = {cell: [] for cell in CELLS}
    for case in cases:
        right[case.cell].append(case.correct(constants[case.scene]))
    return {cell: (sum(hits), len(hits)) for cell, hits in right.items()}


def selective_efficacy(cells: dict[Cell, tuple[int, int]]) -> float:
    """Return the harmonic mean of the four accuracies."""
    accuracies = [correct / total for correct, total in cells.values()]
    return len(accuracies) / sum(1 / accuracy for accuracy in accuracies) if all(accuracies) else 0.0


def report(cases: Sequence[Case], seconds_each: float) -> Table:
    """Return the table of what was measured."""
    scenes = sorted({case.scene for case in cases})
    fitted = fit(cases)
    left_out = {scene: fit([case for case in cases if case.scene != scene]) for scene in scenes}
    rows: dict[str, dict[str, Constants]] = {
        f"as shipped ({THRESHOLD}, {TEMPERATURE})": dict.fromkeys(scenes, (THRESHOLD, TEMPERATURE)),
        f"in-sample {fitted}": dict.fromkeys(scenes, fitted),
        f"leave-one-out ({_ranges(list(left_out.values()))})": left_out,
    }
    table = Table(title=f"{len(scenes)} scenes, perfect transcripts, {1000 * seconds_each:.1f} ms a question")
    for heading in ("threshold, temperature", *(f"{mode}\n{speaker}" for mode, speaker in CELLS), "SE"):
        table.add_column(heading, justify="left" if heading.startswith("threshold") else "right")
    for name, constants in rows.items():
        cells = tally(cases, constants)
        numbers = [f"{correct}/{total}\n{correct / total:.1%}" for correct, total in cells.values()]
        table.add_row(name, *numbers, f"{selective_efficacy(cells):.1%}")
    return table


def foreign_cases(answerer: ExtractiveAnswerer, metas: Sequence[dict[str, Any]]) -> list[Case]:
    """Ask each scene what the next one answers, in general mode: the right option says "I don't know"."""
    cases = []
    for meta, other in zip(metas, [*metas[1:], metas[0]], strict=True):
        transcript = transcript_of(meta, Mode.GENERAL)
        for question, speaker, _ in questions_of(other):
            unknown, evidence = question.dont_know or 0, np.array(answerer.evidence(question, transcript))
            cases.append(Case(meta["id"], (Mode.GENERAL, speaker), evidence, unknown, unknown))
    return cases


def report_general(cases: Sequence[Case], foreign: Sequence[Case]) -> Table:
    """Return the table of what a threshold of the general mode does."""
    table = Table(title="general mode: answered rightly, and questions about another scene declined")
    for heading in ("general_threshold", "answered rightly", "declined"):
        table.add_column(heading, justify="right")
    own = [case for case in cases if case.cell[0] is Mode.GENERAL]
    for threshold in GENERAL_THRESHOLDS:
        shares = (
            np.mean([case.chosen(threshold, TEMPERATURE) == case.right for case in each]) for each in (own, foreign)
        )
        table.add_row(f"{threshold}", *(f"{share:.1%}" for share in shares))
    return table


def _ranges(constants: Sequence[Constants]) -> str:
    return ", ".join(f"{min(values)}-{max(values)}" for values in zip(*constants, strict=True))


def main() -> int:
    """Run the program; return its exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("scenes", type=Path, metavar="SCENES_DIR", help="a folder of scenes, each with a meta.json")
    files = sorted(parser.parse_args().scenes.glob("*/meta.json"))
    if len(files) < 2:
        print("no two scenes there: expected SCENES_DIR/NAME/meta.json, two or more", file=sys.stderr)
        return 2
    try:
        metas = [json.loads(file.read_text(encoding="utf-8")) for file in files]
        answerer = load()
        cases, seconds_each = cases_of(answerer, metas)
        tables = report(cases, seconds_each), report_general(cases, foreign_cases(answerer, metas))
    except (ValueError, OSError, CascadeError) as error:
        print(f"answering.py: {error}", file=sys.stderr)
        return 2
    Console(markup=False, emoji=False).print(*tables)
    return 0


if __name__ == "__main__":
    sys.exit(stoppable(Path(__file__), main))
