from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from cascade.shbench.comparison import figures_of
from cascade.shbench.paper import load_paper
from cascade.shbench.tables import escaped, scores_md
from tests.made_scores import Json, cell, mode, parser, run, scores, system

PAPER = load_paper()
QWEN, BPFT = "Qwen-2.5-Omni 7B", "Qwen-2.5-Omni 7B + BPFT"


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


# --- side by side -----------------------------------------------------------------------------------------------------


def test_a_run_stands_among_the_papers_rows_by_its_se() -> None:
    table = tables(scores_md(scores(run()), PAPER))["Accuracies and SE (table 2)"]
    assert table[0][-1] == "SE"
    efficacies = [float(line[-1]) for line in table[1:]]
    assert len(efficacies) == 11
    assert efficacies == sorted(efficacies, reverse=True)
    assert row(table, "mine") == ["mine", "both", "90.0", "80.0", "60.0", "70.0", "73.3"]
    assert row(table, QWEN) == [QWEN, "paper", "96.0", "95.5", "48.2", "47.6", "63.9"]


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
    assert row(table, "mine", "paper")[2] == "91.0"


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
    assert row(split, "selective", "bystander", "paper")[3:] == ["350 of 500", "70.0", "350 of 500", "70.0"]
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


def test_a_gate_that_was_always_shut_is_said_wherever_the_system_is_named() -> None:
    mine = {**run(), "setting": {"always_shut": True}}
    text = scores_md(scores(mine, run("other")), PAPER)
    found = tables(text)
    for title in ("Accuracies and SE (table 2)", "Real / synthetic recordings (table 6)", "Wilson intervals (table 8)"):
        assert row(found[title], "mine (gate always shut)")
        assert row(found[title], "other")
    assert "The gate was shut in general mode too" in text


def test_other_numbers_of_questions_are_said() -> None:
    small = system(["s_basic.json", "s_selective.json"], mode(50, 40, 60), mode(50, 40, 60), name="small")
    text = scores_md(scores(small, run("large")), PAPER)
    (line,) = [line for line in text.splitlines() if "cannot be compared" in line]
    assert line.endswith(": small.")
    assert "cannot be compared" not in scores_md(scores(run()), PAPER)


def test_what_is_called_real_is_said_wherever_it_is() -> None:
    """The small benchmark's voices are all synthetic, and some of its recordings are called real."""
    lines = scores_md(scores(run()), PAPER).splitlines()
    for title in ("### Real and synthetic recordings", "### Real / synthetic recordings (table 6)"):
        assert "**all voices and rooms are synthetic**" in lines[lines.index(title) + 2]


def test_nothing_scored_gives_no_tables() -> None:
    text = scores_md(scores(system(["a_basic.json"], None, None), audit=[]), PAPER)
    assert "Beside the paper" not in text
    assert "Nothing was found." in text


def test_words_are_explained_once() -> None:
    text = scores_md(scores(run(), run("other")), PAPER)
    for word in ("**General mode**", "**Selective mode**", "**SE**", "**Wilson**", "**By recording**", "**strict**"):
        assert text.count(word) == 1


def test_an_entropy_that_rounding_made_negative_is_0() -> None:
    sure = system(["m_basicnoidk.json"], mode(960, 482, entropy=-1e-9), None, name="m")
    table = tables(scores_md(scores(sure), PAPER))['With and without an "I don\'t know" option (table 4)']
    assert row(table, "m (no IDK option)")[2] == "96.0 (0.000)"


def test_a_system_of_which_no_setting_is_said_is_asked_as_usual() -> None:
    mine = {**run(), "setting": None}
    assert row(tables(scores_md(scores(mine), PAPER))["Accuracies and SE (table 2)"], "mine")


# --- published files --------------------------------------------------------------------------------------------------


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


def test_other_files_have_no_part_about_the_paper() -> None:
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
