"""Attacks on threshold reports: by the server, by the helper, by devices, and by some of them together."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from itertools import pairwise

import numpy as np
import pytest
from attack import attack

from solera.privacy.reports.helper import Helper
from solera.privacy.reports.measurements import ITEM, PAIR, Measurement, measurements
from solera.privacy.reports.oprf import ReportsError, blind, evaluate, finalize, random_scalar
from solera.privacy.reports.report import (
    Report,
    Terms,
    _ciphertext,
    _plain,
    derived,
    opened,
    report,
    seal,
    secret_of,
    unseal,
)
from solera.privacy.reports.reporter import split
from threshold_reports import Federation, database

T, B, ITEMS = 3, 10, 6
CATALOGUE = [
    *(Measurement(ITEM, item, item) for item in range(ITEMS)),
    *(Measurement(PAIR, first, second) for first in range(ITEMS) for second in range(first + 1, ITEMS)),
]
HISTORIES = {"a": [0, 1], "b": [1, 0], "c": [0, 1, 2], "target": [5, 4, 0]}
RARE = {Measurement(ITEM, 4, 4), Measurement(ITEM, 5, 5), Measurement(PAIR, 4, 5), Measurement(PAIR, 0, 5)}


class Seen(Federation):
    """A federation of which everything that the server gets is kept."""

    def __init__(self, **settings) -> None:
        super().__init__(**({"least_devices": T, "reports": B} | settings))
        self.sealed: list[bytes] = []

    def send_all(self, epoch: int = 0) -> Terms:
        for device, history in HISTORIES.items():
            self.send(epoch, device, measurements(history, 20))
        return self.terms(epoch)

    def key(self, terms: Terms) -> bytes:
        return self.helper._key(terms)

    def seen(self, terms: Terms) -> list[Report]:
        """What the server sees, with its own key."""
        self.helper.close(terms)
        self.sealed = [each for part in self.helper.parts(terms) for each in split(part, 139)]
        return [unseal(terms, each, self.server._key) for each in self.sealed]


def guessed(terms: Terms, reports: list[Report], outputs: dict[Measurement, bytes]) -> set[Measurement]:
    """The measurements whose reports can be read, however few, by whoever has these outputs of F."""
    found = set()
    for measurement, output in outputs.items():
        common = derived(terms, secret_of(terms, output))
        if any(_plain(common, each.ciphertext) == measurement.encoded() for each in reports):
            found.add(measurement)
    return found


def outputs(key: bytes) -> dict[Measurement, bytes]:
    """F of the whole catalogue, for whoever has a key."""
    found = {}
    for each in CATALOGUE:
        scalar = random_scalar()
        (element,), _ = evaluate(key, [blind(each.encoded(), scalar)])
        found[each] = finalize(each.encoded(), scalar, element)
    return found


@attack(
    "server of reports",
    "Alone, a server reads nothing of what fewer than T devices have, though it knows the whole catalogue.",
    before="not looked at",
)
def test_a_server_that_tries_the_whole_catalogue(reached):
    """The control: together with the helper, before the key is deleted, it reads everything."""
    federation = Seen()
    terms = federation.send_all()
    both = outputs(federation.key(terms))
    reports = federation.seen(terms)
    by_tag = defaultdict(list)
    for each in reports:
        by_tag[each.tag].append(each)
    read = {found.measurement for group in by_tag.values() if (found := opened(terms, group))}
    assert read == {Measurement(ITEM, 0, 0), Measurement(ITEM, 1, 1), Measurement(PAIR, 0, 1)}
    below = [each for group in by_tag.values() if len(group) < T for each in group]
    assert guessed(terms, below, outputs(random_scalar())) == set()
    assert guessed(terms, below, both) >= RARE  # the control
    with pytest.raises(ReportsError, match="not open"):
        federation.key(terms)
    reached(f"{len(read)} pairs and items of at least {T} devices, and nothing of {len(below)} other reports")


@attack(
    "helper",
    "Alone, the helper of threshold reports cannot tell what devices report, nor how much.",
    before="not looked at",
)
def test_a_helper_that_keeps_everything(reached):
    federation = Seen(reports=20)
    sizes, requests = set(), []
    terms = federation.terms(0)
    public = federation.helper.begin(terms)
    for device, history in {"none": [], "one": [1], "same": [1], "many": range(20)}.items():
        reporter = federation.reporter(device)
        request = reporter.request(terms, measurements(history, 20))
        answer = federation.helper.evaluate(terms, device, request)
        message = reporter.message(terms, answer, public, federation.server.public)
        sizes.add((len(request), len(message)))
        requests += split(request, 32) + split(message, 139)
    assert len(sizes) == 1
    assert len(requests) == len(set(requests)) == 2 * 4 * 20  # equal pairs look different
    own = Seen()
    for each in requests:
        if len(each) == 139:
            with pytest.raises(ReportsError, match="another server"):
                unseal(terms, each, own.server._key)
            unseal(terms, each, federation.server._key)  # the control
    reached("messages of one size, in which no two parts are equal")


@attack(
    "server with devices of its own",
    "With devices of its own it tries as many pairs as these may report, chosen before it sees any report.",
    before="not looked at",
)
def test_devices_of_the_server_ask_for_the_whole_catalogue(reached):
    """What cannot be prevented: a guess that is right is read, with one device or with T − 1 of them."""
    federation = Seen()
    terms = federation.send_all()
    spy = federation.reporter("spy")
    with pytest.raises(ReportsError, match=f"{B} elements"):  # more than others
        federation.helper.evaluate(terms, "spy", bytes(32) * len(CATALOGUE))
    guesses = [each for each in CATALOGUE if 5 in each[1:3]][:B]
    answer = federation.helper.evaluate(terms, "spy", spy.request(terms, guesses))
    again = Federation(T, B)  # the same device with another memory
    with pytest.raises(ReportsError, match="another request"):
        federation.helper.evaluate(terms, "spy", again.reporter("spy").request(terms, CATALOGUE[:B]))
    known = {}
    for place, each in enumerate(spy._inputs(terms)):
        if each[0] != 3:
            element = split(answer[:-64], 32)[place]
            known[Measurement.decoded(each)] = finalize(each, spy._blind(terms, each), element)
    reports = federation.seen(terms)
    found = guessed(terms, reports, known)
    assert found == {each for each in guesses if {each.first, each.second} <= {0, 4, 5}}
    with pytest.raises(ReportsError, match="not open"):  # and none after it has seen them
        federation.helper.evaluate(terms, "second spy", again.reporter("x").request(terms, CATALOGUE[:B]))
    reached(f"{B} guesses for each device and epoch, {len(found)} of them right; none once reports are seen")


@attack(
    "server with devices of its own",
    "T − 1 devices of its own learn whether anybody else has a pair that they name, and nothing of others.",
    before="not looked at",
)
def test_all_devices_but_one_are_of_the_server(reached):
    federation = Seen()
    federation.send(0, "target", measurements([4, 5, 3], 20))
    for spy in range(T - 1):
        federation.send(0, f"spy {spy}", [Measurement(PAIR, 4, 5), Measurement(PAIR, 1, 5)])
    federation.end(0)
    assert federation.server.counts("films") == {Measurement(PAIR, 4, 5): T}
    reached(f"the one of two guesses that is right; {T - 1} devices for up to {B} guesses an epoch")


@attack(
    "lying node",
    "Devices that send false shares under a right tag keep no pair from being counted, and do not count.",
    before="not looked at",
)
def test_forged_shares_and_texts(reached):
    terms = Terms("films", 0, T, B)
    pair, other = Measurement(PAIR, 1, 2), Measurement(PAIR, 1, 3).encoded()
    output = bytes(64)
    honest = [Report.decoded(report(terms, pair.encoded(), output, bytes([n]) * 16)) for n in range(1, 8)]
    common = derived(terms, secret_of(terms, output))
    forged = [
        honest[0]._replace(point=b"f" * 16),  # the share of another point
        honest[0]._replace(point=b"g" * 16, share=b"\xff" * 33),  # no element of the field
        Report.decoded(report(terms, pair.encoded(), output, b"h" * 16))._replace(
            ciphertext=_ciphertext(common, other)
        ),
        Report.decoded(report(terms, pair.encoded(), output, b"i" * 16))._replace(ciphertext=bytes(26)),
    ]
    draw = random.Random(1)
    for _ in range(20):
        mixed = [*honest, *forged, *honest[:2]]  # and replays
        draw.shuffle(mixed)
        assert opened(terms, mixed) == (pair, 7, 4)
    assert opened(terms, [*honest[: T - 1], *forged]) is None
    reached("opened with the right count, 4 of 11 reports refused")


@attack(
    "lying node",
    "A device adds at most the reports of one message to the counts of an epoch.",
    before="not looked at",
)
def test_one_device_that_reports_one_pair_as_often_as_it_can(reached):
    """What cannot be prevented: all of them may be of one pair. Nobody sees both device and pair."""
    federation = Seen()
    terms = federation.terms(0)
    public = federation.helper.begin(terms)
    pair = Measurement(PAIR, 1, 2).encoded()
    reporter = federation.reporter("bad")
    reporter._inputs = lambda terms: [pair] * B  # type: ignore[method-assign]
    reporter._drawn = _different(reporter._drawn)  # type: ignore[method-assign]
    request = reporter.request(terms, [])
    answer = federation.helper.evaluate(terms, "bad", request)
    first = reporter.message(terms, answer, public, federation.server.public)
    with pytest.raises(ReportsError, match="another request"):
        federation.helper.evaluate(terms, "bad", request[32:] + blind(pair, random_scalar()))
    federation.helper.accept(terms, "bad", first)
    federation.helper.accept(terms, "bad", first)
    with pytest.raises(ReportsError, match="no request"):
        federation.helper.accept(terms, "nobody", first)
    for device in ("a", "b"):
        federation.send(0, device, [Measurement(ITEM, 1, 1)])
    federation.end(0)
    counts = federation.server.counts("films")
    assert counts == {Measurement(PAIR, 1, 2): B}
    reached(f"{B} more for one pair, with a message of {B} reports")


def _different(drawn):
    """Points that are all different, though the inputs are equal; blinds as they were."""
    points = iter(range(1, 1000))
    return lambda terms, purpose, size: (
        next(points).to_bytes(16) if purpose.startswith(b"point") else drawn(terms, purpose, size)
    )


@attack(
    "server of reports",
    "Reports of one epoch are nothing in another one, and of one federation nothing in another.",
    before="not looked at",
)
def test_tags_and_reports_of_other_epochs(reached):
    federation, other = Seen(), Seen(name="books")
    other.helper = federation.helper  # one helper for both
    seen = []
    for party, epoch in ((federation, 0), (federation, 1), (other, 0)):
        party.reporters = {}  # devices without a ledger: the same histories again
        party.server._key = federation.server._key
        seen.append(party.seen(party.send_all(epoch)))
    tags = [{each.tag for each in reports} for reports in seen]
    same = Counter(each.tag for each in seen[0])
    assert max(same.values()) == 4  # the control: within an epoch they are equal
    assert not (tags[0] & tags[1] or tags[0] & tags[2])
    with pytest.raises(ReportsError, match="another server or epoch"):
        unseal(federation.terms(2), federation.sealed[0], federation.server._key)
    assert federation.server.receive(federation.terms(2), b"".join(federation.sealed)) == len(
        federation.sealed
    )
    reached("no tag in common, and every replayed report refused")


@attack(
    "helper",
    "A helper that relays reports twice, or of its own making, adds nothing to what devices have sent.",
    before="not looked at",
)
def test_a_helper_that_replays(reached):
    federation = Seen()
    terms = federation.send_all()
    federation.seen(terms)
    for _ in range(3):
        federation.server.receive(terms, b"".join(federation.sealed))
    made_up = [seal(terms, bytes(91), federation.server._key.public_key()) for _ in range(T)]
    federation.server.receive(terms, b"".join(made_up) + bytes(139))
    federation.server.open(terms)
    honest = Seen()
    honest.send_all()
    honest.end(0)
    assert federation.server.counts("films") == honest.server.counts("films")
    reached("the same counts")


@attack(
    "helper",
    "A helper with a key of its own for one device is noticed by this device, before it sends a report.",
    before="not looked at",
)
def test_a_key_for_one_device(reached):
    federation, lying = Seen(), Helper(database())
    terms = federation.terms(0)
    announced = federation.helper.begin(terms)
    lying.begin(terms)
    reporter = federation.reporter("a")
    answer = lying.evaluate(terms, "a", reporter.request(terms, measurements([1, 2], 20)))
    with pytest.raises(ReportsError, match="not of the key"):
        reporter.message(terms, answer, announced, federation.server.public)
    assert reporter.ledger.gone() == []
    reached("no report, and everything can still go on another night")


@attack(
    "server of reports",
    "A device reports nothing under a threshold below that its owner has agreed to.",
    before="not looked at",
)
def test_a_lower_threshold(reached):
    federation = Seen()
    with pytest.raises(ReportsError, match=f"agreed to {T} or more"):
        federation.reporter("a").request(Terms("films", 0, T - 1, B), measurements([1, 2], 20))
    reached("refused")


@attack(
    "server of reports",
    "The order in which reports come tells nothing of which belong together.",
    before="not looked at",
)
def test_reports_next_to_each_other(reached):
    """The control is the order in which they came to the helper."""
    federation = Seen()
    terms = federation.terms(0)
    whose = {}
    for number in range(30):
        federation.send(0, str(number), measurements([number], 20))
        reporter = federation.reporter(str(number))
        for each in reporter._inputs(terms):
            whose[reporter._drawn(terms, b"point" + each, 16)] = number
    reports = federation.seen(terms)

    def together(order: list[int]) -> float:
        return float(np.mean([one == next_ for one, next_ in pairwise(order)]))

    found, control = together([whose[each.point] for each in reports]), together(sorted(whose.values()))
    chance = (B - 1) / (30 * B - 1)
    assert control > 0.85
    assert found < chance + 4 * (chance / (30 * B)) ** 0.5
    reached(f"{found:.0%} of neighbours are of one device, by chance {chance:.0%}")


NIGHTS, DEVICES, FIRST, NEW, AWAY, NEWEST, REPORTS = 30, 300, 20, 2, 0.15, 20, 210
LENGTH = FIRST + NEW * (NIGHTS - 1)


def opened_pairs(histories: np.ndarray, items: int, least: int, draw: np.random.Generator) -> np.ndarray:
    """[item, item]: devices that had a pair, of all nights on which at least `least` reported it."""
    gone = np.zeros((DEVICES, LENGTH, LENGTH), bool)  # by places in the history
    total = np.zeros((items, items))
    for night in range(NIGHTS):
        known = measurements(range(FIRST + NEW * night), NEWEST)
        first, second = np.array([each[1:3] for each in known]).T
        counts = np.zeros((items, items))
        for device in np.flatnonzero(draw.random(DEVICES) > AWAY):
            tonight = np.flatnonzero(~gone[device, first, second])[:REPORTS]
            gone[device, first[tonight], second[tonight]] = True
            one, other = histories[device, first[tonight]], histories[device, second[tonight]]
            counts[one, other] += 1
            counts[other, one] += one != other
        total += np.where(counts >= least, counts, 0)
    return total


def auc_of_one_known_item(items: int, least: int) -> float:
    """The mean over devices. The attacker knows one item, and looks for those that were reported with it."""
    draw = np.random.default_rng(2)
    histories = np.stack([draw.permutation(items)[:LENGTH] for _ in range(DEVICES)])
    total = opened_pairs(histories, items, least, draw)
    found = []
    for history in histories:
        place = LENGTH // 2
        near = history[place - NEWEST + 1 : place + NEWEST]
        own = np.isin(np.arange(items), near)
        others = ~np.isin(np.arange(items), history) | own
        others[history[place]] = False
        found.append(_auc(total[history[place]][others], own[others]))
    return float(np.mean(found))


def _auc(scores: np.ndarray, own: np.ndarray) -> float:
    _, place = np.unique(scores, return_inverse=True)
    sizes = np.bincount(place)
    ranks = (np.cumsum(sizes) - (sizes - 1) / 2)[place]
    n = own.sum()
    return float((ranks[own].sum() - n * (n + 1) / 2) / (n * (len(own) - n)))


@pytest.mark.parametrize("items", [300, pytest.param(1000, marks=pytest.mark.slow)])
@attack(
    "server of reports",
    "After thirty nights of reports a server that knows one item of a device cannot tell its others.",
    before="not looked at",
)
def test_thirty_nights_of_reports(items, reached):
    """Items are drawn at random: what is found is found in the counts. The control sees all pairs, T = 1."""
    control, two, ten = (auc_of_one_known_item(items, least) for least in (1, 2, 10))
    assert control > 0.6
    assert ten <= 0.6
    reached(f"{items:,} items: AUC {ten:.2f} with T = 10, {two:.2f} with T = 2, {control:.2f} with all pairs")
