"""Requests about hooks come in; definitions, trial results and logs go out."""
