"""A search shown: its numbers, pictures and sources in one page and in one Markdown file."""

from refork_methods.kernel.report.figures import Figures, figures
from refork_methods.kernel.report.folder import Search, read_search
from refork_methods.kernel.report.write import Written, write_report

__all__ = ["Figures", "Search", "Written", "figures", "read_search", "write_report"]
