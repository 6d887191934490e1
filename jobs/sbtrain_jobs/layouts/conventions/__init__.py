"""One module a framework: by what its ranks find each other. Each is chosen by its name."""
