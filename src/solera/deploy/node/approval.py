"""Decide whether a node takes part in a masked round, by its bundle, roster, policy and ledger."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping

from solera.deploy.common.protocol import Reason, RefusalError
from solera.deploy.node.membership import Membership
from solera.deploy.secure.terms import RoundTerms, groups_of, model_digest, state_digest
from solera.device.bundle import Manifest
from solera.device.ledger import Ledger, Stage
from solera.device.policy import Policy, Request, objections

_NOTHING = state_digest({})
Cohort = dict[str, int]  # users asked, by a short name of the node's key


class Approval:
    """Checks of one round's terms by one node."""

    def __init__(self, terms: RoundTerms, membership: Membership, policy: Policy, ledger: Ledger) -> None:
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
            roster=len(groups_of(self._membership.roster, len(terms.groups))[place]),
            users=max(terms.least_users, group.fewest_users),
            clip=terms.clip,
            noise=terms.noise,
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
        return bool(self._earlier(Stage.UPLOADED))

    def check_cohort(self, cohort: Mapping[str, int]) -> None:
        """Refuse a second sum of one round over a cohort that differs from the first in a few users.

        The difference of both would be a sum over these few.
        """
        for earlier in self._earlier(Stage.CONFIRMED):
            nodes = earlier.keys() | cohort.keys()
            differ = sum(abs(earlier.get(node, 0) - cohort.get(node, 0)) for node in nodes)
            if 0 < differ < self._policy.least_users:
                raise RefusalError(
                    Reason.LEDGER,
                    f"a second sum of one round over a cohort that differs in {differ} users;"
                    f" this device requires {self._policy.least_users}",
                )

    def _earlier(self, stage: Stage) -> list[Cohort]:
        terms = self._terms
        state = "" if terms.state == _NOTHING else terms.state  # a method that shares nothing has one state
        return self._ledger.cohorts(terms.federation, terms.round, state, stage)


def check_day(policy: Policy, ledger: Ledger) -> None:
    """Refuse more uploads in a day than the owner allows."""
    if ledger.uploads_today() >= policy.rounds_per_day:
        raise RefusalError(
            Reason.POLICY, f"this device has sent {policy.rounds_per_day} uploads in the last 24 hours"
        )
