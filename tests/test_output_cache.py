"""The cache of replies: what is damaged, foreign or shared, and who may read it."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.errors import OutputError
from cascade.output.cache import LARGEST_ENTRY, ResponseCache, check_place
from tests.test_output_recordings import full_disk

ROOT = Path(__file__).resolve().parents[1]
KEY = hashlib.sha256(b"a request").hexdigest()
OTHER = hashlib.sha256(b"another request").hexdigest()
ENTRY = {"choices": [{"finish_reason": "stop", "message": {"content": "B"}}]}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "replies"


@pytest.fixture
def cache(folder: Path) -> ResponseCache:
    return ResponseCache(folder)


def file_of(folder: Path, key: str = KEY) -> Path:
    return folder / key[:2] / f"{key}.json"


@given(st.dictionaries(st.text(max_size=3), VALUES, max_size=3))
def test_what_was_put_comes_back_also_to_the_next_run(
    tmp_path_factory: pytest.TempPathFactory, entry: dict[str, Any]
) -> None:
    folder = tmp_path_factory.mktemp("cache") / "replies"
    ResponseCache(folder).put(KEY, entry)
    again = ResponseCache(folder)
    assert again.get(KEY) == entry
    assert again.get(OTHER) is None


def test_what_was_never_put_is_no_cause_for_a_warning(cache: ResponseCache, caplog: pytest.LogCaptureFixture) -> None:
    assert cache.get(KEY) is None
    assert not caplog.records


def test_only_the_owner_may_read_it(cache: ResponseCache, folder: Path) -> None:
    before = os.umask(0)
    try:
        cache.put(KEY, ENTRY)
        ResponseCache(folder.parent / "another")
    finally:
        os.umask(before)
    for path in (folder, file_of(folder).parent, folder.parent / "another"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE(file_of(folder).stat().st_mode) == 0o600


def test_a_later_reply_takes_the_place_of_an_earlier_one(cache: ResponseCache, folder: Path) -> None:
    cache.put(KEY, {"a": 1})
    cache.put(KEY, ENTRY)
    assert cache.get(KEY) == ENTRY
    assert [path.name for path in file_of(folder).parent.iterdir()] == [f"{KEY}.json"]


def kept(entry: object = ENTRY, **changes: object) -> bytes:
    digest = hashlib.sha256(json.dumps(entry, sort_keys=True).encode()).hexdigest()
    return json.dumps({"format": 1, "key": KEY, "sha256": digest, "entry": entry, **changes}).encode()


def test_the_bytes_that_the_next_test_spoils_are_those_of_the_cache(cache: ResponseCache, folder: Path) -> None:
    cache.put(KEY, ENTRY)
    assert file_of(folder).read_bytes() == kept()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        kept()[:-1],
        kept()[:40],
        b"null",
        b"[]",
        b"\xff\xfe",
        b"cposix\nsystem\n(S'true'\ntR.",
        b"[" * 100_000,
        kept(format=2),
        kept(key=OTHER),
        kept(sha256="0" * 64),
        kept(more=1),
        kept(entry=[1]),
        kept().replace(b'"B"', b'"C"'),
        kept() + b" " * LARGEST_ENTRY,
    ],
    ids=[
        "empty", "brace", "cut by one", "cut early", "null", "list", "no UTF-8", "a pickle", "deep", "another format",
        "another key", "wrong hash", "more fields", "no mapping", "another letter", "too large",
    ],
)  # fmt: skip
def test_what_is_damaged_or_foreign_is_not_believed_and_can_be_put_again(
    cache: ResponseCache, folder: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    cache.put(KEY, ENTRY)
    file_of(folder).write_bytes(content)
    assert cache.get(KEY) is None
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "asked again" in caplog.text
    cache.put(KEY, ENTRY)
    assert cache.get(KEY) == ENTRY


def test_a_link_is_not_followed(cache: ResponseCache, folder: Path, tmp_path: Path) -> None:
    cache.put(KEY, ENTRY)
    elsewhere = tmp_path / "elsewhere.json"
    file_of(folder).rename(elsewhere)
    file_of(folder).symlink_to(elsewhere)
    assert cache.get(KEY) is None
    cache.put(KEY, {"a": 1})
    assert cache.get(KEY) == {"a": 1}
    assert b'"B"' in elsewhere.read_bytes()


def test_a_pipe_is_not_waited_for(cache: ResponseCache, folder: Path) -> None:
    cache.put(KEY, ENTRY)
    file_of(folder).unlink()
    os.mkfifo(file_of(folder))
    assert cache.get(KEY) is None


def test_a_file_that_others_may_change_is_not_believed(cache: ResponseCache, folder: Path) -> None:
    cache.put(KEY, ENTRY)
    file_of(folder).chmod(0o622)
    assert cache.get(KEY) is None


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_folder_that_others_may_look_into_is_refused(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(OutputError, match=rf"open to others \(mode {mode:04o}\).*chmod 700"):
        ResponseCache(tmp_path)


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OutputError, match="is not a folder"):
            ResponseCache(place)


def test_a_place_is_looked_at_without_making_anything(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "private").mkdir(mode=0o700)
    before = sorted(tmp_path.rglob("*"))
    for good in ("private", "private/new/newer", "new"):
        check_place(tmp_path / good)
    for bad in ("file", "file/below", "open"):
        with pytest.raises(OutputError) as looked:
            check_place(tmp_path / bad)
        with pytest.raises(OutputError) as opened:
            ResponseCache(tmp_path / bad)
        assert str(looked.value) == str(opened.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_full_disk_costs_no_answer(cache: ResponseCache, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with full_disk(50):
        cache.put(KEY, ENTRY)
    assert "could not be kept" in caplog.text
    assert cache.get(KEY) is None
    assert not [path for path in folder.rglob("*") if path.is_file()]


def test_threads_share_it(cache: ResponseCache) -> None:
    keys = [hashlib.sha256(bytes([number])).hexdigest() for number in range(20)]

    def _ask(number: int) -> bool:
        key = keys[number % 20]
        cache.put(key, {"number": number % 20})
        return cache.get(key) == {"number": number % 20}

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(_ask, range(400)))


WRITER = """
import sys
from pathlib import Path
from cascade.output.cache import ResponseCache
cache = ResponseCache(Path(sys.argv[1]))
for number in range(300):
    key = f"{number % 3:064x}"
    cache.put(key, {"key": key, "text": "x" * 5000 * (number % 7)})
    found = cache.get(key)
    assert found is not None and found["key"] == key and set(found["text"]) <= {"x"}, found
"""


def test_two_processes_share_it(folder: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", WRITER, str(folder)]
    running = [
        subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in running:
        _, told = process.communicate(timeout=60)
        assert (process.returncode, told) == (0, "")
