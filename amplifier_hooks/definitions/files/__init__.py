"""YAML and JSON files come in; a set of definitions, or every flaw with its line, goes out."""
