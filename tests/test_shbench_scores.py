"""Files of predictions -> systems, scores and audit; the published files against a restatement of their evaluation."""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cascade.errors import ItemsError
from cascade.scoring.efficacy import Speaker, selective_efficacy
from cascade.scoring.paper import read_as_published
from cascade.shbench.audit import MOST_FINDINGS, Finding, Kind
from cascade.shbench.names import Setting
from cascade.shbench.scores import Scores, evaluate
from cascade.types import Mode, Outcome, Question, Reading
from tests.test_scoring_paper import PHRASES

SHARED = Path(__file__).resolve().parents[2] / "shared" / "shbench"
PUBLISHED = pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/shbench, the published predictions, is not here")
IDK = "I don't know"


def read_plainly(reply: str, question: Question) -> Reading:
    """Read a lone letter, or a word for what became of the reply."""
    if reply in ("refused", "filtered", "unparsed", "dont_know"):
        return Reading(None, Outcome(reply), reply)
    if not reply:
        return Reading(None, Outcome.EMPTY, "nothing")
    if not question.options:
        return Reading(None, Outcome.UNPARSED, "no options")
    choice = "ABCDE".find(reply[0])
    return Reading(choice, Outcome.DONT_KNOW if choice == question.dont_know else Outcome.ANSWERED, f"letter {reply}")


READERS = {"strict": read_plainly, "paper": read_as_published}


def raw(number: int = 0, **others: Any) -> dict[str, Any]:
    """Return a prediction: A is right, E is "I don't know"; B is what it says. Ten to a recording, five a speaker."""
    return {
        "question": f"What is said {number}?",
        "options": ["right", "wrong", "worse", "worst", IDK],
        "answer": "right",
        "speaker": "main" if number % 10 < 5 else "bystander",
        "audio": f"audio/{number // 10}.wav",
        "type": "real" if number // 10 % 2 == 0 else "synth",
        "idk_answer": IDK,
        "pred": "B",
    } | others


def replies(preds: Sequence[str], **others: Any) -> list[dict[str, Any]]:
    return [raw(number, pred=pred, **others) for number, pred in enumerate(preds)]


def written(folder: Path, name: str, items: list[dict[str, Any]]) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(json.dumps(items))
    return file


def scored(
    *files: Path, modes: Sequence[Mode] | None = None, name: str | None = None, data: Path | None = None
) -> Scores:
    return evaluate(files, modes, name, READERS, data)


def kinds(scores: Scores) -> Counter[str]:
    return Counter(str(finding.kind) for finding in scores.audit)


def only(scores: Scores, kind: Kind) -> Finding:
    (finding,) = [one for one in scores.audit if one.kind is kind]
    return finding


def mode_of(scores: Scores, mode: str, parser: str = "strict", system: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = scores.as_dict()["systems"][system]["parsers"][parser][mode]
    return found


# --- the published files ----------------------------------------------------------------------------------------------


def restated(file: Path) -> dict[tuple[str, str], tuple[int, int, float]]:
    """Evaluate a file as the benchmark does, restated: (right, asked, sum of entropies) by speaker and type."""
    found: dict[tuple[str, str], tuple[int, int, float]] = {}
    for item in json.loads(gzip.decompress(file.read_bytes())):
        reference = item["answer"]
        if "selective" in file.name and "noidk" not in file.name and item["speaker"] == "bystander":
            reference = item["idk_answer"]
        text = item["pred"].strip()
        for phrase in PHRASES:
            text = text.split(phrase)[-1]
        capitals = [letter for letter in text if letter in "ABCDE"]
        letter = "" if len(text.split()) > 10 and not capitals else "".join(capitals[:1])
        right, asked, nats = found.get((item["speaker"], item["type"]), (0, 0, 0.0))
        shares = np.array(item.get("logp", [1.0]))
        found[item["speaker"], item["type"]] = (
            right + (letter == "ABCDE"[item["options"].index(reference)]),
            asked + 1,
            nats + -np.sum(shares * np.log(shares)),
        )
    return found


@PUBLISHED
@pytest.mark.parametrize("file", sorted(SHARED.glob("*.json.gz")), ids=lambda file: str(file.name))
def test_the_paper_reader_gives_what_the_published_evaluation_gives(file: Path) -> None:
    plain = restated(file)
    scores = scored(file)
    has_entropy = "nospk" not in file.name
    mode = mode_of(scores, "selective" if "selective" in file.name else "general", "paper")
    for speaker in ("main", "bystander"):
        parts = [plain[speaker, partition] for partition in ("real", "synth")]
        (real_right, real_asked, real_nats), (synth_right, synth_asked, synth_nats) = parts
        for partition, (right, asked, nats) in zip(("real", "synth"), parts, strict=True):
            assert mode[partition][speaker]["accuracy"] == right / asked
            assert mode[partition][speaker]["entropy"] == (nats / asked if has_entropy else None)
        assert (mode[speaker]["correct"], mode[speaker]["total"]) == (
            real_right + synth_right,
            real_asked + synth_asked,
        )
        assert mode[speaker]["accuracy"] == (real_right + synth_right) / (real_asked + synth_asked)
        expected = (real_nats + synth_nats) / (real_asked + synth_asked)
        assert mode[speaker]["entropy"] == (expected if has_entropy else None)


# Table 2, 3 and 4 of arXiv 2512.06380 where file and paper agree; else what the file gives.
PRINTED = {
    "qwen25omni_basicnoidk_qa": (97.2, 63.1),
    "qwen25omni_selectivenoidk_qa": (97.3, 61.5),
    "qwen25omni_selective_qa_nospk": (96.2, 42.8),
    "train_qwen25omni_basic_qa": (93.3, 82.0),
    "qwen25omni_basic_qa": (96.1, 47.9),
    "qwen25omni_selective_qa": (95.6, 49.4),
    "train_qwen25omni_selective_qa": (92.7, 94.8),
}
PRINTED_ENTROPIES = {
    "qwen25omni_basic_qa": (0.224, 0.329),
    "qwen25omni_selective_qa": (0.219, 0.329),
    "qwen25omni_basicnoidk_qa": (0.060, 0.429),
    "qwen25omni_selectivenoidk_qa": (0.057, 0.477),  # the paper prints 0.058 and 0.478
}


@PUBLISHED
@pytest.mark.parametrize("name", PRINTED)
def test_the_published_accuracies_and_entropies_to_the_printed_digit(name: str) -> None:
    mode = mode_of(scored(SHARED / f"{name}.json.gz"), "selective" if "selective" in name else "general", "paper")
    speakers = ("main", "bystander")
    assert tuple(round(100 * mode[speaker]["accuracy"], 1) for speaker in speakers) == PRINTED[name]
    if name in PRINTED_ENTROPIES:
        assert tuple(round(mode[speaker]["entropy"], 3) for speaker in speakers) == PRINTED_ENTROPIES[name]


@PUBLISHED
def test_the_published_files_are_four_systems_and_their_general_file_serves_two() -> None:
    scores = evaluate(sorted(SHARED.glob("*.json.gz")), None, None, {"paper": read_as_published})
    found = scores.as_dict()
    summary = [
        (
            system["name"],
            [Path(file).name.removesuffix(".json.gz") for file in system["files"]],
            system["parsers"]["paper"]["se"] and round(100 * system["parsers"]["paper"]["se"], 1),
        )
        for system in found["systems"]
    ]
    assert sorted(summary, key=str) == [
        ("qwen25omni", ["qwen25omni_basic_qa", "qwen25omni_selective_qa"], 64.5),
        ("qwen25omni", ["qwen25omni_basic_qa", "qwen25omni_selective_qa_nospk"], 61.5),
        ("qwen25omni", ["qwen25omni_basicnoidk_qa", "qwen25omni_selectivenoidk_qa"], None),
        ("train_qwen25omni", ["train_qwen25omni_basic_qa", "train_qwen25omni_selective_qa"], 90.4),
    ]
    assert kinds(scores) == {"fewer_probabilities": 2, "repeated_question": 7}
    assert {finding.item for finding in scores.audit} == {None, 1691}
    assert json.loads(json.dumps(found, allow_nan=False)) == found


@PUBLISHED
def test_what_the_general_file_of_the_paper_would_give_without_a_description() -> None:
    """Table 3 pairs the selective file with general accuracies of 96.0 and 48.2, where the file has 96.1 and 47.9."""
    mode = mode_of(scored(SHARED / "qwen25omni_selective_qa_nospk.json.gz"), "selective", "paper")
    accuracies = (0.960, 0.482, mode["main"]["accuracy"], mode["bystander"]["accuracy"])
    assert round(100 * (selective_efficacy(accuracies) or 0), 1) == 61.6


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "mode", "setting", "system"),
    [
        ("sys_basic_qa.json", Mode.GENERAL, Setting(), "sys"),
        ("sys_general_qa.json.gz", Mode.GENERAL, Setting(), "sys"),
        ("sys_selective_qa.json", Mode.SELECTIVE, Setting(), "sys"),
        ("sys_SELECTIVE_qa.JSON", Mode.SELECTIVE, Setting(), "sys"),
        ("sys_selectivenoidk_qa.json", Mode.SELECTIVE, Setting(idk_option=False), "sys"),
        ("sys_noidk_basic.json", Mode.GENERAL, Setting(idk_option=False), "sys"),
        ("sys_selective_qa_nospk.json", Mode.SELECTIVE, Setting(described=False), "sys"),
        ("sys_selectivenospeaker_qa.json", Mode.SELECTIVE, Setting(described=False), "sys"),
        ("sys_selectivenospknoidk_qa.json", Mode.SELECTIVE, Setting(idk_option=False, described=False), "sys"),
        ("sys_basicopen_qa.json", Mode.GENERAL, Setting(open_ended=True), "sys"),
        ("sys_selective_open_qa.json", Mode.SELECTIVE, Setting(open_ended=True), "sys"),
        ("openended_sys_basic.json", Mode.GENERAL, Setting(open_ended=True), "sys"),
        ("sys_basicalwaysshut_qa.json", Mode.GENERAL, Setting(always_shut=True), "sys"),
        ("sys_basicopenqa.json", Mode.GENERAL, Setting(open_ended=True), "sys"),
        ("open_sys_basic_qa.json", Mode.GENERAL, Setting(), "open_sys"),
        ("openai-4.1_selective_qa.json", Mode.SELECTIVE, Setting(), "openai-4.1"),
        ("sys_basic_openai.json", Mode.GENERAL, Setting(), "sys_openai"),
        ("generalist_selective.json", Mode.SELECTIVE, Setting(), "generalist"),
        ("generalist_basic.json", Mode.GENERAL, Setting(), "generalist"),
        ("selective_net_selective.json", Mode.SELECTIVE, Setting(), "selective_net"),
        ("basic.json", Mode.GENERAL, Setting(), "folder"),
        ("selective_qa.json", Mode.SELECTIVE, Setting(), "folder"),
    ],
)
def test_a_name_tells_mode_setting_and_system(
    tmp_path: Path, name: str, mode: Mode, setting: Setting, system: str
) -> None:
    scores = scored(written(tmp_path / "folder", name, [raw()]))
    (file,) = scores.files
    assert (file.mode, file.setting, scores.systems[0].name, scores.systems[0].setting) == (
        mode,
        setting,
        system,
        setting,
    )


def test_a_folders_name_tells_nothing(tmp_path: Path) -> None:
    scores = scored(written(tmp_path / "selective_noidk", "sys_basic.json", [raw()]))
    assert (scores.files[0].mode, scores.files[0].setting) == (Mode.GENERAL, Setting())


def test_without_a_word_the_mode_must_be_given(tmp_path: Path) -> None:
    file = written(tmp_path, "answers.json", [raw()])
    scores = scored(file)
    (system,) = scores.as_dict()["systems"]
    assert (system["name"], system["files"]) == ("answers.json", [str(file)])
    nothing = {"general": None, "selective": None, "se": None, "se_cluster95": None}
    assert system["parsers"] == {"strict": nothing, "paper": nothing}
    assert [found["kind"] for found in system["audit"]] == ["mode_unknown"]
    assert list(scores.readings()) == []
    assert only(scores, Kind.MODE_UNKNOWN).file == str(file)
    assert "--mode" in only(scores, Kind.MODE_UNKNOWN).detail
    given_mode = scored(file, modes=[Mode.SELECTIVE])
    assert given_mode.systems[0].name == "answers"
    assert given_mode.systems[0].selective is given_mode.files[0]


def test_given_modes_are_one_for_all_or_one_for_each(tmp_path: Path) -> None:
    files = [written(tmp_path, name, [raw()]) for name in ("one_basic.json", "two.json", "three.json")]
    assert [file.mode for file in scored(*files, modes=[Mode.SELECTIVE]).files] == [Mode.SELECTIVE] * 3
    each = [Mode.GENERAL, Mode.SELECTIVE, Mode.GENERAL]
    assert [file.mode for file in scored(*files, modes=each).files] == each
    with pytest.raises(ItemsError, match="2 modes came for 3 files"):
        scored(*files, modes=each[:2])


# --- systems ----------------------------------------------------------------------------------------------------------


def test_both_modes_of_a_system_are_scored_together(tmp_path: Path) -> None:
    general = written(tmp_path, "sys_basic_qa.json", replies("AAAABAABBB" * 2))
    selective = written(tmp_path, "sys_selective_qa.json", replies("AAAEEEEEEA" * 2))
    scores = scored(selective, general)
    assert kinds(scores) == {}
    (system,) = scores.as_dict()["systems"]
    assert system["name"] == "sys"
    assert system["files"] == [str(general), str(selective)]
    assert system["setting"] == {"idk_option": True, "described": True, "open_ended": False, "always_shut": False}
    for parser in system["parsers"].values():
        assert [parser["general"][speaker]["accuracy"] for speaker in ("main", "bystander")] == [0.8, 0.4]
        assert [parser["selective"][speaker]["accuracy"] for speaker in ("main", "bystander")] == [0.6, 0.8]
        assert parser["se"] == pytest.approx(4 / (1 / 0.8 + 1 / 0.4 + 1 / 0.6 + 1 / 0.8))
        assert parser["se_cluster95"] == pytest.approx([parser["se"]] * 2)  # both recordings are the same


def test_a_cell_says_all_that_was_counted(tmp_path: Path) -> None:
    preds = ["A", "E", "refused", "unparsed", "", "A", "filtered", "E", "E", "refused", *"AAAAA", *"BBBBB"]
    file = written(tmp_path, "sys_basic_qa.json", replies(preds, logp=[0.5, 0.5, 0.0, 0.0, 0.0]))
    mode = mode_of(scored(file), "general")
    assert list(mode) == ["main", "bystander", "real", "synth"]
    main, bystander = mode["main"], mode["bystander"]
    assert main == {
        "correct": 6,
        "total": 10,
        "accuracy": 0.6,
        "wilson95": [pytest.approx(0.3127, abs=1e-4), pytest.approx(0.8318, abs=1e-4)],
        "cluster95": [0.2, 1.0],
        "idk": 1,
        "idk_rate": 0.1,
        "unparsed": 1,
        "unparsed_rate": 0.1,
        "refused": 1,
        "filtered": 0,
        "empty": 1,
        "entropy": pytest.approx(math.log(2)),
        "over_refusal": 0.2,
    }
    assert (bystander["correct"], bystander["idk"], bystander["refused"], bystander["filtered"]) == (1, 2, 1, 1)
    assert bystander["over_refusal"] is None
    assert (mode["real"]["main"]["correct"], mode["synth"]["main"]["correct"]) == (1, 5)
    assert (mode["real"]["bystander"]["correct"], mode["synth"]["bystander"]["total"]) == (1, 5)
    assert mode["synth"]["main"]["cluster95"] is None


def test_a_mode_and_a_value_that_are_not_there_are_null(tmp_path: Path) -> None:
    file = written(tmp_path, "sys_basic_qa.json", [raw()])
    scores = scored(file)
    for parser in scores.as_dict()["systems"][0]["parsers"].values():
        assert parser["selective"] is None
        assert parser["se"] is None
        assert parser["se_cluster95"] is None
        assert parser["general"]["main"]["entropy"] is None
        empty = parser["general"]["synth"]["bystander"]
        assert (empty["total"], empty["accuracy"], empty["wilson95"], empty["idk_rate"]) == (0, None, None, None)
    missing = only(scores, Kind.MODE_MISSING)
    assert (missing.file, missing.item) == (str(file), None)
    assert "no selective file" in missing.detail


def test_a_selective_file_alone_misses_its_general_one(tmp_path: Path) -> None:
    scores = scored(written(tmp_path, "sys_selective_qa.json", replies("A" * 10)))
    assert scores.systems[0].general is None
    assert "no general file" in only(scores, Kind.MODE_MISSING).detail
    assert kinds(scores) == {"mode_missing": 1}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("one_basic_qa.json", "two_selective_qa.json"),
        ("sys_basicnoidk_qa.json", "sys_selective_qa.json"),
        ("sys_basicopen_qa.json", "sys_selective_qa.json"),
    ],
)
def test_different_systems_or_settings_are_not_mixed(tmp_path: Path, first: str, second: str) -> None:
    general, selective = written(tmp_path, first, [raw()]), written(tmp_path, second, [raw()])
    scores = scored(general, selective)
    assert [system.files for system in scores.systems] == [(general,), (selective,)]
    told = [[found["kind"] for found in system["audit"]] for system in scores.as_dict()["systems"]]
    assert [len(set(kinds) & {"mode_missing", "mixed_systems"}) for kinds in told] == [1, 2]
    assert kinds(scores)["mode_missing"] == 2
    mixed = only(scores, Kind.MIXED_SYSTEMS)
    assert mixed.file == str(selective)
    assert general.name in mixed.detail


def test_the_same_name_in_two_folders_is_two_systems(tmp_path: Path) -> None:
    files = [
        written(tmp_path / folder, f"sys_{mode}_qa.json", [raw()])
        for folder in ("run1", "run2")
        for mode in ("basic", "selective")
    ]
    scores = scored(*files)
    assert [system.name for system in scores.systems] == ["run1/sys_qa", "run2/sys_qa"]
    assert kinds(scores) == {}


def test_a_given_name_makes_one_system_of_all_files(tmp_path: Path) -> None:
    files = [written(tmp_path / "a", "x_basic.json", [raw()]), written(tmp_path / "b", "y_selective.json", [raw()])]
    (system,) = scored(*files, name="my qa").systems
    assert system.name == "my qa"
    assert list(system.files) == files


def test_two_files_for_one_mode_are_refused(tmp_path: Path) -> None:
    files = [written(tmp_path / folder, "sys_basic_qa.json", [raw()]) for folder in ("a", "b")]
    with pytest.raises(ItemsError, match="both the general mode of one system in one setting"):
        scored(*files, name="sys")
    with pytest.raises(ItemsError, match="both the general mode"):
        scored(files[0], files[0])


def test_one_file_may_be_given_for_both_modes(tmp_path: Path) -> None:
    file = written(tmp_path, "sys.json", [raw()])
    (system,) = scored(file, file, modes=[Mode.GENERAL, Mode.SELECTIVE]).systems
    assert [one.mode for one in (system.general, system.selective) if one] == [Mode.GENERAL, Mode.SELECTIVE]


def test_a_general_file_without_description_is_preferred_where_there_is_one(tmp_path: Path) -> None:
    names = ("sys_basic_qa", "sys_basic_nospk_qa", "sys_selective_qa", "sys_selective_nospk_qa")
    files = [written(tmp_path, f"{name}.json", [raw()]) for name in names]
    pairs = [[file.stem for file in system.files] for system in scored(*files).systems]
    assert pairs == [[names[0], names[2]], [names[1], names[3]]]
    (other,) = scored(files[1], files[2]).systems
    assert [file.stem for file in other.files] == [names[1], names[2]]


def test_systems_come_in_the_order_of_their_files(tmp_path: Path) -> None:
    names = ("b_basic", "c_selective", "a_basic", "c_basic", "b_selective")
    files = [written(tmp_path, f"{name}.json", [raw()]) for name in names]
    assert [system.name for system in scored(*files).systems] == ["c", "a", "b"]


# --- references -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "main", "bystander"),
    [("basic", "A", "A"), ("selective", "A", "E"), ("selective_nospk", "A", "E"), ("selectivenoidk", "A", "A")],
)
def test_the_right_answer_depends_on_mode_speaker_and_setting(
    tmp_path: Path, name: str, main: str, bystander: str
) -> None:
    file = written(tmp_path, f"sys_{name}.json", replies([main] * 5 + [bystander] * 5))
    mode = mode_of(scored(file), "general" if name == "basic" else "selective")
    assert [mode[speaker]["accuracy"] for speaker in ("main", "bystander")] == [1.0, 1.0]
    swapped = written(tmp_path, f"sys_{name}.json", replies(["B"] * 5 + ["E" if bystander == "A" else "A"] * 5))
    mode = mode_of(scored(swapped), "general" if name == "basic" else "selective")
    assert [mode[speaker]["accuracy"] for speaker in ("main", "bystander")] == [0.0, 0.0]


def test_without_an_i_dont_know_option_there_is_no_efficacy(tmp_path: Path) -> None:
    options = ["right", "wrong", "worse", "worst"]
    files = [
        written(tmp_path, f"sys_{mode}noidk_qa.json", replies("A" * 10, options=options))
        for mode in ("basic", "selective")
    ]
    scores = scored(*files)
    assert kinds(scores) == {}
    parser = scores.as_dict()["systems"][0]["parsers"]["strict"]
    assert (parser["selective"]["bystander"]["accuracy"], parser["se"], parser["se_cluster95"]) == (1.0, None, None)


def test_an_item_without_its_reference_is_not_scored_and_said(tmp_path: Path) -> None:
    items = replies("A" * 10 + "E" * 10)
    items[3]["answer"] = "gone"
    items[7]["idk_answer"] = "gone"
    items[8]["answer"] = "gone"
    scores = scored(written(tmp_path, "sys_selective.json", items))
    mode = mode_of(scores, "selective")
    assert (mode["main"]["total"], mode["bystander"]["total"]) == (9, 9)
    assert {(one.kind, one.item) for one in scores.audit if one.kind is not Kind.MODE_MISSING} == {
        (Kind.ANSWER_NOT_IN_OPTIONS, 3),
        (Kind.IDK_NOT_IN_OPTIONS, 7),
        (Kind.ANSWER_NOT_IN_OPTIONS, 8),
    }
    assert {reading["item"] for reading in scores.readings()} == set(range(20)) - {3, 7}


def test_open_ended_questions_are_only_counted(tmp_path: Path) -> None:
    preds = ["It leaves at ten.", "dont_know", "refused", "unparsed", "", *["dont_know"] * 5]
    items = [{**raw(number, pred=pred), "options": []} for number, pred in enumerate(preds)]
    seen: list[Question] = []

    def reader(reply: str, question: Question) -> Reading:
        seen.append(question)
        reading = read_plainly(reply, question)
        return Reading(None, Outcome.ANSWERED, "open") if reading.outcome is Outcome.UNPARSED else reading

    files = [written(tmp_path, f"sys_{mode}open_qa.json", items) for mode in ("basic", "selective")]
    scores = evaluate(files, None, None, {"strict": reader, "paper": read_as_published})
    (system,) = scores.as_dict()["systems"]
    assert system["setting"]["open_ended"] is True
    assert system["parsers"]["paper"] == {"general": None, "selective": None, "se": None, "se_cluster95": None}
    assert system["parsers"]["strict"]["se"] is None
    for mode in ("general", "selective"):
        cells = system["parsers"]["strict"][mode]
        assert (cells["main"]["correct"], cells["main"]["accuracy"], cells["main"]["total"]) == (None, None, 5)
        assert (cells["main"]["idk"], cells["main"]["refused"], cells["main"]["unparsed"]) == (1, 1, 0)
        assert (cells["main"]["over_refusal"], cells["bystander"]["idk_rate"]) == (0.4, 1.0)
        assert cells["main"]["cluster95"] is None
    assert not any(question.options for question in seen)
    assert kinds(scores) == {}
    first = next(scores.readings())
    assert (first["outcome"], first["right"], first["choice"]) == ("answered", None, None)


def test_an_open_ended_reply_is_no_letter_though_the_file_has_options(tmp_path: Path) -> None:
    file = written(tmp_path, "sys_basicopen_qa.json", replies(["E"] * 10))
    assert mode_of(scored(file), "general")["main"]["idk"] == 0


# --- entropy ----------------------------------------------------------------------------------------------------------


def test_a_zero_probability_makes_the_published_entropy_null(tmp_path: Path) -> None:
    items = replies("A" * 10, logp=[0.5, 0.5, 0.0, 0.0, 0.0])
    for item in items[1:]:
        item["logp"] = [0.2] * 5
    scores = scored(written(tmp_path, "sys_basic.json", items))
    assert mode_of(scores, "general", "paper")["main"]["entropy"] is None
    assert mode_of(scores, "general", "paper")["bystander"]["entropy"] == pytest.approx(math.log(5))
    expected = (math.log(2) + 4 * math.log(5)) / 5
    assert mode_of(scores, "general")["main"]["entropy"] == pytest.approx(expected)
    assert only(scores, Kind.ZERO_PROBABILITY).item == 0


def test_what_is_no_probability_is_left_out_of_the_strict_entropy(tmp_path: Path) -> None:
    items = replies("A" * 10, logp=[0.2] * 5)
    items[2]["logp"] = [-0.1, -2.3, -4.0, -4.0, -4.0]
    scores = scored(written(tmp_path, "sys_basic.json", items))
    assert mode_of(scores, "general")["main"]["entropy"] == pytest.approx(math.log(5))
    assert mode_of(scores, "general", "paper")["main"]["entropy"] is None


# --- audit ------------------------------------------------------------------------------------------------------------


def audited(tmp_path: Path, name: str = "sys_basic.json", **fields: Any) -> Counter[str]:
    """Return what is found in ten items of which the fourth has other fields, but for the missing mode."""
    items = replies("A" * 10, logp=[0.2] * 5)
    items[3] |= fields
    scores = scored(written(tmp_path, name, items))
    assert {finding.item for finding in scores.audit if finding.kind is not Kind.MODE_MISSING} <= {3}
    return kinds(scores) - Counter(["mode_missing"])


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"logp": [0.25] * 4}, "fewer_probabilities"),
        ({"logp": [0.2] * 4 + [0.1] * 2}, "more_probabilities"),
        ({"logp": [0.2, 0.2, 0.2, 0.2, 0.211]}, "probabilities_sum"),
        ({"logp": [0.2, 0.2, 0.2, 0.2, 0.189]}, "probabilities_sum"),
        ({"logp": [0.4, 0.4, 0.4, -0.1, -0.1]}, "invalid_probability"),
        ({"logp": [0.2, 0.2, 0.2, 0.2, math.nan]}, "invalid_probability"),
        ({"logp": [0.2, 0.2, 0.2, 0.2, math.inf]}, "invalid_probability"),
        ({"logp": [0.2, 0.2, 0.2, 0.2, "0.2"]}, "invalid_probability"),
        ({"logp": [0.25, 0.25, 0.25, 0.25, 0.0]}, "zero_probability"),
        ({"options": ["right", "right", "worse", "worst", IDK]}, "duplicate_option"),
        ({"answer": "gone"}, "answer_not_in_options"),
        ({"idk_answer": "gone"}, "idk_not_in_options"),
        ({"pred": None}, "reply_missing"),
        ({"pred": 3}, "reply_missing"),
        ({"audio": "audio/0.wav", "question": "What is said 0?"}, "duplicate_item"),
        ({"speaker": "bystander", "question": "What is said 0?"}, "repeated_question"),
    ],
)
def test_the_audit_finds(tmp_path: Path, fields: dict[str, Any], kind: str) -> None:
    assert audited(tmp_path, **fields) == {kind: 1}


@pytest.mark.parametrize(
    "fields",
    [
        {"logp": [0.2, 0.2, 0.2, 0.2, 0.2099]},
        {"logp": [0.2, 0.2, 0.2, 0.2, 0.1901]},
        {"audio": "audio/1.wav", "question": "What is said 0?"},
        {"pred": ""},
    ],
)
def test_the_audit_lets_pass(tmp_path: Path, fields: dict[str, Any]) -> None:
    assert audited(tmp_path, **fields) == {}


def test_a_missing_reply_is_an_empty_one(tmp_path: Path) -> None:
    file = written(tmp_path, "sys_basic.json", [raw(pred=None), raw(1, pred=7), raw(2)])
    assert mode_of(scored(file), "general")["main"]["empty"] == 2


def test_a_duplicate_is_scored_twice_and_names_the_first(tmp_path: Path) -> None:
    scores = scored(written(tmp_path, "sys_basic.json", [raw(4), raw(5), raw(4), raw(4)]))
    found = [one for one in scores.audit if one.kind is Kind.DUPLICATE_ITEM]
    assert [one.item for one in found] == [2, 3]
    assert all("item 0" in one.detail for one in found)
    assert mode_of(scores, "general")["main"]["total"] == 3


def test_what_all_items_share_is_said_once(tmp_path: Path) -> None:
    items = replies("A" * 30, logp=[0.25] * 4)
    finding = only(scored(written(tmp_path, "sys_basic.json", items)), Kind.FEWER_PROBABILITIES)
    assert finding.item is None
    assert "all 30 items" in finding.detail
    assert "4 probabilities for 5 options" in finding.detail


@pytest.mark.parametrize("count", [MOST_FINDINGS, MOST_FINDINGS + 1, MOST_FINDINGS + 5])
def test_no_more_than_twenty_of_a_kind_are_told_one_by_one(tmp_path: Path, count: int) -> None:
    items = replies("A" * 30, logp=[0.2] * 5)
    for item in items[2 : 2 + count]:
        item["logp"] = [0.25] * 4
    scores = scored(written(tmp_path, "sys_basic.json", items))
    found = [one for one in scores.audit if one.kind is Kind.FEWER_PROBABILITIES]
    assert [one.item for one in found[:MOST_FINDINGS]] == list(range(2, 2 + MOST_FINDINGS))
    rest = [(one.item, one.detail) for one in found[MOST_FINDINGS:]]
    assert rest == ([] if count == MOST_FINDINGS else [(None, f"{count - MOST_FINDINGS} more")])


def test_a_single_items_fault_keeps_its_place(tmp_path: Path) -> None:
    scores = scored(written(tmp_path, "sys_basic.json", [raw(logp=[0.5, 0.5])]))
    assert only(scores, Kind.FEWER_PROBABILITIES).item == 0


def test_probabilities_of_some_items_only_are_said(tmp_path: Path) -> None:
    scores = scored(written(tmp_path, "sys_basic.json", [raw(0), raw(1, logp=[0.2] * 5), raw(2)]))
    assert "2 of 3 items have no probabilities" in only(scores, Kind.FEWER_PROBABILITIES).detail


def test_options_must_fit_the_name(tmp_path: Path) -> None:
    scores = scored(written(tmp_path, "sys_basicnoidk.json", replies("A" * 10)))
    assert only(scores, Kind.OPTIONS_DO_NOT_FIT_NAME).item is None
    assert mode_of(scores, "general")["bystander"]["accuracy"] == 1.0
    bare = replies("A" * 10, options=["right", "wrong"])
    scores = scored(written(tmp_path, "sys_selective.json", bare))
    assert only(scores, Kind.OPTIONS_DO_NOT_FIT_NAME).item is None
    assert only(scores, Kind.IDK_NOT_IN_OPTIONS).item is None
    assert mode_of(scores, "selective")["bystander"]["accuracy"] is None
    assert mode_of(scores, "selective")["main"]["accuracy"] == 1.0
    bare[0]["options"] = ["right", IDK]
    scores = scored(written(tmp_path, "sys_selective.json", bare))
    assert kinds(scores)["options_do_not_fit_name"] == 0
    assert kinds(scores)["idk_not_in_options"] == 9


def test_the_two_modes_must_ask_the_same(tmp_path: Path) -> None:
    general, selective = replies("A" * 10), replies("A" * 10)
    general.pop(4)
    selective.pop(8)
    selective[2]["answer"] = "wrong"
    selective[3]["options"] = ["right", "wrong", "other", "worst", IDK]
    files = [written(tmp_path, "sys_basic.json", general), written(tmp_path, "sys_selective.json", selective)]
    scores = scored(*files)
    missing = [(Path(one.file).name, one.item, one.detail) for one in scores.audit if one.kind is Kind.MISSING_ITEM]
    assert missing == [
        ("sys_basic.json", None, "item 4 of 'sys_selective.json' is not here"),
        ("sys_selective.json", None, "item 7 of 'sys_basic.json' is not here"),
    ]
    differ = [(Path(one.file).name, one.item) for one in scores.audit if one.kind is Kind.REFERENCES_DIFFER]
    assert differ == [("sys_selective.json", 2), ("sys_selective.json", 3)]
    assert kinds(scores) == {"missing_item": 2, "references_differ": 2}


def test_another_order_of_options_or_items_is_no_difference(tmp_path: Path) -> None:
    turned = [{**item, "options": item["options"][::-1]} for item in replies("A" * 10)][::-1]
    files = [written(tmp_path, "sys_basic.json", replies("A" * 10)), written(tmp_path, "sys_selective.json", turned)]
    assert kinds(scored(*files)) == {}


def test_files_are_held_against_the_benchmarks(tmp_path: Path) -> None:
    described = dict.fromkeys(
        ("main_speaker_desc", "main_speaker_desc_w_content", "main_speaker_desc_w_content_filter"), "a voice"
    )
    data = written(tmp_path, "shbench.json", [item | described for item in replies("A" * 10)])
    items = replies("A" * 11)
    items[2]["answer"] = "wrong"
    items[10]["audio"] = "elsewhere.wav"
    items.pop(0)
    file = written(tmp_path, "sys_basic.json", items)
    scores = scored(file, data=data)
    found = {str(one.kind): (one.file, one.item) for one in scores.audit if one.kind is not Kind.MODE_MISSING}
    assert found == {
        "missing_item": (str(file), None),
        "unknown_item": (str(file), 9),
        "references_differ": (str(file), 1),
    }
    bare = [{**item, "options": ["right", "wrong", "worse", "worst"]} for item in replies("A" * 10)]
    assert kinds(scored(written(tmp_path, "sys_basicnoidk.json", bare), data=data)) == {"mode_missing": 1}
    opened = [{**item, "options": []} for item in replies("A" * 10)]
    assert kinds(scored(written(tmp_path, "sys_basicopen.json", opened), data=data)) == {"mode_missing": 1}


def test_no_finding_quotes_an_item(tmp_path: Path) -> None:
    odd = raw(answer="canary", idk_answer="canary", pred=None, options=["canary one", "canary one"], logp=["canary"])
    scores = scored(written(tmp_path, "sys_basic.json", [odd, odd, raw()]))
    assert len(scores.audit) > 5
    assert not any("canary" in one.detail for one in scores.audit)


# --- readings ---------------------------------------------------------------------------------------------------------


def test_each_reading_says_what_was_read_and_why(tmp_path: Path) -> None:
    files = [
        written(tmp_path, "sys_basic.json", replies(["A", "E"])),
        written(tmp_path, "sys_selective.json", replies(["A", "B"])),
        written(tmp_path, "sys_selective_nospk.json", replies(["A", "unparsed"])),
    ]
    found = list(scored(*files).readings())
    assert len(found) == 3 * 2 * 2
    assert found[1] == {
        "file": str(files[0]),
        "item": 1,
        "mode": "general",
        "reader": "strict",
        "choice": "E",
        "outcome": "dont_know",
        "why": "letter E",
        "right": False,
    }
    assert [(one["reader"], one["choice"], one["outcome"], one["right"]) for one in found[8:]] == [
        ("strict", "A", "answered", True),
        ("strict", None, "unparsed", False),
        ("paper", "A", "answered", True),
        ("paper", None, "unparsed", False),
    ]
    json.dumps(found)


@given(st.lists(st.tuples(st.sampled_from("ABCDE"), st.sampled_from("ABCDE")), min_size=10, max_size=30))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_scores_are_those_of_plain_counting(tmp_path: Path, preds: list[tuple[str, str]]) -> None:
    general, selective = (replies(list(column)) for column in zip(*preds, strict=True))
    scores = scored(written(tmp_path, "sys_basic.json", general), written(tmp_path, "sys_selective.json", selective))
    accuracies = []
    for mode, items in (("general", general), ("selective", selective)):
        for speaker in Speaker:
            its = [item for item in items if item["speaker"] == speaker]
            right = "E" if (mode, speaker) == ("selective", "bystander") else "A"
            accuracies.append(sum(item["pred"] == right for item in its) / len(its))
            cell = mode_of(scores, mode)[speaker]
            assert cell["accuracy"] == accuracies[-1]
            assert cell["idk"] == sum(item["pred"] == "E" for item in its)
    for parser in scores.as_dict()["systems"][0]["parsers"].values():
        assert parser["se"] == (4 / sum(1 / share for share in accuracies) if all(accuracies) else 0.0)
