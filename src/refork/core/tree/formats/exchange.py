"""Formats of trainers, agents and tracing: readers in the order in which they are tried, and writers."""

from __future__ import annotations

from refork.core.policy.base import Policy
from refork.core.tree.formats.art import ART
from refork.core.tree.formats.base import BinaryWriter, Reader, Writer
from refork.core.tree.formats.langsmith import LangSmith
from refork.core.tree.formats.llm_logs import LLMLogs
from refork.core.tree.formats.mini_swe_agent import MiniSWEAgent
from refork.core.tree.formats.openai_agents import OpenAIAgents
from refork.core.tree.formats.openai_preference import OpenAIPreference
from refork.core.tree.formats.otlp import OTLP
from refork.core.tree.formats.otlp_export import OTLPWriter
from refork.core.tree.formats.parquet import Parquet
from refork.core.tree.formats.parquet_export import TRLPairsWriter, TRLWriter, VerlWriter
from refork.core.tree.formats.skyrl import SkyRL
from refork.core.tree.formats.swe_agent import SWEAgent
from refork.core.tree.formats.trl import TRL
from refork.core.tree.formats.verl import Verl


def exchange_readers(policy: Policy | None = None) -> tuple[Reader, ...]:
    """Readers; of two that could read a file, the one that asks for more comes first."""
    art, verl, skyrl, trl = ART(policy), Verl(policy), SkyRL(policy), TRL(policy)
    rows = (OpenAIPreference(policy), art, skyrl, verl, trl, Parquet((art, skyrl, verl, trl)))
    agents = (SWEAgent(policy), MiniSWEAgent(policy))
    return (*agents, *rows, OTLP(policy), OpenAIAgents(policy), LangSmith(policy), LLMLogs(policy))


def exchange_writers() -> tuple[Writer | BinaryWriter, ...]:
    """Writers of the formats that other tools read."""
    return (TRLWriter(), TRLPairsWriter(), VerlWriter(), OTLPWriter())
