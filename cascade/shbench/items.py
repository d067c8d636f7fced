"""The benchmark's file, or a file of predictions -> items; what is wrong with it is said in one line.

Both are one JSON list of the same objects; predictions have `pred` beside the question, and `logp` where the system has
probabilities (they are probabilities in spite of the name). Places are counted from 0, as in the file's list.

A run needs faultless items. A scorer scores what can be scored: there a reply that is no text is an empty reply, and
options that do not fit together are left for the audit of `scores`.
"""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, final

from pydantic import Field, TypeAdapter, ValidationError

from cascade.errors import ItemsError
from cascade.scoring.efficacy import Partition, Speaker
from cascade.types import Question

LEAST_OPTIONS: Final = 2
MOST_OPTIONS: Final = 5
"""Four options, and "I don't know" as a fifth; they are lettered A to E."""

_GZIP: Final = b"\x1f\x8b"
_GZIP_FORMAT: Final = 31
"""zlib's number for a gzip stream with the largest window."""
_BOM: Final = b"\xef\xbb\xbf"


@final
@dataclass(frozen=True, slots=True)
class Item:
    """A question of the benchmark about one speaker of a recording, and a system's reply where there is one.

    number is the item's place in the file, from 0. scene, the descriptions and idk_answer are empty (scene: None) where
    the file has none, and are not kept of predictions. logp holds the options' probabilities; what is no number is NaN.
    """

    number: int
    question: str
    options: tuple[str, ...]
    answer: str
    speaker: Speaker
    audio: str
    partition: Partition
    scene: str | None = None
    main_speaker_desc: str = ""
    main_speaker_desc_w_content: str = ""
    main_speaker_desc_w_content_filter: str = ""
    idk_answer: str = ""
    refuse: str | None = None
    pred: str | None = None
    logp: tuple[float, ...] | None = None

    @property
    def dont_know(self) -> int | None:
        """The index of the option that is the benchmark's 'I don't know', None where no option is."""
        return self.options.index(self.idk_answer) if self.idk_answer in self.options else None

    @property
    def question_of_options(self) -> Question:
        """The question as it is asked, with its options."""
        return Question(self.question, self.options, self.dont_know)


@final
@dataclass(frozen=True, slots=True)
class Data:
    """The benchmark's file as it was when it was read: its items, the same as the file has them, its sha256."""

    items: tuple[Item, ...]
    raw: tuple[Mapping[str, Any], ...]
    sha256: str


def load_data(path: Path) -> Data:
    """Read all of the benchmark's file once, so that a file that changes later changes nothing.

    Raises:
        ItemsError: As load_items.
    """
    content = _content(path)
    return Data(_items(path, content), tuple(_raw(path, content)), hashlib.sha256(content).hexdigest())


def load_items(path: Path, *, read: Callable[[Path], bytes] = Path.read_bytes) -> tuple[Item, ...]:
    """Read the benchmark's file for a run, .json or .json.gz.

    Raises:
        ItemsError: The file cannot be read, is no JSON list, or an item lacks a field, has a wrong one, or has options
            that are not all different or lack the answer.
    """
    return _items(path, _content(path, read))


def _items(path: Path, content: bytes) -> tuple[Item, ...]:
    rows = _validated(path, content, _ASKED)
    return tuple(_checked(path, _item(number, row)) for number, row in enumerate(rows))


def load_predictions(
    path: Path, *, open_ended: bool = False, read: Callable[[Path], bytes] = Path.read_bytes
) -> Iterator[Item]:
    """Read a file of predictions for scoring; extra fields and descriptions are not kept.

    The whole file is checked at once; its items are made one by one, so that they need not all be in memory. A `pred`
    that is no text is None. Open-ended questions may come without options.

    Raises:
        ItemsError: The file cannot be read, is no JSON list, or an item lacks a field or has a wrong one.
    """
    content = _content(path, read)
    if open_ended:
        shown_nothing = _validated(path, content, _OPEN)
        return _predictions(_with_replies(path, shown_nothing))
    return _predictions(_with_replies(path, _validated(path, content, _ANSWERED)))


def _with_replies(path: Path, rows: Sequence[_Answered]) -> Sequence[_Answered]:
    """Return rows of which at least one has a reply."""
    if not any(isinstance(row.pred, str) for row in rows):
        raise ItemsError(
            f"'{path}' holds no reply, expected a text as 'pred' in each item; is this the benchmark's own file?"
        )
    return rows


def raw_items(path: Path) -> list[dict[str, Any]]:
    """Return the items as the file has them, all fields in their order.

    Raises:
        ItemsError: The file cannot be read, or is no JSON list of objects.
    """
    return _raw(path, _content(path))


def _raw(path: Path, content: bytes) -> list[dict[str, Any]]:
    items = _list(path, _parsed(path, content))
    for number, item in enumerate(items):
        if not isinstance(item, dict):
            raise ItemsError(_not_an_object(path, number, item))
    return items


# --- the file ---------------------------------------------------------------------------------------------------------


def _content(path: Path, read: Callable[[Path], bytes] = Path.read_bytes) -> bytes:
    """Return a file's bytes, unpacked if they are gzip's, whatever the file's name is."""
    try:
        content = read(path)
    except OSError as error:
        raise ItemsError(f"cannot read '{path}' ({error.strerror}); give a .json or .json.gz file of items") from error
    return (_unpacked(path, content) if content.startswith(_GZIP) else content).removeprefix(_BOM)


LARGEST: Final = 500_000_000
"""Bytes of an unpacked file. SH-Bench's have some 4 MB; some kB may unpack to more than any memory holds."""


def _unpacked(path: Path, content: bytes, largest: int = LARGEST) -> bytes:
    """Unpack all members of a gzip file; what follows the last one is no part of it, as gzip itself has it."""
    parts, left = [], largest
    while content.startswith(_GZIP):
        unpacking = zlib.decompressobj(_GZIP_FORMAT)
        try:
            parts.append(unpacking.decompress(content, left + 1))
        except zlib.error as error:
            raise ItemsError(f"'{path}' is damaged: gzip cannot unpack it; fetch it again") from error
        left -= len(parts[-1])
        if left < 0:
            raise ItemsError(f"'{path}' unpacks to more than {largest / 1_000_000:.0f} MB, which no file of items has")
        if not unpacking.eof:
            raise ItemsError(f"'{path}' is cut off: its gzip data end too early; fetch it again")
        content = unpacking.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _parsed(path: Path, content: bytes) -> Any:
    """Parse as Python's json does, by which the benchmark reads; half a character (a lone surrogate) gets through."""
    try:
        return json.loads(content)
    except json.JSONDecodeError as error:
        hint = "; JSON Lines are not read, write one list" if error.msg == "Extra data" else ""
        where = f"line {error.lineno}, column {error.colno}"
        raise ItemsError(f"'{path}' is not JSON ({error.msg}, {where}); expected one list of items{hint}") from error
    except UnicodeDecodeError as error:
        raise ItemsError(f"'{path}' is not UTF-8 (byte {error.start}); save it as UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise ItemsError(
            f"'{path}' has brackets too deep or numbers too long to be JSON, expected one list of items"
        ) from error


def _list(path: Path, items: object) -> list[Any]:
    """Return items if they are a list with something in it."""
    if isinstance(items, list) and items:
        return items
    came = "an empty list" if isinstance(items, list) else _kind(items)
    hint = "; answers without their items cannot be scored: put each as 'pred' into its item of the benchmark's file"
    raise ItemsError(f"'{path}' holds {came}, expected one list of items{hint if isinstance(items, dict) else ''}")


# --- fields -----------------------------------------------------------------------------------------------------------

_Text = Annotated[str, Field(pattern=r"\S")]
_Options = Annotated[tuple[str, ...], Field(min_length=LEAST_OPTIONS, max_length=MOST_OPTIONS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """The fields that every item has, as they stand in the file."""

    question: _Text
    answer: str
    speaker: Speaker
    audio: _Text
    partition: Annotated[Partition, Field(alias="type")]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked(_Row):
    """An item of the benchmark."""

    options: _Options
    main_speaker_desc: str
    main_speaker_desc_w_content: str
    main_speaker_desc_w_content_filter: str
    idk_answer: str
    scene: str | None = None
    refuse: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answered(_Row):
    """An item with a reply."""

    options: _Options
    pred: Any = None
    idk_answer: Any = None
    logp: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open(_Answered):
    """An item with a reply to an open-ended question, whose options nobody was shown."""

    answer: str = ""
    options: Annotated[tuple[str, ...], Field(max_length=MOST_OPTIONS)] = ()


_ASKED: Final = TypeAdapter(list[_Asked])
_ANSWERED: Final = TypeAdapter(list[_Answered])
_OPEN: Final = TypeAdapter(list[_Open])

_EXPECTED: Final = {
    "question": "a text",
    "options": f"{LEAST_OPTIONS} to {MOST_OPTIONS} texts",
    "answer": "a text",
    "speaker": "'main' or 'bystander'",
    "audio": "the recording's path",
    "type": "'real' or 'synth'",
    "pred": "the system's reply (is this the benchmark's file in place of predictions?)",
    "scene": "a text or null",
    "refuse": "a text or null",
}

_R = TypeVar("_R", bound=_Row)


def _validated(path: Path, content: bytes, adapter: TypeAdapter[list[_R]]) -> list[_R]:
    """Parse and check in one go, which takes little memory; what pydantic cannot parse is left to Python's json."""
    try:
        rows = adapter.validate_json(content)
    except ValidationError as error:
        fault = _first(error)
        if fault["type"] != "json_invalid":
            raise ItemsError(_fault(path, fault)) from None
        rows = _validated_after_python(path, content, adapter)
    _list(path, rows)
    return rows


def _validated_after_python(path: Path, content: bytes, adapter: TypeAdapter[list[_R]]) -> list[_R]:
    """Parse as Python does, put a question mark for half a character, and check."""
    whole = json.dumps(_parsed(path, content), ensure_ascii=False).encode("utf-8", "replace")
    try:
        return adapter.validate_json(whole)
    except ValidationError as error:
        raise ItemsError(_fault(path, _first(error))) from None


def _first(error: ValidationError) -> Mapping[str, Any]:
    return error.errors(include_url=False)[0]


def _fault(path: Path, fault: Mapping[str, Any]) -> str:
    """Say what came and what was expected, never the value itself."""
    number, field, *inner = (*fault["loc"], None, None)[: max(2, len(fault["loc"]))]
    if number is None:
        _list(path, fault["input"])
        return f"'{path}' cannot be read as JSON; expected one list of items"
    if field is None:
        return _not_an_object(path, int(number), fault["input"])
    where = f"{field}[{inner[0]}]" if inner else str(field)
    expected = "a text" if inner else _EXPECTED.get(str(field), "a text")
    return f"{_place(path, int(number))}, field '{where}' {_came(fault)}, expected {expected}; mend the file"


def _came(fault: Mapping[str, Any]) -> str:
    """Say what stands where the fault is."""
    match fault["type"]:
        case "missing":
            return "is missing"
        case "string_pattern_mismatch":
            return "is empty"
        case "too_short" | "too_long":
            return f"has {len(fault['input'])}"
        case "enum" if isinstance(fault["input"], str):
            return "is another text"
        case _:
            return f"is {_kind(fault['input'])}"


def _not_an_object(path: Path, number: int, item: object) -> str:
    return f"{_place(path, number)} is {_kind(item)}, expected an object with the question's fields; mend the file"


def _place(path: Path, number: int) -> str:
    return f"'{path}', item {number} (counted from 0)"


_KINDS: Final = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list"}


def _kind(value: object) -> str:
    """Name what kind of JSON a value is."""
    return "null" if value is None else _KINDS.get(type(value), "an object")


# --- items ------------------------------------------------------------------------------------------------------------


def _item(number: int, row: _Asked) -> Item:
    return Item(number, **{name: getattr(row, name) for name in _Asked.__dataclass_fields__})


def _checked(path: Path, item: Item) -> Item:
    """Return an item whose options are all different and hold the answer."""
    place = _place(path, item.number)
    if not all(option.strip() for option in item.options):
        raise ItemsError(f"{place}, field 'options' has an empty text, expected four or five different ones")
    if len(set(item.options)) < len(item.options):
        raise ItemsError(f"{place}, field 'options' has the same text twice, expected different ones; mend the file")
    if item.answer not in item.options:
        raise ItemsError(
            f"{place}, field 'answer' is none of the options, expected the right one's text; mend the file"
        )
    return item


def _predictions(rows: Sequence[_Answered]) -> Iterator[Item]:
    """Yield items without what scoring does not need."""
    for number, row in enumerate(rows):
        yield Item(
            number,
            row.question,
            row.options,
            row.answer,
            row.speaker,
            row.audio,
            row.partition,
            idk_answer=row.idk_answer if isinstance(row.idk_answer, str) else "",
            pred=row.pred if isinstance(row.pred, str) else None,
            logp=_probabilities(row.logp),
        )


def _probabilities(values: object) -> tuple[float, ...] | None:
    """Return numbers as they are, and NaN for what is none; None where there is nothing."""
    if values is None:
        return None
    return tuple(map(_number, values)) if isinstance(values, list) else (math.nan,)


def _number(value: object) -> float:
    """Return a JSON number as a float; what is none, or has more digits than a float can hold, is NaN."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan
