from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cascade.errors import AudioError, BackendError, NoMoreAnswersError
from cascade.reporting.benchmark import benchmark_page
from cascade.shbench.plan import Plan
from cascade.shbench.results import Results, run_plan
from cascade.shbench.running import Failed, Stopped
from cascade.types import Answer, Mode, Outcome, Question, Transcript
from tests import tone_benchmark as tones
from tests.canary import Models, cascade_of
from tests.html_page import Page

pytest.importorskip("matplotlib", reason="matplotlib is not installed (extra 'plots')")


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    folder = tmp_path_factory.mktemp("benchmark") / "data"
    tones.write(folder, recordings=2)
    return tones.plan_of(folder)


class Fixed:
    """Always says the same."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def answer(self, question: Question, transcript: Transcript) -> Answer:
        return self._answer


def ran(plan: Plan, answer: Answer | None = None) -> Results:
    def _load(config: Any) -> Any:
        cascade = cascade_of(config, Models())
        return cascade if answer is None else type(cascade)(cascade._stages, Fixed(answer))

    return run_plan(plan, None, tones.Watch(), load=_load)


def page_of(plan: Plan, results: Results) -> Page:
    page = Page(benchmark_page(plan, results))
    page.check_self_contained()
    return page


@pytest.fixture(scope="module")
def results(plan: Plan) -> Results:
    return ran(plan)


def test_it_has_scores_with_intervals_the_papers_rows_the_figure_and_the_hearings(plan: Plan, results: Results) -> None:
    page = page_of(plan, results)
    words = page.words
    cell = results.scores.as_dict()["systems"][0]["parsers"]["strict"]["selective"]["bystander"]
    wilson, clustered = (f"{100 * low:.1f}–{100 * high:.1f}" for low, high in (cell["wilson95"], cell["cluster95"]))
    for told in (
        "Benchmark of tones", "2 recordings, 12 questions, mode selective, general (enrolled: me.wav).",
        f"selective bystander {100 * cell['accuracy']:.1f} {clustered} {wilson}",
        f"{cell['correct']} of {cell['total']}", "Selective Efficacy: ",
        "SepFormer+Whisper+GPT-4o 65.9 96.7 97.2 50.7 49.1 paper", "▶ tones ",
        "4 hearings", "folder/scene 0.wav selective 7", "all 0.", "config.stages[0].use mixture",
    ):  # fmt: skip
        assert told in words, told
    (figure,) = [svg for svg in page.all("svg") if svg.get("role") == "img"]
    assert figure["aria-labelledby"] == "figure4-title figure4-desc"
    assert "SH-Bench: red diamonds are this run" in words
    assert [link["href"] for link in page.all("a")] == ["https://arxiv.org/abs/2512.06380"]


def test_it_names_the_benchmarks_files_and_no_folder(plan: Plan, results: Results) -> None:
    folder = plan.settings.audio
    lost = Failed("folder/scene 0.wav", AudioError(f"'{folder / 'folder' / 'scene 0.wav'}' changed while it ran"))
    page = page_of(plan, replace(results, failed=[lost]))
    assert "benchmark.data questions.json benchmark.audio data benchmark.references references.json" in page.words
    assert "folder/scene 0.wav: 'scene 0.wav' changed while it ran" in page.words
    assert str(folder.parent) not in page.text


def test_of_a_wrong_answer_about_the_main_speaker_there_are_question_right_and_given_option(plan: Plan) -> None:
    words = page_of(plan, ran(plan, Answer("A", Outcome.ANSWERED, 0))).words
    mine = [item for item in plan.items if item.speaker == "main"]
    wrong = [item for item in mine if item.options[0] != item.answer]
    assert 0 < len(wrong) < len(mine)
    for item in mine:
        right = f"{'ABCDE'[item.options.index(item.answer)]}. {item.answer}"
        told = f"right: {right} given: A. {item.options[0]} number {item.number}, {item.audio}"
        assert words.count(f"{item.question} {told}") == (2 if item in wrong else 0)  # once in each mode


def test_what_was_read_as_nothing_says_so_without_the_reply(plan: Plan) -> None:
    words = page_of(plan, ran(plan, Answer("kidney, I think, or a tumor", Outcome.UNPARSED))).words
    assert "given: (unparsed)" in words
    assert "kidney" not in words
    assert "tumor" not in words


@pytest.mark.parametrize("answer", [None, Answer("B", Outcome.ANSWERED, 1), Answer("?", Outcome.REFUSED)])
def test_of_questions_about_a_bystander_there_are_only_number_and_outcome(plan: Plan, answer: Answer | None) -> None:
    results = ran(plan, answer)
    words = page_of(plan, results).words
    assert "whispers" not in words  # the right answer to each of them, and to no other
    for item in plan.items:
        if item.speaker == "bystander":
            assert item.question not in words
    for file in results.scores.files:
        wrong = [m for m in file.marks["strict"] if m.scored.right is False and m.scored.speaker == "bystander"]
        assert not wrong or f"{len(wrong)} about the bystander" in words
    assert not set(tones.CANARIES) & set(words.split())


def test_the_places_are_those_of_the_predictions(plan: Plan) -> None:
    """Where an answer is missing, the items behind it move up."""
    results = ran(plan, Answer("?", Outcome.UNPARSED))
    name = plan.file_name(Mode.SELECTIVE)
    words = page_of(plan, results).words
    for place, item in enumerate(results.answered[name]):
        if item["speaker"] == "main":
            assert f"{item['question']} right:" in words
            assert f"number {place}, {item['audio']}" in words


def test_what_failed_and_why_it_stopped_is_said(plan: Plan, results: Results) -> None:
    failed = [Failed("<b>.wav", BackendError("the answerer failed"))]
    stopped = Stopped(NoMoreAnswersError("no <quota>"), recordings=1, questions=7)
    words = page_of(plan, replace(results, failed=failed, stopped=stopped)).words
    assert "1 recordings or questions failed and are not in the scores <b>.wav: the answerer failed" in words
    assert "Stopped early: no <quota>; left are 7 questions on 1 recordings" in words


def test_a_run_in_which_nothing_was_answered_has_a_page(plan: Plan) -> None:
    class Mute:
        def answer(self, question: Question, transcript: Transcript) -> Answer:
            raise BackendError("no")

    results = run_plan(
        plan, None, tones.Watch(), load=lambda config: type(c := cascade_of(config, Models()))(c._stages, Mute())
    )
    assert "Nothing was answered." in page_of(plan, results).words


def test_without_matplotlib_a_note_stands_for_the_figure(tmp_path: Path) -> None:
    tones.write(tmp_path / "data", recordings=1)
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from pathlib import Path\n"
        "from cascade.reporting.benchmark import benchmark_page\n"
        "from cascade.shbench.results import run_plan\n"
        "from tests import tone_benchmark as tones\n"
        "plan = tones.plan_of(Path(sys.argv[1]))\n"
        "print(benchmark_page(plan, run_plan(plan, None, tones.Watch(), load=tones.loader())))\n"
    )
    made = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "data")],
        cwd=Path(__file__).resolve().parents[1], capture_output=True, text=True, check=True,
    )  # fmt: skip
    page = Page(made.stdout)
    page.check_self_contained()
    assert (
        "The figure is left out: the Python package 'matplotlib' is not installed; in cascade's checkout, run:"
        in page.words
    )
    assert not [svg for svg in page.all("svg") if svg.get("role") == "img"]
