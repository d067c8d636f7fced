from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cascade.config import CascadeConfig
from cascade.envelope import CELL, Envelope
from cascade.errors import AudioError, BackendError
from cascade.output.recordings import Heard
from cascade.pipeline import Decision, Distribution, Performance
from cascade.reporting.recordings import MEANINGS, recordings_page
from cascade.run import Done, Failed, run
from cascade.types import (
    Admission,
    AdmitReason,
    Answer,
    Mode,
    Outcome,
    Question,
    Span,
    Transcript,
    Utterance,
    Withheld,
    WithholdReason,
    seconds,
)
from tests import tone_benchmark as tones
from tests.canary import Models, cascade_of
from tests.html_page import Page
from tests.test_output_recordings import HEARD, PROVENANCE

ADMITTED = Admission(Mode.SELECTIVE, AdmitReason.MAIN_SPEAKER, 0.8, 0.52)


def page_of(*heard: Heard) -> Page:
    page = Page(recordings_page([Done(one.name, one, None) for one in heard]))
    page.check_self_contained()
    return page


def saying(text: str, **more: Any) -> Heard:
    said = Utterance(Span(0, seconds(2)), "main", text, (), ADMITTED)
    return replace(HEARD, transcript=Transcript((said,)), **more)


# --- content ----------------------------------------------------------------------------------------------------------


def test_it_tells_what_was_said_what_was_withheld_and_how_fast() -> None:
    words = page_of(HEARD).words
    for told in (
        "What was heard in talk.wav",
        "Selective mode: of what was withheld there is only when, how long and why.",
        "10.0 s heard", "2.2 s admitted", "3.4 s withheld", "0.040 real-time factor",
        "main speaker, 2.2 s admitted:", "bystander, 3.2 s withheld:", "too short, 0.1 s withheld:",
        "00:00.3 main Hey, it’s me.", "00:03.0 [bystander, 3.2 s withheld]",
        "Evidence; dashed: threshold 0.52", "00:03.0, 3.2 s withheld: bystander (evidence 0.30)",
        "When? At nine. since: It leaves at nine.", "Who? (empty)",
        "in audio heard: 0.83 s on average, 95 % within 1.00 s.", "computing included: not known.",
        "Lookahead of the chain: 1.06 s.", "faster_whisper 0.030 all 0.040",
        "All 3 turns",
    ):  # fmt: skip
        assert told in words, told


def test_the_configuration_and_the_versions_of_the_summary_are_there() -> None:
    words = page_of(HEARD).words
    for told in (
        "config.stages[0].use mixture", f"config_sha256 {PROVENANCE.config.sha256}",
        "models.whisper-tiny.en.model.bin 1a5a", "git.commit 0123abcd", "git.dirty true", "packages.numpy 2.4.6",
        "source_sha256 ab12", "python 3.11.7", "platform Linux",
    ):  # fmt: skip
        assert told in words, told


def test_the_table_of_turns_has_all_of_them_in_time_order() -> None:
    words = page_of(HEARD).words.split("All 3 turns")[1]
    assert (
        "00:00.3 2.2 main admitted main speaker 0.81 0.52 "
        "00:03.0 3.2 speaker_2 withheld bystander 0.30 – "
        "00:08.0 0.1 unknown withheld too short – –" in words
    )


def thresholds(page: Page) -> list[str]:
    """Return the heights at which a threshold is drawn."""
    return [line["y1"] for line in page.all("line") if line.get("class") == "threshold" and line["y1"] == line["y2"]]


def test_one_threshold_is_drawn_and_named() -> None:
    assert thresholds(page_of(HEARD)) == [f"{52 + 60 * 0.48:.1f}"]


def test_thresholds_that_differ_are_neither() -> None:
    first, *others = HEARD.decisions
    page = page_of(replace(HEARD, decisions=(first, *(replace(turn, threshold=0.6) for turn in others))))
    assert thresholds(page) == []
    assert "Evidence for the main speaker" in page.words
    assert "dashed" not in page.words


def test_admitted_and_withheld_stand_apart_and_differ_in_more_than_colour() -> None:
    page = page_of(HEARD)
    bars = [bar for bar in page.all("rect") if bar.get("fill", "").startswith("url(#p-") and bar["height"] == "17"]
    assert [(bar["fill"], bar["y"]) for bar in bars] == [
        ("url(#p-main_speaker)", "136"), ("url(#p-bystander)", "155"), ("url(#p-too_short)", "155"),
    ]  # fmt: skip
    patterns = [pattern["id"] for pattern in page.all("pattern")]
    assert patterns == [f"p-{reason}" for reason in (*AdmitReason, *WithholdReason)]


def test_each_reason_has_a_meaning_and_a_pattern_of_its_own() -> None:
    assert set(MEANINGS) == {*AdmitReason, *WithholdReason}
    shapes = re.findall(r'class="hatch" d="([^"]+)"', recordings_page([]))
    assert len(shapes) == len(set(shapes)) == len(MEANINGS) - 1


def test_the_drawing_is_told_to_those_who_do_not_see_it() -> None:
    page = page_of(HEARD)
    (drawing,) = [svg for svg in page.all("svg") if svg.get("role") == "img"]
    assert drawing["aria-labelledby"] == "r1-1-title r1-1-desc"
    assert {"r1-1-title", "r1-1-desc"} <= {attributes.get("id") for _, attributes in page.elements}
    assert "3 turns: 1 admitted, 2 withheld." in page.words


def test_the_waveform_is_of_what_was_admitted() -> None:
    page = page_of(replace(HEARD, envelope=Envelope({3: 0.5, 4: 0.25})))
    (wave,) = [path for path in page.all("path") if path.get("class") == "wave"]
    assert wave["d"] == "M3 -1.000h1V1.000h-1zM4 -0.500h1V0.500h-1z"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"mode": Mode.GENERAL}, "General mode: everyone whom the gate let through is in this report"),
        ({"lookahead": None}, "Lookahead of the chain: the whole recording."),
        ({"transcript": Transcript()}, "Nothing was transcribed, and nothing was withheld."),
        ({"warnings": ["nobody dominated; enrol"]}, "Warning: nobody dominated; enrol"),
    ],
)
def test_what_is_special_is_said(change: dict[str, Any], told: str) -> None:
    assert told in page_of(replace(HEARD, **change)).words


def test_a_configuration_without_a_gate_is_said() -> None:
    stages = [{"use": "mixture"}, {"use": "online_clustering"}, {"use": "everyone"}, {"use": "faster_whisper"}]
    bare = replace(PROVENANCE, config=CascadeConfig.model_validate({"stages": stages}))
    assert "No gate: this configuration admits everyone" in page_of(replace(HEARD, provenance=bare)).words


def test_an_empty_recording_has_a_page() -> None:
    empty = replace(
        HEARD, transcript=Transcript(), decisions=(), answers=(), performance=Performance(0.0, {}, None, None)
    )
    assert "The recording is empty." in page_of(empty).words


def test_several_recordings_have_an_index() -> None:
    failed = Failed("b.wav", AudioError("'b.wav' does not exist, expected a recording"))
    results: list[Done | Failed] = [
        Done("a.wav", replace(HEARD, name="a.wav"), None),
        failed,
        Done("c.wav", HEARD, None, [BackendError("x")]),
    ]
    page = Page(recordings_page(results))
    page.check_self_contained()
    assert "What was heard in 2 of 3 recordings" in page.words
    assert [link["href"] for link in page.all("a")] == ["#r1", "#r2", "#r3"]
    assert {"r1", "r2", "r3"} <= {section.get("id") for section in page.all("section")}
    assert "b.wav could not be heard" in page.words
    assert "Failed: 'b.wav' does not exist, expected a recording" in page.words
    assert "Not answered: x" in page.words
    assert page_of(HEARD).all("a") == []


def test_a_page_about_all_that_was_given_counts_it_once() -> None:
    assert "What was heard in 2 recordings" in page_of(HEARD, HEARD).words


def test_a_single_recording_that_failed_was_not_heard() -> None:
    place = "/home/alice/it is/b.wav"
    page = Page(recordings_page([Failed(place, AudioError(f"'{place}' does not exist, expected a recording"))]))
    assert "b.wav could not be heard Failed: 'b.wav' does not exist, expected a recording" in page.words
    assert "alice" not in page.text


def test_how_the_main_speaker_was_found_is_said() -> None:
    assert "In selective mode, dominant speaker; nobody enrolled." in page_of(HEARD).words
    enrolled = replace(PROVENANCE, config=PROVENANCE.config.with_enrolment([Path("/home/alice/me.wav")]))
    page = page_of(replace(HEARD, provenance=enrolled))
    assert "In selective mode, enrolled: me.wav." in page.words
    assert 'config.stages[2].enrolment ["me.wav"]' in page.words
    assert "alice" not in page.text


def test_a_page_about_recordings_says_nothing_of_a_benchmark() -> None:
    assert "benchmark" not in page_of(HEARD).words


def test_the_same_gives_the_same_page() -> None:
    assert recordings_page([Done("a", HEARD, None)]) == recordings_page([Done("a", HEARD, None)])


# --- what comes from outside ------------------------------------------------------------------------------------------

HOSTILE = (
    "<script>alert(1)</script>", "</style><script>alert(1)</script>", '" onload="alert(1)', "' x='", "&lt;b&gt;",
    "</title></svg><img src=x onerror=alert(1)>", "{{ 7*7 }}{% raw %}", "]]>-->",
)  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_what_was_said_is_shown_and_never_meant(text: str) -> None:
    plain = page_of(saying("x"))
    question = (Question(text), Answer(text, Outcome.ANSWERED, why=f"{text}."))
    label = tuple(replace(turn, speaker=text) for turn in HEARD.decisions)
    page = page_of(saying(text, name=f"{text}.wav", answers=(question,), decisions=label))
    for place in (f"main {text}", f"What was heard in {text}.wav", f"since: {text}."):
        assert place in page.words
    more = page_of(saying("x", answers=((Question("x"), Answer("x", Outcome.ANSWERED, why="x.")),)))
    assert [tag for tag, _ in page.elements] == [tag for tag, _ in more.elements]
    assert page.styles == plain.styles


def test_characters_that_make_a_text_read_as_another_are_left_out() -> None:
    page = page_of(saying("a\u202eb\x00c\x1b[31m\ud800\n\nd", name="\u2066x\u202e.wav"))
    assert "abc[31m d" in page.text
    assert not set("\u202e\u2066\x00\x1b\ud800") & set(page.text)


def test_the_policy_allows_the_style_by_its_hash_and_nothing_else() -> None:
    page = page_of(HEARD)
    (meta,) = [meta for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    digest = base64.b64encode(hashlib.sha256(page.styles[0].encode()).digest()).decode()
    assert meta["content"] == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert [tag for tag, _ in page.elements].index("style") > page.elements.index(("meta", meta))


# --- the privacy invariant --------------------------------------------------------------------------------------------


def heard_of_tones(folder: Path, mode: Mode) -> list[Done | Failed]:
    tones.write(folder, recordings=1)
    return list(
        run(
            tones.config_of(folder),
            [str(folder / "folder" / "scene 0.wav")],
            [],
            mode=mode,
            out=None,
            watch=lambda recording, chunk: None,
            load=lambda config, mode: cascade_of(config, Models(), mode),
        )
    )


def test_of_a_bystander_there_is_no_word_and_no_level(tmp_path: Path) -> None:
    results = heard_of_tones(tmp_path / "data", Mode.SELECTIVE)
    page = recordings_page(results)
    assert not tones.scene(0).leaks(page)
    assert all(word in page for word in tones.MAIN_WORDS[:4])
    assert "bystander" in page
    (result,) = results
    assert result.heard is not None
    cells = set(result.heard.envelope.peaks)
    admitted = [turn.span for turn in result.heard.decisions if turn.admitted]
    assert cells == {
        cell for span in admitted for cell in range(span.start // CELL, (span.end - 1) // CELL + 1)
    }  # a cell at a border is drawn from the turn's own samples
    bystander = range(seconds(3.2) // CELL, seconds(4.0) // CELL)
    assert not cells & set(bystander)
    drawn = re.findall(r"M([\d.]+) -[\d.]+h1V", page)
    assert set(map(float, drawn)) == cells


def test_in_general_mode_the_bystander_is_in_it(tmp_path: Path) -> None:
    """Else the silence of the test above would prove nothing."""
    page = recordings_page(heard_of_tones(tmp_path / "data", Mode.GENERAL))
    assert set(tones.CANARIES[:4]) <= set(re.findall(r"[a-z]+", page))


def test_distributions_are_said_as_mean_and_95th_percentile() -> None:
    speed = replace(HEARD.performance, latency=Distribution(2, 1.234, 2.0))
    assert (
        "computing included: 1.23 s on average, 95 % within 2.00 s." in page_of(replace(HEARD, performance=speed)).words
    )


def test_withheld_is_all_that_is_left_of_a_withheld_turn() -> None:
    only = Withheld(Span(0, seconds(2)), "speaker_2", WithholdReason.BYSTANDER, 0.1, 0.5)
    heard = replace(
        HEARD, transcript=Transcript((only,)), answers=(),
        decisions=(Decision(only.span, "speaker_2", False, only.reason, 0.1, 0.5),),
    )  # fmt: skip
    page = page_of(heard)
    assert [path for path in page.all("path") if path.get("class") == "wave"] == []
    assert "00:00.0 [bystander, 2.0 s withheld]" in page.words
