"""This machine, as far as it decides whether a run can be: graphics cards, memory, environment. Nothing is imported."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cascade.backends.hub import has_token
from cascade.output.models import shown_size


@dataclass(frozen=True, slots=True)
class Gpu:
    """A graphics card that CUDA can use: its name, its memory in bytes."""

    name: str
    memory: int


@dataclass(frozen=True, slots=True)
class Machine:
    """What runs will have: graphics cards, bytes of memory (None: not known), environment, whether the hub knows us."""

    gpus: tuple[Gpu, ...]
    memory: int | None
    environment: Mapping[str, str]
    has_token: Callable[[], bool]

    @staticmethod
    def this() -> Machine:
        """Look at this machine."""
        return Machine(find_gpus(), _memory(), os.environ, has_token)

    @property
    def device(self) -> str:
        """What there is to compute on, in words."""
        cards = ", ".join(f"{gpu.name} ({shown_size(gpu.memory)})" for gpu in self.gpus)
        return f"GPU: {cards or 'none'}; CPU: {os.cpu_count()} cores" + (
            f", {shown_size(self.memory)} of memory" if self.memory else ""
        )


def find_gpus(open_library: Callable[[str], Any] = ctypes.CDLL) -> tuple[Gpu, ...]:
    """Return the graphics cards that CUDA can use, by asking its driver: torch takes seconds to import, this does not.

    The calls are those of CUDA's driver API (docs.nvidia.com/cuda/cuda-driver-api); each returns 0 if it went well.
    """
    try:
        driver = open_library("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    except OSError:
        return ()
    count = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return ()
    return tuple(gpu for index in range(count.value) if (gpu := _gpu(driver, index)))


def _gpu(driver: Any, index: int) -> Gpu | None:
    device, size, name = ctypes.c_int(), ctypes.c_size_t(), ctypes.create_string_buffer(256)
    failed = (
        driver.cuDeviceGet(ctypes.byref(device), index)
        or driver.cuDeviceGetName(name, len(name), device)
        or driver.cuDeviceTotalMem_v2(ctypes.byref(size), device)
    )
    return None if failed else Gpu(name.value.decode(errors="replace"), size.value)


def _memory() -> int | None:
    """Return the bytes of memory that this machine has, None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
