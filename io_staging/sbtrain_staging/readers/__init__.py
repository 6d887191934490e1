"""What training scripts read staged data with."""
