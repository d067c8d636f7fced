from __future__ import annotations

import json
import math
import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cascade.answering.spending import Spent
from cascade.config import load_config
from cascade.errors import OutputError
from cascade.output.recordings import (
    NAME_BYTES,
    NAME_CHARACTERS,
    Heard,
    plan_folders,
    recording_name,
    session_name,
    write,
)
from cascade.pipeline import Decision, Distribution, Performance
from cascade.provenance import Provenance, Revision
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
    Word,
    seconds,
)

ROOT = Path(__file__).resolve().parents[1]
FILES = {
    "transcript.json",
    "transcript.srt",
    "transcript.vtt",
    "turns.rttm",
    "turns.jsonl",
    "answers.jsonl",
    "summary.json",
}
ADMITTED = Admission(Mode.SELECTIVE, AdmitReason.MAIN_SPEAKER, 0.8123456789, 0.52)
PROVENANCE = Provenance(
    config=load_config("ondevice.yaml"),
    models={"whisper-tiny.en": {"model.bin": "1a5a"}},
    packages={"numpy": "2.4.6"},
    revision=Revision("0123abcd", dirty=True),
    own_files={},
    source="ab12",
    version="0.1.0",
    python="3.11.7",
    platform="Linux",
)


def span(start_s: float, end_s: float) -> Span:
    return Span(seconds(start_s), seconds(end_s))


MAIN = Utterance(
    span(0.3, 2.5), "main", "Hey, it’s me.", (Word(span(0.3, 2.5), "Hey, it’s me.", 0.9),), ADMITTED, looped=True
)
HEARD = Heard(
    name="talk.wav",
    mode=Mode.SELECTIVE,
    transcript=Transcript.of(
        [MAIN, Withheld(span(3, 6.25), "speaker_2", WithholdReason.BYSTANDER, 0.3),
         Withheld(span(8, 8.1), "unknown", WithholdReason.TOO_SHORT)]
    ),
    decisions=(
        Decision(span(0.3, 2.5), "main", True, AdmitReason.MAIN_SPEAKER, 0.8123456789, 0.52),
        Decision(span(8, 8.1), "unknown", False, WithholdReason.TOO_SHORT, math.nan, math.nan),
        Decision(span(3, 6.25), "speaker_2", False, WithholdReason.BYSTANDER, 0.3, math.nan),
    ),
    answers=(
        (Question("When?"), Answer("At nine.", Outcome.ANSWERED, why="It leaves at nine.")),
        (Question("Where?", ("Here", "There"), None), Answer("B", Outcome.ANSWERED, 1, "", (0.25, 0.75))),
        (Question("Who?", ("He", "She")), Answer("", Outcome.EMPTY, None, "", (math.nan, math.nan))),
    ),
    performance=Performance(10.0, {"mixture": 0.1, "faster_whisper": 0.3}, Distribution(3, 0.83, 1.0), None),
    lookahead=16_976,
    provenance=PROVENANCE,
)  # fmt: skip


def strict(text: str) -> Any:
    """Parse JSON as the standard has it: without NaN and infinity, and with each key once."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    return json.loads(text, parse_constant=refuse, object_pairs_hook=once)


def written(tmp_path: Path, heard: Heard = HEARD) -> dict[str, str]:
    folder = tmp_path / "out" / "my talk"
    write(folder, heard)
    return {path.name: path.read_bytes().decode("utf-8") for path in folder.iterdir()}


# --- what is in the files ---------------------------------------------------------------------------------------------


def test_all_files_are_written_and_end_in_a_newline(tmp_path: Path) -> None:
    files = written(tmp_path)
    assert files.keys() == FILES
    assert all(text.endswith("\n") and not text.endswith("\n\n") for text in files.values())
    assert not any("\r" in text for text in files.values())


def test_the_transcript_is_seglst(tmp_path: Path) -> None:
    assert strict(written(tmp_path)["transcript.json"]) == [
        {"session_id": "my_talk", "speaker": "main", "start_time": 0.3, "end_time": 2.5, "words": "Hey, it’s me."}
    ]


def test_times_are_rounded_to_milliseconds(tmp_path: Path) -> None:
    odd = replace(MAIN, span=Span(1, 32_001), words=())
    (row,) = strict(written(tmp_path, replace(HEARD, transcript=Transcript((odd,))))["transcript.json"])
    assert (row["start_time"], row["end_time"]) == (0.0, 2.0)


def test_subtitles_show_placeholders(tmp_path: Path) -> None:
    files = written(tmp_path)
    for name in ("transcript.srt", "transcript.vtt"):
        assert "[bystander, 3.2 s withheld]" in files[name]
        assert "Hey, it’s me." in files[name]


def test_turns_are_all_there_in_time_order_in_both_files(tmp_path: Path) -> None:
    files = written(tmp_path)
    turns = [strict(line) for line in files["turns.jsonl"].splitlines()]
    assert turns == [
        {"start": 0.3, "end": 2.5, "speaker": "main", "admitted": True, "reason": "main_speaker",
         "evidence": 0.812346, "threshold": 0.52},
        {"start": 3.0, "end": 6.25, "speaker": "speaker_2", "admitted": False, "reason": "bystander",
         "evidence": 0.3, "threshold": None},
        {"start": 8.0, "end": 8.1, "speaker": "unknown", "admitted": False, "reason": "too_short",
         "evidence": None, "threshold": None},
    ]  # fmt: skip
    rows = [line.split() for line in files["turns.rttm"].splitlines()]
    assert [(row[1], float(row[3]), float(row[4]), row[7]) for row in rows] == [
        ("my_talk", 0.3, 2.2, "main"),
        ("my_talk", 3.0, 3.25, "speaker_2"),
        ("my_talk", 8.0, 0.1, "unknown"),
    ]


def test_answers_are_written_with_letter_and_probabilities(tmp_path: Path) -> None:
    answers = [strict(line) for line in written(tmp_path)["answers.jsonl"].splitlines()]
    assert answers == [
        {"question": "When?", "options": [], "text": "At nine.", "outcome": "answered", "choice": None,
         "choice_index": None, "why": "It leaves at nine.", "probabilities": []},
        {"question": "Where?", "options": ["Here", "There"], "text": "B", "outcome": "answered", "choice": "B",
         "choice_index": 1, "why": "", "probabilities": [0.25, 0.75]},
        {"question": "Who?", "options": ["He", "She"], "text": "", "outcome": "empty", "choice": None,
         "choice_index": None, "why": "", "probabilities": [None, None]},
    ]  # fmt: skip


def test_the_summary_says_what_the_answers_took(tmp_path: Path) -> None:
    heard = replace(HEARD, spent=Spent(5, 4, 1, 900, 100, 40, 0.0125, 0.25))
    assert strict(written(tmp_path, heard)["summary.json"])["spent"] == {
        "requests": 5,
        "replies": 4,
        "replies_from_cache": 1,
        "prompt_tokens": 900,
        "cached_tokens": 100,
        "completion_tokens": 40,
        "cost_usd": 0.0125,
        "unsure_cost_usd": 0.25,
    }


def test_the_summary_has_the_recordings_warnings(tmp_path: Path) -> None:
    heard = replace(HEARD, warnings=["it is cut off", "nobody was heard"])
    assert strict(written(tmp_path, heard)["summary.json"])["warnings"] == ["it is cut off", "nobody was heard"]


def test_the_summary_holds_no_folder_and_nothing_of_a_benchmark(tmp_path: Path) -> None:
    """It is made to be shared, and a path tells a user's name."""
    home = Path("/home/alice/private things")
    config = load_config("ondevice.yaml").with_enrolment([home / "me.wav"])
    config = config.model_copy(
        update={"stages": (*config.stages[:3], config.stages[3].model_copy(update={"size": str(home / "my model")}))}
    )
    own = {str(home / "me.wav"): "aa", str(home / "my model" / "model.bin"): "bb"}
    made = replace(PROVENANCE, config=config, own_files=own)
    warning = f"the reply is not kept: '{home / 'cache' / 'a.json'}' cannot be written, nor /home/alice/b.json"
    text = written(tmp_path, replace(HEARD, provenance=made, warnings=[warning]))["summary.json"]
    summary = strict(text)
    assert "alice" not in text
    assert "private" not in text
    assert "benchmark" not in text
    assert "prompts" not in text
    assert summary["main_speaker"] == "enrolled: me.wav"
    assert summary["config"]["stages"][2]["enrolment"] == ["me.wav"]
    assert summary["config"]["stages"][3]["size"] == "my model"
    assert summary["own_files"] == {"me.wav": "aa", "model.bin": "bb"}
    assert summary["warnings"] == ["the reply is not kept: 'a.json' cannot be written, nor b.json"]


def test_the_summary_says_what_was_heard_how_fast_and_with_what(tmp_path: Path) -> None:
    summary = strict(written(tmp_path)["summary.json"])
    config = summary.pop("config")
    assert [stage["use"] for stage in config["stages"]] == [stage.use for stage in PROVENANCE.config.stages]
    assert summary == {
        "recording": "talk.wav",
        "session_id": "my_talk",
        "mode": "selective",
        "gated": True,
        "main_speaker": "dominant speaker; nobody enrolled",
        "seconds": {
            "heard": 10.0,
            "admitted": 2.2,
            "withheld": 3.35,
            "withheld_beside_admitted": 0.0,
            "withheld_by_reason": {"bystander": 3.25, "too_short": 0.1},
        },
        "warnings": [],
        "utterances": 1,
        "utterances_looped": 1,
        "rtf": 0.04,
        "rtf_by_stage": {"mixture": 0.01, "faster_whisper": 0.03},
        "lookahead_s": 1.061,
        "delay": {"count": 3, "mean_s": 0.83, "p95_s": 1.0},
        "latency": None,
        "spent": None,
        "config_sha256": PROVENANCE.config.sha256,
        "models": {"whisper-tiny.en": {"model.bin": "1a5a"}},
        "own_files": {},
        "cascade": "0.1.0",
        "source_sha256": "ab12",
        "git": {"commit": "0123abcd", "dirty": True},
        "packages": {"numpy": "2.4.6"},
        "python": "3.11.7",
        "platform": "Linux",
    }


def decided(start_s: float, end_s: float, reason: str, admitted: bool = False) -> Decision:
    return Decision(span(start_s, end_s), "background", admitted, reason, math.nan, math.nan)


def test_what_lies_over_each_other_counts_once() -> None:
    """The background by itself is heard beside what the mixture tells."""
    turns = [
        decided(0, 4, "main_speaker", True),
        decided(3, 7, "bystander"),
        decided(4, 8, "bystander"),
        decided(7, 9, "too_short"),
        decided(2, 3, "general_mode", True),
    ]
    totals = replace(HEARD, decisions=turns).totals
    assert (totals.admitted_s, totals.withheld_s, totals.withheld_beside_s) == (4, 6, 1)
    assert totals.withheld_by_reason_s == {"bystander": 5, "too_short": 2}
    assert str(totals) == (
        "10.0 s heard, 4.0 s admitted, 6.0 s withheld (bystander 5.0 s, too short 2.0 s), "
        "1.0 s of it beside what was admitted"
    )
    assert "beside" not in str(HEARD.totals)


@given(st.lists(st.tuples(st.integers(0, 90), st.integers(1, 30), st.sampled_from(WithholdReason), st.booleans())))
def test_no_more_time_is_told_than_was_heard(parts: list[tuple[int, int, WithholdReason, bool]]) -> None:
    turns = [decided(at / 10, min(at + lasts, 100) / 10, reason, passed) for at, lasts, reason, passed in parts]
    totals = replace(HEARD, decisions=turns).totals
    assert 0 <= totals.withheld_beside_s <= min(totals.admitted_s, totals.withheld_s)
    assert totals.admitted_s + totals.withheld_s - totals.withheld_beside_s <= totals.heard_s + 1e-9
    assert max(totals.withheld_by_reason_s.values(), default=0) <= totals.withheld_s


def test_the_same_gives_the_same_bytes(tmp_path: Path) -> None:
    assert written(tmp_path / "a") == written(tmp_path / "b")


def test_an_empty_recording_gives_valid_files(tmp_path: Path) -> None:
    empty = replace(
        HEARD, transcript=Transcript(), decisions=(), answers=(), lookahead=None,
        performance=Performance(0.0, {"mixture": 0.0}, None, None),
        provenance=replace(PROVENANCE, revision=None),
    )  # fmt: skip
    files = written(tmp_path, empty)
    assert strict(files["transcript.json"]) == []
    assert {files[name] for name in ("transcript.srt", "turns.rttm", "turns.jsonl", "answers.jsonl")} == {""}
    assert files["transcript.vtt"] == "WEBVTT\n"
    summary = strict(files["summary.json"])
    assert (summary["rtf"], summary["rtf_by_stage"], summary["lookahead_s"]) == (None, {"mixture": None}, None)
    assert summary["seconds"] == {
        "heard": 0.0,
        "admitted": 0.0,
        "withheld": 0.0,
        "withheld_beside_admitted": 0.0,
        "withheld_by_reason": {},
    }


def test_infinity_is_null(tmp_path: Path) -> None:
    everyone = Decision(span(0, 1), "speaker_1", True, AdmitReason.EVERYONE, math.nan, -math.inf)
    row = strict(written(tmp_path, replace(HEARD, decisions=(everyone,)))["turns.jsonl"])
    assert (row["evidence"], row["threshold"]) == (None, None)


@example(text="half a \udcff character, \u2028 and \x85 ends of lines")
@given(text=st.text(st.characters(exclude_categories=()), min_size=1).filter(str.strip))
def test_any_text_comes_back_from_the_json_files(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    words = replace(MAIN, text=text, words=())
    answer = (Question(text), Answer(text, Outcome.ANSWERED, why=text))
    files = written(tmp_path_factory.mktemp("any"), replace(HEARD, transcript=Transcript((words,)), answers=(answer,)))
    expected = text.encode("utf-8", "replace").decode()
    assert strict(files["transcript.json"])[0]["words"] == expected
    (line,) = files["answers.jsonl"].splitlines()
    assert [strict(line)[key] for key in ("question", "text", "why")] == [expected] * 3


def test_totals_are_one_line_for_the_screen() -> None:
    assert str(HEARD.totals) == "10.0 s heard, 2.2 s admitted, 3.4 s withheld (bystander 3.2 s, too short 0.1 s)"
    assert str(replace(HEARD, decisions=()).totals) == "10.0 s heard, 0.0 s admitted, 0.0 s withheld"


# --- all or nothing, private, never over something --------------------------------------------------------------------


def test_only_the_owner_may_read_the_files(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        written(tmp_path)
    finally:
        os.umask(before)
    folder = tmp_path / "out" / "my talk"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_nothing_else_is_left_beside_the_folder(tmp_path: Path) -> None:
    written(tmp_path)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["my talk"]


def test_what_is_there_is_never_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "talk"
    write(folder, HEARD)
    before = (folder / "summary.json").read_bytes()
    with pytest.raises(OutputError, match=r"talk' exists already and is not overwritten; give another --out") as error:
        write(folder, replace(HEARD, mode=Mode.GENERAL))
    assert len(str(error.value).splitlines()) == 1
    assert (folder / "summary.json").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["talk"]


@contextmanager
def full_disk(limit: int) -> Iterator[None]:
    """Let no file grow beyond so many bytes: the operating system refuses to write more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_failing_write_leaves_nothing_and_is_one_line(tmp_path: Path) -> None:
    with (
        full_disk(200),
        pytest.raises(OutputError, match=r"talk' cannot be written: File too large; make room") as error,
    ):
        write(tmp_path / "talk", HEARD)
    assert len(str(error.value).splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


KILLED = """
import resource, signal, sys
from pathlib import Path
from cascade.output.recordings import write
from tests.test_output_recordings import HEARD, full_disk
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
with full_disk(200):
    write(Path(sys.argv[1]), HEARD)
"""


def test_a_crash_before_the_end_leaves_nothing_under_the_name(tmp_path: Path) -> None:
    """The first byte too many kills the process at once, as kill -9 would."""
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "talk")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert killed.returncode == -signal.SIGXFSZ
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".talk.partial-")
    assert stat.S_IMODE(left.stat().st_mode) == 0o700
    write(tmp_path / "talk", HEARD)
    assert list(tmp_path.iterdir()) == [tmp_path / "talk"], "what was left is deleted"
    assert {path.name for path in (tmp_path / "talk").iterdir()} == FILES


def test_a_parent_that_is_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        write(tmp_path / "out" / "talk", HEARD)


def test_nothing_of_a_withheld_turn_but_time_label_and_reason_is_written(tmp_path: Path) -> None:
    """The types hold no more of it; this says that none of it is guessed or fetched from elsewhere either."""
    files = written(tmp_path, replace(HEARD, answers=()))
    rows = [strict(line) for line in files["turns.jsonl"].splitlines()]
    for row in (row for row in rows if not row["admitted"]):
        assert row.keys() == {"start", "end", "speaker", "admitted", "reason", "evidence", "threshold"}
    assert "speaker_2" not in files["transcript.json"] + files["transcript.srt"] + files["transcript.vtt"]


# --- folders ----------------------------------------------------------------------------------------------------------


def names(tmp_path: Path, *recordings: str) -> list[str]:
    return [folder.name for folder in plan_folders(tmp_path, recordings)]


def test_a_folder_is_named_as_its_recording(tmp_path: Path) -> None:
    assert plan_folders(tmp_path / "new" / "out", ["a/talk.wav", "meeting.2.m4a", "-"]) == [
        tmp_path / "new" / "out" / name for name in ("talk", "meeting.2", "stdin")
    ]
    assert list((tmp_path / "new" / "out").iterdir()) == []


def test_equal_stems_are_told_apart_by_extension_and_equal_names_by_number(tmp_path: Path) -> None:
    assert names(tmp_path, "talk.wav", "talk.m4a", "other.wav") == ["talk.wav", "talk.m4a", "other"]
    assert names(tmp_path, "a/talk.wav", "b/talk.wav", "c/talk.wav") == ["talk", "talk-2", "talk-3"]
    assert names(tmp_path, "a/talk.wav", "b/talk.wav", "talk.m4a") == ["talk.wav", "talk.wav-2", "talk.m4a"]
    assert names(tmp_path, "Talk.wav", "talk.wav", "talk-2.wav") == ["Talk", "talk-2", "talk-2-2"]


def test_a_folder_that_exists_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "talk").mkdir()
    with pytest.raises(OutputError, match=r"talk' exists already and is not overwritten; give another --out or remove"):
        plan_folders(tmp_path, ["other.wav", "talk.wav"])


def test_even_a_dangling_link_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "talk").symlink_to(tmp_path / "nowhere")
    with pytest.raises(OutputError, match="exists already"):
        plan_folders(tmp_path, ["talk.wav"])


@pytest.mark.parametrize("below", ["", "deeper"])
def test_an_out_that_is_a_file_is_refused(tmp_path: Path, below: str) -> None:
    (tmp_path / "out").write_text("kept")
    with pytest.raises(OutputError, match="is not a folder, or lies below what is none; give another --out") as error:
        plan_folders(tmp_path / "out" / below, ["talk.wav"])
    assert len(str(error.value).splitlines()) == 1
    assert (tmp_path / "out").read_text() == "kept"


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs /proc, in which nobody can make a folder")
def test_an_out_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(OutputError, match=r"'/proc/self/out' cannot be written: .*; give another --out"):
        plan_folders(Path("/proc/self/out"), ["talk.wav"])


@pytest.mark.parametrize(
    ("recording", "name"),
    [
        ("a b (1) 中文 ⚒️;touch x.wav", "a b (1) 中文 ⚒️;touch x"),
        ("запись.wav", "запись"),
        ("..", "recording"),
        (".", "recording"),
        ("", "recording"),
        ("...wav", "recording"),
        ("C:\\talks\\one.wav", "C__talks_one"),
        ("a\nb\x00c.wav", "a_b_c"),
        ("bad\udcff.wav", "bad_"),
        ("e\u0301.wav", "é"),
        ("中" * 120 + ".wav", "中" * (NAME_BYTES // 3)),
        ("n" * 120 + ".wav", "n" * NAME_CHARACTERS),
        ("-", "stdin"),
        ("-.wav", "-"),
        ("call \u202egpj.exe\u200b.wav", "call _gpj.exe_"),
        ("👩\u200d💻.wav", "👩\u200d💻"),
        ("CON.wav", "CON_"),
        ("nul", "nul_"),
        ("com1.talk.wav", "com1_.talk"),
        ("Lpt9 .wav", "Lpt9_"),
        ("Aux ." + "x" * 120 + ".wav", "Aux_." + "x" * (NAME_CHARACTERS - 5)),
        ("console.wav", "console"),
    ],
)
def test_names_keep_their_letters_and_lose_what_no_folder_can_have(recording: str, name: str) -> None:
    assert session_name(recording) == name


@pytest.mark.parametrize(
    ("recording", "name"),
    [("a/talk one.wav", "talk one.wav"), ("../talk.tar.gz", "talk.tar.gz"), ("talk", "talk"), ("-", "stdin")],
)
def test_a_recording_is_called_by_its_files_name(recording: str, name: str) -> None:
    assert recording_name(recording) == name


def test_recordings_of_the_same_name_differ_by_their_session(tmp_path: Path) -> None:
    recordings = ["a/talk.wav", "b/talk.wav"]
    summaries = []
    for recording, folder in zip(recordings, plan_folders(tmp_path, recordings), strict=True):
        write(folder, replace(HEARD, name=recording_name(recording)))
        summaries.append(strict((folder / "summary.json").read_text()))
        (row,) = strict((folder / "transcript.json").read_text())
        assert row["session_id"] == summaries[-1]["session_id"]
    assert [(row["recording"], row["session_id"]) for row in summaries] == [
        ("talk.wav", "talk"),
        ("talk.wav", "talk-2"),
    ]


@given(st.lists(st.text(st.characters(exclude_categories=()), max_size=300), max_size=6))
def test_any_names_give_different_folders_that_can_be_made(
    tmp_path_factory: pytest.TempPathFactory, recordings: list[str]
) -> None:
    out = tmp_path_factory.mktemp("out")
    folders = plan_folders(out, recordings)
    for folder in folders:
        assert folder.parent == out
        assert folder.name not in (".", "..", "")
        assert len(session_name(folder.name)) <= NAME_CHARACTERS
        assert len(folder.name.encode()) <= NAME_BYTES + 2
        folder.mkdir()
    assert len({folder.name.casefold() for folder in folders}) == len(recordings)
