"""solera bundle: a trained model as one signed file that devices take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from solera.cli.options import Columns, DataDir, Plugins, Seed, parse_columns, parse_pairs
from solera.cli.output import Json, help_if_alone, out, print_json, show, table

if TYPE_CHECKING:
    from solera.device.bundle import Bundle

app = typer.Typer(help="Publish a model for devices, trained or untrained.", invoke_without_command=True)
app.callback()(help_if_alone)

Output = Annotated[Path, typer.Option("-o", "--output", help="File to write.")]
Key = Annotated[Path, typer.Option(help="The publisher's secret key; `solera bundle keygen` makes one.")]


@app.command()
def keygen(
    output: Annotated[Path, typer.Option("-o", "--output", help="Name of the two files, without extension.")],
    json: Json = False,
) -> None:
    """Make a publisher's keys: NAME.key, to keep secret, and NAME.pub, to give away.

    Example: solera bundle keygen -o publisher
    """
    from solera.device.keys import fingerprint, make_keys, read_public

    secret, public = make_keys(output)
    digits = fingerprint(read_public(public))
    if json:
        print_json({"key": str(secret), "pub": str(public), "fingerprint": digits})
        return
    out.print(f"{secret} (keep it secret), {public} (give it away)", highlight=False)
    out.print(f"fingerprint: {digits}", highlight=False)


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    output: Output,
    key: Key,
    catalogue_version: Annotated[
        int, typer.Option(help="Version of the catalogue; raise it when items change.", min=1)
    ] = 1,
    whole: Annotated[
        bool,
        typer.Option(
            "--whole", help="Write all weights of a one-round method, not the largest ones in 8 bits."
        ),
    ] = False,
    catalogue: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Titles, years and genres: CSV file of id,title[,year][,genres] (default: the data set's).",
        ),
    ] = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Write a run's shared parameters and catalogue as a signed bundle, without personal parameters.

    Example: solera bundle export runs/fedslist-ml-100k-strict-s0 -o movies.bundle --key publisher.key
    """
    from solera.device.items import read_items
    from solera.device.publish import export as write

    bundle = write(
        run,
        output,
        key,
        catalogue_version=catalogue_version,
        whole=whole,
        items=None if catalogue is None else read_items(catalogue),
        data_dir=data_dir,
    )
    _show(bundle, json)
    if not json:
        out.print(f"next: solera device init me --bundle {output}", style="dim", highlight=False)


@app.command()
def new(
    method: Annotated[str, typer.Argument(help="A method; `solera methods` lists them.")],
    output: Output,
    key: Key,
    data: Annotated[str | None, typer.Option(help="Use the items of a data set or of your own file.")] = None,
    catalogue: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The items: a CSV file of id,title[,year][,genres].")
    ] = None,
    plugin: Plugins = None,
    option: Annotated[
        list[str] | None,
        typer.Option("-O", "--option", help="One of the method's options, key=value; repeatable."),
    ] = None,
    seed: Seed = 0,
    precision: Annotated[
        Literal["single", "double"], typer.Option(help="Precision of all numbers.")
    ] = "single",
    data_dir: DataDir = None,
    columns: Columns = None,
    json: Json = False,
) -> None:
    """Write an untrained method and a catalogue as a bundle, from which a federation starts.

    Example: solera bundle new fedmf --data ml-100k -o films.bundle --key publisher.key

    Example: solera bundle new fedmf --catalogue items.csv -o films.bundle --key publisher.key -O reg=0.01
    """
    from solera.core.errors import ConfigError
    from solera.data.datasets import genres, load
    from solera.deploy.node.work import deployable
    from solera.device.items import read_items
    from solera.device.publish import catalogue_of, start
    from solera.methods import find

    if (data is None) == (catalogue is None):
        raise ConfigError(
            "the bundle needs exactly one list of items",
            "give either --data ml-100k or --catalogue items.csv",
        )
    options = parse_pairs(option or [], "-O learning_rate=0.05")
    deployable(find(method, options, plugin or []))
    items = (
        read_items(catalogue)
        if catalogue is not None
        else catalogue_of(
            load(str(data), data_dir=data_dir, columns=parse_columns(columns)), genres(str(data), data_dir)
        )
    )
    name = "+".join([method, *(plugin or [])])
    bundle = start(name, items, output, key, options=options, precision=precision, seed=seed)
    _show(bundle, json)
    if not json:
        out.print(f"next: solera device init me --bundle {output}", style="dim", highlight=False)


@app.command()
def extend(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="Bundle with the current catalogue.")],
    output: Output,
    key: Key,
    catalogue: Annotated[
        Path, typer.Option(metavar="FILE", help="CSV file of only the new items: id,title[,year][,genres].")
    ],
    json: Json = False,
) -> None:
    """Write the next version of a catalogue. Existing items keep their positions; new items follow.

    Example: solera bundle extend films.bundle --catalogue more.csv -o films-2.bundle --key publisher.key
    """
    from solera.device.bundle import Bundle
    from solera.device.items import read_items
    from solera.device.publish import extend as write

    _show(write(Bundle.open(old), read_items(catalogue), output, key), json)
    if not json:
        hint = f"next: solera federation run FOLDER --resume --bundle {output}; devices: solera device update"
        out.print(hint, style="dim", highlight=False, soft_wrap=True)


@app.command("show")
def show_(
    file: Annotated[Path, typer.Argument(help="A bundle.")],
    key: Annotated[
        Path | None, typer.Option(help="The publisher's .pub file, to check the signature with.")
    ] = None,
    json: Json = False,
) -> None:
    """Check a bundle completely and show its contents.

    Example: solera bundle show movies.bundle --key publisher.pub
    """
    from solera.device.bundle import Bundle
    from solera.device.keys import read_public
    from solera.device.model import Model

    bundle = Bundle.open(file, None if key is None else read_public(key))
    bundle.catalogue()
    Model(bundle)
    _show(bundle, json)


@app.command()
def page(
    file: Annotated[Path, typer.Argument(metavar="BUNDLE", help="Bundle of a trained model.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FOLDER", help="Folder to write.")],
    key: Annotated[
        Path | None, typer.Option(help="The publisher's .pub file. Refuse a bundle signed with another key.")
    ] = None,
    title: Annotated[str, typer.Option(help="Title of the page.")] = "Solera",
    json: Json = False,
) -> None:
    """Write a page that recommends from the bundle in any browser, without a connection.

    Example: solera bundle page movies.bundle -o movies-page
    """
    from solera.device.bundle import Bundle
    from solera.device.keys import fingerprint, read_public
    from solera.device.page import write_page

    bundle = Bundle.open(file, None if key is None else read_public(key))
    written = write_page(bundle, output, title)
    size = written.stat().st_size
    if json:
        print_json({"page": str(written), "bytes": size, "signed_by": fingerprint(bundle.key)})
        return
    out.print(f"{written}: {size:,} bytes, signed by {fingerprint(bundle.key)}", highlight=False)
    out.print(f"next: open {written} in a browser", style="dim", highlight=False)


@app.command()
def vectors(
    file: Annotated[Path, typer.Argument(help="A bundle of a trained model.")],
    output: Output,
    count: Annotated[int, typer.Option(help="Number of random histories.", min=1, max=1000)] = 20,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Write random histories with the scores that the bundle gives, to test readers in other languages.

    Example: solera bundle vectors movies.bundle -o vectors.json
    """
    from json import dumps

    from solera.core.errors import ConfigError
    from solera.core.files import write_atomically
    from solera.device.bundle import Bundle
    from solera.device.vectors import vectors_of

    made = vectors_of(Bundle.open(file), count, seed)
    try:
        write_atomically(output, dumps(made) + "\n")
    except OSError as error:
        raise ConfigError(f"{output} cannot be written: {error.strerror}", "give another -o") from None
    if json:
        print_json({"file": str(output), "bundle": made["bundle"], "cases": len(made["cases"])})
        return
    out.print(f"{output}: {len(made['cases'])} histories", highlight=False)


def _show(bundle: Bundle, json: bool) -> None:
    from solera.device.keys import fingerprint
    from solera.device.model import tests_of

    manifest = bundle.manifest
    found: dict[str, Any] = {
        "file": str(bundle.path),
        "bytes": bundle.path.stat().st_size,
        "digest": bundle.digest,
        "signed_by": fingerprint(bundle.key),
        **manifest.model_dump(mode="json", exclude={"kind", "sha256"}),
    }
    if json:
        print_json(found)
        return
    trained = {
        name: value
        for name, value in found.pop("trained").items()
        if name != "format" and not isinstance(value, dict)
    }
    rows = [(key.replace("_", " "), _plain(value)) for key, value in (found | trained).items()]
    rows += [
        (f"{name} {metric}, full ranking", show(test[metric]))
        for name, test in tests_of(manifest).items()
        for metric in ("hr@10", "ndcg@10")
    ]
    table(f"{manifest.full_method}, {manifest.items:,} items", ("", "value"), rows)


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(inner)}" for key, inner in value.items())
    return " ".join(map(str, value)) if isinstance(value, list) else show(value)
