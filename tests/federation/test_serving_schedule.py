"""When a served federation trains. All expected times were worked out by hand, on a calendar."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from solera.core.errors import ConfigError
from solera.federation.server.plan import Cron, Quiet, Schedule, parse_duration


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("6h", 21600), ("1d", 86400), (" 2 h ", 7200)]
)
def test_durations(text, seconds):
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "6", "h", "0h", "-1h", "1w", "1.5h"])
def test_what_is_no_duration(text):
    with pytest.raises(ConfigError, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("cron", "after", "expected"),
    [
        ("30 2 * * *", "2026-03-10 02:29", "2026-03-10 02:30"),
        ("30 2 * * *", "2026-03-10 02:30", "2026-03-11 02:30"),  # strictly after
        ("*/20 * * * *", "2026-03-10 23:59:59", "2026-03-11 00:00"),
        ("5-10/5,50 8,20 * * *", "2026-03-10 08:05", "2026-03-10 08:10"),
        ("5-10/5,50 8,20 * * *", "2026-03-10 08:50", "2026-03-10 20:05"),
        ("0 3 * * 1", "2026-03-10 00:00", "2026-03-16 03:00"),  # 10 March 2026 is a Tuesday
        ("0 3 * * 7", "2026-03-10 00:00", "2026-03-15 03:00"),  # Sunday is 0 and 7
        ("0 3 * * 0", "2026-03-10 00:00", "2026-03-15 03:00"),
        ("0 0 13 * 5", "2026-03-10 00:00", "2026-03-13 00:00"),  # a Friday, and the 13th
        ("0 0 13 * 5", "2026-03-13 00:00", "2026-03-20 00:00"),  # the next Friday, or the next 13th
        ("0 0 31 * *", "2026-03-31 00:00", "2026-05-31 00:00"),
        ("0 0 29 2 *", "2026-03-01 00:00", "2028-02-29 00:00"),
        ("0 0 1 1 *", "2026-12-31 23:59", "2027-01-01 00:00"),
    ],
)
def test_cron(cron, after, expected):
    assert Cron.parse(cron).next_after(at(after)) == at(expected)


@pytest.mark.parametrize(
    ("cron", "says"),
    [
        ("* * * *", "4 fields"),
        ("60 * * * *", "minute"),
        ("* 24 * * *", "hour"),
        ("* * 0 * *", "day-of-month"),
        ("* * * 13 *", "month"),
        ("* * * * 8", "day-of-week"),
        ("*/0 * * * *", "minute"),
        ("9-5 * * * *", "minute"),
        ("a * * * *", "minute"),
        ("* * * * * *", "6 fields"),
        ("0 0 31 2 *", "day-of-month"),
    ],
)
def test_a_wrong_cron_expression_names_its_field(cron, says):
    with pytest.raises(ConfigError, match=says):
        Cron.parse(cron)


def test_there_is_no_summer_time_in_utc():
    """On 29 March 2026 Europe's clocks skip 02:00-03:00, on 25 October they repeat it; UTC does neither."""
    nightly = Cron.parse("30 2 * * *")
    for day in ("2026-03-29", "2026-10-25"):
        assert nightly.next_after(at(f"{day} 00:00")) == at(f"{day} 02:30")
        assert nightly.next_after(at(f"{day} 02:30")) - at(f"{day} 02:30") == timedelta(days=1)


@pytest.mark.parametrize(
    ("moment", "is_quiet", "after"),
    [
        ("2026-03-10 21:59:59", False, "2026-03-10 21:59:59"),
        ("2026-03-10 22:00", True, "2026-03-11 06:00"),
        ("2026-03-10 23:59:59", True, "2026-03-11 06:00"),
        ("2026-03-11 00:00", True, "2026-03-11 06:00"),
        ("2026-03-11 05:59:59", True, "2026-03-11 06:00"),
        ("2026-03-11 06:00", False, "2026-03-11 06:00"),
        ("2026-03-11 12:30", True, "2026-03-11 14:00"),
    ],
)
def test_quiet_hours_go_over_midnight(moment, is_quiet, after):
    schedule = Schedule.parse("1h", None, ["22:00-06:00", "12:00-14:00"])
    assert schedule.is_quiet(at(moment)) is is_quiet
    assert schedule.after_quiet(at(moment)) == at(after)


def test_quiet_hours_that_meet_are_one():
    schedule = Schedule.parse("1h", None, ["22:00-00:00", "00:00-06:00"])
    assert schedule.after_quiet(at("2026-03-10 23:00")) == at("2026-03-11 06:00")


@pytest.mark.parametrize("text", ["22-6", "24:00-06:00", "10:00-10:00", "22:00", "22:00-06:61"])
def test_what_are_no_quiet_hours(text):
    with pytest.raises(ConfigError, match="quiet hours"):
        Quiet.parse(text)


def test_a_day_must_have_some_time_left():
    with pytest.raises(ConfigError, match="whole day"):
        Schedule.parse("1h", None, ["22:00-06:00", "05:00-22:00"])


def test_an_interval_counts_from_the_last_start():
    schedule = Schedule.parse("6h", None, ["22:00-06:00"])
    born = at("2026-03-10 10:00")
    assert schedule.next_due(None, born) == born  # the first run is due at once
    assert schedule.next_due(at("2026-03-10 10:00"), born) == at("2026-03-10 16:00")
    assert schedule.next_due(at("2026-03-10 16:00"), born) == at("2026-03-11 06:00")  # 22:00 is quiet


def test_missed_runs_are_made_up_for_once():
    """Down from Tuesday noon until Friday: one run is due, and after it the next one lies ahead."""
    born, last, now = at("2026-03-01 00:00"), at("2026-03-10 02:30"), at("2026-03-13 09:00")
    nightly = Schedule.parse(None, "30 2 * * *", [])
    assert nightly.next_due(last, born) == at("2026-03-11 02:30") < now  # overdue
    assert nightly.next_due(now, born) == at("2026-03-14 02:30") > now  # once it has started, no more is
    often = Schedule.parse("6h", None, [])
    assert often.next_due(last, born) == at("2026-03-10 08:30") < now
    assert often.next_due(now, born) == at("2026-03-13 15:00") > now


def test_a_cron_run_is_not_due_when_the_server_first_starts():
    nightly = Schedule.parse(None, "30 2 * * *", [])
    assert nightly.next_due(None, at("2026-03-10 12:00")) == at("2026-03-11 02:30")


def test_a_schedule_is_an_interval_or_a_cron_expression():
    for every, cron in ((None, None), ("6h", "* * * * *")):
        with pytest.raises(ConfigError, match="either"):
            Schedule.parse(every, cron, [])
