from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence

import pytest

from cascade.machine import Gpu, Machine, find_gpus


def test_this_machine_is_looked_at() -> None:
    machine = Machine.this()
    assert machine.environment is os.environ
    assert machine.memory is None or machine.memory > 100_000_000
    assert f"CPU: {os.cpu_count()} cores" in machine.device


def test_what_there_is_is_said_in_words() -> None:
    assert Machine((), None, {}, lambda: False).device == f"GPU: none; CPU: {os.cpu_count()} cores"
    two = Machine((Gpu("A", 8_000_000_000), Gpu("B", 16_000_000_000)), 4_000_000_000, {}, lambda: False)
    assert two.device == f"GPU: A (8.00 GB), B (16.00 GB); CPU: {os.cpu_count()} cores, 4.00 GB of memory"


class Driver:
    """CUDA's driver, as far as it is asked; broken names the calls that fail."""

    def __init__(self, names: Sequence[bytes], broken: Sequence[str] = ()) -> None:
        self._names, self._broken = names, broken

    def cuInit(self, flags: int) -> int:  # noqa: N802 (CUDA's name, as the ones below)
        return self._status("cuInit")

    def cuDeviceGetCount(self, count: object) -> int:  # noqa: N802
        count._obj.value = len(self._names)  # type: ignore[attr-defined]
        return self._status("cuDeviceGetCount")

    def cuDeviceGet(self, device: object, index: int) -> int:  # noqa: N802
        device._obj.value = index  # type: ignore[attr-defined]
        return self._status("cuDeviceGet")

    def cuDeviceGetName(self, name: ctypes.Array[ctypes.c_char], size: int, device: ctypes.c_int) -> int:  # noqa: N802
        name.value = self._names[device.value]
        return self._status("cuDeviceGetName")

    def cuDeviceTotalMem_v2(self, size: object, device: ctypes.c_int) -> int:  # noqa: N802
        size._obj.value = 8_000_000_000 * (device.value + 1)  # type: ignore[attr-defined]
        return self._status("cuDeviceTotalMem_v2")

    def _status(self, call: str) -> int:
        return 100 if call in self._broken else 0


def test_the_driver_is_asked_for_cards() -> None:
    cards = find_gpus(lambda _: Driver([b"A", b"B"]))
    assert cards == (Gpu("A", 8_000_000_000), Gpu("B", 16_000_000_000))
    assert find_gpus(lambda _: Driver([])) == ()


@pytest.mark.parametrize("broken", ["cuInit", "cuDeviceGetCount", "cuDeviceGetName"])
def test_a_driver_that_fails_has_no_cards(broken: str) -> None:
    assert find_gpus(lambda _: Driver([b"A"], [broken])) == ()


def test_no_driver_no_cards() -> None:
    def missing(name: str) -> Driver:
        raise OSError(f"{name}: cannot open shared object file")

    assert find_gpus(missing) == ()
