"""Scores made by hand, in the shape of Scores.as_dict."""

from __future__ import annotations

from typing import Any

from cascade.scoring.efficacy import Speaker, selective_efficacy
from cascade.scoring.tally import Tally

Json = dict[str, Any]


def cell(correct: int | None, total: int = 1000, **more: Any) -> Json:
    """A cell's scores; correct is None where nothing can be right."""
    tally = Tally() if correct is None else Tally(correct, total)
    interval = tally.wilson95 and list(tally.wilson95)
    counts = {"idk": 10, "unparsed": 20, "refused": 5, "entropy": None, "cluster95": None}
    return {"correct": correct, "total": total, "accuracy": tally.accuracy, "wilson95": interval, **counts, **more}


def mode(main: int, bystander: int, total: int = 1000, **more: Any) -> Json:
    """A mode's scores; more is for both cells."""
    speakers = {"main": cell(main, total, **more), "bystander": cell(bystander, total, **more)}
    half = {"main": cell(main // 2, total // 2), "bystander": cell(bystander // 2, total // 2)}
    return {**speakers, "real": half, "synth": half}


def parser(general: Json | None, selective: Json | None) -> Json:
    found = [scored[speaker]["accuracy"] for scored in (general, selective) if scored for speaker in Speaker]
    se = selective_efficacy(found) if len(found) == 4 else None
    return {"general": general, "selective": selective, "se": se, "se_cluster95": None}


def system(files: list[str], general: Json | None, selective: Json | None, **more: Any) -> Json:
    """A system that both readers read alike, its setting told by its files' names."""
    read, words = parser(general, selective), " ".join(files)
    setting = {"idk_option": "noidk" not in words, "described": "nospk" not in words, "open_ended": "open" in words}
    return {"files": files, "name": None, "setting": setting, "parsers": {"strict": read, "paper": read}, **more}


def scores(*systems: Json, audit: list[Json] | None = None) -> Json:
    return {"systems": [{"audit": audit or [], **system} for system in systems]}


def run(name: str = "mine", general: tuple[int, int] = (900, 600), selective: tuple[int, int] = (800, 700)) -> Json:
    files = [f"out/{name}_basic_qa.json", f"out/{name}_selective_qa.json"]
    return system(files, mode(*general), mode(*selective), name=name)
