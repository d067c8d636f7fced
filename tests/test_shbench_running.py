"""A benchmark run on recordings that fakes truly hear: what is heard, asked, kept and left, also when it is stopped."""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Barrier, Event, Lock, Timer
from typing import Any

import numpy as np
import pytest
import soundfile

from cascade.answering.questions import Answerer
from cascade.answering.spending import Spent
from cascade.config import CascadeConfig
from cascade.errors import BackendError, NoMoreAnswersError, OutputError
from cascade.output.journal import JOURNAL, locked, read_journal
from cascade.pipeline import Cascade
from cascade.shbench.plan import Plan, Shard, make_plan
from cascade.shbench.results import Results, merge, run_plan
from cascade.shbench.running import is_entry
from cascade.types import Answer, Mode, Outcome, Question, Transcript
from tests import tone_benchmark as tones
from tests.canary import Models, cascade_of
from tests.chat_server import Play, Received, Script, fault, good, in_turn, serving
from tests.test_output_recordings import full_disk
from tests.tone_benchmark import Watch

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("benchmark")
    tones.write(folder)
    return folder


def final_files(out: Path) -> dict[str, bytes]:
    """Return what a run leaves, but for its journal, which has timings, and its lock."""
    return {
        path.name: path.read_bytes()
        for path in sorted(out.iterdir())
        if path.is_file() and path.name not in (JOURNAL, ".lock")
    }


@pytest.fixture(scope="module")
def undisturbed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("undisturbed")
    run_plan(tones.plan_of(folder), out, Watch(), load=tones.loader())
    return final_files(out)


@dataclass
class Asked:
    """An answerer that notes what it is asked, and may fail."""

    inner: Answerer
    fails: Callable[[int], BaseException | None] = lambda number: None
    questions: list[Question] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def answer(self, question: Question, transcript: Transcript) -> Answer:
        with self.lock:
            self.questions.append(question)
            number = len(self.questions)
        if error := self.fails(number):
            raise error
        return self.inner.answer(question, transcript)


@dataclass
class Rig:
    """Loads a cascade around fakes, and notes what is done with it."""

    fails: Callable[[int], BaseException | None] = lambda number: None
    hearings: int = 0
    asked: Asked | None = None

    def load(self, config: CascadeConfig) -> Cascade:
        models = Models()
        inner = models.answerer(config.answerer)
        assert inner is not None
        self.asked = Asked(inner, self.fails)
        cascade = cascade_of(config, models)
        rig = self

        class Counting(Cascade):
            def in_mode(self, mode: Mode) -> Cascade:
                rig.hearings += 1
                return super().in_mode(mode)

        return Counting(cascade._stages, self.asked, mode=cascade.mode)

    @property
    def questions(self) -> list[Question]:
        return [] if self.asked is None else self.asked.questions


def run(plan: Plan, out: Path | None, rig: Rig | None = None) -> tuple[Results, Rig]:
    rig = rig or Rig()
    return run_plan(plan, out, Watch(), load=rig.load), rig


# --- what is heard and asked ------------------------------------------------------------------------------------------


def test_a_recording_is_heard_once_in_each_mode_and_each_question_is_asked_once(folder: Path, tmp_path: Path) -> None:
    results, rig = run(tones.plan_of(folder), tmp_path)
    assert rig.hearings == 4 * 2
    assert len(rig.questions) == 4 * 6 * 2
    assert not results.failed
    _, again = run(tones.plan_of(folder), tmp_path)
    assert (again.hearings, again.questions) == (0, [])


def test_one_hearing_serves_both_modes_where_the_gate_is_always_shut(folder: Path) -> None:
    results, rig = run(tones.plan_of(folder, always=True), None)
    assert rig.hearings == 4
    assert len(rig.questions) == 4 * 6 * 2
    assert {heard.mode for heard in results.hearings} == {Mode.SELECTIVE}
    (system,) = results.scores.as_dict()["systems"]
    assert system["files"] == ["tones_basicalwaysshut_qa.json", "tones_selectivealwaysshut_qa.json"]
    assert system["setting"]["always_shut"]
    assert system["name"] == "tones"


def test_the_same_question_twice_is_asked_once(folder: Path, tmp_path: Path) -> None:
    items = json.loads((folder / "questions.json").read_bytes())
    (tmp_path / "twice.json").write_text(json.dumps([*items, items[0]]))
    config = tones.config_of(folder).with_benchmark(tmp_path / "twice.json", folder)
    plan = make_plan(config, "tones", modes=[Mode.SELECTIVE])
    _, rig = run(plan, tmp_path / "out")
    assert len(rig.questions) == 24
    predictions = json.loads((tmp_path / "out" / "tones_selective_qa.json").read_bytes())
    assert len(predictions) == 25
    assert predictions[0] == predictions[24]


def test_questions_are_asked_at_once_where_the_answerer_allows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cascade.settings import ExtractiveSettings

    monkeypatch.setattr(ExtractiveSettings, "questions_at_once", 6)
    together, most, lock = 0, 0, Lock()

    class Slow:
        def answer(self, question: Question, transcript: Transcript) -> Answer:
            nonlocal together, most
            with lock:
                together += 1
                most = max(most, together)
            time.sleep(0.05)
            with lock:
                together -= 1
            return Answer("x", Outcome.UNPARSED)

    plan = tones.plan_of(folder, limit=1, modes=(Mode.GENERAL,))
    run_plan(plan, None, Watch(), load=lambda config: Cascade(cascade_of(config, Models())._stages, Slow()))
    assert most == 6


def test_progress_goes_up_to_the_end(folder: Path) -> None:
    seen: list[tuple[float, float]] = []

    class Seen(Watch):
        def progress(self, behind_s: float, total_s: float) -> None:
            seen.append((behind_s, total_s))

    plan = tones.plan_of(folder, limit=2)
    run_plan(plan, None, Seen(), load=tones.loader())
    lengths = sum(len(tones.scene(number).audio) / 16_000 for number in range(2)) * 2
    assert [total for _, total in seen] == pytest.approx([lengths] * len(seen))
    assert [behind for behind, _ in seen] == sorted(behind for behind, _ in seen)
    assert seen[-1][0] == pytest.approx(lengths)


# --- what is left -----------------------------------------------------------------------------------------------------


def test_predictions_are_the_benchmarks_items_with_answers(folder: Path, undisturbed: dict[str, bytes]) -> None:
    items = json.loads((folder / "questions.json").read_bytes())
    for name in ("tones_basic_qa.json", "tones_selective_qa.json"):
        found = json.loads(undisturbed[name])
        assert [{key: one[key] for key in one if key not in ("pred", "logp")} for one in found] == items
        for one in found:
            letter, _, text = one["pred"].partition(". ")
            assert one["options"]["ABCDE".index(letter)] == text
            assert len(one["logp"]) == 5
            assert sum(one["logp"]) == pytest.approx(1)
            assert "ABCDE".index(letter) == int(np.argmax(one["logp"]))


def test_all_that_is_left_has_its_name_and_is_private(folder: Path, tmp_path: Path) -> None:
    run(tones.plan_of(folder, limit=1), tmp_path / "out")
    assert set(final_files(tmp_path / "out")) == {
        "run.json", "hearings.json", "tones_basic_qa.json", "tones_selective_qa.json",
        "scores.json", "scores.md", "items.jsonl", "figure4.svg", "figure4.png",
    }  # fmt: skip
    assert {path.stat().st_mode & 0o77 for path in (tmp_path / "out").iterdir()} == {0}


def test_without_a_folder_the_scores_are_the_same_and_nothing_is_written(
    folder: Path, undisturbed: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    results, _ = run(tones.plan_of(folder), None)
    assert results.scores.as_dict() == json.loads(undisturbed["scores.json"])
    assert not list(tmp_path.iterdir())


def test_the_hearings_count_what_was_kept_and_what_leaked(undisturbed: dict[str, bytes]) -> None:
    heard = json.loads(undisturbed["hearings.json"])
    assert len(heard) == 8
    for one in heard:
        assert one["main_words"] == {"found": 8, "total": 8}
        assert one["bystander_words"] == {"found": 0 if one["mode"] == "selective" else 4, "total": 4}
        assert one["audio_s"] == pytest.approx(7.7, abs=0.01)
    selective = [one for one in heard if one["mode"] == "selective"]
    assert all(one["withheld_s"].get("bystander", 0) > 1 for one in selective)


def test_no_bystander_is_in_anything_that_selective_mode_leaves(folder: Path, tmp_path: Path) -> None:
    run(tones.plan_of(folder, modes=(Mode.SELECTIVE,)), tmp_path)
    everything = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for number in range(4):
        assert tones.scene(number).leaks(everything) == []


def test_the_journal_of_selective_mode_quotes_no_option(folder: Path, tmp_path: Path) -> None:
    """A wrong answer about the bystander is an option that says what the bystander said."""
    run(tones.plan_of(folder, modes=(Mode.SELECTIVE,)), tmp_path)
    journal = (tmp_path / JOURNAL).read_text()
    words = {option for entry in json.loads((folder / "questions.json").read_bytes()) for option in entry["options"]}
    assert not [word for word in words if word in journal]


def test_a_reply_in_the_answerers_own_words_is_kept_as_it_is(folder: Path, tmp_path: Path) -> None:
    class Chatty:
        def answer(self, question: Question, transcript: Transcript) -> Answer:
            return Answer("The answer is **B**,\nhonestly.", Outcome.ANSWERED, 1)

    plan = tones.plan_of(folder, limit=1, modes=(Mode.SELECTIVE,))
    run_plan(plan, tmp_path, Watch(), load=lambda config: Cascade(cascade_of(config, Models())._stages, Chatty()))
    found = json.loads((tmp_path / "tones_selective_qa.json").read_bytes())
    assert {one["pred"] for one in found} == {"The answer is **B**,\nhonestly."}
    assert not any("logp" in one for one in found)


# --- stopping and going on --------------------------------------------------------------------------------------------


def test_a_stopped_run_goes_on_and_asks_nothing_twice(
    folder: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    first = Rig(lambda number: KeyboardInterrupt() if number == 17 else None)
    with pytest.raises(KeyboardInterrupt):
        run(tones.plan_of(folder), tmp_path, first)
    assert set(final_files(tmp_path)) == {"run.json"}
    _, second = run(tones.plan_of(folder), tmp_path)
    interrupted = first.questions.pop(16)
    assert interrupted in second.questions
    assert len(first.questions) + len(second.questions) == 4 * 6 * 2
    assert final_files(tmp_path) == undisturbed


def test_what_fails_is_said_left_out_and_tried_again(
    folder: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    def fails(number: int) -> BaseException | None:
        return {3: BackendError("the server said no"), 5: ValueError("kidney"), 30: BackendError("full")}.get(number)

    told = []

    class Told(Watch):
        def failed(self, failed: Any) -> None:
            told.append(str(failed.error))

    results = run_plan(tones.plan_of(folder), tmp_path, Told(), load=Rig(fails).load)
    assert len(results.failed) == 3
    assert [str(failed.error) for failed in results.failed] == told
    assert (told[0], told[2]) == ("the server said no", "full")
    assert "ValueError" in told[1]
    assert "kidney" not in told[1]
    predictions = [json.loads((tmp_path / f"tones_{mode}_qa.json").read_bytes()) for mode in ("basic", "selective")]
    assert sum(map(len, predictions)) == 45
    assert "missing_item" in (tmp_path / "scores.json").read_text()
    _, again = run(tones.plan_of(folder), tmp_path)
    assert len(again.questions) == 3
    assert final_files(tmp_path) == undisturbed


def test_a_recording_that_cannot_be_heard_does_not_stop_the_others(tmp_path: Path) -> None:
    tones.write(tmp_path / "data", recordings=3)
    whole = (tmp_path / "data" / "folder" / "scene 1.wav").read_bytes()
    (tmp_path / "data" / "folder" / "scene 1.wav").write_bytes(b"this is no recording" * 100)
    results, _ = run(tones.plan_of(tmp_path / "data"), tmp_path / "out")
    assert [failed.recording for failed in results.failed] == ["folder/scene 1.wav"]
    missing = [one for one in results.scores.audit if one.kind == "missing_item"]
    assert len(missing) == 12
    assert len(json.loads((tmp_path / "out" / "tones_basic_qa.json").read_bytes())) == 12
    (tmp_path / "data" / "folder" / "scene 1.wav").write_bytes(whole)
    results, rig = run(tones.plan_of(tmp_path / "data"), tmp_path / "out")
    assert rig.hearings == 2
    assert not results.failed


def test_another_recording_of_the_same_name_is_heard_anew(tmp_path: Path) -> None:
    tones.write(tmp_path / "data", recordings=2)
    run(tones.plan_of(tmp_path / "data"), tmp_path / "out")
    tones.scene(7).write(tmp_path / "data" / "folder" / "scene 0.wav")
    _, rig = run(tones.plan_of(tmp_path / "data"), tmp_path / "out")
    assert rig.hearings == 2
    assert len(rig.questions) == 12


@pytest.mark.parametrize("gate", [{"threshold": 0.6}, {"always": True}])
def test_another_configuration_starts_afresh_and_the_earlier_run_is_kept(
    folder: Path, undisturbed: dict[str, bytes], tmp_path: Path, gate: dict[str, Any]
) -> None:
    run(tones.plan_of(folder), tmp_path)
    results, rig = run(tones.plan_of(folder, **gate), tmp_path)
    assert len(rig.questions) == 48
    assert results.moved is not None
    assert final_files(results.moved) == undisturbed
    assert (results.moved / JOURNAL).exists()
    back, rig = run(tones.plan_of(folder), tmp_path)
    assert len(rig.questions) == 48
    assert back.moved not in (None, results.moved)
    assert final_files(tmp_path) == undisturbed


def test_a_larger_limit_goes_on(folder: Path, undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    run(tones.plan_of(folder, limit=3), tmp_path)
    _, rig = run(tones.plan_of(folder), tmp_path)
    assert rig.hearings == 2
    assert final_files(tmp_path) == undisturbed


def test_files_that_no_run_left_are_not_overwritten(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "scores.json").write_text("mine")
    with pytest.raises(OutputError, match=r"scores.json' exists already and is not overwritten"):
        run(tones.plan_of(folder), tmp_path)
    assert (tmp_path / "scores.json").read_text() == "mine"


def test_a_second_run_in_the_same_folder_is_told(folder: Path, tmp_path: Path) -> None:
    with (
        locked(tmp_path),
        ThreadPoolExecutor(1) as pool,
        pytest.raises(OutputError, match="another run is at work"),
    ):
        pool.submit(run, tones.plan_of(folder), tmp_path).result()


def test_kills_at_any_moment_leave_the_same_files(folder: Path, undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    """SIGKILL at random moments, again and again, until a process gets to its end."""
    moments = random.Random(1)
    command = [sys.executable, "-m", "tests.tone_benchmark", str(folder), str(tmp_path)]
    kills = 0
    for _ in range(200):
        process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
        try:
            process.wait(moments.uniform(0.6, 2.5))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
        else:
            assert process.returncode == 0
            break
    assert kills >= 1
    assert final_files(tmp_path) == undisturbed


# --- when nothing more is answered ------------------------------------------------------------------------------------


def left_at(number: int, error: str = "the key is wrong") -> Rig:
    """Return a rig whose answerer answers so many questions and no more."""
    return Rig(lambda asked: NoMoreAnswersError(error) if asked > number else None)


@contextmanager
def away(*recordings: Path) -> Iterator[None]:
    """Take recordings away, so that opening one is an error that a run would tell."""
    contents = {path: path.read_bytes() for path in recordings}
    for path in recordings:
        path.unlink()
    yield
    for path, content in contents.items():
        path.write_bytes(content)


def predicted(out: Path) -> int:
    return sum(len(json.loads(path.read_bytes())) for path in out.glob("*_qa.json"))


def test_when_nothing_more_is_answered_nothing_more_is_heard(tmp_path: Path) -> None:
    tones.write(tmp_path / "data")
    plan = tones.plan_of(tmp_path / "data")
    told: list[str] = []

    class Told(Watch):
        def failed(self, failed: Any) -> None:
            told.append(str(failed.error))

    first = left_at(16)
    with away(plan.recordings[2].path, plan.recordings[3].path):
        results = run_plan(plan, tmp_path / "out", Told(), load=first.load)
    assert (results.failed, told) == ([], [])
    assert results.stopped is not None
    assert (results.stopped.recordings, results.stopped.questions) == (3, 48 - 16)
    assert str(results.stopped) == "the key is wrong; left are 32 questions on 3 recordings"
    assert first.hearings == 3  # the first recording twice, the second once
    assert len(results.hearings) == 3
    assert predicted(tmp_path / "out") == 16
    assert "missing_item" in {one.kind for one in results.scores.audit}
    _, second = run(tones.plan_of(tmp_path / "data"), tmp_path / "out")
    assert second.hearings == 6
    assert len(second.questions) == 32
    run(tones.plan_of(tmp_path / "data"), tmp_path / "undisturbed")
    assert final_files(tmp_path / "out") == final_files(tmp_path / "undisturbed")


def test_what_was_heard_and_not_answered_comes_last(folder: Path, tmp_path: Path) -> None:
    """A recording on which a server always fails does not keep the others from being asked about."""
    plan = tones.plan_of(folder)
    run(plan, tmp_path, left_at(16))
    results, again = run(plan, tmp_path, left_at(30))
    assert results.stopped is not None
    assert again.questions[-2:] == [plan.question(item, Mode.SELECTIVE) for item in plan.recordings[1].items[4:]]
    assert (results.stopped.recordings, results.stopped.questions) == (1, 2)


def test_a_run_without_any_answer_has_scores_too(folder: Path, tmp_path: Path) -> None:
    results, rig = run(tones.plan_of(folder), tmp_path, left_at(0))
    assert results.stopped is not None
    assert (results.stopped.recordings, results.stopped.questions) == (4, 48)
    assert rig.hearings == 1
    assert predicted(tmp_path) == 0
    assert {"scores.json", "scores.md", "hearings.json", "run.json"} <= final_files(tmp_path).keys()


def test_what_failed_before_is_told_and_counts_as_left(folder: Path) -> None:
    def fails(number: int) -> BackendError | None:
        return BackendError("too long") if number == 2 else NoMoreAnswersError("no quota") if number > 5 else None

    results, _ = run(tones.plan_of(folder), None, Rig(fails))
    assert [str(failed.error) for failed in results.failed] == ["too long"]
    assert str(results.stopped) == "no quota; left are 44 questions on 4 recordings"


def test_questions_under_way_when_it_ends_are_kept(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cascade.settings import ExtractiveSettings

    monkeypatch.setattr(ExtractiveSettings, "questions_at_once", 3)
    together, ended = Barrier(3), Event()

    def fails(number: int) -> BackendError | None:
        if number > 3:
            return NoMoreAnswersError("no quota")
        together.wait(10)
        if number == 1:
            ended.set()
            return NoMoreAnswersError("no quota")
        assert ended.wait(10)
        time.sleep(0.05)
        return None

    results, rig = run(tones.plan_of(folder), tmp_path, Rig(fails))
    assert results.stopped is not None
    assert (rig.hearings, predicted(tmp_path), results.stopped.questions) == (1, 2, 46)


@dataclass
class Chat:
    """Loads a cascade around fakes with the real client of a server, which loses no time by waiting unless it waits."""

    url: str
    max_cost: float | None = None
    hearings: int = 0
    waits: bool = False

    def load(self, config: CascadeConfig) -> Cascade:
        from cascade.answering.chat import load_prompts
        from cascade.answering.pacing import Clock
        from cascade.answering.spending import Price
        from cascade.backends import openai
        from cascade.packaged import data_folder

        answerer = openai.load(
            "gpt-4o",
            prompts=load_prompts(data_folder("configs") / "prompts"),
            base_url=self.url,
            api_key_env=None,
            timeout_s=10,
            max_cost=self.max_cost,
            prices={(openai.host_of(self.url), "gpt-4o"): Price(1e6, 1e6, 1e6)},
            clock=None if self.waits else Clock(sleep=lambda duration_s: None),
        )
        chat = self

        class Counting(Cascade):
            def in_mode(self, mode: Mode) -> Cascade:
                chat.hearings += 1
                return super().in_mode(mode)

        return Counting(cascade_of(config, Models())._stages, answerer)


def reply_to(first: int, then: Play) -> Script:
    """Answer the first so many prompts; what comes then is up to `then`."""
    seen: list[str] = []

    def _reply(received: Received) -> Play:
        if received.prompt not in seen:
            seen.append(received.prompt)
        return good("B") if len(seen) <= first else then

    return _reply


@pytest.mark.parametrize(
    ("then", "max_cost", "why"),
    [
        (fault(429, "insufficient_quota"), None, "the account has no quota left"),
        (fault(503), None, "HTTP 503; trying again did not help"),
        (good("B"), 17 * 502.0, "passes --max-cost"),
    ],
    ids=["quota", "dead", "cost"],
)
def test_a_real_client_ends_a_run_in_the_midst(tmp_path: Path, then: Play, max_cost: float | None, why: str) -> None:
    pytest.importorskip("openai", reason="the package openai is not installed (extra 'chat')")
    pytest.importorskip("tenacity", reason="the package tenacity is not installed (extra 'chat')")
    tones.write(tmp_path / "data")
    plan = tones.plan_of(tmp_path / "data")
    later = [recording.path for recording in plan.recordings[2:]]
    with serving(reply_to(14, then)) as server, away(*later):
        chat = Chat(server.url, max_cost)
        results = run_plan(plan, tmp_path / "out", Watch(), load=chat.load)
    answered = predicted(tmp_path / "out")
    assert results.stopped is not None
    assert why in str(results.stopped)
    assert results.stopped.questions == 48 - answered
    assert results.stopped.recordings == 3
    assert chat.hearings == 3
    assert 12 <= answered <= 18
    assert max_cost is not None or answered == 14
    with serving(in_turn(good("B"))) as server:
        again = run_plan(plan, tmp_path / "out", Watch(), load=Chat(server.url).load)
    assert again.stopped is None
    assert len(server.received) == 48 - answered
    assert predicted(tmp_path / "out") == 48


def test_a_run_that_goes_on_counts_what_it_had_spent(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("openai", reason="the package openai is not installed (extra 'chat')")
    pytest.importorskip("tenacity", reason="the package tenacity is not installed (extra 'chat')")
    limit = 9.5 * 502.0
    with serving(in_turn(good("B"))) as server:
        for _ in range(3):
            results = run_plan(tones.plan_of(folder), tmp_path, Watch(), load=Chat(server.url, limit).load)
            assert results.stopped is not None
            assert results.spent is not None
            assert (results.spent.cost or 0.0) + results.spent.unsure_cost <= limit
        assert "of $4769, " in str(results.stopped)
        assert "of it before this run was stopped" in str(results.stopped)
        asked = len(server.received)
        more = run_plan(tones.plan_of(folder), tmp_path, Watch(), load=Chat(server.url, 2 * limit).load)
    assert more.spent is not None
    assert len(server.received) > asked
    assert limit < (more.spent.cost or 0.0) <= 2 * limit


def test_a_server_that_is_not_there_ends_a_run_after_one_hearing(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("openai", reason="the package openai is not installed (extra 'chat')")
    pytest.importorskip("tenacity", reason="the package tenacity is not installed (extra 'chat')")
    with serving(in_turn(good("B"))) as server:
        pass
    chat = Chat(server.url)
    results = run_plan(tones.plan_of(folder), tmp_path, Watch(), load=chat.load)
    assert results.stopped is not None
    assert "was never reached: no connection (ConnectionRefusedError)" in str(results.stopped)
    assert (results.stopped.recordings, results.stopped.questions, chat.hearings) == (4, 48, 1)
    assert not results.failed


def test_ctrl_c_ends_a_run_while_a_server_asks_to_wait(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("openai", reason="the package openai is not installed (extra 'chat')")
    pytest.importorskip("tenacity", reason="the package tenacity is not installed (extra 'chat')")
    from cascade.settings import ExtractiveSettings

    monkeypatch.setattr(ExtractiveSettings, "questions_at_once", 3)
    pressed_s: list[float] = []

    def press() -> None:
        pressed_s.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    def busy(received: Received) -> Play:
        if len(server.received) == 1:
            return good("B")
        if len(server.received) == 2:
            Timer(0.3, press).start()
        return fault(429, headers={"retry-after": "100"})

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with serving(busy) as server, pytest.raises(KeyboardInterrupt):
            run_plan(tones.plan_of(folder), tmp_path, Watch(), load=Chat(server.url, waits=True).load)
    finally:
        signal.signal(signal.SIGINT, before)
    gc.collect()  # what a thread left open is found here, not in another test
    assert time.monotonic() - pressed_s[0] < 20
    assert [entry["kind"] for entry in read_journal(tmp_path).values()].count("answer") == 1


# --- what changes meanwhile -------------------------------------------------------------------------------------------


def test_data_that_change_during_a_run_change_nothing(tmp_path: Path) -> None:
    data = tones.write(tmp_path / "data", recordings=2)
    plan = tones.plan_of(tmp_path / "data")
    items = json.loads(data.read_bytes())
    data.write_text(json.dumps(items[1:] + items[:1]))
    (tmp_path / "data" / "references.json").unlink()
    run(plan, tmp_path / "out")
    found = json.loads((tmp_path / "out" / "tones_basic_qa.json").read_bytes())
    assert [one["question"] for one in found] == [item["question"] for item in items]


def test_a_recording_that_changes_during_a_run_is_not_kept(tmp_path: Path) -> None:
    tones.write(tmp_path / "data", recordings=2)
    path = tmp_path / "data" / "folder" / "scene 1.wav"
    whole = path.read_bytes()
    plan = tones.plan_of(tmp_path / "data")
    tones.scene(5).write(path)
    results, _ = run(plan, tmp_path / "out")
    assert {failed.recording for failed in results.failed} == {"folder/scene 1.wav"}
    assert "changed while the benchmark ran" in str(results.failed[0].error)
    path.write_bytes(whole)
    _, rig = run(tones.plan_of(tmp_path / "data"), tmp_path / "out")
    assert (rig.hearings, len(rig.questions)) == (2, 12)
    run(tones.plan_of(tmp_path / "data"), tmp_path / "plain")
    assert final_files(tmp_path / "out") == final_files(tmp_path / "plain")


def test_two_recordings_with_the_same_samples_are_two(tmp_path: Path) -> None:
    tones.write(tmp_path / "data", recordings=2)
    both = [tmp_path / "data" / "folder" / f"scene {number}.wav" for number in range(2)]
    both[1].write_bytes(both[0].read_bytes())
    results, rig = run(tones.plan_of(tmp_path / "data"), None)
    assert rig.hearings == 4
    assert [heard.recording for heard in results.hearings] == ["folder/scene 0.wav"] * 2 + ["folder/scene 1.wav"] * 2
    words = {heard.recording: heard.main_words for heard in results.hearings if heard.mode is Mode.SELECTIVE}
    assert words["folder/scene 0.wav"] != words["folder/scene 1.wav"]


def test_a_full_disk_stops_the_run_at_once(folder: Path, tmp_path: Path) -> None:
    rig = Rig()
    plan = tones.plan_of(folder)
    with full_disk(6000), pytest.raises(OutputError, match="make room"):
        run(plan, tmp_path, rig)
    assert rig.hearings < 4  # of eight


def test_a_journal_line_that_was_changed_is_done_again(
    folder: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    run(tones.plan_of(folder), tmp_path)
    path = tmp_path / JOURNAL
    lines = path.read_text().splitlines(keepends=True)
    answers = [place for place, line in enumerate(lines) if '"kind": "answer"' in line]
    letter = json.loads(lines[answers[3]])["choice"]
    other = "B" if letter == "A" else "A"
    lines[answers[3]] = lines[answers[3]].replace(f'"choice": "{letter}"', f'"choice": "{other}"')
    lines[answers[5]] = lines[answers[5]].replace('"kind": "answer"', '"kind": "hearing"')
    path.write_text("".join(lines))
    _, rig = run(tones.plan_of(folder), tmp_path)
    assert len(rig.questions) == 2
    assert final_files(tmp_path) == undisturbed


@pytest.mark.parametrize("after", range(12))
def test_a_kill_while_an_earlier_run_is_put_aside_loses_nothing(
    folder: Path, undisturbed: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    run(tones.plan_of(folder), tmp_path)
    journal = (tmp_path / JOURNAL).read_bytes()
    rename, done = Path.rename, 0

    def killed(self: Path, target: Path) -> Path:
        nonlocal done
        if done == after:
            raise KeyboardInterrupt
        done += 1
        return rename(self, target)

    other = tones.plan_of(folder, threshold=0.6)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed)
        if after < 10:  # nine final files and the journal
            with pytest.raises(KeyboardInterrupt):
                run(other, tmp_path)
        else:
            run(other, tmp_path)
    run(tones.plan_of(folder), tmp_path)
    assert final_files(tmp_path) == undisturbed
    kept = [path for path in tmp_path.glob("earlier-*") if (path / JOURNAL).exists()]
    assert journal in [(path / JOURNAL).read_bytes() for path in kept]
    assert not list(tmp_path.glob(".moving*"))


# --- open-ended -------------------------------------------------------------------------------------------------------


def test_open_ended_questions_count_what_is_declined(folder: Path, tmp_path: Path) -> None:
    config = tones.config_of(folder)
    config = config.model_copy(update={"benchmark": config.benchmark.model_copy(update={"open_ended": True})})
    results, _ = run(make_plan(config, "tones", modes=tuple(Mode)), tmp_path)
    (system,) = results.scores.as_dict()["systems"]
    strict = system["parsers"]["strict"]
    for mode in Mode:
        assert strict[mode]["main"]["total"] == strict[mode]["bystander"]["total"] == 12
        assert strict[mode]["main"]["accuracy"] is None
    replies = json.loads((tmp_path / "tones_selectiveopen_qa.json").read_bytes())
    declined = [one for one in replies if one["pred"] == "I don't know."]
    assert strict["selective"]["main"]["idk"] + strict["selective"]["bystander"]["idk"] == len(declined)


# --- what it took -----------------------------------------------------------------------------------------------------


@dataclass
class Paid(Asked):
    """An answerer of which each answer takes a request, and each failure too."""

    @property
    def spent(self) -> Spent:
        number = len(self.questions)
        return Spent(requests=number, answered=number, prompt_tokens=100 * number, cost=0.25 * number)


@dataclass
class PaidRig(Rig):
    def load(self, config: CascadeConfig) -> Cascade:
        cascade = super().load(config)
        assert self.asked is not None
        self.asked = Paid(self.asked.inner, self.fails)
        return Cascade(cascade._stages, self.asked, mode=cascade.mode)


def spent_in(out: Path) -> tuple[int, int, float]:
    spent = json.loads((out / "spent.json").read_bytes())
    return spent["requests"], spent["prompt_tokens"], spent["cost_usd"]


def test_what_answers_took_is_summed_over_all_runs_into_a_folder(
    folder: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    def crash(number: int) -> BaseException | None:
        return KeyboardInterrupt() if number == 20 else BackendError("long") if number == 3 else None

    first = PaidRig(crash)
    with pytest.raises(KeyboardInterrupt):
        run(tones.plan_of(folder), tmp_path, first)
    assert not (tmp_path / "spent.json").exists()
    results, second = run(tones.plan_of(folder), tmp_path, PaidRig())
    asked = len(first.questions) + len(second.questions)
    assert asked == 48 + 2
    assert spent_in(tmp_path) == (asked, 100 * asked, 0.25 * asked)
    assert results.lines[-1].startswith(f"answers, since this run was first begun: {asked} requests, {asked} replies")
    again, _ = run(tones.plan_of(folder), tmp_path, PaidRig())
    assert spent_in(tmp_path) == (asked, 100 * asked, 0.25 * asked)
    assert again.spent == results.spent
    assert {
        name: content for name, content in final_files(tmp_path).items() if name not in ("spent.json", "run.json")
    } == {name: content for name, content in undisturbed.items() if name != "run.json"}


def test_what_shards_took_adds_up(folder: Path, tmp_path: Path) -> None:
    for index in (1, 2):
        run(tones.plan_of(folder, shard=Shard(index, 2)), tmp_path / str(index), PaidRig())
    merged = merge([tmp_path / "1", tmp_path / "2"], tmp_path / "out")
    assert spent_in(tmp_path / "out") == (48, 4800, 12.0)
    assert merged.spent is not None


def test_where_no_server_is_asked_nothing_is_said_of_cost(folder: Path, tmp_path: Path) -> None:
    results, _ = run(tones.plan_of(folder, limit=1), tmp_path)
    assert results.spent is None
    assert not (tmp_path / "spent.json").exists()
    assert not any("answers" in line for line in results.lines)


# --- shards -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shards(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folders = [tmp_path_factory.mktemp(f"shard{index}") for index in (1, 2, 3)]
    for index, out in enumerate(folders, start=1):
        run(tones.plan_of(folder, shard=Shard(index, 3)), out)
    return folders


def test_merged_shards_are_what_one_run_leaves(
    shards: list[Path], undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    results = merge([shards[2], shards[0], shards[1]], tmp_path)
    assert final_files(tmp_path) == undisturbed
    assert len(results.hearings) == 8


def test_a_run_can_go_on_in_merged_shards(folder: Path, shards: list[Path], tmp_path: Path) -> None:
    merge(shards, tmp_path)
    _, rig = run(tones.plan_of(folder), tmp_path)
    assert (rig.hearings, rig.questions) == (0, [])


def test_an_overlap_is_refused(shards: list[Path], tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"both hold shard 1/3; give each shard once"):
        merge([shards[0], shards[0], shards[1], shards[2]], tmp_path)


def test_a_gap_is_refused(shards: list[Path], tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"shard 2/3 is missing; give the folders of all 3 shards"):
        merge([shards[0], shards[2]], tmp_path)


def test_shards_of_other_runs_are_refused(folder: Path, shards: list[Path], tmp_path: Path) -> None:
    run(tones.plan_of(folder, threshold=0.6, shard=Shard(2, 3)), tmp_path / "other")
    with pytest.raises(OutputError, match=r"the shards are of different runs"):
        merge([shards[0], tmp_path / "other", shards[2]], tmp_path / "out")
    run(tones.plan_of(folder, limit=3, shard=Shard(2, 3)), tmp_path / "limited")
    with pytest.raises(OutputError, match=r"or --limit differ"):
        merge([shards[0], tmp_path / "limited", shards[2]], tmp_path / "out")


def test_a_shard_that_is_not_complete_is_refused(folder: Path, shards: list[Path], tmp_path: Path) -> None:
    rig = Rig(lambda number: BackendError("no") if number == 2 else None)
    run(tones.plan_of(folder, shard=Shard(2, 3)), tmp_path / "part", rig)
    with pytest.raises(OutputError, match=r"5 of 6 questions are answered; give the shard's command again, then merge"):
        merge([shards[0], tmp_path / "part", shards[2]], tmp_path / "out")


def test_a_whole_run_is_no_shard(folder: Path, tmp_path: Path) -> None:
    run(tones.plan_of(folder, limit=1), tmp_path / "whole")
    with pytest.raises(OutputError, match=r"holds a whole run, no shard"):
        merge([tmp_path / "whole"], tmp_path / "out")
    with pytest.raises(OutputError, match=r"holds no run.json; expected the --out folder of a benchmark's run"):
        merge([tmp_path], tmp_path / "out")


@pytest.mark.parametrize("damage", ["", "[", "{}", '{"identity": 1, "files": []}', "[1]"])
def test_a_damaged_description_costs_no_answer(
    folder: Path, undisturbed: dict[str, bytes], tmp_path: Path, damage: str
) -> None:
    run(tones.plan_of(folder), tmp_path)
    (tmp_path / "run.json").write_text(damage)
    with pytest.raises(OutputError, match=r"run.json' is damaged; give the run's command again"):
        merge([tmp_path], tmp_path / "out")
    results, rig = run(tones.plan_of(folder), tmp_path)
    assert (rig.hearings, rig.questions) == (0, [])
    assert final_files(tmp_path) == undisturbed
    assert results.moved == tmp_path / "earlier-damaged"
    assert (results.moved / "run.json").read_text() == damage


@pytest.mark.parametrize(
    "damage",
    [
        "{",
        "[]",
        '{"to": "earlier-1"',
        '{"to": "../elsewhere", "files": []}',
        '{"to": "earlier-1/../../elsewhere", "files": []}',
        '{"to": "elsewhere", "files": []}',
        '{"to": "earlier-1", "files": ["../mine"]}',
        '{"to": "earlier-1", "files": [1]}',
        '{"files": []}',
        "[" * 9999,
    ],
)
def test_a_note_of_a_move_that_is_not_ours_moves_nothing_and_is_one_line(
    folder: Path, tmp_path: Path, damage: str
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (tmp_path / "mine").write_text("mine")
    (out / ".moving.json").write_text(damage)
    with pytest.raises(OutputError, match=r"moving.json' is damaged; remove it, then give the same command"):
        run(tones.plan_of(folder, limit=1), out)
    assert {path.name for path in tmp_path.iterdir()} == {"mine", "out"}
    assert {path.name for path in out.iterdir()} <= {".moving.json", ".lock"}


def test_an_earlier_folder_that_leads_elsewhere_takes_no_files(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (out / "earlier-1").symlink_to(tmp_path / "elsewhere")
    (out / "mine").write_text("mine")
    (out / ".moving.json").write_text('{"to": "earlier-1", "files": ["mine"]}')
    with pytest.raises(OutputError, match=r"earlier-1' is a link to another place"):
        run(tones.plan_of(folder, limit=1), out)
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize(
    "damage",
    ['{"identity": "../../x", "files": []}', '{"identity": "a", "files": [1]}', '{"identity": "a", "files": ["../m"]}'],
)
def test_a_description_that_leads_elsewhere_counts_as_damaged(folder: Path, tmp_path: Path, damage: str) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "run.json").write_text(damage)
    results, _ = run(tones.plan_of(folder, limit=1), out)
    assert results.moved == out / "earlier-damaged"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


HEARD_ENTRY: dict[str, Any] = {
    "kind": "hearing", "recording": "a", "mode": "general", "audio_s": 1.0, "admitted_s": 1, "withheld_s": {"short": 1},
    "bystander_words": [1, 2], "main_words": None, "stages_s": {"asr": 0.1},
}  # fmt: skip
ANSWER_ENTRY: dict[str, Any] = {"kind": "answer", "choice": "A", "reply": None, "probabilities": [0.5, 0.5]}
SPENT_ENTRY: dict[str, Any] = {"kind": "spent", **Spent(1, 1).as_dict()}


def test_what_a_run_writes_are_entries(folder: Path, tmp_path: Path) -> None:
    assert all(map(is_entry, (HEARD_ENTRY, ANSWER_ENTRY, SPENT_ENTRY)))
    run(tones.plan_of(folder, limit=1), tmp_path)
    assert all(map(is_entry, read_journal(tmp_path).values()))


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"kind": "else"},
        *({**HEARD_ENTRY, name: "x" if name != "recording" else 3} for name in HEARD_ENTRY),
        *({**SPENT_ENTRY, name: "x"} for name in SPENT_ENTRY),
        {**HEARD_ENTRY, "main_words": [2, 1]},
        {**HEARD_ENTRY, "audio_s": 10**400},
        {**HEARD_ENTRY, "stages_s": {"asr": None}},
        {**ANSWER_ENTRY, "choice": "Z"},
        {**ANSWER_ENTRY, "choice": ["A"]},
        {**ANSWER_ENTRY, "choice": None},
        {**ANSWER_ENTRY, "reply": 3},
        {**ANSWER_ENTRY, "probabilities": None},
        {**ANSWER_ENTRY, "probabilities": [True]},
        {**SPENT_ENTRY, "requests": None},
        {"kind": "spent"},
    ],
)
def test_what_no_run_writes_is_no_entry(entry: dict[str, Any]) -> None:
    assert not is_entry(entry)


def test_a_damaged_shard_is_one_line(folder: Path, shards: list[Path], tmp_path: Path) -> None:
    run(tones.plan_of(folder, shard=Shard(2, 3)), tmp_path / "part")
    (tmp_path / "part" / "hearings.json").write_text("{")
    with pytest.raises(OutputError, match=r"hearings.json' is damaged; give the run's command again"):
        merge([shards[0], tmp_path / "part", shards[2]], tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("hearings.json", "[]", "are not of the same recordings; run the shards again"),
        ("hearings.json", '[{"key": "x", "recording": "y"}]', "hearings and journal do not fit together"),
        ("hearings.json", "[{}]", "hearings and journal do not fit together"),
        ("tones_basic_qa.json", "[{}, {}, {}, {}, {}, {}]", "tones_basic_qa.json' is damaged"),
        ("run.json", '{"identity": "a", "files": []}', "run.json' is damaged; give the run's command again"),
        ("run.json", '{"identity": "a", "files": [1]}', "run.json' is damaged; give the run's command again"),
        (
            "run.json",
            '{"identity": "a", "determined_by": 3, "items": [], "limit": 1, "files": []}',
            "run.json' is damaged; give the run's command again",
        ),
        (
            "run.json",
            '{"identity": "a", "determined_by": {"shard": "1/3"}, "items": [[]], "limit": [], "files": []}',
            "run.json' is damaged; give the run's command again",
        ),
        (JOURNAL, "", "hearings and journal do not fit together"),
    ],
)
def test_a_shard_whose_files_do_not_fit_is_one_line(
    folder: Path, shards: list[Path], tmp_path: Path, name: str, content: str, line: str
) -> None:
    run(tones.plan_of(folder, shard=Shard(2, 3)), tmp_path / "part")
    (tmp_path / "part" / name).write_text(content)
    with pytest.raises(OutputError, match=line):
        merge([shards[0], tmp_path / "part", shards[2]], tmp_path / "out")


def test_a_shard_is_no_place_for_the_whole(shards: list[Path]) -> None:
    before = final_files(shards[0])
    with pytest.raises(OutputError, match="is one of the shards; give another --out"):
        merge(shards, shards[0])
    assert final_files(shards[0]) == before


def test_audio_that_is_too_short_is_asked_about_too(tmp_path: Path) -> None:
    tones.write(tmp_path / "data", recordings=1)
    soundfile.write(tmp_path / "data" / "folder" / "scene 0.wav", np.zeros(10, np.float32), 16_000)
    results, rig = run(tones.plan_of(tmp_path / "data"), None)
    assert not results.failed
    assert len(rig.questions) == 12
    assert all(heard.main_words and heard.main_words.correct == 0 for heard in results.hearings)
