from __future__ import annotations

import pytest

from cascade.shbench.paper import load_paper
from cascade.shbench.screen import NAME_WIDTH, screen_table
from tests.made_scores import cell, mode, run, scores, system

PAPER = load_paper()


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


def test_without_an_idk_option_the_screen_has_no_se() -> None:
    mine = system(["mine_basicnoidk.json", "mine_selectivenoidk.json"], mode(970, 630), mode(980, 610))
    assert [line.split()[-1] for line in screen_table(scores(mine), PAPER) if line.startswith("> mine")] == ["–"]


def test_open_ended_questions_have_a_line_each_on_the_screen() -> None:
    selective = {"main": cell(None, 200, idk=2, refused=None), "bystander": cell(None, 200, idk=150, refused=30)}
    mine = system(["mine_selective_openended_qa.json"], None, selective, name="mine")
    assert "declined 1.0 % about the main speaker, 90.0 % about the bystander" in "\n".join(
        screen_table(scores(mine), PAPER)
    )


def test_a_gate_that_was_always_shut_is_said_on_the_screen() -> None:
    lines = screen_table(scores({**run(), "setting": {"always_shut": True}}), PAPER)
    assert any(line.startswith("> mine (gate always shut) ") for line in lines)


def test_a_run_that_was_asked_other_numbers_of_questions_says_so_below_the_table() -> None:
    small = system(["s_basic.json", "s_selective.json"], mode(5, 4, 10), mode(5, 4, 10), name="small")
    lines = screen_table(scores(small, run("large")), PAPER)
    assert [line for line in lines if "questions" in line] == [
        "> small: 20 questions in each mode, the paper's systems 2000; so these rows cannot be compared as they stand"
    ]
