"""Makes a compiled library of modules of the product, with mypyc: those that a list names."""
