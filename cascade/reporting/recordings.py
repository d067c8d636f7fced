"""What `run` found in recordings -> a page: a part for each, and an index where there are several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cascade.output.recordings import Heard, recording_name
from cascade.pipeline import Decision, seconds_by_reason
from cascade.reporting.page import made_with, render, speeds
from cascade.reporting.timeline import plain_reason, timeline
from cascade.run import Done, Failed
from cascade.types import SAMPLE_RATE, AdmitReason, WithholdReason, seconds

MEANINGS: Final[Mapping[str, str]] = {
    AdmitReason.MAIN_SPEAKER: "the evidence speaks for the main speaker",
    AdmitReason.GENERAL_MODE: "somebody else, let through in general mode",
    AdmitReason.EVERYONE: "let through without a look: there is no gate",
    WithholdReason.BYSTANDER: "the evidence speaks for somebody else, or they are in the background",
    WithholdReason.UNDECIDED: "nobody was known to be the main speaker in time",
    WithholdReason.TOO_SHORT: "too short to tell a voice by",
    WithholdReason.OVERLAPPED: "two spoke at once",
    WithholdReason.UNVERIFIED: "what was separated is not surely the main speaker's, or they are not in the foreground",
    WithholdReason.NO_EMBEDDING: "nothing to tell a voice by",
    WithholdReason.GATE_ERROR: "the gate itself failed",
}
"""What each reason says."""


def recordings_page(results: Sequence[Done | Failed]) -> str:
    """Return the page about recordings, in the order in which they were heard."""
    heard = [result.heard for result in results if result.heard is not None]
    return render(
        "recordings.html",
        {
            "title": _title(results),
            "recordings": [_part(number, result) for number, result in enumerate(results, start=1)],
            "reasons": list(MEANINGS),
            "made": made_with(heard[0].provenance.as_dict()) if heard else [],
        },
    )


def _title(results: Sequence[Done | Failed]) -> str:
    """Say how much was heard: what failed was not."""
    heard = sum(result.heard is not None for result in results)
    if len(results) == 1:
        (only,) = results
        return (
            f"{recording_name(only.recording)} could not be heard"
            if only.heard is None
            else f"What was heard in {only.heard.name}"
        )
    of = "" if heard == len(results) else f"{heard} of "
    return f"What was heard in {of}{len(results)} recordings"


def _part(number: int, result: Done | Failed) -> dict[str, Any]:
    """Return what the template shows of one recording."""
    heard, name = result.heard, recording_name(result.recording)
    failed = str(result.error).replace(result.recording, name) if isinstance(result, Failed) else ""
    unanswered = [] if isinstance(result, Failed) else list(dict.fromkeys(map(str, result.unanswered)))
    common = {"id": f"r{number}", "failed": failed, "unanswered": unanswered}
    if heard is None:
        return {**common, "name": name, "heard": None}
    return {**common, "name": heard.name, "heard": heard, **_shown(heard)}


def _shown(heard: Heard) -> dict[str, Any]:
    turns = sorted(heard.decisions, key=lambda turn: turn.span)
    speed = heard.performance
    return {
        "gated": heard.provenance.config.gated,
        "main_speaker": heard.provenance.config.main_speaker,
        "timeline": timeline(heard.transcript, turns, heard.envelope, seconds(speed.audio_s)),
        "legend": _legend(turns),
        "turns": turns,
        "speeds": speeds(speed.stages_s, speed.audio_s),
        "lookahead_s": None if heard.lookahead is None else heard.lookahead / SAMPLE_RATE,
    }


def _legend(turns: Sequence[Decision]) -> list[dict[str, Any]]:
    """Return each reason that there is, with how much was admitted or withheld by it."""
    lasted_s = seconds_by_reason(turns)
    admitted = {str(turn.reason): turn.admitted for turn in turns}
    return [
        {
            "reason": reason,
            "name": plain_reason(reason),
            "meaning": MEANINGS.get(reason, ""),
            "admitted": admitted[reason],
            "seconds": lasted_s[reason],
        }
        for reason in sorted(lasted_s, key=[*MEANINGS, *lasted_s].index)
    ]
