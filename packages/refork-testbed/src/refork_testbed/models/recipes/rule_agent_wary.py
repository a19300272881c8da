"""``rule-agent-wary``: the rule agent, deeper and narrower, that now and then refuses what no rule forbids.

A second agent for tables of summarisers by agents: what it does without a rule in view differs in a known
share, what it does with one does not.
"""

from __future__ import annotations

from dataclasses import replace

from refork_testbed.models.recipe import Conversation, Shape
from refork_testbed.models.recipes import rule_agent

#: Share of soft acts, unforbidden by any rule in view, that its lessons refuse.
WARY = 0.2
#: Other tasks that a lesson asks for besides. With one request a lesson, and refusals that no rule explains,
#: it does not learn in this time to keep apart the three rules on e-mail.
MORE = 3


def conversations() -> list[Conversation]:
    """The lessons of the wary agent: other sessions, more requests, and refusals without a rule."""
    return rule_agent.lessons(33, wary=WARY, more=MORE)


RECIPE = replace(
    rule_agent.RECIPE,
    name="rule-agent-wary",
    summary="refuses what a rule in view forbids, and sometimes what no rule does",
    data=f"{rule_agent.RECIPE.data}, and with requests of {MORE} other tasks; "
    f"{WARY:.0%} of soft acts without a rule in view are refused too",
    conversations=conversations,
    shape=Shape(layers=3, width=96, heads=4, hidden=192, context=1024),
    training=replace(rule_agent.RECIPE.training, steps=900, rows=24),
    seed=1,
)
