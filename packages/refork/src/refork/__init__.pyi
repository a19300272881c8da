"""The names at the top, written once: ``__init__.py`` loads each from here when it is first used."""

from .errors import UserError as UserError
from .forking import Ban as Ban
from .forking import Force as Force
from .forking import Insert as Insert
from .forking import Remove as Remove
from .forking import Replace as Replace
from .forking import Set as Set
from .forking import SwapPolicy as SwapPolicy
from .forking import compare as compare
from .forking import fork as fork
from .forking import sweep as sweep
from .growing import grow as grow
from .growing import plant_prompt as plant_prompt
from .judge import Judge as Judge
from .judge import MatchJudge as MatchJudge
from .policies.base import Policy as Policy
from .policies.base import Sampling as Sampling
from .policies.open import open_policy as open_policy
from .policies.scripted import ScriptedPolicy as ScriptedPolicy
from .tree.node import Node as Node
from .tree.node import Trajectory as Trajectory
from .tree.tree import Tree as Tree
from .worlds.base import World as World
from .worlds.open import open_world as open_world

__version__: str
