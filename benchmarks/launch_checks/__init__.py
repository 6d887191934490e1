"""What `make bench-launch` does, one module a bar."""
