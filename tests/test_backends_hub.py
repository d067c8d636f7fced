from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cascade.backends.hub import BLOCK, PAUSES_S, Remote, Repository, download, has_token
from cascade.errors import ModelError
from tests.hub_server import HubServer, serving

pytest.importorskip("huggingface_hub", reason="fetching models needs huggingface_hub")
pytest.importorskip("requests", reason="fetching models needs requests")

ROOT = Path(__file__).resolve().parents[1]
COMMIT, OLD = "1" * 40, "2" * 40
WEIGHTS = bytes(range(256)) * 1000
SETTINGS = b"rate: 8000\n"
CARRY = "walk"
"""What else a person can do; pull.py says it."""


class InMemory:
    """What a store hands in, kept in memory."""

    def __init__(self, begun: bytes = b"") -> None:
        self.content = begun

    def __len__(self) -> int:
        return len(self.content)

    def append(self, block: bytes, /) -> None:
        self.content += block

    def discard(self) -> None:
        self.content = b""


@pytest.fixture
def hub() -> Iterator[HubServer]:
    files = {
        ("some/model", COMMIT, "weights.bin"): WEIGHTS,
        ("some/model", COMMIT, "sub/settings.yaml"): SETTINGS,
        ("some/model", OLD, "weights.bin"): WEIGHTS[::-1],
        ("a/gated", COMMIT, "weights.bin"): WEIGHTS,
    }
    started = HubServer(
        files=files,
        main={"some/model": COMMIT, "a/gated": COMMIT},
        gated={"a/gated"},
        tokens={"hf_good": True, "hf_stranger": False},
        urls={"/models/file.pt": WEIGHTS},
    )
    with serving(started):
        yield started


def repository(hub: HubServer, revision: str = COMMIT, name: str = "some/model") -> Repository:
    return Repository(name, revision, otherwise=CARRY, endpoint=hub.endpoint)


def gated(hub: HubServer, token: str) -> Repository:
    return Repository("a/gated", COMMIT, otherwise=CARRY, gated=True, endpoint=hub.endpoint, token=token)


def refused(repository: Repository, path: str = "weights.bin") -> str:
    with pytest.raises(ModelError) as error:
        repository.find(path)
    assert error.value.__cause__ is None
    assert len(str(error.value).splitlines()) == 1
    return str(error.value)


# --- asking -----------------------------------------------------------------------------------------------------------


def test_a_large_file_comes_with_its_size_and_sha256(hub: HubServer) -> None:
    remote = repository(hub).find("weights.bin")
    assert remote.size == len(WEIGHTS)
    assert remote.sha256 == hashlib.sha256(WEIGHTS).hexdigest()
    assert remote.url == f"{hub.endpoint}/some/model/resolve/{COMMIT}/weights.bin"


def test_the_etag_of_a_small_file_is_not_taken_for_its_sha256(hub: HubServer) -> None:
    remote = repository(hub).find("sub/settings.yaml")
    assert (remote.size, remote.sha256) == (len(SETTINGS), None)


def test_main_is_resolved_to_its_commit(hub: HubServer) -> None:
    assert repository(hub, "main").commit("weights.bin") == COMMIT
    assert repository(hub, OLD).commit("weights.bin") == OLD


def test_a_token_is_sent_to_gated_repositories_only_and_to_no_other_host(hub: HubServer) -> None:
    open_one = Repository("some/model", COMMIT, otherwise=CARRY, endpoint=hub.endpoint, token="hf_good")
    for asked in (open_one, gated(hub, "hf_good")):
        download(asked.find("weights.bin"), InMemory())
    sent = {(one.path.split("/")[1], one.host): one.authorization for one in hub.asked}
    assert sent == {
        ("some", "127.0.0.1"): None,
        ("some", "localhost"): None,
        ("a", "127.0.0.1"): "Bearer hf_good",
        ("a", "localhost"): None,
    }


def test_a_token_is_not_shown() -> None:
    assert "hf_secret" not in repr(Remote("name", "url", CARRY, {"Authorization": "Bearer hf_secret"}))


# --- refusals: the repository, the cause, the fix ---------------------------------------------------------------------


def test_gated_without_a_token(hub: HubServer) -> None:
    assert refused(gated(hub, "")) == (
        "https://huggingface.co/a/gated is gated and no token is set; accept its terms at "
        "https://huggingface.co/a/gated, make a token at https://huggingface.co/settings/tokens and set it: "
        "export HF_TOKEN=..."
    )


def test_gated_with_a_bad_token(hub: HubServer) -> None:
    message = refused(gated(hub, "hf_wrong"))
    assert message.startswith("https://huggingface.co/a/gated refuses your token: it is not valid any more; make a tok")
    assert "hf_wrong" not in message


def test_gated_before_its_terms_were_accepted(hub: HubServer) -> None:
    message = refused(gated(hub, "hf_stranger"))
    assert message.startswith(
        "https://huggingface.co/a/gated is gated and your token's account has not been let in; accept its terms at "
    )
    assert "hf_stranger" not in message


def test_a_revision_that_is_gone(hub: HubServer) -> None:
    assert refused(repository(hub, "3" * 40)) == (
        f"https://huggingface.co/some/model has no revision {'3' * 40} any more; update cascade, or walk"
    )


def test_a_file_that_is_gone(hub: HubServer) -> None:
    message = refused(repository(hub), "other.bin")
    assert message == (
        f"https://huggingface.co/some/model has no file other.bin at revision {COMMIT}; update cascade, or walk"
    )


def test_a_repository_that_is_gone(hub: HubServer) -> None:
    message = refused(repository(hub, name="no/such"))
    assert message == "https://huggingface.co/no/such is not there, or is private now; update cascade, or walk"


def test_no_connection() -> None:
    with serving(HubServer()) as stopped:
        pass
    message = refused(repository(stopped))
    assert message.startswith("https://huggingface.co/some/model was not asked for weights.bin: no answer (")
    assert message.endswith("; check the network, or walk")


def test_offline_by_order(hub: HubServer) -> None:
    program = (
        "import sys; from cascade.backends.hub import Repository; "
        "Repository('some/model', 'main', otherwise='walk', endpoint=sys.argv[1]).find('a')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, hub.endpoint],
        env={**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stderr.splitlines()[-1]
    assert "was not asked for a: the environment variable HF_HUB_OFFLINE forbids it; unset it, or walk" in last
    assert not hub.asked


def test_a_token_in_the_environment_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_anything")
    assert has_token()


# --- downloading ------------------------------------------------------------------------------------------------------


def fetched(hub: HubServer, begun: bytes = b"", size: int | None = len(WEIGHTS)) -> tuple[bytes, list[float]]:
    """Download the file at the plain address; return what came, and the pauses between tries."""
    growing, pauses = InMemory(begun), list[float]()
    remote = Remote("some/file.pt", f"{hub.endpoint}/models/file.pt", CARRY, size=size)
    download(remote, growing, sleep=pauses.append)
    return growing.content, pauses


@pytest.mark.parametrize("size", [len(WEIGHTS), None])
def test_a_file_comes_whole(hub: HubServer, size: int | None) -> None:
    assert fetched(hub, size=size) == (WEIGHTS, [])
    assert hub.downloads("file.pt") == [None]


@pytest.mark.parametrize("size", [len(WEIGHTS), None])
def test_a_broken_connection_is_taken_up_where_it_broke(hub: HubServer, size: int | None) -> None:
    hub.cuts = [BLOCK + 100, BLOCK]
    assert fetched(hub, size=size) == (WEIGHTS, [PAUSES_S[0]] * 2)
    assert hub.downloads("file.pt") == [None, f"bytes={BLOCK}-", f"bytes={2 * BLOCK}-"]


def test_what_is_here_is_not_fetched_again(hub: HubServer) -> None:
    assert fetched(hub, WEIGHTS[:3000])[0] == WEIGHTS
    assert fetched(hub, WEIGHTS)[0] == WEIGHTS
    assert hub.downloads("file.pt") == ["bytes=3000-"]


def test_a_server_without_ranges_begins_anew(hub: HubServer) -> None:
    hub.ranges = False
    assert fetched(hub, WEIGHTS[:3000])[0] == WEIGHTS


def test_more_than_the_file_has_is_thrown_away(hub: HubServer) -> None:
    assert fetched(hub, WEIGHTS + b"more", size=None)[0] == WEIGHTS
    assert hub.downloads("file.pt") == [f"bytes={len(WEIGHTS) + 4}-", None]


@pytest.mark.parametrize(("size", "most"), [(len(WEIGHTS), 10**9), (None, len(WEIGHTS)), (10**9, len(WEIGHTS))])
def test_bytes_without_end_are_not_taken(hub: HubServer, size: int | None, most: int) -> None:
    """Neither more than a file is said to have, nor, where nobody says that, more than a model can have."""
    hub.surplus = 50_000_000
    growing = InMemory()
    remote = Remote("some/file.pt", f"{hub.endpoint}/models/file.pt", CARRY, size=size)
    with pytest.raises(ModelError, match=f"sends more than the {len(WEIGHTS)} bytes that it may have; .*{CARRY}"):
        download(remote, growing, most=most)
    assert growing.content == b""
    assert hub.sent < 20_000_000


def test_passwords_of_a_netrc_file_go_nowhere(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither to the host that is asked nor to the one that it leads to; and a token keeps its place."""
    (tmp_path / "netrc").write_text(
        "".join(f"machine {host} login me password secret\n" for host in ("127.0.0.1", "localhost"))
    )
    (tmp_path / "netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    fetched(hub)
    for asked in (Repository("some/model", COMMIT, otherwise=CARRY, endpoint=hub.endpoint), gated(hub, "hf_good")):
        download(asked.find("weights.bin"), InMemory())
    assert {one.authorization for one in hub.asked} == {None, "Bearer hf_good"}
    assert {one.authorization for one in hub.asked if one.host == "localhost"} == {None}


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_passing_refusal_is_tried_again(hub: HubServer, status: int) -> None:
    hub.statuses = [status] * 2
    assert fetched(hub) == (WEIGHTS, list(PAUSES_S[:2]))


def test_a_lasting_one_ends_with_what_to_do(hub: HubServer) -> None:
    hub.statuses = [503] * 9
    with pytest.raises(ModelError) as error:
        fetched(hub)
    assert str(error.value) == (
        "some/file.pt was not fetched: status 503; check the network and run the same command again: it goes on where "
        "it stopped, or walk"
    )
    assert len(hub.statuses) == 9 - 1 - len(PAUSES_S)


def test_a_file_that_is_gone_is_not_tried_again(hub: HubServer) -> None:
    hub.urls.clear()
    with pytest.raises(ModelError, match=r"127.0.0.1:\d+ answers with status 404; update cascade, or walk$"):
        fetched(hub)
    assert len(hub.asked) == 1


def test_no_connection_ends_after_some_tries() -> None:
    with serving(HubServer()) as stopped:
        pass
    with pytest.raises(
        ModelError, match=r"some/file.pt was not fetched: no answer \(ConnectionError\); check the netw"
    ):
        fetched(stopped)


def test_progress_is_told(hub: HubServer) -> None:
    told: list[tuple[str, int, int | None]] = []
    hub.cuts = [BLOCK]
    remote = repository(hub).find("weights.bin")
    download(remote, InMemory(), sleep=lambda _: None, watch=lambda *now: told.append(now))
    lengths = [BLOCK, 2 * BLOCK, 3 * BLOCK, len(WEIGHTS)]
    assert told == [("some/model/weights.bin", length, len(WEIGHTS)) for length in lengths]
