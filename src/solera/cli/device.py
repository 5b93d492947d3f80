"""solera device: a person's own folder, with a history that stays there and recommendations made there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from solera.cli.consent import join, leave, pause, policy
from solera.cli.device_history import add, correct, history, remove
from solera.cli.device_import import import_, match
from solera.cli.device_outbox import forget, outbox
from solera.cli.device_service import open_, token, watch
from solera.cli.folder import Folder, User
from solera.cli.output import Json, err, help_if_alone, out, print_json, show, table

if TYPE_CHECKING:
    from solera.device.recommending import DeviceRecommendation

app = typer.Typer(
    help="Keep a history and get recommendations on your own device, offline.", invoke_without_command=True
)
app.callback()(help_if_alone)
_LEAST_SHOWN = 0.0005  # a part of a score that is not +0.000
BundleFile = Annotated[Path, typer.Option("--bundle", help="Bundle file of a publisher.")]


@app.command()
def init(
    folder: Folder,
    bundle: BundleFile,
    key: Annotated[
        Path | None, typer.Option(help="The publisher's .pub file. Only bundles signed with it are accepted.")
    ] = None,
    trust: Annotated[
        bool,
        typer.Option("--trust", help="Without --key: trust the key that signed this bundle, without asking."),
    ] = False,
    json: Json = False,
) -> None:
    """Make a device from a bundle. From then on it accepts only bundles of the same publisher.

    Example: solera device init me --bundle movies.bundle --key publisher.pub
    """
    import sys

    from solera.core.errors import BundleError
    from solera.device.bundle import Bundle
    from solera.device.device import Device
    from solera.device.keys import fingerprint, read_public

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
    if json:
        print_json(device.status())
        return
    manifest = opened.manifest
    out.print(f"{folder}: {manifest.full_method}, {manifest.items:,} items, key {digits}", highlight=False)
    out.print(f"next: solera device import {folder} letterboxd export.zip", style="dim", highlight=False)


@app.command()
def update(folder: Folder, bundle: BundleFile, json: Json = False) -> None:
    """Install a newer bundle of the same publisher. The history is kept.

    Example: solera device update me --bundle movies-2.bundle
    """
    from solera.device.device import Device

    device = Device.open(folder)
    device.update(bundle)
    if json:
        print_json(device.status())
        return
    manifest = device.bundle.manifest
    out.print(
        f"{folder}: {manifest.full_method}, {manifest.items:,} items, catalogue version"
        f" {manifest.catalogue_version}",
        highlight=False,
    )


@app.command()
def back(folder: Folder, json: Json = False) -> None:
    """Use the model again that the last update replaced. Going back twice changes nothing.

    Example: solera device back me
    """
    from solera.device.device import Device

    device = Device.open(folder)
    manifest = device.go_back().manifest
    if json:
        print_json(device.status())
        return
    said = f"{folder}: {manifest.full_method}, catalogue version {manifest.catalogue_version}"
    out.print(said, highlight=False)


app.command()(add)
app.command("import")(import_)
app.command()(watch)
app.command()(match)


@app.command()
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
    json: Json = False,
) -> None:
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
    if json:
        print_json({"device": str(folder), "user": user, "items": [_as_json(one, why) for one in found]})
        return
    columns = ("#", "item", "title", "score", *(("because of",) if why else ()))
    rows = ((one.rank, one.item, one.title, one.score, *((_because(one),) if why else ())) for one in found)
    table(f"For {user}", columns, rows)


app.command("open")(open_)
for command in (history, correct, remove, outbox, forget, policy, join, pause, leave):
    app.command()(command)

app.add_typer(token, name="token")


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


@app.command()
def status(folder: Folder, json: Json = False) -> None:
    """Show what the device contains, and check its database.

    Example: solera device status me
    """
    from solera.device.device import Device

    found = Device.open(folder).status()
    if json:
        print_json(found)
        return
    users, newest = found.pop("users"), found.pop("newest_catalogue")
    federations, allowed = found.pop("federations"), found.pop("policy")
    table("Device", ("", "value"), [(name.replace("_", " "), show(value)) for name, value in found.items()])
    if users:
        columns = ("user", "entries", "items", "seen only", "own tensors")
        table("Users", columns, (tuple(user.values()) for user in users))
    else:
        out.print("no history yet")
    if federations:
        table(
            "Federations",
            ("federation", "you have", "offers", "uploads", "ε spent"),
            (
                (each["id"][:12], each["standing"], _offered(each["offer"]), each["uploads"], _spent(each))
                for each in federations
            ),
        )
        waiting = [each["id"][:12] for each in federations if each["standing"] == "asked"]
        if waiting:
            hint = f"next: solera device join {folder} {waiting[0]}, if you agree to what it offers"
            out.print(hint, style="dim", highlight=False, soft_wrap=True)
    limits = ", ".join(
        f"{name.replace('_', ' ')} {_limit(value)}" for name, value in allowed.items() if value
    )
    out.print(f"policy: {limits}", highlight=False, soft_wrap=True)
    if newest > found["catalogue_version"]:
        note = f"the federation has catalogue version {newest}: new items are not recommended here yet"
        out.print(note, highlight=False)
        hint = f"next: get its bundle from the publisher, then: solera device update {folder} --bundle FILE"
        out.print(hint, style="dim", highlight=False, soft_wrap=True)
