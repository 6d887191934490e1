"""What `make bench-discovery` does: sbtrain on clusters of which nothing was written down."""
