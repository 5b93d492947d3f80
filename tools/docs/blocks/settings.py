"""What methods, plug-ins, baselines and presets are, from the program itself."""

from __future__ import annotations

from collections.abc import Iterable

from blocks.markdown import PAIR, folded, table

from solera.baselines import BASELINES
from solera.methods import PLUGINS, find
from solera.methods import names as all_names
from solera.runs.presets import Preset, presets

METRICS = {"hr": "hr@10", "ndcg": "ndcg@10"}  # a preset's word for it, and a record's


def choices(*names: str) -> str:
    """The five choices of some methods, or of all."""
    made = [(f"`{name}`", find(name).choices) for name in names or all_names()]
    return table(("method", *made[0][1]), ((name, *each.values()) for name, each in made))


def options(name: str) -> str:
    """A method's options, as `solera methods NAME` shows them."""
    config = find(name).config
    fields = type(config).model_fields
    values = config.model_dump(mode="json").items()
    rows = ((f"`{key}`", f"`{value}`", fields[key].description or "") for key, value in values)
    return table(("`-o`", "default", "about"), rows)


def plugin_choices(name: str, *plugins: str) -> str:
    """The five choices of a method with each of some plug-ins."""
    made = [(f"`{name} --plugin {plugin}`", find(name, {}, [plugin]).choices) for plugin in plugins]
    return table(("method", *made[0][1]), ((title, *each.values()) for title, each in made))


def plugin_options(*names: str) -> str:
    """The options that plug-ins add to a method's."""
    rows = [
        (f"`{name}`", f"`{key}`", f"`{value}`", PLUGINS[name].config.model_fields[key].description or "")
        for name in names
        for key, value in PLUGINS[name].config().model_dump(mode="json").items()
    ]
    return table(("`--plugin`", "`-o`", "default", "about"), rows)


def baseline_options(name: str) -> str:
    """A baseline's options."""
    config = BASELINES[name].config
    shown = {key: ",".join(map(str, v)) if isinstance(v, tuple) else v for key, v in config()}
    rows = [(f"`{k}`", f"`{v}`", config.model_fields[k].description or "") for k, v in shown.items()]
    options_ = table(("`-o`", "default", "about"), rows)
    return folded(f"Options of <code>{name}</code>", options_) if rows else f"`{name}` has no options."


def preset_table(*names: str) -> str:
    """The presets of published rows, of some methods and plug-ins or of all. Without any, the tuned ones."""
    rows = [
        (f"`{p.name}`", f"`{p.protocol}`", str(p.settings.get("rounds")), _changed(p), published(p), p.source)
        for p in presets().values()
        if p.published and (not names or {p.method, *p.plugins} & set(names))
    ]
    head = ("preset", "protocol", "rounds", "not the defaults", f"published {PAIR}", "source")
    tuned_ones = (p for p in presets().values() if p.method in names)
    return table(head, rows) if rows else _settings(tuned_ones) or "There is none."


def _changed(entry: Preset) -> str:
    assert entry.method
    default = find(entry.method, {}, entry.plugins).config.model_dump(mode="json")
    taken = find(entry.method, entry.options, entry.plugins).config.model_dump(mode="json")
    return ", ".join(f"`{key}={taken[key]}`" for key in taken if taken[key] != default[key]) or "none"


def published(entry: Preset) -> str:
    """The figures of a published row."""
    return " / ".join(f"{entry.published[key]:.3f}" for key in METRICS if entry.published)


def _settings(entries: Iterable[Preset]) -> str:
    rows = [
        (f"`{p.name}`", ", ".join(f"`{k}={v}`" for k, v in p.options.items()) or "defaults", p.source)
        for p in entries
        if p.name.startswith("strict:")
    ]
    return table(("preset", "settings", "how"), rows) if rows else ""
