from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cascade.errors import ItemsError
from cascade.scoring.efficacy import Speaker, selective_efficacy
from cascade.scoring.tally import Tally
from cascade.shbench.comparison import CELLS
from cascade.shbench.paper import Figures, Paper, Setting, load_paper
from cascade.types import Mode

SHARED = Path(__file__).resolve().parents[2] / "shared" / "shbench" / "paper_tables.json"
PAPER = load_paper()
BY_NAME = {system.name: system for system in PAPER.systems}
QWEN, BPFT = "Qwen-2.5-Omni 7B", "Qwen-2.5-Omni 7B + BPFT"

Json = dict[str, Any]


@pytest.fixture(scope="module")
def tables_of_the_paper() -> Json:
    if not SHARED.is_file():
        pytest.skip("the paper's tables are not beside this checkout (shared/shbench/paper_tables.json)")
    found: Json = json.loads(SHARED.read_text(encoding="utf-8"))
    return found


def accuracies(figures: Figures | None) -> list[float | None]:
    assert figures is not None
    return [figures.cell(*where).accuracy for where in CELLS]


def test_table_2_is_the_papers(tables_of_the_paper: Json) -> None:
    ours = {name: [*accuracies(system.standard), system.standard.se] for name, system in BY_NAME.items()}
    assert ours == tables_of_the_paper["table2"]


def test_table_3_is_the_papers(tables_of_the_paper: Json) -> None:
    ours = {
        name: [found.selective.main.accuracy, found.selective.bystander.accuracy, found.se]
        for name, system in BY_NAME.items()
        if (found := system.no_description) and found.se is not None
    }
    assert ours == {
        name: row for name, row in tables_of_the_paper["table3_without_description"].items() if name != "columns"
    }


def test_table_4_is_the_papers(tables_of_the_paper: Json) -> None:
    theirs = tables_of_the_paper["table4_accuracy_entropy"]
    for figures, name in ((BY_NAME[QWEN].standard, "with IDK"), (BY_NAME[QWEN].no_idk, "no IDK")):
        assert figures is not None
        cells = [figures.cell(mode, speaker) for mode in (Mode.GENERAL, Mode.SELECTIVE) for speaker in Speaker]
        assert [[cell.accuracy, cell.entropy] for cell in cells] == theirs[f"{QWEN}, {name}"]
    entropies = [
        name
        for name, system in BY_NAME.items()
        for _, figures in system.settings
        if any(figures.cell(*where).entropy is not None for where in CELLS)
    ]
    assert len(entropies) == len(theirs) - 1  # but for the columns' names


def test_table_5_is_the_papers(tables_of_the_paper: Json) -> None:
    ours = {name: [found.main, found.bystander] for name, system in BY_NAME.items() if (found := system.open_ended)}
    theirs = tables_of_the_paper["table5_open_ended_refusal"]
    assert ours == {name: row for name, row in theirs.items() if name != "columns"}


def test_table_6_is_the_papers(tables_of_the_paper: Json) -> None:
    ours = {
        name: [[system.standard.cell(*where).real, system.standard.cell(*where).synth] for where in CELLS]
        for name, system in BY_NAME.items()
        if system.standard.general.main.real is not None
    }
    theirs = tables_of_the_paper["table6_real_synthetic"]
    assert ours == {name: row for name, row in theirs.items() if name != "columns"}


def test_table_8_is_the_papers(tables_of_the_paper: Json) -> None:
    ours = {
        name: [list(found) for where in CELLS if (found := system.standard.cell(*where).wilson95)]
        for name, system in BY_NAME.items()
        if system.standard.general.main.wilson95
    }
    assert ours == tables_of_the_paper["table8_wilson95"]


def test_the_number_of_questions_is_the_papers(tables_of_the_paper: Json) -> None:
    assert PAPER.questions.main + PAPER.questions.bystander == tables_of_the_paper["dataset"]["test"]["questions"]


def table_2_rows() -> list[tuple[str, Figures]]:
    return [(system.name, system.standard) for system in PAPER.systems]


@pytest.mark.parametrize(("name", "figures"), table_2_rows())
def test_se_is_what_the_accuracies_of_its_row_give(name: str, figures: Figures) -> None:
    fractions = [accuracy / 100 for accuracy in accuracies(figures) if accuracy is not None]
    se = selective_efficacy(fractions)
    assert se is not None
    assert figures.se == pytest.approx(100 * se, abs=0.051)


@pytest.mark.parametrize("name", [QWEN, BPFT])
def test_se_without_a_description_rests_on_the_same_general_mode(name: str) -> None:
    bare, general = BY_NAME[name].no_description, BY_NAME[name].standard.general
    assert bare is not None
    cells = (general.main, general.bystander, bare.selective.main, bare.selective.bystander)
    se = selective_efficacy([cell.accuracy / 100 for cell in cells if cell.accuracy is not None])
    assert se is not None
    assert bare.se == pytest.approx(100 * se, abs=0.051)


@pytest.mark.parametrize(("name", "figures"), table_2_rows())
def test_intervals_and_halves_fit_their_accuracies(name: str, figures: Figures) -> None:
    for where in CELLS:
        cell = figures.cell(*where)
        assert cell.accuracy is not None
        if cell.wilson95:
            expected = Tally(round(10 * cell.accuracy), 1000).wilson95
            assert expected is not None
            assert cell.wilson95 == pytest.approx([100 * end for end in expected], abs=0.051)
        if cell.real is not None and cell.synth is not None and (name, where) != (BPFT, CELLS[3]):
            assert (cell.real + cell.synth) / 2 == pytest.approx(cell.accuracy, abs=0.01)


@pytest.mark.parametrize(
    ("file", "name", "setting", "mode"),
    [
        ("qwen25omni_basic_qa.json.gz", QWEN, Setting.STANDARD, Mode.GENERAL),
        ("a/b.gz/qwen25omni_selective_qa.json", QWEN, Setting.STANDARD, Mode.SELECTIVE),
        ("C:\\results\\qwen25omni_selectivenoidk_qa.json", QWEN, Setting.NO_IDK, Mode.SELECTIVE),
        ("qwen25omni_selective_qa_nospk.json", QWEN, Setting.NO_DESCRIPTION, Mode.SELECTIVE),
        ("train_qwen25omni_selectivenospk_qa.json", BPFT, Setting.NO_DESCRIPTION, Mode.SELECTIVE),
        ("qwen25omni3B_basic_qa.json", "Qwen-2.5-Omni 3B", Setting.STANDARD, Mode.GENERAL),
        ("stepaudio_selective_qa.json", "Step-Audio-2-mini", Setting.STANDARD, Mode.SELECTIVE),
        ("train_stepaudio2_basic_qa.json", "Step-Audio-2-mini + BPFT", Setting.STANDARD, Mode.GENERAL),
        ("gemini_basic_qa.json", "Gemini 2.5 Pro", Setting.STANDARD, Mode.GENERAL),
        ("selective_gpt_answer.json", "GPT-4o-audio-preview", Setting.STANDARD, Mode.SELECTIVE),
    ],
)
def test_published_files_are_known_by_name(file: str, name: str, setting: Setting, mode: Mode) -> None:
    found = PAPER.published(file)
    assert found is not None
    assert (found.system.name, found.setting, found.mode) == (name, setting, mode)


@pytest.mark.parametrize("file", ["mine_basic_qa.json", "qwen25omni_basic_qa.txt", "xqwen25omni_basic_qa.json", ""])
def test_other_files_are_not(file: str) -> None:
    assert PAPER.published(file) is None


def test_each_system_and_file_is_there_once() -> None:
    files = [
        file
        for system in PAPER.systems
        for _, figures in system.settings
        for file in (*figures.files.general, *figures.files.selective)
    ]
    assert len(set(files)) == len(files)
    assert len(BY_NAME) == len(PAPER.systems) == len({system.short for system in PAPER.systems})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the whole file: "),
        (b"systems: [", "expected YAML in UTF-8"),
        (b"\xff\xfe", "expected YAML in UTF-8"),
        (b"source: {title: a, url: b}\nquestions: {main: 1, bystander: 1}\nsystems: []", "systems: "),
        (
            b"source: {title: a, url: b}\nquestions: {main: 1, bystander: 1}\n"
            b"systems: [{name: a, short: a, standard: {se: 101}}]",
            "systems.0.standard.se: ",
        ),
    ],
)
def test_a_file_that_does_not_fit_is_said_in_one_line(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "paper.yaml"
    path.write_bytes(content)
    with pytest.raises(ItemsError, match="mend the file") as caught:
        load_paper(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert said in message
    assert "\n" not in message


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(ItemsError, match="cannot be read: No such file"):
        load_paper(tmp_path / "none.yaml")


def test_loading_the_paper_needs_no_other_file(tmp_path: Path) -> None:
    assert Paper.model_validate(PAPER.model_dump()) == PAPER
