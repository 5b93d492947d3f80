"""Who may take part in a masked round."""

from __future__ import annotations


def far_enough(here: list[int], users: dict[int, int], signed: list[dict[int, int]], least: int) -> list[int]:
    """Who takes part, if nodes have signed other lists from the same state, none of which came to a sum.

    They decline a list that differs from such a one by fewer than `least` users. So if one of these nodes is
    lost for good, others are left out with it until enough users are.
    """
    here = list(here)

    def is_near(one: dict[int, int]) -> bool:
        now = {node: users[node] for node in here}
        return 0 < sum(abs(one.get(n, 0) - now.get(n, 0)) for n in one.keys() | now.keys()) < least

    while near := next((one for one in signed if is_near(one)), None):
        known = [node for node in here if node in near]
        if not known:
            break
        here.remove(max(known, key=lambda node: users[node]))
    return here
