"""Secure aggregation: the server learns the sum of the clients' vectors and nothing else of them.

The protocol is that of Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine
Learning" (CCS 2017), in its version against an active adversary:

    0 advertise   X25519 keys for boxes and for masks, and a commitment to a seed, signed by the node
    1 share       Shamir shares of the mask key and of the seed, sealed for every other client (AES-256-GCM)
    2 mask        fixed-point values + own mask (of the seed) ± a mask with every other client
    3 confirm     a signature of the keys, of who has shared and of whose values have come
    4 unmask      shares of the survivors' seeds and of the mask keys of the others, never both of one client

The masks of pairs cancel in the sum. Those with a client that dropped out after stage 1 are rebuilt from its
mask key; own masks keep a vector hidden that comes too late, after the mask key of its client was rebuilt.

All pairs of clients share masks. SecAgg+ (Bell et al., CCS 2020) has a sparse random graph instead, whose
degree must be large enough that chance never lets the server or a group of clients surround one of them: with
tens of clients that is nearly all, with hundreds a good part of all. The full graph costs little more there,
holds without chance, and one threshold says all. From thousands of clients on, the graph is better.

What holds, with n members in the roster and threshold t:

- A server that keeps to the protocol but is curious, together with up to t − 1 clients, learns the sum of the
  other survivors and nothing else. So the sum must be of enough of them: with t − 1 of t survivors against
  it, the one that is left has no secret.
- A server that does anything it likes, together with c clients, learns no more than one sum over at least
  t − c honest clients, if 2t > n + c: for t = ⌊2n/3⌋ + 1 that holds with up to n/3 of them. This needs
  rosters that the server has not made up, and clients whose saved states are never rolled back.
- Whoever only listens, learns who takes part.

What is not covered:

- What the sum itself tells. Few survivors, the same clients with and without one of them in two rounds, or a
  vector with a place that one client alone fills: that is for a noise mechanism to hide.
- Wrong values. A client may add what it likes within the clip; nobody can see it.
- Disturbance. A client that seals false shares, or the server, can spoil a round. It is noticed (a rebuilt
  secret must fit what was advertised, and a box its key), and the round ends; who did it may stay unknown.
  A server that is not honest can also report a wrong sum.
- Who talks to whom. The transport says whose message it is and keeps strangers out.
- Secrets in memory. Python cannot wipe them, and its integers (in `shamir`) take no constant time.
"""

from __future__ import annotations

from solera.privacy.identity import SecAggError, new_identity, public_identity
from solera.privacy.secagg.client import Client
from solera.privacy.secagg.rules import Stage
from solera.privacy.secagg.server import Server
from solera.privacy.secagg.setup import Encoding, Part, Setup
from solera.privacy.secagg.simulate import make_setup, run_round

__all__ = [
    "Client",
    "Encoding",
    "Part",
    "SecAggError",
    "Server",
    "Setup",
    "Stage",
    "make_setup",
    "new_identity",
    "public_identity",
    "run_round",
]
