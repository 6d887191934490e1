import re
import subprocess

print(subprocess.run(["sbatch", "-W", "job.sh"]).returncode)
print(sorted(re.findall("rank . of . at .", open("out").read())))
