"""From what a user asked to what sbatch is handed: request, plan, notes, job script."""
