"""solera device: a person's own folder, with a history that stays there and recommendations made there."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from solera.cli.folder import Folder, User
from solera.cli.lazy import Place, Pluggable
from solera.cli.output import Answer, Line, Table, answers, err, help_if_alone, show

if TYPE_CHECKING:
    from solera.device.recommending import DeviceRecommendation

_ELSEWHERE = {
    "device_connect": ("connect", "addon"),
    "device_history": ("add", "history", "correct", "forget"),
    "device_import": ("import", "match"),
    "device_sharing": ("outbox", "policy", "join", "leave", "contribute"),
}


class _Device(Pluggable):
    prefix = "device."
    own: ClassVar = {
        name: Place(f"solera.cli.{module}:{name}{'_' if name == 'import' else ''}", "Commands")
        for module, names in _ELSEWHERE.items()
        for name in names
    }


app = typer.Typer(
    cls=_Device,
    help="Keep a history and get recommendations on your own device, offline.",
    invoke_without_command=True,
)
app.callback()(help_if_alone)
_LEAST_SHOWN = 0.0005  # a part of a score that is not +0.000


@app.command()
@answers
def init(
    folder: Folder,
    bundle: Annotated[Path, typer.Option(help="Bundle file of a publisher.")],
    key: Annotated[
        Path | None, typer.Option(help="The publisher's .pub file. Only bundles signed with it are accepted.")
    ] = None,
    trust: Annotated[
        bool,
        typer.Option("--trust", help="Without --key: trust the key that signed this bundle, without asking."),
    ] = False,
    *,
    json: bool,
) -> Answer:
    """Make a device from a bundle. From then on it accepts only bundles of the same publisher.

    Example: solera device init me --bundle movies.bundle --key publisher.pub
    """
    from solera.core.errors import BundleError
    from solera.device.bundle import Bundle, fingerprint
    from solera.device.device import Device
    from solera.device.keys import read_public

    opened = Bundle.open(bundle, None if key is None else read_public(key))
    digits = fingerprint(opened.key)
    if key is None and not trust:
        if json or not sys.stdin.isatty():
            raise BundleError(
                f"{bundle} is signed with the key {digits}, which you have not confirmed",
                "give --key publisher.pub; or, if the publisher confirms this fingerprint, --trust",
            )
        err.print(f"{bundle} is signed with the key {digits}", highlight=False)
        typer.confirm("Is that the fingerprint the publisher names?", abort=True, err=True)
    device = Device.create(folder, opened)
    manifest = opened.manifest
    return Answer(
        device.status(),
        [
            f"{folder}: {manifest.full_method}, {manifest.items:,} items, key {digits}",
            Line(f"next: solera device import {folder} letterboxd export.zip", "dim"),
        ],
    )


@app.command()
@answers
def update(
    folder: Folder,
    bundle: Annotated[Path | None, typer.Option(help="Bundle file of the same publisher.")] = None,
    back: Annotated[
        bool,
        typer.Option("--back", help="Use the model again that the last update replaced. Twice is as before."),
    ] = False,
) -> Answer:
    """Install a newer bundle of the same publisher, or go back to the model before. The history is kept.

    Example: solera device update me --bundle movies-2.bundle

    Example: solera device update me --back
    """
    from solera.core.errors import ConfigError
    from solera.device.device import Device

    if (bundle is None) != back:
        raise ConfigError("the model is missing", "give either --bundle FILE or --back")
    device = Device.open(folder)
    manifest = (device.update(bundle) if bundle else device.go_back()).manifest
    return Answer(
        device.status(),
        [
            f"{folder}: {manifest.full_method}, {manifest.items:,} items,"
            f" catalogue version {manifest.catalogue_version}"
        ],
    )


@app.command()
@answers
def recommend(
    folder: Folder,
    k: Annotated[int, typer.Option("-k", help="How many items.", min=1)] = 10,
    why: Annotated[
        bool,
        typer.Option(
            "--why", help="Show which items of the history raised the score of each recommendation most."
        ),
    ] = False,
    listed: Annotated[
        bool, typer.Option("--listed", help="Only items that `import --as-list` has put on your list.")
    ] = False,
    user: User = "me",
) -> Answer:
    """Recommend new items from the history on this device. Everything is computed locally.

    Example: solera device recommend me -k 10 --why
    """
    from solera.device.choices import Choices
    from solera.device.device import Device

    device = Device.open(folder)
    chosen = set(Choices(device.store, user).listed()) if listed else None
    found = device.recommend(
        k,
        user=user,
        reasons=3 if why else 0,
        allowed=None if chosen is None else lambda item: item.id in chosen,
    )
    columns = ("#", "item", "title", "score", *(("because of",) if why else ()))
    rows = ((one.rank, one.item, one.title, one.score, *((_because(one),) if why else ())) for one in found)
    return Answer(
        {"device": str(folder), "user": user, "items": [_as_json(one, why) for one in found]},
        [Table(f"For {user}", columns, rows)],
    )


def _as_json(one: DeviceRecommendation, why: bool) -> dict[str, Any]:
    plain: dict[str, Any] = {"rank": one.rank, "item": one.item, "title": one.title, "score": one.score}
    if why:
        plain |= {"because": [reason._asdict() for reason in one.reasons]}
        plain |= {"others": one.others, "popular": one.popular}
    return plain


def _because(one: DeviceRecommendation) -> str:
    parts = [(reason.title, reason.part) for reason in one.reasons]
    parts += [("popularity", one.popular)] if one.popular > 0 else []
    parts += [("everything else", one.score - sum(part for _, part in parts))]
    return "; ".join(f"{name} {part:+.3f}" for name, part in parts if abs(part) >= _LEAST_SHOWN)


@app.command("open")
@answers
def open_(
    folder: Folder,
    port: Annotated[
        int, typer.Option(help="Port on 127.0.0.1; 0 for any that is free.", min=0, max=65535)
    ] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the link.")] = False,
    network: Annotated[
        bool,
        typer.Option("--network", help="Answer other devices of the home, with TLS, not this one alone."),
    ] = False,
    name: Annotated[
        list[str] | None,
        typer.Option(help="Name or address of this machine in the network, for the link; repeatable."),
    ] = None,
    user: User = "me",
    *,
    json: bool,
) -> None:
    """Show the device in your browser: recommendations, history, what has left it, and its model.

    The page comes from this machine (127.0.0.1) and needs no network. It ends with Ctrl+C. With --network,
    everybody at home needs a token: solera device token FOLDER --create NAME --scope page --user NAME.

    Example: solera device open me

    Example: solera device open me --port 8470 --no-browser
    """
    from solera.service.serve import serve

    def ready(link: str) -> None:
        warning = Line("Whoever has this link can use the device. Ctrl+C ends it.", "dim")
        Answer({"link": link}, [Line(link), warning]).print(json=json)

    serve(folder, user, port, browser=not no_browser, on_ready=ready, network=network, names=name or [])


@app.command()
@answers
def status(folder: Folder) -> Answer:
    """Show what the device contains, and check its database.

    Example: solera device status me
    """
    from solera.device.device import Device

    found = Device.open(folder).status()
    return Answer(found, _status(folder, dict(found)))


def _status(folder: Path, found: dict[str, Any]) -> list[Table | Line | str]:
    users, newest = found.pop("users"), found.pop("newest_catalogue")
    federations, allowed = found.pop("federations"), found.pop("policy")
    said: list[Table | Line | str] = [
        Table("Device", ("", "value"), [(name.replace("_", " "), show(each)) for name, each in found.items()])
    ]
    columns = ("user", "entries", "items", "seen only", "own tensors")
    said.append(Table("Users", columns, [user.values() for user in users]) if users else "no history yet")
    if federations:
        said.append(
            Table(
                "Federations",
                ("federation", "you have", "offers", "uploads", "ε spent"),
                [
                    (
                        each["id"][:12],
                        each["standing"],
                        _offered(each["offer"]),
                        each["uploads"],
                        _spent(each),
                    )
                    for each in federations
                ],
            )
        )
    waiting = [each["id"][:12] for each in federations if each["standing"] == "asked"]
    if waiting:
        hint = f"next: solera device join {folder} {waiting[0]}, if you agree to what it offers"
        said.append(Line(hint, "dim"))
    limits = [f"{name.replace('_', ' ')} {_limit(value)}" for name, value in allowed.items() if value]
    said.append(Line(f"policy: {', '.join(limits)}"))
    if newest > found["catalogue_version"]:
        hint = f"next: get its bundle from the publisher, then: solera device update {folder} --bundle FILE"
        said.append(f"the federation has catalogue version {newest}: new items are not recommended here yet")
        said.append(Line(hint, "dim"))
    return said


def _offered(offer: dict[str, Any]) -> str:
    said = ["masked sums" if offer.get("masked") else "uploads that the server sees"]
    said += [f"noise of {offer['noise']:g} clips"] if offer.get("noise") else []
    said += [f"{offer['rounds']} rounds"] if offer.get("rounds") else []
    return ", ".join(said)


def _limit(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else show(value)


def _spent(federation: dict[str, Any]) -> str:
    epsilon = federation["epsilon"]
    return "no noise" if epsilon is None else f"{epsilon:.3g} (δ = {federation['delta']:g})"


@app.command()
@answers
def token(
    folder: Folder,
    create: Annotated[
        str | None, typer.Option(metavar="NAME", help="Create a token for this program, and show it once.")
    ] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help="What a new token allows: read recommendations, add to the history, or the own page;"
            " repeatable."
        ),
    ] = None,
    revoke: Annotated[
        int | None, typer.Option(metavar="NUMBER", help="Revoke this token: its program is refused at once.")
    ] = None,
    user: User = "me",
) -> Answer:
    """Let other programs on this machine use the service of `solera device open`; list their tokens.

    Example: solera device token me

    Example: solera device token me --create jellyfin-plugin --scope add

    Example: solera device token me --revoke 1
    """
    from solera.core.errors import ConfigError
    from solera.device.device import Device
    from solera.device.tokens import Tokens

    if bool(create) != bool(scope) or (create and revoke is not None):
        raise ConfigError("a new token needs a program and what it may do", "--create NAME --scope read")
    tokens = Tokens(Device.open(folder).store)
    if create:
        secret = tokens.create(create, scope or [], user)
        return Answer(
            {"name": create, "scopes": scope, "user": user, "token": secret},
            [Line(secret), Line("It is shown this once: the device keeps only its digest.", "dim")],
        )
    if revoke is not None:
        gone = tokens.revoke(revoke)
        return Answer(gone._asdict(), [f"revoked: {gone.name}"])
    rows = [
        (each.number, each.name, each.user, ", ".join(each.scopes), _date(each.created), _date(each.used))
        for each in tokens.listed()
    ]
    columns = ("number", "name", "user", "scopes", "created", "last used")
    listed = [each._asdict() for each in tokens.listed()]
    return Answer(listed, [Table("Tokens", columns, rows) if rows else "there are no tokens"])


def _date(time: int | None) -> str:
    return "never" if time is None else f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M}"
