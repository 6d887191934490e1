"""What `make bench-discovery` does, one module a bar."""
