"""Where the repository lies: pages, benchmarks and real logs that tests read are found from here."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
