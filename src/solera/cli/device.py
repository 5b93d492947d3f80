"""solera device: a person's own folder, with a history that stays there and recommendations made there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from solera.cli.consent import join, leave, policy
from solera.cli.data import parse_columns
from solera.cli.demo import shapes
from solera.cli.output import Json, err, help_if_alone, out, print_json, show, table

if TYPE_CHECKING:
    from solera.device.device import DeviceRecommendation
    from solera.device.importers import Report

app = typer.Typer(
    help="Keep a history and get recommendations on your own device, offline.", invoke_without_command=True
)
app.callback()(help_if_alone)
app.command()(policy)
app.command()(join)
app.command()(leave)

Folder = Annotated[Path, typer.Argument(help="Folder of the device.")]
User = Annotated[str, typer.Option(help="User whose history is used, if the device has several.")]
Format = Literal["letterboxd", "listenbrainz", "jellyfin", "csv"]
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
    out.print(f"next: solera device import {folder} letterboxd watched.csv", style="dim", highlight=False)


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
def add(
    folder: Folder,
    item: Annotated[str, typer.Argument(help="An item's id, or its title.")],
    time: Annotated[
        str | None, typer.Option(help="Time: 2024-05-01, 2024-05-01T20:15 or Unix seconds (default: now).")
    ] = None,
    user: User = "me",
    json: Json = False,
) -> None:
    """Add an item to the history.

    Example: solera device add me "The Matrix (1999)" --time 2024-05-01
    """
    from solera.core.errors import ConfigError
    from solera.device.device import Device
    from solera.device.importers.entry import seconds

    try:
        when = None if time is None else seconds(time)
    except ValueError:
        raise ConfigError(
            f"{time!r} is not a date or time", "write 2024-05-01, or 2024-05-01T20:15"
        ) from None
    device = Device.open(folder)
    found = device.catalogue.find(item)
    new = device.add(found.id, time=when, user=user)
    if json:
        print_json({"item": found.id, "title": found.title, "user": user, "added": new})
        return
    said = "added" if new else "known already"
    out.print(f"{said}: {found.title} (item {found.id})", highlight=False, markup=False)


@app.command("import")
def import_(
    folder: Folder,
    format_: Annotated[
        Format, typer.Argument(metavar="FORMAT", help="letterboxd, listenbrainz, jellyfin or csv.")
    ],
    file: Annotated[Path, typer.Argument(help="The exported file.")],
    columns: Annotated[
        str | None,
        typer.Option(help="csv: title=…,year=…,time=… or item=…,time=…; jellyfin: user=…"),
    ] = None,
    user: User = "me",
    json: Json = False,
) -> None:
    """Import a history from another service, and list the items that are not in the catalogue.

    Example: solera device import me letterboxd watched.csv

    Example: solera device import me csv films.csv --columns title=Film,year=Made,time=Seen
    """
    from solera.device.device import Device
    from solera.device.importers import as_json, import_file

    report = import_file(Device.open(folder), format_, file, parse_columns(columns) or {}, user)
    if json:
        print_json(as_json(report))
        return
    _show_report(report)
    out.print(f"next: solera device recommend {folder} -k 10 --why", style="dim", highlight=False)


def _show_report(report: Report) -> None:
    known = report.matched - report.added
    out.print(
        f"{report.entries:,} entries: {report.matched:,} in the catalogue ({report.items:,} items),"
        f" {report.added:,} added, {known:,} known already",
        highlight=False,
    )
    for reason, count in report.left_out.items():
        out.print(f"{count:,} left out: {reason}", highlight=False)
    if report.unmatched:
        table(
            f"Not in the catalogue: {len(report.unmatched):,}",
            ("title", "year", "perhaps"),
            (
                (each.title, "" if each.year is None else str(each.year), "; ".join(each.near))
                for each in report.unmatched[:20]
            ),
        )
        if len(report.unmatched) > 20:
            given = f"the first {len(report.unmatched):,}" if report.unlisted else "all"
            out.print(f"the first 20; --json gives {given}", style="dim", highlight=False)
    if report.unlisted:
        out.print(f"{report.unlisted:,} more entries are not in the catalogue either", highlight=False)


@app.command()
def recommend(
    folder: Folder,
    k: Annotated[int, typer.Option("-k", help="How many items.", min=1)] = 10,
    why: Annotated[
        bool,
        typer.Option(
            "--why", help="Show which items of the history contributed most to each recommendation."
        ),
    ] = False,
    user: User = "me",
    json: Json = False,
) -> None:
    """Recommend new items from the history on this device. Everything is computed locally.

    Example: solera device recommend me -k 10 --why
    """
    from solera.device.device import Device

    found = Device.open(folder).recommend(k, user=user, reasons=3 if why else 0)
    if json:
        print_json({"device": str(folder), "user": user, "items": [_as_json(one, why) for one in found]})
        return
    columns = ("#", "item", "title", "score", *(("because of",) if why else ()))
    rows = ((one.rank, one.item, one.title, one.score, *((_because(one),) if why else ())) for one in found)
    table(f"For {user}", columns, rows)


def _offered(offer: dict[str, Any]) -> str:
    said = ["masked sums" if offer.get("masked") else "uploads that the server sees"]
    said += [f"noise of {offer['noise']:g} clips"] if offer.get("noise") else []
    said += [f"{offer['rounds']} rounds"] if offer.get("rounds") else []
    return ", ".join(said)


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
    parts += [(name, part) for name, part in (("others", one.others), ("popular", one.popular)) if part]
    return "; ".join(f"{name} {part:+.3f}" for name, part in parts)


@app.command()
def outbox(folder: Folder, json: Json = False) -> None:
    """Show everything that has ever left the device.

    Example: solera device outbox me
    """
    from datetime import UTC, datetime

    from solera.device.device import Device

    sent = Device.open(folder).outbox()
    if json:
        print_json(sent)
        return
    if not sent:
        out.print("nothing has ever left this device")
        return
    table(
        "What left this device",
        ("time (UTC)", "message", "round", "tensors", "bytes", "sha256", "wire"),
        (
            (
                f"{datetime.fromtimestamp(each['time'], UTC):%Y-%m-%d %H:%M:%S}",
                each["kind"],
                each["round"],
                shapes(each),
                each["bytes"],
                each["sha256"][:16],
                ", ".join(each["steps"]) or "plain",
            )
            for each in sent
        ),
    )


@app.command()
def forget(
    folder: Folder,
    item: Annotated[
        str | None, typer.Option(help="Delete this item (id or title) for one --user, or for all users.")
    ] = None,
    user: Annotated[str | None, typer.Option(help="Delete everything about this user.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Delete every user and the record of what was sent.")
    ] = False,
    json: Json = False,
) -> None:
    """Delete items or users, and overwrite the deleted data on disk.

    Example: solera device forget me --item "The Matrix (1999)"

    Example: solera device forget me --all
    """
    from solera.core.errors import ConfigError
    from solera.device.device import Device

    if everything == (item is not None or user is not None):
        raise ConfigError("choose what to delete", "give --item, --user or both; or --all alone")
    device = Device.open(folder)
    sent = len(device.outbox())
    id_ = None if item is None else item if device.holds(item) else device.catalogue.find(item).id
    gone = device.forget(item=id_, user=user)
    if json:
        print_json({"forgotten": gone, "sent_before": sent})
        return
    out.print(f"{gone:,} interactions forgotten", highlight=False)
    if sent:
        out.print(f"what left the device before ({sent:,} times) cannot be called back", highlight=False)


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
        columns = ("user", "interactions", "items", "own tensors")
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
    limits = ", ".join(f"{name.replace('_', ' ')} {show(value)}" for name, value in allowed.items() if value)
    out.print(f"policy: {limits}", highlight=False, soft_wrap=True)
    if newest > found["catalogue_version"]:
        note = f"the federation has catalogue version {newest}: new items are not recommended here yet"
        out.print(note, highlight=False)
        hint = f"next: get its bundle from the publisher, then: solera device update {folder} --bundle FILE"
        out.print(hint, style="dim", highlight=False, soft_wrap=True)
