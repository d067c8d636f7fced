"""What is read from the benchmark's file and from predictions, and the line that says what is wrong with one."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cascade.errors import ItemsError
from cascade.scoring.efficacy import Partition, Speaker
from cascade.shbench.items import LARGEST, Item, _unpacked, load_items, load_predictions, raw_items
from cascade.types import Question

SHARED = Path(__file__).resolve().parents[2] / "shared" / "shbench"


def raw(**others: Any) -> dict[str, Any]:
    """Return an item as it stands in a file."""
    return {
        "question": "When does the ferry leave?",
        "options": ["At six", "At ten", "I don't know", "At noon", "At dusk"],
        "answer": "At ten",
        "speaker": "main",
        "audio": "real/harbour_1.wav",
        "type": "real",
        "scene": "harbour",
        "main_speaker_desc": "A calm voice.",
        "main_speaker_desc_w_content": "A calm voice about ferries.",
        "main_speaker_desc_w_content_filter": "A calm voice about boats.",
        "idk_answer": "I don't know",
        "pred": "B. At ten",
        "logp": [0.1, 0.6, 0.1, 0.1, 0.1],
    } | others


def without(*fields: str) -> dict[str, Any]:
    return {field: value for field, value in raw().items() if field not in fields}


def written(folder: Path, content: object, name: str = "items.json") -> Path:
    file = folder / name
    file.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return file


def predictions(file: Path, *, open_ended: bool = False) -> list[Item]:
    return list(load_predictions(file, open_ended=open_ended))


# --- what is read -----------------------------------------------------------------------------------------------------


def test_an_item_of_the_benchmark_is_read_whole(tmp_path: Path) -> None:
    first, second = load_items(written(tmp_path, [raw(refuse="yes"), raw(speaker="bystander", type="synth")]))
    assert first == Item(
        number=0,
        question="When does the ferry leave?",
        options=("At six", "At ten", "I don't know", "At noon", "At dusk"),
        answer="At ten",
        speaker=Speaker.MAIN,
        audio="real/harbour_1.wav",
        partition=Partition.REAL,
        scene="harbour",
        main_speaker_desc="A calm voice.",
        main_speaker_desc_w_content="A calm voice about ferries.",
        main_speaker_desc_w_content_filter="A calm voice about boats.",
        idk_answer="I don't know",
        refuse="yes",
    )
    assert (second.number, second.speaker, second.partition) == (1, Speaker.BYSTANDER, Partition.SYNTH)


def test_a_synthetic_item_needs_no_scene(tmp_path: Path) -> None:
    (item,) = load_items(written(tmp_path, [without("scene", "pred", "logp")]))
    assert (item.scene, item.refuse) == (None, None)


def test_a_prediction_is_read_without_descriptions(tmp_path: Path) -> None:
    (item,) = predictions(written(tmp_path, [raw(extra=1)]))
    assert item == Item(
        number=0,
        question="When does the ferry leave?",
        options=("At six", "At ten", "I don't know", "At noon", "At dusk"),
        answer="At ten",
        speaker=Speaker.MAIN,
        audio="real/harbour_1.wav",
        partition=Partition.REAL,
        idk_answer="I don't know",
        pred="B. At ten",
        logp=(0.1, 0.6, 0.1, 0.1, 0.1),
    )


def test_the_question_knows_its_i_dont_know(tmp_path: Path) -> None:
    with_it, without_it = predictions(written(tmp_path, [raw(), raw(idk_answer="No idea")]))
    assert with_it.question_of_options == Question(with_it.question, with_it.options, 2)
    assert without_it.dont_know is None
    assert without_it.question_of_options == Question(without_it.question, without_it.options, None)


def test_what_a_scorer_can_do_without_is_not_asked_for(tmp_path: Path) -> None:
    odd = without("idk_answer", "logp", "scene") | {"answer": "Never", "options": ["x", "x"], "pred": None}
    item, _ = predictions(written(tmp_path, [odd, raw()]))
    assert (item.idk_answer, item.logp, item.pred, item.dont_know) == ("", None, None, None)


@pytest.mark.parametrize("pred", [None, 3, ["B"], {"text": "B"}, True])
def test_a_reply_that_is_no_text_is_none(tmp_path: Path, pred: object) -> None:
    assert predictions(written(tmp_path, [raw(pred=pred), without("pred"), raw()]))[0].pred is None


def test_numbers_that_are_none_are_nan(tmp_path: Path) -> None:
    content = json.dumps([raw(logp=[0.5, 1, "0.5", None, True]), raw(logp="0.5"), raw(logp=[])])
    some, text, empty = predictions(written(tmp_path, content.encode()))
    assert some.logp is not None
    assert some.logp[:2] == (0.5, 1.0)
    assert [math.isnan(value) for value in some.logp] == [False, False, True, True, True]
    assert text.logp is not None
    assert len(text.logp) == 1
    assert math.isnan(text.logp[0])
    assert empty.logp == ()


def test_pythons_own_numbers_are_read(tmp_path: Path) -> None:
    """Python writes NaN and Infinity, which are no JSON; a number too long for a float is none."""
    content = json.dumps([raw(logp=[math.nan, math.inf, -math.inf, 10**400, 1e-320])]).encode()
    (item,) = predictions(written(tmp_path, content))
    assert item.logp is not None
    assert math.isnan(item.logp[0])
    assert item.logp[1:3] == (math.inf, -math.inf)
    assert math.isnan(item.logp[3])
    assert item.logp[4] == 1e-320


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=5))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_probabilities_are_read_to_the_last_bit(tmp_path: Path, values: list[float]) -> None:
    assert predictions(written(tmp_path, [raw(logp=values)]))[0].logp == tuple(values)


@pytest.mark.parametrize(
    "pack",
    [
        lambda plain: plain,
        lambda plain: b"\xef\xbb\xbf" + plain,
        gzip.compress,
        lambda plain: gzip.compress(b"\xef\xbb\xbf" + plain),
        lambda plain: gzip.compress(plain[:100]) + gzip.compress(plain[100:]),
        lambda plain: gzip.compress(plain) + b"\0" * 512,
        lambda plain: b"\n " + plain + b"\n",
    ],
    ids=["plain", "BOM", "gzip", "gzip of BOM", "two members", "padded", "blank lines"],
)
@pytest.mark.parametrize("name", ["items.json", "items.json.gz", "items"])
def test_a_file_is_read_by_its_content(tmp_path: Path, pack: Callable[[bytes], bytes], name: str) -> None:
    file = written(tmp_path, pack(json.dumps([raw(question="Où ?")], ensure_ascii=False).encode()), name)
    assert predictions(file)[0].question == "Où ?"
    assert load_items(file)[0].question == "Où ?"
    assert raw_items(file)[0]["question"] == "Où ?"


def test_half_a_character_is_read_as_a_question_mark(tmp_path: Path) -> None:
    """Python writes a reply that was cut within an emoji; pydantic does not read it."""
    file = written(tmp_path, json.dumps([raw(pred="B \ud83d", logp=[0.25, math.nan])]).encode())
    (item,) = predictions(file)
    assert item.pred == "B ?"
    assert item.logp is not None
    assert item.logp[0] == 0.25
    assert math.isnan(item.logp[1])


def test_raw_items_keep_what_is_there(tmp_path: Path) -> None:
    items = [raw(extra={"a": [1, 2.5, None]}), {"anything": 1}]
    found = raw_items(written(tmp_path, items))
    assert found == items
    assert list(found[0]) == list(items[0])


def test_an_open_ended_question_needs_no_options(tmp_path: Path) -> None:
    file = written(tmp_path, [without("options", "answer"), raw(options=[]), raw()])
    assert [len(item.options) for item in predictions(file, open_ended=True)] == [0, 0, 5]
    with pytest.raises(ItemsError, match=r"item 0 .*'answer' is missing"):
        predictions(file)


# --- what is wrong ----------------------------------------------------------------------------------------------------

FAULTS = [
    (raw(speaker="host"), "item 1 (counted from 0), field 'speaker' is another text, expected 'main' or 'bystander'"),
    (raw(speaker=3), "field 'speaker' is a number, expected 'main' or 'bystander'"),
    (raw(type="fake"), "field 'type' is another text, expected 'real' or 'synth'"),
    (without("type"), "field 'type' is missing, expected 'real' or 'synth'"),
    (raw(options=["one"]), "field 'options' has 1, expected 2 to 5 texts"),
    (raw(options=["1", "2", "3", "4", "5", "6"]), "field 'options' has 6, expected 2 to 5 texts"),
    (raw(options="one"), "field 'options' is a text, expected 2 to 5 texts"),
    (raw(options=["one", None]), "field 'options[1]' is null, expected a text"),
    (raw(question=" "), "field 'question' is empty, expected a text"),
    (raw(question=None), "field 'question' is null, expected a text"),
    (raw(audio=""), "field 'audio' is empty, expected the recording's path"),
    (raw(answer=False), "field 'answer' is true or false, expected a text"),
    (raw(answer={}), "field 'answer' is an object, expected a text"),
    (["a"], "item 1 (counted from 0) is a list, expected an object"),
]


@pytest.mark.parametrize(("item", "message"), FAULTS, ids=[message for _, message in FAULTS])
def test_an_items_fault_is_one_line_with_its_place(tmp_path: Path, item: object, message: str) -> None:
    file = written(tmp_path, [raw(), item])
    for load in (load_items, load_predictions):
        with pytest.raises(ItemsError) as caught:
            load(file)
        assert message in str(caught.value)
        assert str(file) in str(caught.value)
        assert "\n" not in str(caught.value)
        assert "fake" not in str(caught.value)
        assert "host" not in str(caught.value)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (without("main_speaker_desc"), "field 'main_speaker_desc' is missing, expected a text"),
        (without("main_speaker_desc_w_content"), "field 'main_speaker_desc_w_content' is missing"),
        (without("main_speaker_desc_w_content_filter"), "field 'main_speaker_desc_w_content_filter' is missing"),
        (without("idk_answer"), "field 'idk_answer' is missing"),
        (raw(scene=1), "field 'scene' is a number, expected a text or null"),
        (raw(refuse=[]), "field 'refuse' is a list, expected a text or null"),
        (raw(options=["At ten", "At ten"]), "field 'options' has the same text twice"),
        (raw(answer="Never"), "field 'answer' is none of the options"),
    ],
)
def test_a_run_needs_more_than_a_scorer(tmp_path: Path, item: dict[str, Any], message: str) -> None:
    file = written(tmp_path, [raw(), item])
    with pytest.raises(ItemsError, match="item 1 ") as caught:
        load_items(file)
    assert message in str(caught.value)
    assert "Never" not in str(caught.value)
    assert len(predictions(file)) == 2


def test_the_benchmarks_file_is_no_file_of_predictions(tmp_path: Path) -> None:
    file = written(tmp_path, [without("pred")])
    with pytest.raises(ItemsError, match=r"holds no reply, expected a text as 'pred'"):
        load_predictions(file)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not JSON"),
        (b'[\n{"question": }]', "is not JSON .*line 2, column 14"),
        (b'{"a": 1}\n{"a": 2}', "JSON Lines are not read, write one list"),
        (b'[{"question": "\xe9"}]', "is not UTF-8"),
        (b"[]", "an empty list, expected one list of items"),
        (b"null", "holds null, expected one list of items"),
        (b'"text"', "holds a text, expected"),
        (b"5", "holds a number, expected"),
        (b'{"harbour_1_0": {"question": "When?", "answer": "B"}}', "answers without their items cannot be scored"),
        (b"[" * 5000 + b"]" * 5000, "too deep|cannot be read"),
        (b"[" * 400 + b"]" * 400, "expected"),
        (b"[1" + b"0" * 5000 + b"]", "expected"),
        (gzip.compress(b"[" + b"1, " * 1000 + b"1]")[:-12], "is cut off"),
        (b"\x1f\x8b" + b"garbage of some length", "is damaged"),
    ],
)
def test_a_files_fault_is_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    file = written(tmp_path, content)
    for load in (load_items, load_predictions, raw_items):
        with pytest.raises(ItemsError, match=message) as caught:
            load(file)
        assert str(file) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    for path in (tmp_path / "no.json", tmp_path):
        with pytest.raises(ItemsError, match="cannot read"):
            load_items(path)


def test_raw_items_are_objects(tmp_path: Path) -> None:
    with pytest.raises(ItemsError, match=r"item 1 .*is a text, expected an object"):
        raw_items(written(tmp_path, [raw(), "text"]))


# --- the published files ----------------------------------------------------------------------------------------------


@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/shbench, the published predictions, is not here")
def test_the_published_files_are_read_whole() -> None:
    files = sorted(SHARED.glob("*.json.gz"))
    assert len(files) == 7
    for file in files:
        items = load_items(file)
        assert len(items) == len(predictions(file)) == len(raw_items(file)) == 2000
        assert all((item.dont_know is None) == ("noidk" in file.name) for item in items)
        assert sum(item.partition is Partition.REAL for item in items) == 1000


@pytest.mark.parametrize("members", [(4_000_001,), (3_000_000, 1_000_001)])
def test_a_file_that_unpacks_to_more_than_any_file_of_items_is_refused(members: tuple[int, ...]) -> None:
    path, packed = Path("bomb.json.gz"), [gzip.compress(bytes(size)) for size in members]
    with pytest.raises(ItemsError, match=r"^'bomb.json.gz' unpacks to more than 4 MB, which no file of items has$"):
        _unpacked(path, b"".join(packed), 4_000_000)
    assert len(_unpacked(path, b"".join(packed), 4_000_001)) == 4_000_001
    assert LARGEST > 100 * 4_000_000  # of SH-Bench's own files
