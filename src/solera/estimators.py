"""Models with `fit`, `recommend`, `similar`, `update` and `save`: one class per method and baseline.

    model = solera.FedEASE(reg=500).fit("plays.parquet")
    model.recommend(["anna"], k=10)
    model.update("today.parquet").save("models/today")
    solera.load_model("models/today").recommend_for(["x12", "x7"])

A model is fitted to all rows of a table; nothing is held out. `solera.train` holds items out and measures.
"""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, cached_property, partial
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file

import solera
from solera.baselines import BASELINES, Baseline, configure
from solera.core.errors import ConfigError, DivergedError, RunError, SoleraError, closest, in_python
from solera.core.files import (
    creating_folder,
    numbered_folders,
    remove_folder,
    replacing_file,
    sync_names,
    write_atomically,
)
from solera.core.leaf import Params
from solera.core.tensor_files import write_tensors
from solera.core.types import Ints
from solera.data import datasets
from solera.data.interactions import IdMap, Interactions, Split
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.engine import OneRound
from solera.engine.one_round import sum_for
from solera.methods import METHODS, ONE_ROUND, PLUGINS, find
from solera.runs.federation import Federation, federation
from solera.runs.presets import run_settings
from solera.runs.recommending import NEWCOMER_ROUNDS, Blended, Centralized, OnUsers, Recommends, listed
from solera.runs.result import Bytes, Progress, RoundEntry, RoundSeconds
from solera.runs.settings import RunConfig
from solera.runs.training import Callback, interruptible

FORMAT = 1  # of a saved model
CURRENT, _MODEL, _ABOUT = "current", "model-", "model.json"
LEAST = 5  # interactions of a user who is trained, unless told
WARM_ROUNDS = 5  # of an update, unless told

NAMES = {name: name.lower() for name in solera.MODELS}
_SETTINGS = ("rounds", "seed", "precision", "secure_aggregation", "dp", "upload", "download")
_LOG = logging.getLogger(__name__)


class Recommender(Recommends):
    """Recommends from a fitted model. Unknown items of a history are skipped."""

    skips_unknown = True

    def __init__(
        self, data: Interactions, scores: Federation | Centralized, trained: NDArray[np.bool_]
    ) -> None:
        self.data, self._scores, self.trained = data, scores, trained

    @property
    def _simulation(self) -> Federation | Blended | Centralized:
        return self._scores


class Model:
    """A recommender. Its parameters are the options of its method, under the same names."""

    method: ClassVar[str]
    defaults: ClassVar[Mapping[str, Any]]

    def __init__(self, **parameters: Any) -> None:
        """Parameters that are not given keep their defaults. They are checked by `fit`."""
        self._names = list(self.defaults)
        self._set(dict(self.defaults) | parameters)
        self._data: Interactions | None = None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All parameters, as scikit-learn asks for them."""
        return {name: getattr(self, name) for name in self._names}

    @property
    def changed(self) -> dict[str, Any]:
        """The parameters that differ from the defaults."""
        return {k: v for k, v in self.get_params().items() if v != self.defaults.get(k)}

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters. They count from the next `fit`."""
        self._set(parameters)
        return self

    def _set(self, parameters: Mapping[str, Any]) -> None:
        more = {option for plugin in parameters.get("plugins", ()) for option in _options_of_plugin(plugin)}
        for name, value in parameters.items():
            if name not in {*self._names, *more}:
                message = f"{type(self).__name__} has no parameter {name!r}"
                raise ConfigError(message, closest(name, self._names))
            if name not in self._names:
                self._names.append(name)
            setattr(self, name, value)

    def __repr__(self) -> str:
        """The parameters that differ from the defaults, and the data."""
        own = ", ".join(f"{k}={v!r}" for k, v in self.changed.items())
        fitted = f" fitted to {self._data!r}" if self._data is not None else ""
        return f"{type(self).__name__}({own}){fitted}"

    def fit(
        self,
        data: Any,
        y: object = None,
        *,
        columns: Mapping[str, str] | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> Self:
        """Fit to all rows of `data`, anything that `solera.load` takes.

        Users with fewer than `min_interactions` are not trained. They get recommendations all the same: from
        their history if the method reads it, else the most popular items. `y` is ignored.
        """
        self._fit(loaded(data, columns), callbacks)
        return self

    def update(
        self, rows: Any, *, rounds: int = WARM_ROUNDS, columns: Mapping[str, str] | None = None
    ) -> Self:
        """Take in new rows, which may be of new users and new items.

        A closed form is then the same model as one fitted to everything. A trained method goes on for
        `rounds` rounds from where it is, with everybody. A baseline is fitted again.
        """
        newer = loaded(rows, columns)
        self._update(self.data.with_rows_of(newer), np.unique(newer.users), newer, rounds)
        return self

    def recommend(
        self,
        users: Iterable[str | int] | str | int | None = None,
        k: int = 10,
        *,
        only: Iterable[str | int] | None = None,
        without: Iterable[str | int] = (),
    ) -> pl.DataFrame:
        """The k best items of these users, or of everybody, without those they have: one row per item.

        `only` limits the result to some items, `without` leaves some out; both are item ids.
        """
        return self.recommender.recommend_many(users, k, only=only, without=without)

    def recommend_for(
        self,
        history: Iterable[str | int],
        k: int = 10,
        *,
        only: Iterable[str | int] | None = None,
        without: Iterable[str | int] = (),
        rounds: int = NEWCOMER_ROUNDS,
    ) -> pl.DataFrame:
        """The k best items for a history, oldest first, of a user who need not be known.

        Items that the model does not know are skipped. If no item is known, the most popular ones are
        returned. If users have parameters of their own, these are trained on the history for `rounds` rounds.
        """
        found = self.recommender.recommend_for(history, k, rounds=rounds, only=only, without=without)
        return pl.DataFrame(found, schema=["rank", "item", "title", "score"], orient="row")

    def similar(self, items: Iterable[str | int] | str | int, k: int = 10) -> pl.DataFrame:
        """The k items most similar to each of these: by closed-form weights, or by the cosine of vectors."""
        tables = [
            pl.DataFrame(
                self.recommender.similar(item, k), schema=["rank", "item", "title", "score"], orient="row"
            ).select(pl.lit(item).alias("to"), pl.all())
            for item in listed(items)
        ]
        return pl.concat(tables)

    def write_recommendations(
        self,
        path: str | Path,
        users: Iterable[str | int] | None = None,
        k: int = 10,
        *,
        only: Iterable[str | int] | None = None,
        without: Iterable[str | int] = (),
        on_users: OnUsers | None = None,
    ) -> int:
        """Write the table of `recommend` to a .parquet or .csv file without holding it in memory.

        Every user has rows. Returns how many users have too little history and get the most popular items.
        """
        recommender = self.recommender
        recommender.write_recommendations(path, users, k, only=only, without=without, on_users=on_users)
        return int(recommender.has_fallback(users).sum())

    def save(self, folder: str | Path) -> Path:
        """Write the model to a new folder, from which `solera.load_model` reads it."""
        data, path = self.data, Path(folder)
        if path.exists():
            raise RunError(f"{path} exists", "give the name of a new folder")
        with creating_folder(path) as place:
            _write_data(data, place)
            self._write(place)
            about = {
                "format": FORMAT,
                "solera": solera.__version__,
                "model": type(self).__name__,
                "method": self.method,
                "parameters": self.changed,
                "data": data.name,
                **self._about(),
            }
            write_atomically(place / _ABOUT, json.dumps(about, indent=1, default=str) + "\n")
        return path

    @property
    def data(self) -> Interactions:
        """The rows that the model is fitted to."""
        if self._data is None:
            raise ConfigError(f"this {type(self).__name__} is not fitted", "call fit(data) first")
        return self._data

    @cached_property
    def recommender(self) -> Recommender:
        """What recommends from the fitted model."""
        return Recommender(self.data, *self._made_of())

    def _made_of(self) -> tuple[Federation | Centralized, NDArray[np.bool_]]:
        """What scores, and which users it is trained for."""
        raise NotImplementedError

    def _fit(self, data: Interactions, callbacks: Sequence[Callback]) -> None:
        raise NotImplementedError

    def _update(self, data: Interactions, changed: Ints, newer: Interactions, rounds: int) -> None:
        raise NotImplementedError

    def _about(self) -> dict[str, Any]:
        return {}

    def _write(self, folder: Path) -> None:
        raise NotImplementedError

    def _read(self, folder: Path, about: Mapping[str, Any]) -> None:
        raise NotImplementedError


class FederatedModel(Model):
    """A federated method, simulated."""

    _federation: Federation
    _rounds_done: int

    def _config(self, data: Interactions) -> RunConfig:
        changed = self.changed
        changed.pop("min_interactions", None)
        plugins = changed.pop("plugins", ())
        settings = {name: changed.pop(name) for name in _SETTINGS if name in changed}
        return run_settings(self.method, data.name, plugins=plugins, options=changed, **settings)

    def _made(self, data: Interactions, config: RunConfig) -> Federation:
        histories = data.distinct().timed_by_user
        if not config.built.serves_from_history:
            histories = _of_enough(histories, self.get_params()["min_interactions"])
        clients = ClientData(histories, histories.sorted_unique(), data.n_items)
        made = federation(config, config.built, clients, 0, "cpu", attributes=data.attributes)
        if isinstance(made, OneRound):
            made.keeps_totals = not (config.dp or config.secure_aggregation)
        return made

    def _fit(self, data: Interactions, callbacks: Sequence[Callback]) -> None:
        config = self._config(data)
        made = self._made(data, config)
        if isinstance(made, OneRound):
            made.on_clients = partial(_tell, callbacks)
        _run(made, range(config.rounds), config.rounds, callbacks)
        self._take(data, made, config.rounds)

    def _take(self, data: Interactions, made: Federation, rounds: int) -> None:
        self._data, self._federation, self._rounds_done = data, made, rounds
        self.__dict__.pop("recommender", None)

    def _update(self, data: Interactions, changed: Ints, newer: Interactions, rounds: int) -> None:
        config, before = self._config(data), self._federation
        made = self._made(data, config)
        if isinstance(made, OneRound):
            assert isinstance(before, OneRound)
            if before.totals is None:
                raise ConfigError(
                    "noise and masks hide what single users gave, so nothing can be replaced in a sum",
                    "fit again",
                )
            numbers = np.array([data.user_map.index(newer.user_map.id(u), "user") for u in changed.tolist()])
            made.update(before, numbers)
            self._take(data, made, 1)
            return
        assert not isinstance(before, OneRound)
        states = zip(made.state.tensors(), before.state.tensors(), strict=True)
        made.restore(*(_laid_over(new, old) for new, old in states))
        first = self._rounds_done
        _run(made, range(first, first + rounds), first + rounds, ())
        self._take(data, made, first + rounds)

    def _made_of(self) -> tuple[Federation, NDArray[np.bool_]]:
        return self._federation, self._federation.data.train.lengths > 0

    def _about(self) -> dict[str, Any]:
        return {"rounds_done": self._rounds_done}

    def _write(self, folder: Path) -> None:
        shared, personal = self._federation.state.writable()
        write_tensors(folder / "shared.safetensors", shared)
        write_tensors(folder / "personal.safetensors", personal)
        if isinstance(self._federation, OneRound) and self._federation.totals is not None:
            write_tensors(folder / "totals.safetensors", self._federation.totals.tensors())

    def _read(self, folder: Path, about: Mapping[str, Any]) -> None:
        data = _read_data(folder, str(about["data"]))
        made = self._made(data, self._config(data))
        made.restore(load_file(folder / "shared.safetensors"), load_file(folder / "personal.safetensors"))
        if isinstance(made, OneRound) and made.keeps_totals:
            made.totals = sum_for(made.method, data.n_items)
            made.totals.restore(load_file(folder / "totals.safetensors"))
        self._take(data, made, int(about["rounds_done"]))


class CentralizedModel(Model):
    """A centralized baseline. Its folder holds table and settings; it is fitted again when it is loaded."""

    _model: Baseline

    def _fit(self, data: Interactions, callbacks: Sequence[Callback]) -> None:
        given = self.get_params()
        seed, least = given.pop("seed"), given.pop("min_interactions")
        config = configure(self.method, given)
        histories = _of_enough(data.distinct().timed_by_user, least)
        nothing = Ragged.of_lengths(np.zeros(data.n_users, np.int64), np.zeros(0, histories.values.dtype))
        parts = Split(data, "all", False, histories, nothing, nothing, histories.sorted_unique())
        self._model = BASELINES[self.method].fit(parts, config, seed, None)
        self._data = data
        self.__dict__.pop("recommender", None)

    def _update(self, data: Interactions, changed: Ints, newer: Interactions, rounds: int) -> None:
        self._fit(data, ())

    def _made_of(self) -> tuple[Centralized, NDArray[np.bool_]]:
        histories = _of_enough(self.data.by_user, self.get_params()["min_interactions"])
        return Centralized(self._model), histories.lengths > 0

    def _write(self, folder: Path) -> None:
        pass

    def _read(self, folder: Path, about: Mapping[str, Any]) -> None:
        self._fit(_read_data(folder, str(about["data"])), ())


@cache
def estimator(method: str) -> type[Model]:
    """The class of a method or baseline by its name, your own registered methods included."""
    spelled = next((name for name, key in NAMES.items() if key == method), None)
    recipe = METHODS.get(method) or ONE_ROUND.get(method)
    if recipe is None and method not in BASELINES:
        find(method)  # the error names what there is
    config = recipe.config if recipe else BASELINES[method].config
    own = {name: field.get_default(call_default_factory=True) for name, field in config.model_fields.items()}
    base: type[Model] = FederatedModel if recipe else CentralizedModel
    settings = {name: RunConfig.model_fields[name].default for name in _SETTINGS} if recipe else {"seed": 0}
    if recipe:
        settings |= {"rounds": None, "plugins": ()}
    defaults = own | settings | {"min_interactions": LEAST}
    name = spelled or "".join(part.capitalize() for part in method.split("-"))
    made = type(name, (base,), {"method": method, "defaults": defaults, "__module__": "solera"})
    made.__doc__ = f"`{method}`. Parameters: {', '.join(f'{k}={v!r}' for k, v in defaults.items())}."
    given = [inspect.Parameter(k, inspect.Parameter.KEYWORD_ONLY, default=v) for k, v in defaults.items()]
    made.__signature__ = inspect.Signature(given)  # type: ignore[attr-defined]
    return made


def check_model(folder: Path) -> None:
    """Raise an error if there is no model in a folder."""
    if not (folder / _ABOUT).is_file():
        raise RunError(f"{folder} holds no model", "solera fit TABLE makes models/current")


def load_model(folder: str | Path) -> Model:
    """Open the folder that `Model.save` wrote."""
    path = Path(folder)
    check_model(path)
    try:
        about = json.loads((path / _ABOUT).read_text(encoding="utf-8"))
        if about["format"] != FORMAT:
            raise RunError(f"{path} has format {about['format']} of a model, not {FORMAT}", "fit it again")
        model = estimator(str(about["method"]))(**about["parameters"])
        model._read(path, about)
    except SoleraError:
        raise
    except (OSError, ValueError, KeyError, TypeError, SafetensorError, pl.exceptions.PolarsError) as error:
        raise RunError(f"the model in {path} is damaged: {error}", "fit it again") from None
    return model


def publish(model: Model, models: Path, keep: int = 7) -> Path:
    """Save a model to a new folder in `models` and move the link `current` there. Old models are removed."""
    models.mkdir(parents=True, exist_ok=True)
    former = numbered_folders(models, _MODEL)
    number = int(former[-1].name[len(_MODEL) :]) + 1 if former else 1
    folder = model.save(models / f"{_MODEL}{number}")
    link = models / f".{CURRENT}.{number}"
    link.unlink(missing_ok=True)
    link.symlink_to(folder.name)
    link.replace(models / CURRENT)
    sync_names(models)
    for old in former[: len(former) + 1 - keep]:
        remove_folder(old)
    return folder


def loaded(data: Any, columns: Mapping[str, str] | None, data_dir: Path | None = None) -> Interactions:
    """A table with everybody in it, also users with one row."""
    if isinstance(data, Interactions):
        return data
    named = isinstance(data, str) and data in datasets.names()
    try:
        return datasets.load(
            data,
            data_dir=data_dir,
            columns=dict(columns) if columns else None,
            min_interactions=None if named else 1,
        )
    except SoleraError as error:
        error.hint = in_python(error.hint)
        raise


def _of_enough(histories: Ragged, least: int) -> Ragged:
    """The histories of at least so many items; the others are empty."""
    enough = histories.lengths >= least
    kept = np.repeat(enough, histories.lengths)
    days = None if histories.days is None else histories.days[kept]
    found = Ragged.of_lengths(np.where(enough, histories.lengths, 0), histories.values[kept])
    return found if days is None else Ragged(found.offsets, found.values, days)


def _tell(callbacks: Sequence[Callback], done: int, clients: int) -> None:
    for each in callbacks:
        each.on_clients(done, clients)


def _run(made: Federation, numbers: range, total: int, callbacks: Sequence[Callback]) -> None:
    """Train, without a validation: no rows are held out."""
    with interruptible() as interrupted:
        for number in numbers:
            begin = perf_counter()
            done = made.run_round(number)
            if not np.isfinite(done.loss):
                raise DivergedError(
                    f"the training loss is not finite in round {number + 1}", "lower learning_rate"
                )
            entry = RoundEntry(
                round=number + 1,
                clients=done.clients,
                loss=done.loss,
                bytes=Bytes(up=done.bytes_up, down=done.bytes_down),
                seconds=RoundSeconds(
                    train=perf_counter() - begin, evaluate=0.0, server=done.seconds_on_server
                ),
            )
            for each in callbacks:
                each.after_round(Progress(number + 1, total, entry))
            if interrupted.is_set():
                raise KeyboardInterrupt


def _laid_over(new: Params, old: Params) -> Params:
    """What an earlier model learned, within one that has more users and items; these come last."""
    found = {}
    for name, before in old.items():
        value = new.get(name)
        if value is None or "/" in name:  # rows of clients, which are stored with their numbers
            found[name] = before
            continue
        found[name] = value.clone()
        found[name][tuple(slice(size) for size in before.shape)] = before.to(value)
    return found


def _write_data(data: Interactions, folder: Path) -> None:
    rows = {"user": data.users, "item": data.items} | ({} if data.times is None else {"time": data.times})
    items: dict[str, Any] = {"item": data.item_map.ids}
    if data.titles is not None:
        items["title"] = list(data.titles)
    if data.first_seen is not None:
        items["first_seen"] = data.first_seen
    if data.attributes is not None:
        lists = np.split(data.attributes.values, data.attributes.offsets[1:-1])
        items["attributes"] = [each.tolist() for each in lists]
    tables: dict[str, dict[str, Any]] = {
        "interactions": rows,
        "users": {"user": data.user_map.ids},
        "items": items,
    }
    for name, columns in tables.items():
        with replacing_file(folder / f"{name}.parquet") as file:
            pl.DataFrame(columns).write_parquet(file)


def _read_data(folder: Path, name: str) -> Interactions:
    rows, users, items = (
        pl.read_parquet(folder / f"{n}.parquet") for n in ("interactions", "users", "items")
    )
    attributes = None
    if "attributes" in items.columns:
        attributes = Ragged.from_lists(items["attributes"].to_list())
    return Interactions(
        name=name,
        users=rows["user"].to_numpy(writable=True),
        items=rows["item"].to_numpy(writable=True),
        times=rows["time"].to_numpy(writable=True) if "time" in rows.columns else None,
        user_map=IdMap(users["user"].to_list()),
        item_map=IdMap(items["item"].to_list()),
        titles=tuple(items["title"].to_list()) if "title" in items.columns else None,
        first_seen=items["first_seen"].to_numpy(writable=True) if "first_seen" in items.columns else None,
        attributes=attributes,
    )


def _options_of_plugin(plugin: str) -> Iterable[str]:
    return PLUGINS[plugin].config.model_fields if plugin in PLUGINS else ()
