"""solera device policy, join, pause and leave: what a device's owner allows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from solera.cli.folder import Folder
from solera.cli.output import Json, out, print_json, table

Federation = Annotated[
    str,
    typer.Argument(
        metavar="FEDERATION",
        help="Id of the federation, or its first letters; `solera device status` lists the ids.",
    ),
]
_OFF = "; 0 for no limit"


def policy(
    folder: Folder,
    least_nodes: Annotated[
        int | None, typer.Option(help="Smallest number of nodes in a masked sum (10).", min=2)
    ] = None,
    least_share: Annotated[
        float | None,
        typer.Option(help="Smallest share of the signed roster in a masked sum (0.5).", min=0, max=1),
    ] = None,
    least_users: Annotated[
        int | None, typer.Option(help="Smallest number of users in a masked sum (10).", min=1)
    ] = None,
    least_own_users: Annotated[
        int | None, typer.Option(help="Smallest number of this device's users in a masked round (1).", min=1)
    ] = None,
    largest_clip: Annotated[
        float | None, typer.Option(help=f"Largest allowed clip: L2 norm of one user's upload{_OFF}.", min=0)
    ] = None,
    least_noise: Annotated[
        float | None,
        typer.Option(help=f"Smallest noise on a masked sum, as a multiple of the clip{_OFF}.", min=0),
    ] = None,
    most_groups: Annotated[
        int | None, typer.Option(help="Largest number of groups with a masked sum of their own.", min=1)
    ] = None,
    sums_without_noise: Annotated[
        int | None,
        typer.Option(help="Most masked sums without noise that this device ever helps to open (1).", min=0),
    ] = None,
    evaluation_epsilon: Annotated[
        float | None, typer.Option(help="Largest ε of all answers to evaluations (4).", min=0)
    ] = None,
    rounds_per_day: Annotated[int | None, typer.Option(help="Most uploads in 24 hours (96).", min=1)] = None,
    epsilon: Annotated[
        float | None, typer.Option(help=f"Largest ε spent in one federation{_OFF}.", min=0)
    ] = None,
    total_epsilon: Annotated[
        float | None, typer.Option(help=f"Largest ε spent in all federations together{_OFF}.", min=0)
    ] = None,
    delta: Annotated[float | None, typer.Option(help="δ that goes with ε (1e-5).", min=0, max=1)] = None,
    allow_plain: Annotated[
        bool | None,
        typer.Option(
            "--allow-plain/--no-plain", help="Answer rounds in which the server sees this device's upload."
        ),
    ] = None,
    unpin: Annotated[
        bool,
        typer.Option("--unpin", help="Forget the pinned list of nodes, and no longer answer masked rounds."),
    ] = False,
    json: Json = False,
) -> None:
    """Show or change the limits that this device enforces, whatever a server asks for.

    Example: solera device policy me --least-nodes 20 --least-noise 1 --epsilon 8
    """
    from pydantic import ValidationError

    from solera.core.errors import ConfigError
    from solera.device.device import Device
    from solera.device.policy import Policy

    given: dict[str, Any] = {
        "least_nodes": least_nodes,
        "least_share": least_share,
        "least_users": least_users,
        "least_own_users": least_own_users,
        "largest_clip": largest_clip,
        "least_noise": least_noise,
        "most_groups": most_groups,
        "sums_without_noise": sums_without_noise,
        "evaluation_epsilon": evaluation_epsilon,
        "rounds_per_day": rounds_per_day,
        "epsilon": epsilon,
        "total_epsilon": total_epsilon,
        "delta": delta,
        "allow_plain": allow_plain,
    }
    given = {name: value for name, value in given.items() if value is not None}
    for name in ("largest_clip", "least_noise", "epsilon", "total_epsilon"):
        if given.get(name) == 0:
            given[name] = None
    device = Device.open(folder)
    found = Policy.read(device.store)
    try:
        changed = Policy.model_validate(found.model_dump() | given)
    except ValidationError as error:
        wrong = error.errors()[0]
        option = f"--{str(wrong['loc'][0]).replace('_', '-')}"
        raise ConfigError(f"{option}: {wrong['msg']}", "see solera device policy --help") from None
    if changed != found:
        changed.write(device.store)
    if unpin:
        from solera.deploy.node.membership import Membership

        Membership.forget(device.store)
    if json:
        print_json(changed.model_dump())
        return
    fields = Policy.model_fields
    rows = [
        (f"--{name.replace('_', '-')}", _shown(value), fields[name].description or "")
        for name, value in changed.model_dump().items()
    ]
    table("What this device allows", ("option", "value", ""), rows)


def join(folder: Folder, federation: Federation, json: Json = False) -> None:
    """Agree to take part in a federation that has asked for this device.

    Example: solera device join me 3f2a
    """
    _decide(folder, federation, json, "join")


def pause(folder: Folder, federation: Federation, json: Json = False) -> None:
    """Take no part in a federation until you join it again.

    Example: solera device pause me 3f2a
    """
    _decide(folder, federation, json, "pause")


def leave(folder: Folder, federation: Federation, json: Json = False) -> None:
    """Leave a federation. What has already left the device cannot be taken back.

    Example: solera device leave me 3f2a
    """
    _decide(folder, federation, json, "leave")


def _decide(folder: Path, start: str, json: bool, what: Literal["join", "pause", "leave"]) -> None:
    from solera.core.errors import DeviceError
    from solera.device.device import Device
    from solera.device.ledger import Ledger

    ledger = Ledger(Device.open(folder).store)
    found = [each for each in ledger.federations() if each["id"].startswith(start)]
    if len(found) != 1:
        known = ", ".join(each["id"][:12] for each in ledger.federations()) or "none has asked yet"
        number = "no federation" if not found else "more than one federation"
        raise DeviceError(f"{number} has an id that begins with {start!r}", f"known federations: {known}")
    chosen = found[0]["id"]
    {"join": ledger.join, "pause": ledger.pause, "leave": ledger.leave}[what](chosen)
    if json:
        print_json({"federation": chosen, "standing": ledger.standing(chosen)})
        return
    out.print(f"you have {ledger.standing(chosen)} federation {chosen}", highlight=False)


def _shown(value: Any) -> str:
    if value is None:
        return "no limit"
    return ("yes" if value else "no") if isinstance(value, bool) else f"{value:g}"
