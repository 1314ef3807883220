"""Facts come in; files on disk that only their owner can read, and marks in a database, go out."""
