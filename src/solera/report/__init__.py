"""Reports of runs: one self-contained HTML page, made from the runs' folders."""

from solera.report.page import Report, make_page, write_report
from solera.report.recorded import Recorded, read_runs

__all__ = ["Recorded", "Report", "make_page", "read_runs", "write_report"]
