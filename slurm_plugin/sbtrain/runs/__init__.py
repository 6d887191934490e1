"""The user's runs: the list of them, and how each stands."""
