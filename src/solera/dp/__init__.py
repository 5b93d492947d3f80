"""User-level differential privacy: clipping, noise and accounting.

Depends only on the core, so that engines, runs and deployed nodes can all use it.

    mechanism    a clip, and noise in proportion to it
    rounds       many rounds: clipped uploads, a noisy sum, Poisson sampling of clients
    one_round    one round of sums over histories
    settings     the requested privacy, and the noise it needs
    accounting   from noise to ε and back
    supported    which methods are supported, and why others are not
    guarantee    the privacy statement of a run
    laplace      the papers' noise, which guarantees nothing
"""
