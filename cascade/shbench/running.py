"""Items -> hearings and answers: a recording is heard once for all that is asked about it, and every answer is kept.

What the gate lets through may depend on the mode, so a recording is heard once for each distinct decision of the gate:
once in selective and once in general mode, or once for both where the gate is always shut. All questions of a hearing
are asked while its transcript is in memory; the transcript itself is never kept.

The journal holds of an answer which option was chosen, and of a hearing only numbers; and what each answer cost, so
that a run that was stopped and went on knows what it took in all. So in selective mode nothing that
a bystander said comes into it, unless an answerer that writes its own words quotes what leaked past the gate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any, Final, final
from uuid import uuid4

from cascade.answering.questions import LETTERS
from cascade.answering.spending import Spent, total_of
from cascade.audio import announced_duration_s, open_audio
from cascade.config import CascadeConfig
from cascade.errors import AudioError, CascadeError, NoMoreAnswersError, OutputError
from cascade.output.journal import Journal
from cascade.pipeline import Cascade, Listening, guarded, seconds_by_reason
from cascade.scoring.leakage import leakage, retention
from cascade.scoring.tally import Tally
from cascade.shbench.items import Item
from cascade.shbench.plan import Plan, Recording, digest
from cascade.shbench.recordings import Words, hash_of
from cascade.types import SAMPLE_RATE, Answer, Mode, Question, covered

SPENT: Final = "spent"
"""The kind of a journal's entries that say what answers cost."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Something that could not be heard or answered, and the one line that says why."""

    recording: str
    error: CascadeError


@dataclass(frozen=True, slots=True)
class Stopped:
    """Why a run ended early: nothing more is answered, so nothing more is heard.

    recordings and questions count what is left, each question once for each mode.
    """

    error: NoMoreAnswersError
    recordings: int
    questions: int

    def __str__(self) -> str:
        return f"{self.error}; left are {self.questions} questions on {self.recordings} recordings"


@dataclass(frozen=True, slots=True)
class Heard:
    """One hearing, in numbers.

    bystander_words and main_words: how many of each one's content words the transcript holds (cascade.scoring.leakage);
    None where no reference is known.
    """

    key: str
    recording: str
    mode: Mode
    audio_s: float
    admitted_s: float
    withheld_s: Mapping[str, float]
    bystander_words: Tally | None
    main_words: Tally | None
    stages_s: Mapping[str, float]

    @staticmethod
    def of(key: str, entry: Mapping[str, Any]) -> Heard:
        """Read what the journal holds of a hearing."""
        tallies = {
            name: None if entry[name] is None else Tally(*entry[name]) for name in ("bystander_words", "main_words")
        }
        return Heard(
            key=key,
            recording=entry["recording"],
            mode=Mode(entry["mode"]),
            audio_s=entry["audio_s"],
            admitted_s=entry["admitted_s"],
            withheld_s=entry["withheld_s"],
            stages_s=entry["stages_s"],
            **tallies,
        )


Progress = Callable[[float, float], None]
"""Told, after each step, how many seconds of audio are behind and how many there are in all."""


Loader = Callable[[CascadeConfig], Cascade]
"""Loads a cascade's models; Cascade.load."""


def run(plan: Plan, journal: Journal, progress: Progress, load: Loader) -> Iterator[Failed | Stopped]:
    """Hear and ask all that the journal does not hold yet; yield what failed, which is not in the journal then.

    When nothing more is answered, nothing more is heard, and the last thing to be yielded says so.

    Errors: ModelError, EnrolmentError, OutputError.
    """
    todo = _left(plan, journal)
    if not todo:
        return
    # What was heard before, and not answered, comes last: where that made a server fail, the others are not kept back.
    todo.sort(key=lambda one: hearing_key(plan, *one) in journal)
    lengths = [announced_duration_s(str(recording.path)) or 0.0 for recording, _ in todo]
    loaded = load(plan.config)
    if (before := spent_in(journal.of_kind(SPENT))) is not None:
        loaded.count_before(before)
    behind_s = 0.0
    unheard: set[str] = set()
    for (recording, heard_as), length_s in zip(todo, lengths, strict=True):
        if recording.name in unheard:
            continue  # it fails in the other mode as well
        watch = partial(_watched, progress, behind_s, length_s, sum(lengths))
        try:
            yield from _do(plan, journal, loaded.in_mode(heard_as), recording, watch)
        except OutputError:
            raise  # what cannot be kept need not be heard
        except NoMoreAnswersError as error:
            yield _stopped(plan, journal, error)
            return
        except CascadeError as error:
            unheard.add(recording.name)
            yield Failed(recording.name, error)
        behind_s += length_s
        progress(behind_s, sum(lengths))


def _watched(progress: Progress, behind_s: float, length_s: float, total_s: float, heard_s: float) -> None:
    progress(behind_s + min(heard_s, length_s), total_s)


def _left(plan: Plan, journal: Journal) -> list[tuple[Recording, Mode]]:
    """Return what is still to be heard, for itself or for its questions, in the run's order."""
    return [
        (recording, heard_as)
        for recording in plan.recordings
        for heard_as in plan.hearings
        if hearing_key(plan, recording, heard_as) not in journal or _unanswered(plan, journal, recording, heard_as)
    ]


def _unanswered(
    plan: Plan, journal: Journal, recording: Recording, heard_as: Mode
) -> dict[str, tuple[Item, Mode, Question]]:
    """Return what is still to be asked about a hearing, by the key of its answer; what is asked twice is there once."""
    hearing = hearing_key(plan, recording, heard_as)
    asked: dict[str, tuple[Item, Mode, Question]] = {}
    for mode in plan.hearings[heard_as]:
        for item in recording.items:
            question = plan.question(item, mode)
            asked[answer_key(hearing, mode, question)] = (item, mode, question)
    return {key: question for key, question in asked.items() if key not in journal}


def _stopped(plan: Plan, journal: Journal, error: NoMoreAnswersError) -> Stopped:
    left = _left(plan, journal)
    return Stopped(
        error,
        recordings=len({recording.name for recording, _ in left}),
        questions=sum(len(_unanswered(plan, journal, recording, heard_as)) for recording, heard_as in left),
    )


def _do(
    plan: Plan, journal: Journal, cascade: Cascade, recording: Recording, watch: Callable[[float], None]
) -> Iterator[Failed]:
    """Hear one recording and ask what the journal does not hold yet; what can be answered is kept in any case.

    Raises:
        NoMoreAnswersError: Some questions have no answer, and no further one will have.
    """
    hearing = hearing_key(plan, recording, cascade.mode)
    guarded("hearing it", lambda: _hear(cascade, recording, watch))
    if hash_of(recording.path) != recording.sha256:
        raise AudioError(f"'{recording.path}' changed while the benchmark ran; leave it as it is, and run again")
    if hearing not in journal:
        journal.append(hearing, _hearing_entry(recording, cascade.mode, cascade.listening))
    unanswered = _unanswered(plan, journal, recording, cascade.mode)
    ledger = _Ledger(journal, cascade)
    answerer = plan.config.answerer
    pool = ThreadPoolExecutor(max_workers=1 if answerer is None else answerer.questions_at_once)
    ended: NoMoreAnswersError | None = None
    try:
        for error in pool.map(lambda key: _ask(journal, ledger, cascade, key, *unanswered[key]), unanswered):
            if isinstance(error, NoMoreAnswersError):
                ended = ended or error
            elif error is not None:
                yield Failed(recording.name, error)
    except BaseException:
        cascade.stop()  # after Ctrl-C, and on a full disk, nobody waits for a server
        raise
    finally:
        pool.shutdown(cancel_futures=True)  # nor for questions that were not asked yet
        ledger.note()
    if ended is not None:
        raise ended


def _hear(cascade: Cascade, recording: Recording, watch: Callable[[float], None]) -> None:
    listening = cascade.open()
    for chunk in open_audio(str(recording.path)):
        listening.push(chunk)
        watch(chunk.span.end_s)
    listening.flush()


@final
class _Ledger:
    """Puts into the journal what was spent since it did so last; for several threads.

    So what an answer cost is on disk when the answer is, and a run that is killed forgets no more than what was asked
    and not yet answered.
    """

    def __init__(self, journal: Journal, cascade: Cascade) -> None:
        self._journal = journal
        self._cascade = cascade
        self._noted = cascade.spent
        self._lock = Lock()

    def note(self) -> None:
        """Note it, if there is anything."""
        with self._lock:
            spent = self._cascade.spent
            if spent is not None and self._noted is not None and spent != self._noted:
                self._journal.append(uuid4().hex, {"kind": SPENT, **(spent - self._noted).as_dict()})
                self._noted = spent


def spent_in(entries: Iterable[Mapping[str, Any]]) -> Spent | None:
    """Return what a run took in all, from its journal's entries; None where no server was asked."""
    return total_of(Spent.of(entry) for entry in entries if entry.get("kind") == SPENT)


def _ask(
    journal: Journal, ledger: _Ledger, cascade: Cascade, key: str, item: Item, mode: Mode, question: Question
) -> CascadeError | None:
    """Ask a question and put the answer into the journal; return what went wrong."""
    answer: Answer | None = None
    failed: CascadeError | None = None
    try:
        answer = cascade.ask(question)
    except CascadeError as error:
        failed = error
    ledger.note()
    if answer is None:
        return failed
    journal.append(key, _answer_entry(item, mode, question, answer))
    return None


# --- keys: a hash of everything that determines what is kept under it -------------------------------------------------


def hearing_key(plan: Plan, recording: Recording, heard_as: Mode) -> str:
    """Return the key of a hearing: stages, models, versions, the recording, what is said in it, and mode."""
    return digest(["hearing", plan.stream_key, recording.name, recording.sha256, recording.words, heard_as])


def answer_key(hearing: str, mode: Mode, question: Question) -> str:
    """Return the key of an answer: the hearing, the mode and the question with its prompt; asked twice, it is one."""
    return digest(["answer", hearing, mode, question.text, question.options, question.dont_know, question.prompt])


# --- entries ----------------------------------------------------------------------------------------------------------


def _hearing_entry(recording: Recording, mode: Mode, listening: Listening) -> dict[str, Any]:
    speed = listening.performance
    admitted = [turn.span for turn in listening.decisions if turn.admitted]
    withheld_s = seconds_by_reason(turn for turn in listening.decisions if not turn.admitted)
    return {
        "kind": "hearing",
        "recording": recording.name,
        "mode": str(mode),
        "audio_s": round(speed.audio_s, 3),
        "admitted_s": round(covered(admitted) / SAMPLE_RATE, 3),
        "withheld_s": {reason: round(withheld_s[reason], 3) for reason in sorted(withheld_s)},
        **_words_found(recording.words, listening.transcript.text),
        "stages_s": {stage: round(spent_s, 4) for stage, spent_s in speed.stages_s.items()},
    }


def _words_found(words: Words | None, transcript: str) -> dict[str, Any]:
    """Return how many words of each speaker the transcript holds, as [correct, total]; null without a reference."""
    if words is None:
        return {"bystander_words": None, "main_words": None}
    main, bystander = words.get("main", ""), words.get("bystander", "")
    found = leakage(bystander, main, transcript), retention(main, transcript)
    return {
        name: [tally.correct, tally.total] for name, tally in zip(("bystander_words", "main_words"), found, strict=True)
    }


def _answer_entry(item: Item, mode: Mode, question: Question, answer: Answer) -> dict[str, Any]:
    """Return what is kept of an answer; the text only where it is not just the chosen option's."""
    own_words = answer.choice is None or answer.text != question.options[answer.choice]
    return {
        "kind": "answer",
        "recording": item.audio,
        "item": item.number,
        "mode": str(mode),
        "outcome": str(answer.outcome),
        "choice": None if answer.choice is None else LETTERS[answer.choice],
        "reply": answer.text if own_words else None,
        "probabilities": list(answer.probabilities),
    }


def is_entry(entry: Mapping[str, Any]) -> bool:
    """Tell whether a journal's entry is as they are written here; a folder may come from elsewhere."""
    match entry.get("kind"):
        case "hearing":
            numbers = [entry.get("audio_s"), entry.get("admitted_s")]
            parts = [entry.get("withheld_s"), entry.get("stages_s")]
            tallies = [entry.get("bystander_words", 0), entry.get("main_words", 0)]
            return (
                isinstance(entry.get("recording"), str)
                and entry.get("mode") in list(Mode)
                and all(map(_is_number, numbers))
                and all(isinstance(part, dict) and all(map(_is_number, part.values())) for part in parts)
                and all(tally is None or _is_tally(tally) for tally in tallies)
            )
        case "answer":
            choice, reply, chances = entry.get("choice"), entry.get("reply"), entry.get("probabilities")
            return (
                (choice is None or (isinstance(choice, str) and len(choice) == 1 and choice in LETTERS))
                and (isinstance(reply, str) or (reply is None and choice is not None))
                and isinstance(chances, list)
                and all(map(_is_number, chances))
            )
        case "spent":
            return all(
                _is_number(entry.get(name)) or (name == "cost_usd" and entry.get(name, 0) is None)
                for name in Spent().as_dict()
            )
    return False


_LARGEST: Final = 1e15
"""More seconds, tokens and dollars than there are."""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST


def _is_tally(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(type(number) is int for number in value)
        and 0 <= value[0] <= value[1]
    )


# --- what came of it --------------------------------------------------------------------------------------------------


def hearings(plan: Plan, journal: Journal) -> list[Heard]:
    """Return all hearings of a run, in the order of its recordings."""
    found = []
    for recording in plan.recordings:
        for heard_as in plan.hearings:
            key = hearing_key(plan, recording, heard_as)
            if key in journal:
                found.append(Heard.of(key, _of_kind("hearing", journal[key])))
    return found


def predictions(plan: Plan, journal: Journal) -> dict[Mode, list[dict[str, Any]]]:
    """Return the answered items as the benchmark's file has them, with `pred` and `logp`, by mode."""
    answered: dict[Mode, list[dict[str, Any]]] = {}
    for heard_as, modes in plan.hearings.items():
        keys = {recording.name: hearing_key(plan, recording, heard_as) for recording in plan.recordings}
        for mode in modes:
            answered[mode] = []
            for item in plan.items:
                question = plan.question(item, mode)
                key = answer_key(keys[item.audio], mode, question)
                if key in journal:
                    answered[mode].append(
                        _prediction(plan.data.raw[item.number], plan.options(item), _of_kind("answer", journal[key]))
                    )
    return answered


CHANGED: Final = "the journal holds something else than a run writes under that key: it was changed; give another --out"


def _of_kind(kind: str, entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an entry of this kind; OutputError where somebody put another in its place."""
    if entry["kind"] != kind:
        raise OutputError(CHANGED)
    return entry


def _prediction(raw: Mapping[str, Any], options: Sequence[str], entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an item with its answer: "B. <the option>", or the reply where it is in the answerer's own words.

    An option's text is written with its letter first, since the published evaluation takes the first capital A to E.
    """
    chosen = entry["choice"]
    if chosen is not None and LETTERS.index(chosen) >= len(options):
        raise OutputError(CHANGED)
    pred = entry["reply"] if entry["reply"] is not None else f"{chosen}. {options[LETTERS.index(chosen)]}"
    logp = {"logp": entry["probabilities"]} if entry["probabilities"] else {}
    return {**raw, "options": list(options), "pred": pred, **logp}
