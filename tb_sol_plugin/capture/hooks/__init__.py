"""Work of layers seen through hooks: which modules, which closed forms, what to fall back on."""
