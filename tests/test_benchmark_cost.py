"""benchmarks/cost.py: what a chat model costs, counted in words in place of tokens."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.answering.chat import Sampling, load_prompts
from cascade.answering.pacing import Clock, Halt, Pace
from cascade.answering.spending import Budget, Price, Spent, Usage
from cascade.backends.openai import MESSAGE_TOKENS, OPENAI, OpenAIAnswerer
from cascade.config import BenchmarkSettings, CascadeConfig, load_config
from cascade.errors import NoMoreAnswersError
from cascade.output.cache import ResponseCache
from cascade.packaged import data_folder
from cascade.settings import OpenAISettings
from cascade.types import Mode, Question, Transcript

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

import cost  # noqa: E402
from cost import Asked, Said  # noqa: E402

UNGATED, GATED = map(load_config, cost.CONFIGS)
SHORT = (Said("main", "the train leaves at nine"), Said("bystander", "my knee hurts"), Said("main", "so hurry"))
GPT_4O = Price(input=2.5, cached_input=1.25, output=10.0)


def benchmark(folder: Path, *questions: str) -> Path:
    """Write a benchmark of one recording, "trip.wav", and return the file of its questions."""
    item = {
        "options": ["nine", "ten", "not said"],
        "answer": "nine",
        "speaker": "main",
        "audio": "audio/trip.wav",
        "type": "real",
        "main_speaker_desc": "low",
        "main_speaker_desc_w_content": "low voice",
        "main_speaker_desc_w_content_filter": "a low voice",
        "idk_answer": "not said",
    }
    path = folder / "questions.json"
    path.write_text(json.dumps([{"question": question, **item} for question in questions]))
    return path


def requests(config: CascadeConfig, data: Path) -> list[list[dict[str, Any]]]:
    """The requests of a run in which SHORT is said, by hearing."""
    return list(cost.requests_of(cost.plan_of(config.with_benchmark(data, None)), {"audio/trip.wav": SHORT}))


def prompts(config: CascadeConfig, data: Path) -> list[list[str]]:
    return [[request["messages"][0]["content"] for request in hearing] for hearing in requests(config, data)]


# --- what is said -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", Mode)
def test_without_a_gate_all_words_are_one_line_without_a_name(mode: Mode) -> None:
    heard = cost.transcript_of(SHORT, UNGATED, UNGATED.heard_as(mode))
    assert heard.text == "the train leaves at nine my knee hurts so hurry"
    assert len(heard.utterances) == 1


def test_with_the_gate_selective_mode_has_the_main_speakers_words_alone() -> None:
    heard = cost.transcript_of(SHORT, GATED, Mode.SELECTIVE)
    assert [(each.speaker, each.text) for each in heard.utterances] == [
        ("main", "the train leaves at nine"),
        ("main", "so hurry"),
    ]


def test_with_the_gate_general_mode_has_both_by_pyannotes_names() -> None:
    heard = cost.transcript_of(SHORT, GATED, Mode.GENERAL)
    assert [(each.speaker, each.text) for each in heard.utterances] == [
        ("speaker_1", "the train leaves at nine"),
        ("speaker_2", "my knee hurts"),
        ("speaker_1", "so hurry"),
    ]


SPOKEN = st.lists(st.builds(Said, st.sampled_from(["main", "bystander"]), st.just("one two three")), min_size=1)


@given(st.lists(SPOKEN, min_size=1, max_size=4), st.integers(0, 3), st.integers(0, 200))
def test_speech_has_just_so_many_words_and_begins_where_it_is_told_to(
    recordings: list[list[Said]], first: int, n_words: int
) -> None:
    first %= len(recordings)
    made = cost.speech(recordings, first, n_words)
    assert cost.count_words(made) == n_words
    assert n_words < 3 or made[0] == recordings[first][0]


def test_speech_goes_through_all_recordings_and_begins_again() -> None:
    made = cost.speech([[Said("main", "a b")], [Said("bystander", "c d e")]], 1, 9)
    assert [said.words for said in made] == ["c d e", "a b", "c d e", "a"]


def test_the_small_benchmarks_rate_gives_a_recordings_words() -> None:
    small = BenchmarkSettings()
    said, source = cost.what_is_said(["x.wav", "y.wav"], 2.0, small)
    assert small.references is not None
    rate = cost.speech_rate(small, cost.read_references(small.references).values())
    assert 3 < rate < 5
    assert [cost.count_words(sentences) for sentences in said.values()] == [round(120 * rate)] * 2
    assert said["x.wav"] != said["y.wav"]
    assert source.startswith(f"{round(120 * rate)} words")


def test_the_small_benchmark_says_what_its_references_say_in_time_order() -> None:
    said, _ = cost.what_is_said(["audio/gym_1.opus"], None, BenchmarkSettings())
    entries = json.loads((ROOT / "benchmarks/shmini/references.json").read_text(encoding="utf-8"))
    mine = sorted((e["start_time"], e["words"]) for e in entries if e["session_id"] == "gym_1")
    assert [each.words for each in said["audio/gym_1.opus"]] == [words for _, words in mine]


# --- what is asked ----------------------------------------------------------------------------------------------------


def test_the_gated_configuration_hears_each_mode_by_itself(tmp_path: Path) -> None:
    data = benchmark(tmp_path, "When?", "Why?")
    (both,) = prompts(UNGATED, data)
    assert len(both) == 4
    assert all("nine my knee hurts so" in prompt for prompt in both)
    selective, general = prompts(GATED, data)
    assert all("knee" not in prompt and "a low voice" in prompt for prompt in selective)
    assert all("speaker_2: my knee hurts" in prompt and "a low voice" not in prompt for prompt in general)


def test_what_is_asked_twice_is_asked_once(tmp_path: Path) -> None:
    assert [len(hearing) for hearing in requests(GATED, benchmark(tmp_path, "When?", "When?"))] == [1, 1]


def test_words_of_two_questions_by_hand() -> None:
    told = [
        {"messages": [{"role": "user", "content": "one two three é"}], "max_tokens": 16},
        {"messages": [{"role": "user", "content": "one two four"}], "max_tokens": 16},
    ]
    first, second = cost.count(told, str.split)
    assert first == Asked(4 + 7, Usage(16 + MESSAGE_TOKENS, 0, 16))
    assert second == Asked(3 + 7, Usage(12 + MESSAGE_TOKENS, 0, 16), shared=(2 + 3,))


def test_a_prompts_words_are_those_of_the_prompt_file_and_what_is_put_into_it(tmp_path: Path) -> None:
    (hearing,) = requests(UNGATED, benchmark(tmp_path, "When does it leave?"))
    counted = {request.prompt for request in cost.count(hearing, str.split)}
    own = 10 + 4 + 7  # transcript, question, three options with a letter each ("C. not said")
    files = {"general.txt": own, "selective_described.txt": own + 3}
    folder, places = data_folder("configs") / "prompts", {"{transcript}", "{question}", "{options}", "{description}"}
    expected = set()
    for name, filled_in in files.items():
        words = (folder / name).read_text(encoding="utf-8").split()
        expected.add(len([word for word in words if word not in places]) + filled_in + 7)
    assert counted == expected


@pytest.mark.parametrize(
    ("equal", "cached"), [(0, 0), (1023, 0), (1024, 1024), (1151, 1024), (1152, 1152), (1300, 1280)]
)
def test_openai_caches_from_1024_tokens_in_steps_of_128(equal: int, cached: int) -> None:
    assert Asked(2000, Usage(9999), shared=(3, equal)).cached(at_once=1) == cached


@pytest.mark.parametrize(("at_once", "cached"), [(1, 1280), (2, 1152), (3, 1024), (4, 0), (8, 0)])
def test_a_prompt_finds_in_the_cache_what_has_ended_before_it_began(at_once: int, cached: int) -> None:
    assert Asked(2000, Usage(9999), shared=(1024, 1152, 1280)).cached(at_once) == cached


# --- what it costs ----------------------------------------------------------------------------------------------------

TWO = [Asked(1000, Usage(5000, 0, 16)), Asked(1200, Usage(6000, 0, 16), shared=(1100,))]


def test_two_questions_by_hand() -> None:
    each = cost.bill(TWO, GPT_4O, None)
    assert replace(each.likely, cost=None) == Spent(2, 2, 0, 2200, 0, 4)
    assert replace(each.at_most, cost=None) == Spent(2, 2, 0, 2200, 0, 32)
    assert each.likely.cost == pytest.approx((2200 * 2.5 + 4 * 10) / 1e6)
    assert each.at_most.cost == pytest.approx((2200 * 2.5 + 32 * 10) / 1e6)
    assert each.unspent == pytest.approx((6000 - 1200) * 2.5 / 1e6)


def test_two_questions_with_the_providers_cache_by_hand() -> None:
    each = cost.bill(TWO, GPT_4O, 1)
    assert each.likely.cached_tokens == 1024
    assert each.likely.cost == pytest.approx((1176 * 2.5 + 1024 * 1.25 + 4 * 10) / 1e6)
    assert cost.bill(TWO, GPT_4O, 2).likely.cost == cost.bill(TWO, GPT_4O, None).likely.cost


def test_a_run_out_of_the_own_cache_asks_nothing() -> None:
    again = cost.bills_of(TWO, GPT_4O, 8)["second run, own cache"]
    assert again.likely == again.at_most == Spent(cost=0.0)
    assert again.limit(1) == 0


def test_the_limit_scales_what_is_spent_but_not_what_is_reserved_for_one_request() -> None:
    each = cost.Bill(Spent(cost=1.0), Spent(cost=2.001), unspent=0.5)
    assert each.limit(1) == 2.51  # in whole cents, never below
    assert each.limit(10) == 20.51


def test_the_price_is_the_tables() -> None:
    assert cost.price_of(OpenAISettings(use="openai")) == GPT_4O
    with pytest.raises(ValueError, match=r"^no price is known of m on localhost:1; add it to "):
        cost.price_of(OpenAISettings(use="openai", model="m", base_url="http://localhost:1/v1"))


def answerer(max_cost: float, cache: Path | None = None) -> OpenAIAnswerer:
    """The real backend, before a server that counts words, with the longest replies."""

    class Completion:
        def __init__(self, prompt: str) -> None:
            self.prompt = prompt

        def to_dict(self, warnings: bool) -> Mapping[str, Any]:
            usage = {"prompt_tokens": len(self.prompt.split()) + 7, "completion_tokens": 16}
            return {"choices": [{"message": {"content": "A"}, "finish_reason": "stop"}], "usage": usage}

    def create(**request: Any) -> Completion:
        return Completion(request["messages"][0]["content"])

    return OpenAIAnswerer(
        create,
        lambda: None,
        server=OPENAI,
        model="gpt-4o",
        prompts=load_prompts(data_folder("configs") / "prompts"),
        sampling=Sampling(),
        key_variable=None,
        concurrency=1,
        max_retries=0,
        pace=Pace(None, None, Clock()),
        budget=Budget(GPT_4O, max_cost),
        cache=None if cache is None else ResponseCache(cache),
        clock=Clock(),
        halt=Halt(),
    )


def asked_in_a_run(data: Path) -> list[tuple[Question, Transcript]]:
    """What a run of the ungated configuration asks, in its order."""
    plan = cost.plan_of(UNGATED.with_benchmark(data, None))
    heard = cost.transcript_of(SHORT, UNGATED, Mode.GENERAL)
    (modes,) = plan.hearings.values()
    return [(plan.question(item, mode), heard) for mode in modes for item in plan.items]


def test_the_requests_are_the_backends_own(tmp_path: Path) -> None:
    data = benchmark(tmp_path, "When?", "Why?")
    backend = answerer(1.0)
    (hearing,) = requests(UNGATED, data)
    assert hearing == [backend.request(question, heard) for question, heard in asked_in_a_run(data)]


def test_the_limit_lets_the_backend_through_and_less_does_not(tmp_path: Path) -> None:
    pytest.importorskip("tenacity", reason="the package tenacity is not installed (extra 'chat')")
    data = benchmark(tmp_path, "When?", "Why?", "Who?", "Where?")
    (hearing,) = requests(UNGATED, data)
    asked = cost.count(hearing, str.split)
    each = cost.bill(asked, GPT_4O, None)
    assert each.at_most.cost is not None
    questions = asked_in_a_run(data)

    enough = answerer(each.at_most.cost + each.unspent)
    assert {enough.answer(*question).choice for question in questions} == {0}
    assert enough.spent == each.at_most

    # What is reserved for the last request is needed; more is where another one may come last.
    *_, last = asked
    needed = each.at_most.cost + GPT_4O.of(last.most) - GPT_4O.of(Usage(last.prompt, 0, 16))
    assert each.at_most.cost + each.unspent >= needed
    *first, at_last = questions
    short = answerer(needed - 1e-6)
    assert {short.answer(*question).choice for question in first} == {0}
    with pytest.raises(NoMoreAnswersError, match="passes --max-cost"):
        short.answer(*at_last)


def test_the_backends_own_cache_answers_a_second_run(tmp_path: Path) -> None:
    pytest.importorskip("tenacity", reason="the package tenacity is not installed (extra 'chat')")
    data = benchmark(tmp_path, "When?", "Why?")
    for expected in ((4, 0), (0, 4)):
        backend = answerer(1.0, tmp_path / "cache")
        for question, heard in asked_in_a_run(data):
            backend.answer(question, heard)
        assert (backend.spent.requests, backend.spent.from_cache) == expected


# --- the program ------------------------------------------------------------------------------------------------------


def numbers(text: str, run: str) -> list[list[float]]:
    """The numbers of the rows of a run, one list a configuration."""
    lines = [line.split(run)[1] for line in text.splitlines() if run in line]
    return [[float(number) for number in line.replace(", ", " ").replace(",", "").split()] for line in lines]


def test_the_small_benchmark_is_scaled_to_2000_questions(capsys: pytest.CaptureFixture[str]) -> None:
    assert cost.main([], str.split) == 0
    text = capsys.readouterr().out
    assert "2,000 questions, scaled from 120, each asked in 2 modes" in text
    ungated, gated = numbers(text, "first run, no discount")
    assert ungated[0] == gated[0] == 4000
    assert ungated[3:5] == [8000, 64000]
    said, _ = cost.what_is_said([f"audio/{name}" for name in audio()], None, BenchmarkSettings())
    hearings = cost.requests_of(cost.plan_of(UNGATED), said)
    words = sum(each.prompt for hearing in hearings for each in cost.count(hearing, str.split))
    assert ungated[1] == round(words * 2000 / 120)
    assert ungated[5] == pytest.approx((words * 2.5 + 240 * 20) / 1e6 * 2000 / 120, abs=0.005)
    assert text.count("GPT-2's") == text.count("o200k_base") == 1


def audio() -> Sequence[str]:
    return sorted(path.name for path in (ROOT / "benchmarks/shmini/audio").iterdir())


def test_other_data_are_two_and_a_half_minutes_long_and_longer_ones_cost_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(benchmark(tmp_path, "When?", "Why?"))
    assert cost.main(["--data", data], str.split) == 0
    by_default = capsys.readouterr().out
    assert cost.main(["--data", data, "--minutes", "2.5"], str.split) == 0
    assert capsys.readouterr().out == by_default
    assert "2.5 minutes" in by_default
    assert cost.main(["--data", data, "--minutes", "5"], str.split) == 0
    longer = capsys.readouterr().out
    run = "first run, prompt cache, 1 at once"
    assert numbers(by_default, run)[0][2] == 0  # too few words to be cached
    assert numbers(longer, run)[0][2] > 0
    assert numbers(longer, run)[0][1] > numbers(by_default, run)[0][1]


def test_the_small_benchmark_by_its_name_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert cost.main([], str.split) == 0
    by_default = capsys.readouterr().out
    assert cost.main(["--data", str(ROOT / "benchmarks/shmini/questions.json")], str.split) == 0
    assert capsys.readouterr().out == by_default


@pytest.mark.parametrize("content", ["{}", "[]", "no json"])
def test_a_file_that_is_none_is_one_line(tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "wrong.json"
    path.write_text(content)
    assert cost.main(["--data", str(path)], str.split) == 2
    assert cost.main(["--data", str(tmp_path / "away.json")], str.split) == 2
    said = capsys.readouterr().err.splitlines()
    assert [line.startswith("cost.py: ") for line in said] == [True, True]


@pytest.mark.parametrize("minutes", ["0", "-1", "nan", "inf", "61", "long"])
def test_a_length_that_is_none_is_refused(minutes: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cost.main(["--minutes", minutes], str.split)
    assert "expected minutes, more than 0 and at most 60" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # whisper leaves its table open
def test_gpt2s_table_cuts_as_gpt2_does() -> None:
    pytest.importorskip("whisper", reason="the package whisper is not installed (extra 'paper')")
    tokens = cost.gpt2_tokens()("Hello world, <|endoftext|>")
    assert list(tokens[:3]) == [15496, 995, 11]
    assert len(tokens) > 4  # what looks like a mark of the model's is text
