"""A run that starts or ends comes in; the answers of its hooks go out."""
