"""Recordings are found by the ends of their paths, and what is said in them by their names."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade.errors import ItemsError
from cascade.shbench.recordings import References, find_audio, hash_of


def touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "lies_at"),
    [
        ("real/Coffee/a 1.wav", "real/Coffee/a 1.wav"),
        ("real/Coffee/a 1.wav", "Coffee/a 1.wav"),
        ("real/Coffee/a 1.wav", "a 1.wav"),
        ("real/Coffee/a 1.wav", "copy/of/real/Coffee/a 1.wav"),
        ("/data/somebody/real/a 1.wav", "real/a 1.wav"),
        ("C:\\data\\real\\a 1.wav", "real/a 1.wav"),
        ("../../outside/a 1.wav", "outside/a 1.wav"),
        ("real/中文 ⚒️.wav", "中文 ⚒️.wav"),
    ],
)
def test_a_recording_is_found_where_its_name_or_the_tail_of_it_says(tmp_path: Path, name: str, lies_at: str) -> None:
    touch(tmp_path, lies_at, "real/b.wav", "Tea/a 2.wav")
    assert find_audio([name], tmp_path) == {name: tmp_path / lies_at}


def test_the_longest_tail_decides(tmp_path: Path) -> None:
    touch(tmp_path, "x/gym/1.wav", "x/coffee/1.wav", "1.wav")
    assert find_audio(["real/coffee/1.wav"], tmp_path) == {"real/coffee/1.wav": tmp_path / "x/coffee/1.wav"}


def test_nothing_outside_of_the_folder_is_taken(tmp_path: Path) -> None:
    touch(tmp_path, "outside.wav", "root/inside.wav")
    with pytest.raises(ItemsError, match="no recording"):
        find_audio(["../outside.wav"], tmp_path / "root")


def test_two_files_that_fit_alike_are_named(tmp_path: Path) -> None:
    touch(tmp_path, "a/1.wav", "b/1.wav")
    with pytest.raises(
        ItemsError, match=r"two files fit 'real/1.wav': .*a/1.wav, .*b/1.wav; give another --audio-root"
    ):
        find_audio(["real/1.wav"], tmp_path)


def test_all_that_is_missing_is_listed_up_to_twenty(tmp_path: Path) -> None:
    touch(tmp_path, "there.wav")
    with pytest.raises(ItemsError) as error:
        find_audio(["there.wav", *(f"away {number}.wav" for number in range(25))], tmp_path)
    lines = str(error.value).splitlines()
    assert lines[:20] == [
        f"no recording 'away {number}.wav' under {tmp_path}, nor one whose path ends like it" for number in range(20)
    ]
    assert lines[20:] == ["and 5 more recordings are missing; give --audio-root DIR"]


def test_a_folder_that_is_none_is_said(tmp_path: Path) -> None:
    with pytest.raises(ItemsError, match="does not exist; give --audio-root DIR"):
        find_audio(["a.wav"], tmp_path / "away")


def test_links_that_lead_in_circles_are_walked_once(tmp_path: Path) -> None:
    touch(tmp_path, "deep/1.wav")
    for number in range(12):
        (tmp_path / f"loop{number}").symlink_to(tmp_path)
        (tmp_path / "deep" / f"loop{number}").symlink_to(tmp_path / "deep")
    (tmp_path / "other.wav").symlink_to(tmp_path / "deep" / "1.wav")
    (tmp_path / "away.wav").symlink_to(tmp_path / "nowhere")
    (found,) = find_audio(["real/1.wav"], tmp_path).values()
    assert found.resolve() == (tmp_path / "deep" / "1.wav").resolve()


def test_a_file_behind_a_link_is_found(tmp_path: Path) -> None:
    touch(tmp_path / "elsewhere", "set/1.wav")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "link").symlink_to(tmp_path / "elsewhere")
    assert find_audio(["real/set/1.wav"], tmp_path / "root") == {"real/set/1.wav": tmp_path / "root/link/set/1.wav"}


@pytest.mark.parametrize("name", ["x" * 300 + ".wav", "a\0b.wav", "sub/" * 2000 + "a.wav"])
def test_a_name_that_no_file_can_have_is_a_missing_recording(tmp_path: Path, name: str) -> None:
    with pytest.raises(ItemsError, match="no recording") as error:
        find_audio([name], tmp_path)
    assert len(str(error.value).splitlines()) == 1


def test_a_name_of_two_lines_is_shown_on_one(tmp_path: Path) -> None:
    with pytest.raises(ItemsError) as error:
        find_audio(["a\nerror: b.wav"], tmp_path)
    assert len(str(error.value).splitlines()) == 1


@given(st.data())
def test_the_longest_tail_is_found_as_by_looking_at_every_file(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    parts = st.lists(st.sampled_from("ab"), min_size=1, max_size=3)
    root = tmp_path_factory.mktemp("root")
    paths = data.draw(st.lists(parts.map(lambda parts: (*parts, "1.wav")), min_size=1, max_size=6, unique=True))
    touch(root, *("/".join(path) for path in paths))
    wanted = (*data.draw(parts), "1.wav")

    def shared(path: tuple[str, ...]) -> int:
        pairs = zip(reversed(path), reversed(wanted), strict=False)
        return next((count for count, (a, b) in enumerate(pairs) if a != b), min(len(path), len(wanted)))

    longest = max(map(shared, paths))
    fitting = [path for path in paths if shared(path) == longest]
    name = "/".join(wanted)
    if wanted in paths or len(fitting) == 1:
        path = wanted if wanted in paths else fitting[0]
        assert find_audio([name], root) == {name: root.joinpath(*path)}
    else:
        with pytest.raises(ItemsError, match="two files fit"):
            find_audio([name], root)


def test_a_recordings_hash_is_that_of_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(b"abc")
    assert hash_of(tmp_path / "a.wav") == hashlib.sha256(b"abc").hexdigest()
    with pytest.raises(ItemsError, match=r"the recording '.*' cannot be read: Is a directory; make it readable"):
        hash_of(tmp_path)


# --- references -------------------------------------------------------------------------------------------------------


def test_references_join_what_a_speaker_says(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    entry = {"session_id": "a", "speaker": "main", "words": "Hello there.", "start_time": 0, "end_time": 1}
    path.write_text(
        json.dumps([entry, {**entry, "speaker": "bystander", "words": "Psst."}, {**entry, "words": "Bye."}])
    )
    assert References.of(path).by_session == {"a": {"main": "Hello there. Bye.", "bystander": "Psst."}}


@pytest.mark.parametrize("content", ["", "{", "17", '{"a": 1}', '[{"session_id": "a"}]', "[1]", "\xff"])
def test_references_that_are_none_are_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ItemsError, match="are not SegLST"):
        References.of(path)


def test_references_that_are_not_there_are_said(tmp_path: Path) -> None:
    with pytest.raises(ItemsError, match=r"references '.*' cannot be read: No such file"):
        References.of(tmp_path / "away.json")


def test_words_are_known_by_the_name_without_folder_and_extension(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps([{"session_id": "1", "speaker": "main", "words": "Hello."}]))
    references = References.of(path)
    assert references.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert references.words_in(["a/1.wav", "a/2.wav"]) == {"a/1.wav": {"main": "Hello."}}


def test_two_recordings_of_one_name_cannot_have_one_reference(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps([{"session_id": "1", "speaker": "main", "words": "Hello."}]))
    references = References.of(path)
    with pytest.raises(ItemsError, match="2 recordings are called '1', so the references cannot tell them apart"):
        references.words_in(["a/1.wav", "b/1.wav"])
    assert references.words_in(["a/2.wav", "b/2.wav"]) == {}
    assert References.of(None).words_in(["a/1.wav", "b/1.wav"]) == {}
