"""What holds a GPU kernel back, from measurements taken anywhere: its class, then all tools for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import final

from refork.errors import BadInput
from refork.types import Json
from refork_methods.kernel.gpu.cuda_code import read_code
from refork_methods.kernel.gpu.ncu import read_ncu
from refork_methods.kernel.gpu.nsys import read_nsys
from refork_methods.kernel.gpu.tools import gpu_tools
from refork_methods.kernel.roofline import Bound, Classified, by_measurement
from refork_methods.kernel.signals import Signals, Source
from refork_methods.kernel.tool import Diagnosis, run_tools


def classify_gpu(signals: Signals) -> Classified:
    """The class by the shares of peak in the profile: an export does not say what work there was.

    Where they are not known (code alone, or a time line), it is mixed: every tool may look.
    """
    compute, memory = signals.get("ncu", "compute_pct"), signals.get("ncu", "memory_pct")
    memory = signals.get("ncu", "dram_pct") if memory is None else memory
    measured: Bound | None = None
    if compute is not None and memory is not None:
        measured = by_measurement(compute / 100, memory / 100)
    return Classified(measured or "mixed", None, measured)


def diagnose_gpu(signals: Signals) -> Diagnosis:
    """All GPU tools for the kernel's class on its measurements, findings gravest first.

    Source: arXiv 2606.26453 for the two stages; tools are never chosen by a model.
    """
    return run_tools(gpu_tools(), signals, classify_gpu(signals))


#: Shipped exports, by the name that stands for their path.
EXAMPLES = {"example:transpose": "ncu_synthetic_transpose.csv"}
SYNTHETIC = "synthetic: figures designed by hand for documentation, measured on no GPU"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class GpuDiagnosed:
    """What was found of one GPU kernel; ``notes`` say where the figures come from."""

    kernel: str
    diagnosis: Diagnosis
    signals: Signals
    notes: tuple[str, ...] = ()

    def to_json(self) -> Json:
        """Plain JSON; what was not measured is under ``absent`` and ``blind``."""
        told = {"kernel": self.kernel, "notes": list(self.notes), "signals": self.signals.to_json()}
        return told | self.diagnosis.to_json()


def diagnose_exports(
    ncu: Path | None = None,
    nsys: Sequence[Path] = (),
    code: Sequence[Path] = (),
    *,
    kernel: str | None = None,
) -> GpuDiagnosed:
    """Findings on one kernel of exports of Nsight Compute (one) and Nsight Systems, and of its compiled code.

    ``kernel``: its name or a part of it; None where the files have only one. ``ncu`` may be
    ``example:transpose``, a shipped export that is synthetic. ``code``: what ptxas and cuobjdump printed.

    Raises:
        BadInput: no export, a damaged one, or no kernel, or several, that answer to the name.
    """
    if ncu is None and not nsys and not code:
        raise BadInput(
            "no export", where="kernel diagnosis", hint="--ncu FILE.csv, --nsys FILE.csv or --code FILE"
        )
    if str(ncu) in EXAMPLES:
        shipped = resources.files(__package__).joinpath("examples", EXAMPLES[str(ncu)])
        with resources.as_file(shipped) as path:
            return diagnose_exports(path, nsys, code, kernel=kernel)
    signals, notes = Signals(), []
    if ncu is not None:
        signals |= read_ncu(ncu, kernel)
        notes.append(f"ncu export {ncu.name}")
        if "SYNTHETIC" in ncu.read_text(errors="replace")[:200]:
            notes.append(SYNTHETIC)
    if nsys:
        # Its list of kernels is of the whole program: the other files say which one is meant.
        signals |= read_nsys(*nsys, kernel=None if ncu is not None or code else kernel)
        notes.append(f"nsys export {', '.join(one.name for one in nsys)}")
    for one in code:
        signals |= read_code(one, kernel)
        notes.append(f"code of {one.name}")
    name = next(iter(signals.lines.get("ncu", ())), "").partition(" of ")[2] or kernel or "all kernels"
    every: tuple[Source, ...] = ("ncu", "nsys", "ptxas", "sass")
    absent = {one: "no export of it was given" for one in every if not signals.has(one)}
    full = Signals(signals.values, signals.lines, absent)
    return GpuDiagnosed(kernel=name, diagnosis=diagnose_gpu(full), signals=full, notes=tuple(notes))
