"""One rank's part of a one-round method: the sums of its own clients. The first rank solves for all."""

from __future__ import annotations

import math

import numpy as np
import torch

from solera.core.arrays import Ints
from solera.core.closed_form import ClosedForm, Contribution
from solera.core.fixed_point import rounded
from solera.core.spec import Params
from solera.data.sampling import ClientData
from solera.engine.one_round import Change, OneRound, contribution_of
from solera.engine.ranks import EXACT_BITS, Ranks, Share
from solera.engine.sums import Sum


class DistributedOneRound(OneRound):
    """The clients of one rank. All ranks call every method together, in the same order.

    Every number is rounded to a multiple of one power of two, so that the total is exact in any order and
    the same for any number of ranks. Sums of whole numbers are exact as they are.
    """

    def __init__(
        self, method: ClosedForm, data: ClientData, ranks: Ranks, *, device: torch.device, dtype: torch.dtype
    ) -> None:
        """`data` is of the whole federation."""
        super().__init__(method, data, device=device, dtype=dtype)
        self.share = Share.of(ranks, data.train.lengths)

    def _collect(self, clients: Ints, change: Change | None) -> tuple[Sum, int]:
        assert change is None  # several ranks do not protect uploads
        own = np.intersect1d(clients, self.share.clients, assume_unique=True)
        totals, sent = super()._collect(own, self._rounding(own, len(clients)))
        numbers = torch.tensor([sent])
        self.share.ranks.add(numbers)
        return totals, int(numbers)

    def _solved(self, totals: Sum, clients: int) -> Params:
        ranks = self.share.ranks
        totals.add_on_first(ranks)
        return ranks.from_first(None if ranks.rank else super()._solved(totals, clients))

    def _rounding(self, own: Ints, clients: int) -> Change | None:
        """What rounds contributions so that the sum over all clients is exact; None if it is anyway."""
        sums = self.method.update.sums
        if all(each.whole for each in sums.values()):
            return None
        peaks = dict.fromkeys(sums, 0.0)
        for client in own:
            for name, block in contribution_of(self.method, self.data.train, int(client)).blocks.items():
                peaks[name] = max(peaks[name], float(np.abs(block).max(initial=0.0)))
        found = self.share.ranks.largest(torch.tensor(list(peaks.values()), dtype=torch.float64)).tolist()
        bits = {
            name: EXACT_BITS - math.frexp(peak * clients)[1] for name, peak in zip(sums, found, strict=True)
        }

        def change(part: Contribution) -> Contribution:
            blocks = {
                name: rounded(torch.from_numpy(block), bits[name]).numpy()
                for name, block in part.blocks.items()
            }
            return Contribution(part.items, blocks)

        return change
