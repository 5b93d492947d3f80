"""Commands that plug into `solera`; pyproject.toml names them under the entry points `solera.commands`."""
