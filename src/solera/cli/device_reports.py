"""solera device contribute: threshold reports of a device."""

from __future__ import annotations

from typing import Annotated

import typer

from solera.cli.folder import Folder, User
from solera.cli.output import Answer, Line, answers, out
from solera.core.text import counted


@answers
def contribute(
    folder: Folder,
    helper: Annotated[str | None, typer.Option(metavar="URL", help="Agree: the helper's address.")] = None,
    server_key: Annotated[
        str | None, typer.Option(metavar="HEX", help="Agree: the public key of the server.")
    ] = None,
    newest: Annotated[
        int, typer.Option(help="Agree: how many of the newest items a new one makes pairs with.", min=1)
    ] = 20,
    stop: Annotated[bool, typer.Option("--stop", help="No longer take part.")] = False,
    user: User = "me",
    yes: Annotated[bool, typer.Option("--yes", help="Agree without being asked, as programs do.")] = False,
    *,
    json: bool,
) -> Answer:
    """Report what is new in your history, once: a server learns what many devices have in common.

    With --helper and --server-key you agree, after you have seen the terms. Without options one message goes;
    run it once in an epoch, for example every night. docs/federation/reports.md says who sees what.

    Example: solera device contribute me --helper https://helper.example --server-key HEX

    Example: solera device contribute me
    """
    from solera.core.errors import ConfigError
    from solera.device import reports
    from solera.device.device import Device
    from solera.federation.reports.contributing import agree, contribute, offered
    from solera.federation.reports.start import read_public

    if (helper is None) != (server_key is None) or (stop and helper is not None):
        raise ConfigError(
            "what to do is not clear", "give both --helper and --server-key, or --stop, or neither"
        )
    device = Device.open(folder)
    if stop:
        reports.end(device.store)
        return Answer(
            {"stopped": True}, ["nothing is reported any more; what has gone cannot be called back"]
        )
    if helper is not None and server_key is not None:
        plan = offered(helper, read_public(server_key))
        agreement = reports.Agreement(
            helper=helper,
            server=server_key.lower(),
            federation=plan.federation,
            least_devices=plan.least_devices,
            newest=newest,
            user=user,
        )
        if json and not yes:
            raise ConfigError("you have not agreed", "run it without --json to see the terms, or give --yes")
        if not yes:
            for sentence in _terms(agreement):
                out.print(sentence, highlight=False, soft_wrap=True)
            typer.confirm("Do you agree?", abort=True, err=True)
        public = agree(device, agreement)
        return Answer(
            agreement.model_dump() | {"key": str(public)},
            [
                f"you take part in {plan.federation}; nothing has been reported yet",
                Line(f"next: give {public} to the helper's operator", "dim"),
                Line(f"then, once in an epoch: solera device contribute {folder}", "dim"),
            ],
        )
    epoch, went = contribute(device)
    said = f"{counted(went, 'item or pair has', 'items and pairs have')} gone in epoch {epoch}"
    hint = Line(f"next: solera device outbox {folder} --pairs", "dim")
    return Answer({"epoch": epoch, "went": went}, [said, hint])


def _terms(agreed: object) -> list[str]:
    from solera.device.reports import Agreement

    assert isinstance(agreed, Agreement)
    return [
        f"{agreed.federation} asks {agreed.user} for items, and for pairs of them, each once.",
        f"The server reads those that at least {agreed.least_devices} devices report in an epoch,"
        " and not whose they are.",
        f"The helper at {agreed.helper} sees that this device takes part, and nothing of the history.",
        "Both together can read everything.",
        "What has gone cannot be called back, also not by deleting the item.",
    ]
