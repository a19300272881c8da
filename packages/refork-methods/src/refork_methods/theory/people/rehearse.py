"""A study before anybody is asked: simulated people, conducted and recorded as real ones are."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path

from refork.errors import BadInput
from refork_methods.theory.chooser import Chooser
from refork_methods.theory.experiment import generator
from refork_methods.theory.people.conduct import Conduct
from refork_methods.theory.people.document import Study
from refork_methods.theory.people.record import Answer
from refork_methods.theory.simulate import simulate

#: Mean log and spread of the simulated times of a response in milliseconds: a median of 3 s.
_LOG_MS, _SPREAD = 8.0, 0.4


def rehearse(study: Study, chooser: Chooser, people: int, out: Path | str) -> None:
    """Fill a new results file with simulated people. It says what it is: nobody real can go on in it.

    Choices and orders are the seed's; names and codes are new each time, and times of a response made up.

    Raises: BadInput for no people, a theory of another domain, or a file that says something already.
    """
    file = Path(out)
    if file.exists() and file.stat().st_size:
        raise BadInput("there are results here already", where=str(file), hint="name another --out")
    trials = simulate(chooser, study.experiment, people, study.seed, trials=study.trials)
    times = generator(study.seed, "lapses").lognormal(_LOG_MS, _SPREAD, (people, study.total))
    with Conduct.open(replace(study, rehearsal=chooser.name), file) as conduct:
        for person in range(people):
            token, mine = secrets.token_urlsafe(24), trials.of(person)
            conduct.begin(token)
            for i, (pair, response) in enumerate(zip(mine.stimulus, mine.response, strict=True)):
                conduct.answer(token, Answer(i, int(pair), int(response), float(times[person, i]), "key"))
            conduct.end(token)
