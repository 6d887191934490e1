"""What lies on a node: finished copies, scratch, locks, cleaning up."""
