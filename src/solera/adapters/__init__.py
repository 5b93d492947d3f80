"""Solera's models as parts of LensKit and RecTools, which the modules of these names import."""
