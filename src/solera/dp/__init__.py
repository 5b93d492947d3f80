"""Differential privacy of a user: what bounds an upload, what covers it, and what that is worth.

Knows the core alone, so that engines, runs and deployed nodes can all use it.

    mechanism    a clip, and noise in proportion to it
    rounds       many rounds: clipped uploads, a covered sum, clients drawn by coin
    one_round    one round of sums over histories
    settings     what is asked for, and the noise that gives it
    accounting   from noise to ε and back
    fitness      which methods may, and why others may not
    guarantee    what is stated in the end
    laplace      what the papers do instead, which guarantees nothing
"""
