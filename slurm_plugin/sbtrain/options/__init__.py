"""What a user wrote: command line, #SBATCH and #SBTRAIN lines, sbtrain's own flags."""
