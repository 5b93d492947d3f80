"""Reports of runs: one self-contained HTML page, made from the runs' folders."""

from solera.report.page import make_page
from solera.report.recorded import Recorded, read_runs
from solera.report.writing import Report, write_report

__all__ = ["Recorded", "Report", "make_page", "read_runs", "write_report"]
