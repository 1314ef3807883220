"""Runs and their events come in; rows of a database, and runs read back, go out."""
