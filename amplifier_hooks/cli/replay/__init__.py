"""A configuration and transcripts of past sessions come in; what the configuration would have decided goes out."""
