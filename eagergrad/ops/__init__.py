"""The ops, by kind; ``eagergrad`` exports their NumPy names."""
