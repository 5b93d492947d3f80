"""What a client holds and sends, against the papers' figures and by hand."""

from __future__ import annotations

from solera.core.method import Method
from solera.methods import find
from solera.runs.plan import client_bytes, costs, rows_of_upload


def test_parameters_are_those_that_papers_print():
    """PFedRec, Table 5: 53,856 and 53,857; PFedCLR, Table 6, in MiB. MovieLens-100K has 1,682 items."""

    def parameters(method: str, size: int) -> int:
        return costs(find(method, {"embedding_size": size}), 943, 1682, []).client_parameters

    assert [parameters(name, 32) for name in ("fedmf", "pfedrec")] == [53_856, 53_857]
    mib = [round(parameters(name, 16) * 4 / 2**20, 4) for name in ("fedmf", "fedrap", "pfedclr")]
    assert mib == [0.1027, 0.2054, 0.1157]


def test_memory_of_a_client_by_hand():
    """FedMF, 3 items, 2 dimensions: 6 + 2 parameters. Adam keeps 4 numbers of a user vector's two and of
    every touched row's two. PFedRec's SGD keeps 2 of a score vector's two and its bias, and of rows.
    """

    def method(name: str, **options: object) -> Method:
        found = find(name, options)
        assert isinstance(found, Method)
        return found

    fedmf = method("fedmf", embedding_size=2, optimizer="adam")
    assert client_bytes(fedmf, 3, 0.0) == 4 * (8 + 4 * 2)
    assert client_bytes(fedmf, 3, 2.5) == 4 * (8 + 4 * (2 + 2.5 * 2))
    assert rows_of_upload(fedmf, 2.5 * (4 + 2 * 4)) == 2.5, "a row's number and two values each"
    pfedrec = method("pfedrec", embedding_size=2)
    assert client_bytes(pfedrec, 3, 2.0) == 4 * (9 + 2 * (3 + 2 * 2))
    assert rows_of_upload(method("local"), 0.0) is None
