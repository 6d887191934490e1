"""Who is in a layout's world, and the environment that a framework reads of it."""
