"""One event and its hooks come in; the merged outcome goes out, within the time limits."""
