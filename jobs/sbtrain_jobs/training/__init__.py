"""What a training script imports: join, Run, sampler, checkpoints, step clock."""
