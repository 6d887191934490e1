import re
import subprocess

print(subprocess.run(["sbatch", "-W", "job.sh"]).returncode)
print(sorted(re.findall("rank . sum .", open("out").read())))
