"""One operator of threshold reports as a process: one JSON object a line, in and out.

python party.py helper FILE
python party.py server FILE KEY
"""

from __future__ import annotations

import json
import sqlite3
import sys
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from solera.privacy.reports.helper import Helper
from solera.privacy.reports.report import Terms
from solera.privacy.reports.server import Server


def answers(party: Helper | Server, do: str, terms: Terms, given: list[Any]) -> Any:
    values = [bytes.fromhex(each[4:]) if str(each).startswith("hex:") else each for each in given]
    if do == "counts":
        assert isinstance(party, Server)
        counts = party.counts(terms.federation, terms.epoch)
        return {each.encoded().hex(): devices for each, devices in counts.items()}
    found = getattr(party, do)(terms, *values)
    if do == "parts":
        return [each.hex() for each in found]
    return found.hex() if isinstance(found, bytes) else found


def main() -> None:
    role, file, *key = sys.argv[1:]
    database = sqlite3.connect(file)
    party = Helper(database) if role == "helper" else Server(database, _key(key[0]))
    for line in sys.stdin:
        asked = json.loads(line)
        terms = Terms(*asked["terms"])
        print(json.dumps(answers(party, asked["do"], terms, asked["given"])), flush=True)


def _key(text: str) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(bytes.fromhex(text))


if __name__ == "__main__":
    main()
