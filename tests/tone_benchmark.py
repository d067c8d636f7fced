"""A benchmark of recordings in the tone code of tests/canary.py, which fakes truly hear; run as a program, a real run.

Each recording has a main speaker and a neighbour, who says canaries. The questions quote no canary.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cascade.config import CascadeConfig, load_config
from cascade.pipeline import Cascade
from cascade.shbench.plan import Plan, Shard, make_plan
from cascade.shbench.results import run_plan
from cascade.shbench.running import Failed
from cascade.types import Mode
from tests.canary import ENROLMENT, MAIN, Models, Said, Scene, cascade_of

MAIN_WORDS = ("train", "boston", "nine", "platform", "tickets", "eighty", "jacket", "ferry", "station", "harbor")
CANARIES = ("biopsy", "kidney", "tumor", "cancer", "insurance", "surgery", "account", "lawyer", "divorce", "debt")


def scene(number: int) -> Scene:
    """Return the recording of that number, from 0."""
    mine = " ".join(MAIN_WORDS[(number + place) % 10] for place in range(4))
    theirs = " ".join(CANARIES[(number + place) % 10] for place in range(4))
    return Scene((Said(MAIN, 0.5, mine), Said("neighbour", 3.0, theirs), Said(MAIN, 5.5, mine)), seed=number)


def item(number: int, place: int) -> dict[str, Any]:
    """Return question `place` on a recording: the first half is about the main speaker."""
    said = MAIN_WORDS[(number + place % 4) % 10]
    options = [said if place < 3 else "whispers", "bananas", "Unclear", "elephants", "violins"]
    shift = (number + place) % 5
    return {
        "question": f"What is said, number {place}?",
        "options": options[shift:] + options[:shift],
        "answer": options[0],
        "speaker": "main" if place < 3 else "bystander",
        "audio": f"folder/scene {number}.wav",
        "type": "real" if number % 2 else "synth",
        "main_speaker_desc": "a low voice",
        "main_speaker_desc_w_content": "a low voice on a trip",
        "main_speaker_desc_w_content_filter": "a low voice {on} the way",
        "idk_answer": "Unclear",
        "extra": {"kept": [number, None]},
    }


def write(folder: Path, recordings: int = 4, questions: int = 6) -> Path:
    """Write the benchmark and an enrolment; return the file of its questions."""
    (folder / "folder").mkdir(parents=True)
    for number in range(recordings):
        scene(number).write(folder / "folder" / f"scene {number}.wav")
    ENROLMENT.write(folder / "me.wav")
    # The questions of a recording do not stand together.
    items = [item(number, place) for place in range(questions) for number in range(recordings)]
    data = folder / "questions.json"
    data.write_text(json.dumps(items), encoding="utf-8")
    names = {MAIN: "main", "neighbour": "bystander"}
    references = [
        {"session_id": f"scene {number}", "speaker": names[said.speaker], "words": said.text}
        for number in range(recordings)
        for said in scene(number).said
    ]
    (folder / "references.json").write_text(json.dumps(references), encoding="utf-8")
    return data


def config_of(folder: Path, **gate: Any) -> CascadeConfig:
    """Return the on-device configuration, enrolled, with this benchmark; `gate` changes settings of its gate."""
    config = load_config("ondevice.yaml").with_benchmark(folder / "questions.json", folder)
    benchmark = config.benchmark.model_copy(update={"references": folder / "references.json"})
    config = config.with_enrolment([folder / "me.wav"]).model_copy(update={"benchmark": benchmark})
    stages = tuple(stage.model_copy(update=gate) if stage.use == "main_speaker" else stage for stage in config.stages)
    return config.model_copy(update={"stages": stages})


def plan_of(folder: Path, *, modes: tuple[Mode, ...] = tuple(Mode), **given: Any) -> Plan:
    """Return the plan of a run of this benchmark."""
    gate = {name: given.pop(name) for name in ("always", "threshold") if name in given}
    return make_plan(config_of(folder, **gate), "tones", modes=modes, **given)


class Watch:
    """Is told how a run goes on, and keeps it to itself."""

    def progress(self, behind_s: float, total_s: float) -> None: ...

    def failed(self, failed: Failed) -> None: ...


def loader(models: Models | None = None) -> Callable[[CascadeConfig], Cascade]:
    """Return what loads a configuration around fakes."""
    made = models or Models()
    return lambda config: cascade_of(config, made)


def main(folder: str, out: str, shard: str = "") -> None:
    """Run it, as `cascade run --out` does."""
    plan = plan_of(Path(folder), shard=Shard.of(shard) if shard else None)
    run_plan(plan, Path(out), Watch(), load=loader())


if __name__ == "__main__":
    main(*sys.argv[1:])
