"""Weights that come inside Python packages: where they lie, without importing the package that carries them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cascade.errors import MissingExtraError, ModelError, reinstalling


def package_file(package: str, inside: str, *, extra: str, distribution: str) -> Path:
    """Return the path of a file or folder in an installed package, which is not imported.

    Raises MissingExtraError without the package and ModelError when the package lacks the file.
    """
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise MissingExtraError(distribution, extra)
    path = Path(spec.origin).parent / inside
    if not path.exists():
        raise ModelError(f"the package '{distribution}' has no {inside}; reinstall it: {reinstalling(distribution)}")
    return path


def missing(distribution: str, module: str, error: ModuleNotFoundError) -> MissingExtraError | ModelError:
    """Return the error for a package that could not be imported: it is not there, or it is there and broken."""
    if error.name == module:
        return MissingExtraError(distribution, "ondevice")
    return ModelError(f"the package '{distribution}' is broken; run: {reinstalling(distribution)}")


def session(path: Path, *, threads: int = 1, fix: str = "run: python -m cascade models verify") -> Any:
    """Return an onnxruntime session on one core of the CPU.

    Most networks here are small and run one input at a time: a second thread would mostly wait, and on a busy machine
    the two spin against each other.

    Args:
        path: The network.
        threads: How many threads it computes with.
        fix: What to do where onnxruntime cannot load the file.

    Raises:
        MissingExtraError: onnxruntime is not installed.
        ModelError: It, or the file, is broken.
    """
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        raise missing("onnxruntime", "onnxruntime", error) from error
    onnxruntime.disable_telemetry_events()  # for those who imported it before cascade could switch that off
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(path), sess_options=options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises its own, unrelated types
        raise ModelError(f"{path.name} is not a network that onnxruntime can load; {fix}") from error
