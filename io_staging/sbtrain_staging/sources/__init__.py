"""What is to be staged: manifests, pieces, hashes, what changed since."""
