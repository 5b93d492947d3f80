"""A device that the owner has opened to the home: TLS, a token for each person, and no other names."""

from __future__ import annotations

import json
import ssl
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

import pytest

from open_service import opened
from solera.device.bundle import Bundle
from solera.device.device import Device
from solera.device.folder import CERTIFICATE
from solera.device.tokens import Tokens


@pytest.fixture(scope="module")
def home(bundled, tmp_path_factory):
    folder = tmp_path_factory.mktemp("home") / "me"
    device = Device.create(folder, Bundle.open(bundled("fedease")))
    for user, item in (("me", "5"), ("anna", "6"), ("ben", "7")):
        device.add_all([(item, 1)], user, "test")
    made = {user: Tokens(device.store).create(user, ["page", "read"], user) for user in ("anna", "ben")}
    device.close()
    with opened(folder, "--network", "--name", "NAS") as service:
        yield service, made | {"owner": service.token}


def ask(
    service: Any, path: str, token: str | None, verb: str = "GET", body: Any = None, **headers: str
) -> Any:
    """By TLS, with the device's certificate as the only one that is trusted; the status, and the answer."""
    context = ssl.create_default_context(cafile=str(service.folder / CERTIFICATE))
    connection = HTTPSConnection("127.0.0.1", service.port, timeout=30, context=context)
    sent = {"Authorization": f"Bearer {token}"} if token else {}
    connection.request(verb, path, None if body is None else json.dumps(body), sent | headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, json.loads(content) if content[:1] in b"[{" else content


def test_the_link_has_the_name_that_was_given(home):
    """A container does not know the address of its machine."""
    assert home[0].name == "nas"


def test_everybody_sees_their_own(home):
    service, tokens = home
    for user, item in (("anna", "6"), ("ben", "7")):
        status, entries = ask(service, "/page/history", tokens[user])
        assert (status, [each["item"] for each in entries]) == (200, [item])
        assert ask(service, "/page/about", tokens[user])[1]["user"] == user
        _, told = ask(service, "/api/v1/interactions", tokens[user])
        assert [each["item"]["id"] for each in told["interactions"]] == [item]


def test_nobody_gets_at_others_or_at_the_device(home):
    service, tokens = home
    for path in ("recommendations", "interactions"):
        assert ask(service, f"/api/v1/{path}?user=ben", tokens["anna"])[0] == 403
        assert ask(service, f"/api/v1/{path}?user=ben", tokens["ben"])[0] == 200
        assert ask(service, f"/api/v1/{path}?user=ben", tokens["owner"])[0] == 200, "the owner may"
        assert ask(service, f"/api/v1/{path}", None)[0] == 401
    along = "/page/recommendations?along=%5B%22ben%22%5D"
    assert (ask(service, along, tokens["anna"])[0], ask(service, along, tokens["owner"])[0]) == (403, 200)
    people = [ask(service, "/page/about", tokens[who])[1]["people"] for who in ("anna", "owner")]
    assert people == [[], ["anna", "ben"]]
    for verb, path in (("POST", "imports?name=a.csv&person=ben"), ("DELETE", "everything?person=ben")):
        assert ask(service, f"/page/{path}", tokens["anna"], verb)[0] == 403
    imported = ask(service, "/page/imports?name=a.csv", tokens["owner"], "POST", [])
    assert imported[0] == 202
    assert ask(service, f"/page/imports/{imported[1]['number']}", tokens["anna"])[0] == 403
    for verb, path in (
        ("GET", "left"),
        ("PUT", "policy"),
        ("POST", "model"),
        ("PUT", "invitation"),
        ("GET", "part"),
    ):
        assert ask(service, f"/page/{path}", tokens["anna"], verb, {})[0] == 403
        assert ask(service, f"/page/{path}", None, verb, {})[0] == 401
    assert ask(service, "/page/left", tokens["owner"])[0] == 200


def test_similar_items_and_items_are_found_by_id(home):
    service, tokens = home
    _, found = ask(service, "/api/v1/similar?item=6&count=3", tokens["anna"])
    assert len(found["items"]) == 3
    assert ask(service, "/api/v1/items/6", tokens["anna"])[1]["title"] == "Film 6 (1966)"
    for wrong in ("similar?item=nothing", "items/nothing", "similar", "similar?item=6&count=0"):
        assert ask(service, f"/api/v1/{wrong}", tokens["anna"])[0] == 400, wrong


@pytest.mark.parametrize(("host", "status"), [
    ("127.0.0.1:{port}", 200), ("192.168.1.77:{port}", 200), ("nas:{port}", 200), ("[fd00::1]:{port}", 200),
    ("evil.example:{port}", 421), ("nas.evil.example:{port}", 421), ("127.0.0.1:1", 421), ("127.0.0.1", 421),
])  # fmt: skip
def test_a_name_that_points_here_is_refused(home, host, status):
    service, tokens = home
    sent = {"Host": host.format(port=service.port)}
    assert ask(service, "/page/about", tokens["owner"], **sent)[0] == status
    assert ask(service, "/page/about", tokens["owner"], **sent, Origin="https://evil.example")[0] in {
        403,
        421,
    }


def test_without_tls_nothing_is_said(home):
    service, tokens = home
    connection = HTTPConnection("127.0.0.1", service.port, timeout=10)
    with pytest.raises((HTTPException, OSError)):
        connection.request("GET", "/page/about", headers={"Authorization": f"Bearer {tokens['owner']}"})
        connection.getresponse()


def test_the_key_is_the_owners_alone_and_stays(home):
    service, _ = home
    file = service.folder / CERTIFICATE
    assert file.stat().st_mode & 0o077 == 0
    text = Path(file).read_text()
    with opened(service.folder, "--network"):
        assert file.read_text() == text


def test_it_is_off_by_default(home):
    """Without --network nothing listens but 127.0.0.1."""
    service, _ = home
    with opened(service.folder) as local:
        connections = Path("/proc/net/tcp").read_text().splitlines()
    listening = {line.split()[1] for line in connections if line.split()[3] == "0A"}
    assert f"0100007F:{local.port:04X}" in listening
    assert f"00000000:{local.port:04X}" not in listening
    assert f"00000000:{service.port:04X}" in listening, "the control"
