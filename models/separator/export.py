"""Write a trained separator in the form in which it is used, and check that it gives what torch gives.

    python models/separator/export.py RUN/mean.pt --out SEPARATOR.onnx
    python models/separator/export.py RUN/mean.pt --out SEPFORMER_FOLDER

A network of spectra becomes ONNX. It takes `spectra` (n, 2, 257, n_frames), the real and imaginary parts of a mixture's
spectrum, and gives `sources` (n, 2, 2, 257, n_frames): foreground and background, likewise. A SepFormer becomes a
folder in speechbrain's pretrained format, which `use: sepformer` takes as its `model`. Where the ONNX file is the one
that comes with cascade, its manifest names it afterwards. Needs torch; for ONNX, onnx and onnxruntime; for a SepFormer,
speechbrain.
"""

from __future__ import annotations

import argparse
import math
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from faults import load_weights, told
from network import BandSplit, build, count_parameters
from sepformer import SepFormer
from shapes import read_shape
from spectra import to_samples, to_spectra

from pinning import pin, size_and_sha256  # isort: skip

from cascade.backends import separator
from cascade.backends import sepformer as backend
from cascade.errors import CascadeError
from cascade.foreground import N_BINS, STEP, Network, Spectra
from cascade.separation import Separate, resized
from cascade.types import SAMPLE_RATE, Samples

OPSET: Final = 17
LARGEST_DIFFERENCE: Final = 1e-4  # of what was written from torch, as a share of the loudest output
EXPECTED: Final = "a network that train.py wrote, RUN/mean.pt"
FRAMES: Final = (251, 100)  # tried in the check


def read_network(path: Path) -> BandSplit | SepFormer:
    """Read what train.py wrote as RUN/mean.pt.

    Raises:
        ValueError: It isn't such a file.
        OSError: It can't be read.
    """
    kept = load_weights(path, EXPECTED)
    if not {"shape", "weights"} <= kept.keys():
        raise ValueError(f"{path} isn't {EXPECTED}: it holds {', '.join(map(str, kept))}")
    try:
        network = build(read_shape(kept["shape"]))
        network.load_state_dict(kept["weights"])
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise ValueError(f"{path} isn't {EXPECTED}: {told(error)}") from error
    network.eval()
    return network


def in_torch(network: BandSplit | SepFormer) -> Network:
    """Run a network of torch's on arrays."""

    def run(values: Spectra) -> Spectra:
        with torch.no_grad():
            return np.asarray(network(torch.from_numpy(values)).numpy())

    return on_spectra(run) if isinstance(network, SepFormer) else run


def on_spectra(separate: Separate) -> Network:
    """Run on spectra what separates samples; these end at the middle of the last frame."""

    def run(spectra: Spectra) -> Spectra:
        samples = to_samples(torch.from_numpy(spectra), (spectra.shape[-1] - 1) * STEP)
        return np.asarray(to_spectra(torch.from_numpy(separate(samples.numpy()))).numpy())

    return run


def in_folder(path: Path) -> Network:
    """Run a SepFormer from a folder in speechbrain's format, as the stage `sepformer` does.

    Raises:
        CascadeError: It can't be loaded.
    """
    model = backend.load(path)

    def separate(windows: Samples) -> Samples:
        n_samples = windows.shape[-1]
        return resized(model(resized(windows, round(n_samples * model.rate / SAMPLE_RATE))), n_samples)

    return on_spectra(separate)


def write_onnx(network: BandSplit, path: Path) -> None:
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
    """How far two networks are apart on noise, as a share of the loudest output; NaN where one gives what is none."""
    rng, furthest = np.random.default_rng(0), np.float32(0)
    for n, n_frames in enumerate(FRAMES, start=1):
        spectra = (10 * rng.standard_normal((n, 2, N_BINS, n_frames))).astype(np.float32)
        own, others = one(spectra), other(spectra)
        furthest = np.maximum(furthest, np.abs(own - others).max() / np.abs(own).max())  # keeps a NaN
    return float(furthest)


@dataclass(frozen=True, slots=True)
class Written:
    """What is known of a network by its file, or its folder: its kind, numbers that were learnt, bytes."""

    kind: str
    parameters: int
    size: int


def look_at(path: Path) -> Written:
    """Look at what train.py wrote, or this program.

    Raises:
        ValueError: It isn't such a file.
        CascadeError: It is a folder, and not of a SepFormer.
        OSError: It can't be read.
    """
    if path.is_dir():
        backend.check_folder(path)
        weights = [torch.load(path / f"{name}.ckpt", weights_only=True) for name in backend.NETWORKS]
        parameters = sum(value.numel() for each in weights for value in each.values())
        return Written("SepFormer", parameters, sum(file.stat().st_size for file in backend.files(path)))
    if path.suffix == ".onnx":
        return Written("ONNX", count_in_onnx(path), path.stat().st_size)
    return Written("torch", count_parameters(read_network(path)), path.stat().st_size)


def count_in_onnx(path: Path) -> int:
    """Count the numbers in an ONNX file that were learnt."""
    import onnx

    weights = onnx.load(str(path)).graph.initializer
    return sum(math.prod(each.dims) for each in weights if each.data_type == onnx.TensorProto.FLOAT)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; None means this process's own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("weights", type=Path, metavar="RUN/mean.pt", help="what train.py wrote")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="PLACE", help="what to write: FILE.onnx, or a folder"
    )
    return parser.parse_args(arguments)


def write(network: BandSplit | SepFormer, out: Path) -> Network:
    """Write a network in the form in which it is used; returns it, read from there.

    Raises:
        OSError: It can't be written.
        CascadeError: It can't be read.
    """
    if isinstance(network, SepFormer):
        network.save(out)
        return in_folder(out)
    write_onnx(network, out)
    return separator.load(out)


def check_place(network: BandSplit | SepFormer, out: Path) -> None:
    """Look whether a network can be written there.

    Raises:
        ValueError: What it becomes has another sort of name, or its folder isn't there.
    """
    if isinstance(network, SepFormer) == (out.suffix == ".onnx"):
        form = "a folder in speechbrain's format" if isinstance(network, SepFormer) else "a file, FILE.onnx"
        raise ValueError(f"this network becomes {form}; name such a one after --out, got {out}")
    if not out.parent.is_dir():
        raise ValueError(f"there is no folder {out.parent} to write {out.name} into; make it, or name another place")


def write_checked(network: BandSplit | SepFormer, out: Path) -> float:
    """Write a network and check it; returns how far it is from torch. A wrong ONNX file takes no other's place.

    Raises:
        ValueError: It doesn't give what torch gives, or can't be written there.
        OSError: It can't be written.
        CascadeError: It can't be read.
    """
    check_place(network, out)
    part = out if isinstance(network, SepFormer) else out.with_name(f".part-{out.name}")
    try:
        apart = difference(in_torch(network), write(network, part))
        if not apart <= LARGEST_DIFFERENCE:
            raise ValueError(f"{out} differs from torch by {apart:.1e}, expected {LARGEST_DIFFERENCE:.0e} at most")
        part.replace(out)
    finally:
        if part != out:
            part.unlink(missing_ok=True)
    return apart


def export(parsed: argparse.Namespace) -> dict[str, Any]:
    """Write the network and check it; returns what there is to say of it.

    Raises:
        ValueError: It doesn't give what torch gives, or weights aren't a network's.
        OSError: A file can't be read or written.
        CascadeError: What was written can't be read, or there is no manifest to name it in.
    """
    apart = write_checked(read_network(parsed.weights), parsed.out)
    said = {**asdict(look_at(parsed.out)), "difference": f"{apart:.1e}"}
    if parsed.out.suffix == ".onnx":
        return {**said, "sha256": size_and_sha256(parsed.out)[1], "weights": pin(parsed.out, separator.MODEL)}
    return {**said, **{f"sha256 of {file.name}": size_and_sha256(file)[1] for file in backend.files(parsed.out)}}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns the exit status (2: the user can mend it)."""
    parsed = parse_arguments(arguments)
    try:
        for what, value in export(parsed).items():
            print(f"{what}: {value}")
    except ModuleNotFoundError as error:
        print(f"export.py: {error.name} isn't installed; see the end of export.py --help", file=sys.stderr)
        return 2
    except (ValueError, OSError, CascadeError) as error:
        print(f"export.py: {told(error)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
