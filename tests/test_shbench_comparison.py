from __future__ import annotations

from typing import Any

import pytest

from cascade.scoring.efficacy import Speaker
from cascade.shbench.comparison import agreements, declined_of, figures_of, full_name, own_rows, rows_beside, setting_of
from cascade.shbench.paper import Setting, load_paper
from cascade.types import Mode
from tests.made_scores import cell, mode, parser, run, scores, system

PAPER = load_paper()
QWEN = "Qwen-2.5-Omni 7B"


# --- a run in the paper's shape ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "setting"),
    [
        (None, Setting.STANDARD),
        ({"described": True, "idk_option": True, "open_ended": False}, Setting.STANDARD),
        ({"described": False}, Setting.NO_DESCRIPTION),
        ({"described": False, "idk_option": False}, Setting.NO_IDK),
        ({"idk_option": False, "open_ended": True}, Setting.OPEN_ENDED),
    ],
)
def test_how_a_system_was_asked_is_told(asked: dict[str, Any] | None, setting: Setting) -> None:
    assert setting_of({**run(), "setting": asked}) is setting


def test_a_name_says_how_a_system_was_asked() -> None:
    bare = {**run(), "setting": {"described": False, "always_shut": True}}
    assert full_name(run()) == "mine"
    assert full_name(bare) == "mine (no description; gate always shut)"
    assert full_name({**run(), "name": None}) == "mine_basic_qa + mine_selective_qa"


def test_fractions_are_put_in_percent() -> None:
    figures = figures_of(run(), "strict")
    found = figures.cell(Mode.GENERAL, Speaker.BYSTANDER)
    assert (found.accuracy, found.real, found.synth, found.entropy) == (60.0, 60.0, 60.0, None)
    assert found.wilson95 == pytest.approx((56.9, 63.0), abs=0.05)
    assert figures.se == pytest.approx(73.3, abs=0.05)


def test_readers_that_agree_share_a_row() -> None:
    assert [row.read for row in own_rows(run())] == ["both"]
    mine = run()
    mine["parsers"]["paper"] = parser(mode(910, 600), mode(800, 700))
    assert [row.read for row in own_rows(mine)] == ["strict", "paper"]


def test_rows_stand_by_their_se() -> None:
    rows = rows_beside(scores(run(), system(["half_basic.json"], mode(900, 600), None)), PAPER, Setting.STANDARD)
    efficacies = [row.figures.se for row in rows]
    assert efficacies[-1] is None
    known = [se for se in efficacies if se is not None]
    assert len(known) == len(PAPER.systems) + 1
    assert known == sorted(known, reverse=True)
    assert [row.name for row in rows if row.own] == ["mine", "half_basic"]


def test_rows_of_a_setting_are_of_that_setting() -> None:
    assert [row.name for row in rows_beside(scores(run()), PAPER, Setting.NO_IDK)] == [QWEN]


def test_what_was_declined_is_what_was_refused_or_not_known() -> None:
    selective = {"main": cell(None, 200, idk=2, refused=None), "bystander": cell(None, 200, idk=150, refused=30)}
    found = declined_of(system(["mine_openended_qa.json"], None, selective))
    assert found == [(Mode.SELECTIVE, reader, (1.0, 90.0)) for reader in ("strict", "paper")]


# --- published files --------------------------------------------------------------------------------------------------


def published(files: list[str], general: tuple[int, int], selective: tuple[int, int]) -> dict[str, str]:
    found = agreements(system(files, mode(*general), mode(*selective)), PAPER)
    return {f"{line.table}: {line.what}": line.verdict for line in found}


def test_differences_of_published_files_are_told_by_how_much() -> None:
    found = published(["qwen25omni_basic_qa.json", "qwen25omni_selective_qa.json.gz"], (961, 479), (956, 494))
    assert found["2: accuracy, main speaker, general mode"] == "**differ by +0.1**"
    assert found["2: accuracy, bystander, general mode"] == "**differ by -0.3**"
    assert found["2: accuracy, main speaker, selective mode"] == "**differ by +0.1**"
    assert found["2: accuracy, bystander, selective mode"] == "**differ by +1.8**"
    assert found["8: Wilson interval, bystander, selective mode"] == "**differ by +1.8, +1.8**"
    assert found["2: Selective Efficacy"] == "**differ by +0.6**"
    assert found["4: entropy, bystander, general mode"] == "not known from the file"


def test_published_files_that_agree_are_said_to() -> None:
    files = ["train_qwen25omni_basic_qa.json", "train_qwen25omni_selective_qa.json"]
    found = published(files, (933, 820), (927, 948))
    assert found["2: accuracy, bystander, general mode"] == "agree"
    assert found["8: Wilson interval, main speaker, general mode"] == "agree"
    assert found["2: Selective Efficacy"] == "**differ by +0.2**"


def test_halves_are_compared_each_with_its_own() -> None:
    files = ["qwen25omni_basic_qa.json", "qwen25omni_selective_qa.json"]
    general = mode(960, 482)
    general["real"] = {"main": cell(478, 500), "bystander": cell(208, 500)}
    general["synth"] = {"main": cell(482, 500), "bystander": cell(275, 500)}
    verdicts = {line.what: line.verdict for line in agreements(system(files, general, mode(955, 476)), PAPER)}
    assert verdicts["accuracy on real, on synthetic recordings, main speaker, general mode"] == "agree"
    assert verdicts["accuracy on real, on synthetic recordings, bystander, general mode"] == "**differ by +0.2, +0.0**"


def test_it_is_said_where_the_papers_own_tables_differ() -> None:
    selective = mode(927, 948)
    files = ["train_qwen25omni_basic_qa.json", "train_qwen25omni_selective_qa.json"]
    found = agreements(system(files, mode(933, 820), selective), PAPER)
    (line,) = [line for line in found if line.what == "accuracy, bystander, selective mode"]
    assert line.verdict == "**differ by +1.0**; but the halves in table 6 give 94.8"


def test_files_without_an_idk_option_are_compared_with_table_4() -> None:
    found = published(["qwen25omni_basicnoidk_qa.json", "qwen25omni_selectivenoidk_qa.json"], (972, 631), (973, 614))
    assert found["4: accuracy, bystander, general mode"] == "agree"
    assert found["4: accuracy, bystander, selective mode"] == "**differ by -0.1**"
    assert not any("Efficacy" in what for what in found)


def test_files_without_a_description_are_compared_with_table_3() -> None:
    found = published(["qwen25omni_basic_qa.json", "qwen25omni_selective_qa_nospk.json"], (960, 482), (962, 428))
    assert found["3: accuracy, bystander, selective mode"] == "agree"
    assert found["2: accuracy, bystander, general mode"] == "agree"
    assert found["3: Selective Efficacy"] == "agree"
    assert "2: Selective Efficacy" not in found


def test_entropies_are_compared_to_three_digits() -> None:
    files = ["qwen25omni_basic_qa.json", "qwen25omni_selective_qa.json"]
    found = agreements(system(files, mode(960, 482, entropy=0.2236), mode(955, 476, entropy=0.2194)), PAPER)
    verdicts = {line.what: line.verdict for line in found}
    assert verdicts["entropy, main speaker, general mode"] == "agree"
    assert verdicts["entropy, main speaker, selective mode"] == "agree"
    assert verdicts["entropy, bystander, general mode"] == "**differ by -0.105**"


def test_half_of_a_published_pair_is_compared_without_an_se() -> None:
    half = system(["qwen25omni_basic_qa.json"], mode(960, 482), None)
    assert all("general" in line.what for line in agreements(half, PAPER))
    mixed = system(["qwen25omni_basic_qa.json", "gemini_selective_qa.json"], mode(960, 482), mode(970, 592))
    assert not any("Efficacy" in line.what for line in agreements(mixed, PAPER))


def test_other_files_are_not_compared() -> None:
    assert agreements(run(), PAPER) == []
