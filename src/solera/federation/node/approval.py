"""Decide whether a node takes part in a masked round, by its bundle, roster, policy and ledger."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence

from solera.device.bundle import Manifest
from solera.device.ledger import Ledger
from solera.device.policy import Policy, Request, objections
from solera.federation.common.protocol import Reason, RefusalError
from solera.federation.node.membership import Membership
from solera.federation.secure.terms import RoundTerms, groups_of, model_digest, state_digest

_NOTHING = state_digest({})
Cohort = dict[str, int]  # users asked, by a short name of the node's key


class Approval:
    """Checks of one round's terms by one node.

    Sums without noise, or without a limit of ε, are bounded by two rules. A device helps to open no more of
    them than its owner allows, and all of them over one cohort. So two sums are over the same members, or
    each has a threshold of members who are not in the other. Over the same members, two sums still tell what
    has changed in between.
    """

    def __init__(self, terms: RoundTerms, membership: Membership, policy: Policy, ledger: Ledger) -> None:
        """`policy` is the device's, under what its owner agreed to in this federation."""
        self._terms, self._membership = terms, membership
        self._policy, self._ledger = policy, ledger

    def group(self, manifest: Manifest) -> int:
        """The node's group, if the node can be in this round at all."""
        terms, mine = self._terms, self._membership
        if terms.model != model_digest(manifest):
            raise RefusalError(
                Reason.CATALOGUE, "the method, its options or the catalogue differ from this node's"
            )
        if terms.roster != mine.roster.digest:
            raise RefusalError(Reason.SECURE, "the list of nodes is not the one that this node has pinned")
        place = terms.group_of(mine.public)
        if place is None:
            raise RefusalError(Reason.MEMBERS, "this node is not a member of the round")
        able = groups_of(mine.roster, len(terms.groups))[place]
        if not {member.key for member in terms.groups[place].members} <= set(able):
            raise RefusalError(Reason.SECURE, "the group contains a node that does not belong to it")
        return place

    def check(self, place: int) -> None:
        """Refuse what the owner does not allow, or what the ledger says must not be done again."""
        terms, group = self._terms, self._terms.groups[place]
        request = Request(
            nodes=group.threshold,
            roster=len(self._membership.roster.nodes),
            users=group.users,  # those of the survivors are counted before the sum is opened
            clip=terms.clip,
            noise=terms.noise,
            groups=len(terms.groups),
            sums=len(self._ledger.opened(self._policy.enough_noise)),
        )
        for said in objections(self._policy, request, self._ledger.spent(terms.federation)):
            raise RefusalError(Reason.POLICY, said)
        check_day(self._policy, self._ledger)
        if self._ledger.last_revealed(terms.federation) >= terms.round:
            raise RefusalError(
                Reason.LEDGER, f"this node has already helped to open a sum of round {terms.round + 1}"
            )
        self.check_cohort(self.cohort(place))

    def cohort(self, place: int, survivors: Collection[int] | None = None) -> Cohort:
        """Users asked on the nodes of a group, or on some of them."""
        members = self._terms.groups[place].members
        return {
            hashlib.sha256(member.key.encode()).hexdigest()[:16]: member.users
            for number, member in enumerate(members)
            if survivors is None or number in survivors
        }

    def check_survivors(self, place: int, survivors: Collection[int]) -> Cohort:
        """The cohort whose sum is about to be opened, if it is large enough."""
        found = self.cohort(place, survivors)
        least = max(self._terms.least_users, self._policy.least_users)
        if sum(found.values()) < least:
            raise RefusalError(
                Reason.POLICY, f"the sum covers {sum(found.values())} users; this device requires {least}"
            )
        self.check_cohort(found)
        return found

    def is_repeated(self) -> bool:
        """Whether an upload of this round, or from this state, has left the device before."""
        terms = self._terms
        state = "" if terms.state == _NOTHING else terms.state  # a method that shares nothing has one state
        return self._ledger.is_repeated(terms.federation, terms.round, state)

    def check_cohort(self, cohort: Cohort, slots: Sequence[int] | None = None) -> None:
        """Refuse a sum without noise over another cohort than that of an earlier one.

        The difference of both would be a sum over those who are in one of them alone.
        """
        enough = self._policy.enough_noise
        if (self._terms.noise or 0.0) >= enough:
            return
        others = RefusalError(
            Reason.LEDGER,
            "this device helps to open sums without noise over one cohort alone; this is another one",
        )
        if any(earlier.cohort != cohort for earlier in self._ledger.opened(enough)):
            raise others
        if slots is not None:  # others may have opened a sum that this device uploaded to
            for earlier in self._ledger.opened(enough, or_uploaded=True):
                if earlier.cohort == cohort and earlier.slots != list(slots):
                    raise others


def check_day(policy: Policy, ledger: Ledger) -> None:
    """Refuse more uploads in a day than the owner allows."""
    if ledger.uploads_today() >= policy.rounds_per_day:
        raise RefusalError(
            Reason.POLICY, f"this device has sent {policy.rounds_per_day} uploads in the last 24 hours"
        )
