"""Where calibration records come from: JSON lines, folders of test reports, the SWE-bench harness."""

from refork_methods.gate.readers.jsonl import read_jsonl, write_jsonl
from refork_methods.gate.readers.reports import read_reports
from refork_methods.gate.readers.swebench import read_swebench

__all__ = ["read_jsonl", "read_reports", "read_swebench", "write_jsonl"]
