"""Threshold reports: a server learns the pairs of items that at least T devices have, and no others.

One message a night from every device, of a few kilobytes whatever the catalogue, and nobody waits for others.
It takes two operators who do not work together, a helper and a server:

    measurements   what a device reports of its history, and the ledger by which everything goes once
    oprf           RFC 9497: a function of a measurement and of the helper's key, which the helper evaluates
                   without seeing the measurement
    report         STAR: one report, and what T reports of the same measurement give
    reporter       the device
    helper         evaluates the function, then relays reports without their senders, its key deleted
    server         opens and counts

`docs/federation/reports.md` says what each of them sees, and what is not promised.
"""
