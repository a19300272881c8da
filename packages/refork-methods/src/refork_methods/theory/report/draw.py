"""Pictures of people's choices, as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from refork.errors import DiskFull
from refork_methods.theory.cues.experiment import CueExperiment
from refork_methods.theory.report.dial import dial_curve, dial_figure
from refork_methods.theory.report.utility import utility_curve, utility_figure
from refork_methods.theory.trials import Observation


def draw_pictures(observations: Sequence[Observation], folder: Path, *, seed: int = 1) -> list[Path]:
    """Write ``dial.svg``, and ``utility.svg`` where ratings are graded; nothing for choices between gambles.

    Raises: DiskFull where it cannot be written.
    """
    designs = [one.experiment for one in observations]
    if not all(isinstance(one, CueExperiment) for one in designs):
        return []
    texts = {"dial.svg": dial_figure(dial_curve(observations, seed=seed)).svg()}
    if not all(one.binary for one in designs if isinstance(one, CueExperiment)):
        texts["utility.svg"] = utility_figure(utility_curve(observations, seed=seed)).svg()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise DiskFull(f"the pictures cannot be written: {error.strerror}", where=str(folder)) from error
    return [folder / name for name in texts]
