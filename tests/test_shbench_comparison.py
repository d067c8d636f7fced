from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from cascade.errors import ItemsError
from cascade.scoring.efficacy import Speaker, selective_efficacy
from cascade.scoring.tally import Tally
from cascade.shbench.comparison import (
    CELLS,
    NAME_WIDTH,
    Figures,
    Paper,
    Setting,
    agreements,
    escaped,
    figures_of,
    load_paper,
    rows_beside,
    scores_md,
    screen_table,
)
from cascade.types import Mode

SHARED = Path(__file__).resolve().parents[2] / "shared" / "shbench" / "paper_tables.json"
PAPER = load_paper()
BY_NAME = {system.name: system for system in PAPER.systems}
QWEN, BPFT = "Qwen-2.5-Omni 7B", "Qwen-2.5-Omni 7B + BPFT"

Json = dict[str, Any]


# --- scores made by hand ----------------------------------------------------------------------------------------------


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


# --- Markdown as a reader sees it -------------------------------------------------------------------------------------


def tokens(markdown: str) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(markdown)


def shown(token: Token) -> str:
    """The text that an inline token shows."""
    return "".join(child.content for child in token.children or () if child.type in ("text", "code_inline"))


def tables(markdown: str) -> dict[str, list[list[str]]]:
    """The last table under each heading, as rows of texts, the header first."""
    found: dict[str, list[list[str]]] = {}
    heading, rows = "", list[list[str]]()
    stream = tokens(markdown)
    for before, token in pairwise(stream):
        if before.type == "heading_open":
            heading = shown(token)
        elif token.type == "table_open":
            rows = found[heading] = []
        elif token.type == "tr_open":
            rows.append([])
        elif before.type in ("th_open", "td_open"):
            rows[-1].append(shown(token))
    return found


def row(table: list[list[str]], *start: str) -> list[str]:
    """The only row of a table that starts with these texts."""
    (found,) = [line for line in table if line[: len(start)] == list(start)]
    return found


# --- the paper --------------------------------------------------------------------------------------------------------


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


# --- side by side -----------------------------------------------------------------------------------------------------


def test_a_run_stands_among_the_papers_rows_by_its_se() -> None:
    table = tables(scores_md(scores(run()), PAPER))["Accuracies and SE (table 2)"]
    assert table[0][-1] == "SE"
    efficacies = [float(line[-1]) for line in table[1:]]
    assert len(efficacies) == 11
    assert efficacies == sorted(efficacies, reverse=True)
    assert row(table, "mine") == ["mine", "both", "90.0", "80.0", "60.0", "70.0", "73.3"]
    assert row(table, QWEN) == [QWEN, "published", "96.0", "95.5", "48.2", "47.6", "63.9"]


def test_what_is_not_known_is_a_dash_and_comes_last() -> None:
    half = system(["mine_basic_qa.json"], mode(900, 600), None)
    table = tables(scores_md(scores(half), PAPER))["Accuracies and SE (table 2)"]
    assert table[-1] == ["mine_basic_qa", "both", "90.0", "–", "60.0", "–", "–"]


def test_an_se_of_0_is_known() -> None:
    nothing = run(selective=(800, 0))
    assert tables(scores_md(scores(nothing), PAPER))["Accuracies and SE (table 2)"][-1][-1] == "0.0"


def test_readers_that_differ_have_a_row_each() -> None:
    mine = run()
    mine["parsers"]["paper"] = parser(mode(910, 600), mode(800, 700))
    table = tables(scores_md(scores(mine), PAPER))["Accuracies and SE (table 2)"]
    assert row(table, "mine", "strict")[2] == "90.0"
    assert row(table, "mine", "published")[2] == "91.0"


def test_a_system_has_all_that_was_counted() -> None:
    mine = run()
    counted = cell(600, idk=300, unparsed=40, refused=None, entropy=0.1234, cluster95=[0.55, 0.65])
    mine["parsers"]["strict"] = parser({**mode(900, 600), "bystander": counted}, mode(800, 700))
    mine["parsers"]["strict"]["se_cluster95"] = [0.7, 0.76]
    table = row(tables(scores_md(scores(mine), PAPER))["mine"], "strict")
    assert table == ["strict", "73.3", "70.0–76.0"]
    lines = scores_md(scores(mine), PAPER).splitlines()
    (bystander,) = [line for line in lines if line.startswith("| general | bystander | strict | 600")]
    assert bystander.split(" | ")[3:] == [
        "600 of 1000", "60.0", "56.9–63.0", "55.0–65.0", "30.0", "–", "4.0", "0.123 |",
    ]  # fmt: skip
    (main,) = [line for line in lines if line.startswith("| general | main speaker | strict | 900")]
    assert main.split(" | ")[7:10] == ["1.0", "1.5", "2.0"]  # over-refusal: "I don't know", or refused


def test_real_and_synthetic_are_apart() -> None:
    mine = run()
    general = mode(900, 600)
    general["real"] = {"main": cell(400, 500), "bystander": None}
    general["synth"] = None
    mine["parsers"]["strict"] = parser(general, mode(800, 700))
    found = tables(scores_md(scores(mine), PAPER))
    split = found["Real and synthetic recordings"]
    assert row(split, "general", "main speaker", "strict")[3:] == ["400 of 500", "80.0", "–", "–"]
    assert row(split, "general", "bystander", "strict")[3:] == ["–", "–", "–", "–"]
    assert row(split, "selective", "bystander", "published")[3:] == ["350 of 500", "70.0", "350 of 500", "70.0"]
    table6 = found["Real / synthetic recordings (table 6)"]
    assert row(table6, "mine", "strict")[2:4] == ["80.0 / –", "80.0 / 80.0"]
    assert row(table6, BPFT)[2:] == ["91.6 / 95.0", "90.8 / 94.6", "74.4 / 89.6", "90.0 / 99.6"]


def test_table_8_has_the_intervals() -> None:
    table = tables(scores_md(scores(run()), PAPER))["Wilson intervals (table 8)"]
    assert row(table, "mine")[2:] == ["88.0–91.7", "77.4–82.4", "56.9–63.0", "67.1–72.8"]
    assert row(table, QWEN)[2:] == ["94.6–97.0", "94.0–96.6", "45.1–51.3", "44.5–50.7"]
    assert len(table) == 1 + 1 + 3


def test_without_an_idk_option_lower_is_better_and_there_is_no_se() -> None:
    mine = system(
        ["a/mine_basicnoidk_qa.json", "a/mine_selectivenoidk_qa.json"],
        mode(970, 630, entropy=0.25),
        mode(980, 610, entropy=0.5),
    )
    text = scores_md(scores(mine), PAPER)
    assert "**lower is better**" in text
    found = tables(text)
    table4 = found['With and without an "I don\'t know" option (table 4)']
    name = "mine_basicnoidk_qa + mine_selectivenoidk_qa (no IDK option)"
    assert row(table4, name)[2:] == ["97.0 (0.250)", "98.0 (0.500)", "63.0 (0.250)", "61.0 (0.500)"]
    assert row(table4, f"{QWEN} (no IDK option)")[5] == "61.5 (0.478)"
    assert row(table4, QWEN)[5] == "47.6 (0.329)"
    assert "Accuracies and SE (table 2)" not in found
    assert figures_of(mine, "strict").se is None
    assert [line.split()[-1] for line in screen_table(scores(mine), PAPER) if line.startswith("> mine")] == ["–"]


def test_without_a_description_a_run_is_beside_table_3() -> None:
    mine = system(["mine_basic_qa.json", "mine_selective_qa_nospk.json"], mode(900, 600), mode(800, 700), name="mine")
    found = tables(scores_md(scores(mine), PAPER))
    table = found["Without a description (table 3)"]
    assert row(table, "mine (no description)")[2:] == ["80.0", "70.0", "73.3"]
    assert [line[0] for line in table[1:]] == [
        f"{BPFT} (no description)",
        "mine (no description)",
        f"{QWEN} (no description)",
    ]  # nothing printed of Gemini
    assert "Accuracies and SE (table 2)" not in found


def test_open_ended_questions_are_counted_as_declined() -> None:
    mine = system(
        ["mine_selective_openended_qa.json"],
        None,
        {
            "main": cell(None, 200, idk=2, refused=None),
            "bystander": cell(None, 200, idk=150, refused=30),
        },
        name="mine",
    )
    table = tables(scores_md(scores(mine), PAPER))["Open-ended questions (table 5)"]
    assert row(table, "mine (open-ended)", "selective", "strict")[3:] == ["1.0", "90.0"]
    assert row(table, "Step-Audio-2-mini + BPFT")[3:] == ["1.0", "96.0"]
    assert "declined 1.0 % about the main speaker, 90.0 % about the bystander" in "\n".join(
        screen_table(scores(mine), PAPER)
    )


def test_a_gate_that_was_always_shut_is_said_wherever_the_system_is_named() -> None:
    mine = {**run(), "always": True}
    text = scores_md(scores(mine, run("other")), PAPER)
    found = tables(text)
    for title in ("Accuracies and SE (table 2)", "Real / synthetic recordings (table 6)", "Wilson intervals (table 8)"):
        assert row(found[title], "mine (gate always shut)")
        assert row(found[title], "other")
    assert "The gate was shut in general mode too" in text
    assert any(line.startswith("> mine (gate always shut) ") for line in screen_table(scores(mine), PAPER))


def test_other_numbers_of_questions_are_said() -> None:
    small = system(["s_basic.json", "s_selective.json"], mode(50, 40, 60), mode(50, 40, 60), name="small")
    text = scores_md(scores(small, run("large")), PAPER)
    (line,) = [line for line in text.splitlines() if "cannot be compared" in line]
    assert line.endswith(": small.")
    assert "cannot be compared" not in scores_md(scores(run()), PAPER)


def test_nothing_scored_gives_no_tables() -> None:
    text = scores_md(scores(system(["a_basic.json"], None, None), audit=[]), PAPER)
    assert "Beside the paper" not in text
    assert "Nothing was found." in text


def test_words_are_explained_once() -> None:
    text = scores_md(scores(run(), run("other")), PAPER)
    for word in ("**General mode**", "**Selective mode**", "**SE**", "**Wilson**", "**By recording**", "**strict**"):
        assert text.count(word) == 1


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


def test_an_entropy_that_rounding_made_negative_is_0() -> None:
    sure = system(["m_basicnoidk.json"], mode(960, 482, entropy=-1e-9), None, name="m")
    table = tables(scores_md(scores(sure), PAPER))['With and without an "I don\'t know" option (table 4)']
    assert row(table, "m (no IDK option)")[2] == "96.0 (0.000)"


def test_half_of_a_published_pair_is_compared_without_an_se() -> None:
    half = system(["qwen25omni_basic_qa.json"], mode(960, 482), None)
    assert all("general" in line.what for line in agreements(half, PAPER))
    mixed = system(["qwen25omni_basic_qa.json", "gemini_selective_qa.json"], mode(960, 482), mode(970, 592))
    assert not any("Efficacy" in line.what for line in agreements(mixed, PAPER))


def test_the_report_counts_what_agrees() -> None:
    found = system(["qwen25omni3B_basic_qa.json", "qwen25omni3B_selective_qa.json"], mode(962, 531), mode(956, 546))
    text = scores_md(scores(found), PAPER)
    assert "4 of 5 values agree with the paper" in text
    assert row(tables(text)["The paper's values for Qwen-2.5-Omni 3B"], "accuracy, bystander, selective mode")[1:] == [
        "differ by -0.1", "2", "54.6", "54.7",
    ]  # fmt: skip


def test_files_of_which_the_paper_prints_nothing_are_said_to_be_so() -> None:
    files = ["stepaudio_basicnoidk_qa.json", "stepaudio_selectivenoidk_qa.json"]
    assert "prints no values for them" in scores_md(scores(system(files, mode(9, 9), mode(9, 9))), PAPER)


def test_other_files_are_not_compared() -> None:
    assert agreements(run(), PAPER) == []
    assert "The paper's values" not in scores_md(scores(run()), PAPER)


# --- the audit --------------------------------------------------------------------------------------------------------


def test_findings_are_grouped_by_kind() -> None:
    audit: list[Json] = [
        {"kind": "missing_item", "file": "a.json", "item": None, "detail": "3 more"},
        {"kind": "duplicate_item", "file": "a.json", "item": 0, "detail": "as item 3"},
        {"kind": "missing_item", "file": None, "item": None, "detail": "<b>|"},
    ]
    text = scores_md(scores(run(), audit=audit), PAPER)
    after = text[text.index("## What is wrong") :]
    assert [shown(token) for token in tokens(after) if token.type == "inline"] == [
        "What is wrong with the files",
        "Duplicate item",
        "a.json, item 0: as item 3",
        "Missing item",
        "a.json: 3 more",
        "All files: <b>|",
    ]


# --- any name ---------------------------------------------------------------------------------------------------------

NASTY = [
    "a|b",
    "<b>bold</b>",
    "two\nlines | x",
    "**a**",
    "_a_ __b__",
    "[a](http://b)",
    "`c`",
    "# a #",
    "a\\|b",
    "&amp;",
]


@pytest.mark.parametrize("name", NASTY)
def test_a_name_cannot_break_a_table(name: str) -> None:
    nasty = {**run(), "name": name, "files": [f"{name}_basic_qa.json", f"{name}_selective_qa.json"]}
    found = tables(scores_md(scores(nasty), PAPER))
    one_line = " ".join(name.split())
    table = found["Accuracies and SE (table 2)"]
    assert row(table, one_line) == [one_line, "both", "90.0", "80.0", "60.0", "70.0", "73.3"]
    assert {len(line) for line in table} == {7}
    assert one_line in found  # its own heading


@given(
    st.text(
        st.characters(codec="utf-8", exclude_categories=("Cc", "Cf", "Cs", "Co", "Cn"))
        | st.sampled_from("|<>&*_`[]()#~!\\\n\r\t$:"),
        min_size=1,
    )
)
def test_any_text_is_shown_as_it_is(text: str) -> None:
    expected = " ".join(text.split())
    (table,) = tables(f"# any\n\n| a | b |\n| --- | --- |\n| x{escaped(text)}x | y |\n").values()
    assert table[1] == [f"x{expected}x", "y"] or table[1] == [f"x{expected.strip()}x", "y"]


@given(st.text("ab_é中", min_size=1))
def test_underscores_of_names_mark_nothing(text: str) -> None:
    (paragraph,) = [token for token in tokens(f"Files: {escaped(text)}") if token.type == "inline"]
    assert shown(paragraph) == f"Files: {text}"
    assert not any(child.type in ("em_open", "strong_open") for child in paragraph.children or ())


# --- on a screen ------------------------------------------------------------------------------------------------------


def test_the_screen_has_the_run_among_the_papers_rows() -> None:
    lines = screen_table(scores(run()), PAPER)
    assert sum(line.startswith(">") for line in lines) == 2  # the row, and what the mark means
    (mine,) = [line for line in lines if line.startswith("> mine")]
    assert mine.split() == [">", "mine", "both", "90.0", "80.0", "60.0", "70.0", "73.3"]
    assert lines[lines.index(mine) - 1].split()[0] == "Gemini"
    assert {len(line) for line in lines[2:-1]} == {80}


@pytest.mark.parametrize("name", ["x" * 200, "中文" * 30, "a\nb\x1b[31m", "a" * NAME_WIDTH])
def test_any_name_fits_the_screen(name: str) -> None:
    lines = screen_table(scores({**run(), "name": name}), PAPER)
    (mine,) = [line for line in lines if line.startswith(">") and "both" in line]
    wide = sum(character in "中文" for character in mine)
    assert len(mine) + wide == 80
    assert "\x1b" not in mine


def test_systems_without_a_description_say_so_on_the_screen() -> None:
    mine = system(["m_basic.json", "m_selective_nospk.json"], mode(900, 600), mode(800, 700), name="m" * 50)
    (line,) = [line for line in screen_table(scores(mine), PAPER) if line.startswith("> m")]
    assert "… (no description)" in line


def test_the_screen_has_only_the_papers_usual_rows() -> None:
    mine = system(["m_basicnoidk.json", "m_selectivenoidk.json"], mode(900, 600), mode(800, 700), name="m")
    lines = screen_table(scores(mine), PAPER)
    assert len([line for line in lines if not line.startswith(">")]) == 2 + len(PAPER.systems)


def test_a_system_of_which_no_setting_is_said_is_asked_as_usual() -> None:
    mine = {**run(), "setting": None}
    assert row(tables(scores_md(scores(mine), PAPER))["Accuracies and SE (table 2)"], "mine")


def test_rows_of_a_setting_are_of_that_setting() -> None:
    assert [row.name for row in rows_beside(scores(run()), PAPER, Setting.NO_IDK)] == [QWEN]


def test_loading_the_paper_needs_no_other_file(tmp_path: Path) -> None:
    assert Paper.model_validate(PAPER.model_dump()) == PAPER
