import subprocess

print(subprocess.run(["sbatch", "-W", "-o", "o", "--wrap", "exit 3"]).returncode)
print(subprocess.run("sbatch -N x", shell=True, capture_output=True))
