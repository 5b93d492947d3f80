"""solera bundle: a trained model as one signed file that devices take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from solera.cli.options import DataDir, Plugins, parse_columns, parse_pairs, takes_settings
from solera.cli.output import Answer, Line, Table, answers, help_if_alone, show

if TYPE_CHECKING:
    from solera.device.bundle import Bundle

app = typer.Typer(help="Publish a model for devices, trained or untrained.", invoke_without_command=True)
app.callback()(help_if_alone)

Output = Annotated[Path, typer.Option("-o", "--output", help="File to write.")]
Key = Annotated[Path, typer.Option(help="The publisher's secret key; `solera bundle keygen` makes one.")]


@app.command()
@answers
def keygen(
    output: Annotated[Path, typer.Option("-o", "--output", help="Name of the two files, without extension.")],
) -> Answer:
    """Make a publisher's keys: NAME.key, to keep secret, and NAME.pub, to give away.

    Example: solera bundle keygen -o publisher
    """
    from solera.device.bundle import fingerprint
    from solera.device.keys import make_keys, read_public

    secret, public = make_keys(output)
    digits = fingerprint(read_public(public))
    return Answer(
        {"key": str(secret), "pub": str(public), "fingerprint": digits},
        [f"{secret} (keep it secret), {public} (give it away)", f"fingerprint: {digits}"],
    )


@app.command()
@answers
def make(
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="ml-32m, ml-latest, listenbrainz, or another data set.")
    ],
    output: Output,
    key: Key,
    items: Annotated[
        int, typer.Option(help="Items of the catalogue, the most frequent ones.", min=1)
    ] = 20_000,
    method: Annotated[
        str, typer.Option(help="fedease, for which the order of a history does not count, or fedslist.")
    ] = "fedease",
    option: Annotated[
        list[str] | None,
        typer.Option("-O", "--option", help="One of the method's options, key=value; repeatable."),
    ] = None,
    data_dir: DataDir = None,
) -> Answer:
    """Make a bundle of a published data set, with a card: data, terms, size, figures, ε.

    The files of the data set are looked for in DIR/NAME, as in data/ml-latest/ratings.csv.

    Example: solera bundle make ml-latest -o films.bundle --key publisher.key --data-dir data
    """
    from solera.cli.progress import training_progress
    from solera.device.making import make as write

    with training_progress(f"{method} on {data}", 1) as shown:
        bundle, card = write(
            data,
            output,
            key,
            method=method,
            options=parse_pairs(option or [], "-O reg=500"),
            items=items,
            data_dir=data_dir,
            callbacks=[shown],
        )
    answer = _answer(bundle, f"read {card}, then solera device init me --bundle {output}")
    return answer._replace(document={**answer.document, "card": str(card)})


@app.command()
@answers
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
            help="CSV file of id,title[,year][,genres][,tmdb…] (default: as the data set has them).",
        ),
    ] = None,
    data_dir: DataDir = None,
) -> Answer:
    """Write a run's shared parameters and catalogue as a signed bundle, without personal parameters.

    Example: solera bundle export runs/fedslist-ml-100k-strict-s0 -o movies.bundle --key publisher.key
    """
    from solera.device.publish import export as write
    from solera.device.publish import read_items

    bundle = write(
        run,
        output,
        key,
        catalogue_version=catalogue_version,
        whole=whole,
        items=None if catalogue is None else read_items(catalogue),
        data_dir=data_dir,
    )
    return _answer(bundle, f"solera device init me --bundle {output}")


@app.command()
@answers
@takes_settings("seed", "precision", "columns")
def new(
    method: Annotated[str, typer.Argument(help="A method; `solera methods` lists them.")],
    output: Output,
    key: Key,
    data: Annotated[str | None, typer.Option(help="Use the items of a data set or of your own file.")] = None,
    catalogue: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The items: a CSV file of id,title[,year][,genres][,tmdb…]."),
    ] = None,
    plugin: Plugins = None,
    option: Annotated[
        list[str] | None,
        typer.Option("-O", "--option", help="One of the method's options, key=value; repeatable."),
    ] = None,
    *,
    settings: dict[str, Any],
    data_dir: DataDir = None,
) -> Answer:
    """Write an untrained method and a catalogue as a bundle, from which a federation starts.

    Example: solera bundle new fedmf --data ml-100k -o films.bundle --key publisher.key

    Example: solera bundle new fedmf --catalogue items.csv -o films.bundle --key publisher.key -O reg=0.01
    """
    from solera.core.errors import ConfigError
    from solera.data.datasets import load
    from solera.device.publish import catalogue_of, read_items, start
    from solera.federation.node.work import deployable
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
            load(str(data), data_dir=data_dir, columns=parse_columns(settings.get("columns"))),
            str(data),
            data_dir,
        )
    )
    name = "+".join([method, *(plugin or [])])
    bundle = start(
        name,
        items,
        output,
        key,
        options=options,
        precision=settings.get("precision", "single"),
        seed=settings.get("seed", 0),
    )
    return _answer(bundle, f"solera device init me --bundle {output}")


@app.command()
@answers
def extend(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="Bundle with the current catalogue.")],
    output: Output,
    key: Key,
    catalogue: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="CSV file of only the new items: id,title[,year][,genres][,tmdb…]."
        ),
    ],
) -> Answer:
    """Write the next version of a catalogue. Existing items keep their positions; new items follow.

    Example: solera bundle extend films.bundle --catalogue more.csv -o films-2.bundle --key publisher.key
    """
    from solera.device.bundle import Bundle
    from solera.device.publish import extend as write
    from solera.device.publish import read_items

    made = write(Bundle.open(old), read_items(catalogue), output, key)
    following = f"solera federation run FOLDER --resume --bundle {output}; devices: solera device update"
    return _answer(made, following)


@app.command("show")
@answers
def show_(
    file: Annotated[Path, typer.Argument(help="A bundle.")],
    key: Annotated[
        Path | None, typer.Option(help="The publisher's .pub file, to check the signature with.")
    ] = None,
    vectors: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also write 20 random histories with the scores that the bundle gives, to test readers in "
            "other languages.",
        ),
    ] = None,
) -> Answer:
    """Check a bundle completely and show its contents.

    Example: solera bundle show movies.bundle --key publisher.pub

    Example: solera bundle show movies.bundle --vectors vectors.json
    """
    from json import dumps

    from solera.core.errors import ConfigError
    from solera.core.files import write_atomically
    from solera.device.bundle import Bundle
    from solera.device.keys import read_public
    from solera.device.models.opened import open_model
    from solera.device.vectors import vectors_of

    bundle = Bundle.open(file, None if key is None else read_public(key))
    bundle.catalogue()
    open_model(bundle)
    answer = _answer(bundle)
    if vectors is None:
        return answer
    made = vectors_of(bundle)
    try:
        write_atomically(vectors, dumps(made) + "\n")
    except OSError as error:
        hint = "give another --vectors"
        raise ConfigError(f"{vectors} cannot be written: {error.strerror}", hint) from None
    return answer._replace(shown=[*answer.shown, Line(f"{vectors}: {len(made['cases'])} histories")])


@app.command()
@answers
def page(
    file: Annotated[Path, typer.Argument(metavar="BUNDLE", help="Bundle of a trained model.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FOLDER", help="Folder to write.")],
    key: Annotated[
        Path | None, typer.Option(help="The publisher's .pub file. Refuse a bundle signed with another key.")
    ] = None,
    title: Annotated[str, typer.Option(help="Title of the page.")] = "Solera",
    helper: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Collect threshold reports: the address of the helper, without a path."
        ),
    ] = None,
    server_key: Annotated[
        str | None,
        typer.Option(metavar="HEX", help="With --helper: the public key of the server of reports."),
    ] = None,
    federation: Annotated[str | None, typer.Option(help="With --helper: name of the federation.")] = None,
    least_devices: Annotated[
        int, typer.Option(help="With --helper: T, which people agree to at the least.", min=2)
    ] = 20,
) -> Answer:
    """Write a page that recommends from the bundle in any browser, without a connection.

    With --helper there is a second page, contribute.html, which may connect to the helper alone. It sends
    threshold reports of the history in the browser, if the person turns that on.

    Example: solera bundle page movies.bundle -o movies-page

    Example: solera bundle page movies.bundle -o movies-page --helper https://helper.example --server-key HEX
        --federation films
    """
    from pydantic import ValidationError

    from solera.core.errors import ConfigError
    from solera.device.bundle import Bundle, fingerprint
    from solera.device.keys import read_public
    from solera.device.page import Collected, write_page

    bundle = Bundle.open(file, None if key is None else read_public(key))
    collected = None
    if helper or server_key or federation:
        try:
            given = {"helper": helper, "server": server_key, "federation": federation}
            collected = Collected.model_validate(given | {"least_devices": least_devices})
        except ValidationError:
            raise ConfigError(
                "reports need a helper, the server's key and a federation",
                "--helper https://HOST[:PORT] --server-key HEX --federation NAME",
            ) from None
    written = write_page(bundle, output, title, collected)
    size = written.stat().st_size
    return Answer(
        {"page": str(written), "bytes": size, "signed_by": fingerprint(bundle.key)},
        [
            f"{written}: {size:,} bytes, signed by {fingerprint(bundle.key)}",
            Line(f"next: open {written} in a browser", "dim"),
        ],
    )


def _answer(bundle: Bundle, following: str = "") -> Answer:
    from dataclasses import asdict

    from solera.device.bundle import fingerprint
    from solera.device.models.served import tests_of

    manifest, tests = bundle.manifest, tests_of(bundle.manifest)
    trained = dict(manifest.trained)
    if "test" in trained and "test" not in tests:  # a bundle of 0.2
        trained["test_train"] = trained.pop("test")
    found: dict[str, Any] = {
        "file": str(bundle.path),
        "bytes": bundle.path.stat().st_size,
        "digest": bundle.digest,
        "signed_by": fingerprint(bundle.key),
        **{name: value for name, value in asdict(manifest).items() if name not in ("kind", "sha256")},
        "trained": trained,
    }
    shown = {name: value for name, value in found.items() if name != "trained"}
    shown |= {
        name: value for name, value in trained.items() if name != "format" and not isinstance(value, dict)
    }
    rows = [(key.replace("_", " "), _plain(value)) for key, value in shown.items()]
    rows += [
        (f"{name} {metric}, full ranking", show(test[metric]))
        for name, test in tests.items()
        for metric in ("hr@10", "ndcg@10")
    ]
    said: list[Table | Line] = [
        Table(f"{manifest.full_method}, {manifest.items:,} items", ("", "value"), rows)
    ]
    return Answer(found, [*said, Line(f"next: {following}", "dim")] if following else said)


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(inner)}" for key, inner in value.items())
    return " ".join(map(str, value)) if isinstance(value, list) else show(value)
