"""User-level differential privacy: clipping, noise and accounting.

Depends only on the core, so that engines, runs and deployed nodes can all use it.

    mechanism    a clip, and noise in proportion to it
    rounds       many rounds: clipped uploads, a noisy sum, Poisson sampling of clients
    one_round    one round of sums over histories
    settings     the requested privacy, the noise it needs, the methods it fits, and a run's statement
    accounting   from noise to ε and back
    noise        where noise and coins come from; `discrete` draws exactly
    laplace      the papers' noise, which guarantees nothing
"""
