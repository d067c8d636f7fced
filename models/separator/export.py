"""Write a trained separator as ONNX, and check that it gives what torch gives.

    python models/separator/export.py RUN/mean.pt --out SEPARATOR.onnx

The network takes `spectra` (n, 2, 257, n_frames), the real and imaginary parts of a mixture's spectrum, and gives
`sources` (n, 2, 2, 257, n_frames): foreground and background, likewise. Needs torch, onnx, onnxruntime.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from network import Shape, build, count_parameters
from torch import nn

from cascade.backends import separator
from cascade.errors import CascadeError
from cascade.foreground import N_BINS, Network, Spectra

BENCHMARKS: Final = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))  # its programs find each other there, and this one finds them

from pinning import pin, size_and_sha256  # noqa: E402

OPSET: Final = 17
LARGEST_DIFFERENCE: Final = 1e-4  # between ONNX and torch, as a share of the loudest output
FRAMES: Final = (251, 100)  # tried in the check


def read_network(path: Path) -> nn.Module:
    """Read what train.py wrote as RUN/mean.pt.

    Raises:
        ValueError: It isn't such a file.
        OSError: It can't be read.
    """
    try:
        kept = torch.load(path, map_location="cpu", weights_only=True)
        network = build(Shape(**kept["shape"]))
        network.load_state_dict(kept["weights"])
    except (KeyError, TypeError, RuntimeError) as error:
        raise ValueError(f"{path} isn't a network that train.py wrote: {' '.join(str(error).split())}") from error
    return network.eval()


def in_torch(network: nn.Module) -> Network:
    """Run a network of torch's on arrays."""

    def run(spectra: Spectra) -> Spectra:
        with torch.no_grad():
            return np.asarray(network(torch.from_numpy(spectra)).numpy())

    return run


def write_onnx(network: nn.Module, path: Path) -> None:
    """Write a network as ONNX."""
    axes = {0: "n", 3: "n_frames"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter, about itself
        torch.onnx.export(
            network,
            (torch.zeros(1, 2, N_BINS, FRAMES[0]),),
            str(path),
            input_names=["spectra"],
            output_names=["sources"],
            dynamic_axes={"spectra": axes, "sources": {0: "n", 4: "n_frames"}},
            opset_version=OPSET,
            dynamo=False,
        )


def difference(one: Network, other: Network) -> float:
    """How far two networks are apart on noise, as a share of the loudest output."""
    rng, furthest = np.random.default_rng(0), 0.0
    for n, n_frames in enumerate(FRAMES, start=1):
        spectra = (10 * rng.standard_normal((n, 2, N_BINS, n_frames))).astype(np.float32)
        own, others = one(spectra), other(spectra)
        furthest = max(furthest, float(np.abs(own - others).max() / np.abs(own).max()))
    return furthest


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; None means this process's own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("weights", type=Path, metavar="RUN/mean.pt", help="what train.py wrote")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.onnx", help="what to write")
    return parser.parse_args(arguments)


def export(parsed: argparse.Namespace) -> dict[str, Any]:
    """Write the file and check it; returns what there is to say of it.

    Raises:
        ValueError: It doesn't give what torch gives.
        CascadeError: It can't be loaded, or there is no manifest to name it in.
    """
    network = read_network(parsed.weights)
    write_onnx(network, parsed.out)
    apart = difference(in_torch(network), separator.load(parsed.out))
    if not apart <= LARGEST_DIFFERENCE:
        raise ValueError(f"{parsed.out} differs from torch by {apart:.1e}, expected {LARGEST_DIFFERENCE:.0e} at most")
    size, sha256 = size_and_sha256(parsed.out)
    return {
        "parameters": count_parameters(network),
        "difference": f"{apart:.1e}",
        "size": size,
        "sha256": sha256,
        "weights": pin(parsed.out, separator.MODEL),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns the exit status (2: the user can mend it)."""
    parsed = parse_arguments(arguments)
    try:
        for what, value in export(parsed).items():
            print(f"{what}: {value}")
    except (ValueError, OSError, CascadeError) as error:
        print(f"export.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
