"""An experiment from a file: JSON or YAML with the domain's name and the design."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from refork.errors import BadInput
from refork_methods.theory.domains import DOMAINS
from refork_methods.theory.experiment import Experiment

#: Files longer than this are no designs.
LONGEST: Final = 4 << 20


def read_experiment(path: Path | str) -> Experiment:
    """The experiment of a file, as its ``to_json`` gives it. Raises BadInput naming the file."""
    file = Path(path)
    try:
        if file.stat().st_size > LONGEST:
            raise BadInput(f"the experiment is longer than {LONGEST:,} bytes", where=str(file))
        data = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadInput(f"the experiment cannot be read: {error}", where=str(file)) from error
    if not isinstance(data, dict):
        raise BadInput("the experiment is no mapping", where=str(file))
    return experiment_of(data, str(file))


def experiment_of(data: Mapping[str, Any], where: str | None = None) -> Experiment:
    """The experiment of plain JSON, whose ``domain`` says which kind it is. Raises BadInput."""
    domain = data.get("domain")
    if not isinstance(domain, str) or domain not in DOMAINS:
        raise BadInput(f"the experiment's domain is {domain!r}", where=where, hint=" or ".join(DOMAINS))
    return DOMAINS[domain].read(data, where)
