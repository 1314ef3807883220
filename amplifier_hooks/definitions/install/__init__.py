"""Definitions come in; hooks of a registry, replaced as one set, go out."""
