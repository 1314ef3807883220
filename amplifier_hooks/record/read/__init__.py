"""The files of a log come in; its lines, and a report that says what was verified, go out."""
