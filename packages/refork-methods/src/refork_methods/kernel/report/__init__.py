"""A search shown: its numbers, pictures and sources in one page and in one Markdown file."""

from refork.discover.kernel.report.figures import Figures, figures
from refork.discover.kernel.report.folder import Search, read_search
from refork.discover.kernel.report.write import Written, write_report

__all__ = ["Figures", "Search", "Written", "figures", "read_search", "write_report"]
