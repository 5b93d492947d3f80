"""A report of runs: one page that needs nothing but itself, made from what the runs' folders hold."""

from solera.report.page import make_page
from solera.report.recorded import Recorded, read_runs

__all__ = ["Recorded", "make_page", "read_runs"]
