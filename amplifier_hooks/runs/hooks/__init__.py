"""A run that starts or ends comes in; the answers of its blueprint's hooks go out."""
